"""Training of a detector: initial weights, micro-batches, several processes, and resuming."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Augmentation, Study, load_study
from mast.datasets.loader import Batch, FixedChunkDataset
from mast.detection.chunk_detector import ModelChunkDetector, predict_chunks
from mast.errors import ModelError, TrainingError
from mast.models.checkpoint import ModelInfo, load_model, save_model
from mast.models.encoder import SIZES, Encoder, EncoderShape
from mast.models.loading import load_detector
from mast.normalisation import Normalisation
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training.fabric import start_fabric
from mast.training.initialisation import WIDTHS
from mast.training.loop import OnProgress, TrainingSet, train
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask, augment_examples, run_fingerprint, train_study
from mast.training.supervised import generator as make_generator
from mast.training.training_data import LABELLED_ONLY, TrainingData
from tests.training.test_loop import stop_at

SMALL = EncoderShape(width=32, heads=2, depth=3)
QUICK = (
    "model.adapter=none",
    "model.pyramid_levels=2",
    "train.epochs=2",
    "train.warmup_epochs=1",
    "train.batch_size=32",
    "train.lr=2e-3",
    "train.precision=fp32",
    "train.checkpoint_minutes=0",
    "train.plot_every_epochs=2",
)
CPU = torch.device("cpu")
SMALL_MAST = """
from mast.cli import main
from mast.models.encoder import SIZES, EncoderShape
from mast.training.initialisation import WIDTHS

SIZES["tiny"] = EncoderShape(width=32, heads=2, depth=3)
WIDTHS["tiny"] = {"channels": 64, "head_width": 32}
main()
"""
"""Script that runs `mast` with the tiny model of these tests."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})


def study_with(path: Path, *changes: str) -> Study:
    return load_study(path, [*QUICK, *changes])


def make_task(study: Study, training_data: TrainingData = LABELLED_ONLY) -> DetectorTask:
    return DetectorTask(study, AudioStore(join(study.work_dir, "audio.lance")), training_data=training_data)


def batch_of(task: DetectorTask, examples: list[int]) -> Batch:
    rows, samples = np.array(examples), task.store.layout.block_samples
    locations = task.training_set.examples.locations(0, rows)
    return Batch(
        0,
        torch.from_numpy(rows),
        torch.from_numpy(task.store.read(locations, samples)),
        torch.from_numpy(task.store.valid_lengths(locations, samples)),
        task.training_set.examples.boxes(rows),
        task.training_set.examples.weights(rows),
    )


def with_boxes(task: DetectorTask, count: int) -> list[int]:
    boxes = task.training_set.examples.boxes(np.arange(len(task.training_set.examples)))
    return [row for row, item in enumerate(boxes) if len(item)][:count]


def pretrained(
    study: Study, folder: Path, shape: EncoderShape = SMALL, normalisation: Normalisation | None = None
) -> str:
    """Save an encoder with random weights, for chunks twice as long, and return its folder."""
    torch.manual_seed(7)
    encoder = Encoder(shape, 512)
    task = make_task(study)
    description = ModelInfo(
        kind="encoder",
        architecture={"encoder": {name: getattr(shape, name) for name in shape.__slots__}},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=normalisation or task.module.frontend.normalisation,
        licence="none",
        source="a test",
    )
    save_model(
        str(folder), description, {f"encoder.{name}": item for name, item in encoder.state_dict().items()}
    )
    return str(folder)


def run_training(study: Study, run: TrainingRun, on_progress: OnProgress = lambda progress: None) -> str:
    return train_study(study, run, "cpu", on_progress)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Results are reproducible for a fixed number of threads; these tests use one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    run = TrainingRun(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", SMALL)
        patch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})
        assert run_training(study_with(study_file), run) == "finished"
    return run


