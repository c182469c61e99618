"""The shift benchmark's driver: what its methods change, which baseline is the best, and what its cells come to."""

import json
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import experiments.run
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments.by_site import difference
from experiments.markdown import grid, interval
from experiments.run import (
    DEFAULT_OUT,
    FIGURES,
    Table,
    kept_of,
    refuse_other_cells,
    refuse_to_mix,
    show,
    summary_of,
    write_tables,
)
from experiments.shift.claims import CLAIMS, IDEAS, claims, ideas, verdict
from experiments.shift.kept import keep
from experiments.shift.methods import METHODS, RECOMMENDED, Budget, budgeted, shortened
from experiments.shift.summary import (
    HEADLINE,
    PAIRS,
    SPLITS,
    best_baseline,
    comparable,
    finished_cells,
    mean_interval,
    summary,
    taken_back,
    targets,
)
from experiments.shift.tables import (
    ABLATIONS,
    BASELINE_ROWS,
    BUDGET,
    GIVEN,
    MAIN,
    SEEDS,
    TABLES,
    by_split,
    differences,
    headline,
    known_baselines,
    missing,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.config import Pretrain, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.order import Order
from mast.evaluation.figures import SEED
from mast.evaluation.intervals import confidence_interval
from mast.evaluation.metrics import METRICS, Ranking
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.training.lessons import often_enough
from tests.evaluation.studies import study_under_shift

RECORDINGS = 6


def cell_at(folder: Path, name: str, seed: int, *, right: float, validation_ap: float | None = 0.5) -> Path:
    """A cell as training and evaluation leave it: a truth and a prediction for each recording, some of them right."""
    cell = folder / name / str(seed)
    (cell / "model").mkdir(parents=True)
    (cell / "evaluation").mkdir()
    results = {} if validation_ap is None else {"validation_ap_area": validation_ap}
    (cell / "model" / "model.json").write_text(json.dumps({"results": results}))
    numbers = {name: {"value": right, "low": 0.0, "high": 1.0} for name in FIGURES}
    sets = [
        {
            "name": split,
            "recordings": RECORDINGS,
            "ways": {"iou": {"numbers": numbers, "best_f1": right}, "any": {}},
        }
        for split in SPLITS
    ]
    told = {"threshold": 0.3, "sets": sets, "settings": {"much": "more"}}
    (cell / "evaluation" / "results.json").write_text(json.dumps(told))
    names = [f"{number}.wav" for number in range(RECORDINGS)]
    columns = {
        "set": [split for split in SPLITS for _ in names],
        "recording_id": names * len(SPLITS),
    }
    hits = [float(number < right * RECORDINGS) for number in range(RECORDINGS)] * len(SPLITS)
    scores = np.linspace(0.9, 0.4, RECORDINGS).tolist() * len(SPLITS)
    for table in ("chunks", "truths"):
        pq.write_table(pa.table(columns), cell / "evaluation" / f"{table}.parquet")
    found = pa.table({**columns, "score": scores, "overlap": hits})
    pq.write_table(found, cell / "evaluation" / "predictions.parquet")
    return cell


def told_of(folder: Path, resamples: int) -> dict:
    """The summary of the cells below a folder."""
    return summary(finished_cells(folder), resamples=resamples)


def ranking_with(rng, units=5) -> Ranking:
    return Ranking.of(
        rng.random(12), rng.random(12) * (rng.random(12) < 0.5), rng.integers(units, size=12),
        np.repeat(np.arange(units), 2), units,
    )  # fmt: skip


# Methods


def test_every_method_has_a_place_in_a_table_and_every_title_a_method():
    assert MAIN.keys() | ABLATIONS.keys() | BUDGET.keys() == METHODS.keys()
    assert all(METHODS[name].baseline and name in MAIN for name in BASELINE_ROWS)
    assert set(GIVEN) == {name for name, method in METHODS.items() if method.is_given}


def test_a_shorter_pretraining_warms_up_as_much_sooner():
    third = shortened(Pretrain(epochs=40, warmup_epochs=4), 1 / 3)
    assert third.epochs == 13 and third.warmup_epochs == pytest.approx(4 / 3)


@pytest.fixture(scope="module")
def study_file(tmp_path_factory) -> Path:
    return study_under_shift(tmp_path_factory.mktemp("study"))


@pytest.mark.parametrize("strategy", ["random", "sequential", "time-balanced"])
@pytest.mark.parametrize("share", [0, 0.5])
def test_a_budget_keeps_whole_recordings_of_its_share_and_the_number_of_steps(strategy, share, study_file):
    study = load_study(study_file, ["train.batch=4", "train.epochs=20", f"train.rehearsed_share={share}"])
    store = AudioStore(join(study.work, "audio.lance"))
    every = detection_examples(study, store, "train")
    rows_of = {}
    for row, (name, place) in enumerate(
        zip(
            every.table["recording_id"].to_pylist(),
            every.chunks.places(0, np.arange(len(every.chunks))),
            strict=True,
        )
    ):
        rows_of.setdefault(name, []).append(row)
        rows_of[tuple(place)] = name
    changed, lesson = budgeted(study, store, Budget(0.5, strategy), 0)
    kept = lesson.examples.places(0, np.arange(len(lesson.examples)))
    names = {rows_of[tuple(place)] for place in kept}
    assert sum(len(rows_of[name]) for name in names) == len(kept) < len(every.chunks)
    boxes = lesson.examples.boxes(np.arange(len(kept)))
    assert {tuple(place) for place in lesson.backgrounds} == {
        tuple(place) for place, own in zip(kept, boxes, strict=True) if not len(own)
    }
    steps = [
        Order(
            round(len(often_enough(chunks, item.train)) / (1 - share)), 4, 0, whole_batches=True
        ).steps_per_epoch
        * item.train.epochs
        for chunks, item in ((every.chunks, study), (lesson.examples, changed))
    ]
    assert steps[1] == steps[0]
    fewer, _ = budgeted(study, store, Budget(0.5, strategy, 0.5), 0)
    assert fewer.train.min_steps == pytest.approx(changed.train.min_steps / 2, abs=1)


def test_a_sequential_budget_takes_the_first_by_the_clock_and_another_seed_draws_otherwise(study_file):
    study = load_study(study_file)
    store = AudioStore(join(study.work, "audio.lance"))
    table = detection_examples(study, store, "train").table
    first = table.sort_by("start_local")["recording_id"][0].as_py()
    _, lesson = budgeted(study, store, Budget(0.01, "sequential"), 0)
    assert len(lesson.examples) == table["recording_id"].to_pylist().count(first)
    draws = {
        budgeted(study, store, Budget(0.3, "random"), seed)[1].examples.places(0, np.arange(1)).tobytes()
        for seed in range(6)
    }
    assert len(draws) > 1


# Folders


def test_encoders_of_full_length_stay_where_they_were_and_shorter_ones_lie_beside(
    study_file, tmp_path, monkeypatch
):
    (tmp_path / "soundscapes" / "work").mkdir(parents=True)
    (tmp_path / "soundscapes" / "work" / "normalisation.json").touch()  # prepared to its end
    (tmp_path / "soundscapes" / "study.yaml").write_text(study_file.read_text())
    for name in ("band-median", "dataset", "band-median-33"):
        model = tmp_path / "pretrain" / name / "model"
        model.mkdir(parents=True)
        (model / "model.json").touch()  # finished: nothing is pretrained
    table = Table(Path("data"), tmp_path, "smoke", ())
    found = {
        name: table.study(name, 1).train.start for name in ("mast", "mast_zscore", "mast_pretrain_third")
    }
    assert [Path(start).parent.name for start in found.values()] == [
        "band-median",
        "dataset",
        "band-median-33",
    ]
    monkeypatch.chdir(tmp_path)  # a work folder may be named from where one stands
    assert Table(Path("data"), Path(), "smoke", ()).study("mast", 1).train.start == found["mast"]
    assert table.study("scratch", 1).train.start is None and table.study("mast", 1).train.seed == 1
    with pytest.raises(SystemExit, match="--start FOLDER"):
        table.study("transfer", 0)


def test_a_command_makes_the_same_cell_again():
    table = Table(Path("data"), Path("work"), "small", ("train.epochs=3",), "model")
    assert table.command("mast", 2) == (
        "python -m experiments.run DATA --size small --only mast --seeds 2 --set train.epochs=3"
    )
    assert "--only transfer --seeds 0 --start CHECKPOINT" in table.command("transfer", 0)


def test_a_row_whose_switch_is_gone_says_which_version_makes_it(tmp_path):
    table = Table(Path("data"), tmp_path, "small", ())
    words = "--only scratch_stage_1_redrawn --seeds 2"
    command = f"git checkout d7a950c && python -m experiments.run DATA --size small {words}"
    assert table.command("scratch_stage_1_redrawn", 2) == command
    with pytest.raises(SystemExit, match=re.escape(command)):
        table.cell("scratch_stage_1_redrawn", 2)


# What is kept


def test_a_kept_cell_makes_the_same_tables_as_the_cell(tmp_path):
    """Also where the threshold lies below the last right prediction, and where wrong ones come after both."""
    for seed, threshold in enumerate((0.3, 0.65, None)):
        cell = cell_at(tmp_path / "cells", "mast", seed, right=0.5)
        results = json.loads((cell / "evaluation" / "results.json").read_text())
        (cell / "evaluation" / "results.json").write_text(json.dumps({**results, "threshold": threshold}))
        (cell / "round_1").mkdir()
        (cell / "round_1" / "round.json").write_text(json.dumps({"rejected": None, "boxes": 3}))
        keep(cell, tmp_path / "kept" / "mast" / str(seed))
    assert told_of(tmp_path / "kept", 20) == told_of(tmp_path / "cells", 20)
    found = [
        pq.read_table(tmp_path / "kept" / "mast" / str(seed) / "evaluation" / "predictions.parquet")
        for seed in range(3)
    ]
    assert [len(table) for table in found] == [RECORDINGS * len(SPLITS), 3 * len(SPLITS), 3 * len(SPLITS)]
    assert not [*(tmp_path / "kept").rglob("*.safetensors")]


@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.1, 0.35, 0.5, 0.95, None]))
@settings(max_examples=15, deadline=None)
def test_whatever_was_found_a_kept_cell_says_the_same_of_it(seed, threshold):
    """Also where right and wrong predictions have the same score, and where recordings stand in no order."""
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(seed)
        cell = cell_at(folder / "cells", "mast", 0, right=0.5) / "evaluation"
        results = json.loads((cell / "results.json").read_text())
        (cell / "results.json").write_text(json.dumps({**results, "threshold": threshold}))
        for table in ("chunks", "truths"):
            rows = pq.read_table(cell / f"{table}.parquet")
            pq.write_table(rows.take(rng.permutation(len(rows))), cell / f"{table}.parquet")
        count = int(rng.integers(1, 60))
        found = pa.table(
            {
                "set": rng.choice([*SPLITS], count),
                "recording_id": rng.choice([f"{number}.wav" for number in range(RECORDINGS)], count),
                "score": rng.integers(1, 20, count) / 20,
                "overlap": rng.random(count) * (rng.random(count) < 0.3),
            }
        )
        pq.write_table(found, cell / "predictions.parquet")
        keep(cell.parent, folder / "kept" / "mast" / "0")
        assert told_of(folder / "kept", 8) == told_of(folder / "cells", 8)
        kept = pq.read_table(folder / "kept" / "mast" / "0" / "evaluation" / "predictions.parquet")
        assert (np.asarray(kept["overlap"]) > 0).sum() == (np.asarray(found["overlap"]) > 0).sum()


