"""Train the detector that ships with MAST in the endless training world.

    python -m experiments.starter.train DATA OUT --steps 10000

The run resumes after any interruption. The learning rate is constant until the last part of the run, where it falls to
0. The checkpoint before that fall is kept, so a finished run can be continued with more `--steps`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import start_processes
from torch.optim.swa_utils import AveragedModel

from experiments.starter.pretrained import load_pretrained
from experiments.starter.sources import Clip, read_clips
from experiments.starter.validation import measure, validation_examples
from experiments.starter.world import ALL, Ingredients, World
from mast.config import Chunking, Spectrogram, Train
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.conv_encoder import ConvEncoder, ConvEncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import build_detector
from mast.normalisation import Normalisation, band_medians
from mast.training.assignment import assign
from mast.training.initialisation import LEAN_WIDTHS
from mast.training.losses import detection_loss
from mast.training.optimiser import ParamGroup, adamw, make_ema

CHUNK_S = 5.12
"""Half the chunk of detection: the network reads any number of frames, and more scenes are seen in the same time."""

WARMUP_STEPS, DECAY_FRACTION = 300, 0.2
LEVELS = 4
SETTINGS = Train(lr=1e-3, weight_decay=0.02, grad_clip_norm=5.0, ema_decay=0.9995)
STATISTICS_EXAMPLES = 256
CHECKPOINT_STEPS, REPORT_STEPS = 100, 20
VALIDATION_SEED = 1

LICENCE = "Apache-2.0; trained on recordings under CC0, CC BY, CC BY-SA, MIT and Apache-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run that change its result."""

    encoder: str = "efficientnet_lite0"
    start: str = "pretrained"
    seed: int = 0
    batch_size: int = 32
    ingredients: Ingredients = ALL


