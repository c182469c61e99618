"""Precision from an audit: unbiased over many random samples, with valid bounds, and independent of other queues."""

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
from mast.errors import ConfigError, StorageError
from mast.plotting.curves import Bar, plot_precision
from mast.review import precision_estimate as precision_module
from mast.review.event_table import run_events
from mast.review.precision_estimate import (
    FIGURE,
    PRECISION_FILE,
    Audit,
    audit_sample,
    estimate_precision,
    format_proportion,
    measure_precision,
    read_precision_threshold,
)
from mast.review.queues.basic import random_sample, random_sample_order, uncertain
from mast.runs.results import open_results
from tests.review.builders import about, answered, decided_as, detector, event_table, scored, store
from tests.runs.finished import event, recording, status_of, write_run


def overall(audit: Audit):
    return audit.proportion(np.ones(len(audit.score), bool))


def test_the_precision_of_no_events_is_unknown():
    estimate = overall(audit_sample(event_table([]), []))
    assert (estimate.events, estimate.audited) == (0, 0) and np.isnan(estimate.correct)
    assert format_proportion(estimate) == "unknown fraction"


def test_verdicts_of_other_queues_are_no_audit():
    table = scored(np.linspace(0.3, 0.9, 30))
    decided = decided_as(table, ["accepted"] * 30, queue="uncertain")
    assert overall(audit_sample(table, decided.values())).audited == 0


def test_bins_are_weighted_by_their_number_of_events():
    table = scored([0.25] * 90 + [0.95] * 10)
    scores = dict(zip(table["event_id"].to_pylist(), table["score"].to_pylist(), strict=True))
    items = random_sample(table, {}, 20)
    truth = {name: score > 0.9 for name, score in scores.items()}
    audit = audit_sample(table, answered(table, items, truth, "random-sample").values())
    estimate = overall(audit)
    assert (estimate.events, estimate.audited) == (100, 20)
    assert estimate.correct == pytest.approx(0.1)  # the sample has ten of each bin, and half of it is correct
    high = audit.proportion(audit.score > 0.9)
    assert (high.correct, high.low, high.high) == (
        1.0,
        1.0,
        1.0,
    )  # all ten were audited, so the bounds are exact


def test_bins_without_audited_events_count_as_half_correct():
    score = np.repeat([0.25, 0.55, 0.95], [50, 40, 10])
    audited = np.arange(100) >= 97
    estimate = overall(Audit(score, (score * 10).astype(np.int64), audited, audited))
    assert estimate.correct == pytest.approx(
        (0.5 * 90 + 10) / 100
    )  # not 1, as the audited events alone suggest


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 500),
)
@settings(max_examples=60, deadline=None)
def test_a_fraction_lies_within_its_bounds(audited_events, others):
    stratum, audited, correct = (np.array(values) for values in zip(*audited_events, strict=True))
    stratum = np.append(stratum, np.resize(stratum, others))
    audited, correct = (np.append(mask, np.zeros(others, bool)) for mask in (audited, correct))
    estimate = overall(Audit(stratum / 10, stratum, audited, correct))
    assert (
        np.isnan(estimate.correct) if not audited.any() else estimate.low <= estimate.correct <= estimate.high
    )


def test_an_event_of_the_sample_that_another_queue_listed_first_counts():
    table, truth = detector(300, seed=1)
    before = answered(table, uncertain(table, {}, 60), truth, "uncertain")
    after = answered(table, random_sample(table, before, 60), truth, "random-sample", before)
    audit = audit_sample(table, after.values())
    assert audit.audited.sum() > 60 and audit.open == 0
    _, rank = random_sample_order(table)
    masks = [audit.audited & (audit.stratum == number) for number in np.unique(audit.stratum[audit.audited])]
    assert [rank[mask].max() + 1 for mask in masks] == [
        int(mask.sum()) for mask in masks
    ]  # no gap in any bin


def test_unsure_and_open_events_of_the_sample_are_counted_and_left_out():
    table = scored([0.55] * 20)
    items = random_sample(table, {}, 6)
    truth = dict.fromkeys(table["event_id"].to_pylist(), True)
    latest = answered(table, items, truth, "random-sample")
    first, second = (item.event_ids[0] for item in items[:2])
    latest[first] = replace(latest[first], state="unsure", version=2)
    latest[second] = replace(latest[second], state="open", version=2)
    audit = audit_sample(table, latest.values())
    assert (int(audit.audited.sum()), audit.uncertain, audit.open) == (4, 1, 1)