def test_results_of_cells_that_are_gone_stay_in_the_files_and_others_take_their_place(tmp_path):
    """The model is gone, and so is what it found; what was told of it is not."""
    out, table = tmp_path / "shift.json", Table(Path("data"), Path("work"), "small", ())
    for name, right in (("fcos", 0.5), (RECOMMENDED, 1.0)):
        keep(cell_at(tmp_path / "cells", name, 0, right=right), kept_of(out) / name / "0")
    write_tables(table, out)
    before = json.loads(summary_of(out).read_text())
    shutil.rmtree(kept_of(out))
    keep(cell_at(tmp_path / "cells", "mast", 1, right=0.5), kept_of(out) / "mast" / "1")
    write_tables(table, out)
    rows, told = (json.loads(path.read_text()) for path in (out, summary_of(out)))
    assert [(row["method"], row["seed"]) for row in rows["rows"]] == [
        (name, seed) for name, seed in (("fcos", 0), ("mast", 1), (RECOMMENDED, 0)) for _ in SPLITS
    ]
    assert told["methods"].keys() == {"fcos", "mast", RECOMMENDED}
    assert told["methods"]["fcos"] == before["methods"]["fcos"]
    assert told["targets"]["a_f1"] == before["targets"]["a_f1"] and told["targets"]["a_f1"]["reached"]
    keep(cell_at(tmp_path / "cells", "fcos", 1, right=0.0), kept_of(out) / "fcos" / "1")
    write_tables(table, out)
    rows, told = (json.loads(path.read_text()) for path in (out, summary_of(out)))
    assert {row["seed"] for row in rows["rows"] if row["method"] == "fcos"} == {1}
    assert told["methods"]["fcos"]["seeds"] == 1  # what is kept counts, and no pair can be made with it
    assert told["methods"]["fcos"]["site"]["f1"] == 0.0
    assert told["targets"]["a_f1"]["value"] == 1.0 and told["targets"]["a_f1"]["interval"] is None
    assert told["differences"]["recommended - best_baseline"]["seeds"] == []
    keep(cell_at(tmp_path / "cells", "detr", 0, right=0.5, validation_ap=0.9), kept_of(out) / "detr" / "0")
    write_tables(table, out)
    told = json.loads(summary_of(out).read_text())
    assert told["best_baseline"]["name"] == "detr" and told["targets"]["a_f1"]["value"] == 0.5


