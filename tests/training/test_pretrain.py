"""Pretraining on a small study: what a run leaves behind, what it starts from, and how it behaves on a real machine."""

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
from mast.models.loading import below, load_encoder
from mast.normalisation import Normalisation
from mast.recordings.store import AudioStore
from mast.training import pretrain
from mast.training.pretrain import PretrainRecipe, pretrain_study, starting_model
from mast.training.run import Run

MAST = [sys.executable, "-c", "from mast.cli import main; main()"]
QUICK = (
    "pretrain.epochs=2",
    "pretrain.warmup_epochs=0.5",
    "pretrain.batch=16",
    "pretrain.lr=2e-3",
    "pretrain.precision=fp32",
    "pretrain.picture_epochs=1000",
)
LONGER = ("pretrain.epochs=4", "pretrain.picture_epochs=2")

CRAMPED = """
import resource, sys, time
from pathlib import Path
from mast.config import load_study
from mast.training import loop
from mast.training.pretrain import PretrainRecipe, pretrain_study
from mast.training.run import Run

inputs, largest = PretrainRecipe.inputs, loop.largest_that_fits

def cramped(self, batch, step, device):
    taken = inputs(self, batch, step, device)
    if step == 0:
        time.sleep(1)  # threads have read ahead by now
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
    return taken

def told(attempt, most):
    found = largest(attempt, most)
    print(found, "of", most)
    return found

PretrainRecipe.inputs, loop.largest_that_fits = cramped, told
study, folder, *settings = sys.argv[1:]
print(pretrain_study(load_study(Path(study), settings), Run(Path(folder)), "cpu"))
"""
"""Learns with no more memory than it has, and so much, from the first step on."""

RETURNING = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Memory that is freed goes back to the system at once, so that a limit on it counts what is in use."""


def study_of(file: Path, *settings: str) -> Study:
    return load_study(file, [*QUICK, *settings])


def losses(run: Run, name: str = "loss") -> list[float]:
    return [line[name] for line in run.read() if name in line]


@pytest.fixture(scope="module", autouse=True)
def shallow() -> Iterator[None]:
    """A quarter of the tiny encoder's depth learns as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", replace(SIZES["tiny"], depth=3))
        yield


@pytest.fixture(scope="module")
def finished(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("finished"))
    assert pretrain_study(study_of(study_file, *LONGER), run, "cpu") == "finished"
    return run


def test_a_run_leaves_its_model_pictures_and_what_it_measured(finished: Run) -> None:
    pictures = sorted(path.name for path in finished.folder.glob("*.png"))
    assert pictures == ["reconstruction_0002.png", "reconstruction_0004.png"]
    assert len(losses(finished)) == len(losses(finished, "validation_loss")) == 4
    description, tensors = load_model(str(finished.model))
    assert description.kind == "masked-autoencoder"
    assert description.results == {"validation_loss": losses(finished, "validation_loss")[-1]}
    assert {name.partition(".")[0] for name in tensors} == {"encoder", "decoder"}


def test_the_loss_falls_on_sound_heard_and_unheard(finished: Run) -> None:
    for name in ("loss", "validation_loss"):
        first, *_, last = losses(finished, name)
        assert last < 0.98 * first, name


def test_the_model_says_what_it_learned_from_and_can_be_asked(finished: Run, study_file: Path) -> None:
    study = study_of(study_file)
    loaded = load_encoder(str(finished.model))
    assert loaded.description.data == AudioStore(f"{study.work}/audio.lance").fingerprint
    assert loaded.description.chunking == study.chunking
    sound = torch.randint(-3000, 3000, (1, 40_960), dtype=torch.int16)
    with torch.no_grad():
        features = loaded.network(loaded.frontend(sound, torch.tensor([40_960])))
    assert features.shape == (1, 192, 8, 16)


def test_a_finished_run_is_not_taken_for_one_of_other_splits(
    finished: Run, study_file: Path, tmp_path: Path
) -> None:
    study = study_of(study_file, *LONGER)
    other = study.model_copy(update={"work": str(tmp_path)})
    for path in Path(study.work).iterdir():
        (tmp_path / path.name).symlink_to(path)
    table = pq.read_table(tmp_path / "splits.parquet")
    (tmp_path / "splits.parquet").unlink()
    assert pretrain_study(other, finished, "cpu") == "finished", "a table that is gone tells nothing"
    pq.write_table(table.slice(1), tmp_path / "splits.parquet")
    with pytest.raises(TrainingError, match="splits.parquet was .*--name"):
        pretrain_study(other, finished, "cpu")


