"""Plot the spectrograms of test recordings with annotations and detections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

import mast

if TYPE_CHECKING:
    from experiments.starter.evaluate import TestedRecording

PLOTTED_S, PER_SET = 20.0, 1


def plot_best_and_worst(tested: Sequence[TestedRecording], threshold: float, name: str, folder: Path) -> None:
    """Plot the recordings with the highest and the lowest F1."""
    folder.mkdir(parents=True, exist_ok=True)
    annotated = [item for item in tested if len(item.truth)]
    order = sorted(annotated, key=lambda item: f1_of(item, threshold))
    for kind, chosen in (("worst", order[:PER_SET]), ("best", order[len(order) - PER_SET :])):
        for item in chosen:
            _plot(item, threshold, f"{name}, {kind}", folder / f"{name}-{kind}.png")


def f1_of(item: TestedRecording, threshold: float) -> float:
    """Return the F1 of a recording at IoMin 0.5."""
    from experiments.starter.evaluate import ranking
    from mast.evaluation.metrics import f1

    value = f1(ranking([item], "iomin").with_min_score(threshold))
    return value if np.isfinite(value) else 0.0


def _plot(item: TestedRecording, threshold: float, title: str, path: Path) -> None:
    """Plot the part of a recording with the most annotations."""
    starts = item.truth[:, 0]
    begin_s = max(0.0, min(float(np.median(starts)) - PLOTTED_S / 2, item.duration_s - PLOTTED_S))
    end_s = min(item.duration_s, begin_s + PLOTTED_S)
    wave, rate_hz = mast.load_audio(item.recording.path, start_s=begin_s, duration_s=end_s - begin_s)
    figure, axes = plt.subplots(figsize=(12, 4))
    axes.specgram(wave + 1e-9, NFFT=512, Fs=rate_hz, noverlap=256, cmap="magma", xextent=(begin_s, end_s))
    for start_s, low_hz, stop_s, high_hz in item.truth:
        axes.add_patch(
            Rectangle((start_s, low_hz), stop_s - start_s, high_hz - low_hz, fill=False, ec="cyan", lw=1.5)
        )
    for (start_s, low_hz, stop_s, high_hz), score in zip(item.predicted(), item.scores(), strict=True):
        if score >= threshold:
            size = (stop_s - start_s, high_hz - low_hz)
            axes.add_patch(Rectangle((start_s, low_hz), *size, fill=False, ec="white", lw=1, ls="--"))
    axes.set(xlim=(begin_s, end_s), xlabel="Time (s)", ylabel="Frequency (Hz)")
    axes.set_title(f"{title}: annotations solid, detections dashed", fontsize=10)
    axes.set_ylim(0, min(rate_hz / 2, 1.3 * max(8000.0, float(item.truth[:, 3].max()))))
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)