def test_results_of_another_size_do_not_mix(tmp_path):
    out = tmp_path / "shift.json"
    keep(cell_at(tmp_path / "cells", "fcos", 0, right=0.5), kept_of(out) / "fcos" / "0")
    write_tables(Table(Path("data"), Path("work"), "smoke", ()), out)
    shutil.rmtree(kept_of(out))
    write_tables(Table(Path("data"), Path("work"), "small", ()), out)
    assert json.loads(out.read_text())["rows"] == []


def test_a_result_file_of_another_size_or_of_changed_methods_is_left_alone(tmp_path):
    out = tmp_path / "shift.json"
    refuse_to_mix(out, "smoke", ["train.epochs=1"])
    write_tables(Table(Path("data"), Path("work"), "smoke", ()), out)
    refuse_to_mix(out, "smoke", ["train.epochs=1"])
    with pytest.raises(SystemExit, match="holds results of --size smoke.*--out"):
        refuse_to_mix(out, "small", [])
    refuse_to_mix(DEFAULT_OUT, "small", [])
    for size, sets, told in (("smoke", [], "--size small"), ("small", ["train.epochs=1"], "as they are")):
        with pytest.raises(SystemExit, match=f"{told}.*--out"):
            refuse_to_mix(DEFAULT_OUT, size, sets)


