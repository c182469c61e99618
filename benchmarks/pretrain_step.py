"""Compare a step of `mast pretrain`, from the store to the updated weights, with a minimal loop over tensors in memory.

    python -m benchmarks.pretrain_step             writes benchmarks/results/pretrain_step.json
    python -m benchmarks.pretrain_step --small     a small version

The minimal loop uses the same masked autoencoder built from timm: its patch embedding over the complete spectrogram, its
blocks with its default attention, and the same decoder; spectrograms are random, normalised and in memory, masks are
computed before. The real loop reads audio, computes log-mel spectrograms and masks, checks its losses and writes its
metrics. Both alternate in one process; medians count, and for hours of audio per hour the best step.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
import torch
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.results import FOLDER, write_result
from mast.config import Study, load_study
from mast.models.encoder import LayerNorm
from mast.models.mae import MaskedAutoencoder, reconstruction_loss
from mast.models.masking import Mask, noise, structured_mask
from mast.store.audio_store import AudioStore
from mast.training.fabric import start_fabric
from mast.training.loop import Progress, train
from mast.training.pretrain import PretrainTask, initial_model
from mast.training.run_dir import TrainingRun

PACKAGES = ("mast-bioacoustics", "torch", "timm", "lightning-fabric", "pylance")
CHUNK_S, RATE_HZ, FRAMES, BINS = 10.24, 16_000, 1024, 128
THREADS = 2
"""Number of cores of the benchmark machine, which must be idle otherwise."""


@dataclass(frozen=True)
class Size:
    """Extent of the benchmark; a round is `steps` steps of each loop."""

    models: tuple[str, ...]
    batch: int
    rounds: int
    steps: int


FULL = Size(("tiny", "small"), batch=32, rounds=6, steps=2)
SMALL = Size(("tiny",), batch=4, rounds=1, steps=2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="two steps of the tiny model")
    parser.add_argument("--out", type=Path, default=FOLDER / "pretrain_step.json")
    options = parser.parse_args()
    size = SMALL if options.small else FULL
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory(prefix="mast-step-") as temporary:
        file = prepared_study(Path(temporary), size)
        measured = {name: measure(file, name, size) for name in size.models}
        base = size_of_base(load_study(file, ["model.size=base"]))
    metrics = {key: {name: measured[name][key] for name in measured} for key in measured[size.models[0]]}
    for key, value in base.items():
        metrics[key]["base"] = value
    settings = {"batch": size.batch, "threads": THREADS, "rounds": size.rounds, "steps_per_round": size.steps}
    write_result(options.out, {**metrics, **settings, "precision": "bf16", "decoder": "swin"}, PACKAGES)
    print(options.out.read_text())


def prepared_study(folder: Path, size: Size) -> Path:
    """Prepare a study of noise for one round of steps, with the defaults of pretraining; return its file."""
    from mast.cli import app

    card = folder / "card"
    card.mkdir()
    audio = np.random.default_rng(0).normal(0, 2000, round(CHUNK_S * RATE_HZ) * size.batch)
    for number in range(size.steps):
        soundfile.write(card / f"20240101_{number:06}.wav", np.roll(audio, number).astype(np.int16), RATE_HZ)
    study = folder / "study.yaml"
    study.write_text(json.dumps({"collections": {"card": {"root": "card", "time_zone": "UTC"}}}))
    for command in ("scan", "split", "prepare"):
        with redirect_stdout(io.StringIO()):
            app([command, str(study)], standalone_mode=False)
    return study


def measure(file: Path, model: str, size: Size) -> dict[str, float]:
    """Return the step times of both loops for a model size, measured alternately."""
    overrides = {
        "model.size": model,
        "pretrain.batch_size": size.batch,
        "pretrain.epochs": size.rounds + 1,
        "pretrain.precision": "bf16",
        "pretrain.checkpoint_minutes": 1000,
    }
    study = load_study(file, [f"{name}={value}" for name, value in overrides.items()])
    run = TrainingRun(file.parent / model)
    task = PretrainTask(study, AudioStore(f"{study.work_dir}/audio.lance"))
    alternation = Alternation(BareLoop(task.module.model, study, size.batch), size.steps)
    end = train(task, task.training_set, study.pretrain, run, start_fabric("bf16", run, "cpu"), alternation)
    if end != "finished":
        sys.exit("stopped by a signal")
    real_s, bare_s = (
        statistics.median(values) / size.steps for values in (alternation.real_s, alternation.bare_s)
    )
    best_s = min(alternation.real_s) / size.steps
    real_cpu_s, bare_cpu_s = map(statistics.median, (alternation.real_cpu_s, alternation.bare_cpu_s))
    return {
        "ratio_to_bare": round(real_s / bare_s, 3),
        "cpu_ratio_to_bare": round(real_cpu_s / bare_cpu_s, 3),
        "step_s": round(real_s, 3),
        "bare_step_s": round(bare_s, 3),
        "audio_hours_per_hour": round(size.batch * CHUNK_S / best_s),
        "parameters": sum(parameter.numel() for parameter in task.module.parameters()),
        "forward_gmac_per_chunk": round(forward_gmac(task.module.model, study), 2),
    }


def size_of_base(study: Study) -> dict[str, float]:
    """Return the size and cost of the largest model, without timing it."""
    _, model = initial_model(study, AudioStore(f"{study.work_dir}/audio.lance"))
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "forward_gmac_per_chunk": round(forward_gmac(model, study), 2),
    }


def forward_gmac(model: MaskedAutoencoder, study: Study) -> float:
    """Return the multiplications of a chunk's forward pass, in billions; a training step takes about three times that."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, BINS, FRAMES), masks(study, 1))
    return float(counter.get_total_flops() / 2e9)


