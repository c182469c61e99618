"""Tests of active learning: the simulated reviewer leaves every span with its annotations; rounds can be plotted."""

import numpy as np
import pytest
from experiments.active_learning import plot_rounds, review_spans, write_verdicts
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.review.outcome import summarise_review
from mast.review.queues.basic import QueueItem
from mast.review.read_verdicts import read_verdicts
from tests.review.builders import event_table

ITEM = QueueItem("am1/a.flac", 0.0, 20.0, (), "")


def at(start_s: float, low_hz: float = 1000.0, score: float = 0.5) -> dict:
    return {
        "recording_id": "am1/a.flac",
        "start_s": start_s,
        "end_s": start_s + 1,
        "low_hz": low_hz,
        "score": score,
    }


def test_an_empty_span_has_only_the_verdict_of_the_span():
    (only,) = review_spans([ITEM], event_table([]), {})
    assert (only.kind, only.state, only.start_s, only.end_s, only.low_hz) == (
        "span",
        "accepted",
        0.0,
        20.0,
        None,
    )


def test_an_event_is_corrected_or_rejected_and_a_missed_annotation_is_added():
    ground_truth = {"am1/a.flac": np.array([[2.2, 1000.0, 3.2, 3000.0], [12.0, 1000.0, 13.0, 3000.0]])}
    table = event_table([at(2.0), at(2.1), at(8.0), at(30.0)])
    verdicts = [
        (verdict.state, verdict.start_s, verdict.score)
        for verdict in review_spans([ITEM], table, ground_truth)
        if verdict.kind == "sound"
    ]
    assert verdicts == [
        ("accepted", 2.2, 0.5),
        ("rejected", 2.1, 0.5),
        ("rejected", 8.0, 0.5),
        ("accepted", 12.0, None),
    ]


@given(st.lists(st.integers(0, 24), max_size=6), st.lists(st.integers(0, 24), max_size=4, unique=True))
@settings(max_examples=40)
def test_after_the_review_the_annotations_are_accepted_and_nothing_is_open(detected, annotated):
    ground_truth = np.array([[at_s, 1000.0, at_s + 1.0, 3000.0] for at_s in annotated]).reshape(-1, 4)
    table = event_table([at(at_s + number / 100) for number, at_s in enumerate(detected)])
    outcome = summarise_review(table, review_spans([ITEM], table, {"am1/a.flac": ground_truth}))
    accepted = sorted(verdict.start_s for verdict in outcome.accepted)
    assert accepted == sorted(at_s for at_s in annotated if at_s < 20)
    assert (outcome.open, outcome.uncertain) == (0, ())
    assert sum(span.end_s - span.start_s for span in outcome.reviewed) == pytest.approx(20.0)


def test_verdicts_are_written_in_the_format_of_mast_review(tmp_path):
    verdicts = review_spans([ITEM], event_table([at(2.0)]), {})
    write_verdicts(tmp_path / "review.sqlite", verdicts)
    read = read_verdicts(str(tmp_path / "review.sqlite"))
    assert [verdict.event_id for verdict in read] == [verdict.event_id for verdict in verdicts]
    assert [path.name for path in tmp_path.iterdir()] == ["review.sqlite"]


def test_rounds_are_plotted_over_annotated_minutes():
    rounds = [
        {"f1": {"value": 0.1 * number or None}, "average_precision": {"value": 0.2, "low": 0.1, "high": 0.3}}
        for number in range(3)
    ]
    figure = plot_rounds(
        {"reviewers": {"uncertain-minutes": {"0": rounds, "1": rounds}, "sequential": {"0": rounds}}}
    )
    first = figure.axes[0].lines[0]
    assert first.get_xdata().tolist() == [5.0, 6.0, 7.0]
    assert first.get_ydata().tolist() == pytest.approx([0.0, 0.1, 0.2])
