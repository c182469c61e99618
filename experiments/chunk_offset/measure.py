"""Measure how much detections depend on chunk offsets: run a detector on recordings cropped at several start times.

    python -m experiments.chunk_offset.measure STUDY.yaml MODEL

Each recording of the test sets is cropped at its start, so that every chunk starts at another time, and the times of the
events are shifted back. The result has the fraction of events above the threshold that are detected again, in both
directions, at three IoUs, by offset, by score and by depth in their chunk; the outcomes of the other events, and the
differences of their edges; the same with other batch sizes; and the recall of annotated calls when a chunk cuts them,
compared with the same calls when none does.
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

from experiments.event_agreement import (
    IOUS,
    SAME_IOU,
    Comparison,
    Floats,
    compare,
    concatenate,
    cut_by_chunks,
    depth_s,
    is_matched,
    mean_interval,
    outcome_fractions,
    paired_recall,
    same_fraction,
)
from mast.audio.spectrogram import MelGrid
from mast.config import PATCH_SIZE, Study, collection_of, load_study
from mast.datasets.split_table import boxes_by_recording
from mast.datasets.study_datasets import detection_dataset
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.detect import CHUNK_HOP_FRACTION, detect_recording
from mast.evaluation.matching import OVERLAPS
from mast.models.loading import load_detector
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE

OFFSETS_FRAMES = (5, 32, 77, 160, 203, 307)
"""Cropped frames: two offsets are whole patches of the encoder, four are not."""

RECALL_IOU = 0.5
OTHER_BATCHES, BATCH_INTERVAL = (1, 7), 4
"""Other batch sizes, and the interval of recordings that are processed with them."""

SCORES = (0.0, 0.4, 0.5, 0.6, 0.7, 1.0)
DEPTHS_S = (0.0, 0.25, 0.5, 1.0, np.inf)
LENGTHS_S = (0.0, 0.2, 0.4, 0.8, 1.6, np.inf)


@dataclass(frozen=True, slots=True)
class DetectionSetup:
    """A detector with its threshold, chunk length and hop."""

    detector: ModelChunkDetector
    threshold: float
    hop_s: float
    chunk_s: float

    @classmethod
    def of(cls, detector: ModelChunkDetector, hop: float) -> DetectionSetup:
        """Create a setup with a hop in chunks."""
        shift_s = detector.description.spectrogram.frame_shift_s
        threshold = detector.description.thresholds.get("score", detector.settings.score_threshold)
        return cls(detector, threshold, round(hop * detector.frames) * shift_s, detector.frames * shift_s)

    def events(self, location: str, offset_s: float = 0.0, batch: int | None = None) -> Floats:
        """Detect all events after `offset_s` of a recording, in its own time, of any score. → (N, 5)"""
        samples, rate_hz = soundfile.read(location, dtype="int16")
        min_score = self.detector.settings.score_threshold
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            soundfile.write(file.name, samples[round(offset_s * rate_hz) :], rate_hz)
            detections = detect_recording(
                file.name, self.detector, min_score=min_score, hop_s=self.hop_s, batch=batch
            )
            rows = [(item.start_s, item.low_hz, item.end_s, item.high_hz, item.score) for item in detections]
        events: Floats = np.array(rows, np.float64).reshape(-1, 5)
        events[:, [0, 2]] += offset_s
        return events

    def above_threshold(self, events: Floats) -> Floats:
        """Return the events at or above the threshold. (N, 5) → (M, 5)"""
        return events[events[:, 4] >= self.threshold]

    def compare(self, original: Floats, cropped: Floats, offset_s: float) -> Comparison:
        """Compare two lists of events in both directions, without the first chunk after the offset. (N, 5), (M, 5)"""
        pairs = [
            (self.above_threshold(events[events[:, 0] >= offset_s + self.chunk_s]), others)
            for events, others in ((original, cropped), (cropped, original))
        ]
        return concatenate([compare(events, others, self.threshold) for events, others in pairs])


def main() -> None:
    """Run detection on every recording at each offset, and write the agreement."""
    parser = make_parser(__doc__, Path("experiments/results/chunk_offset.json"))
    parser.add_argument("--hop", type=float, default=CHUNK_HOP_FRACTION, help="hop between chunks, in chunks")
    options = parser.parse_args()
    study = load_study(options.study)
    splits, recordings = select_recordings(study, options)
    setup = DetectionSetup.of(ModelChunkDetector(load_detector(options.model), study.detection), options.hop)
    metrics = measure(study, setup, recordings)
    write_result(options.out, {"splits": splits, "hop": options.hop, **metrics}, ("torch", "numpy"))
    print(json.dumps(metrics, indent=2))


def make_parser(description: str | None, out: Path) -> argparse.ArgumentParser:
    """Create the command line of an experiment that runs a model on the test sets of a study."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("model")
    parser.add_argument("--splits", nargs="*", help="default: the test split and every held-out set")
    parser.add_argument("--recordings", type=int, help="maximum number per split")
    parser.add_argument("--out", type=Path, default=out)
    return parser


