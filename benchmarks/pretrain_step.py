"""A step of `mast pretrain`, from the store to the changed weights, against a bare loop over tensors in memory.

    python -m benchmarks.pretrain_step             writes benchmarks/results/pretrain_step.json
    python -m benchmarks.pretrain_step --small     a small version

Bare is the same masked autoencoder out of timm's parts: its patch embedding over the whole picture, its blocks with its
own choice of attention, and the same decoder; pictures are random, normalised and in memory, masks are made before. The
real loop reads sound, makes log-mel pictures and masks, checks its losses and writes its metrics. Both take turns in one
process; medians count, and for hours of sound an hour the best step.
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
from mast.models.masking import Mask, hide_moments_and_bands, noise
from mast.recordings.store import AudioStore
from mast.training.devices import start_fabric
from mast.training.loop import Progress, train
from mast.training.pretrain import PretrainRecipe, starting_model
from mast.training.run import Run

PACKAGES = ("mast-bioacoustics", "torch", "timm", "lightning-fabric", "pylance")
CHUNK_S, RATE_HZ, FRAMES, BINS = 10.24, 16_000, 1024, 128
THREADS = 2
"""The cores of the machine that is measured on; it must have nothing else to do."""


@dataclass(frozen=True)
class Size:
    """How much is measured; a round is so many steps of each loop."""

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
        found = {name: measure(file, name, size) for name in size.models}
        base = size_of_base(load_study(file, ["model.size=base"]))
    figures = {key: {name: found[name][key] for name in found} for key in found[size.models[0]]}
    for key, value in base.items():
        figures[key]["base"] = value
    settings = {"batch": size.batch, "threads": THREADS, "rounds": size.rounds, "steps_a_round": size.steps}
    write_result(options.out, {**figures, **settings, "precision": "bf16", "decoder": "swin"}, PACKAGES)
    print(options.out.read_text())


def prepared_study(folder: Path, size: Size) -> Path:
    """Noise enough for a round of steps, as a prepared study with the defaults of pretraining. → its file"""
    from mast.cli import app

    card = folder / "card"
    card.mkdir()
    sound = np.random.default_rng(0).normal(0, 2000, round(CHUNK_S * RATE_HZ) * size.batch)
    for number in range(size.steps):
        soundfile.write(card / f"20240101_{number:06}.wav", np.roll(sound, number).astype(np.int16), RATE_HZ)
    study = folder / "study.yaml"
    study.write_text(json.dumps({"collections": {"card": {"root": "card", "time_zone": "UTC"}}}))
    for verb in ("scan", "splits", "prepare"):
        with redirect_stdout(io.StringIO()):
            app([verb, str(study)], standalone_mode=False)
    return study


def measure(file: Path, model: str, size: Size) -> dict[str, float]:
    """Step times of both loops for a size of model, in turns."""
    chosen = {
        "model.size": model,
        "pretrain.batch": size.batch,
        "pretrain.epochs": size.rounds + 1,
        "pretrain.precision": "bf16",
        "pretrain.checkpoint_minutes": 1000,
    }
    study = load_study(file, [f"{name}={value}" for name, value in chosen.items()])
    run = Run(file.parent / model)
    recipe = PretrainRecipe(study, AudioStore(f"{study.work}/audio.lance"))
    turns = Turns(BareLoop(recipe.module.model, study, size.batch), size.steps)
    end = train(recipe, recipe.sound, study.pretrain, run, start_fabric("bf16", run, "cpu"), turns)
    if end != "finished":
        sys.exit("told to stop")
    real_s, bare_s = (statistics.median(values) / size.steps for values in (turns.real_s, turns.bare_s))
    best_s = min(turns.real_s) / size.steps
    real_cpu_s, bare_cpu_s = map(statistics.median, (turns.real_cpu_s, turns.bare_cpu_s))
    return {
        "ratio_to_bare": round(real_s / bare_s, 3),
        "cpu_ratio_to_bare": round(real_cpu_s / bare_cpu_s, 3),
        "step_s": round(real_s, 3),
        "bare_step_s": round(bare_s, 3),
        "audio_hours_per_hour": round(size.batch * CHUNK_S / best_s),
        "parameters": sum(item.numel() for item in recipe.module.parameters()),
        "forward_gmac_per_chunk": round(forward_gmac(recipe.module.model, study), 2),
    }


def size_of_base(study: Study) -> dict[str, float]:
    """What the largest model would take; nothing is timed."""
    _, model = starting_model(study, AudioStore(f"{study.work}/audio.lance"))
    return {
        "parameters": sum(item.numel() for item in model.parameters()),
        "forward_gmac_per_chunk": round(forward_gmac(model, study), 2),
    }


def forward_gmac(model: MaskedAutoencoder, study: Study) -> float:
    """Billions of multiplications that one chunk takes forward; a step takes about three times as many."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, BINS, FRAMES), masks(study, 1))
    return float(counter.get_total_flops() / 2e9)