def test_only_the_latest_version_of_a_verdict_counts():
    table = scored([0.55] * 4)
    row = table.to_pylist()[int(np.argmin(random_sample_order(table)[1]))]
    verdicts = [
        about(row, "accepted", queue="random-sample"),
        about(row, "rejected", version=2, number=2, queue=None),
    ]
    audit = audit_sample(table, verdicts)
    assert (int(audit.audited.sum()), int(audit.correct.sum())) == (1, 0)


@pytest.mark.parametrize("fraction", [0.2, 0.7])
def test_over_many_samples_the_audit_is_unbiased_and_its_bounds_have_their_coverage(fraction):
    """Use the queue with another seed each time; the uncertain events alone would be biased."""
    table, truth = detector(600, seed=3, fraction=fraction)
    ids = table["event_id"].to_pylist()
    is_animal = np.array([truth[name] for name in ids])
    estimates, covered = [], 0
    for seed in range(200):
        stratum, rank = random_sample_order(table, seed)
        audited = np.isin(np.arange(600), np.lexsort((-stratum, rank))[:100])
        audit = Audit(table["score"].to_numpy(), stratum, audited, is_animal)
        estimate = overall(audit)
        estimates.append(estimate.correct)
        covered += estimate.low <= is_animal.mean() <= estimate.high
    error = np.std(estimates) / np.sqrt(200)
    assert abs(np.mean(estimates) - is_animal.mean()) < 3.5 * error
    assert covered / 200 > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)
    chosen = [truth[name] for item in uncertain(table, {}, 100) for name in item.event_ids]
    assert abs(np.mean(chosen) - is_animal.mean()) > 5 * np.std(estimates)


@pytest.mark.parametrize(("fraction", "target"), [(0.3, 0.6), (0.7, 0.75)])
def test_a_threshold_reaches_the_target_in_95_of_100_audits(fraction, target, monkeypatch):
    """Choosing the lowest of many thresholds makes errors more frequent than one bound does: 5 and not 2.5 in 100."""
    monkeypatch.setattr(precision_module, "SAMPLES", 600)
    table, truth = detector(800, seed=5, fraction=fraction)
    score = table["score"].to_numpy()
    is_animal = np.array([truth[name] for name in table["event_id"].to_pylist()])
    wrong, chosen = 0, []
    for seed in range(100):
        stratum, rank = random_sample_order(table, seed)
        audited = np.isin(np.arange(800), np.lexsort((-stratum, rank))[:150])
        threshold = Audit(score, stratum, audited, is_animal).threshold(target, 0.2)
        if threshold is not None:
            chosen.append(threshold)
            wrong += is_animal[score >= threshold].mean() < target
    assert len(chosen) > 70  # most audits have a threshold
    assert wrong / 100 < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 100)


def test_the_threshold_is_the_lowest_that_passes_or_none():
    score = np.repeat([0.25, 0.55, 0.85], 60)
    stratum = (score * 10).astype(np.int64)
    audit = Audit(score, stratum, np.ones(180, bool), score > 0.5)
    assert audit.threshold(0.9, from_score=0.2) == pytest.approx(0.3)
    assert audit.threshold(0.6, from_score=0.2) == pytest.approx(0.2)
    assert replace(audit, correct=np.zeros(180, bool)).threshold(0.5) is None


# ---------------------------------------------------------------------------------------------- the command


@pytest.fixture
def run(tmp_path):
    """Write a run of 120 events at two sites; events with a score of at least 0.5 are animals."""
    parts = []
    for site in ("ridge", "swamp"):
        recorded = recording(f"{site}/1.WAV", site=site)
        events = [event(recorded, number / 2, score=round(0.2 + number / 75, 3)) for number in range(60)]
        parts.append([(recorded, status_of(recorded, 60), events)])
    return write_run(tmp_path / "found", parts)


def write_review(run: str, count: int, min_score: float | None = None) -> None:
    table = run_events(open_results(run, min_score), min_score)
    rows = table.to_pylist()
    truth = {row["event_id"]: row["score"] >= 0.5 for row in rows}
    latest = answered(table, random_sample(table, {}, count), truth, "random-sample")
    latest = answered(table, uncertain(table, latest, 5), truth, "uncertain", latest)
    store(Path(run) / "review.sqlite", latest.values())


