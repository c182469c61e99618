"""What an audit tells: unbiased over many lots, bounds that hold as often as they say, and nothing from other queues."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from typer.testing import CliRunner

from mast.cli import app
from mast.detection.found import open_found
from mast.errors import ConfigError, StorageError
from mast.pictures.curves import Bar, draw_precision
from mast.review import precision as precision_module
from mast.review.precision import (
    CALIBRATION,
    PICTURE,
    Audit,
    audit_sample,
    calibrated_score,
    measure_precision,
    tell_precision,
    told,
)
from mast.review.queues import audit, audit_order, uncertain
from mast.review.sounds import sounds_of
from tests.detection.runs import event, recording, write_run
from tests.detection.runs import heard as status_of
from tests.review.made import about, answered, decided_as, detector, scored, sounds, store


def everything(made: Audit):
    return made.share(np.ones(len(made.score), bool))


def test_of_no_sounds_nothing_is_told():
    share = everything(audit_sample(sounds([]), []))
    assert (share.sounds, share.audited) == (0, 0) and np.isnan(share.right)
    assert told(share) == "an unknown share"


def test_without_an_audit_nothing_is_told_whatever_other_queues_found():
    table = scored(np.linspace(0.3, 0.9, 30))
    decided = decided_as(table, ["accepted"] * 30, queue="uncertain")
    assert everything(audit_sample(table, decided.values())).audited == 0


def test_bins_are_weighed_by_their_sounds():
    table = scored([0.25] * 90 + [0.95] * 10)
    scores = dict(zip(table["event_id"].to_pylist(), table["score"].to_pylist(), strict=True))
    asks = audit(table, {}, 20)
    truth = {name: score > 0.9 for name, score in scores.items()}
    made = audit_sample(table, answered(table, asks, truth, "audit").values())
    share = everything(made)
    assert (share.sounds, share.audited) == (100, 20)
    assert share.right == pytest.approx(0.1)  # ten of each were asked for, and half of them were right
    high = made.share(made.score > 0.9)
    assert (high.right, high.low, high.high) == (1.0, 1.0, 1.0)  # all ten were looked at: nothing is open


def test_bins_of_which_nothing_was_audited_are_told_as_unknown():
    score = np.repeat([0.25, 0.55, 0.95], [50, 40, 10])
    audited = np.arange(100) >= 97
    share = everything(Audit(score, (score * 10).astype(np.int64), audited, audited))
    assert share.right == pytest.approx((0.5 * 90 + 10) / 100)  # not all, as the few that were audited


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 500),
)
@settings(max_examples=60, deadline=None)
def test_a_share_lies_within_its_bounds(sounds_told, others):
    stratum, audited, right = (np.array(values) for values in zip(*sounds_told, strict=True))
    stratum = np.append(stratum, np.resize(stratum, others))
    audited, right = (np.append(mask, np.zeros(others, bool)) for mask in (audited, right))
    share = everything(Audit(stratum / 10, stratum, audited, right))
    assert np.isnan(share.right) if not audited.any() else share.low <= share.right <= share.high


def test_a_sound_of_the_sample_that_another_queue_asked_for_first_counts_in_it():
    table, truth = detector(300, seed=1)
    before = answered(table, uncertain(table, {}, 60), truth, "uncertain")
    after = answered(table, audit(table, before, 60), truth, "audit", before)
    made = audit_sample(table, after.values())
    assert made.audited.sum() > 60 and made.open == 0
    _, rank = audit_order(table)
    reached = [
        rank[made.audited & (made.stratum == own)].max() for own in np.unique(made.stratum[made.audited])
    ]
    lengths = [
        int((made.audited & (made.stratum == own)).sum()) for own in np.unique(made.stratum[made.audited])
    ]
    assert [own + 1 for own in reached] == lengths  # no gap in any bin


def test_unsure_and_open_sounds_of_the_sample_are_counted_and_left_out():
    table = scored([0.55] * 20)
    asks = audit(table, {}, 6)
    truth = dict.fromkeys(table["event_id"].to_pylist(), True)
    held = answered(table, asks, truth, "audit")
    first, second = (ask.subjects[0] for ask in asks[:2])
    held[first] = replace(held[first], state="unsure", version=2)
    held[second] = replace(held[second], state="open", version=2)
    made = audit_sample(table, held.values())
    assert (int(made.audited.sum()), made.unsure, made.open) == (4, 1, 1)


def test_a_corrected_verdict_counts_as_it_holds_now():
    table = scored([0.55] * 4)
    row = table.to_pylist()[int(np.argmin(audit_order(table)[1]))]
    verdicts = [
        about(row, "accepted", queue="audit"),
        about(row, "rejected", version=2, number=2, queue=None),
    ]
    made = audit_sample(table, verdicts)
    assert (int(made.audited.sum()), int(made.right.sum())) == (1, 0)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_over_many_lots_the_audit_tells_the_true_share_and_its_bounds_hold_as_often_as_they_say(share):
    """The queue as it is, with another lot each time; the uncertain sounds alone would tell something else."""
    table, truth = detector(600, seed=3, share=share)
    ids = table["event_id"].to_pylist()
    is_animal = np.array([truth[name] for name in ids])
    told_shares, held = [], 0
    for seed in range(200):
        stratum, rank = audit_order(table, seed)
        audited = np.isin(np.arange(600), np.lexsort((-stratum, rank))[:100])
        made = Audit(table["score"].to_numpy(), stratum, audited, is_animal)
        own = everything(made)
        told_shares.append(own.right)
        held += own.low <= is_animal.mean() <= own.high
    error = np.std(told_shares) / np.sqrt(200)
    assert abs(np.mean(told_shares) - is_animal.mean()) < 3.5 * error
    assert held / 200 > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)
    chosen = [truth[name] for ask in uncertain(table, {}, 100) for name in ask.subjects]
    assert abs(np.mean(chosen) - is_animal.mean()) > 5 * np.std(told_shares)


@pytest.mark.parametrize(("share", "asked"), [(0.3, 0.6), (0.7, 0.75)])
def test_a_threshold_reaches_what_was_asked_for_in_95_of_100_audits(share, asked, monkeypatch):
    """Of many scores the lowest that passes is taken, a wrong one more often than by one bound: 5 and not 2.5 in 100."""
    monkeypatch.setattr(precision_module, "DRAWS", 600)
    table, truth = detector(800, seed=5, share=share)
    score = table["score"].to_numpy()
    is_animal = np.array([truth[name] for name in table["event_id"].to_pylist()])
    wrong, chosen = 0, []
    for seed in range(100):
        stratum, rank = audit_order(table, seed)
        audited = np.isin(np.arange(800), np.lexsort((-stratum, rank))[:150])
        threshold = Audit(score, stratum, audited, is_animal).threshold(asked, 0.2)
        if threshold is not None:
            chosen.append(threshold)
            wrong += is_animal[score >= threshold].mean() < asked
    assert len(chosen) > 70  # and is mostly found
    assert wrong / 100 < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 100)


def test_a_threshold_is_the_lowest_that_passes_and_none_is_none():
    score = np.repeat([0.25, 0.55, 0.85], 60)
    stratum = (score * 10).astype(np.int64)
    made = Audit(score, stratum, np.ones(180, bool), score > 0.5)
    assert made.threshold(0.9, from_score=0.2) == pytest.approx(0.3)
    assert made.threshold(0.6, from_score=0.2) == pytest.approx(0.2)
    assert replace(made, right=np.zeros(180, bool)).threshold(0.5) is None


# ---------------------------------------------------------------------------------------------- the verb


@pytest.fixture
def run(tmp_path):
    """A run of 120 sounds at two sites, of which those that score half or more are animals; and its audit."""
    parts = []
    for site in ("ridge", "swamp"):
        own = recording(f"{site}/1.WAV", site=site)
        found = [event(own, number / 2, score=round(0.2 + number / 75, 3)) for number in range(60)]
        parts.append([(own, status_of(own, 60), found)])
    return write_run(tmp_path / "found", parts)


def reviewed(run: str, count: int, min_score: float | None = None) -> None:
    table = sounds_of(open_found(run, min_score), min_score)
    rows = table.to_pylist()
    truth = {row["event_id"]: row["score"] >= 0.5 for row in rows}
    held = answered(table, audit(table, {}, count), truth, "audit")
    held = answered(table, uncertain(table, held, 5), truth, "uncertain", held)
    store(Path(run) / "review.sqlite", held.values())


def test_precision_is_told_drawn_and_kept_for_export_and_report(run, tmp_path):
    reviewed(run, 90)
    done = CliRunner().invoke(app, ["precision", run, "--asked", "0.8"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "90 of 120 sounds audited" in done.output and "ridge" in done.output
    assert "Asked by uncertain: 0 of 5 accepted. These were chosen" in done.output
    kept = json.loads((Path(run) / CALIBRATION).read_text("utf-8"))
    assert kept["run"] == "f0" and kept["overall"]["sounds"] == 120 and 0.4 <= kept["threshold"] <= 0.5
    assert (Path(run) / PICTURE).read_bytes().startswith(b"\x89PNG")
    assert calibrated_score(run) == kept["threshold"]
    out = str(tmp_path / "out")
    CliRunner().invoke(
        app, ["export", run, "--to", "csv", "--calibrated", "--out", out], catch_exceptions=False
    )
    scores = [
        float(line.split(",")[6]) for line in (tmp_path / "out" / "events.csv").read_text().splitlines()[1:]
    ]
    assert min(scores) >= kept["threshold"] and len(scores) == kept["reached"]["sounds"]
    page = str(tmp_path / "report.html")
    shown = CliRunner().invoke(app, ["report", run, "--calibrated", "--out", page], catch_exceptions=False)
    assert f"{len(scores)} sounds" in shown.output
    both = CliRunner().invoke(app, ["report", run, "--calibrated", "--min-score", "0.5"])
    assert isinstance(both.exception, ConfigError)


def test_what_cannot_be_told_is_said(run, tmp_path):
    with pytest.raises(StorageError, match="nobody has reviewed anything here yet. Begin with mast review"):
        measure_precision(run)
    empty = store(tmp_path / "empty.sqlite", [])
    with pytest.raises(StorageError, match="nothing was audited yet"):
        measure_precision(run, location=empty)
    with pytest.raises(StorageError, match="is not there yet. Make it with mast precision"):
        calibrated_score(run)
    reviewed(run, 4)
    precision = measure_precision(run)
    assert "From no score on 90% are surely right" in precision.summary()
    with pytest.raises(ConfigError, match="from no score on 90% were surely right"):
        calibrated_score(run)
    kept = json.loads((Path(run) / CALIBRATION).read_text("utf-8"))
    (Path(run) / CALIBRATION).write_text(json.dumps(kept | {"run": "other"}), "utf-8")
    with pytest.raises(StorageError, match="another run"):
        calibrated_score(run)
    with pytest.raises(ConfigError, match="--asked 90: give a share between 0 and 1"):
        measure_precision(run, asked=90)


def test_an_audit_from_a_score_on_speaks_of_the_sounds_from_this_score_on(run):
    """Half of a bin was never asked for: of the whole bin, the half that was would tell too much."""
    reviewed(run, 80, min_score=0.46)
    whole, own = measure_precision(run), measure_precision(run, min_score=0.46)
    assert own.overall.sounds == own.overall.audited == 80
    assert (own.overall.low, own.overall.high) == (own.overall.right, own.overall.right)
    assert own.open == 0 and "are open" not in own.summary()
    assert (
        whole.overall.sounds == 120 and "leave them out with the --min-score of the review" in whole.summary()
    )


def test_the_account_tells_what_is_unsure_and_open(run):
    found = open_found(run)
    table = sounds_of(found)
    asks = audit(table, {}, 12)
    rows = {row["event_id"]: row for row in table.to_pylist()}
    states = ["unsure", "open", *["accepted"] * 10]
    verdicts = [
        about(rows[ask.subjects[0]], state, queue="audit") for ask, state in zip(asks, states, strict=True)
    ]
    summary = tell_precision(found, table, verdicts).summary()
    assert "1 of the sample are unsure" in summary and "1 of the sample are open: decide them" in summary


def test_the_picture_shows_bounds_and_what_was_asked_for():
    assert isinstance(draw_precision([], 0.9, None), Figure)
    figure = draw_precision([Bar(0.2, 0.3, 0.5, 0.4, 0.6)], 0.9, 0.55)
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.55"]