def masks(study: Study, examples: int) -> Mask:
    settings, moments, bands = study.pretrain, FRAMES // 16, BINS // 16
    noises = noise(0, 0, examples, moments), noise(0, 1, examples, bands)
    return hide_moments_and_bands(*noises, settings.hidden_moments, settings.hidden_bands)


@dataclass
class Turns:
    """Called by the real loop after each of its rounds: notes its time, then lets the bare loop do as much."""

    bare: BareLoop
    steps: int
    real_s: list[float] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    real_cpu_s: list[float] = field(default_factory=list)
    bare_cpu_s: list[float] = field(default_factory=list)
    began: tuple[float, float] | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.step % self.steps:
            return
        ended = now_s()
        self.bare.run(self.steps)
        bare_ended = now_s()
        if self.began:  # the first round warms both up
            self.real_s.append(ended[0] - self.began[0])
            self.real_cpu_s.append(ended[1] - self.began[1])
            self.bare_s.append(bare_ended[0] - ended[0])
            self.bare_cpu_s.append(bare_ended[1] - ended[1])
        self.began = now_s()


def now_s() -> tuple[float, float]:
    """By the clock, and of this process's processor time."""
    return time.perf_counter(), time.process_time()


class BareLoop:
    """What anyone would write first: a model, autocast, AdamW, clipping."""

    def __init__(self, same: MaskedAutoencoder, study: Study, batch: int) -> None:
        settings = study.pretrain
        self.model, self.clip = BareAutoencoder(same, settings.seed), settings.clip
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), settings.lr, settings.betas, weight_decay=settings.weight_decay
        )
        self.spec = torch.randn(batch, BINS, FRAMES)
        self.mask = masks(study, batch)

    def run(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16):
                guess = self.model(self.spec, self.mask)
                loss = reconstruction_loss(guess, self.spec, self.mask, normalised_patches=True).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimiser.step()
            self.optimiser.zero_grad()


class BareAutoencoder(nn.Module):
    """A masked autoencoder of timm's parts: all patches are embedded, then the visible ones are picked."""

    pos_embed: Tensor

    def __init__(self, same: MaskedAutoencoder, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        shape = same.encoder.shape
        self.patch_embed = PatchEmbed((FRAMES, BINS), 16, 1, shape.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.register_buffer("pos_embed", same.encoder.pos_embed.clone())
        blocks = (
            Block(shape.width, shape.heads, qkv_bias=True, norm_layer=LayerNorm) for _ in range(shape.depth)
        )
        self.blocks = nn.Sequential(*blocks)
        self.norm = LayerNorm(shape.width)
        self.decoder = type(same.decoder)(same.decoder.shape, shape, FRAMES)

    def forward(self, spec: Tensor, mask: Mask) -> Tensor:
        """(B, F, T) → (B, N, 16 · 16)"""
        tokens = self.patch_embed(spec.transpose(1, 2)[:, None]) + self.pos_embed[:, 1:]  # (B, N, C)
        visible = tokens.gather(1, mask.kept[:, :, None].expand(-1, -1, tokens.shape[-1]))  # (B, K, C)
        first = (self.cls_token + self.pos_embed[:, :1]).expand(len(spec), -1, -1)
        seen = self.norm(self.blocks(torch.cat([first, visible], dim=1)))
        guess: Tensor = self.decoder(seen, mask)
        return guess


if __name__ == "__main__":
    main()
