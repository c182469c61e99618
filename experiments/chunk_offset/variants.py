"""Measure variants of detection that may depend less on chunk offsets: their gain and their cost.

    python -m experiments.chunk_offset.variants STUDY.yaml MODEL

Like `experiments.chunk_offset.measure`, on a subset of the recordings and with fewer offsets. Each variant has the
threshold that gives as many events as the first variant, which is that of `mast detect`: fewer events of higher score
would be detected again more often without any gain.
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

from experiments.chunk_offset.detectors import Variant, VariantDetector
from experiments.chunk_offset.measure import DetectionSetup, location_of, make_parser, select_recordings
from experiments.event_agreement import (
    IOUS,
    Floats,
    concatenate,
    mean_interval,
    rank_predictions,
    same_fraction,
)
from mast.audio.spectrogram import MelGrid
from mast.config import PATCH_SIZE, Study, load_study
from mast.datasets.sampler import evenly_spaced
from mast.datasets.split_table import boxes_by_recording
from mast.detection.stitching import EDGE_FRAMES
from mast.evaluation.bootstrap import RESAMPLES, interval
from mast.evaluation.metrics import RankedPredictions, average_precision, f1, mean_iou
from mast.models import postprocess
from mast.models.loading import load_detector
from mast.models.postprocess import VOTING_IOU, box_voting

OFFSETS_FRAMES = (0, 77, 160)
"""Cropped frames: none, an offset that is not a whole number of patches, and one that is."""

RECORDINGS = 25

VARIANTS = {
    "mast detect": Variant(),
    "no box voting": Variant(voting_iou=1.0),
    "one background per recording": Variant(shares_background=True),
    "edges snapped to level changes": Variant(snaps_edges=True),
    "scores faded at chunk edges": Variant(fades_scores=True),
    "half overlap": Variant(hop=0.5),
    "half overlap, averaged": Variant(hop=0.5, averages_boxes=True),
    "half overlap minus half a patch, averaged": Variant(
        hop=0.5, hop_reduction_frames=PATCH_SIZE // 2, averages_boxes=True
    ),
}


def main() -> None:
    """Run each variant on a subset of the recordings, and write agreement and accuracy."""
    options = make_parser(__doc__, Path("experiments/results/chunk_offset_variants.json")).parse_args()
    study = load_study(options.study)
    splits, candidates = select_recordings(study, options)
    recordings = [candidates[number] for number in evenly_spaced(len(candidates), RECORDINGS)]
    rows = measure(study, options.model, recordings)
    metrics = {
        "splits": splits,
        "recordings": len(recordings),
        "offsets_frames": OFFSETS_FRAMES,
        "variants": rows,
    }
    write_result(options.out, metrics, ("torch", "numpy"))


def measure(study: Study, model: str, recordings: Sequence[str]) -> list[dict[str, Any]]:
    """Compute the metrics of each variant."""
    rows: list[dict[str, Any]] = []
    first: VariantEvents | None = None
    for name, variant in VARIANTS.items():
        events = run_variant(study, model, recordings, variant)
        first = first or events
        rows.append({"variant": name, **compare_variants(events, first)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


@dataclass(frozen=True, slots=True)
class VariantEvents:
    """Events (N, 5) of one variant by recording and offset, annotated calls (M, 4) by recording, and chunk count."""

    setup: DetectionSetup
    events: list[list[Floats]]
    calls: list[Floats]
    chunks: int

    def rankings(self, shift_s: float) -> list[RankedPredictions]:
        """Rank the events at each offset, matched with the calls after the offset."""
        return [
            rank_predictions(
                [by_offset[number] for by_offset in self.events],
                [calls[calls[:, 0] >= offset * shift_s] for calls in self.calls],
            )
            for number, offset in enumerate(OFFSETS_FRAMES)
        ]


def run_variant(study: Study, model: str, recordings: Sequence[str], variant: Variant) -> VariantEvents:
    """Detect the events of all recordings at all offsets with one variant."""
    detector = VariantDetector(load_detector(model), study.detection, variant)
    setup = DetectionSetup.of(detector, variant.hop - variant.hop_reduction_frames / detector.frames)
    shift_s = detector.description.spectrogram.frame_shift_s
    annotations = boxes_by_recording(study, "animal")
    events, chunks = [], 0
    with patch.object(postprocess, "VOTING_IOU", variant.voting_iou):
        for name in recordings:
            by_offset = []
            for offset in OFFSETS_FRAMES:
                detections = detect(setup, detector, location_of(study, name), offset * shift_s)
                chunks += len(detector.chunk_detections)
                if variant.averages_boxes:
                    detections = average_boxes(detections, detector, setup, offset * shift_s)
                by_offset.append(detections)
            events.append(by_offset)
    calls = [annotations.get(name, np.zeros((0, 4))) for name in recordings]
    return VariantEvents(setup, events, calls, chunks)


def detect(setup: DetectionSetup, detector: VariantDetector, location: str, offset_s: float) -> Floats:
    """Detect the events after an offset, after collecting the background of the recording if shared. → (N, 5)"""
    detector.chunk_detections.clear()
    if detector.variant.shares_background:
        detector.background.medians.clear()
        detector.background.is_collecting = True
        setup.events(location, offset_s)
        detector.background.is_collecting = False
    return setup.events(location, offset_s)


def average_boxes(
    events: Floats, detector: VariantDetector, setup: DetectionSetup, offset_s: float
) -> Floats:
    """Average the edges of events with those of overlapping boxes of any chunk that does not cut them. → (N, 5)"""
    grid = MelGrid(detector.description.spectrogram, detector.frames)
    shift_s, hop_frames = grid.settings.frame_shift_s, setup.hop_s / grid.settings.frame_shift_s
    offset = torch.tensor([offset_s / shift_s, 0] * 2)
    event_boxes = grid.to_exact_boxes(torch.from_numpy(events[:, :4])) - offset
    boxes, scores = [event_boxes], [torch.from_numpy(events[:, 4])]
    for number, chunk in enumerate(detector.chunk_detections):
        is_whole = (chunk.boxes[:, 0] > EDGE_FRAMES) & (chunk.boxes[:, 2] < detector.frames - EDGE_FRAMES)
        boxes.append(chunk.boxes[is_whole].double() + torch.tensor([number * hop_frames, 0] * 2))
        scores.append(chunk.scores[is_whole].double())
    edges = grid.boxes_to_events(
        box_voting(event_boxes, torch.cat(boxes), torch.cat(scores), VOTING_IOU)
    ).numpy()
    return np.column_stack([edges + np.array([offset_s, 0] * 2), events[:, 4]])


def compare_variants(events: VariantEvents, first: VariantEvents) -> dict[str, Any]:
    """Compute the metrics of a variant at the threshold that gives as many events as the first variant."""
    shift_s = events.setup.detector.description.spectrogram.frame_shift_s
    setup = replace(events.setup, threshold=matched_threshold(events, first))
    parts = [
        (number, setup.compare(by_offset[0], cropped, offset * shift_s))
        for number, by_offset in enumerate(events.events)
        for offset, cropped in zip(OFFSETS_FRAMES[1:], by_offset[1:], strict=True)
    ]
    is_same = concatenate([part for _, part in parts]).is_same  # (N, 3)
    recording = np.repeat([number for number, _ in parts], [len(part.outcome) for _, part in parts])
    offset = np.repeat(
        np.tile(OFFSETS_FRAMES[1:], len(events.events)), [len(part.outcome) for _, part in parts]
    )
    rankings, others = events.rankings(shift_s), first.rankings(shift_s)
    counted = [item.with_min_score(setup.threshold) for item in rankings]
    return {
        "events_compared": len(is_same),
        "same_at_iou": {str(iou): mean_interval(is_same[:, n], recording) for n, iou in enumerate(IOUS)},
        "same_at_offsets_of_whole_patches": same_fraction(is_same[offset % PATCH_SIZE == 0, -1]),
        "ap": rounded(np.mean([average_precision(item, None) for item in rankings])),
        "ap_gain": gain(rankings, others),
        "f1": rounded(np.mean([f1(item, None) for item in counted])),
        "mean_iou_with_annotations": rounded(np.mean([mean_iou(item, None) for item in counted])),
        "times_the_chunks": round(events.chunks / first.chunks, 2),
    }


def matched_threshold(variant: VariantEvents, first: VariantEvents) -> float:
    """Return the threshold at which a variant has as many events as the first variant at its own threshold."""
    scores, others = (
        np.concatenate([events[:, 4] for by_offset in item.events for events in by_offset])
        for item in (variant, first)
    )
    count = int((others >= first.setup.threshold).sum())
    return float(np.sort(scores)[-count]) if 0 < count <= len(scores) else first.setup.threshold


def gain(rankings: Sequence[RankedPredictions], others: Sequence[RankedPredictions]) -> list[float | None]:
    """Return the gain in average precision, mean over offsets, and its interval over recordings."""
    result = interval(
        lambda weight: float(
            np.mean(
                [
                    average_precision(one, weight) - average_precision(other, weight)
                    for one, other in zip(rankings, others, strict=True)
                ]
            )
        ),
        len(rankings[0].ground_truth),
        np.random.default_rng(0),
        RESAMPLES,
        0.95,
    )
    return [rounded(number) for number in (result.value, result.low, result.high)]


if __name__ == "__main__":
    main()