def test_the_same_call_after_the_end_does_nothing(finished: Run, study_file: Path) -> None:
    before = finished.metrics.stat().st_mtime_ns
    assert pretrain_study(study_of(study_file, *LONGER), finished, "cpu") == "finished"
    assert finished.metrics.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "settings",
    [("pretrain.masking=random", "pretrain.normalised_patches=false"), ("pretrain.decoder=plain",)],
    ids=["random masks and raw patches", "plain decoder"],
)
def test_other_readings_of_the_paper_learn_as_well(
    study_file: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    run = Run(tmp_path)
    assert pretrain_study(study_of(study_file, *settings), run, "cpu") == "finished"
    assert losses(run)[-1] < losses(run)[0]
    assert (tmp_path / "reconstruction_0002.png").exists()


def recipe_of(file: Path, *settings: str, ranks: tuple[int, int] = (0, 1)) -> PretrainRecipe:
    study = study_of(file, *settings)
    return PretrainRecipe(study, AudioStore(f"{study.work}/audio.lance"), ranks)


@pytest.mark.parametrize(
    ("masking", "kept"),
    [("structured", 6 * 5), ("random", 32)],  # of 16 moments × 8 bands
)
def test_masks_follow_from_seed_and_step_and_hide_what_was_asked(
    study_file: Path, masking: str, kept: int
) -> None:
    recipe = recipe_of(study_file, f"pretrain.masking={masking}")
    one, same, next_ = recipe._mask(0, 3, 4), recipe._mask(0, 3, 4), recipe._mask(0, 4, 4)
    assert one.kept.shape == (4, kept)
    assert torch.equal(one.kept, same.kept)
    assert not torch.equal(one.kept, next_.kept)
    assert not torch.equal(one.kept[0], one.kept[1])


def test_ranks_share_out_the_masks_of_a_batch(study_file: Path) -> None:
    from mast.datasets.loading import batches
    from mast.datasets.order import Order

    whole = recipe_of(study_file)
    cpu, shares = torch.device("cpu"), []
    order = Order(len(whole.sound.examples), 8, seed=0)
    all_of = whole.inputs(next(batches(*_sound(whole), order)), 5, cpu)
    for rank in (0, 1):
        recipe = recipe_of(study_file, ranks=(rank, 2))
        own = replace(order, rank=rank, ranks=2)
        shares.append(recipe.inputs(next(batches(*_sound(recipe), own)), 5, cpu))
    for whole_item, first, second in zip(all_of, *shares, strict=True):
        assert torch.equal(whole_item[0::2], first)
        assert torch.equal(whole_item[1::2], second)


def _sound(recipe: PretrainRecipe):
    return recipe.sound.store, recipe.sound.examples


def test_without_sound_to_validate_on_there_is_no_validation_loss(study_file: Path) -> None:
    recipe = recipe_of(study_file)
    recipe.held = type(recipe.held)(recipe.held.places(0, torch.arange(0).numpy()))
    assert recipe.validate(recipe.module, torch.device("cpu")) is None


def test_a_run_starts_from_the_encoder_and_decoder_of_a_model(finished: Run, study_file: Path) -> None:
    study = study_of(study_file, f"pretrain.start={finished.model}")
    description, model = starting_model(study, AudioStore(f"{study.work}/audio.lance"))
    parent, tensors = load_model(str(finished.model))
    assert all(torch.equal(value, tensors[name]) for name, value in model.state_dict().items())
    assert description.parent == parent.identity
    assert str(finished.model) in description.source


def test_a_decoder_of_another_kind_is_not_taken_over(finished: Run, study_file: Path) -> None:
    study = study_of(study_file, f"pretrain.start={finished.model}", "pretrain.decoder=plain")
    _, model = starting_model(study, AudioStore(f"{study.work}/audio.lance"))
    _, tensors = load_model(str(finished.model))
    for name, value in model.encoder.state_dict().items():
        assert torch.equal(value, tensors[f"encoder.{name}"]), name
    assert model.decoder.shape.kind == "plain"
    assert not torch.equal(model.decoder.pred.weight, tensors["decoder.pred.weight"])


def test_the_licence_of_a_model_goes_with_what_is_made_from_it(
    finished: Run, study_file: Path, tmp_path: Path
) -> None:
    description, tensors = load_model(str(finished.model))
    encoder = {f"encoder.{name}": value for name, value in below(tensors, "encoder.").items()}
    bare = {"encoder": description.architecture["encoder"]}
    save_model(
        str(tmp_path),
        replace(description, kind="encoder", licence="CC BY-NC 4.0", architecture=bare),
        encoder,
    )
    study = study_of(study_file, f"pretrain.start={tmp_path}")
    made, _ = starting_model(study, AudioStore(f"{study.work}/audio.lance"))
    assert made.licence == "CC BY-NC 4.0"


def test_an_encoder_with_positions_and_numbers_of_its_own_keeps_them(
    finished: Run, study_file: Path, tmp_path: Path
) -> None:
    """As Bird-MAE has: positions on a raster of 8 × 32, and other statistics than AudioMAE's."""
    description, tensors = load_model(str(finished.model))
    shape = {**cast(Any, description.architecture)["encoder"], "raster_tokens": 32}
    bird = Normalisation("audiomae", -7.2, 4.43)
    start = replace(description, kind="encoder", architecture={"encoder": shape}, normalisation=bird)
    encoder = {name: value for name, value in tensors.items() if name.startswith("encoder.")}
    save_model(str(tmp_path), start, encoder)
    study = study_of(study_file, f"pretrain.start={tmp_path}", "normalisation=audiomae")
    recipe = PretrainRecipe(study, AudioStore(f"{study.work}/audio.lance"))
    made, model = recipe.description, recipe.module.model
    assert made.normalisation == recipe.module.frontend.normalisation == bird
    assert cast(Any, made.architecture)["encoder"] == shape
    assert model.encoder.shape.raster_tokens == model.decoder.raster_tokens == 32


@pytest.mark.parametrize(("chunk_s", "bins"), [(2.4, 128), (2.56, 96)])
def test_chunks_that_the_windows_of_a_decoder_do_not_cover_want_the_plain_one(
    chunk_s: float, bins: int
) -> None:
    study = load_study(None, [f"chunking.chunk_s={chunk_s}", f"spectrogram.bins={bins}"])
    with pytest.raises(ConfigError, match="tokens in time.*Set pretrain.decoder=plain"):
        pretrain._check_windows(study, round(chunk_s * 100))
    plain = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"decoder": "plain"})})
    pretrain._check_windows(plain, round(chunk_s * 100))


