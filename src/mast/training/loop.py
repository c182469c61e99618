"""The one training loop: what pretraining, detection and self-training share.

Everything random follows from the seed and the step, so the state to go on from is weights, optimiser and a number;
a run that was killed goes on with the same command and ends with the very same weights.
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

from mast.config import Optimisation
from mast.datasets.loading import Batch, Examples, batches
from mast.datasets.order import Order
from mast.errors import TrainingError
from mast.recordings.store import AudioStore
from mast.training.fitting import largest_that_fits
from mast.training.optimiser import Group, Schedule, adamw, running_mean
from mast.training.run import Run
from mast.training.state import Parts

if TYPE_CHECKING:
    from lightning_fabric import Fabric

READERS = 2
"""Threads that read ahead."""

REPORT_STEPS = 10
"""A line of metrics is written after so many steps, and at the end of each epoch."""

End = Literal["finished", "stopped", "interrupted"]


class Recipe(Protocol):
    """What a stage adds to the loop.

    `module` takes `inputs` and gives losses by name, each a mean over its examples; `loss` is the one to lower.
    """

    @property
    def module(self) -> nn.Module:
        """What learns."""
        ...

    def groups(self) -> Sequence[Group]:
        """Parameters to learn."""
        ...

    def inputs(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        """What the module takes of a batch; each item can be cut along the examples."""
        ...

    def begin_epoch(self, epoch: int) -> None:
        """Make ready for an epoch: freeze, thaw, or nothing."""
        ...

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        """Loss on sound kept for validation, or None where there is none."""
        ...

    def end_epoch(self, model: nn.Module, epoch: int, run: Run) -> None:
        """Draw pictures, or nothing."""
        ...

    def save(self, model: nn.Module, run: Run) -> None:
        """Write the finished model."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, for a person who watches."""

    step: int
    steps: int
    epoch: int
    loss: float
    hours_per_hour: float
    remaining_s: float


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Sound:
    """What to learn from."""

    store: AudioStore
    examples: Examples


def train(
    recipe: Recipe,
    sound: Sound,
    settings: Optimisation,
    run: Run,
    fabric: Fabric,
    on_progress: OnProgress = lambda progress: None,
) -> End:
    """Run a recipe to its end, or until it is told to stop; the same call goes on where it stopped."""
    batch = min(settings.batch, len(sound.examples))
    if batch % fabric.world_size:
        raise TrainingError(
            f"A batch of {batch} cannot be shared out evenly over {fabric.world_size} devices. "
            f"Set batch to a multiple of {fabric.world_size}, not above {len(sound.examples)}."
        )
    order = Order(
        len(sound.examples),
        batch,
        settings.seed,
        fabric.global_rank,
        fabric.world_size,
        whole_batches=True,
    )
    schedule = Schedule.of(settings, order.steps_per_epoch)
    run.folder.mkdir(parents=True, exist_ok=True)
    optimiser = adamw(recipe.groups(), settings)
    module, optimiser = fabric.setup(recipe.module, optimiser)
    mean = running_mean(recipe.module, settings.ema_decay) if settings.ema_decay else None
    parts = Parts(fabric, module, optimiser, mean)
    parts.load(run)
    with told_to_stop() as told:
        return _Loop(recipe, sound, settings, run, parts, order, schedule, on_progress).go(told)