class Trainer:
    """One process of a run: network, optimiser, moving average and step; the first process writes the files.

    Every process mixes its own examples and computes with one thread. Two such processes train almost twice as fast as
    one process with two threads, and other work on the machine slows them down less.
    """

    def __init__(
        self,
        clips: Sequence[Clip],
        folder: Path,
        options: Options,
        steps: int,
        yamnet: Path | None,
        ranks: tuple[int, int] = (0, 1),
    ) -> None:
        self.rank, self.world_size = ranks
        torch.manual_seed(options.seed)
        self.folder, self.options, self.steps = folder, options, steps
        folder.mkdir(parents=True, exist_ok=True)
        self.world = World(
            [clip for clip in clips if clip.part == "train"], CHUNK_S, options.seed, options.ingredients
        )
        self.clips = clips
        encoder = ConvEncoder(ConvEncoderShape(options.encoder))
        if options.start == "pretrained":
            load_pretrained(encoder, yamnet if options.encoder == "yamnet" else None)
        self.architecture: dict[str, Any] = {
            "encoder": asdict(encoder.shape),
            "levels": LEVELS,
            **LEAN_WIDTHS,
        }
        self.detector = build_detector(self.architecture, encoder)
        self.detector.to(memory_format=torch.channels_last)
        self.optimiser = adamw([ParamGroup(tuple(self.detector.parameters()))], SETTINGS)
        self.ema: AveragedModel = make_ema(self.detector, SETTINGS.ema_decay)
        self.step = 0
        self._load()
        self.normalisation = self._normalisation()
        self.frontend = FrontEnd(Chunking(chunk_s=CHUNK_S), Spectrogram(), self.normalisation)

    def train(self, validate_steps: int) -> None:
        """Train until the last step; validate and save the model every `validate_steps` steps."""
        started_s, started_step = time.monotonic(), self.step
        self.detector.train()
        while self.step < self.steps:
            losses = self._train_step()
            self.step += 1
            if self.rank:
                continue
            if self.step % REPORT_STEPS == 0:
                step_s = (time.monotonic() - started_s) / (self.step - started_step)
                self._write({**losses, "step_s": round(step_s, 3)})
                left_h = (self.steps - self.step) * step_s / 3600
                print(
                    f"step {self.step}/{self.steps}  loss {losses['loss']:.3f}  {left_h:.1f} h left",
                    flush=True,
                )
            if self.step == self._decay_start():
                self._save("stable.ckpt")
            if self.step % CHECKPOINT_STEPS == 0 or self.step == self.steps:
                self._save("last.ckpt")
            if self.step % validate_steps == 0 or self.step == self.steps:
                self.validate()

    def validate(self) -> None:
        """Measure the moving average in the validation world, and save it as a model with its threshold."""
        network: Any = self.ema.module
        info = ModelInfo(
            kind="detector",
            architecture=self.architecture,
            spectrogram=Spectrogram(),
            chunking=Chunking(),
            normalisation=self.normalisation,
            licence=LICENCE,
            source=f"experiments.starter.train, {self.step} steps, from {self.options.start} weights",
        )
        results = measure(info, network.eval(), validation_examples(self.clips))
        self._write({"validation": results})
        print(f"step {self.step}  validation {results}", flush=True)
        thresholds = {"score": results["threshold"], "nms_iou_threshold": 0.5}
        tensors = network.state_dict()
        described = replace(info, thresholds=thresholds, results=dict(results))
        save_model(str(self.folder / "model"), described, tensors)

    def _train_step(self) -> dict[str, float]:
        first = self.step * self.options.batch_size
        numbers = range(first + self.rank, first + self.options.batch_size, self.world_size)
        audio, boxes = _collate([self.world[number] for number in numbers])
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak_lr"] * self._rate()
        spec = self.frontend(audio, torch.full((len(audio),), audio.shape[1]))
        output = self.detector(spec)
        targets = assign(boxes, output.locations)
        terms = detection_loss(output, targets, torch.ones(len(boxes)), "quality")
        loss = terms["classification"] + terms["giou"] + terms["centerness"]
        loss.backward()  # type: ignore[no-untyped-call]
        self._average_gradients()
        norm = nn.utils.clip_grad_norm_(self.detector.parameters(), SETTINGS.grad_clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if not self.rank:
            self.ema.update_parameters(self.detector)
        values = {name: round(float(term.detach()), 4) for name, term in terms.items()}
        return {"loss": round(float(loss.detach()), 4), **values, "gradient": round(float(norm), 3)}

    def _average_gradients(self) -> None:
        """Replace the gradients of every process by their mean."""
        if self.world_size == 1:
            return
        gradients = [item.grad for item in self.detector.parameters() if item.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, mean in zip(gradients, torch.split(flat.div_(self.world_size), sizes), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def _rate(self) -> float:
        """Return the learning rate of this step as a fraction of its peak."""
        if self.step < WARMUP_STEPS:
            return (self.step + 1) / WARMUP_STEPS
        left = (self.steps - self.step) / max(1, self.steps - self._decay_start())
        return min(1.0, left)

    def _decay_start(self) -> int:
        return round(self.steps * (1 - DECAY_FRACTION))

    @torch.no_grad()
    def _normalisation(self) -> Normalisation:
        """Measure the deviation from the band medians in the world, once for a run."""
        path = self.folder / "normalisation.json"
        if path.exists():
            return Normalisation.from_json(path.read_text())
        frontend = FrontEnd(
            Chunking(chunk_s=CHUNK_S), Spectrogram(), Normalisation("band-median", 0.0, 1.0, 1.0)
        )
        specs = []
        for number in range(STATISTICS_EXAMPLES):
            audio, _ = self.world[number]
            specs.append(frontend.log_mel(audio[None], torch.tensor([len(audio)]))[..., :-2])
        spec = torch.cat(specs)
        deviation = float((spec - band_medians(spec)).square().mean().sqrt())
        normalisation = Normalisation("band-median", float(spec.mean()), float(spec.std()), deviation)
        if not self.rank:
            path.write_text(normalisation.to_json())
        return normalisation

    def _save(self, name: str) -> None:
        state = {
            "model": self.detector.state_dict(),
            "mean": self.ema.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
        }
        partial = self.folder / f"{name}.partial"
        torch.save(state, partial)
        partial.replace(self.folder / name)

    def _load(self) -> None:
        """Resume from the last checkpoint, or from the one before the learning rate fell if there are more steps now."""
        for name in ("last.ckpt", "stable.ckpt"):
            path = self.folder / name
            if not path.exists():
                continue
            state = torch.load(path, weights_only=True)
            if (
                name == "last.ckpt"
                and (self.folder / "stable.ckpt").exists()
                and self._was_finished(state["step"])
            ):
                continue
            self.detector.load_state_dict(state["model"])
            self.ema.load_state_dict(state["mean"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step = state["step"]
            return

    def _was_finished(self, step: int) -> bool:
        """Return True if the learning rate fell for a shorter run than this one."""
        stable = int(torch.load(self.folder / "stable.ckpt", weights_only=True)["step"])
        return step > stable and stable < self._decay_start()

    def _write(self, record: dict[str, Any]) -> None:
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": self.step, **record}) + "\n")


def _collate(examples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[Tensor]]:
    return torch.stack([audio for audio, _ in examples]), [boxes for _, boxes in examples]


def run_process(rank: int, clips: Sequence[Clip], options: argparse.Namespace) -> None:
    """Train in one of `options.processes` processes."""
    torch.set_num_threads(1)
    if options.processes > 1:
        store = f"file://{options.out.absolute()}/processes"
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=options.processes)
    ingredients = Ingredients(**{name: getattr(options, name) for name in Ingredients.__dataclass_fields__})
    chosen = Options(
        encoder=options.encoder,
        start=options.start,
        seed=options.seed,
        batch_size=options.batch_size,
        ingredients=ingredients,
    )
    ranks = (rank, options.processes)
    trainer = Trainer(clips, options.out, chosen, options.steps, options.yamnet, ranks)
    trainer.train(options.validate_steps)


def main() -> None:
    """Train, or resume training."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of recordings, one folder a source")
    parser.add_argument("out", type=Path, help="folder of the run")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--encoder", default="efficientnet_lite0", choices=["efficientnet_lite0", "yamnet"])
    parser.add_argument("--start", default="pretrained", choices=["pretrained", "random"])
    parser.add_argument("--yamnet", type=Path, help="file with YAMNet's layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="number of processes"
    )
    parser.add_argument("--validate-steps", type=int, default=500)
    for name in Ingredients.__dataclass_fields__:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(ALL, name))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "processes").unlink(missing_ok=True)
    clips = read_clips(options.data)
    start_processes(  # type: ignore[no-untyped-call]
        run_process, (clips, options), options.processes, start_method="fork"
    )


if __name__ == "__main__":
    main()
