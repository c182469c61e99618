"""Draws the before-and-after pictures of docs/explanation/augmentation.md from the made-up example sounds.

python tools/augmentation_pictures.py
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Generator, Tensor

from mast.annotations import read_annotations
from mast.config import Augmentation, Chunking, Spectrogram
from mast.datasets import transforms
from mast.datasets.transforms import LOG_PER_DB, Augmented
from mast.example import write_example
from mast.recordings.decode import open_audio
from mast.spectrogram import LogMel, MelGrid

PICTURES = Path(__file__).parents[1] / "docs" / "explanation" / "images"
RATE_HZ = Chunking().sample_rate_hz
LOGMEL = LogMel(Spectrogram(), RATE_HZ)
TICKS_HZ = (250, 1000, 2000, 4000, 7500)
KEPT, DROPPED = "#35d0ff", "#ffffff"
COLOURS = 96
"""A palette this small keeps a noisy picture under 150 kB."""

SHOWN, OTHER = ("A2/20240511_053000.WAV", 2.0), ("A1/20240511_073000.WAV", 7.0)
"""Recording and second of the two chunks shown."""


def chunk(folder: Path, path: str, start_s: float) -> tuple[Tensor, list[Tensor]]:
    """Log-mel of a chunk of the example card and its boxes, as a batch of one."""
    with open_audio(str(folder / "card" / path), RATE_HZ) as audio:
        wave = audio.read(start_s, Chunking().chunk_s)
    spec = LOGMEL(torch.from_numpy(wave - wave.mean())[None])  # (1, F, T)
    table = read_annotations(str(folder / "boxes"), "raven")
    times = [
        (event.start_s - start_s, event.low_hz or 0.0, event.end_s - start_s, event.high_hz or 0.0)
        for event in table.events
        if event.recording_id == path
    ]
    grid = MelGrid(Spectrogram(), spec.shape[2])
    events = torch.tensor(times, dtype=torch.float64)
    return spec, [grid.to_boxes(events[grid.holds(events)])]


def engine() -> Tensor:
    """A made-up engine that passes: overtones of 95 Hz and a rumble, swelling and fading. → (1, F, T)"""
    seconds = np.arange(round(Chunking().chunk_s * RATE_HZ)) / RATE_HZ
    swell = np.exp(-(((seconds - 6) / 3) ** 2))
    tones = sum(np.sin(2 * np.pi * 95 * n * seconds + n) / n**1.3 for n in range(1, 60))
    hiss = np.random.default_rng(0).standard_normal(len(seconds))
    wave = torch.from_numpy((0.02 * swell * (tones + 0.02 * hiss)).astype(np.float32))
    return LOGMEL((wave - wave.mean())[None])  # type: ignore[no-any-return]


def draw(before: Augmented, after: Augmented, path: Path) -> None:
    """Two panels beside each other; boxes that were dropped are dashed."""
    figure = Figure(figsize=(10.4, 2.9), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    darkest, brightest = np.percentile(before.spec.numpy() / LOG_PER_DB, [8, 99.97])
    for axes, batch in ((left, before), (right, after)):
        axes.imshow(
            batch.spec[0].numpy() / LOG_PER_DB,
            origin="lower",
            aspect="auto",
            extent=(0, batch.spec.shape[2], 0, batch.spec.shape[1]),
            cmap="magma",
            vmin=darkest,
            vmax=brightest,
            interpolation="nearest",
        )
    now = [box.tolist() for box in after.boxes[0]]
    dropped = [box for box in before.boxes[0].tolist() if box not in now][: after.dropped[0]]
    outline(left, before.boxes[0].tolist(), KEPT, "-")
    outline(right, [list(box) for box in now], KEPT, "-")
    outline(right, dropped, DROPPED, "--")
    label(left, "before")
    label(right, "after" + (", dashed: dropped" if dropped else ""))
    left.set_ylabel("kHz")
    save(figure, path)


def outline(axes: Axes, boxes: list[list[float]], colour: str, line: str) -> None:
    """Boxes in frames and bins."""
    dark = [patheffects.withStroke(linewidth=3, foreground="#000000aa")]
    for start, low, end, high in boxes:
        axes.add_patch(
            Rectangle(
                (start, low),
                end - start,
                high - low,
                fill=False,
                edgecolor=colour,
                linestyle=line,
                linewidth=1.5,
                path_effects=dark,
            )
        )


def label(axes: Axes, title: str) -> None:
    """Seconds and kHz on the axes of frames and bins."""
    grid = MelGrid(Spectrogram(), 1024)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xticks(range(0, 1001, 200), [str(second) for second in range(0, 11, 2)])
    bins = (grid.bins_at(torch.tensor(TICKS_HZ)) + 0.5).tolist()
    axes.set_yticks(bins, [f"{hz / 1000:g}" for hz in TICKS_HZ])
    axes.set_xlabel("seconds")
    for side in axes.spines.values():
        side.set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """A PNG with a small palette."""
    whole = io.BytesIO()
    figure.savefig(whole, format="png")
    picture = Image.open(whole).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


def main() -> None:
    """Draw one picture for each augmentation, at the default strengths."""
    settings = Augmentation(max_cut_frames=400)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "example"
        write_example(folder)
        spec, boxes = chunk(folder, *SHOWN)
        other_spec, other_boxes = chunk(folder, *OTHER)
    steps: dict[str, tuple[int, Callable[[Generator], Augmented]]] = {
        "time_shift": (0, lambda rng: transforms.time_shift(spec, boxes, settings, rng)),
        "frequency_shift": (0, lambda rng: transforms.frequency_shift(spec, boxes, settings, rng)),
        "time_warp": (37, lambda rng: transforms.time_warp(spec, boxes, settings, rng)),
        "time_mask": (141, lambda rng: transforms.time_mask(spec, boxes, settings, rng)),
        "frequency_mask": (21, lambda rng: transforms.frequency_mask(spec, boxes, settings, rng)),
        "gaussian_noise": (0, lambda rng: transforms.gaussian_noise(spec, boxes, settings, rng)),
        "gain": (27, lambda rng: transforms.gain(spec, boxes, settings, rng)),
        "background": (29, lambda rng: transforms.background(spec, boxes, engine(), settings, rng)),
        "mixup": (0, lambda _: transforms.mixup(spec, boxes, other_spec, other_boxes)),
        "cutmix": (12, lambda rng: transforms.cutmix(spec, boxes, other_spec, other_boxes, settings, rng)),
    }
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (seed, step) in steps.items():
        after = step(torch.Generator().manual_seed(seed))
        draw(Augmented(spec, boxes, [0]), after, PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