def test_cells_made_with_other_settings_or_from_another_model_are_left_alone(tmp_path):
    other = "with --set train.lr=9. Give others a folder"
    refuse_other_cells(tmp_path / "new", ["train.lr=9"], None)
    for _ in range(2):
        refuse_other_cells(tmp_path / "new", ["train.lr=9"], "/models/one")
    with pytest.raises(SystemExit, match="with --set train.lr=9 --start /models/one. Give others a folder"):
        refuse_other_cells(tmp_path / "new", ["train.lr=9"], "/models/two")
    refuse_other_cells(tmp_path / "new", ["train.lr=9"], None)
    (tmp_path / "known" / "cells").mkdir(parents=True)  # as it was before anything was noted
    with pytest.raises(SystemExit, match="holds cells made without --set"):
        refuse_other_cells(tmp_path / "known", ["train.lr=9"], None)
    refuse_other_cells(tmp_path / "known", [], None)
    (tmp_path / "changed").mkdir()
    refuse_other_cells(tmp_path / "changed", ["train.lr=9"], None)
    with pytest.raises(SystemExit, match=other):
        refuse_other_cells(tmp_path / "changed", [], None)


def test_a_benchmark_that_was_not_prepared_to_the_end_is_prepared_the_next_time(tmp_path, monkeypatch):
    """Killed after its study file was written, or while a verb was at work."""
    table, verbs = Table(Path("data"), tmp_path, "smoke", ()), []
    file = tmp_path / "soundscapes" / "study.yaml"
    file.parent.mkdir()
    file.write_text("work: work\n")

    class Verbs:
        def invoke(self, app, words):
            verbs.append(words[0])
            broken = verbs == ["scan", "splits"]
            if words[0] == "prepare":
                (file.parent / "work").mkdir()
                (file.parent / "work" / "normalisation.json").touch()
            return SimpleNamespace(exit_code=int(broken), output="", exception="killed")

    monkeypatch.setattr(experiments.run, "CliRunner", Verbs)
    with pytest.raises(SystemExit, match="killed"):
        _ = table.study_file
    assert table.study_file == table.study_file == file
    assert verbs == ["scan", "splits", "scan", "splits", "prepare"]


