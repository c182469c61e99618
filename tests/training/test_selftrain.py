"""Self-training: rounds that resume after a stop, and that are kept or rolled back."""

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
from mast.config import RollbackCriteria, Selftrain, Study, load_study
from mast.datasets.loader import ConcatDataset, FixedChunkDataset
from mast.datasets.study_datasets import detection_dataset
from mast.errors import ModelError, TrainingError
from mast.evaluation.metrics import RankedPredictions
from mast.models.checkpoint import load_model, save_model
from mast.models.encoder import SIZES, EncoderShape
from mast.models.postprocess import ChunkDetections
from mast.store.audio_store import AudioStore
from mast.training import selftrain
from mast.training.initialisation import WIDTHS
from mast.training.pseudo_labels import write_labels
from mast.training.rounds import RoundMetrics, rollback_reason
from mast.training.run_dir import TrainingRun
from mast.training.selftrain import CURRICULA, selftrain_study, stage_study
from mast.training.supervised import train_study
from mast.training.validation import MIN_THRESHOLD_BOXES
from tests.models.test_checkpoint import DESCRIPTION, random_tensors
from tests.training.test_supervised import QUICK, SMALL_MAST

STAGE = ("epochs=1", "warmup_epochs=0", "batch_size=8", "lr=1e-3", "precision=fp32", "checkpoint_minutes=0")
OVERRIDES = (
    *QUICK,
    *(f"selftrain.{stage}.{item}" for stage in ("pseudo_label_stage", "supervised_stage") for item in STAGE),
    "selftrain.rounds=1",
    "selftrain.pseudo_label_threshold=0.001",
    "detection.score_threshold=0.001",
    "selftrain.rollback.max_f1_drop=1",
    "selftrain.rollback.max_detection_rate_ratio=1e9",
)
CRITERIA = RollbackCriteria(max_f1_drop=0.1, max_detection_rate_ratio=2, min_expected_detections=10)


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
    run = TrainingRun(tmp_path_factory.mktemp("teacher"))
    assert train_study(load_study(study_file, OVERRIDES), run, "cpu") == "finished"
    return str(run.model)


def study_with(study_file: Path, *changes: str) -> Study:
    return load_study(study_file, [*OVERRIDES, *changes])


def round_metrics(f1: float, **rates: float) -> RoundMetrics:
    return RoundMetrics({"f1": f1, "threshold": 0.3}, rates, dict.fromkeys(rates, 0.5))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (round_metrics(0.5, A=100), round_metrics(0.45, A=150), None),
        (round_metrics(0.5, A=100), round_metrics(0.35, A=100), "F1"),
        (round_metrics(0.5, A=100, B=20), round_metrics(0.6, A=100, B=50), "B"),
        (round_metrics(0.5, A=2), round_metrics(0.6, A=38), None),  # in half an hour: 1 detection, and 19
        (round_metrics(0.5), round_metrics(0.5, C=42), "C"),
        (round_metrics(0.5, A=10, B=10, C=10), round_metrics(0.5, A=38, B=38, C=38), "all sites together"),
        (round_metrics(0.5, A=10, B=10, C=100), round_metrics(0.5, A=38, B=38, C=100), None),
        (
            round_metrics(0.5, A=100, B=300),
            round_metrics(0.5, A=100, B=100),
            None,
        ),  # perhaps fewer false positives
        (round_metrics(0.5, A=100, B=300), round_metrics(0.5, A=150, B=0), "at B it has 0 detections"),
        (
            round_metrics(0.5, A=100, B=38),
            round_metrics(0.5, A=100, B=0),
            None,
        ),  # in half an hour: 19 detections
        (
            round_metrics(0.5, A=100, B=300),
            round_metrics(0.5, A=90, B=90),
            "all sites together it has 90 detections",
        ),
    ],
)
def test_a_round_is_rolled_back_if_f1_is_lower_or_detections_are_far_more_or_far_fewer(
    before, after, reason
) -> None:
    result = rollback_reason(before, after, CRITERIA)
    assert result is None if reason is None else reason in result


