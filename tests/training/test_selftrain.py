"""Self-training: rounds that go on after a stop, stand or are taken back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Guard, Selftrain, Study, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.loading import FixedChunks, Joined
from mast.errors import ModelError, TrainingError
from mast.evaluation.metrics import Ranking
from mast.models.checkpoint import load_model, save_model
from mast.models.decoding import Detections
from mast.models.encoder import SIZES, EncoderShape
from mast.recordings.store import AudioStore
from mast.training import selftrain
from mast.training.finetune import train_study
from mast.training.hearing import STEADY_BOXES
from mast.training.pseudo_labels import write_labels
from mast.training.rounds import Judged, why_rejected
from mast.training.run import Run
from mast.training.selftrain import CURRICULA, selftrain_study, stage_study
from mast.training.starting import WIDTHS
from tests.models.test_checkpoint import DESCRIPTION, some_tensors
from tests.training.test_finetune import QUICK, SMALL_MAST

STAGE = ("epochs=1", "warmup_epochs=0", "batch=8", "lr=1e-3", "precision=fp32", "checkpoint_minutes=0")
SETS = (
    *QUICK,
    *(f"selftrain.{stage}.{item}" for stage in ("pseudo", "expert") for item in STAGE),
    "selftrain.rounds=1",
    "selftrain.min_score=0.001",
    "detection.min_score=0.001",
    "selftrain.guard.max_f1_loss=1",
    "selftrain.guard.max_rate_ratio=1e9",
)
KEEP_ALL = Guard(max_f1_loss=0.1, max_rate_ratio=2, min_boxes=10)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", EncoderShape(width=32, heads=2, depth=3))
        patch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def teacher(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    run = Run(tmp_path_factory.mktemp("teacher"))
    assert train_study(load_study(study_file, SETS), run, "cpu") == "finished"
    return str(run.model)


def study_with(study_file: Path, *changes: str) -> Study:
    return load_study(study_file, [*SETS, *changes])


def judged(f1: float, **rates: float) -> Judged:
    return Judged({"f1": f1, "threshold": 0.3}, rates, dict.fromkeys(rates, 0.5))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (judged(0.5, A=100), judged(0.45, A=150), None),
        (judged(0.5, A=100), judged(0.35, A=100), "F1"),
        (judged(0.5, A=100, B=20), judged(0.6, A=100, B=50), "B"),
        (judged(0.5, A=2), judged(0.6, A=38), None),  # in half an hour: one box, and nineteen
        (judged(0.5), judged(0.5, C=42), "C"),
        (judged(0.5, A=10, B=10, C=10), judged(0.5, A=38, B=38, C=38), "all sites together"),
        (judged(0.5, A=10, B=10, C=100), judged(0.5, A=38, B=38, C=100), None),
        (judged(0.5, A=100, B=300), judged(0.5, A=100, B=100), None),  # maybe its false alarms
        (judged(0.5, A=100, B=300), judged(0.5, A=150, B=0), "at B it draws 0 boxes"),
        (judged(0.5, A=100, B=38), judged(0.5, A=100, B=0), None),  # in half an hour: nineteen
        (judged(0.5, A=100, B=300), judged(0.5, A=90, B=90), "all sites together it draws 90 boxes"),
    ],
)
def test_a_round_is_taken_back_if_it_is_worse_or_draws_boxes_everywhere_or_none(
    before, after, reason
) -> None:
    told = why_rejected(before, after, KEEP_ALL)
    assert told is None if reason is None else reason in told


def test_two_sets_of_chunks_keep_their_boxes_and_weights_when_joined() -> None:
    one = FixedChunks(np.array([[0, 0]]), [torch.ones(2, 4)], torch.tensor([0.3]))
    other = FixedChunks(np.array([[1, 0], [2, 0]]), [torch.zeros(0, 4), torch.ones(1, 4)])
    both = Joined(one, other)
    every = np.arange(3)
    assert [len(own) for own in both.boxes(every)] == [2, 0, 1]
    assert both.weights(every).tolist() == pytest.approx([0.3, 1, 1])
    assert both.places(0, every).tolist() == [[0, 0], [1, 0], [2, 0]]


def test_a_stage_has_the_papers_settings_and_its_own_start() -> None:
    study = load_study(None, ["preset=paper"])
    one, two = (
        stage_study(study, stage, "teacher") for stage in (study.selftrain.pseudo, study.selftrain.expert)
    )
    assert (one.train.lr, one.train.epochs, one.augmentation.probability) == (1e-4, 80, 0.9)
    assert (two.train.lr, two.train.epochs, two.augmentation.probability) == (5e-5, 40, 0.8)
    assert (one.train.unfreezing.blocks, two.train.unfreezing.blocks) == (3, 6)
    assert one.train.start == two.train.start == "teacher"
    assert load_study(None).selftrain == study.selftrain  # the paper's values are the defaults


def test_a_round_labels_learns_and_leaves_its_model_its_numbers_and_a_page(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    seen: list[str] = []
    taught = selftrain_study(
        study_with(study_file), Run(tmp_path), teacher, "cpu", lambda what, done, total: seen.append(what)
    )
    assert taught.end == "finished"
    (only,) = taught.rounds
    assert only.rejected is None and only.pseudo["boxes"] > 0
    right = only.pseudo["right_on_validation"]
    assert f"Round 1: learning from the teacher's boxes (on validation {right:.0%} right)" in seen
    assert only.after.rate_per_hour.keys() == only.before.rate_per_hour.keys()
    assert (tmp_path / "model" / "model.json").read_bytes() == (
        tmp_path / "round_1" / "expert" / "model" / "model.json"
    ).read_bytes()
    kept = json.loads((tmp_path / "model" / "model.json").read_text("utf-8"))
    assert kept["source"] == f"mast selftrain, started from {tmp_path / 'round_1' / 'pseudo' / 'model'}"
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Round 1" in page and "data:image/png" in page
    assert f"on validation that score as much, {right:.2f} are right" in page
    assert ("most of what it teaches may be wrong" in page) == (right < 0.5)
    assert (tmp_path / "round_1" / "pseudo.png").exists()
    assert any("teacher listens" in what for what in seen)
    again = selftrain_study(study_with(study_file), Run(tmp_path), teacher, "cpu")
    assert again.rounds == taught.rounds


def test_how_sure_a_teacher_has_to_be_is_told_by_made_up_calls_where_its_student_learns_such(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftrain, "train_study", lambda *arguments: "stopped")
    asked: list[Ranking] = []

    def score_to_learn_from(settings: Selftrain, validation: Ranking) -> float:
        asked.append(validation)
        return 0.0

    monkeypatch.setattr(selftrain, "score_to_learn_from", score_to_learn_from)
    for share, precision in ((0, 0.5), (0.5, 0.5), (0.5, "null")):
        changes = (f"selftrain.rehearsed_share={share}", f"selftrain.min_precision={precision}")
        run = Run(tmp_path / f"{share}-{precision}")
        selftrain_study(study_with(study_file, *changes), run, teacher, "cpu")
    plain, with_calls, fixed = (len(item.truths) for item in asked)
    assert with_calls > plain == fixed
    assert asked[1].truths.sum() == pytest.approx(STEADY_BOXES, rel=0.3)


def test_a_run_that_was_stopped_goes_on_to_the_same_model(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_with(study_file)
    whole, broken = Run(tmp_path / "whole"), Run(tmp_path / "broken")
    selftrain_study(study, whole, teacher, "cpu")
    real = selftrain.train_study
    with monkeypatch.context() as patch:
        stages = iter([real, lambda *arguments: "stopped"])

        def one_stage_then_a_stop(*arguments: object) -> str:
            return next(stages)(*arguments)

        patch.setattr(selftrain, "train_study", one_stage_then_a_stop)
        taught = selftrain_study(study, broken, teacher, "cpu")
    assert taught.end == "stopped" and taught.rounds == ()
    assert not broken.is_finished
    assert selftrain_study(study, broken, teacher, "cpu").end == "finished"
    assert (broken.model / "weights.safetensors").read_bytes() == (
        whole.model / "weights.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("curriculum", ["pseudo", "union", "control"])
def test_other_curricula_learn_in_their_own_stages(
    study_file: Path, teacher: str, tmp_path: Path, curriculum: str
) -> None:
    switches = (
        "selftrain.silence_unsure=true",
        "selftrain.rehearsed_share=0.5",
        "selftrain.min_precision=0",
    )
    changes = (f"selftrain.curriculum={curriculum}", *switches)
    study = study_with(study_file, *changes)
    assert selftrain_study(study, Run(tmp_path), teacher, "cpu").end == "finished"
    stages = {path.name for path in (tmp_path / "round_1").iterdir() if path.is_dir()}
    assert stages == set(CURRICULA[curriculum])
    first = Run(tmp_path / "round_1" / CURRICULA[curriculum][0]).config
    assert "rehearsed_share: 0.5" in first.read_text("utf-8")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert re.search(r"boxes on validation and 1?\d\d made-up calls that score as much", page)


@pytest.mark.parametrize("share", [0, 0.5])
def test_the_control_learns_in_the_very_steps_and_epochs_of_what_it_controls(
    study_file: Path, teacher: str, tmp_path: Path, share: float
) -> None:
    stage = ("epochs=3", "batch=2", "warmup_epochs=1.5", "unfreezing.first_epoch=1")
    changes = (f"selftrain.rehearsed_share={share}", *(f"selftrain.pseudo.{item}" for item in stage))
    taken = {}
    for curriculum in ("pseudo", "control"):
        study = study_with(study_file, f"selftrain.curriculum={curriculum}", *changes)
        folder = tmp_path / curriculum
        assert selftrain_study(study, Run(folder), teacher, "cpu").end == "finished"
        lines = (folder / "round_1" / curriculum / "metrics.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        taken[curriculum] = [(row["step"], row["epoch"], row.get("lr")) for row in rows]
    assert taken["control"] == taken["pseudo"] and taken["pseudo"][-1][0] > 6
    store = selftrain.AudioStore(str(Path(study.work) / "audio.lance"))
    steps = taken["pseudo"][-1][0] // 3
    assert len(detection_examples(study, store, "train").chunks) // 2 != round(steps * (1 - share))


def test_the_first_teacher_is_judged_once(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listened: list[str] = []
    real = selftrain.label_pool

    def label_pool(study: Study, store: AudioStore, model: str, *rest: Any) -> Any:
        listened.append(model)
        return real(study, store, model, *rest)

    monkeypatch.setattr(selftrain, "label_pool", label_pool)
    changes = ("selftrain.rounds=2", "selftrain.pseudo.lr=1e-5", "selftrain.expert.lr=1e-5")
    taught = selftrain_study(study_with(study_file, *changes), Run(tmp_path), teacher, "cpu")
    assert len(taught.rounds) == 2 and taught.rounds[0].before == taught.rounds[1].before
    assert listened.count(teacher) == 2  # to teach, and to be judged


def test_a_round_that_is_taken_back_leaves_the_teacher_as_the_model(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    changes = (
        "selftrain.rounds=2",
        "selftrain.guard.max_rate_ratio=1.0000001",
        "selftrain.guard.min_boxes=0",
        "selftrain.pseudo.lr=1",
    )
    taught = selftrain_study(study_with(study_file, *changes), Run(tmp_path), teacher, "cpu")
    last = taught.rounds[-1]
    assert last.rejected and "taken back" in last.told()
    assert len(taught.rounds) == 1
    assert (tmp_path / "model" / "weights.safetensors").read_bytes() == (
        Path(teacher) / "weights.safetensors"
    ).read_bytes()
    assert "Taken back" in (tmp_path / "report.html").read_text("utf-8")


def test_a_teacher_in_a_bucket_can_be_the_model_that_stood(bucket: str, tmp_path: Path) -> None:
    save_model(f"{bucket}/teacher", DESCRIPTION, some_tensors())
    run = Run(tmp_path / "run")
    selftrain._keep(f"{bucket}/teacher", run)
    assert run.is_finished
    assert load_model(str(run.model))[0] == load_model(f"{bucket}/teacher")[0]


def test_boxes_that_were_drawn_in_another_pool_are_refused(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    study = study_with(study_file)
    (tmp_path / "round_1").mkdir()
    write_labels(
        [Detections(torch.zeros(0, 4), torch.zeros(0))] * 3, str(tmp_path / "round_1" / "pseudo.parquet")
    )
    with pytest.raises(
        TrainingError, match="boxes for 3 chunks, and there are .* unlabelled ones now.*--name"
    ):
        selftrain_study(study, Run(tmp_path), teacher, "cpu")
    known = yaml.safe_load((tmp_path / "config.yaml").read_text("utf-8"))
    assert known["annotations.parquet"] and known["splits.parquet"]


def test_a_teacher_that_finds_nothing_is_refused(study_file: Path, teacher: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="better teacher"):
        selftrain_study(study_with(study_file, "selftrain.min_score=1"), Run(tmp_path), teacher, "cpu")


def test_a_pupil_that_has_nothing_to_teach_ends_the_rounds_and_is_the_model(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    """Steps far too large ruin a pupil, and here the guard lets it pass."""
    changes = ("selftrain.rounds=3", "selftrain.expert.lr=0.3", "selftrain.guard.max_f1_loss=1")
    study = study_with(study_file, *changes, "selftrain.guard.max_rate_ratio=1e9")
    for _ in range(2):  # also where it is asked again
        taught = selftrain_study(study, Run(tmp_path), teacher, "cpu")
        assert taught.end == "finished" and taught.unsure
        assert f"There is no round {len(taught.rounds) + 1}" in taught.unsure
    assert (tmp_path / "model" / "weights.safetensors").read_bytes() == (
        tmp_path / f"round_{len(taught.rounds)}" / "expert" / "model" / "weights.safetensors"
    ).read_bytes()


def test_of_a_large_pool_a_teacher_hears_so_many_hours_of_each_site_alike(study_file: Path) -> None:
    store = selftrain.AudioStore(str(Path(load_study(study_file).work) / "audio.lance"))
    whole = selftrain.pool_of(study_with(study_file), store)
    chunk_s = load_study(study_file).chunking.chunk_s
    assert len(whole.places) > 3 and sum(whole.hours.values()) == pytest.approx(
        len(whole.places) * chunk_s / 3600
    )
    for chunks, heard in ((3, 3), (1e-9, 1), (1e6, len(whole.places))):
        study = study_with(study_file, f"selftrain.pool_hours={chunks * chunk_s / 3600}")
        some = selftrain.pool_of(study, store)
        assert len(some.places) == len(some.sites) == heard
        assert set(map(tuple, some.places.tolist())) <= set(map(tuple, whole.places.tolist()))
    sites = np.unique(whole.sites.astype(str))
    two_each = f"selftrain.pool_hours={2 * len(sites) * chunk_s / 3600}"
    some = selftrain.pool_of(study_with(study_file, two_each), store)
    for site in sites:
        heard, there = some.places[some.sites == site], whole.places[whole.sites == site]
        assert heard.tolist() == there[[0, -1]].tolist()


def test_a_teacher_that_hears_otherwise_than_its_student_is_refused_before_it_listens(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    kind = load_model(teacher)[0].normalisation.kind
    study = study_with(study_file, f"normalisation={'dataset' if kind == 'band-median' else 'band-median'}")
    with pytest.raises(ModelError, match=f"Set normalisation={kind}"):
        selftrain_study(study, Run(tmp_path), teacher, "cpu")
    assert not Run(tmp_path).config.exists()


def test_without_unlabelled_sound_there_is_nothing_to_teach_with(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = selftrain.pool_of(
        study_with(study_file), selftrain.AudioStore(str(Path(load_study(study_file).work) / "audio.lance"))
    )
    assert len(empty.places) > 0
    monkeypatch.setattr("mast.training.pseudo_labels.UNLABELLED", "nowhere")
    with pytest.raises(TrainingError, match="no unlabelled sound"):
        selftrain_study(study_with(study_file), Run(tmp_path), teacher, "cpu")
    assert not Run(tmp_path).config.exists()


@pytest.mark.parametrize("curriculum", ["two-stage", "expert", "union", "control"])
def test_without_labels_only_the_teacher_can_be_learned_from_and_that_is_told_at_once(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curriculum: str
) -> None:
    monkeypatch.setattr(selftrain, "TRAIN", "nowhere")
    monkeypatch.setattr(selftrain._Lesson, "give", lambda *arguments: ("stopped", None))
    study, run = study_with(study_file, f"selftrain.curriculum={curriculum}"), Run(tmp_path)
    with pytest.raises(TrainingError, match="Nothing of this study is labelled.*selftrain.curriculum=pseudo"):
        selftrain_study(study, run, teacher, "cpu")
    assert not run.config.exists()
    alone = study_with(study_file, "selftrain.curriculum=pseudo")
    assert selftrain_study(alone, run, teacher, "cpu").end == "stopped"


def test_the_verb_asks_for_a_teacher_and_tells_what_each_round_did(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    sets = [word for item in SETS for word in ("--set", item)]
    lost = CliRunner().invoke(app, ["selftrain", str(study_file), "--out", str(tmp_path), *sets])
    assert lost.exit_code == 1 and "mast train" in str(lost.exception)
    with_teacher = [*sets, "--set", f"selftrain.start={teacher}"]
    done = CliRunner().invoke(app, ["selftrain", str(study_file), "--out", str(tmp_path), *with_teacher])
    assert done.exit_code == 0, done.output
    assert "Round 1:" in done.output and "Finished. Model:" in done.output
    kept = json.loads((tmp_path / "selftrain" / "main" / "round_1" / "round.json").read_text())
    assert kept["number"] == 1


def test_two_processes_teach_one_model(study_file: Path, tmp_path: Path, teacher: str) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--no-python", sys.executable, "-c", SMALL_MAST, "selftrain", str(study_file)]
    sets = [word for item in (*SETS, f"selftrain.start={teacher}") for word in ("--set", item)]
    done = subprocess.run(
        [*command, "--out", str(tmp_path), *sets], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Round 1: ") == 1
    run = Run(tmp_path / "selftrain" / "main")
    assert run.is_finished and (run.folder / "round_1" / "round.json").exists()


def test_settings_of_the_experts_stage_are_its_own_also_when_one_is_given() -> None:
    changed = Selftrain.model_validate({"expert": {"epochs": 3, "unfreezing": {"blocks": 2}}})
    assert (changed.expert.epochs, changed.expert.lr, changed.expert.unfreezing.first_epoch) == (3, 5e-5, 3)