def test_what_is_recommended_is_the_preset_that_users_are_given():
    preset = load_study(None, ["preset=laptop"])
    for name in (RECOMMENDED, f"{RECOMMENDED}_st"):
        assert load_study(None, ["preset=laptop", *METHODS[name].settings]) == preset
    for name in ("scratch", "mast_st"):
        assert load_study(None, ["preset=laptop", *METHODS[name].settings]) != preset


# Summary


def test_a_site_is_told_by_its_own_recordings_alone(tmp_path):
    cells = {}
    for name, right in (("fcos", 0.0), ("mast", 0.5)):
        cells[name] = [cell_at(tmp_path, name, 0, right=right)]
        for table in (cells[name][0] / "evaluation").glob("*.parquet"):
            rows = pq.read_table(table)
            places = [
                f"card/{'B' if number % 6 < 3 else 'C'}/{number % 6}.wav" for number in range(len(rows))
            ]
            pq.write_table(rows.set_column(1, "recording_id", pa.array(places)), table)
    told = {site: difference(cells["mast"], cells["fcos"], site) for site in "BC"}
    assert told["B"] == {"seeds": [1, 1], "f1": [1.0] * 3, "ap": [1.0] * 3, "recordings": 3}
    assert told["C"] == {"seeds": [1, 1], "f1": [0.0] * 3, "ap": [0.0] * 3, "recordings": 3}


def test_no_cells_make_an_empty_summary(tmp_path):
    told = summary(finished_cells(tmp_path))
    assert told["methods"] == told["differences"] == {} and not told.keys() & set(HEADLINE)
    assert all(item["reached"] is None for item in told["targets"].values())


def test_the_best_baseline_is_the_one_with_the_highest_mean_average_precision_at_other_sites(tmp_path):
    assert best_baseline({}) is None
    cell_at(tmp_path, "fcos", 0, right=0.7)
    cell_at(tmp_path, "yolo", 0, right=0.9, validation_ap=0.9)
    cell_at(tmp_path, "yolo", 1, right=0.2, validation_ap=0.9)
    cell_at(tmp_path, "energy", 0, right=0.0, validation_ap=None)
    cell_at(tmp_path, "mast", 0, right=1.0)
    cell_at(tmp_path, "fcos_at_once", 0, right=1.0)  # which learns from more than labels
    assert best_baseline(told_of(tmp_path, resamples=5)["methods"]) == "fcos"


def test_what_a_teacher_has_taught_is_compared_with_what_else_came_of_the_same_teacher(tmp_path):
    for name, seed, right in (
        ("mast_st", 0, 0.5),
        ("control", 0, 0.5),
        ("control", 1, 0.0),
        ("mast", 2, 1.0),
    ):
        cell_at(tmp_path, name, seed, right=right)
    told = told_of(tmp_path, resamples=5)["differences"]["mast_st - control"]
    assert (told["site"]["f1"], told["seeds"]) == (0.0, [1, 1])
    known = finished_cells(tmp_path)
    assert comparable("mast", "scratch", known) == ([tmp_path / "mast/2"], [])
    assert comparable("mast_st", "mast", known) == ([], [])


