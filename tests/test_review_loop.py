"""The reviewer of the review experiment leaves every span as the experts have it, and the rounds can be drawn."""

import numpy as np
import pytest
from experiments.review_loop import decide, draw_rounds, keep
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.review.queues import Ask
from mast.review.reading import read_verdicts
from mast.review.taking import take
from tests.review.made import sounds

ASK = Ask("am1/a.flac", 0.0, 20.0, (), "")


def at(start_s: float, low_hz: float = 1000.0, score: float = 0.5) -> dict:
    return {
        "recording_id": "am1/a.flac",
        "start_s": start_s,
        "end_s": start_s + 1,
        "low_hz": low_hz,
        "score": score,
    }


def test_of_an_empty_span_only_its_review_is_told():
    (only,) = decide([ASK], sounds([]), {})
    assert (only.kind, only.state, only.start_s, only.end_s, only.low_hz) == (
        "span",
        "accepted",
        0.0,
        20.0,
        None,
    )


def test_a_sound_is_corrected_rejected_or_drawn():
    truth = {"am1/a.flac": np.array([[2.2, 1000.0, 3.2, 3000.0], [12.0, 1000.0, 13.0, 3000.0]])}
    table = sounds([at(2.0), at(2.1), at(8.0), at(30.0)])
    told = [
        (item.state, item.start_s, item.score) for item in decide([ASK], table, truth) if item.kind == "sound"
    ]
    assert told == [
        ("accepted", 2.2, 0.5),
        ("rejected", 2.1, 0.5),
        ("rejected", 8.0, 0.5),
        ("accepted", 12.0, None),
    ]


@given(st.lists(st.integers(0, 24), max_size=6), st.lists(st.integers(0, 24), max_size=4, unique=True))
@settings(max_examples=40)
def test_after_the_review_the_experts_boxes_hold_and_nothing_is_open(found, known):
    truths = np.array([[at_s, 1000.0, at_s + 1.0, 3000.0] for at_s in known]).reshape(-1, 4)
    table = sounds([at(at_s + number / 100) for number, at_s in enumerate(found)])
    taken = take(table, decide([ASK], table, {"am1/a.flac": truths}))
    assert sorted(item.start_s for item in taken.accepted) == sorted(at_s for at_s in known if at_s < 20)
    assert (taken.open, taken.unsure) == (0, ())
    assert sum(span.end_s - span.start_s for span in taken.reviewed) == pytest.approx(20.0)


def test_verdicts_are_kept_as_review_keeps_them(tmp_path):
    verdicts = decide([ASK], sounds([at(2.0)]), {})
    keep(tmp_path / "review.sqlite", verdicts)
    read = read_verdicts(str(tmp_path / "review.sqlite"))
    assert [item.subject for item in read] == [item.subject for item in verdicts]
    assert [path.name for path in tmp_path.iterdir()] == ["review.sqlite"]


def test_rounds_are_drawn_over_labelled_minutes():
    rounds = [
        {"f1": {"value": 0.1 * number or None}, "ap_area": {"value": 0.2, "low": 0.1, "high": 0.3}}
        for number in range(3)
    ]
    figure = draw_rounds({"reviewers": {"doubtful": {"0": rounds, "1": rounds}, "sequential": {"0": rounds}}})
    first = figure.axes[0].lines[0]
    assert first.get_xdata().tolist() == [5.0, 6.0, 7.0]
    assert first.get_ydata().tolist() == pytest.approx([0.0, 0.1, 0.2])
