"""Plot chunks with the annotated and the predicted boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from mast.config import Spectrogram, Study
from mast.plotting.reconstruction import label_frequencies, level_limits, plot_levels
from mast.storage import atomic_write

WIDTH_IN, ROW_IN, MARGIN_IN, DPI = 12.0, 2.6, 0.75, 150
ANNOTATED, PREDICTED = "#35d0ff", "#ffffff"


def plot_predictions(
    spec: Tensor,
    annotations: Sequence[Tensor],
    predictions: Sequence[Tensor],
    scores: Sequence[Tensor],
    study: Study,
    path: Path,
    annotation_name: str = "annotated",
) -> None:
    """Write a figure with a row for each chunk: annotated boxes solid, predicted boxes dashed with their scores.

    `spec` (B, F, T) is normalised log-mel, shown relative to each bin's median; boxes are B times (n, 4) in frames and
    bins. The legend lists only the kinds of boxes that occur.
    """
    rows = max(1, len(spec))
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * rows), dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for axes, chunk, annotated_boxes, predicted_boxes, score in zip(
        grid, spec, annotations, predictions, scores, strict=False
    ):
        levels = (chunk - chunk.median(dim=1, keepdim=True).values).numpy()
        plot_levels(axes, levels, level_limits(levels), study.spectrogram)
        _plot_boxes(axes, predicted_boxes, study.spectrogram, PREDICTED, "--")
        _plot_boxes(axes, annotated_boxes, study.spectrogram, ANNOTATED, "-")
        for (start, _, _, high), value in zip(predicted_boxes.tolist(), score.tolist(), strict=True):
            position = (start * study.spectrogram.frame_shift_s, high)
            axes.annotate(
                f"{value:.2f}",
                position,
                color=PREDICTED,
                fontsize=7,
                va="bottom",
                clip_on=True,
                in_layout=False,
            )
        label_frequencies(axes, study.spectrogram)
    grid[-1].set_xlabel("Seconds")
    lines = (
        (annotations, Line2D([], [], color=ANNOTATED, label=annotation_name)),
        (predictions, Line2D([], [], color=PREDICTED, linestyle="--", label="predicted")),
    )
    figure.legend(
        handles=[line for boxes, line in lines if any(len(annotated_boxes) for annotated_boxes in boxes)],
        loc="outside upper right",
        ncols=2,
        facecolor="#20202a",
        labelcolor="white",
    )
    with atomic_write(str(path)) as file:
        figure.savefig(file, format="png")


def _plot_boxes(axes: Axes, boxes: Tensor, spectrogram: Spectrogram, colour: str, line: str) -> None:
    """Plot the outlines of boxes (n, 4); a bin's centre is at its index, as on the mel grid."""
    scale = (spectrogram.frame_shift_s, 1.0)
    corners = boxes[:, [0, 1, 0, 3, 2, 3, 2, 1]].reshape(-1, 4, 2) * boxes.new_tensor(scale)  # (n, 4, 2)
    axes.add_collection(
        PolyCollection(
            corners.tolist(), facecolors="none", edgecolors=colour, linestyles=line, linewidths=1.2
        )
    )