def test_a_summary_by_hand(tmp_path):
    cell_at(tmp_path, "fcos", 0, right=0.5)
    for seed, right in enumerate((1.0, 0.5)):
        cell_at(tmp_path, RECOMMENDED, seed, right=right)
    told = told_of(tmp_path, resamples=50)
    assert told["best_baseline"]["name"] == "fcos" and "other sites" in told["best_baseline"]["chosen_by"]
    assert told["recommended"]["name"] == RECOMMENDED
    site = told["recommended"]["site"]
    assert site["f1"] == 0.75 and site["f1_by_seed"] == [1.0, 0.5] and told["recommended"]["seeds"] == 2
    low, high = site["f1_interval"]
    assert 0.5 <= low < 0.75 < high <= 1
    assert told["best_baseline"]["site"]["best_f1"] == pytest.approx(0.6667)
    ahead = told["differences"]["recommended - best_baseline"]
    assert ahead["seeds"] == [2, 1]
    assert ahead["site"]["f1"] == 0.25  # as in the table: the mean of two seeds, less the other's one
    assert told["targets"]["a_f1"]["reached"] is True and told["targets"]["a_f1"]["seeds"] == 1
    assert told["targets"]["c"]["reached"] is None and told["targets"]["c"]["seeds"] is None
    assert told["targets"]["d"] == {
        "claim": "share of in-domain F1 kept on site", "least": 0.65, "value": 1.0, "seeds": 2, "reached": True,
    }  # fmt: skip


def test_the_guard_has_caught_the_union_where_a_round_was_taken_back_in_every_seed(tmp_path):
    rounds = {0: [None, "F1 on validation fell"], 1: ["boxes ran away"], 2: [None]}
    for seed, rejected in rounds.items():
        cell = cell_at(tmp_path, "st_union", seed, right=0.5)
        for number, why in enumerate(rejected, start=1):
            (cell / f"round_{number}").mkdir()
            (cell / f"round_{number}" / "round.json").write_text(json.dumps({"rejected": why}))
    cells = finished_cells(tmp_path)["st_union"]
    assert taken_back({}) is None and taken_back({0: cells[0], 1: cells[1]}) == 1.0
    told = told_of(tmp_path, resamples=5)["targets"]["e"]
    assert told["value"] == pytest.approx(2 / 3) and told["seeds"] == 3 and told["reached"] is False


def test_a_target_is_missed_by_a_little_and_met_at_its_mark():
    found = {"mast_st - control": {"site": {"ap": 0.0499}, "in_domain": {"ap": -0.03}}}
    told = targets(found, {"in_domain": {"f1": 0.0}, "site": {"f1": 0.1}}, {})
    assert told["b_site"]["reached"] is False and told["b_in_domain"]["reached"] is True
    assert told["d"]["reached"] is None


@given(seed=st.integers(0, 1000), metric=st.sampled_from(["f1", "ap_101_points"]))
@settings(max_examples=10, deadline=None)
def test_a_mean_of_one_is_its_own_interval_and_a_difference_with_itself_is_none(seed, metric):
    one = ranking_with(np.random.default_rng(seed))
    own = confidence_interval(METRICS[metric], one, np.random.default_rng(SEED), 30)
    assert mean_interval(metric, [one], resamples=30) == own
    same = mean_interval(metric, [one, one], [one], resamples=30)
    assert (same.value, same.low, same.high) == (0, 0, 0)


@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_a_difference_of_means_is_that_of_the_same_draws_one_by_one(seed):
    rng = np.random.default_rng(seed)
    first, second, other = (ranking_with(rng) for _ in range(3))
    found = mean_interval("f1", [first, second], [other], resamples=20)
    draws, drawn = np.random.default_rng(SEED), []
    for _ in range(20):
        weight = np.bincount(draws.integers(5, size=5), minlength=5).astype(float)
        values = [METRICS["f1"](item, weight) for item in (first, second, other)]
        drawn.append((values[0] + values[1]) / 2 - values[2])
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]))