def test_a_model_of_another_width_is_refused(finished: Run, study_file: Path) -> None:
    study = study_of(study_file, f"pretrain.start={finished.model}", "model.size=small")
    with pytest.raises(
        ModelError, match=r"has an encoder of .*192.*, this study wants .*384.*Set model\.size"
    ):
        starting_model(study, AudioStore(f"{study.work}/audio.lance"))


def test_other_settings_for_a_run_that_has_begun_are_refused_by_name(
    study_file: Path, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    study = study_of(study_file)
    run.open({"data": "of another card", **study.model_dump(mode="json", include={"pretrain", "model"})})
    with pytest.raises(
        TrainingError, match=r"data was of another card.*pretrain\.hidden was 0\.75, is now 0\.5"
    ):
        pretrain_study(study_of(study_file, "pretrain.hidden=0.5"), run, "cpu")


def words(file: Path, out: Path, *settings: str) -> list[str]:
    chosen = [word for item in (*QUICK, *settings) for word in ("--set", item)]
    return ["pretrain", str(file), "--out", str(out), "--device", "cpu", *chosen]


def test_the_command_tells_where_the_model_is_and_again_at_once(study_file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        start = time.perf_counter()
        done = CliRunner().invoke(
            app, words(study_file, tmp_path, "pretrain.epochs=1"), catch_exceptions=False
        )
        took_s = time.perf_counter() - start
        assert done.exit_code == 0, done.output
        assert f"Finished. Model: {tmp_path / 'pretrain' / 'main' / 'model'}" in done.stdout
    assert took_s < 1


def test_ctrl_c_ends_with_its_usual_code(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = PretrainRecipe.inputs

    def interrupted(self: PretrainRecipe, *arguments: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return before(self, *arguments)

    monkeypatch.setattr(PretrainRecipe, "inputs", interrupted)
    done = CliRunner().invoke(app, words(study_file, tmp_path))
    assert done.exit_code == 130
    assert "The same command goes on from there" in done.stdout


def test_a_process_told_to_stop_keeps_its_state_and_exits_with_0(study_file: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "pretrain" / "main")
    process = subprocess.Popen(
        [*MAST, *words(study_file, tmp_path, "pretrain.epochs=1000")],
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
    assert output == f"Stopped, and kept in {run.folder}. The same command goes on from there.\n"
    assert run.last.exists() and not run.is_finished
    kept = torch.load(run.last, weights_only=True)
    assert kept["state"]["step"] >= run.read()[-1]["step"] > 0


def test_a_batch_that_memory_does_not_hold_is_learned_in_portions(study_file: Path, tmp_path: Path) -> None:
    settings = [*QUICK, "pretrain.batch=64", "pretrain.warmup_epochs=0"]
    script = CRAMPED.replace("ROOM", str(550 << 20))
    done = subprocess.run(
        [sys.executable, "-c", script, str(study_file), str(tmp_path), *settings],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **RETURNING},
    )
    assert done.returncode == 0, done.stderr
    portion, end = done.stdout.split()[0], done.stdout.split()[-1]
    assert 1 <= int(portion) < 64
    assert end == "finished"
    assert len(losses(Run(tmp_path))) == 2