def test_precision_is_printed_plotted_and_stored_for_export_and_report(run, tmp_path):
    write_review(run, 90)
    done = CliRunner().invoke(app, ["estimate-precision", run, "--target", "0.8"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "90 of 120 events audited" in done.output and "ridge" in done.output
    assert "Queue uncertain: 0 of 5 accepted. This is not a random sample" in done.output
    record = json.loads((Path(run) / PRECISION_FILE).read_text("utf-8"))
    assert record["run"] == "f0" and record["overall"]["events"] == 120 and 0.4 <= record["threshold"] <= 0.5
    assert (Path(run) / FIGURE).read_bytes().startswith(b"\x89PNG")
    assert read_precision_threshold(run) == record["threshold"]
    out = str(tmp_path / "out")
    CliRunner().invoke(
        app, ["export", run, "--to", "csv", "--precision-threshold", "--out", out], catch_exceptions=False
    )
    scores = [
        float(line.split(",")[6]) for line in (tmp_path / "out" / "events.csv").read_text().splitlines()[1:]
    ]
    assert min(scores) >= record["threshold"] and len(scores) == record["reached"]["events"]
    page = str(tmp_path / "report.html")
    report = CliRunner().invoke(
        app, ["report", run, "--precision-threshold", "--out", page], catch_exceptions=False
    )
    assert f"{len(scores)} events" in report.output
    both = CliRunner().invoke(app, ["report", run, "--precision-threshold", "--min-score", "0.5"])
    assert isinstance(both.exception, ConfigError)


def test_a_missing_audit_or_threshold_is_an_error(run, tmp_path):
    with pytest.raises(StorageError, match="no verdicts yet. Start with mast review"):
        measure_precision(run)
    empty = store(tmp_path / "empty.sqlite", [])
    with pytest.raises(StorageError, match="nothing was audited yet"):
        measure_precision(run, location=empty)
    with pytest.raises(StorageError, match="not found. Create it with mast estimate-precision"):
        read_precision_threshold(run)
    write_review(run, 4)
    precision = measure_precision(run)
    assert "No score threshold reaches 90% precision" in precision.summary()
    with pytest.raises(ConfigError, match="no score threshold reached 90% precision"):
        read_precision_threshold(run)
    record = json.loads((Path(run) / PRECISION_FILE).read_text("utf-8"))
    (Path(run) / PRECISION_FILE).write_text(json.dumps(record | {"run": "other"}), "utf-8")
    with pytest.raises(StorageError, match="another run"):
        read_precision_threshold(run)
    with pytest.raises(ConfigError, match="--target 90: must be between 0 and 1"):
        measure_precision(run, target=90)


def test_an_audit_with_a_minimum_score_estimates_the_precision_above_it(run):
    """The minimum score splits a bin: the audited upper half would overestimate the precision of the whole bin."""
    write_review(run, 80, min_score=0.46)
    complete, above = measure_precision(run), measure_precision(run, min_score=0.46)
    assert above.overall.events == above.overall.audited == 80
    assert (above.overall.low, above.overall.high) == (above.overall.correct, above.overall.correct)
    assert above.open == 0 and "open event" not in above.summary()
    assert complete.overall.events == 120
    assert "if the review had --min-score, use the same value here to leave them out" in complete.summary()


def test_the_summary_has_the_numbers_of_unsure_and_open_events(run):
    results = open_results(run)
    table = run_events(results)
    items = random_sample(table, {}, 12)
    rows = {row["event_id"]: row for row in table.to_pylist()}
    states = ["unsure", "open", *["accepted"] * 10]
    verdicts = [
        about(rows[item.event_ids[0]], state, queue="random-sample")
        for item, state in zip(items, states, strict=True)
    ]
    summary = estimate_precision(results, table, verdicts).summary()
    assert "1 unsure event in the sample left out" in summary
    assert "1 open event in the sample counted like the others. Decide them" in summary


def test_the_plot_shows_bounds_and_the_threshold():
    assert isinstance(plot_precision([], 0.9, None), Figure)
    figure = plot_precision([Bar(0.2, 0.3, 0.5, 0.4, 0.6)], 0.9, 0.55)
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.55"]
