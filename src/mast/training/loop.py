"""The training loop of pretraining, detector training and self-training.

All random numbers follow from the seed and the step, so a checkpoint needs only weights, optimiser state and the step.
A run that was killed resumes with the same command, and its final weights are identical to those of an uninterrupted run.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mast.config import OptimisationSettings
from mast.datasets.loader import Batch, ChunkDataset, iter_batches
from mast.datasets.sampler import BatchSampler
from mast.errors import TrainingError
from mast.store.audio_store import AudioStore
from mast.training.batch_size import find_executable_batch_size
from mast.training.checkpointing import Checkpointed
from mast.training.fabric import start_fabric
from mast.training.optimiser import ParamGroup, Schedule, adamw, make_ema
from mast.training.run_dir import TrainingRun

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LOADER_THREADS = 2
"""Number of threads that prefetch chunks."""

REPORT_STEPS = 10
"""Interval of the metrics in steps; they are also written at the end of each epoch."""

End = Literal["finished", "stopped", "interrupted"]


class TrainingTask(Protocol):
    """Interface of a training stage.

    `module` maps the output of `prepare_batch` to losses by name, each a mean over the examples; the loop minimises the
    one named `loss`.
    """

    training_set: TrainingSet

    @property
    def module(self) -> nn.Module:
        """Module to train."""
        ...

    def param_groups(self) -> Sequence[ParamGroup]:
        """Return the parameters to train."""
        ...

    def prepare_batch(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        """Return the inputs of the module for a batch; each input can be sliced along the examples."""
        ...

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch, for example freeze or unfreeze layers."""
        ...

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        """Return the loss on the validation split, None if it is empty."""
        ...

    def end_epoch(self, model: nn.Module, epoch: int, run: TrainingRun) -> None:
        """Plot figures, if the stage has any."""
        ...

    def save(self, model: nn.Module, run: TrainingRun) -> None:
        """Save the final model."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run, for display."""

    step: int
    steps: int
    epoch: int
    loss: float
    hours_per_hour: float
    remaining_s: float


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Audio store and examples to train on."""

    store: AudioStore
    examples: ChunkDataset


def run_training(
    make_task: Callable[[tuple[int, int]], TrainingTask],
    settings: OptimisationSettings,
    run: TrainingRun,
    fingerprint: dict[str, Any],
    device: str,
    on_progress: OnProgress,
    *,
    partly_frozen: bool = False,
) -> End:
    """Train a task in a run's folder, or resume it; a finished run stays as it is.

    Args:
        make_task: Build the task for a rank among a number of ranks.
        settings: Settings of the optimisation.
        run: Folder of the run; TrainingError if it began with another fingerprint.
        fingerprint: Every input that affects the trained weights.
        device: `auto`, `cpu` or `cuda`.
        on_progress: Progress callback.
        partly_frozen: Some parameters get no gradient in some steps.
    """
    run.check(fingerprint)
    if run.is_finished:
        return "finished"
    fabric = start_fabric(settings.precision, run, device, partly_frozen=partly_frozen)
    task = make_task((fabric.global_rank, fabric.world_size))
    run.open(fingerprint)
    return train(task, task.training_set, settings, run, fabric, on_progress)


def train(
    task: TrainingTask,
    data: TrainingSet,
    settings: OptimisationSettings,
    run: TrainingRun,
    fabric: Fabric,
    on_progress: OnProgress = lambda progress: None,
) -> End:
    """Train until the last step or a stop signal; the same call resumes a stopped run."""
    batch = min(settings.batch_size, len(data.examples))
    if batch % fabric.world_size:
        raise TrainingError(
            f"A batch of {batch} examples cannot be split evenly over {fabric.world_size} devices. "
            f"Set batch_size to a multiple of {fabric.world_size}, at most {len(data.examples)}."
        )
    sampler = BatchSampler(
        len(data.examples),
        batch,
        settings.seed,
        fabric.global_rank,
        fabric.world_size,
        drop_last=True,
    )
    schedule = Schedule.of(settings, sampler.steps_per_epoch)
    run.folder.mkdir(parents=True, exist_ok=True)
    optimiser = adamw(task.param_groups(), settings)
    module, optimiser = fabric.setup(task.module, optimiser)
    ema = make_ema(task.module, settings.ema_decay) if settings.ema_decay else None
    checkpointed = Checkpointed(fabric, module, optimiser, ema)
    checkpointed.load(run)
    with catch_stop_signals() as stop_signal:
        return _Loop(task, data, settings, run, checkpointed, sampler, schedule, on_progress).execute(
            stop_signal
        )


@dataclass
class _Loop:
    """Training steps of a run."""

    task: TrainingTask
    data: TrainingSet
    settings: OptimisationSettings
    run: TrainingRun
    checkpointed: Checkpointed
    sampler: BatchSampler
    schedule: Schedule
    on_progress: OnProgress
    micro_batch_size: int | None = None

    def __post_init__(self) -> None:
        self.fabric, self.state, self.device = (
            self.checkpointed.fabric,
            self.checkpointed.state,
            self.checkpointed.fabric.device,
        )

    def execute(self, stop_signal: StopSignal) -> End:
        """Train until the last step or a stop signal."""
        if self.fabric.is_global_zero:
            self.run.truncate_after(self.state.step)
        clock = _Clock(self.sampler, self.data.store, self.state.step)
        saved_s = time.monotonic()
        loader = iter_batches(
            self.data.store,
            self.data.examples,
            self.sampler,
            from_step=self.state.step,
            workers=LOADER_THREADS,
        )
        self._begin_epoch()
        for batch in loader:
            step = self.state.step
            if step == self.schedule.steps or self._is_early_stop():
                break
            step_losses = self._step(batch, step)
            is_due = time.monotonic() - saved_s >= self.settings.checkpoint_minutes * 60
            losses, stop, is_due = self._synchronise(step_losses, stop_signal, is_due=is_due)
            self._check(losses, batch, step)
            self.state.step = step = step + 1
            epoch_ends = step % self.sampler.steps_per_epoch == 0
            if epoch_ends or step % REPORT_STEPS == 0:
                self._report(losses, clock.pace(step, self.schedule.steps))
            if epoch_ends:
                self._end_epoch(step // self.sampler.steps_per_epoch - 1)
            if stop or is_due:
                self.checkpointed.save(self.run)
                saved_s = time.monotonic()
            if stop and step < self.schedule.steps:
                return "interrupted" if stop_signal.signal == signal.SIGINT else "stopped"
        loader.close()  # type: ignore[attr-defined]
        self.checkpointed.save(self.run)
        if self.fabric.is_global_zero:
            self.task.save(self._best(), self.run)
        self.fabric.barrier()
        return "finished"

    def _step(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """Run one optimiser step on a batch, in micro-batches that fit the device."""
        rate = self.schedule.apply(self.checkpointed.optimiser.param_groups, step)
        inputs, examples = self.task.prepare_batch(batch, step, self.device), len(batch.examples)
        if self.micro_batch_size is None:
            losses, self.micro_batch_size = self._find_micro_batch(inputs, examples, step)
        else:
            losses = self._forward_backward(inputs, examples, step, self.micro_batch_size)
        if self.settings.grad_clip_norm:
            norm = self.fabric.clip_gradients(
                self.checkpointed.module,
                self.checkpointed.optimiser,
                max_norm=self.settings.grad_clip_norm,
                error_if_nonfinite=False,
            )
            losses["gradient"] = torch.as_tensor(norm).detach()
        self.checkpointed.optimiser.step()
        self.checkpointed.optimiser.zero_grad()
        if self.checkpointed.ema is not None:
            self.checkpointed.ema.update_parameters(self.task.module)
        return {**losses, "lr": torch.tensor(rate)}

    def _forward_backward(
        self, inputs: tuple[Any, ...], examples: int, step: int, micro_batch_size: int
    ) -> dict[str, Tensor]:
        """Accumulate the gradients of a batch over its micro-batches, and return its losses."""
        torch.manual_seed(self.settings.seed * 1_000_003 + step)  # dropout; the same on every device
        sums: dict[str, Tensor] = {}
        for first in range(0, examples, micro_batch_size):
            last = min(first + micro_batch_size, examples)
            is_final = last == examples
            with nullcontext() if is_final else self.fabric.no_backward_sync(self.checkpointed.module):
                losses = self.checkpointed.module(*(item[first:last] for item in inputs))
                fraction = (last - first) / examples
                self.fabric.backward(losses["loss"] * fraction)
            for name, value in losses.items():
                sums[name] = sums.get(name, torch.zeros((), device=self.device)) + value.detach() * fraction
        return sums

    def _find_micro_batch(
        self, inputs: tuple[Any, ...], examples: int, step: int
    ) -> tuple[dict[str, Tensor], int]:
        """Run the first batch, find the largest micro-batch that fits the device, and return its losses and that size.

        A single process keeps the gradients of the successful attempt. Several processes may have different limits: each
        first finds its own, and then all run the batch with the smallest.
        """
        losses_of_batch: dict[str, Tensor] = {}

        def attempt(micro_batch_size: int) -> None:
            buffers = {name: value.clone() for name, value in self.task.module.named_buffers()}
            reserved = self._reserve_memory()
            try:
                if self.fabric.world_size == 1:
                    losses_of_batch.update(self._forward_backward(inputs, examples, step, micro_batch_size))
                else:
                    with self.fabric.autocast():
                        losses = self.task.module(*(item[:micro_batch_size] for item in inputs))
                    self.fabric.backward(losses["loss"])
            finally:
                del reserved
                if not losses_of_batch:
                    for name, value in self.task.module.named_buffers():
                        value.copy_(buffers[name])
                    self.checkpointed.optimiser.zero_grad()

        requested = self.settings.micro_batch_size
        size = find_executable_batch_size(attempt, min(requested or examples, examples))
        size = int(self.fabric.all_reduce(torch.tensor(float(size)), reduce_op="min"))  # type: ignore[arg-type]
        if requested and size < min(requested, examples):
            raise TrainingError(
                f"A micro-batch of {requested} does not fit into the memory of {self.device}; {size} fits. Set "
                f"micro_batch_size to {size}, or remove it: the batch size stays {self.sampler.batch_size} in both cases."
            )
        return losses_of_batch or self._forward_backward(inputs, examples, step, size), size

    def _reserve_memory(self) -> list[Tensor]:
        """Allocate memory in the size of the gradients and, before the first step, of AdamW's moments.

        Later micro-batches run while that memory is in use, so they must fit beside it.
        """
        copies = 1 if self.checkpointed.optimiser.optimizer.state else 3
        groups = self.checkpointed.optimiser.param_groups
        return [torch.empty_like(item) for group in groups for item in group["params"] for _ in range(copies)]

    def _synchronise(
        self, losses: dict[str, Tensor], stop_signal: StopSignal, *, is_due: bool
    ) -> tuple[dict[str, float], bool, bool]:
        """Average the losses over all processes, and return them with two flags: a stop was requested, a save is due.

        This takes one all-reduce. All processes save together, so the clock of the first process decides.
        """
        values = torch.stack([*(value.double().to(self.device) for value in losses.values())])
        is_first = self.fabric.is_global_zero
        flags = [float(stop_signal.signal is not None), float(is_due and is_first)]
        request = torch.tensor(flags, device=self.device, dtype=torch.float64)
        if self.fabric.world_size > 1:
            values, request = self.fabric.all_reduce(torch.cat([values, request])).split([len(losses), 2])  # type: ignore[union-attr]
        stop, is_due = (request > 0).tolist()
        return dict(zip(losses, values.tolist(), strict=True)), stop, is_due

    def _check(self, losses: dict[str, float], batch: Batch, step: int) -> None:
        """Raise TrainingError if the loss or gradient is not finite, naming the chunks in the batch.

        In fp16 gradients can overflow occasionally; the scaler skips such a step.
        """
        ignored = {"gradient"} if self.checkpointed.scaler else set()
        if all(math.isfinite(value) for name, value in losses.items() if name not in ignored):
            return
        locations = self.data.examples.locations(batch.epoch, batch.examples.numpy())
        raise TrainingError(
            f"At step {step} the loss or its gradient is not finite ({losses}). The batch was: "
            f"{'; '.join(describe_chunks(self.data.store, locations))}. The last checkpoint is {self.run.last}. "
            "Check these recordings, or lower the learning rate."
        )

    def _report(self, losses: dict[str, float], pace: Pace) -> None:
        step, epoch = self.state.step, (self.state.step - 1) // self.sampler.steps_per_epoch
        if not self.fabric.is_global_zero:
            return
        self.run.write(
            {"step": step, "epoch": epoch, **losses, "hours_per_hour": round(pace.hours_per_hour, 1)}
        )
        self.fabric.log_dict(losses, step)
        self.on_progress(
            Progress(step, self.schedule.steps, epoch, losses["loss"], pace.hours_per_hour, pace.remaining_s)
        )

    def _begin_epoch(self) -> None:
        self.task.begin_epoch(self.state.step // self.sampler.steps_per_epoch)
        self.checkpointed.module.train()

    def _end_epoch(self, epoch: int) -> None:
        """Validate and plot with the weights that would be saved, then begin the next epoch."""
        model = self._saved_model().eval()
        with torch.no_grad(), self.fabric.autocast():
            loss = self.task.validate(model, self.device)
            if self.fabric.is_global_zero:
                self.task.end_epoch(model, epoch, self.run)
        if loss is not None and self.fabric.is_global_zero:
            self.run.write({"step": self.state.step, "epoch": epoch, "validation_loss": loss})
            self.fabric.log("validation_loss", loss, self.state.step)
        if loss is None and self.settings.early_stopping_patience:
            raise TrainingError(
                "early_stopping_patience needs a validation split, and that of this study is empty: see mast split."
            )
        if loss is not None and loss < self.state.best_loss:
            self.state.best_loss, self.state.best_epoch = loss, epoch
            if self.settings.early_stopping_patience:
                self.state.best = {name: value.clone() for name, value in model.state_dict().items()}
        self._begin_epoch()

    def _is_early_stop(self) -> bool:
        epochs = self.state.step // self.sampler.steps_per_epoch
        patience = self.settings.early_stopping_patience
        return bool(patience) and epochs - 1 - self.state.best_epoch >= patience

    def _saved_model(self) -> nn.Module:
        """Return the model to validate and save: the moving average, if there is one."""
        return self.checkpointed.ema.module if self.checkpointed.ema is not None else self.task.module

    def _best(self) -> nn.Module:
        model = self._saved_model()
        if self.state.best:
            model.load_state_dict(self.state.best)
        return model.eval()


@dataclass(frozen=True, slots=True)
class Pace:
    """Training speed and remaining time."""

    hours_per_hour: float
    remaining_s: float


class _Clock:
    """Training time of this process without the first step, which is slower than all others."""

    def __init__(self, sampler: BatchSampler, store: AudioStore, step: int) -> None:
        self._hours_per_step = (
            sampler.batch_size * store.layout.block_samples / store.layout.sample_rate_hz / 3600
        )
        self._step, self._start_s = step, time.monotonic()
        self._is_warm = False

    def pace(self, step: int, steps: int) -> Pace:
        now_s = time.monotonic()
        step_s = (now_s - self._start_s) / max(1, step - self._step)
        if not self._is_warm:
            self._step, self._start_s, self._is_warm = step, now_s, True
        return Pace(self._hours_per_step * 3600 / max(step_s, 1e-9), step_s * (steps - step))


class StopSignal:
    """The stop signal that the process received, if any."""

    signal: int | None = None


@contextmanager
def catch_stop_signals() -> Iterator[StopSignal]:
    """Record Ctrl-C and SIGTERM, which Slurm and cloud providers send before they stop a machine."""
    stop_signal = StopSignal()

    def record(number: int, frame: object) -> None:
        stop_signal.signal = number

    before = {number: signal.signal(number, record) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe_chunks(store: AudioStore, locations: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
    """Return the recording and the start in seconds of each location in a store, for messages."""
    first_rows = store.recordings["first_row"].to_numpy()
    names = store.recordings["recording_id"]
    row = np.searchsorted(first_rows, locations[:, 0], side="right") - 1
    start_s = locations[:, 1] / store.layout.sample_rate_hz
    return [f"{names[int(item)]} at {second:.2f} s" for item, second in zip(row, start_s, strict=True)]
