"""The training loop of all stages: training, stop signals, resuming, and errors."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mast.config import OptimisationSettings, Study, load_study
from mast.errors import TrainingError
from mast.training.fabric import start_fabric
from mast.training.loop import End, OnProgress, Progress, StopSignal, _Loop, train
from mast.training.run_dir import TrainingRun
from tests.training.studies import QUICK, LevelTask, make_training_set, weights


@pytest.fixture(scope="module")
def study(study_file: Path) -> Study:
    return load_study(study_file)


def run_training(
    study: Study,
    run: TrainingRun,
    settings: OptimisationSettings = QUICK,
    task: LevelTask | None = None,
    on_progress: OnProgress = lambda progress: None,
) -> End:
    torch.manual_seed(0)
    fabric = start_fabric("fp32", run, "cpu")
    return train(task or LevelTask(), make_training_set(study), settings, run, fabric, on_progress)


def changed(**values: object) -> OptimisationSettings:
    return QUICK.model_copy(update=values)


def stop_at(step: int, number: int = signal.SIGTERM) -> OnProgress:
    def on_progress(progress: Progress) -> None:
        if progress.step == step:
            os.kill(os.getpid(), number)

    return on_progress


@pytest.fixture(scope="module")
def uninterrupted(study: Study, tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    run = TrainingRun(tmp_path_factory.mktemp("uninterrupted"))
    assert run_training(study, run) == "finished"
    return run


@pytest.mark.parametrize(
    ("due_here", "due_there"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_two_processes_save_together_by_the_clock_of_the_first(due_here: bool, due_there: bool) -> None:
    """With their own clocks, one process could be due a step earlier than the other, and wait for it forever."""

    class Fabric:
        world_size = 2

        def __init__(self, rank: int) -> None:
            self.is_global_zero = rank == 0

        def all_reduce(self, values: torch.Tensor) -> torch.Tensor:
            sent.append(values)
            return torch.stack(sent).mean(dim=0)

    def synchronise(rank: int, *, is_due: bool) -> tuple[dict[str, float], bool, bool]:
        loop = SimpleNamespace(fabric=Fabric(rank), device=torch.device("cpu"))
        return _Loop._synchronise(loop, {"loss": torch.tensor(1.0 + rank)}, StopSignal(), is_due=is_due)

    sent: list[torch.Tensor] = []
    synchronise(0, is_due=due_here)
    losses, stop, is_due = synchronise(1, is_due=due_there)
    assert losses == {"loss": 1.5} and not stop
    assert is_due == due_here


def test_a_run_is_trained_and_saves_its_model_and_metrics(uninterrupted: TrainingRun) -> None:
    lines = [line for line in uninterrupted.read() if "loss" in line]
    assert lines[-1]["level"] < lines[0]["level"] < 3  # down from 3 towards the level of the chunks
    assert {"step", "epoch", "loss", "lr", "gradient", "hours_per_hour"} <= set(lines[0])
    assert [line["epoch"] for line in lines][-1] == 5
    assert list((uninterrupted.folder / "tensorboard").iterdir())


def test_task_methods_are_called_once_per_epoch(study: Study, tmp_path: Path) -> None:
    task = LevelTask()
    run_training(study, TrainingRun(tmp_path), task=task)
    assert task.plotted_epochs == [0, 1, 2, 3, 4, 5]
    assert task.epochs[:6] == task.plotted_epochs


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_stopped_run_resumes_to_identical_weights(
    study: Study, uninterrupted: TrainingRun, tmp_path: Path, epoch: int
) -> None:
    run = TrainingRun(tmp_path)
    expected = [line for line in uninterrupted.read() if "loss" in line]
    step = next(line["step"] for line in expected if line["epoch"] == epoch)
    assert run_training(study, run, on_progress=stop_at(step)) == "stopped"
    assert not run.is_finished
    assert run_training(study, run) == "finished"
    for name, value in weights(uninterrupted).items():
        assert torch.equal(value, weights(run)[name]), name
    again = [line for line in run.read() if "loss" in line]
    assert [line["loss"] for line in again] == [line["loss"] for line in expected]


def test_ctrl_c_saves_the_run_as_well(study: Study, tmp_path: Path) -> None:
    run, first = TrainingRun(tmp_path), stop_at(3, signal.SIGINT)
    assert run_training(study, run, on_progress=first) in ("interrupted", "finished")
    assert run.last.exists()


def test_signal_handlers_are_restored_afterwards(study: Study, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_training(study, TrainingRun(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before


def test_micro_batches_train_the_same_as_whole_batches(study: Study, tmp_path: Path) -> None:
    levels = []
    for size in (None, 3, 1):
        run = TrainingRun(tmp_path / str(size))
        run_training(study, run, changed(micro_batch_size=size), LevelTask(dropout=0))
        levels.append([line["level"] for line in run.read() if "loss" in line])
    assert levels[1] == pytest.approx(levels[0], rel=1e-5)
    assert levels[2] == pytest.approx(levels[0], rel=1e-5)


def test_the_error_for_a_loss_that_is_not_finite_names_the_recordings(study: Study, tmp_path: Path) -> None:
    task = LevelTask()
    task.nan_step = 2
    with pytest.raises(TrainingError, match=r"At step 2 .*card/.* at \d+\.\d\d s"):
        run_training(study, TrainingRun(tmp_path), task=task)


def test_a_gradient_that_is_not_finite_is_an_error_before_it_is_saved(study: Study, tmp_path: Path) -> None:
    task, run = LevelTask(), TrainingRun(tmp_path)
    task.module.has_kink = True
    with pytest.raises(TrainingError, match=r"At step 0 .*'gradient': nan"):
        run_training(study, run, task=task)
    assert not run.last.exists()


def test_the_moving_average_resumes_after_a_stop(study: Study, tmp_path: Path) -> None:
    settings, complete, stopped = (
        changed(ema_decay=0.9),
        TrainingRun(tmp_path / "uninterrupted"),
        TrainingRun(tmp_path / "stopped"),
    )
    run_training(study, complete, settings)
    first = next(line["step"] for line in complete.read() if "loss" in line)
    assert run_training(study, stopped, settings, on_progress=stop_at(first)) == "stopped"
    run_training(study, stopped, settings)
    assert torch.equal(weights(complete)["level"], weights(stopped)["level"])


def test_training_stops_when_validation_no_longer_improves_and_saves_the_best_weights(
    study: Study, tmp_path: Path
) -> None:
    task = LevelTask(validation=[3.0, 1.0, 2.0, 2.5, 2.0, 2.0, 2.0])
    run = TrainingRun(tmp_path)
    run_training(study, run, changed(epochs=7, early_stopping_patience=2), task)
    losses = [line["validation_loss"] for line in run.read() if "validation_loss" in line]
    assert losses == [3.0, 1.0, 2.0, 2.5]
    ends = {line["epoch"]: line["step"] for line in run.read()}
    assert weights(run)["seen"] == ends[1] * 8


def test_patience_without_validation_is_refused(study: Study, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="early_stopping_patience needs a validation split"):
        run_training(study, TrainingRun(tmp_path), changed(early_stopping_patience=1))


def test_the_saved_weights_are_the_moving_average(study: Study, tmp_path: Path) -> None:
    plain, averaged = TrainingRun(tmp_path / "plain"), TrainingRun(tmp_path / "averaged")
    run_training(study, plain)
    run_training(study, averaged, changed(ema_decay=0.99))
    assert (
        weights(averaged)["level"].mean() > weights(plain)["level"].mean()
    )  # the level falls from 3, and its average falls later
    assert weights(averaged)["seen"] > 0


def test_a_damaged_checkpoint_is_an_error(study: Study, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run_training(study, run)
    run.last.write_bytes(run.last.read_bytes()[:100])
    with pytest.raises(TrainingError, match="cannot be read .* Delete it to start this run again"):
        run_training(study, run)


class LimitedMemoryTask(LevelTask):
    """A task that runs out of memory, after the forward pass, if a micro-batch has more than `capacity` examples."""

    def __init__(self, capacity: int = 2) -> None:
        super().__init__()
        self.calls = 0
        forward = self.module.forward

        def limited(levels: torch.Tensor) -> dict[str, torch.Tensor]:
            self.calls += 1
            losses = forward(levels)
            if len(levels) > capacity:
                raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
            return losses

        self.module.forward = limited  # type: ignore[method-assign]


def test_a_batch_that_fits_is_computed_once(study: Study, tmp_path: Path) -> None:
    task, run = LimitedMemoryTask(capacity=1000), TrainingRun(tmp_path)
    run_training(study, run, task=task)
    assert task.calls == run.read()[-1]["step"]


def test_a_failed_attempt_does_not_change_the_weights(study: Study, tmp_path: Path) -> None:
    searched, fixed = TrainingRun(tmp_path / "searched"), TrainingRun(tmp_path / "fixed")
    run_training(study, searched, task=LimitedMemoryTask())
    run_training(study, fixed, changed(micro_batch_size=2))
    for name, value in weights(fixed).items():
        assert torch.equal(value, weights(searched)[name]), name


def test_a_micro_batch_that_does_not_fit_is_refused_with_the_size_that_fits(
    study: Study, tmp_path: Path
) -> None:
    with pytest.raises(
        TrainingError, match=r"A micro-batch of 8 does not fit .*; 2 fits\. Set micro_batch_size to 2"
    ):
        run_training(study, TrainingRun(tmp_path / "fixed"), changed(micro_batch_size=8), LimitedMemoryTask())
    assert run_training(study, TrainingRun(tmp_path / "searched"), task=LimitedMemoryTask()) == "finished"


def test_a_batch_that_cannot_be_split_over_devices_is_refused(study: Study, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    fabric = start_fabric("fp32", run, "cpu")
    two_devices = type("TwoDevices", (), {"world_size": 2, "global_rank": 0})()
    assert fabric.world_size == 1
    with pytest.raises(TrainingError, match="multiple of 2"):
        train(LevelTask(), make_training_set(study), changed(batch_size=7), run, two_devices)


def test_the_search_for_a_micro_batch_size_trains_nothing(study: Study, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run_training(study, run, changed(epochs=1))
    steps = [line["step"] for line in run.read() if "loss" in line][-1]
    assert weights(run)["seen"] == steps * 8
