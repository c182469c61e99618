"""Ways to make events depend less on where chunks begin: what each gains, and what it costs.

    python -m experiments.phase_ways STUDY.yaml MODEL

As `experiments.phase`, on every so many recordings and at fewer phases. Each way has the threshold at which it tells as
many events as the first, which is what `mast detect` does: fewer, surer events would be found again more often, and
that is no gain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.results import rounded, write_result

from experiments.agreement import IOUS, Floats, mean_interval, ranked, same_share, together
from experiments.phase import Hearing, location_of, parser_of, tested
from experiments.phase_finders import Altered, Way
from mast.config import PATCH, Study, load_study
from mast.datasets.order import spread
from mast.datasets.split_table import boxes_by_recording
from mast.detection.stitching import EDGE_FRAMES
from mast.evaluation.intervals import RESAMPLES, interval
from mast.evaluation.metrics import Ranking, ap_area, f1, mean_iou
from mast.models import decoding
from mast.models.decoding import VOTING_IOU, voted
from mast.models.loading import load_detector
from mast.spectrogram import MelGrid

PHASES_FRAMES = (0, 77, 160)
"""The recording from its start, and with so much left out: once not a whole number of patches, once one."""

RECORDINGS = 25

WAYS = {
    "as mast detect does": Way(),
    "the best box alone": Way(voting_iou=1.0),
    "one background for a recording": Way(steady=True),
    "edges drawn to the sound": Way(draws=True),
    "fading at chunk edges": Way(fades=True),
    "half overlap": Way(hop=0.5),
    "half overlap, averaged": Way(hop=0.5, averages=True),
    "half overlap, half a patch off, averaged": Way(hop=0.5, less_frames=PATCH // 2, averages=True),
}


def main() -> None:
    """Hear some recordings in each way, and write what was found again and what was right."""
    options = parser_of(__doc__, Path("experiments/results/phase_ways.json")).parse_args()
    study = load_study(options.study)
    names, every = tested(study, options)
    recordings = [every[number] for number in spread(len(every), RECORDINGS)]
    rows = measured(study, options.model, recordings)
    figures = {"splits": names, "recordings": len(recordings), "phases_frames": PHASES_FRAMES, "ways": rows}
    write_result(options.out, figures, ("torch", "numpy"))


def measured(study: Study, model: str, recordings: Sequence[str]) -> list[dict[str, Any]]:
    """Figures of each way."""
    rows: list[dict[str, Any]] = []
    first: Heard | None = None
    for told, way in WAYS.items():
        heard = heard_in(study, model, recordings, way)
        first = first or heard
        rows.append({"way": told, **compared_with(heard, first)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


@dataclass(frozen=True, slots=True)
class Heard:
    """All events of recordings in one way, phase by phase, (N, 5) each; the experts' calls; chunks heard."""

    hearing: Hearing
    events: list[list[Floats]]
    calls: list[Floats]
    chunks: int

    def rankings(self, shift_s: float) -> list[Ranking]:
        """Of each phase, against the calls that it can hear."""
        return [
            ranked(
                [phases[number] for phases in self.events],
                [calls[calls[:, 0] >= phase * shift_s] for calls in self.calls],
            )
            for number, phase in enumerate(PHASES_FRAMES)
        ]


def heard_in(study: Study, model: str, recordings: Sequence[str], way: Way) -> Heard:
    """Events of all recordings at all phases in one way."""
    finder = Altered(load_detector(model), study.detection, way)
    hearing = Hearing.of(finder, way.hop - way.less_frames / finder.frames)
    shift_s, experts = finder.description.spectrogram.shift_s, boxes_by_recording(study, "animal")
    events, chunks = [], 0
    with patch.object(decoding, "VOTING_IOU", way.voting_iou):
        for name in recordings:
            phases = []
            for phase in PHASES_FRAMES:
                found = hear(hearing, finder, location_of(study, name), phase * shift_s)
                chunks += len(finder.kept)
                phases.append(averaged(found, finder, hearing, phase * shift_s) if way.averages else found)
            events.append(phases)
    calls = [experts.get(name, np.zeros((0, 4))) for name in recordings]
    return Heard(hearing, events, calls, chunks)


