"""The loop that all stages share: it learns, stops when told, goes on as if nothing had been, and says what is wrong."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mast.config import Optimisation, Study, load_study
from mast.errors import TrainingError
from mast.training.devices import start_fabric
from mast.training.loop import End, OnProgress, Progress, Told, _Loop, train
from mast.training.run import Run
from tests.training.studies import QUICK, GuessRecipe, sound_of, weights


@pytest.fixture(scope="module")
def study(study_file: Path) -> Study:
    return load_study(study_file)


def learn(
    study: Study,
    run: Run,
    settings: Optimisation = QUICK,
    recipe: GuessRecipe | None = None,
    on_progress: OnProgress = lambda progress: None,
) -> End:
    torch.manual_seed(0)
    fabric = start_fabric("fp32", run, "cpu")
    return train(recipe or GuessRecipe(), sound_of(study), settings, run, fabric, on_progress)


def changed(**values: object) -> Optimisation:
    return QUICK.model_copy(update=values)


def stop_at(step: int, number: int = signal.SIGTERM) -> OnProgress:
    def on_progress(progress: Progress) -> None:
        if progress.step == step:
            os.kill(os.getpid(), number)

    return on_progress


@pytest.fixture(scope="module")
def uninterrupted(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("whole"))
    assert learn(study, run) == "finished"
    return run


@pytest.mark.parametrize(
    ("due_here", "due_there"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_two_processes_save_together_by_the_clock_of_the_first(due_here: bool, due_there: bool) -> None:
    """Each alone might find that it is time a step sooner than the other, and wait for it in vain."""

    class Fabric:
        world_size = 2

        def __init__(self, rank: int) -> None:
            self.is_global_zero = rank == 0

        def all_reduce(self, own: torch.Tensor) -> torch.Tensor:
            sent.append(own)
            return torch.stack(sent).mean(dim=0)

    def agreed(rank: int, *, is_due: bool) -> tuple[dict[str, float], bool, bool]:
        here = SimpleNamespace(fabric=Fabric(rank), device=torch.device("cpu"))
        return _Loop._agreed(here, {"loss": torch.tensor(1.0 + rank)}, Told(), is_due=is_due)

    sent: list[torch.Tensor] = []
    agreed(0, is_due=due_here)
    losses, stop, is_due = agreed(1, is_due=due_there)
    assert losses == {"loss": 1.5} and not stop
    assert is_due == due_here


def test_a_run_learns_and_leaves_its_model_and_what_it_measured(uninterrupted: Run) -> None:
    lines = [line for line in uninterrupted.read() if "loss" in line]
    assert lines[-1]["level"] < lines[0]["level"] < 3  # down from 3 towards the level of the chunks
    assert {"step", "epoch", "loss", "lr", "gradient", "hours_per_hour"} <= set(lines[0])
    assert [line["epoch"] for line in lines][-1] == 5
    assert list((uninterrupted.folder / "tensorboard").iterdir())


def test_hooks_are_called_once_an_epoch(study: Study, tmp_path: Path) -> None:
    recipe = GuessRecipe()
    learn(study, Run(tmp_path), recipe=recipe)
    assert recipe.drawn == [0, 1, 2, 3, 4, 5]
    assert recipe.epochs[:6] == recipe.drawn


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_run_told_to_stop_goes_on_to_the_very_same_weights(
    study: Study, uninterrupted: Run, tmp_path: Path, epoch: int
) -> None:
    run = Run(tmp_path)
    whole = [line for line in uninterrupted.read() if "loss" in line]
    step = next(line["step"] for line in whole if line["epoch"] == epoch)
    assert learn(study, run, on_progress=stop_at(step)) == "stopped"
    assert not run.is_finished
    assert learn(study, run) == "finished"
    for name, value in weights(uninterrupted).items():
        assert torch.equal(value, weights(run)[name]), name
    again = [line for line in run.read() if "loss" in line]
    assert [line["loss"] for line in again] == [line["loss"] for line in whole]


def test_ctrl_c_keeps_the_run_as_well(study: Study, tmp_path: Path) -> None:
    run, first = Run(tmp_path), stop_at(3, signal.SIGINT)
    assert learn(study, run, on_progress=first) in ("interrupted", "finished")
    assert run.last.exists()


def test_signals_have_their_old_meaning_afterwards(study: Study, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    learn(study, Run(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before


def test_portions_learn_the_same_as_whole_batches(study: Study, tmp_path: Path) -> None:
    levels = []
    for portion in (None, 3, 1):
        run = Run(tmp_path / str(portion))
        learn(study, run, changed(device_batch=portion), GuessRecipe(dropout=0))
        levels.append([line["level"] for line in run.read() if "loss" in line])
    assert levels[1] == pytest.approx(levels[0], rel=1e-5)
    assert levels[2] == pytest.approx(levels[0], rel=1e-5)


def test_a_loss_that_is_no_number_names_the_recordings(study: Study, tmp_path: Path) -> None:
    recipe = GuessRecipe()
    recipe.poison = 2
    with pytest.raises(TrainingError, match=r"At step 2 .*card/.* at \d+\.\d\d s"):
        learn(study, Run(tmp_path), recipe=recipe)


def test_a_gradient_that_is_no_number_is_told_before_it_is_kept(study: Study, tmp_path: Path) -> None:
    recipe, run = GuessRecipe(), Run(tmp_path)
    recipe.module.has_kink = True
    with pytest.raises(TrainingError, match=r"At step 0 .*'gradient': nan"):
        learn(study, run, recipe=recipe)
    assert not run.last.exists()


def test_the_running_mean_goes_on_after_a_stop(study: Study, tmp_path: Path) -> None:
    settings, whole, stopped = changed(ema_decay=0.9), Run(tmp_path / "whole"), Run(tmp_path / "stopped")
    learn(study, whole, settings)
    first = next(line["step"] for line in whole.read() if "loss" in line)
    assert learn(study, stopped, settings, on_progress=stop_at(first)) == "stopped"
    learn(study, stopped, settings)
    assert torch.equal(weights(whole)["level"], weights(stopped)["level"])


def test_learning_stops_when_validation_no_longer_improves_and_keeps_the_best(
    study: Study, tmp_path: Path
) -> None:
    recipe = GuessRecipe(validation=[3.0, 1.0, 2.0, 2.5, 2.0, 2.0, 2.0])
    run = Run(tmp_path)
    learn(study, run, changed(epochs=7, patience_epochs=2), recipe)
    losses = [line["validation_loss"] for line in run.read() if "validation_loss" in line]
    assert losses == [3.0, 1.0, 2.0, 2.5]
    ends = {line["epoch"]: line["step"] for line in run.read()}
    assert weights(run)["seen"] == ends[1] * 8


def test_patience_without_validation_is_refused(study: Study, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="needs sound for validation"):
        learn(study, Run(tmp_path), changed(patience_epochs=1))


def test_the_running_mean_is_what_is_kept(study: Study, tmp_path: Path) -> None:
    plain, mean = Run(tmp_path / "plain"), Run(tmp_path / "mean")
    learn(study, plain)
    learn(study, mean, changed(ema_decay=0.99))
    assert (
        weights(mean)["level"].mean() > weights(plain)["level"].mean()
    )  # it starts at 3 and follows downwards
    assert weights(mean)["seen"] > 0


def test_a_damaged_checkpoint_is_told(study: Study, tmp_path: Path) -> None:
    run = Run(tmp_path)
    learn(study, run)
    run.last.write_bytes(run.last.read_bytes()[:100])
    with pytest.raises(TrainingError, match="cannot be read .* Delete it to begin"):
        learn(study, run)


class Cramped(GuessRecipe):
    """A device that holds two examples, and notices when it has looked at all of them."""

    def __init__(self, held: int = 2) -> None:
        super().__init__()
        self.calls = 0
        forward = self.module.forward

        def guarded(levels: torch.Tensor) -> dict[str, torch.Tensor]:
            self.calls += 1
            losses = forward(levels)
            if len(levels) > held:
                raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
            return losses

        self.module.forward = guarded  # type: ignore[method-assign]


def test_a_batch_that_fits_is_computed_once(study: Study, tmp_path: Path) -> None:
    roomy, run = Cramped(held=1000), Run(tmp_path)
    learn(study, run, recipe=roomy)
    assert roomy.calls == run.read()[-1]["step"]


def test_an_attempt_that_fails_leaves_no_trace(study: Study, tmp_path: Path) -> None:
    found, known = Run(tmp_path / "found"), Run(tmp_path / "known")
    learn(study, found, recipe=Cramped())
    learn(study, known, changed(device_batch=2))
    for name, value in weights(known).items():
        assert torch.equal(value, weights(found)[name]), name


def test_a_batch_that_does_not_fit_is_refused_with_the_number_that_does(study: Study, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"8 examples at once do not fit .*; 2 do\. Set device_batch to 2"
    ):
        learn(study, Run(tmp_path / "asked"), changed(device_batch=8), Cramped())
    assert learn(study, Run(tmp_path / "found"), recipe=Cramped()) == "finished"


def test_a_batch_that_cannot_be_shared_out_is_refused(study: Study, tmp_path: Path) -> None:
    run = Run(tmp_path)
    fabric = start_fabric("fp32", run, "cpu")
    two = type("Two", (), {"world_size": 2, "global_rank": 0})()
    assert fabric.world_size == 1
    with pytest.raises(TrainingError, match="multiple of 2"):
        train(GuessRecipe(), sound_of(study), changed(batch=7), run, two)


def test_trying_out_what_fits_teaches_nothing(study: Study, tmp_path: Path) -> None:
    run = Run(tmp_path)
    learn(study, run, changed(epochs=1))
    steps = [line["step"] for line in run.read() if "loss" in line][-1]
    assert weights(run)["seen"] == steps * 8