@dataclass
class _Loop:
    """The steps of a run."""

    recipe: Recipe
    sound: Sound
    settings: Optimisation
    run: Run
    parts: Parts
    order: Order
    schedule: Schedule
    on_progress: OnProgress
    portion: int | None = None

    def __post_init__(self) -> None:
        self.fabric, self.state, self.device = self.parts.fabric, self.parts.state, self.parts.fabric.device

    def go(self, told: Told) -> End:
        """Steps until the end, or until someone says stop."""
        if self.fabric.is_global_zero:
            self.run.forget_after(self.state.step)
        clock = _Clock(self.order, self.sound.store, self.state.step)
        saved_s = time.monotonic()
        loader = batches(
            self.sound.store, self.sound.examples, self.order, from_step=self.state.step, workers=READERS
        )
        self._begin_epoch()
        for batch in loader:
            step = self.state.step
            if step == self.schedule.steps or self._is_patience_over():
                break
            taken = self._step(batch, step)
            is_due = time.monotonic() - saved_s >= self.settings.checkpoint_minutes * 60
            losses, stop, is_due = self._agreed(taken, told, is_due=is_due)
            self._check(losses, batch, step)
            self.state.step = step = step + 1
            epoch_ends = step % self.order.steps_per_epoch == 0
            if epoch_ends or step % REPORT_STEPS == 0:
                self._report(losses, clock.pace(step, self.schedule.steps))
            if epoch_ends:
                self._end_epoch(step // self.order.steps_per_epoch - 1)
            if stop or is_due:
                self.parts.save(self.run)
                saved_s = time.monotonic()
            if stop and step < self.schedule.steps:
                return "interrupted" if told.signal == signal.SIGINT else "stopped"
        loader.close()  # type: ignore[attr-defined]
        self.parts.save(self.run)
        if self.fabric.is_global_zero:
            self.recipe.save(self._best(), self.run)
        self.fabric.barrier()
        return "finished"

    def _step(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """Learn from one batch, in portions that fit the device."""
        rate = self.schedule.apply(self.parts.optimiser.param_groups, step)
        inputs, examples = self.recipe.inputs(batch, step, self.device), len(batch.examples)
        if self.portion is None:
            losses, self.portion = self._learn_first(inputs, examples, step)
        else:
            losses = self._learn(inputs, examples, step, self.portion)
        if self.settings.clip:
            norm = self.fabric.clip_gradients(
                self.parts.module, self.parts.optimiser, max_norm=self.settings.clip, error_if_nonfinite=False
            )
            losses["gradient"] = torch.as_tensor(norm).detach()
        self.parts.optimiser.step()
        self.parts.optimiser.zero_grad()
        if self.parts.mean is not None:
            self.parts.mean.update_parameters(self.recipe.module)
        return {**losses, "lr": torch.tensor(rate)}

    def _learn(self, inputs: tuple[Any, ...], examples: int, step: int, portion: int) -> dict[str, Tensor]:
        """Gradients of a batch, summed over its portions, and its losses."""
        torch.manual_seed(self.settings.seed * 1_000_003 + step)  # dropout; the same on every device
        sums: dict[str, Tensor] = {}
        for first in range(0, examples, portion):
            last = min(first + portion, examples)
            is_final = last == examples
            with nullcontext() if is_final else self.fabric.no_backward_sync(self.parts.module):
                losses = self.parts.module(*(item[first:last] for item in inputs))
                share = (last - first) / examples
                self.fabric.backward(losses["loss"] * share)
            for name, value in losses.items():
                sums[name] = sums.get(name, torch.zeros((), device=self.device)) + value.detach() * share
        return sums

    def _learn_first(
        self, inputs: tuple[Any, ...], examples: int, step: int
    ) -> tuple[dict[str, Tensor], int]:
        """What `_learn` gives of a first batch, and how many examples the device holds at once, which this finds out.

        One process learns as it tries. Of many, some may fit what others do not: all try by themselves before they learn
        together.
        """
        learned: dict[str, Tensor] = {}

        def attempt(portion: int) -> None:
            buffers = {name: value.clone() for name, value in self.recipe.module.named_buffers()}
            room = self._kept_room()
            try:
                if self.fabric.world_size == 1:
                    learned.update(self._learn(inputs, examples, step, portion))
                else:
                    with self.fabric.autocast():
                        losses = self.recipe.module(*(item[:portion] for item in inputs))
                    self.fabric.backward(losses["loss"])
            finally:
                del room
                if not learned:
                    for name, value in self.recipe.module.named_buffers():
                        value.copy_(buffers[name])
                    self.parts.optimiser.zero_grad()

        asked = self.settings.device_batch
        found = largest_that_fits(attempt, min(asked or examples, examples))
        found = int(self.fabric.all_reduce(torch.tensor(float(found)), reduce_op="min"))  # type: ignore[arg-type]
        if asked and found < min(asked, examples):
            raise TrainingError(
                f"{asked} examples at once do not fit into the memory of {self.device}; {found} do. "
                f"Set device_batch to {found}, or leave it out: the batch stays {self.order.batch} either way."
            )
        return learned or self._learn(inputs, examples, step, found), found

    def _kept_room(self) -> list[Tensor]:
        """Memory that later portions find taken: gradients of those before, and AdamW's moments after its first step."""
        copies = 1 if self.parts.optimiser.optimizer.state else 3
        groups = self.parts.optimiser.param_groups
        return [torch.empty_like(item) for group in groups for item in group["params"] for _ in range(copies)]

    def _agreed(
        self, losses: dict[str, Tensor], told: Told, *, is_due: bool
    ) -> tuple[dict[str, float], bool, bool]:
        """Losses averaged over all devices, whether any was told to stop, and whether a save is due, in one exchange.

        All save together, so one clock decides: that of the first process.
        """
        values = torch.stack([*(value.double().to(self.device) for value in losses.values())])
        is_first = self.fabric.is_global_zero
        marks = [float(told.signal is not None), float(is_due and is_first)]
        said = torch.tensor(marks, device=self.device, dtype=torch.float64)
        if self.fabric.world_size > 1:
            values, said = self.fabric.all_reduce(torch.cat([values, said])).split([len(losses), 2])  # type: ignore[union-attr]
        stop, is_due = (said > 0).tolist()
        return dict(zip(losses, values.tolist(), strict=True)), stop, is_due

    def _check(self, losses: dict[str, float], batch: Batch, step: int) -> None:
        """Stop where numbers have left the realm of sense, and say which sound did it.

        In fp16 gradients may overflow now and then; the scaler leaves such a step out.
        """
        ignored = {"gradient"} if self.parts.scaler else set()
        if all(math.isfinite(value) for name, value in losses.items() if name not in ignored):
            return
        places = self.sound.examples.places(batch.epoch, batch.examples.numpy())
        raise TrainingError(
            f"At step {step} the loss or its gradient is no number ({losses}). The batch was: "
            f"{'; '.join(heard(self.sound.store, places))}. The last good state is {self.run.last}; "
            "look at these recordings, or lower the learning rate."
        )

    def _report(self, losses: dict[str, float], pace: Pace) -> None:
        step, epoch = self.state.step, (self.state.step - 1) // self.order.steps_per_epoch
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
        self.recipe.begin_epoch(self.state.step // self.order.steps_per_epoch)
        self.parts.module.train()

    def _end_epoch(self, epoch: int) -> None:
        """Validate and draw with the model that would be kept, then go on to the next epoch."""
        model = self._kept().eval()
        with torch.no_grad(), self.fabric.autocast():
            loss = self.recipe.validate(model, self.device)
            if self.fabric.is_global_zero:
                self.recipe.end_epoch(model, epoch, self.run)
        if loss is not None and self.fabric.is_global_zero:
            self.run.write({"step": self.state.step, "epoch": epoch, "validation_loss": loss})
            self.fabric.log("validation_loss", loss, self.state.step)
        if loss is None and self.settings.patience_epochs:
            raise TrainingError(
                "patience_epochs needs sound for validation, and this study has none: see mast splits."
            )
        if loss is not None and loss < self.state.best_loss:
            self.state.best_loss, self.state.best_epoch = loss, epoch
            if self.settings.patience_epochs:
                self.state.best = {name: value.clone() for name, value in model.state_dict().items()}
        self._begin_epoch()

    def _is_patience_over(self) -> bool:
        epochs = self.state.step // self.order.steps_per_epoch
        patience = self.settings.patience_epochs
        return bool(patience) and epochs - 1 - self.state.best_epoch >= patience

    def _kept(self) -> nn.Module:
        """The weights to validate and keep: the running mean where there is one."""
        return self.parts.mean.module if self.parts.mean is not None else self.recipe.module

    def _best(self) -> nn.Module:
        model = self._kept()
        if self.state.best:
            model.load_state_dict(self.state.best)
        return model.eval()


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a run goes."""

    hours_per_hour: float
    remaining_s: float


class _Clock:
    """Time since this process began to learn, without the first step, which is slower than all others."""

    def __init__(self, order: Order, store: AudioStore, step: int) -> None:
        self._hours_a_step = order.batch * store.layout.step_samples / store.layout.sample_rate_hz / 3600
        self._step, self._start_s = step, time.monotonic()
        self._is_warm = False

    def pace(self, step: int, steps: int) -> Pace:
        now_s = time.monotonic()
        step_s = (now_s - self._start_s) / max(1, step - self._step)
        if not self._is_warm:
            self._step, self._start_s, self._is_warm = step, now_s, True
        return Pace(self._hours_a_step * 3600 / max(step_s, 1e-9), step_s * (steps - step))


class Told:
    """Which signal has asked to stop, if any."""

    signal: int | None = None


@contextmanager
def told_to_stop() -> Iterator[Told]:
    """Take note of Ctrl-C, and of SIGTERM, with which Slurm and clouds announce that a machine is taken away."""
    told = Told()

    def note(number: int, frame: object) -> None:
        told.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def heard(store: AudioStore, places: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
    """Recordings and seconds of places in a store, for a person to look at."""
    first_rows = store.recordings["first_row"].to_numpy()
    names = store.recordings["recording_id"]
    of = np.searchsorted(first_rows, places[:, 0], side="right") - 1
    start_s = places[:, 1] / store.layout.sample_rate_hz
    return [f"{names[int(item)]} at {second:.2f} s" for item, second in zip(of, start_s, strict=True)]