def test_rankings_of_other_recordings_are_refused():
    one = ranking_with(np.random.default_rng(0))
    with pytest.raises(ValueError, match="same recordings"):
        mean_interval("f1", [one, replace(one, truths=one.truths + 1)])


# Tables and picture


def test_a_table_without_rows_has_a_head():
    assert grid(["a", "b"], []) == "| a | b |\n| --- | --- |\n"
    assert interval([None, 0.1, 0.25]) == "– (0.10 to 0.25)" and interval([0.5]) == "0.50"


def test_the_best_of_a_column_is_bold_and_what_was_not_made_is_not_there():
    sets = {
        split: {"f1": 0.5, "f1_interval": [0.4, 0.6], "ap": None, "ap_interval": [None] * 2}
        for split in SPLITS.values()
    }
    worse = {split: {**own, "f1": 0.3} for split, own in sets.items()}
    told = by_split(MAIN, {"mast": {**sets, "seeds": 3}, "fcos": {**worse, "seeds": 1}}).splitlines()
    assert len(told) == 4 and told[2].startswith("| FCOS | 1 | 0.30 (0.40 to 0.60) | – (– to –) |")
    assert told[3].startswith("| MAST | 3 | **0.50 (0.40 to 0.60)** | – (– to –) |")


def test_the_headline_is_what_people_have_the_best_baseline_and_what_is_recommended():
    sets = {split: {"f1": 0.5, "f1_interval": [0.4, 0.6]} for split in SPLITS.values()}
    chosen = {"best_baseline": {"name": "fcos", **sets}, "recommended": {"name": "mast", **sets}}
    told = headline({"methods": dict.fromkeys(("energy", "detr", "fcos"), sets), **chosen}).splitlines()
    assert told[0] == "| F1 | energy threshold | FCOS | `mast train` |"
    assert told[-1] == "| unseen site |" + " 0.50 (0.40 to 0.60) |" * 3
    assert headline({"methods": {}}).startswith("| F1 |\n")


def test_a_claim_is_seen_where_its_interval_leaves_out_nothing_else():
    def said(value, bounds, seeds=(2, 3)):
        return verdict({"site": {"f1": value, "f1_interval": bounds}, "seeds": seeds}, "f1", "site")

    assert [said(0.1, bounds) for bounds in ([0.01, 0.2], [-0.01, 0.2])] == ["yes", "not sure"]
    assert said(-0.1, [-0.2, -0.01]) == "the opposite"
    assert said(-0.1, [-0.2, -0.01], seeds=(3, 1)) == "the opposite, one seed"
    assert said(0.1, [None, None]) == "no interval"  # of one recording
    assert said(0.1, None, seeds=()) == "no interval"  # one side has figures alone
    assert said(None, None) == verdict({}, "f1", "site") == "not measured"


def test_the_papers_claims_stand_beside_what_was_found_by_the_figure_that_they_are_about():
    nothing = claims({}).splitlines()
    assert len(nothing) == 2 + len(CLAIMS) and all(line.endswith("| not measured |") for line in nothing[2:])
    found = {"f1": -0.1, "f1_interval": [-0.2, -0.01], "ap": 0.1, "ap_interval": [0.05, 0.2]}
    told = claims({"mast - scratch": {"site": found, "seeds": [1, 2]}}).splitlines()
    here = "-0.10 (-0.20 to -0.01) | 0.10 (0.05 to 0.20)"
    assert (
        f"| pretraining helps | -0.02 | +0.04 | {here} | yes, one seed |" in told
    )  # its average precision in the paper
    assert {claim.pair for claim in CLAIMS} <= {*PAIRS} and {claim.split for claim in CLAIMS} <= {
        *SPLITS.values()
    }