def test_a_run_saves_a_detector_with_its_threshold_metrics_losses_and_figures(trained: TrainingRun) -> None:
    model = json.loads((trained.model / "model.json").read_text())
    assert model["kind"] == "detector"
    assert model["thresholds"]["nms_iou_threshold"] == 0.5 and 0 < model["thresholds"]["score"] <= 1
    assert {"validation_loss", "threshold"} <= model["results"].keys()
    line = next(line for line in trained.read() if "loss" in line)
    assert {"loss", "detection", "classification", "giou", "l1", "centerness", "contrastive"} <= line.keys()
    assert line["loss"] == pytest.approx(line["detection"] + 0.5 * line["contrastive"], rel=1e-4)
    assert (trained.folder / "predictions_0002.png").exists()
    assert load_detector(str(trained.model)).description.identity


def test_a_finished_run_does_nothing(study_file: Path, trained: TrainingRun) -> None:
    assert run_training(study_with(study_file), trained) == "finished"


def test_a_stopped_run_resumes_to_identical_weights(
    study_file: Path, trained: TrainingRun, tmp_path: Path
) -> None:
    study, run = study_with(study_file), TrainingRun(tmp_path)
    steps = [line["step"] for line in trained.read() if "loss" in line]
    assert run_training(study, run, stop_at(steps[0])) == "stopped"
    assert run_training(study, run) == "finished"
    assert (run.model / "weights.safetensors").read_bytes() == (
        trained.model / "weights.safetensors"
    ).read_bytes()
    losses, expected = ([line["loss"] for line in item.read() if "loss" in line] for item in (run, trained))
    assert losses == expected


