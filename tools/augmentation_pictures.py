"""Plot the before-and-after figures of docs/explanation/augmentation.md from the synthetic example recordings.

python -m tools.augmentation_pictures
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
from mast.audio.reader import open_audio
from mast.audio.spectrogram import LogMel, MelGrid
from mast.config import Augmentation, Chunking, Spectrogram
from mast.datasets import transforms
from mast.datasets.transforms import LOG_PER_DB, AugmentedBatch
from mast.example_data import write_example

IMAGES = Path(__file__).parents[1] / "docs" / "explanation" / "images"
RATE_HZ = Chunking().sample_rate_hz
LOGMEL = LogMel(Spectrogram(), RATE_HZ)
TICKS_HZ = (250, 1000, 2000, 4000, 7500)
KEPT_COLOUR, DROPPED_COLOUR = "#35d0ff", "#ffffff"
COLOURS = 96
"""Number of colours of the palette, which keeps a noisy figure under 150 kB."""

SHOWN, OTHER = ("A2/20240511_053000.WAV", 2.0), ("A1/20240511_073000.WAV", 7.0)
"""Recording and start time in seconds of the two plotted chunks."""


def chunk(folder: Path, path: str, start_s: float) -> tuple[Tensor, list[Tensor]]:
    """Return the log-mel spectrogram of a chunk of the example card and its boxes, as a batch of one."""
    with open_audio(str(folder / "card" / path), RATE_HZ) as audio:
        wave = audio.read(start_s, Chunking().chunk_s)
    spec = LOGMEL(torch.from_numpy(wave - wave.mean())[None])  # (1, F, T)
    table = read_annotations(str(folder / "boxes"), "raven")
    bounds = [
        (event.start_s - start_s, event.low_hz or 0.0, event.end_s - start_s, event.high_hz or 0.0)
        for event in table.events
        if event.recording_id == path
    ]
    grid = MelGrid(Spectrogram(), spec.shape[2])
    events = torch.tensor(bounds, dtype=torch.float64)
    return spec, [grid.events_to_boxes(events[grid.overlaps(events)])]


def engine() -> Tensor:
    """Synthesise a passing engine: overtones of 95 Hz and noise, fading in and out. → (1, F, T)"""
    seconds = np.arange(round(Chunking().chunk_s * RATE_HZ)) / RATE_HZ
    swell = np.exp(-(((seconds - 6) / 3) ** 2))
    tones = sum(np.sin(2 * np.pi * 95 * n * seconds + n) / n**1.3 for n in range(1, 60))
    hiss = np.random.default_rng(0).standard_normal(len(seconds))
    wave = torch.from_numpy((0.02 * swell * (tones + 0.02 * hiss)).astype(np.float32))
    return LOGMEL((wave - wave.mean())[None])  # type: ignore[no-any-return]


def plot(before: AugmentedBatch, after: AugmentedBatch, path: Path) -> None:
    """Plot two panels side by side; dropped boxes are dashed."""
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
    remaining = [box.tolist() for box in after.boxes[0]]
    dropped = [box for box in before.boxes[0].tolist() if box not in remaining][: after.dropped[0]]
    outline(left, before.boxes[0].tolist(), KEPT_COLOUR, "-")
    outline(right, [list(box) for box in remaining], KEPT_COLOUR, "-")
    outline(right, dropped, DROPPED_COLOUR, "--")
    label(left, "before")
    label(right, "after" + (", dashed: dropped" if dropped else ""))
    left.set_ylabel("kHz")
    save(figure, path)


def outline(axes: Axes, boxes: list[list[float]], colour: str, line: str) -> None:
    """Plot boxes, given in frames and bins."""
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
    """Label the axes of frames and bins in seconds and kHz."""
    grid = MelGrid(Spectrogram(), 1024)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xticks(range(0, 1001, 200), [str(second) for second in range(0, 11, 2)])
    bins = (grid.hz_to_bins(torch.tensor(TICKS_HZ)) + 0.5).tolist()
    axes.set_yticks(bins, [f"{hz / 1000:g}" for hz in TICKS_HZ])
    axes.set_xlabel("seconds")
    for side in axes.spines.values():
        side.set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Save a figure as a PNG with a small palette."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    image = Image.open(buffer).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


def main() -> None:
    """Plot one figure for each augmentation, at the default strengths."""
    settings = Augmentation(cutmix_frames=400)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "example"
        write_example(folder)
        spec, boxes = chunk(folder, *SHOWN)
        other_spec, other_boxes = chunk(folder, *OTHER)
    augmentations: dict[str, tuple[int, Callable[[Generator], AugmentedBatch]]] = {
        "time_shift": (0, lambda rng: transforms.time_shift(spec, boxes, settings, rng)),
        "frequency_shift": (0, lambda rng: transforms.frequency_shift(spec, boxes, settings, rng)),
        "time_warp": (37, lambda rng: transforms.time_warp(spec, boxes, settings, rng)),
        "time_mask": (141, lambda rng: transforms.time_mask(spec, boxes, settings, rng)),
        "frequency_mask": (21, lambda rng: transforms.frequency_mask(spec, boxes, settings, rng)),
        "gaussian_noise": (0, lambda rng: transforms.gaussian_noise(spec, boxes, settings, rng)),
        "gain": (27, lambda rng: transforms.gain(spec, boxes, settings, rng)),
        "background": (29, lambda rng: transforms.mix_background(spec, boxes, engine(), settings, rng)),
        "mixup": (0, lambda _: transforms.mixup(spec, boxes, other_spec, other_boxes)),
        "cutmix": (12, lambda rng: transforms.cutmix(spec, boxes, other_spec, other_boxes, settings, rng)),
    }
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, (seed, augment) in augmentations.items():
        after = augment(torch.Generator().manual_seed(seed))
        plot(AugmentedBatch(spec, boxes, [0]), after, IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