def masks(study: Study, examples: int) -> Mask:
    settings, frames, bands = study.pretrain, FRAMES // 16, BINS // 16
    noises = noise(0, 0, examples, frames), noise(0, 1, examples, bands)
    return structured_mask(*noises, settings.mask_ratio_time, settings.mask_ratio_freq)


@dataclass
class Alternation:
    """Progress callback of the real loop: after each round, record its time, then run the minimal loop for a round."""

    bare: BareLoop
    steps: int
    real_s: list[float] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    real_cpu_s: list[float] = field(default_factory=list)
    bare_cpu_s: list[float] = field(default_factory=list)
    started: tuple[float, float] | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.step % self.steps:
            return
        ended = now_s()
        self.bare.run(self.steps)
        bare_ended = now_s()
        if self.started:  # the first round is the warm-up
            self.real_s.append(ended[0] - self.started[0])
            self.real_cpu_s.append(ended[1] - self.started[1])
            self.bare_s.append(bare_ended[0] - ended[0])
            self.bare_cpu_s.append(bare_ended[1] - ended[1])
        self.started = now_s()


def now_s() -> tuple[float, float]:
    """Return the wall-clock time and the processor time of this process."""
    return time.perf_counter(), time.process_time()


class BareLoop:
    """A minimal training loop: a model, autocast, AdamW, gradient clipping."""

    def __init__(self, reference: MaskedAutoencoder, study: Study, batch: int) -> None:
        settings = study.pretrain
        self.model, self.clip = BareAutoencoder(reference, settings.seed), settings.grad_clip_norm
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), settings.lr, settings.betas, weight_decay=settings.weight_decay
        )
        self.spec = torch.randn(batch, BINS, FRAMES)
        self.mask = masks(study, batch)

    def run(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16):
                reconstruction = self.model(self.spec, self.mask)
                loss = reconstruction_loss(reconstruction, self.spec, self.mask, norm_pix_loss=True).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimiser.step()
            self.optimiser.zero_grad()


class BareAutoencoder(nn.Module):
    """A masked autoencoder built from timm: all patches are embedded, then the visible ones are selected."""

    pos_embed: Tensor

    def __init__(self, reference: MaskedAutoencoder, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        shape = reference.encoder.shape
        self.patch_embed = PatchEmbed((FRAMES, BINS), 16, 1, shape.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.register_buffer("pos_embed", reference.encoder.pos_embed.clone())
        blocks = (
            Block(shape.width, shape.heads, qkv_bias=True, norm_layer=LayerNorm) for _ in range(shape.depth)
        )
        self.blocks = nn.Sequential(*blocks)
        self.norm = LayerNorm(shape.width)
        self.decoder = type(reference.decoder)(reference.decoder.shape, shape, FRAMES)

    def forward(self, spec: Tensor, mask: Mask) -> Tensor:
        """(B, F, T) → (B, N, 16 · 16)"""
        tokens = self.patch_embed(spec.transpose(1, 2)[:, None]) + self.pos_embed[:, 1:]  # (B, N, C)
        visible = tokens.gather(1, mask.ids_keep[:, :, None].expand(-1, -1, tokens.shape[-1]))  # (B, K, C)
        first = (self.cls_token + self.pos_embed[:, :1]).expand(len(spec), -1, -1)
        encoded = self.norm(self.blocks(torch.cat([first, visible], dim=1)))
        reconstruction: Tensor = self.decoder(encoded, mask)
        return reconstruction


if __name__ == "__main__":
    main()
