"""Pretraining on a small study: files of a run, initial weights, signals and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Study, load_study
from mast.errors import ConfigError, ModelError, TrainingError
from mast.models.checkpoint import load_model, save_model
from mast.models.encoder import SIZES
from mast.models.loading import load_encoder, strip_prefix
from mast.normalisation import Normalisation
from mast.store.audio_store import AudioStore
from mast.training import pretrain
from mast.training.pretrain import PretrainTask, initial_model, pretrain_study
from mast.training.run_dir import TrainingRun

MAST = [sys.executable, "-c", "from mast.cli import main; main()"]
QUICK = (
    "pretrain.epochs=2",
    "pretrain.warmup_epochs=0.5",
    "pretrain.batch_size=16",
    "pretrain.lr=2e-3",
    "pretrain.precision=fp32",
    "pretrain.plot_every_epochs=1000",
)
LONGER = ("pretrain.epochs=4", "pretrain.plot_every_epochs=2")

LIMITED_MEMORY = """
import resource, sys, time
from pathlib import Path
from mast.config import load_study
from mast.training import loop
from mast.training.pretrain import PretrainTask, pretrain_study
from mast.training.run_dir import TrainingRun

prepare_batch, find_executable_batch_size = PretrainTask.prepare_batch, loop.find_executable_batch_size

def prepare_and_limit_memory(self, batch, step, device):
    inputs = prepare_batch(self, batch, step, device)
    if step == 0:
        time.sleep(1)  # the loader threads have prefetched by now
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + FREE_BYTES, used + FREE_BYTES))
    return inputs

def find_and_print(attempt, maximum):
    size = find_executable_batch_size(attempt, maximum)
    print(size, "of", maximum)
    return size

PretrainTask.prepare_batch, loop.find_executable_batch_size = prepare_and_limit_memory, find_and_print
study, folder, *settings = sys.argv[1:]
print(pretrain_study(load_study(Path(study), settings), TrainingRun(Path(folder)), "cpu"))
"""
"""Pretraining with an address space limited to its current size plus FREE_BYTES at the first step."""

RETURN_FREED_MEMORY = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""Environment in which freed memory returns to the system at once, so that a limit counts only memory in use."""


def study_of(file: Path, *settings: str) -> Study:
    return load_study(file, [*QUICK, *settings])


def losses(run: TrainingRun, name: str = "loss") -> list[float]:
    return [line[name] for line in run.read() if name in line]