def test_an_idea_helps_if_average_precision_at_other_sites_is_higher_beyond_chance():
    nothing = ideas({}).splitlines()
    assert len(nothing) == 2 + len(IDEAS) and all(line.endswith("| not measured |") for line in nothing[2:])
    found = {"f1": 0.1, "f1_interval": [-0.1, 0.2], "ap": 0.1, "ap_interval": [0.05, 0.2]}
    pair = {**dict.fromkeys(SPLITS.values(), found), "seeds": [3, 2]}
    told = next(line for line in ideas({"fcos_band_median - fcos": pair}).splitlines() if "median" in line)
    assert told.endswith("| 0.10 (-0.10 to 0.20)" + " | 0.10 (0.05 to 0.20)" * 3 + " | yes |")
    assert {idea.pair for idea in IDEAS} <= {*PAIRS}


def test_differences_have_intervals_where_there_are_any_and_every_pair_has_a_name():
    own = {"f1": 0.1, "f1_interval": [0.0, 0.2], "ap": -0.05, "ap_interval": None}
    sets = dict.fromkeys(SPLITS.values(), own)
    told = differences({" - ".join(pair): sets for pair in PAIRS}).splitlines()
    assert len(told) == 2 + len(PAIRS)
    assert "| MAST, less MAST from random weights |" + " 0.10 (0.00 to 0.20) | -0.05 |" * 4 in told


def test_results_are_shown_as_tables_and_as_a_picture(tmp_path, capsys):
    for name in ("fcos", "scratch", "mast", "labels_25_random"):
        cell_at(tmp_path / "cells", name, 0, right=0.5)
    out = tmp_path / "shift.json"
    summary_of(out).write_text(json.dumps(told_of(tmp_path / "cells", resamples=20)))
    number = {"value": 0.5, "low": 0.4, "high": None}
    figures = dict.fromkeys(("precision", "recall", "f1", "ap_area", "ap_11_points", "mean_iou"), number)
    row = {"method": "mast", "seed": 0, "split": "site", **figures, "best_f1": 0.6}
    out.write_text(json.dumps({"size": "small", "rows": [row, {**row, "seed": 1, "best_f1": 0.9}]}))
    show(out, [], None)
    told = capsys.readouterr().out
    assert all(f"{name}\n\n| " in told for name in TABLES)
    assert "25 %, random, by FCOS" in told and "0.60 |" in told and "0.90 |" in told
    assert "pretraining beats random weights: ap on site | +0.05 | 0.00 (0.00 to 0.00) | 1 | no |" in told
    show(out, ["main"], tmp_path / "shift.png")
    assert capsys.readouterr().out.startswith("main\n") and (tmp_path / "shift.png").stat().st_size > 10_000
    show(out, [], tmp_path / "again.png")
    assert capsys.readouterr().out == "" and (tmp_path / "again.png").exists()


def test_rows_that_lack_seeds_are_told_with_what_would_make_them():
    rows = [
        {"method": name, "seed": seed}
        for name in (MAIN | ABLATIONS | BUDGET).keys() - {"detr"}
        for seed in range(2)
    ]
    told = missing(rows, "small").splitlines()
    assert len(told) == 2 + len(SEEDS) + 1  # all but one of the headline's lack the third seed
    command = "`python -m experiments.run DATA --size small --only"
    assert f"| DETR | 0 of 1 | {command} detr --seeds 0` |" in told
    assert f"| MAST | 2 of 3 | {command} mast --seeds 2` |" in told
    assert not any("transfer" in line for line in missing([], "small").splitlines())
    other = missing([{"method": name, "seed": 1} for name in ("detr", "mast")], "small").splitlines()
    assert not any(line.startswith("| DETR |") for line in other)  # any seed will do where one is enough
    assert f"| MAST | 1 of 3 | {command} mast --seeds 0 2` |" in other


def test_the_table_of_targets_says_which_baselines_are_missing():
    some = {"best_baseline": {"name": "fcos"}, "methods": {name: {} for name in BASELINE_ROWS[:-1]}}
    told = known_baselines(some)
    assert told == "\nThe best baseline: FCOS. Not measured yet, so that nothing is decided: YOLO26.\n"
    assert "Not measured" not in known_baselines({**some, "methods": {key: {} for key in BASELINE_ROWS}})
