"""Choice of the score threshold on validation."""

from __future__ import annotations

import pytest
import torch

from mast.models.postprocess import ChunkDetections
from mast.training.thresholds import choose_threshold
from mast.training.validation import ValidationPredictions

HIT, MISS = [0.0, 0, 10, 10], [50.0, 50, 60, 60]
GROUND_TRUTH = torch.tensor([HIT])


def detections(*rows: tuple[list[float], float]) -> ChunkDetections:
    return ChunkDetections(
        torch.tensor([box for box, _ in rows]).reshape(-1, 4), torch.tensor([score for _, score in rows])
    )


def test_without_a_validation_split_the_fallback_is_used() -> None:
    chosen = choose_threshold(ValidationPredictions(), 0.05)
    assert (chosen.score, chosen.results) == (0.05, {})
    assert chosen.reason == "detection.score_threshold, because the validation split is empty"


def test_without_correct_detections_the_fallback_is_used() -> None:
    chosen = choose_threshold(ValidationPredictions([detections((MISS, 0.9))], [GROUND_TRUTH]), 0.05)
    assert chosen.score == 0.05 and chosen.results["validation_f1"] == 0
    assert chosen.reason.endswith("because there are no correct detections on validation")


def test_without_ground_truth_undefined_metrics_are_left_out() -> None:
    chosen = choose_threshold(ValidationPredictions([detections()], [torch.zeros(0, 4)]), 0.05)
    assert chosen.score == 0.05 and "validation_f1" not in chosen.results


def test_without_a_box_on_validation_there_are_no_metrics_and_the_reason_says_so() -> None:
    chosen = choose_threshold(
        ValidationPredictions([detections((MISS, 0.9)), detections()], [torch.zeros(0, 4)] * 2), 0.05
    )
    assert (chosen.score, chosen.results) == (0.05, {})
    assert chosen.reason == "detection.score_threshold, because the validation split has no boxes"


def test_the_threshold_of_nearly_the_highest_f1_by_hand() -> None:
    chunks = [detections((HIT, 0.9), (MISS, 0.3)), detections((HIT, 0.6)), detections((MISS, 0.5))]
    chosen = choose_threshold(
        ValidationPredictions(chunks, [GROUND_TRUTH, GROUND_TRUTH, torch.zeros(0, 4)]), 0.05
    )
    assert chosen.score == pytest.approx(0.55)
    assert chosen.results["validation_f1"] == 1.0
    assert chosen.results["validation_average_precision"] == 1.0
    assert chosen.reason == "nearly the highest F1 on validation"


def test_synthetic_calls_affect_the_threshold_and_not_the_metrics() -> None:
    real = ValidationPredictions([detections((HIT, 0.9), (MISS, 0.3))], [GROUND_TRUTH])
    synthetic = ValidationPredictions(
        [detections((HIT, 0.3)), detections((HIT, 0.25))], [GROUND_TRUTH, GROUND_TRUTH]
    )
    alone, chosen = choose_threshold(real, 0.05), choose_threshold(real, 0.05, synthetic)
    assert alone.score == pytest.approx(0.6)  # anything above the false positive
    assert chosen.score == 0.25  # two more calls for one false positive
    assert chosen.results["validation_precision"] == 0.5 and chosen.results["validation_recall"] == 1.0
    assert chosen.results["validation_average_precision"] == alone.results["validation_average_precision"]
    assert chosen.reason == "nearly the highest F1 on validation and 2 synthetic calls"


def test_without_validation_boxes_the_threshold_is_chosen_on_synthetic_calls_alone() -> None:
    synthetic = ValidationPredictions([detections((HIT, 0.4), (MISS, 0.2))], [GROUND_TRUTH])
    for real in (
        ValidationPredictions(),
        ValidationPredictions([detections((MISS, 0.1))], [torch.zeros(0, 4)]),
    ):
        chosen = choose_threshold(real, 0.05, synthetic)
        assert (chosen.score, chosen.results) == (pytest.approx(0.3), {})
        assert chosen.reason == "nearly the highest F1 on 1 synthetic call"
    nothing = choose_threshold(
        ValidationPredictions(), 0.05, ValidationPredictions([detections()], [GROUND_TRUTH])
    )
    assert nothing.score == 0.05
    assert nothing.reason.endswith("because there are no correct detections on 1 synthetic call")
