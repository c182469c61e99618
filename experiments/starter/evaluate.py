"""Test the detector that ships on real recordings that it never learned from.

    python -m experiments.starter.evaluate DATA MODEL       writes experiments/results/starter.json

Nothing is fitted to these recordings: the score threshold is the one chosen in the validation world. Boxes are compared
by IoU and by IoMin of at least 0.5. `time_ap` is the average precision of seconds: a second is positive if a call lies
in it, and its score is the highest score of a detection in it. Intervals are bootstraps over recordings.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mast
from experiments.starter.peers import SecondScores, birdnet, yamnet
from experiments.starter.plots import plot_best_and_worst
from experiments.starter.sources import Clip, read_clips
from experiments.starter.test_sets import TEST_SETS, TestRecording, TestSet
from mast.config import Detection
from mast.detection.chunk_detector import ModelChunkDetector
from mast.evaluation.bootstrap import confidence_interval
from mast.evaluation.matching import GroupedBoxes, OverlapKind, match
from mast.evaluation.metrics import METRICS, RankedPredictions
from mast.models.loading import LoadedModel, load_detector
from mast.records import Event
from mast.types import Floats, Mask

RESULTS = Path(__file__).parents[1] / "results" / "starter.json"
MIN_SCORE, MIN_OVERLAP = 0.01, 0.5
OVERLAPS: tuple[OverlapKind, ...] = ("iou", "iomin", "time")
CLIP_ROLES = ("machine", "human", "wind", "rain", "weather")


@dataclass(frozen=True, slots=True)
class TestedRecording:
    """A recording with its detections and the annotations within the detector's band."""

    recording: TestRecording
    detections: list[Event]
    truth: Floats  # (M, 4)
    duration_s: float

    def predicted(self) -> Floats:
        """Return the bounds of the detections. (N, 4)"""
        bounds = [bounds_of(event) for event in self.detections]
        return np.array(bounds, dtype=np.float64).reshape(-1, 4)

    def scores(self) -> Floats:
        """Return the scores of the detections. (N,)"""
        return np.array([event.score for event in self.detections], dtype=np.float64)


def bounds_of(event: Event) -> tuple[float, float, float, float]:
    """Return start_s, low_hz, end_s and high_hz of a detection, which always has frequencies."""
    assert event.low_hz is not None and event.high_hz is not None
    return event.start_s, event.low_hz, event.end_s, event.high_hz


def test_recordings(model: mast.Model, test_set: TestSet, data: Path) -> list[TestedRecording]:
    """Detect in the recordings of a set; keep what lies in the annotated parts."""
    high_hz = model.info.spectrogram.high_hz * test_set.time_expansion
    tested = []
    for recording in test_set.recordings(data):
        found = model.detect(recording.path, min_score=MIN_SCORE, time_expansion=test_set.time_expansion)
        truth = np.array([box for box in recording.boxes if box[1] < high_hz], dtype=np.float64).reshape(
            -1, 4
        )
        truth[:, 3] = truth[:, 3].clip(max=high_hz)
        kept = [event for event in found if _is_annotated(recording, (event.start_s + event.end_s) / 2)]
        wave, rate_hz = mast.load_audio(recording.path)
        tested.append(TestedRecording(recording, kept, truth, len(wave) / rate_hz))
    return tested


def _is_annotated(recording: TestRecording, at_s: float) -> bool:
    return recording.spans is None or any(start_s <= at_s < end_s for start_s, end_s in recording.spans)


def ranking(tested: Sequence[TestedRecording], overlap: OverlapKind) -> RankedPredictions:
    """Match the detections of every recording with its annotations."""
    groups = [np.full(len(item.detections), number) for number, item in enumerate(tested)]
    truth_groups = [np.full(len(item.truth), number) for number, item in enumerate(tested)]
    score = np.concatenate([item.scores() for item in tested])
    predicted = GroupedBoxes(
        np.concatenate(groups), np.concatenate([item.predicted() for item in tested]), score
    )
    truth = GroupedBoxes(np.concatenate(truth_groups), np.concatenate([item.truth for item in tested]))
    matches = match(predicted, truth, overlap, MIN_OVERLAP)
    return RankedPredictions.of(score, matches.overlap, predicted.group, truth.group, len(tested))


def measure(tested: Sequence[TestedRecording], threshold: float) -> dict[str, Any]:
    """Return the metrics of a set, with intervals."""
    values: dict[str, Any] = {
        "recordings": len(tested),
        "boxes": sum(len(item.truth) for item in tested),
        "minutes": round(sum(item.duration_s for item in tested) / 60, 2),
    }
    for overlap in OVERLAPS:
        ranked = ranking(tested, overlap)
        at = ranked.with_min_score(threshold)
        suffix = "" if overlap == "iou" else f"_{overlap}"
        for name, metric, on in (
            ("f1", "f1", at), ("precision", "precision", at), ("recall", "recall", at),
            ("ap", "average_precision", ranked),
        ):  # fmt: skip
            bounds = confidence_interval(METRICS[metric], on, np.random.default_rng(0))
            values[f"{name}{suffix}"] = _rounded(METRICS[metric](on, None))
            values[f"{name}{suffix}_interval"] = [_rounded(bounds.low), _rounded(bounds.high)]
    return values