def hear(hearing: Hearing, finder: Altered, location: str, begin_s: float) -> Floats:
    """Events of a recording without its beginning; for one background, it is listened to before. (N, 5)"""
    finder.kept.clear()
    if finder.way.steady:
        finder.background.medians.clear()
        finder.background.listens = True
        hearing.events(location, begin_s)
        finder.background.listens = False
    return hearing.events(location, begin_s)


def averaged(events: Floats, finder: Altered, hearing: Hearing, begin_s: float) -> Floats:
    """Events whose edges are voted about by themselves and by every chunk's box that its chunk does not cut. (N, 5)"""
    grid = MelGrid(finder.description.spectrogram, finder.frames)
    shift_s, hop_frames = grid.settings.shift_s, hearing.hop_s / grid.settings.shift_s
    own = grid.to_exact_boxes(torch.from_numpy(events[:, :4])) - torch.tensor([begin_s / shift_s, 0] * 2)
    boxes, scores = [own], [torch.from_numpy(events[:, 4])]
    for number, found in enumerate(finder.kept):
        is_whole = (found.boxes[:, 0] > EDGE_FRAMES) & (found.boxes[:, 2] < finder.frames - EDGE_FRAMES)
        boxes.append(found.boxes[is_whole].double() + torch.tensor([number * hop_frames, 0] * 2))
        scores.append(found.scores[is_whole].double())
    edges = grid.to_events(voted(own, torch.cat(boxes), torch.cat(scores), VOTING_IOU)).numpy()
    return np.column_stack([edges + np.array([begin_s, 0] * 2), events[:, 4]])


def compared_with(heard: Heard, first: Heard) -> dict[str, Any]:
    """Figures of a way at the threshold that tells as many events as the first."""
    shift_s = heard.hearing.finder.description.spectrogram.shift_s
    hearing = replace(heard.hearing, threshold=threshold_like(heard, first))
    parts = [
        (number, hearing.compared(phases[0], cut, phase * shift_s))
        for number, phases in enumerate(heard.events)
        for phase, cut in zip(PHASES_FRAMES[1:], phases[1:], strict=True)
    ]
    is_same = together([part for _, part in parts]).is_same  # (N, 3)
    recording = np.repeat([number for number, _ in parts], [len(part.fate) for _, part in parts])
    phase = np.repeat(np.tile(PHASES_FRAMES[1:], len(heard.events)), [len(part.fate) for _, part in parts])
    rankings, others = heard.rankings(shift_s), first.rankings(shift_s)
    counted = [item.above(hearing.threshold) for item in rankings]
    return {
        "events_compared": len(is_same),
        "same_at_iou": {str(iou): mean_interval(is_same[:, n], recording) for n, iou in enumerate(IOUS)},
        "same_at_phases_of_whole_patches": same_share(is_same[phase % PATCH == 0, -1]),
        "ap": rounded(np.mean([ap_area(item, None) for item in rankings])),
        "ap_gain": gain(rankings, others),
        "f1": rounded(np.mean([f1(item, None) for item in counted])),
        "mean_iou_with_experts": rounded(np.mean([mean_iou(item, None) for item in counted])),
        "times_the_chunks": round(heard.chunks / first.chunks, 2),
    }


def threshold_like(heard: Heard, first: Heard) -> float:
    """At which as many events are told as the first way tells at its own."""
    scores, others = (
        np.concatenate([events[:, 4] for phases in item.events for events in phases])
        for item in (heard, first)
    )
    wanted = int((others >= first.hearing.threshold).sum())
    return float(np.sort(scores)[-wanted]) if 0 < wanted <= len(scores) else first.hearing.threshold


def gain(rankings: Sequence[Ranking], others: Sequence[Ranking]) -> list[float | None]:
    """How much higher average precision is, mean over phases, and its interval over recordings."""
    told = interval(
        lambda weight: float(
            np.mean(
                [
                    ap_area(one, weight) - ap_area(other, weight)
                    for one, other in zip(rankings, others, strict=True)
                ]
            )
        ),
        len(rankings[0].truths),
        np.random.default_rng(0),
        RESAMPLES,
        0.95,
    )
    return [rounded(number) for number in (told.value, told.low, told.high)]


if __name__ == "__main__":
    main()