@pytest.mark.slow
def test_two_processes_split_a_batch_and_one_of_them_plots_and_saves(
    study_file: Path, tmp_path: Path
) -> None:
    overrides = [
        *QUICK,
        "train.epochs=1",
        "train.batch_size=8",
        "train.plot_every_epochs=1",
        "train.warmup_epochs=0",
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    mast = [sys.executable, "-c", SMALL_MAST]
    command = [*torchrun, "--no-python", *mast, "train", str(study_file), "--out", str(tmp_path)]
    for item in overrides:
        command += ["--set", item]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Finished.") == done.stdout.count("Score threshold") == 1
    assert done.stderr.count("Initial weights: random.") == 1
    folder = tmp_path / "train" / "main"
    assert load_detector(str(folder / "model")).description.kind == "detector"
    assert (folder / "predictions_0001.png").exists()
    assert all(np.isfinite(line["loss"]) for line in TrainingRun(folder).read() if "loss" in line)


def test_a_detector_overfits_a_few_chunks(study_file: Path, tmp_path: Path) -> None:
    study = study_with(
        study_file,
        "train.epochs=60",
        "train.ema_decay=0",
        "train.batch_size=4",
        "train.lr=4e-3",
        "train.plot_every_epochs=100",
        "train.checkpoint_minutes=60",
        "augmentation.probability=0",
    )
    task, run = make_task(study), TrainingRun(tmp_path)
    rows = np.array(with_boxes(task, 4))
    subset = FixedChunkDataset(
        task.training_set.examples.locations(0, rows), task.training_set.examples.boxes(rows)
    )
    task.validation_set = subset
    train(task, TrainingSet(task.store, subset), study.train, run, start_fabric("fp32", run, "cpu"))
    results = json.loads((run.model / "model.json").read_text())["results"]
    assert results["validation_f1"] == 1.0
    assert results["threshold"] == "nearly the highest F1 on validation"


def test_augmentation_of_an_example_depends_on_the_step_and_not_on_the_rest_of_the_batch(
    study_file: Path,
) -> None:
    task = make_task(study_with(study_file, "augmentation.probability=1"))
    first, second = with_boxes(task, 2)
    together = task.prepare_batch(batch_of(task, [first, second]), 5, CPU)
    alone = task.prepare_batch(batch_of(task, [second]), 5, CPU)
    later = task.prepare_batch(batch_of(task, [second]), 6, CPU)
    assert torch.equal(together[0][1], alone[0][0])
    assert torch.equal(together[2].negatives[1], alone[2].negatives[0])
    assert not torch.equal(alone[0], later[0])


def test_no_box_is_shifted_beyond_the_end_of_the_audio_if_the_spectrogram_is_blank_there(
    study_file: Path,
) -> None:
    """Beyond the end of the audio `band-median` is blank; other normalisations show what was shifted there."""
    last_frames = {}
    others = (
        "max_freq_shift_bins",
        "max_time_warp",
        "time_mask_frames",
        "freq_mask_bins",
        "noise_std",
        "max_gain_db",
    )
    shifts = ("probability=1", "max_time_shift_frames=25", *(f"{name}=0" for name in others))
    for kind in ("band-median", "dataset"):
        changes = [f"augmentation.{item}" for item in shifts]
        task = make_task(study_with(study_file, f"normalisation={kind}", *changes))
        batch = batch_of(task, with_boxes(task, 4))
        half = batch.audio.shape[1] // 2
        boxes = torch.tensor([[90.0, 20.0, 120.0, 40.0]])
        short = replace(batch, valid_samples=torch.full((4,), half), boxes=(boxes,) * 4)
        ends = [task.prepare_batch(short, step, CPU)[1].boxes[:, 2] for step in range(8)]
        last_frames[kind] = float(torch.cat(ends).max())
    assert half / 160 == 128
    assert last_frames["band-median"] == 128 < last_frames["dataset"]


def test_micro_batches_add_up_to_the_whole_batch(study_file: Path) -> None:
    task = make_task(study_with(study_file))
    task.module.eval()  # BatchNorm would depend on the micro-batch
    inputs = task.prepare_batch(batch_of(task, [*with_boxes(task, 3), 0]), 0, CPU)
    whole = task.module(*inputs)
    ranges = [(0, 1), (1, 4)]
    parts = [task.module(*(item[first:last] for item in inputs)) for first, last in ranges]
    for name, value in whole.items():
        weighted = [
            (last - first) / 4 * part[name].item() for (first, last), part in zip(ranges, parts, strict=True)
        ]
        assert sum(weighted) == pytest.approx(value.item(), rel=1e-4), name


def test_the_locations_of_the_task_are_those_of_the_head(study_file: Path) -> None:
    for adapter in ("none", "anisotropic", "upsampling"):
        task = make_task(study_with(study_file, f"model.adapter={adapter}", "model.pyramid_levels=4"))
        with torch.no_grad():
            locations = task.module.detector(torch.zeros(1, 128, 256)).locations
        expected = task.locations(CPU)
        assert (
            torch.equal(locations.centres, expected.centres) and locations.level_sizes == expected.level_sizes
        )


def test_chunks_without_boxes_are_trained_as_background(study_file: Path) -> None:
    task = make_task(study_with(study_file))
    boxes = task.training_set.examples.boxes(np.arange(len(task.training_set.examples)))
    empty = [row for row, item in enumerate(boxes) if not len(item)][:2]
    losses = task.module(*task.prepare_batch(batch_of(task, empty), 0, CPU))
    assert losses["classification"] > 0 and losses["giou"] == 0 and losses["contrastive"] == 0
    losses["loss"].backward()


def test_weights_scale_the_losses_of_examples(study_file: Path) -> None:
    task = make_task(study_with(study_file, "train.contrastive_weight=0"))
    task.module.eval()
    spec, targets, regions, weights, divisors = task.prepare_batch(
        batch_of(task, with_boxes(task, 2)), 0, CPU
    )
    whole = task.module(spec, targets, regions, weights, divisors)
    half = task.module(spec, targets, regions, weights / 2, divisors)
    assert "contrastive" not in whole
    assert half["loss"].item() == pytest.approx(whole["loss"].item() / 2, rel=1e-5)


def test_mixup_uses_the_next_example_of_the_batch() -> None:
    logmel = torch.stack([torch.full((8, 64), -10.0), torch.full((8, 64), 0.0)])
    boxes = [torch.tensor([[1.0, 1, 20, 6]]), torch.tensor([[30.0, 1, 60, 6]])]
    disabled = dict.fromkeys(
        (
            "max_time_shift_frames",
            "max_freq_shift_bins",
            "max_time_warp",
            "time_mask_frames",
            "freq_mask_bins",
        ),
        0,
    )
    settings = Augmentation(probability=1, mixup=True, max_gain_db=0, noise_std=0, **disabled)
    rngs = [make_generator(0, 0, number) for number in range(2)]
    spec, mixed = augment_examples(logmel, boxes, settings, rngs, torch.zeros(0, 8, 64))
    assert [len(item) for item in mixed] == [2, 2]
    assert spec[0].mean() > -10


def test_a_random_encoder_is_trained_from_the_first_epoch_at_the_full_rate(study_file: Path) -> None:
    task = make_task(study_with(study_file))
    task.begin_epoch(0)
    assert all(item.requires_grad for item in task.module.parameters())
    assert {group.lr_scale for group in task.param_groups()} == {1.0}
    grouped = sorted(id(item) for group in task.param_groups() for item in group.parameters)
    assert grouped == sorted(map(id, task.module.parameters()))


def test_a_pretrained_encoder_is_loaded_and_frozen_until_its_epoch(study_file: Path, tmp_path: Path) -> None:
    start = pretrained(study_with(study_file), tmp_path / "start")
    study = study_with(
        study_file,
        f"train.init_from={start}",
        "train.unfreezing={start_epoch: 1, interval_epochs: 1, blocks_per_step: 2}",
    )
    task = make_task(study)
    torch.manual_seed(7)
    assert torch.equal(task.encoder.blocks[0].attn.qkv.weight, Encoder(SMALL, 512).blocks[0].attn.qkv.weight)
    assert task.description.parent is not None
    assert [group.lr_scale for group in task.param_groups()] == [1.0, 1.0, 0.005, 0.1]
    for epoch, num_frozen in ((0, 4), (1, 2), (2, 0)):
        task.begin_epoch(epoch)
        task.module.train()
        assert len(task.module.frozen) == num_frozen
        assert not any(part.training for part in task.module.frozen)
        assert task.module.detector.adapter.training
    before = {name: value.clone() for name, value in task.module.detector.state_dict().items()}
    run = TrainingRun(tmp_path / "run")
    run_training(study.model_copy(update={"train": study.train.model_copy(update={"epochs": 1})}), run)
    after = load_detector(str(run.model)).network.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(name.startswith(("encoder.blocks", "encoder.patch", "encoder.cls")) for name in changed)
    assert any(name.startswith("encoder.norm") for name in changed) and any(
        name.startswith("head") for name in changed
    )


def test_an_encoder_that_is_never_unfrozen_does_not_change(study_file: Path, tmp_path: Path) -> None:
    start = pretrained(study_with(study_file), tmp_path / "start")
    study = study_with(
        study_file, f"train.init_from={start}", "train.unfreezing.blocks_per_step=0", "train.epochs=1"
    )
    run = TrainingRun(tmp_path / "run")
    run_training(study, run)
    before, after = (load_model(path)[1] for path in (start, str(run.model)))
    changed = [
        name
        for name in before
        if not name.endswith("pos_embed") and not torch.equal(before[name], after[name])
    ]
    assert not changed


def test_a_detector_starts_from_another_and_not_from_one_of_another_architecture(
    study_file: Path, trained: TrainingRun
) -> None:
    study = study_with(study_file, f"train.init_from={trained.model}")
    weights = load_detector(str(trained.model)).network.state_dict()
    for name, value in make_task(study).module.detector.state_dict().items():
        assert torch.equal(value, weights[name]), name
    with pytest.raises(ModelError, match="levels 2, not 3. Set model.adapter and model.pyramid_levels"):
        make_task(study_with(study_file, f"train.init_from={trained.model}", "model.pyramid_levels=3"))
    with pytest.raises(ModelError, match="Set model.encoder and model.size"):
        make_task(study_with(study_file, f"train.init_from={trained.model}", "model.size=small"))


def test_a_detector_with_another_normalisation_is_refused_and_an_encoder_is_not(
    study_file: Path, tmp_path: Path
) -> None:
    task = make_task(study_with(study_file))
    detector = str(tmp_path / "detector")
    save_model(detector, task.description, task.module.detector.state_dict())
    override = "normalisation=band-median"
    with pytest.raises(
        ModelError, match="normalisation dataset; .* normalisation band-median. Set normalisation=dataset"
    ):
        make_task(study_with(study_file, f"train.init_from={detector}", override))
    encoder = pretrained(study_with(study_file), tmp_path / "encoder")
    started = make_task(study_with(study_file, f"train.init_from={encoder}", override))
    assert started.module.frontend.normalisation.kind == "band-median"


def test_an_encoder_keeps_its_position_embeddings_and_normalisation(study_file: Path, tmp_path: Path) -> None:
    """Bird-MAE has positions on a raster of 8 × 32, and other statistics than AudioMAE."""
    bird = Normalisation("audiomae", -7.2, 4.43)
    start = pretrained(study_with(study_file), tmp_path, replace(SMALL, raster_tokens=32), bird)
    task = make_task(study_with(study_file, f"train.init_from={start}", "normalisation=audiomae"))
    assert task.description.normalisation == task.module.frontend.normalisation == bird
    assert cast(Any, task.description.architecture)["encoder"]["raster_tokens"] == 32
    tokens = task.encoder.pos_embed.shape[1]
    assert torch.equal(
        task.encoder.pos_embed, load_model(start)[1]["encoder.pos_embed"][:, :tokens]
    ) and not torch.equal(task.encoder.pos_embed, Encoder(SMALL, 256).pos_embed)
    measured = make_task(study_with(study_file, f"train.init_from={start}"))
    assert (
        measured.module.frontend.normalisation == make_task(study_with(study_file)).description.normalisation
    )


def test_a_run_is_refused_if_its_initial_model_was_replaced(
    study_file: Path, tmp_path: Path, trained: TrainingRun
) -> None:
    start, run = tmp_path / "start", TrainingRun(tmp_path / "run")
    shutil.copytree(trained.model, start)
    study = study_with(study_file, f"train.init_from={start}", "train.epochs=1")
    assert run_training(study, run) == run_training(study, run) == "finished"
    pretrained(study_with(study_file), start)
    with pytest.raises(TrainingError, match="started_from was [0-9a-f]{16}, is now [0-9a-f]{16}. Give"):
        run_training(study, run)
    shutil.rmtree(start)
    assert run_training(study, run) == "finished"


@pytest.mark.parametrize("name", ["annotations.parquet", "splits.parquet"])
def test_a_finished_run_is_refused_for_new_annotations_or_splits(
    name: str, study_file: Path, trained: TrainingRun, tmp_path: Path
) -> None:
    """A table that is written again has the same fingerprint; with a row less it has another."""
    study = study_with(study_file).model_copy(update={"work_dir": str(tmp_path)})
    for path in Path(study_with(study_file).work_dir).iterdir():
        (tmp_path / path.name).symlink_to(path)
    table, path = pq.read_table(tmp_path / name), tmp_path / name
    path.unlink()
    pq.write_table(table, path, compression="gzip")
    assert run_training(study, trained) == "finished"
    pq.write_table(table.slice(1), path)
    with pytest.raises(TrainingError, match=f"{name} was .*--run-name"):
        run_training(study, trained)


def test_the_fingerprint_of_synthetic_training_has_the_splits_and_no_annotations(study_file: Path) -> None:
    study = study_with(study_file)
    fingerprint = run_fingerprint(study, AudioStore(join(study.work_dir, "audio.lance")), "train-synthetic")
    assert fingerprint["splits.parquet"] and "annotations.parquet" not in fingerprint


@pytest.mark.parametrize(
    ("command", "overrides"),
    [
        ("train-synthetic", ()),
        ("train", ("train.synthetic_fraction=0.5",)),
    ],
)
def test_the_fingerprint_of_a_run_with_background_chunks_has_their_fraction(
    command: str, overrides: tuple[str, ...], study_file: Path, tmp_path: Path
) -> None:
    def fingerprint(*more: str) -> dict[str, Any]:
        study = study_with(study_file, *overrides, *more)
        return run_fingerprint(study, AudioStore(join(study.work_dir, "audio.lance")), command)

    now = fingerprint()
    TrainingRun(tmp_path).open(
        {name: value for name, value in now.items() if name != "train_synthetic"}
    )  # an older run
    TrainingRun(tmp_path).check(now)
    with pytest.raises(
        TrainingError, match=r"train_synthetic.background_fraction was 0.5, is now 0.1\. Give"
    ):
        TrainingRun(tmp_path).check(fingerprint("train_synthetic.background_fraction=0.1"))


def test_the_fingerprint_of_a_run_without_background_chunks_lacks_their_fraction(study_file: Path) -> None:
    study = study_with(study_file)
    assert "train_synthetic" not in run_fingerprint(study, AudioStore(join(study.work_dir, "audio.lance")))


def test_a_study_without_validation_saves_the_configured_threshold(study_file: Path, tmp_path: Path) -> None:
    task, run = make_task(study_with(study_file)), TrainingRun(tmp_path)
    task.validation_set = FixedChunkDataset(np.zeros((0, 2), np.int64))
    assert task.validate(task.module, CPU) is None
    task.end_epoch(task.module, 1, run)
    task.save(task.module.eval(), run)
    model = json.loads((run.model / "model.json").read_text())
    assert model["thresholds"]["score"] == 0.05
    assert "the validation split is empty" in model["results"]["threshold"]


def test_a_detector_trained_on_synthetic_calls_predicts_on_them_for_its_threshold(
    study_file: Path, tmp_path: Path
) -> None:
    study = study_with(study_file, "detection.score_threshold=0", "detection.max_detections=5")
    for name, training_data in (("plain", LABELLED_ONLY), ("synthetic", TrainingData(synthetic_start=3))):
        task, run = make_task(study, training_data), TrainingRun(tmp_path / name)
        task.save(task.module.eval(), run)
        reason = json.loads((run.model / "model.json").read_text())["results"]["threshold"]
        assert ("synthetic call" in reason) == (name == "synthetic")


def test_chunks_are_predicted_in_order_independently_of_their_batch(
    study_file: Path, trained: TrainingRun
) -> None:
    study = study_with(study_file, "detection.score_threshold=0", "detection.max_detections=3")
    task, loaded = make_task(study), load_detector(str(trained.model))
    locations = task.validation_set.locations(0, np.arange(5))
    progress: list[tuple[int, int]] = []
    detector = ModelChunkDetector(loaded, study.detection, "cpu")
    predictions = list(predict_chunks(detector, task.store, locations, lambda *done: progress.append(done)))
    assert progress[-1] == (5, 5) and len(predictions) == 5
    alone = next(predict_chunks(detector, task.store, locations[4:]))
    torch.testing.assert_close(predictions[4].boxes, alone.boxes, atol=0.5, rtol=0.01)
    assert all(len(item.boxes) <= 3 and item.boxes.dtype == torch.float32 for item in predictions)
    assert list(predict_chunks(detector, task.store, locations[:0])) == []
    with pytest.raises(ModelError, match="--device tpu: use auto, cpu or cuda"):
        ModelChunkDetector(loaded, study.detection, "tpu")


def test_the_command_prints_its_initial_weights_and_its_threshold(
    study_file: Path, tmp_path: Path, trained: TrainingRun
) -> None:
    options = [word for item in (*QUICK, "train.epochs=1") for word in ("--set", item)]
    (tmp_path / "pretrain" / "main" / "model").mkdir(parents=True)
    (tmp_path / "pretrain" / "main" / "model" / "model.json").write_text("{}")
    result = CliRunner().invoke(
        app, ["train", str(study_file), "--out", str(tmp_path), "--device", "cpu", *options]
    )
    assert result.exit_code == 0, result.output
    assert "Initial weights: random" in result.output
    assert "A pretrained model is available: --set train.init_from=" in result.output
    assert "Finished. Model:" in result.output and "Score threshold 0." in result.output
