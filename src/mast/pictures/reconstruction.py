"""What a masked autoencoder makes of sound: as it is, as the encoder sees it, and as it is guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from mast.config import Spectrogram, Study
from mast.spectrogram import MelGrid
from mast.storage import written_whole

WIDTH_IN, ROW_IN, MARGIN_IN, DPI = 12.0, 1.75, 0.75, 200
TITLES = ("As it is", "What the encoder sees", "Guessed where hidden")
HIDDEN = "#a9afb8"
"""What is hidden: a neutral tone that no level has."""

DARKEST, BRIGHTEST = 20.0, 99.8
"""Percentiles of a chunk's levels above its background that the colours span: calls stand out, as in other pictures."""

LEAST_GAP = 0.08
"""Frequencies are named where they are at least this share of the picture's height apart."""


def draw_reconstruction(original: Tensor, hidden: Tensor, guess: Tensor, study: Study, path: Path) -> None:
    """Write a picture with a row for each chunk: the original, what is left of it, and the guess in its gaps.

    `original` and `guess` (B, F, T) are normalised log-mel, `hidden` (B, F/16, T/16) is true where a patch was hidden.
    All three are shown against the original's median in every band.
    """
    rows = len(original)
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * max(1, rows)), dpi=DPI, layout="constrained")
    grid = figure.subplots(max(1, rows), len(TITLES), sharex=True, sharey=True, squeeze=False)
    for axes, title in zip(grid[0], TITLES, strict=True):
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    for row, chunk in enumerate(original):
        covered = _enlarged(hidden[row], chunk)
        background = chunk.median(dim=1, keepdim=True).values  # (F, 1)
        levels = (chunk - background).numpy()
        pasted = (torch.where(covered, guess[row], chunk) - background).numpy()
        for axes, shown in zip(
            grid[row], (levels, np.ma.masked_array(levels, covered.numpy()), pasted), strict=True
        ):
            draw_levels(axes, shown, level_limits(levels), study.spectrogram)
    for axes in grid[:, 0]:
        label_frequencies(axes, study.spectrogram)
    for axes in grid[-1]:
        axes.set_xlabel("Seconds")
    with written_whole(str(path)) as file:
        figure.savefig(file, format="png")


def _enlarged(hidden: Tensor, chunk: Tensor) -> Tensor:
    """Which values a chunk's hidden patches cover. (F/16, T/16), (F, T) → (F, T)"""
    for axis in range(2):
        hidden = hidden.repeat_interleave(chunk.shape[axis] // hidden.shape[axis], dim=axis)
    return hidden.bool()


def level_limits(levels: NDArray[np.float32]) -> tuple[float, float]:
    """Darkest and brightest level; apart even where all are the same."""
    darkest, brightest = np.percentile(levels, (DARKEST, BRIGHTEST))
    return float(darkest), max(float(brightest), float(darkest) + 1e-3)


def draw_levels(
    axes: Axes, levels: NDArray[np.float32], limits: tuple[float, float], spectrogram: Spectrogram
) -> None:
    """One spectrogram; a bin's centre lies at its number, as on the mel grid. (F, T)"""
    bins, frames = levels.shape
    axes.imshow(
        levels,
        origin="lower",
        aspect="auto",
        extent=(0.0, frames * spectrogram.shift_s, -0.5, bins - 0.5),
        cmap=colormaps["magma"].with_extremes(bad=HIDDEN),
        vmin=limits[0],
        vmax=limits[1],
        interpolation="nearest",  # patches keep their edges
    )
    axes.tick_params(length=2)
    for side in axes.spines.values():
        side.set_visible(False)


def label_frequencies(axes: Axes, spectrogram: Spectrogram) -> None:
    """Octaves of 1 kHz at their bins, from the top down as far as there is room."""
    octaves_hz = 1000 * 2.0 ** torch.arange(-2, 10)
    inside = octaves_hz[(octaves_hz > spectrogram.low_hz) & (octaves_hz <= spectrogram.high_hz)]
    places = MelGrid(spectrogram, 0).bins_at(inside).clamp(-0.5, spectrogram.bins - 0.5)
    named: dict[float, str] = {}
    for place, hz in zip(places.flip(0).tolist(), inside.flip(0).tolist(), strict=True):
        if all(at - place >= LEAST_GAP * spectrogram.bins for at in named):
            named[place] = f"{hz / 1000:g}"
    axes.set_yticks(list(named), labels=list(named.values()))
    axes.set_ylabel("Frequency (kHz)")
