"""Does it matter where chunks begin? A trained detector over the same recordings, cut at several other moments.

    python -m experiments.phase STUDY.yaml MODEL

From every recording of the test sets the first moment is left out, so that each chunk begins elsewhere, and the events
are put back to where they were. Told are: how many events above the threshold are found again with an IoU of 0.9, from
either side; the same where the cut is a whole number of the encoder's patches and where it is not; events with other
batches; and the share of experts' calls that are found where a chunk cuts them, and where none does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from benchmarks.results import write_result
from numpy.typing import NDArray

from mast.config import Study, collection_of, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.split_table import boxes_by_recording
from mast.detection.chunks import BoxFinder
from mast.detection.recording import HOP, detect_recording
from mast.evaluation.matching import Boxes, match
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.study.products import STORE

Floats = NDArray[np.float64]
PATCH_FRAMES = 16
PHASES_FRAMES = (5, 32, 77, 160, 203, 307)
"""How much is left out: two are whole patches of the encoder, four are not."""

SAME_IOU, FOUND_IOU = 0.9, 0.5
OTHER_BATCHES = (1, 7)


def main() -> None:
    """Hear every recording at each phase, and write what was found again."""
    parser = parser_of(__doc__, Path("experiments/results/phase.json"))
    parser.add_argument("--hop", type=float, default=HOP, help="from one chunk to the next, in chunks")
    options = parser.parse_args()
    study = load_study(options.study)
    names, recordings = tested(study, options)
    figures = measured(study, options.model, recordings, options.hop)
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


def measured(study: Study, model: str, recordings: Sequence[str], hop: float) -> dict[str, Any]:
    """Figures over all recordings and phases."""
    loaded = load_detector(model)
    finder = BoxFinder(loaded, study.detection)
    shift_s = loaded.description.spectrogram.shift_s
    hop_s, chunk_s = round(hop * loaded.frontend.frames) * shift_s, loaded.frontend.frames * shift_s
    experts = boxes_by_recording(study, "animal")
    again = {phase: Tally() for phase in PHASES_FRAMES}
    batches, edge, inside = Tally(), Tally(), Tally()
    for name in recordings:
        sound, rate_hz = soundfile.read(location_of(study, name), dtype="int16")
        whole = found_in(sound, rate_hz, finder, hop_s)
        truths = experts.get(name, np.zeros((0, 4)))
        for phase, tally in again.items():
            cut_s = phase * shift_s
            cut = found_in(sound[round(cut_s * rate_hz) :], rate_hz, finder, hop_s)
            cut[:, [0, 2]] += cut_s
            tally.add(is_among(whole[whole[:, 0] >= cut_s + chunk_s], cut, SAME_IOU))
            tally.add(is_among(cut[cut[:, 0] >= cut_s + chunk_s], whole, SAME_IOU))
            heard = truths[truths[:, 0] >= cut_s]
            was_found, is_cut = is_among(heard, cut, FOUND_IOU), cut_by_chunks(heard, cut_s, hop_s, chunk_s)
            edge.add(was_found[is_cut])
            inside.add(was_found[~is_cut])
        for batch in OTHER_BATCHES:
            other = found_in(sound, rate_hz, finder, hop_s, batch)
            batches.add(is_among(whole, other, 1 - 1e-3))
    aligned = [phase for phase in PHASES_FRAMES if phase % PATCH_FRAMES == 0]
    return {
        "recordings": len(recordings),
        "events_compared": sum(tally.count for tally in again.values()),
        "same_at_other_phases": share(again.values()),
        "same_at_phases_of_whole_patches": share(again[phase] for phase in aligned),
        "same_by_phase_frames": {str(phase): share([tally]) for phase, tally in again.items()},
        "same_in_other_batches": share([batches]),
        "recall_of_calls_cut_by_a_chunk": share([edge]),
        "recall_of_calls_inside": share([inside]),
        "calls_cut": edge.count,
        "calls_inside": inside.count,
    }


class Tally:
    """How many of how many."""

    def __init__(self) -> None:
        self.count, self.right = 0, 0

    def add(self, was_right: NDArray[np.bool_]) -> None:
        """Some more."""
        self.count += len(was_right)
        self.right += int(was_right.sum())


def share(tallies: Iterable[Tally]) -> float | None:
    """What share of all was right."""
    all_tallies = list(tallies)
    count = sum(tally.count for tally in all_tallies)
    return round(sum(tally.right for tally in all_tallies) / count, 4) if count else None


def location_of(study: Study, recording_id: str) -> str:
    """Where a recording is."""
    collection = collection_of(recording_id, study.collections)
    return join(study.collections[collection].root, recording_id.removeprefix(f"{collection}/"))


def found_in(
    sound: NDArray[np.int16], rate_hz: int, finder: BoxFinder, hop_s: float, batch: int | None = None
) -> Floats:
    """Events above the threshold, as start, low, end, high and score. (N, 5)"""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file.name, sound, rate_hz)
        events = [*detect_recording(file.name, finder, hop_s=hop_s, batch=batch)]
    rows = [(event.start_s, event.low_hz, event.end_s, event.high_hz, event.score) for event in events]
    return np.array(rows, np.float64).reshape(-1, 5)


def is_among(sounds: Floats, events: Floats, min_iou: float) -> NDArray[np.bool_]:
    """Which sounds are found among events with this overlap. (N, 4 or 5), (M, 5) → (N,)"""
    found = Boxes(np.zeros(len(events), np.int64), events[:, :4], events[:, 4])
    wanted = Boxes(np.zeros(len(sounds), np.int64), sounds[:, :4])
    taken = match(found, wanted, min_overlap=min_iou).truth
    return np.isin(np.arange(len(sounds)), taken)


def cut_by_chunks(calls: Floats, begin_s: float, hop_s: float, chunk_s: float) -> NDArray[np.bool_]:
    """Which calls have a chunk's start or end within them. (N, 4) → (N,)"""
    is_cut = np.zeros(len(calls), np.bool_)
    for first_s in (begin_s + hop_s, begin_s + chunk_s):  # the first chunk's start is the recording's
        number = np.ceil((calls[:, 0] - first_s) / hop_s).clip(min=0)
        is_cut |= (first_s + number * hop_s > calls[:, 0]) & (first_s + number * hop_s < calls[:, 2])
    return is_cut


if __name__ == "__main__":
    main()