def select_recordings(study: Study, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the requested splits and their recordings."""
    splits = options.splits or ["test", *study.splits.held_out]
    return splits, [name for split in splits for name in recordings_of(study, split)[: options.recordings]]


def recordings_of(study: Study, split: str) -> list[str]:
    """Return the sorted recordings of a split."""
    table = detection_dataset(study, AudioStore(join(study.work_dir, STORE)), split).table
    return sorted(set(table["recording_id"].to_pylist()))


def location_of(study: Study, recording_id: str) -> str:
    """Return the location of a recording."""
    collection = collection_of(recording_id, study.collections)
    return join(study.collections[collection].root, recording_id.removeprefix(f"{collection}/"))


def measure(study: Study, setup: DetectionSetup, recordings: Sequence[str]) -> dict[str, Any]:
    """Compute the metrics over all recordings and offsets."""
    shift_s = setup.detector.description.spectrogram.frame_shift_s
    annotations = boxes_by_recording(study, "animal")
    comparisons: list[OffsetComparison] = []
    calls: list[Floats] = []
    batches: list[Floats] = []
    for number, name in enumerate(recordings):
        location, ground_truth = location_of(study, name), annotations.get(name, np.zeros((0, 4)))
        original = setup.events(location)
        calls.append(call_table(setup, ground_truth, original, 0.0, number))
        for offset in OFFSETS_FRAMES:
            cropped = setup.events(location, offset * shift_s)
            comparison = setup.compare(original, cropped, offset * shift_s)
            comparisons.append(OffsetComparison(number, offset, comparison))
            calls.append(call_table(setup, ground_truth, cropped, offset * shift_s, number))
        for batch in OTHER_BATCHES if number % BATCH_INTERVAL == 0 else ():
            other = setup.events(location, batch=batch)
            is_same = is_matched(setup.above_threshold(original), setup.above_threshold(other), 1 - 1e-3)
            batches.append(is_same.astype(float))
        print(f"{number + 1} of {len(recordings)} recordings", flush=True)
    recording, call, is_cut, is_recalled = np.concatenate(calls).T
    return {
        "recordings": len(recordings),
        "threshold": rounded(setup.threshold),
        **agreement(comparisons, setup, shift_s),
        "same_in_other_batches": same_fraction(np.concatenate(batches) > 0),
        "recall_of_calls_cut_by_a_chunk": same_fraction(is_recalled[is_cut > 0] > 0),
        "recall_of_calls_inside": same_fraction(is_recalled[is_cut == 0] > 0),
        "recall_of_the_same_calls": paired_recall(
            recording.astype(np.int64), call.astype(np.int64), is_cut > 0, is_recalled > 0
        ),
    }


@dataclass(frozen=True, slots=True)
class OffsetComparison:
    """Comparison of the events of a recording and of the recording cropped by an offset."""

    recording: int
    offset_frames: int
    comparison: Comparison


def call_table(setup: DetectionSetup, calls: Floats, events: Floats, offset_s: float, number: int) -> Floats:
    """Return columns recording, call, is_cut and is_recalled for the calls after an offset. (N, 4) → (M, 4)"""
    is_included = calls[:, 0] >= offset_s
    is_cut = cut_by_chunks(calls[is_included], offset_s, setup.hop_s, setup.chunk_s)
    is_recalled = is_matched(calls[is_included], setup.above_threshold(events), RECALL_IOU)
    return np.column_stack(
        [np.full(is_included.sum(), number), np.flatnonzero(is_included), is_cut, is_recalled]
    ).astype(np.float64)


def agreement(items: Sequence[OffsetComparison], setup: DetectionSetup, shift_s: float) -> dict[str, Any]:
    """Compute the fraction of events detected again and the outcomes of the others, over all comparisons."""
    comparison = concatenate([item.comparison for item in items])
    count = [len(item.comparison.outcome) for item in items]
    recording = np.repeat([item.recording for item in items], count)
    offset = np.repeat([item.offset_frames for item in items], count)
    offsets_s = offset * shift_s
    depth = np.minimum(
        *(depth_s(comparison.event, offset_s, setup.hop_s, setup.chunk_s) for offset_s in (0.0, offsets_s))
    )
    length_s = comparison.event[:, 2] - comparison.event[:, 0]
    is_same = comparison.is_same[:, -1]
    return {
        "events_compared": len(is_same),
        "same_at_iou": {
            str(iou): mean_interval(comparison.is_same[:, column], recording)
            for column, iou in enumerate(IOUS)
        },
        "same_at_other_offsets": same_fraction(is_same),
        "same_at_offsets_of_whole_patches": same_fraction(is_same[offset % PATCH_SIZE == 0]),
        "same_by_offset_frames": {
            str(item): same_fraction(is_same[offset == item]) for item in OFFSETS_FRAMES
        },
        "outcomes": outcome_fractions(comparison),
        "by_score": same_by_bin(comparison, comparison.event[:, 4], SCORES),
        "by_depth_s": same_by_bin(comparison, depth, DEPTHS_S),
        "by_length_s": same_by_bin(comparison, length_s, LENGTHS_S),
        "edges": edge_differences(
            comparison, MelGrid(setup.detector.description.spectrogram, setup.detector.frames)
        ),
    }


def same_by_bin(comparison: Comparison, values: Floats, bounds: Sequence[float]) -> list[dict[str, Any]]:
    """Return the number of events with values (N,) in each bin, and the fraction detected again at each IoU."""
    rows = []
    for low, high in pairwise(bounds):
        chosen = comparison.is_same[(values >= low) & (values < high)]
        same = {str(iou): same_fraction(chosen[:, column]) for column, iou in enumerate(IOUS)}
        rows.append({"from": low, "events": len(chosen), "same_at_iou": same})
    return rows


def edge_differences(comparison: Comparison, grid: MelGrid) -> dict[str, Any]:
    """Compute differences between the edges of events and their partners, and the axis of those with IoU below 0.9."""
    has_partner = ~np.isnan(comparison.partner[:, 0])
    event, partner = (
        grid.to_exact_boxes(torch.from_numpy(item[has_partner, :4])).numpy()
        for item in (comparison.event, comparison.partner)
    )  # (N, 4) each, in frames and bins
    if not len(event):
        return {}
    difference = np.abs(partner - event)
    in_time, in_band, both = overlaps_by_axis(event, partner)
    is_below = both < SAME_IOU
    reasons: Mapping[str, NDArray[np.bool_]] = {
        "time": (in_time < SAME_IOU) & (in_band >= SAME_IOU),
        "band": (in_time >= SAME_IOU) & (in_band < SAME_IOU),
        "each": (in_time < SAME_IOU) & (in_band < SAME_IOU),
        "only together": (in_time >= SAME_IOU) & (in_band >= SAME_IOU),
    }
    return {
        "median_sides_frames_bins": [
            rounded(side) for side in np.median(event[:, 2:] - event[:, :2], axis=0)
        ],
        "median_apart_frames_bins": [rounded(number) for number in np.median(difference, axis=0)],
        "ninth_decile_apart_frames_bins": [
            rounded(number) for number in np.quantile(difference, 0.9, axis=0)
        ],
        "below_0.9_because_of": {name: same_fraction(rows[is_below]) for name, rows in reasons.items()},
    }


def overlaps_by_axis(event: Floats, partner: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the IoU of pairs in time, in frequency, and of the boxes. (N, 4), (N, 4) → (N,) each"""
    transposed = [1, 0, 3, 2]
    return (
        OVERLAPS["time"](event, partner),
        OVERLAPS["time"](event[:, transposed], partner[:, transposed]),
        OVERLAPS["iou"](event, partner),
    )


if __name__ == "__main__":
    main()
