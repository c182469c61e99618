"""Does it matter where chunks begin? A trained detector over the same recordings, cut at several other moments.

    python -m experiments.phase STUDY.yaml MODEL

From every recording of the test sets the first moment is left out, so that each chunk begins elsewhere, and the events
are put back to where they were. Told are: how many events above the threshold are found again, from either side, at
three overlaps, by phase, by score and by how deep they lie in their chunk; what became of the others, and how far edges
moved; events with other batches; and the share of experts' calls that are found when a chunk cuts them, against that of
the same calls when none does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from benchmarks.results import rounded, write_result
from numpy.typing import NDArray

from experiments.agreement import (
    IOUS,
    SAME_IOU,
    Compared,
    Floats,
    compare,
    cut_by_chunks,
    depth_s,
    is_among,
    mean_interval,
    paired_recall,
    same_share,
    shares,
    together,
)
from mast.config import PATCH, Study, collection_of, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.split_table import boxes_by_recording
from mast.detection.chunks import BoxFinder
from mast.detection.recording import HOP, detect_recording
from mast.evaluation.matching import OVERLAPS
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.spectrogram import MelGrid
from mast.storage import join
from mast.study.products import STORE

PHASES_FRAMES = (5, 32, 77, 160, 203, 307)
"""How much is left out: two are whole patches of the encoder, four are not."""

FOUND_IOU = 0.5
OTHER_BATCHES, EVERY = (1, 7), 4
"""Chunks at once, and every which recording is heard with them."""

SCORES = (0.0, 0.4, 0.5, 0.6, 0.7, 1.0)
DEPTHS_S = (0.0, 0.25, 0.5, 1.0, np.inf)
LENGTHS_S = (0.0, 0.2, 0.4, 0.8, 1.6, np.inf)


@dataclass(frozen=True, slots=True)
class Hearing:
    """How a recording is heard: by which detector, and how chunks lie."""

    finder: BoxFinder
    threshold: float
    hop_s: float
    chunk_s: float

    @classmethod
    def of(cls, finder: BoxFinder, hop: float) -> Hearing:
        """With a hop in chunks."""
        shift_s = finder.description.spectrogram.shift_s
        threshold = finder.description.thresholds.get("score", finder.settings.min_score)
        return cls(finder, threshold, round(hop * finder.frames) * shift_s, finder.frames * shift_s)

    def events(self, location: str, begin_s: float = 0.0, batch: int | None = None) -> Floats:
        """All events of a recording without its beginning, in its own time, down to the finder's least score. (N, 5)"""
        sound, rate_hz = soundfile.read(location, dtype="int16")
        least = self.finder.settings.min_score
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            soundfile.write(file.name, sound[round(begin_s * rate_hz) :], rate_hz)
            heard = detect_recording(file.name, self.finder, min_score=least, hop_s=self.hop_s, batch=batch)
            rows = [(item.start_s, item.low_hz, item.end_s, item.high_hz, item.score) for item in heard]
        events: Floats = np.array(rows, np.float64).reshape(-1, 5)
        events[:, [0, 2]] += begin_s
        return events

    def loud(self, events: Floats) -> Floats:
        """Events above the threshold. (N, 5) → (M, 5)"""
        return events[events[:, 4] >= self.threshold]

    def compared(self, whole: Floats, cut: Floats, begin_s: float) -> Compared:
        """Sounds of either hearing beside the other, but for those in the first chunk. (N, 5), (M, 5)"""
        pairs = [
            (self.loud(own[own[:, 0] >= begin_s + self.chunk_s]), other)
            for own, other in ((whole, cut), (cut, whole))
        ]
        return together([compare(own, other, self.threshold) for own, other in pairs])


def main() -> None:
    """Hear every recording at each phase, and write what was found again."""
    parser = parser_of(__doc__, Path("experiments/results/phase.json"))
    parser.add_argument("--hop", type=float, default=HOP, help="from one chunk to the next, in chunks")
    options = parser.parse_args()
    study = load_study(options.study)
    names, recordings = tested(study, options)
    hearing = Hearing.of(BoxFinder(load_detector(options.model), study.detection), options.hop)
    figures = measured(study, hearing, recordings)
    write_result(options.out, {"splits": names, "hop": options.hop, **figures}, ("torch", "numpy"))
    print(json.dumps(figures, indent=2))