def test_two_sets_of_chunks_keep_their_boxes_and_weights_when_joined() -> None:
    first = FixedChunkDataset(np.array([[0, 0]]), [torch.ones(2, 4)], torch.tensor([0.3]))
    second = FixedChunkDataset(np.array([[1, 0], [2, 0]]), [torch.zeros(0, 4), torch.ones(1, 4)])
    both = ConcatDataset(first, second)
    rows = np.arange(3)
    assert [len(boxes) for boxes in both.boxes(rows)] == [2, 0, 1]
    assert both.weights(rows).tolist() == pytest.approx([0.3, 1, 1])
    assert both.locations(0, rows).tolist() == [[0, 0], [1, 0], [2, 0]]


def test_a_stage_has_the_papers_settings_and_its_initial_weights() -> None:
    study = load_study(None, ["preset=paper"])
    first, second = (
        stage_study(study, stage, "teacher")
        for stage in (study.selftrain.pseudo_label_stage, study.selftrain.supervised_stage)
    )
    assert (first.train.lr, first.train.epochs, first.augmentation.probability) == (1e-4, 80, 0.9)
    assert (second.train.lr, second.train.epochs, second.augmentation.probability) == (5e-5, 40, 0.8)
    assert (first.train.unfreezing.blocks_per_step, second.train.unfreezing.blocks_per_step) == (3, 6)
    assert first.train.init_from == second.train.init_from == "teacher"
    assert load_study(None).selftrain == study.selftrain  # the paper's values are the defaults


def test_a_round_predicts_labels_trains_a_student_and_saves_model_metrics_and_report(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    descriptions: list[str] = []
    result = selftrain_study(
        study_with(study_file),
        TrainingRun(tmp_path),
        teacher,
        "cpu",
        lambda description, done, total: descriptions.append(description),
    )
    assert result.end == "finished"
    (finished,) = result.rounds
    assert finished.rollback_reason is None and finished.pseudo_labels["boxes"] > 0
    precision = finished.pseudo_labels["right_on_validation"]
    assert f"Round 1: training on pseudo-labels (precision {precision:.0%} on validation)" in descriptions
    assert finished.after.rate_per_hour.keys() == finished.before.rate_per_hour.keys()
    assert (tmp_path / "model" / "model.json").read_bytes() == (
        tmp_path / "round_1" / "supervised" / "model" / "model.json"
    ).read_bytes()
    model = json.loads((tmp_path / "model" / "model.json").read_text("utf-8"))
    start = tmp_path / "round_1" / "pseudo-labels" / "model"
    assert model["source"] == f"mast self-train, started from {start}"
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Round 1" in page and "data:image/png" in page
    assert f"On validation, the teacher’s precision at this score is {precision:.2f}" in page
    assert ("most pseudo-labels may be wrong" in page) == (precision < 0.5)
    assert (tmp_path / "round_1" / "pseudo_labels.png").exists()
    assert any("predicting pseudo-labels in" in description for description in descriptions)
    again = selftrain_study(study_with(study_file), TrainingRun(tmp_path), teacher, "cpu")
    assert again.rounds == result.rounds


def test_the_teachers_precision_is_measured_on_synthetic_calls_if_the_student_is_trained_on_them(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftrain, "train_study", lambda *arguments: "stopped")
    rankings: list[RankedPredictions] = []

    def choose_score_threshold(settings: Selftrain, validation: RankedPredictions) -> float:
        rankings.append(validation)
        return 0.0

    monkeypatch.setattr(selftrain, "choose_score_threshold", choose_score_threshold)
    for fraction, precision in ((0, 0.5), (0.5, 0.5), (0.5, "null")):
        changes = (
            f"selftrain.synthetic_fraction={fraction}",
            f"selftrain.min_pseudo_label_precision={precision}",
        )
        run = TrainingRun(tmp_path / f"{fraction}-{precision}")
        selftrain_study(study_with(study_file, *changes), run, teacher, "cpu")
    plain, with_calls, fixed = (len(item.ground_truth) for item in rankings)
    assert with_calls > plain == fixed
    assert rankings[1].ground_truth.sum() == pytest.approx(MIN_THRESHOLD_BOXES, rel=0.3)


def test_a_stopped_run_resumes_to_the_same_model(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_with(study_file)
    complete, stopped = TrainingRun(tmp_path / "complete"), TrainingRun(tmp_path / "stopped")
    selftrain_study(study, complete, teacher, "cpu")
    real = selftrain.train_study
    with monkeypatch.context() as patch:
        stages = iter([real, lambda *arguments: "stopped"])

        def one_stage_then_a_stop(*arguments: object) -> str:
            return next(stages)(*arguments)

        patch.setattr(selftrain, "train_study", one_stage_then_a_stop)
        result = selftrain_study(study, stopped, teacher, "cpu")
    assert result.end == "stopped" and result.rounds == ()
    assert not stopped.is_finished
    assert selftrain_study(study, stopped, teacher, "cpu").end == "finished"
    assert (stopped.model / "weights.safetensors").read_bytes() == (
        complete.model / "weights.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    "curriculum",
    [
        "pseudo-only",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("joint", "step-matched-control")),
    ],
)
def test_other_curricula_train_in_their_own_stages(
    study_file: Path, teacher: str, tmp_path: Path, curriculum: str
) -> None:
    options = (
        "selftrain.mask_uncertain_regions=true",
        "selftrain.synthetic_fraction=0.5",
        "selftrain.min_pseudo_label_precision=0",
    )
    changes = (f"selftrain.curriculum={curriculum}", *options)
    study = study_with(study_file, *changes)
    assert selftrain_study(study, TrainingRun(tmp_path), teacher, "cpu").end == "finished"
    stages = {path.name for path in (tmp_path / "round_1").iterdir() if path.is_dir()}
    assert stages == set(CURRICULA[curriculum])
    first = TrainingRun(tmp_path / "round_1" / CURRICULA[curriculum][0]).config
    assert "synthetic_fraction: 0.5" in first.read_text("utf-8")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert re.search(r"On validation and 1?\d\d synthetic calls, the teacher’s precision at this score", page)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0, 0.5])