@pytest.fixture(scope="module", autouse=True)
def shallow() -> Iterator[None]:
    """A quarter of the tiny encoder's depth is enough for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", replace(SIZES["tiny"], depth=3))
        yield


@pytest.fixture(scope="module")
def finished(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    run = TrainingRun(tmp_path_factory.mktemp("finished"))
    assert pretrain_study(study_of(study_file, *LONGER), run, "cpu") == "finished"
    return run


def test_a_run_saves_its_model_figures_and_metrics(finished: TrainingRun) -> None:
    figures = sorted(path.name for path in finished.folder.glob("*.png"))
    assert figures == ["reconstruction_0002.png", "reconstruction_0004.png"]
    assert len(losses(finished)) == len(losses(finished, "validation_loss")) == 4
    description, tensors = load_model(str(finished.model))
    assert description.kind == "masked-autoencoder"
    assert description.results == {"validation_loss": losses(finished, "validation_loss")[-1]}
    assert {name.partition(".")[0] for name in tensors} == {"encoder", "decoder"}


def test_the_loss_falls_on_training_and_validation_audio(finished: TrainingRun) -> None:
    for name in ("loss", "validation_loss"):
        first, *_, last = losses(finished, name)
        assert last < 0.98 * first, name


def test_the_model_has_the_fingerprint_of_its_audio_and_computes_features(
    finished: TrainingRun, study_file: Path
) -> None:
    study = study_of(study_file)
    loaded = load_encoder(str(finished.model))
    assert loaded.description.data == AudioStore(f"{study.work_dir}/audio.lance").fingerprint
    assert loaded.description.chunking == study.chunking
    audio = torch.randint(-3000, 3000, (1, 40_960), dtype=torch.int16)
    with torch.no_grad():
        features = loaded.network(loaded.frontend(audio, torch.tensor([40_960])))
    assert features.shape == (1, 192, 8, 16)


def test_a_finished_run_is_refused_for_other_splits(
    finished: TrainingRun, study_file: Path, tmp_path: Path
) -> None:
    study = study_of(study_file, *LONGER)
    other = study.model_copy(update={"work_dir": str(tmp_path)})
    for path in Path(study.work_dir).iterdir():
        (tmp_path / path.name).symlink_to(path)
    table = pq.read_table(tmp_path / "splits.parquet")
    (tmp_path / "splits.parquet").unlink()
    assert pretrain_study(other, finished, "cpu") == "finished", "a deleted table is not compared"
    pq.write_table(table.slice(1), tmp_path / "splits.parquet")
    with pytest.raises(TrainingError, match="splits.parquet was .*--run-name"):
        pretrain_study(other, finished, "cpu")


def test_the_same_call_after_the_end_does_nothing(finished: TrainingRun, study_file: Path) -> None:
    before = finished.metrics.stat().st_mtime_ns
    assert pretrain_study(study_of(study_file, *LONGER), finished, "cpu") == "finished"
    assert finished.metrics.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "settings",
    [("pretrain.masking=random", "pretrain.norm_pix_loss=false"), ("pretrain.decoder=plain",)],
    ids=["random masks and raw patches", "plain decoder"],
)
def test_other_interpretations_of_the_paper_train_as_well(
    study_file: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    run = TrainingRun(tmp_path)
    assert pretrain_study(study_of(study_file, *settings), run, "cpu") == "finished"
    assert losses(run)[-1] < losses(run)[0]
    assert (tmp_path / "reconstruction_0002.png").exists()


def make_task(file: Path, *settings: str, ranks: tuple[int, int] = (0, 1)) -> PretrainTask:
    study = study_of(file, *settings)
    return PretrainTask(study, AudioStore(f"{study.work_dir}/audio.lance"), ranks)


@pytest.mark.parametrize(
    ("masking", "visible"),
    [("structured", 6 * 5), ("random", 32)],  # of 16 × 8 tokens in time and frequency
)
def test_masks_follow_from_seed_and_step_and_have_the_configured_ratio(
    study_file: Path, masking: str, visible: int
) -> None:
    task = make_task(study_file, f"pretrain.masking={masking}")
    first, same, second = task._mask(0, 3, 4), task._mask(0, 3, 4), task._mask(0, 4, 4)
    assert first.ids_keep.shape == (4, visible)
    assert torch.equal(first.ids_keep, same.ids_keep)
    assert not torch.equal(first.ids_keep, second.ids_keep)
    assert not torch.equal(first.ids_keep[0], first.ids_keep[1])


def test_ranks_split_the_masks_of_a_batch(study_file: Path) -> None:
    from mast.datasets.loader import iter_batches
    from mast.datasets.sampler import BatchSampler

    single = make_task(study_file)
    cpu, parts = torch.device("cpu"), []
    sampler = BatchSampler(len(single.training_set.examples), 8, seed=0)
    whole = single.prepare_batch(next(iter_batches(*_store_and_examples(single), sampler)), 5, cpu)
    for rank in (0, 1):
        task = make_task(study_file, ranks=(rank, 2))
        rank_sampler = replace(sampler, rank=rank, ranks=2)
        batch = next(iter_batches(*_store_and_examples(task), rank_sampler))
        parts.append(task.prepare_batch(batch, 5, cpu))
    for whole_item, first, second in zip(whole, *parts, strict=True):
        assert torch.equal(whole_item[0::2], first)
        assert torch.equal(whole_item[1::2], second)


def _store_and_examples(task: PretrainTask):
    return task.training_set.store, task.training_set.examples


def test_without_a_validation_split_there_is_no_validation_loss(study_file: Path) -> None:
    task = make_task(study_file)
    task.validation_set = type(task.validation_set)(task.validation_set.locations(0, torch.arange(0).numpy()))
    assert task.validate(task.module, torch.device("cpu")) is None


def test_a_run_starts_from_the_encoder_and_decoder_of_a_model(
    finished: TrainingRun, study_file: Path
) -> None:
    study = study_of(study_file, f"pretrain.init_from={finished.model}")
    description, model = initial_model(study, AudioStore(f"{study.work_dir}/audio.lance"))
    parent, tensors = load_model(str(finished.model))
    assert all(torch.equal(value, tensors[name]) for name, value in model.state_dict().items())
    assert description.parent == parent.identity
    assert str(finished.model) in description.source


def test_a_decoder_of_another_kind_is_not_loaded(finished: TrainingRun, study_file: Path) -> None:
    study = study_of(study_file, f"pretrain.init_from={finished.model}", "pretrain.decoder=plain")
    _, model = initial_model(study, AudioStore(f"{study.work_dir}/audio.lance"))
    _, tensors = load_model(str(finished.model))
    for name, value in model.encoder.state_dict().items():
        assert torch.equal(value, tensors[f"encoder.{name}"]), name
    assert model.decoder.shape.kind == "plain"
    assert not torch.equal(model.decoder.pred.weight, tensors["decoder.pred.weight"])


def test_a_model_has_the_licence_of_its_initial_model(
    finished: TrainingRun, study_file: Path, tmp_path: Path
) -> None:
    description, tensors = load_model(str(finished.model))
    encoder = {f"encoder.{name}": value for name, value in strip_prefix(tensors, "encoder.").items()}
    architecture = {"encoder": description.architecture["encoder"]}
    save_model(
        str(tmp_path),
        replace(description, kind="encoder", licence="CC BY-NC 4.0", architecture=architecture),
        encoder,
    )
    study = study_of(study_file, f"pretrain.init_from={tmp_path}")
    initialised, _ = initial_model(study, AudioStore(f"{study.work_dir}/audio.lance"))
    assert initialised.licence == "CC BY-NC 4.0"


def test_an_encoder_keeps_its_position_embeddings_and_normalisation(
    finished: TrainingRun, study_file: Path, tmp_path: Path
) -> None:
    """Bird-MAE has positions on a raster of 8 × 32, and other statistics than AudioMAE."""
    description, tensors = load_model(str(finished.model))
    shape = {**cast(Any, description.architecture)["encoder"], "raster_tokens": 32}
    bird = Normalisation("audiomae", -7.2, 4.43)
    start = replace(description, kind="encoder", architecture={"encoder": shape}, normalisation=bird)
    encoder = {name: value for name, value in tensors.items() if name.startswith("encoder.")}
    save_model(str(tmp_path), start, encoder)
    study = study_of(study_file, f"pretrain.init_from={tmp_path}", "normalisation=audiomae")
    task = PretrainTask(study, AudioStore(f"{study.work_dir}/audio.lance"))
    initialised, model = task.description, task.module.model
    assert initialised.normalisation == task.module.frontend.normalisation == bird
    assert cast(Any, initialised.architecture)["encoder"] == shape
    assert model.encoder.shape.raster_tokens == model.decoder.raster_tokens == 32


@pytest.mark.parametrize(("chunk_s", "bins"), [(2.4, 128), (2.56, 96)])
def test_chunks_that_the_windows_of_a_decoder_do_not_tile_need_the_plain_one(
    chunk_s: float, bins: int
) -> None:
    study = load_study(None, [f"chunking.chunk_s={chunk_s}", f"spectrogram.n_mels={bins}"])
    with pytest.raises(ConfigError, match="tokens in time.*Set pretrain.decoder=plain"):
        pretrain._check_windows(study, round(chunk_s * 100))
    plain = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"decoder": "plain"})})
    pretrain._check_windows(plain, round(chunk_s * 100))


def test_a_model_of_another_width_is_refused(finished: TrainingRun, study_file: Path) -> None:
    study = study_of(study_file, f"pretrain.init_from={finished.model}", "model.size=small")
    with pytest.raises(
        ModelError,
        match=r"has an encoder with .*192.*, this study needs .*384.*Set model\.encoder and model\.size",
    ):
        initial_model(study, AudioStore(f"{study.work_dir}/audio.lance"))


def test_other_settings_for_a_started_run_are_refused_and_named(study_file: Path, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    study = study_of(study_file)
    run.open({"data": "of another card", **study.model_dump(mode="json", include={"pretrain", "model"})})
    with pytest.raises(
        TrainingError, match=r"data was of another card.*pretrain\.mask_ratio was 0\.75, is now 0\.5"
    ):
        pretrain_study(study_of(study_file, "pretrain.mask_ratio=0.5"), run, "cpu")


def arguments(file: Path, out: Path, *settings: str) -> list[str]:
    overrides = [word for item in (*QUICK, *settings) for word in ("--set", item)]
    return ["pretrain", str(file), "--out", str(out), "--device", "cpu", *overrides]


def test_the_command_prints_the_folder_of_the_model_and_returns_fast_the_second_time(
    study_file: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        start = time.perf_counter()
        result = CliRunner().invoke(
            app, arguments(study_file, tmp_path, "pretrain.epochs=1"), catch_exceptions=False
        )
        took_s = time.perf_counter() - start
        assert result.exit_code == 0, result.output
        assert f"Finished. Model: {tmp_path / 'pretrain' / 'main' / 'model'}" in result.stdout
    assert took_s < 1


def test_ctrl_c_exits_with_code_130(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PretrainTask.prepare_batch

    def interrupted(self: PretrainTask, *inputs: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return original(self, *inputs)

    monkeypatch.setattr(PretrainTask, "prepare_batch", interrupted)
    result = CliRunner().invoke(app, arguments(study_file, tmp_path))
    assert result.exit_code == 130
    assert "run the same command again to resume" in result.stdout


def test_a_terminated_process_saves_its_state_and_exits_with_code_0(study_file: Path, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "pretrain" / "main")
    process = subprocess.Popen(
        [*MAST, *arguments(study_file, tmp_path, "pretrain.epochs=1000")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while not run.metrics.exists() and process.poll() is None:
        time.sleep(0.02)
    process.terminate()
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output == f"Stopped. The state is saved in {run.folder}; run the same command again to resume.\n"
    assert run.last.exists() and not run.is_finished
    saved = torch.load(run.last, weights_only=True)
    assert saved["state"]["step"] >= run.read()[-1]["step"] > 0


@pytest.mark.slow
def test_a_batch_that_does_not_fit_into_memory_is_trained_in_micro_batches(
    study_file: Path, tmp_path: Path
) -> None:
    settings = [*QUICK, "pretrain.batch_size=64", "pretrain.warmup_epochs=0"]
    script = LIMITED_MEMORY.replace("FREE_BYTES", str(550 << 20))
    result = subprocess.run(
        [sys.executable, "-c", script, str(study_file), str(tmp_path), *settings],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **RETURN_FREED_MEMORY},
    )
    assert result.returncode == 0, result.stderr
    size, end = result.stdout.split()[0], result.stdout.split()[-1]
    assert 1 <= int(size) < 64
    assert end == "finished"
    assert len(losses(TrainingRun(tmp_path))) == 2
