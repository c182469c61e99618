"""Plot the output of a masked autoencoder: the original, the visible patches, and the reconstruction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from mast.audio.spectrogram import MelGrid
from mast.config import Spectrogram, Study
from mast.storage import atomic_write

WIDTH_IN, ROW_IN, MARGIN_IN, DPI = 12.0, 1.75, 0.75, 200
TITLES = ("Original", "Visible to the encoder", "Reconstruction of the masked patches")
MASKED = "#a9afb8"
"""Colour of masked patches: a neutral tone that no level has."""

DARKEST, BRIGHTEST = 20.0, 99.8
"""Percentiles of a chunk's levels above its background that the colours span, so that calls stand out."""

MIN_LEVEL_GAP = 0.08
"""Minimum distance between frequency labels, as a fraction of the figure's height."""


def plot_reconstruction(
    original: Tensor, masked: Tensor, reconstruction: Tensor, study: Study, path: Path
) -> None:
    """Write a figure with a row for each chunk: the original, its visible patches, and the reconstruction of masked ones.

    `original` and `reconstruction` (B, F, T) are normalised log-mel; `masked` (B, F/16, T/16) is true for masked
    patches. All three are shown relative to the original's median in every bin.
    """
    rows = len(original)
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * max(1, rows)), dpi=DPI, layout="constrained")
    grid = figure.subplots(max(1, rows), len(TITLES), sharex=True, sharey=True, squeeze=False)
    for axes, title in zip(grid[0], TITLES, strict=True):
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    for row, chunk in enumerate(original):
        covered = _enlarge_mask(masked[row], chunk)
        background = chunk.median(dim=1, keepdim=True).values  # (F, 1)
        levels = (chunk - background).numpy()
        filled = (torch.where(covered, reconstruction[row], chunk) - background).numpy()
        for axes, panel_levels in zip(
            grid[row], (levels, np.ma.masked_array(levels, covered.numpy()), filled), strict=True
        ):
            plot_levels(axes, panel_levels, level_limits(levels), study.spectrogram)
    for axes in grid[:, 0]:
        label_frequencies(axes, study.spectrogram)
    for axes in grid[-1]:
        axes.set_xlabel("Seconds")
    with atomic_write(str(path)) as file:
        figure.savefig(file, format="png")


def _enlarge_mask(masked: Tensor, chunk: Tensor) -> Tensor:
    """Expand the mask of a chunk's patches to its values. (F/16, T/16), (F, T) → (F, T)"""
    for axis in range(2):
        masked = masked.repeat_interleave(chunk.shape[axis] // masked.shape[axis], dim=axis)
    return masked.bool()


def level_limits(levels: NDArray[np.float32]) -> tuple[float, float]:
    """Return the darkest and brightest level; they differ even if all levels are equal."""
    darkest, brightest = np.percentile(levels, (DARKEST, BRIGHTEST))
    return float(darkest), max(float(brightest), float(darkest) + 1e-3)


def plot_levels(
    axes: Axes, levels: NDArray[np.float32], limits: tuple[float, float], spectrogram: Spectrogram
) -> None:
    """Plot one spectrogram; a bin's centre is at its index, as on the mel grid. (F, T)"""
    bins, frames = levels.shape
    axes.imshow(
        levels,
        origin="lower",
        aspect="auto",
        extent=(0.0, frames * spectrogram.frame_shift_s, -0.5, bins - 0.5),
        cmap=colormaps["magma"].with_extremes(bad=MASKED),
        vmin=limits[0],
        vmax=limits[1],
        interpolation="nearest",  # patches keep their edges
    )
    axes.tick_params(length=2)
    for side in axes.spines.values():
        side.set_visible(False)


def label_frequencies(axes: Axes, spectrogram: Spectrogram) -> None:
    """Label the octaves of 1 kHz at their bins, from the top down as far as there is room."""
    octaves_hz = 1000 * 2.0 ** torch.arange(-2, 10)
    in_band_hz = octaves_hz[(octaves_hz > spectrogram.low_hz) & (octaves_hz <= spectrogram.high_hz)]
    positions = MelGrid(spectrogram, 0).hz_to_bins(in_band_hz).clamp(-0.5, spectrogram.n_mels - 0.5)
    labels: dict[float, str] = {}
    for position, hz in zip(positions.flip(0).tolist(), in_band_hz.flip(0).tolist(), strict=True):
        if all(other - position >= MIN_LEVEL_GAP * spectrogram.n_mels for other in labels):
            labels[position] = f"{hz / 1000:g}"
    axes.set_yticks(list(labels), labels=list(labels.values()))
    axes.set_ylabel("Frequency (kHz)")