def test_the_step_matched_control_has_exactly_the_steps_and_epochs_of_the_pseudo_label_stage(
    study_file: Path, teacher: str, tmp_path: Path, fraction: float
) -> None:
    stage = ("epochs=3", "batch_size=2", "warmup_epochs=1.5", "unfreezing.start_epoch=1")
    changes = (
        f"selftrain.synthetic_fraction={fraction}",
        *(f"selftrain.pseudo_label_stage.{item}" for item in stage),
    )
    steps_by_stage = {}
    for curriculum, stage_name in (
        ("pseudo-only", "pseudo-labels"),
        ("step-matched-control", "step-matched-control"),
    ):
        study = study_with(study_file, f"selftrain.curriculum={curriculum}", *changes)
        folder = tmp_path / curriculum
        assert selftrain_study(study, TrainingRun(folder), teacher, "cpu").end == "finished"
        lines = (folder / "round_1" / stage_name / "metrics.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        steps_by_stage[stage_name] = [(row["step"], row["epoch"], row.get("lr")) for row in rows]
    pseudo_label_steps = steps_by_stage["pseudo-labels"]
    assert steps_by_stage["step-matched-control"] == pseudo_label_steps and pseudo_label_steps[-1][0] > 6
    store = selftrain.AudioStore(str(Path(study.work_dir) / "audio.lance"))
    steps = pseudo_label_steps[-1][0] // 3
    assert len(detection_dataset(study, store, "train").chunks) // 2 != round(steps * (1 - fraction))


def test_the_first_teacher_is_evaluated_once(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[str] = []
    real = selftrain.predict_pool

    def predict_pool(study: Study, store: AudioStore, model: str, *rest: Any) -> Any:
        models.append(model)
        return real(study, store, model, *rest)

    monkeypatch.setattr(selftrain, "predict_pool", predict_pool)
    changes = (
        "selftrain.rounds=2",
        "selftrain.pseudo_label_stage.lr=1e-5",
        "selftrain.supervised_stage.lr=1e-5",
    )
    result = selftrain_study(study_with(study_file, *changes), TrainingRun(tmp_path), teacher, "cpu")
    assert len(result.rounds) == 2 and result.rounds[0].before == result.rounds[1].before
    assert models.count(teacher) == 2  # for pseudo-labels, and for its metrics


def test_after_a_rollback_the_teacher_is_the_model(study_file: Path, teacher: str, tmp_path: Path) -> None:
    changes = (
        "selftrain.rounds=2",
        "selftrain.rollback.max_detection_rate_ratio=1.0000001",
        "selftrain.rollback.min_expected_detections=0",
        "selftrain.pseudo_label_stage.lr=1",
    )
    result = selftrain_study(study_with(study_file, *changes), TrainingRun(tmp_path), teacher, "cpu")
    last = result.rounds[-1]
    assert last.rollback_reason and "rolled back" in last.describe()
    assert len(result.rounds) == 1
    assert (tmp_path / "model" / "weights.safetensors").read_bytes() == (
        Path(teacher) / "weights.safetensors"
    ).read_bytes()
    assert "Rolled back" in (tmp_path / "report.html").read_text("utf-8")


def test_a_teacher_in_a_bucket_can_be_the_final_model(bucket: str, tmp_path: Path) -> None:
    save_model(f"{bucket}/teacher", DESCRIPTION, random_tensors())
    run = TrainingRun(tmp_path / "run")
    selftrain._save_model(f"{bucket}/teacher", run)
    assert run.is_finished
    assert load_model(str(run.model))[0] == load_model(f"{bucket}/teacher")[0]


def test_predictions_in_another_pool_are_refused(study_file: Path, teacher: str, tmp_path: Path) -> None:
    study = study_with(study_file)
    (tmp_path / "round_1").mkdir()
    write_labels(
        [ChunkDetections(torch.zeros(0, 4), torch.zeros(0))] * 3, str(tmp_path / "round_1" / "pseudo.parquet")
    )
    with pytest.raises(
        TrainingError, match="boxes for 3 chunks, and there are .* unlabelled chunks now.*--run-name"
    ):
        selftrain_study(study, TrainingRun(tmp_path), teacher, "cpu")
    config = yaml.safe_load((tmp_path / "config.yaml").read_text("utf-8"))
    assert config["annotations.parquet"] and config["splits.parquet"]


def test_a_teacher_without_detections_is_refused(study_file: Path, teacher: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="better teacher"):
        selftrain_study(
            study_with(study_file, "selftrain.pseudo_label_threshold=1"),
            TrainingRun(tmp_path),
            teacher,
            "cpu",
        )


def test_a_student_without_pseudo_labels_for_the_next_round_ends_the_rounds_and_is_the_model(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    """A far too large learning rate ruins the student, and these rollback criteria accept it."""
    changes = ("selftrain.rounds=3", "selftrain.supervised_stage.lr=0.3", "selftrain.rollback.max_f1_drop=1")
    study = study_with(study_file, *changes, "selftrain.rollback.max_detection_rate_ratio=1e9")
    for _ in range(2):  # the second call resumes the finished run
        result = selftrain_study(study, TrainingRun(tmp_path), teacher, "cpu")
        assert result.end == "finished" and result.stop_reason
        assert f"Self-training ended before round {len(result.rounds) + 1}" in result.stop_reason
    assert (tmp_path / "model" / "weights.safetensors").read_bytes() == (
        tmp_path / f"round_{len(result.rounds)}" / "supervised" / "model" / "weights.safetensors"
    ).read_bytes()


def test_unlabelled_hours_are_split_evenly_among_sites(study_file: Path) -> None:
    store = selftrain.AudioStore(str(Path(load_study(study_file).work_dir) / "audio.lance"))
    pool = selftrain.read_pool(study_with(study_file), store)
    chunk_s = load_study(study_file).chunking.chunk_s
    assert len(pool.locations) > 3 and sum(pool.hours.values()) == pytest.approx(
        len(pool.locations) * chunk_s / 3600
    )
    for chunks, expected in ((3, 3), (1e-9, 1), (1e6, len(pool.locations))):
        study = study_with(study_file, f"selftrain.unlabelled_hours={chunks * chunk_s / 3600}")
        subset = selftrain.read_pool(study, store)
        assert len(subset.locations) == len(subset.sites) == expected
        assert set(map(tuple, subset.locations.tolist())) <= set(map(tuple, pool.locations.tolist()))
    sites = np.unique(pool.sites.astype(str))
    two_each = f"selftrain.unlabelled_hours={2 * len(sites) * chunk_s / 3600}"
    subset = selftrain.read_pool(study_with(study_file, two_each), store)
    for site in sites:
        selected, available = subset.locations[subset.sites == site], pool.locations[pool.sites == site]
        assert selected.tolist() == available[[0, -1]].tolist()


def test_a_teacher_with_another_normalisation_is_refused_before_it_predicts(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    kind = load_model(teacher)[0].normalisation.kind
    study = study_with(study_file, f"normalisation={'dataset' if kind == 'band-median' else 'band-median'}")
    with pytest.raises(ModelError, match=f"Set normalisation={kind}"):
        selftrain_study(study, TrainingRun(tmp_path), teacher, "cpu")
    assert not TrainingRun(tmp_path).config.exists()


def test_without_unlabelled_recordings_self_training_is_refused(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = selftrain.read_pool(
        study_with(study_file),
        selftrain.AudioStore(str(Path(load_study(study_file).work_dir) / "audio.lance")),
    )
    assert len(pool.locations) > 0
    monkeypatch.setattr("mast.training.pseudo_labels.UNLABELLED", "nowhere")
    with pytest.raises(TrainingError, match="no unlabelled recordings"):
        selftrain_study(study_with(study_file), TrainingRun(tmp_path), teacher, "cpu")
    assert not TrainingRun(tmp_path).config.exists()


@pytest.mark.parametrize("curriculum", ["two-stage", "supervised-only", "joint", "step-matched-control"])
def test_without_annotations_only_the_pseudo_only_curriculum_is_accepted_before_training(
    study_file: Path, teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curriculum: str
) -> None:
    monkeypatch.setattr(selftrain, "TRAIN", "nowhere")
    monkeypatch.setattr(selftrain._Round, "run", lambda *arguments: ("stopped", None))
    study, run = study_with(study_file, f"selftrain.curriculum={curriculum}"), TrainingRun(tmp_path)
    with pytest.raises(
        TrainingError, match="no annotated chunks in the training split.*selftrain.curriculum=pseudo-only"
    ):
        selftrain_study(study, run, teacher, "cpu")
    assert not run.config.exists()
    pseudo_only = study_with(study_file, "selftrain.curriculum=pseudo-only")
    assert selftrain_study(pseudo_only, run, teacher, "cpu").end == "stopped"


def test_the_command_needs_a_teacher_and_prints_a_summary_of_each_round(
    study_file: Path, teacher: str, tmp_path: Path
) -> None:
    options = [word for item in OVERRIDES for word in ("--set", item)]
    failed = CliRunner().invoke(app, ["self-train", str(study_file), "--out", str(tmp_path), *options])
    assert failed.exit_code == 1 and "mast train" in str(failed.exception)
    with_teacher = [*options, "--set", f"selftrain.teacher={teacher}"]
    done = CliRunner().invoke(app, ["self-train", str(study_file), "--out", str(tmp_path), *with_teacher])
    assert done.exit_code == 0, done.output
    assert "Round 1:" in done.output and "Finished. Model:" in done.output
    finished = json.loads((tmp_path / "self-train" / "main" / "round_1" / "round.json").read_text())
    assert finished["number"] == 1


@pytest.mark.slow
def test_two_processes_train_one_model(study_file: Path, tmp_path: Path, teacher: str) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--no-python", sys.executable, "-c", SMALL_MAST, "self-train", str(study_file)]
    options = [word for item in (*OVERRIDES, f"selftrain.teacher={teacher}") for word in ("--set", item)]
    done = subprocess.run(
        [*command, "--out", str(tmp_path), *options], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Round 1: ") == 1
    run = TrainingRun(tmp_path / "self-train" / "main")
    assert run.is_finished and (run.folder / "round_1" / "round.json").exists()


def test_the_supervised_stage_keeps_its_own_defaults_if_one_setting_is_given() -> None:
    changed = Selftrain.model_validate(
        {"supervised_stage": {"epochs": 3, "unfreezing": {"blocks_per_step": 2}}}
    )
    assert (
        changed.supervised_stage.epochs,
        changed.supervised_stage.lr,
        changed.supervised_stage.unfreezing.start_epoch,
    ) == (3, 5e-5, 3)