def seconds_of(item: TestedRecording, time_expansion: float) -> tuple[Floats, Floats, Mask]:
    """Return for every second whether a call lies in it, the highest score of a detection in it, and if it is annotated.

    Seconds are those of the slowed-down recording.
    """
    count = max(1, math.ceil(item.duration_s * time_expansion))
    is_call, score = np.zeros(count), np.zeros(count)
    for start_s, _, end_s, _ in item.truth * time_expansion:
        is_call[int(start_s) : min(count, math.ceil(end_s))] = 1
    for (start_s, _, end_s, _), value in zip(item.predicted() * time_expansion, item.scores(), strict=True):
        inside = slice(int(start_s), min(count, math.ceil(end_s)))
        score[inside] = np.maximum(score[inside], value)
    middle_s = (np.arange(count) + 0.5) / time_expansion
    return is_call, score, np.array([_is_annotated(item.recording, at_s) for at_s in middle_s])


def time_precision(
    tested: Sequence[TestedRecording], time_expansion: float, scorer: SecondScores | None = None
) -> float:
    """Return the average precision of seconds, of the detections or of another program's scores."""
    labels, scores = [], []
    for item in tested:
        is_call, score, is_kept = seconds_of(item, time_expansion)
        if scorer:
            score = np.resize(scorer(item.recording.path, time_expansion), len(is_call))
        labels.append(is_call[is_kept])
        scores.append(score[is_kept])
    return _rounded(average_precision_of(np.concatenate(labels), np.concatenate(scores)))


def average_precision_of(is_positive: Floats, score: Floats) -> float:
    """Return the average precision of scores for labels."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(is_positive, score)) if is_positive.any() else math.nan


def false_alarms(detector: ModelChunkDetector, clips: Sequence[Clip], threshold: float) -> dict[str, float]:
    """Return the detections per hour in held-out clips without animals, by their kind."""
    counts, hours = dict.fromkeys(CLIP_ROLES, 0), dict.fromkeys(CLIP_ROLES, 0.0)
    size = round(detector.description.chunking.chunk_s * 16_000)
    for clip in clips:
        kind = clip.label if clip.label in ("wind", "rain") else clip.role
        if clip.part == "validation" and kind in counts:
            audio = np.zeros(size, np.int16)
            audio[: len(clip.wave)] = clip.wave[:size]
            (found,) = detector(audio[None], np.array([min(len(clip.wave), size)]))
            counts[kind] += int((found.scores >= threshold).sum())
            hours[kind] += min(len(clip.wave), size) / 16_000 / 3600
    return {kind: _rounded(count / hours[kind]) for kind, count in counts.items() if hours[kind]}


def _rounded(value: float) -> float:
    return round(float(value), 4)


def main() -> None:
    """Test a model and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of recordings, one folder a source")
    parser.add_argument("model", nargs="?", default="starter", help="detector to test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="result file")
    parser.add_argument("--birdnet", type=Path, help="TFLite file of BirdNET V2.4, to compare with")
    parser.add_argument("--yamnet", type=Path, help="TFLite file of YAMNet, to compare with")
    parser.add_argument("--pictures", type=Path, help="folder of pictures of the best and worst recordings")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = mast.load_model(options.model)
    threshold = model.info.thresholds["score"]
    peers = {
        "birdnet": options.birdnet and birdnet(options.birdnet),
        "yamnet": options.yamnet and yamnet(options.yamnet),
    }
    sets: dict[str, dict[str, Any]] = {}
    for test_set in TEST_SETS:
        expansion = test_set.time_expansion
        tested = test_recordings(model, test_set, options.data)
        sets[test_set.name] = values = {"taxon": test_set.taxon, "is_complete": test_set.is_complete}
        values |= measure(tested, threshold)
        values["time_ap"] = time_precision(tested, expansion)
        for name, scorer in peers.items():
            if scorer:
                values[f"{name}_time_ap"] = time_precision(tested, expansion, scorer)
        print(
            test_set.name,
            {name: value for name, value in values.items() if "interval" not in name},
            flush=True,
        )
        if options.pictures:
            plot_best_and_worst(tested, threshold, test_set.name, options.pictures)
    loaded: LoadedModel[Any] = load_detector(options.model)
    alarms = false_alarms(ModelChunkDetector(loaded, Detection()), read_clips(options.data), threshold)
    print("false alarms per hour", alarms)
    results = {
        "model": model.info.identity, "threshold": threshold, "source": model.info.source, "sets": sets,
        "false_alarms_per_hour": alarms,
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
