"""The experiment on real studies: whose labels are hidden, how long a stage lasts, and two test sets taken as one."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments.real import (
    BOTH,
    CONFIGS,
    SOURCES,
    Held,
    Trial,
    cuts,
    figures,
    heard_in,
    held_of,
    labels_without,
    lasting,
    less,
    merged,
    pooled,
    steps_of,
    together,
)
from experiments.shift.kept import keep_together
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.config import Chunking, Train, Unfreezing, load_study
from mast.datasets.order import Order
from mast.evaluation.metrics import METRICS, Ranking
from mast.training.run import Run

NONE = Ranking.of(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)


def ranking(seed: int, units: int = 3) -> Ranking:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 12))
    hits = rng.random(count) * (rng.random(count) < 0.5)
    truths = np.repeat(np.arange(units), rng.integers(1, 4, size=units))
    return Ranking.of(rng.random(count), hits, rng.integers(units, size=count), truths, units)


def test_every_study_has_the_sets_that_are_tested_and_its_collection():
    for name, source in SOURCES.items():
        study = load_study(CONFIGS / f"{name}.yaml")
        assert set(source.tested) <= study.splits.held_out.keys()
        assert source.collection in study.collections


def test_hidden_recordings_leave_a_table_and_the_others_keep_their_rows(tmp_path):
    table, out = tmp_path / "annotations.csv", tmp_path / "out.csv"
    table.write_text("recording,start_s,label\na.flac,1,owl\nb.flac,2,owl\na.flac,3,owl\n")
    assert labels_without(set(), table, out).read_text().splitlines() == table.read_text().splitlines()
    hidden = labels_without({"a.flac"}, table, out)
    assert hidden.read_text().splitlines() == ["recording,start_s,label", "b.flac,2,owl"]


def test_a_table_of_what_was_listened_to_has_no_times(tmp_path):
    table, out = tmp_path / "recordings.csv", tmp_path / "reviewed.csv"
    table.write_text("recording,site\na.flac,A\nb.flac,B\n")
    told = labels_without({"b.flac"}, table, out, ("recording", "start_s", "end_s")).read_text()
    assert told.splitlines() == ["recording,start_s,end_s", "a.flac,,"]


@given(st.integers(1, 400), st.integers(1, 200), st.integers(1, 32), st.integers(1, 50))
@settings(max_examples=60)
def test_a_stage_lasts_as_long_as_it_should_but_for_half_an_epoch(steps, chunks, batch, epochs):
    stage = lasting(Train(batch=batch, epochs=epochs), steps, chunks)
    an_epoch = Order(chunks, min(batch, chunks), 0, whole_batches=True).steps_per_epoch
    assert abs(stage.epochs * an_epoch - steps) <= max(an_epoch / 2, an_epoch - steps) + 1e-6


def test_all_that_is_counted_in_epochs_lasts_as_much_longer():
    unfreezing = Unfreezing(first_epoch=4, every_epochs=4)
    train = Train(batch=4, epochs=40, warmup_epochs=2, picture_epochs=5, unfreezing=unfreezing)
    longer = lasting(train, 336, 8)
    assert (longer.epochs, longer.warmup_epochs, longer.picture_epochs) == (168, 8.4, 21)
    assert (longer.unfreezing.first_epoch, longer.unfreezing.every_epochs) == (17, 17)
    assert lasting(train, 80, 8) == train


def test_an_encoder_that_is_open_from_the_start_stays_so_in_a_longer_stage():
    stage = lasting(Train(batch=4, epochs=10, unfreezing=Unfreezing(first_epoch=0)), 200, 8)
    assert (stage.epochs, stage.unfreezing.first_epoch) == (100, 0)


def test_steps_are_those_of_all_runs_below_a_folder(tmp_path):
    assert steps_of(tmp_path) == 0
    for name, steps in (("round_1/pseudo", 7), ("round_1/expert", 5)):
        run = Run(tmp_path / name)
        run.folder.mkdir(parents=True)
        run.write({"step": 1})
        run.write({"step": steps})
    assert steps_of(tmp_path) == 12


def test_what_a_start_has_heard_is_told_by_source(tmp_path):
    world = tmp_path / "world.json"
    days = [
        {"sources": ["birds/1.flac", "pitta"], "backgrounds": ["day/2.flac"]},
        {"sources": ["birds/3.flac"], "backgrounds": ["day/4.flac", "rain/5.flac"]},
    ]
    world.write_text(json.dumps({"days": days}))
    assert heard_in(world) == {"calls": ["birds", "pitta"], "backgrounds": ["day", "rain"]}


def test_rows_that_were_not_made_again_are_told_as_before():
    before = {"rows": {"scratch": 1, "energy": 2}, "made": {"scratch": 3}}
    now = {"rows": {"scratch": 4}, "made": {"scratch": 5}}
    assert merged(before, now) == {"rows": {"scratch": 4, "energy": 2}, "made": {"scratch": 5}}
    assert merged({}, now) == now


def test_a_difference_to_a_row_that_came_out_otherwise_is_no_longer_told():
    before = {
        "rows": {"energy": 1, "scratch": 2, "rehearsed": 3, "rehearsed_st": 4},
        "differences": {
            "rehearsed - energy": 2,
            "rehearsed - scratch": 1,
            "rehearsed_st - rehearsed": 1,
        },
    }
    now = {
        "rows": {"energy": 1, "scratch": 5, "transfer_detail": 6},
        "differences": {"transfer_detail - scratch": 1},
    }
    told = merged(before, now)
    assert told["rows"] == {**before["rows"], **now["rows"]}
    assert told["differences"] == {
        "rehearsed - energy": 2,
        "rehearsed_st - rehearsed": 1,
        "transfer_detail - scratch": 1,
    }


def evaluation(folder: Path, tested: str, seed: int) -> Path:
    """An evaluation as it is left: scores of one digit, so that right and wrong ones tie within and across sets."""
    rng, names = np.random.default_rng(seed), [f"{tested}{number}" for number in range(3)]
    count, numbers = int(rng.integers(1, 30)), {"f1": {"value": 0.5, "low": 0.0, "high": 1.0}}
    own = {"set": [tested] * 3, "recording_id": names}
    found = {
        "set": [tested] * count,
        "recording_id": rng.choice(names, count),
        "score": rng.integers(1, 10, count).astype(np.float32) / 10,
        "overlap": (rng.random(count) * (rng.random(count) < 0.2)).astype(np.float32),
    }
    folder.mkdir(parents=True)
    for name, columns in (("chunks", own), ("truths", own), ("predictions", found)):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    sets = [{"name": tested, "recordings": 3, "ways": {"iou": {"numbers": numbers, "best_f1": 0.5}}}]
    (folder / "results.json").write_text(json.dumps({"threshold": rng.integers(1, 10) / 10, "sets": sets}))
    return folder


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_test_sets_that_are_kept_say_the_same_each_and_taken_as_one(seed):
    with tempfile.TemporaryDirectory() as name:
        folder, sets = Path(name), SOURCES["boobook"].tested
        own = {tested: evaluation(folder / tested, tested, seed + at) for at, tested in enumerate(sets)}
        trial = Trial("boobook", folder, folder, folder / "kept", Chunking(), {}, 1, ())
        keep_together({path: folder / "kept" / "scratch" / tested for tested, path in own.items()})
        before = together({tested: held_of(path, tested) for tested, path in own.items()})
        after = trial.held("scratch")
        for tested in (*sets, BOTH):
            pairs = zip(cuts(before[tested]).items(), cuts(after[tested]).items(), strict=True)
            for (figure, (metric, whole)), (_, (_, kept)) in pairs:
                values = [METRICS[metric](item, None) for item in (whole, kept)]
                assert values[0] == pytest.approx(values[1], nan_ok=True), figure


def test_a_kept_row_is_told_once_both_its_test_sets_are_there(tmp_path):
    trial = Trial("boobook", tmp_path, tmp_path, tmp_path / "kept", Chunking(), {}, 1, ())
    for at, tested in enumerate(SOURCES["boobook"].tested):
        assert trial.held("scratch") == {}
        keep_together({evaluation(tmp_path / tested, tested, at): tmp_path / "kept" / "scratch" / tested})
    assert trial.held("scratch").keys() == {*SOURCES["boobook"].tested, BOTH}


def test_nothing_and_nothing_is_nothing():
    both = pooled([NONE, NONE])
    assert (len(both.score), len(both.truths)) == (0, 0)


def test_two_rankings_make_one_by_falling_score():
    first = Ranking.of(np.array([0.9, 0.3]), np.array([0.8, 0.0]), np.array([0, 1]), np.array([0]), 2)
    second = Ranking.of(np.array([0.5]), np.array([0.6]), np.array([0]), np.array([0, 0]), 1)
    both = pooled([first, second])
    assert both.score.tolist() == [0.9, 0.5, 0.3]
    assert both.overlap.tolist() == [0.8, 0.6, 0.0]
    assert both.unit.tolist() == [0, 2, 1]
    assert both.truths.tolist() == [1, 0, 2]
    assert METRICS["f1"](both, None) == pytest.approx(2 * 2 / (3 + 3))


@given(st.integers(0, 500), st.integers(0, 500))
@settings(max_examples=40)
def test_counts_of_two_sets_add_up_and_leaving_one_out_leaves_the_other(one, other):
    parts = [ranking(one), ranking(other)]
    both = pooled(parts)
    hits = sum(int(item.is_hit.sum()) for item in parts)
    assert METRICS["recall"](both, None) == pytest.approx(hits / sum(item.truths.sum() for item in parts))
    for metric in ("f1", "ap_area", "mean_iou"):
        alone = METRICS[metric](both, np.array([1.0, 1, 1, 0, 0, 0]))
        assert alone == pytest.approx(METRICS[metric](parts[0], None), nan_ok=True)


def test_figures_are_of_what_is_reported_or_of_all_and_a_row_is_as_good_as_itself():
    every = ranking(3)
    sets = together({"near": Held(every.above(0.5), every), "far": Held(NONE, NONE)})
    assert set(sets) == {"near", "far", BOTH}
    told = figures(sets["near"])
    assert (told["recordings"], told["truths"]) == (3, int(every.truths.sum()))
    assert told["recall"][0] == round(METRICS["recall"](every.above(0.5), None), 4)
    assert told["ap_area"][0] == round(METRICS["ap_area"](every, None), 4)
    assert told["best_f1"][0] >= told["f1"][0]
    assert figures(sets["far"])["f1"] == [None, None, None]
    assert figures(sets[BOTH])["ap_area"][0] == told["ap_area"][0]
    assert less(sets["near"], sets["near"])["f1"] == [0.0, 0.0, 0.0]
    assert set(less(sets["near"], sets["near"])) <= cuts(sets["near"]).keys()
