"""Agreement of two annotators: worked out by hand, by chance, and against a naive count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mast.cli import app
from mast.errors import StorageError
from mast.review.agreement import (
    agreements,
    decisions,
    interpret_kappa,
    kappa,
    matched_iou,
    measure_agreement,
    wilson,
)
from tests.review.builders import span, store, verdict


def verdicts_of_two(states: list[tuple[str, str]]):
    """Build verdicts of ana, then of ben, on events of several recordings."""
    rows = []
    for number, (first, second) in enumerate(states):
        box = {"recording_id": f"card/{number % 7}.WAV", "start_s": float(number), "end_s": number + 1.0}
        rows.append(verdict(f"s{number}", first, **box))
        rows.append(verdict(f"s{number}", second, version=2, user="ben", **box))
    return rows


def test_without_common_events_there_is_no_agreement():
    assert agreements([]) == []
    assert agreements([verdict("a")]) == []
    assert np.isnan(kappa([])) and np.isnan(wilson(0, 0)[0])


def test_kappa_by_hand():
    states = [("accepted", "accepted")] * 20 + [("accepted", "rejected")] * 5
    states += [("rejected", "accepted")] * 10 + [("rejected", "rejected")] * 15
    (result,) = agreements(verdicts_of_two(states))
    assert (result.users, result.events, result.agreed) == (("ana", "ben"), 50, 35)
    assert result.kappa[0] == pytest.approx(0.4)  # the textbook's table
    assert result.kappa[1] < 0.4 < result.kappa[2]
    assert result.agreement[0] == pytest.approx(0.7) and result.agreement[1] == pytest.approx(
        0.5625, abs=1e-3
    )
    assert result.box_iou == pytest.approx(1.0)
    assert "both decided 50 events and agree on 70%" in result.sentences() and "fair" in result.sentences()


def test_kappa_is_undefined_if_all_verdicts_are_the_same():
    (result,) = agreements(verdicts_of_two([("accepted", "accepted")] * 9))
    assert np.isnan(result.kappa[0]) and "(not defined)" in result.sentences()


@given(
    st.lists(st.tuples(*[st.sampled_from(["accepted", "rejected", "unsure"])] * 2), min_size=1, max_size=40)
)
@settings(max_examples=40)
def test_kappa_equals_kappa_of_the_table_of_counts(states):
    pairs = [(verdict("a", first), verdict("a", second)) for first, second in states]
    table = np.zeros((3, 3))
    names = ["accepted", "rejected", "unsure"]
    for first, second in states:
        table[names.index(first), names.index(second)] += 1
    table /= table.sum()
    chance = table.sum(axis=0) @ table.sum(axis=1)
    assert (
        np.isnan(kappa(pairs))
        if chance > 1 - 1e-12
        else kappa(pairs) == pytest.approx((np.trace(table) - chance) / (1 - chance), abs=1e-9)
    )


def test_wilsons_bounds_contain_the_true_fraction_in_95_of_100():
    rng = np.random.default_rng(0)
    covered = [
        low <= 0.9 <= high for _, low, high in (wilson(int(rng.binomial(40, 0.9)), 40) for _ in range(2000))
    ]
    assert 0.92 < np.mean(covered) < 0.98


def test_an_undone_verdict_does_not_count_and_only_the_last_verdict_of_each_user_counts():
    rows = [
        verdict("a"),
        verdict("a", "rejected", version=2, user="ben"),
        verdict("a", "accepted", version=3, user="ben", reverts=2),
        verdict("b", "rejected"),
        verdict("b", "unsure", version=2),
    ]
    assert [(item.event_id, item.user, item.state) for item in decisions(rows)] == [
        ("a", "ana", "accepted"),
        ("b", "ana", "unsure"),
    ]


def test_in_minutes_that_both_reviewed_boxes_are_paired_once_by_their_iou():
    def drawn(name, user, start_s, end_s):
        return verdict(name, user=user, start_s=start_s, end_s=end_s, score=None)

    rows = [
        span("card/1.WAV", 0.0, 60.0), span("card/1.WAV", 30.0, 90.0, event_id="other", user="ben"),
        drawn("a1", "ana", 31.0, 32.0), drawn("a2", "ana", 40.0, 41.0), drawn("a3", "ana", 10.0, 11.0),
        drawn("b1", "ben", 31.0, 32.25), drawn("b2", "ben", 31.1, 32.0), drawn("b3", "ben", 80.0, 81.0),
    ]  # fmt: skip
    (result,) = agreements(rows)
    assert (result.events, result.minutes, result.boxes, result.matched) == (0, 0.5, (2, 2), 1)
    assert result.matched_iou == pytest.approx(0.9)
    assert (
        "In 0.5 min that both reviewed: ana 2 boxes, ben 2 boxes; 1 matched, with a mean IoU of 90%"
        in result.sentences()
    )
    assert matched_iou([], []) == []


@pytest.mark.parametrize(
    ("value", "name"),
    [(-0.1, "no better than chance"), (0.5, "moderate"), (0.9, "almost perfect")],
)
def test_the_name_of_a_kappa(value, name):
    assert interpret_kappa(value) == name


def test_the_command_prints_a_table_and_sentences(tmp_path):
    states = [("accepted", "accepted")] * 5 + [("rejected", "accepted")] * 5
    store(tmp_path / "review.sqlite", verdicts_of_two(states))
    done = CliRunner().invoke(
        app, ["agreement", str(tmp_path)], catch_exceptions=False, env={"COLUMNS": "120"}
    )
    assert "ana and ben" in done.output and "agree on 50%" in done.output
    alone = store(tmp_path / "alone.sqlite", [verdict("a")])
    with pytest.raises(StorageError, match="no two users have decided the same event"):
        measure_agreement(str(tmp_path), alone)
    assert Path(alone).exists()