def parser_of(told: str | None, out: Path) -> argparse.ArgumentParser:
    """What every experiment asks for that has a model hear the test sets of a study."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("model")
    parser.add_argument("--splits", nargs="*", help="by default the test split and every held-out set")
    parser.add_argument("--recordings", type=int, help="of each split, at most")
    parser.add_argument("--out", type=Path, default=out)
    return parser


def tested(study: Study, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Names of the splits that were asked for, and their recordings."""
    names = options.splits or ["test", *study.splits.held_out]
    return names, [name for split in names for name in recordings_of(study, split)[: options.recordings]]


def recordings_of(study: Study, split: str) -> list[str]:
    """Recordings of a split, in order."""
    table = detection_examples(study, AudioStore(join(study.work, STORE)), split).table
    return sorted(set(table["recording_id"].to_pylist()))


def location_of(study: Study, recording_id: str) -> str:
    """Where a recording is."""
    collection = collection_of(recording_id, study.collections)
    return join(study.collections[collection].root, recording_id.removeprefix(f"{collection}/"))


def measured(study: Study, hearing: Hearing, recordings: Sequence[str]) -> dict[str, Any]:
    """Figures over all recordings and phases."""
    shift_s = hearing.finder.description.spectrogram.shift_s
    experts = boxes_by_recording(study, "animal")
    rows: list[Pair] = []
    calls: list[Floats] = []
    batches: list[Floats] = []
    for number, name in enumerate(recordings):
        location, truths = location_of(study, name), experts.get(name, np.zeros((0, 4)))
        whole = hearing.events(location)
        calls.append(heard_calls(hearing, truths, whole, 0.0, number))
        for phase in PHASES_FRAMES:
            cut = hearing.events(location, phase * shift_s)
            compared = hearing.compared(whole, cut, phase * shift_s)
            rows.append(Pair(number, phase, compared))
            calls.append(heard_calls(hearing, truths, cut, phase * shift_s, number))
        for batch in OTHER_BATCHES if number % EVERY == 0 else ():
            other = hearing.events(location, batch=batch)
            batches.append(is_among(hearing.loud(whole), hearing.loud(other), 1 - 1e-3).astype(float))
        print(f"{number + 1} of {len(recordings)} recordings", flush=True)
    recording, call, is_cut, is_found = np.concatenate(calls).T
    return {
        "recordings": len(recordings),
        "threshold": rounded(hearing.threshold),
        **agreement(rows, hearing, shift_s),
        "same_in_other_batches": same_share(np.concatenate(batches) > 0),
        "recall_of_calls_cut_by_a_chunk": same_share(is_found[is_cut > 0] > 0),
        "recall_of_calls_inside": same_share(is_found[is_cut == 0] > 0),
        "recall_of_the_same_calls": paired_recall(
            recording.astype(np.int64), call.astype(np.int64), is_cut > 0, is_found > 0
        ),
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """A recording heard from its start and at another phase, beside each other."""

    recording: int
    phase_frames: int
    compared: Compared


def heard_calls(hearing: Hearing, calls: Floats, events: Floats, begin_s: float, number: int) -> Floats:
    """Recording, call, whether a chunk cuts it and whether it is found, of calls after the beginning. (N, 4) → (M, 4)"""
    is_heard = calls[:, 0] >= begin_s
    is_cut = cut_by_chunks(calls[is_heard], begin_s, hearing.hop_s, hearing.chunk_s)
    is_found = is_among(calls[is_heard], hearing.loud(events), FOUND_IOU)
    return np.column_stack(
        [np.full(is_heard.sum(), number), np.flatnonzero(is_heard), is_cut, is_found]
    ).astype(np.float64)


def agreement(pairs: Sequence[Pair], hearing: Hearing, shift_s: float) -> dict[str, Any]:
    """What was found again and what became of the rest, over all pairs."""
    compared = together([pair.compared for pair in pairs])
    count = [len(pair.compared.fate) for pair in pairs]
    recording = np.repeat([pair.recording for pair in pairs], count)
    phase = np.repeat([pair.phase_frames for pair in pairs], count)
    begins_s = phase * shift_s
    depth = np.minimum(
        *(depth_s(compared.sound, begin_s, hearing.hop_s, hearing.chunk_s) for begin_s in (0.0, begins_s))
    )
    length_s = compared.sound[:, 2] - compared.sound[:, 0]
    is_same = compared.is_same[:, -1]
    return {
        "events_compared": len(is_same),
        "same_at_iou": {
            str(iou): mean_interval(compared.is_same[:, column], recording) for column, iou in enumerate(IOUS)
        },
        "same_at_other_phases": same_share(is_same),
        "same_at_phases_of_whole_patches": same_share(is_same[phase % PATCH == 0]),
        "same_by_phase_frames": {str(item): same_share(is_same[phase == item]) for item in PHASES_FRAMES},
        "fates": shares(compared),
        "by_score": by(compared, compared.sound[:, 4], SCORES),
        "by_depth_s": by(compared, depth, DEPTHS_S),
        "by_length_s": by(compared, length_s, LENGTHS_S),
        "edges": edges(compared, MelGrid(hearing.finder.description.spectrogram, hearing.finder.frames)),
    }


def by(compared: Compared, values: Floats, bounds: Sequence[float]) -> list[dict[str, Any]]:
    """How many sounds lie between two bounds, and what share of them is found again at each IoU. (N,)"""
    rows = []
    for low, high in pairwise(bounds):
        chosen = compared.is_same[(values >= low) & (values < high)]
        same = {str(iou): same_share(chosen[:, column]) for column, iou in enumerate(IOUS)}
        rows.append({"from": low, "events": len(chosen), "same_at_iou": same})
    return rows


def edges(compared: Compared, grid: MelGrid) -> dict[str, Any]:
    """How far edges lie apart between a sound and its partner, and in which direction partners below 0.9 differ."""
    has_partner = ~np.isnan(compared.partner[:, 0])
    own, partner = (
        grid.to_exact_boxes(torch.from_numpy(item[has_partner, :4])).numpy()
        for item in (compared.sound, compared.partner)
    )  # (N, 4) each, in frames and bins
    if not len(own):
        return {}
    apart = np.abs(partner - own)
    in_time, in_band, both = overlaps_by_side(own, partner)
    is_off = both < SAME_IOU
    told: Mapping[str, NDArray[np.bool_]] = {
        "time": (in_time < SAME_IOU) & (in_band >= SAME_IOU),
        "band": (in_time >= SAME_IOU) & (in_band < SAME_IOU),
        "each": (in_time < SAME_IOU) & (in_band < SAME_IOU),
        "only together": (in_time >= SAME_IOU) & (in_band >= SAME_IOU),
    }
    return {
        "median_sides_frames_bins": [rounded(side) for side in np.median(own[:, 2:] - own[:, :2], axis=0)],
        "median_apart_frames_bins": [rounded(number) for number in np.median(apart, axis=0)],
        "ninth_decile_apart_frames_bins": [rounded(number) for number in np.quantile(apart, 0.9, axis=0)],
        "below_0.9_because_of": {name: same_share(rows[is_off]) for name, rows in told.items()},
    }


def overlaps_by_side(own: Floats, partner: Floats) -> tuple[Floats, Floats, Floats]:
    """IoU of pairs in time alone, in frequency alone, and of the boxes. (N, 4), (N, 4) → (N,) each"""
    turned = [1, 0, 3, 2]
    return (
        OVERLAPS["time"](own, partner),
        OVERLAPS["time"](own[:, turned], partner[:, turned]),
        OVERLAPS["iou"](own, partner),
    )


if __name__ == "__main__":
    main()
