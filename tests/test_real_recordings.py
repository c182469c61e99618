"""Tests of the experiment on real studies: hidden annotations, steps of a stage, and two pooled test sets."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments.real_recordings import (
    BOTH,
    CONFIGS,
    SOURCES,
    SetPredictions,
    StudyExperiment,
    all_metrics,
    copy_without,
    merge_results,
    metric_differences,
    metric_inputs,
    pool_rankings,
    read_predictions,
    sources_of,
    total_steps,
    with_pooled,
    with_steps,
)
from experiments.shift.archive import archive_evaluations
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.config import Chunking, Train, Unfreezing, load_study
from mast.datasets.sampler import BatchSampler
from mast.evaluation.metrics import METRICS, RankedPredictions
from mast.training.run_dir import TrainingRun

EMPTY = RankedPredictions.of(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)


def ranking(seed: int, units: int = 3) -> RankedPredictions:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 12))
    hits = rng.random(count) * (rng.random(count) < 0.5)
    units_of_boxes = np.repeat(np.arange(units), rng.integers(1, 4, size=units))
    return RankedPredictions.of(
        rng.random(count), hits, rng.integers(units, size=count), units_of_boxes, units
    )


def test_every_study_has_its_test_sets_and_its_collection():
    for name, source in SOURCES.items():
        study = load_study(CONFIGS / f"{name}.yaml")
        assert set(source.tested) <= study.splits.held_out.keys()
        assert source.collection in study.collections


def test_rows_of_hidden_recordings_are_removed_from_a_table(tmp_path):
    table, out = tmp_path / "annotations.csv", tmp_path / "out.csv"
    table.write_text("recording,start_s,label\na.flac,1,owl\nb.flac,2,owl\na.flac,3,owl\n")
    assert copy_without(set(), table, out).read_text().splitlines() == table.read_text().splitlines()
    hidden = copy_without({"a.flac"}, table, out)
    assert hidden.read_text().splitlines() == ["recording,start_s,label", "b.flac,2,owl"]


def test_a_table_of_reviewed_recordings_has_no_times(tmp_path):
    table, out = tmp_path / "recordings.csv", tmp_path / "reviewed.csv"
    table.write_text("recording,site\na.flac,A\nb.flac,B\n")
    text = copy_without({"b.flac"}, table, out, ("recording", "start_s", "end_s")).read_text()
    assert text.splitlines() == ["recording,start_s,end_s", "a.flac,,"]


@given(st.integers(1, 400), st.integers(1, 200), st.integers(1, 32), st.integers(1, 50))
@settings(max_examples=60)
def test_a_stage_has_the_requested_steps_to_within_half_an_epoch(steps, chunks, batch, epochs):
    stage = with_steps(Train(batch_size=batch, epochs=epochs), steps, chunks)
    per_epoch = BatchSampler(chunks, min(batch, chunks), 0, drop_last=True).steps_per_epoch
    assert abs(stage.epochs * per_epoch - steps) <= max(per_epoch / 2, per_epoch - steps) + 1e-6


def test_all_durations_in_epochs_are_scaled():
    unfreezing = Unfreezing(start_epoch=4, interval_epochs=4)
    train = Train(batch_size=4, epochs=40, warmup_epochs=2, plot_every_epochs=5, unfreezing=unfreezing)
    longer = with_steps(train, 336, 8)
    assert (longer.epochs, longer.warmup_epochs, longer.plot_every_epochs) == (168, 8.4, 21)
    assert (longer.unfreezing.start_epoch, longer.unfreezing.interval_epochs) == (17, 17)
    assert with_steps(train, 80, 8) == train


def test_an_encoder_that_is_unfrozen_from_the_start_stays_so_in_a_longer_stage():
    stage = with_steps(Train(batch_size=4, epochs=10, unfreezing=Unfreezing(start_epoch=0)), 200, 8)
    assert (stage.epochs, stage.unfreezing.start_epoch) == (100, 0)


def test_steps_are_summed_over_all_runs_below_a_folder(tmp_path):
    assert total_steps(tmp_path) == 0
    for name, steps in (("round_1/pseudo-labels", 7), ("round_1/supervised", 5)):
        run = TrainingRun(tmp_path / name)
        run.folder.mkdir(parents=True)
        run.write({"step": 1})
        run.write({"step": steps})
    assert total_steps(tmp_path) == 12


def test_the_sources_of_soundscapes_are_listed_by_dataset(tmp_path):
    world = tmp_path / "world.json"
    days = [
        {"sources": ["birds/1.flac", "pitta"], "backgrounds": ["day/2.flac"]},
        {"sources": ["birds/3.flac"], "backgrounds": ["day/4.flac", "rain/5.flac"]},
    ]
    world.write_text(json.dumps({"days": days}))
    assert sources_of(world) == {"calls": ["birds", "pitta"], "backgrounds": ["day", "rain"]}


def test_rows_that_are_not_trained_again_keep_their_results():
    before = {"rows": {"scratch": 1, "energy": 2}, "training": {"scratch": 3}}
    now = {"rows": {"scratch": 4}, "training": {"scratch": 5}}
    assert merge_results(before, now) == {"rows": {"scratch": 4, "energy": 2}, "training": {"scratch": 5}}
    assert merge_results({}, now) == now


def test_a_difference_to_a_row_with_changed_metrics_is_dropped():
    before = {
        "rows": {"energy": 1, "scratch": 2, "synthetic_then_labels": 3, "synthetic_then_labels_selftrain": 4},
        "differences": {
            "synthetic_then_labels - energy": 2,
            "synthetic_then_labels - scratch": 1,
            "synthetic_then_labels_selftrain - synthetic_then_labels": 1,
        },
    }
    now = {
        "rows": {"energy": 1, "scratch": 5, "transfer_hybrid": 6},
        "differences": {"transfer_hybrid - scratch": 1},
    }
    merged = merge_results(before, now)
    assert merged["rows"] == {**before["rows"], **now["rows"]}
    assert merged["differences"] == {
        "synthetic_then_labels - energy": 2,
        "synthetic_then_labels_selftrain - synthetic_then_labels": 1,
        "transfer_hybrid - scratch": 1,
    }


def evaluation(folder: Path, tested: str, seed: int) -> Path:
    """Write an evaluation with scores of one digit, so that true and false positives tie within and across sets."""
    rng, names = np.random.default_rng(seed), [f"{tested}{number}" for number in range(3)]
    count, metrics = int(rng.integers(1, 30)), {"f1": {"value": 0.5, "low": 0.0, "high": 1.0}}
    recordings = {"set": [tested] * 3, "recording_id": names}
    predictions = {
        "set": [tested] * count,
        "recording_id": rng.choice(names, count),
        "score": rng.integers(1, 10, count).astype(np.float32) / 10,
        "overlap": (rng.random(count) * (rng.random(count) < 0.2)).astype(np.float32),
    }
    folder.mkdir(parents=True)
    for name, columns in (
        ("chunks", recordings),
        ("ground_truth", recordings),
        ("predictions", predictions),
    ):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    modes = {"iou": {"metrics": metrics, "max_f1": 0.5}}
    sets = [{"name": tested, "recordings": 3, "matching_modes": modes}]
    (folder / "results.json").write_text(json.dumps({"threshold": rng.integers(1, 10) / 10, "sets": sets}))
    return folder


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_archived_test_sets_keep_their_metrics_each_and_pooled(seed):
    with tempfile.TemporaryDirectory() as name:
        folder, sets = Path(name), SOURCES["boobook"].tested
        paths = {tested: evaluation(folder / tested, tested, seed + at) for at, tested in enumerate(sets)}
        experiment = StudyExperiment("boobook", folder, folder, folder / "archive", Chunking(), {}, 1, ())
        archive_evaluations({path: folder / "archive" / "scratch" / tested for tested, path in paths.items()})
        before = with_pooled({tested: read_predictions(path, tested) for tested, path in paths.items()})
        after = experiment.predictions("scratch")
        for tested in (*sets, BOTH):
            pairs = zip(
                metric_inputs(before[tested]).items(), metric_inputs(after[tested]).items(), strict=True
            )
            for (name_of_metric, (metric, original)), (_, (_, archived)) in pairs:
                values = [METRICS[metric](each, None) for each in (original, archived)]
                assert values[0] == pytest.approx(values[1], nan_ok=True), name_of_metric


def test_an_archived_row_is_reported_once_both_its_test_sets_are_archived(tmp_path):
    experiment = StudyExperiment("boobook", tmp_path, tmp_path, tmp_path / "archive", Chunking(), {}, 1, ())
    for at, tested in enumerate(SOURCES["boobook"].tested):
        assert experiment.predictions("scratch") == {}
        archive_evaluations(
            {evaluation(tmp_path / tested, tested, at): tmp_path / "archive" / "scratch" / tested}
        )
    assert experiment.predictions("scratch").keys() == {*SOURCES["boobook"].tested, BOTH}


def test_two_empty_rankings_pool_to_an_empty_ranking():
    both = pool_rankings([EMPTY, EMPTY])
    assert (len(both.score), len(both.ground_truth)) == (0, 0)


def test_pooled_rankings_are_sorted_by_falling_score():
    first = RankedPredictions.of(
        np.array([0.9, 0.3]), np.array([0.8, 0.0]), np.array([0, 1]), np.array([0]), 2
    )
    second = RankedPredictions.of(np.array([0.5]), np.array([0.6]), np.array([0]), np.array([0, 0]), 1)
    both = pool_rankings([first, second])
    assert both.score.tolist() == [0.9, 0.5, 0.3]
    assert both.overlap.tolist() == [0.8, 0.6, 0.0]
    assert both.unit.tolist() == [0, 2, 1]
    assert both.ground_truth.tolist() == [1, 0, 2]
    assert METRICS["f1"](both, None) == pytest.approx(2 * 2 / (3 + 3))


@given(st.integers(0, 500), st.integers(0, 500))
@settings(max_examples=40)
def test_counts_of_two_sets_add_up_and_a_weight_of_zero_excludes_one(one, other):
    parts = [ranking(one), ranking(other)]
    both = pool_rankings(parts)
    hits = sum(int(part.is_hit.sum()) for part in parts)
    assert METRICS["recall"](both, None) == pytest.approx(
        hits / sum(part.ground_truth.sum() for part in parts)
    )
    for metric in ("f1", "average_precision", "mean_iou"):
        alone = METRICS[metric](both, np.array([1.0, 1, 1, 0, 0, 0]))
        assert alone == pytest.approx(METRICS[metric](parts[0], None), nan_ok=True)


def test_metrics_use_the_predictions_at_the_threshold_or_all_and_a_row_differs_by_zero_from_itself():
    complete = ranking(3)
    near = SetPredictions(complete.with_min_score(0.5), complete)
    sets = with_pooled({"near": near, "far": SetPredictions(EMPTY, EMPTY)})
    assert set(sets) == {"near", "far", BOTH}
    metrics = all_metrics(sets["near"])
    assert (metrics["recordings"], metrics["annotations"]) == (3, int(complete.ground_truth.sum()))
    assert metrics["recall"][0] == round(METRICS["recall"](complete.with_min_score(0.5), None), 4)
    assert metrics["average_precision"][0] == round(METRICS["average_precision"](complete, None), 4)
    assert metrics["max_f1"][0] >= metrics["f1"][0]
    assert all_metrics(sets["far"])["f1"] == [None, None, None]
    assert all_metrics(sets[BOTH])["average_precision"][0] == metrics["average_precision"][0]
    assert metric_differences(sets["near"], sets["near"])["f1"] == [0.0, 0.0, 0.0]
    assert set(metric_differences(sets["near"], sets["near"])) <= metric_inputs(sets["near"]).keys()
