"""The score from which boxes are reported."""

from __future__ import annotations

import pytest
import torch

from mast.models.decoding import Detections
from mast.training.hearing import Heard
from mast.training.thresholds import choose_threshold

HIT, MISS = [0.0, 0, 10, 10], [50.0, 50, 60, 60]
TRUTH = torch.tensor([HIT])


def found(*rows: tuple[list[float], float]) -> Detections:
    return Detections(
        torch.tensor([box for box, _ in rows]).reshape(-1, 4), torch.tensor([score for _, score in rows])
    )


def test_without_validation_sound_the_fallback_is_told() -> None:
    chosen = choose_threshold(Heard(), 0.05)
    assert (chosen.score, chosen.results) == (0.05, {})
    assert "no validation sound" in chosen.reason


def test_where_nothing_is_found_the_fallback_is_told() -> None:
    chosen = choose_threshold(Heard([found((MISS, 0.9))], [TRUTH]), 0.05)
    assert chosen.score == 0.05 and chosen.results["validation_f1"] == 0
    assert "nothing was found" in chosen.reason


def test_without_truths_what_cannot_be_said_is_left_out() -> None:
    chosen = choose_threshold(Heard([found()], [torch.zeros(0, 4)]), 0.05)
    assert chosen.score == 0.05 and "validation_f1" not in chosen.results


def test_without_a_box_on_validation_nothing_is_measured_and_that_is_told() -> None:
    chosen = choose_threshold(Heard([found((MISS, 0.9)), found()], [torch.zeros(0, 4)] * 2), 0.05)
    assert (chosen.score, chosen.results) == (0.05, {})
    assert "no box in the validation sound" in chosen.reason


def test_the_score_of_a_good_f1_by_hand() -> None:
    chunks = [found((HIT, 0.9), (MISS, 0.3)), found((HIT, 0.6)), found((MISS, 0.5))]
    chosen = choose_threshold(Heard(chunks, [TRUTH, TRUTH, torch.zeros(0, 4)]), 0.05)
    assert chosen.score == pytest.approx(0.55)
    assert chosen.results["validation_f1"] == 1.0
    assert chosen.results["validation_ap_area"] == 1.0
    assert chosen.reason == "nearly the highest F1 on validation"


def test_made_up_calls_help_to_choose_and_measure_nothing() -> None:
    real = Heard([found((HIT, 0.9), (MISS, 0.3))], [TRUTH])
    made_up = Heard([found((HIT, 0.3)), found((HIT, 0.25))], [TRUTH, TRUTH])
    alone, chosen = choose_threshold(real, 0.05), choose_threshold(real, 0.05, made_up)
    assert alone.score == pytest.approx(0.6)  # anything above the false alarm
    assert chosen.score == 0.25  # one false alarm is worth two calls
    assert chosen.results["validation_precision"] == 0.5 and chosen.results["validation_recall"] == 1.0
    assert chosen.results["validation_ap_area"] == alone.results["validation_ap_area"]
    assert chosen.reason == "nearly the highest F1 on validation and 2 made-up calls"


def test_where_no_box_is_known_made_up_calls_choose_alone() -> None:
    made_up = Heard([found((HIT, 0.4), (MISS, 0.2))], [TRUTH])
    for real in (Heard(), Heard([found((MISS, 0.1))], [torch.zeros(0, 4)])):
        chosen = choose_threshold(real, 0.05, made_up)
        assert (chosen.score, chosen.results) == (pytest.approx(0.3), {})
        assert chosen.reason == "nearly the highest F1 on 1 made-up calls"
    nothing = choose_threshold(Heard(), 0.05, Heard([found()], [TRUTH]))
    assert nothing.score == 0.05 and "nothing was found on 1 made-up calls" in nothing.reason
