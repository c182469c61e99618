"""What a detector finds: chunks with the experts' boxes and its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from mast.config import Spectrogram, Study
from mast.pictures.reconstruction import draw_levels, label_frequencies, level_limits
from mast.storage import written_whole

WIDTH_IN, ROW_IN, MARGIN_IN, DPI = 12.0, 2.6, 0.75, 150
TRUE, FOUND = "#35d0ff", "#ffffff"


def draw_predictions(
    spec: Tensor,
    truths: Sequence[Tensor],
    found: Sequence[Tensor],
    scores: Sequence[Tensor],
    study: Study,
    path: Path,
    true_name: str = "annotated",
) -> None:
    """Write a picture with a row for each chunk: its true boxes solid, those found dashed, each with its score.

    `spec` (B, F, T) is normalised log-mel, shown against each band's median; boxes are B times (n, 4) in frames and
    bins. The legend tells of boxes that there are.
    """
    rows = max(1, len(spec))
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * rows), dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for axes, chunk, own, other, score in zip(grid, spec, truths, found, scores, strict=False):
        levels = (chunk - chunk.median(dim=1, keepdim=True).values).numpy()
        draw_levels(axes, levels, level_limits(levels), study.spectrogram)
        _draw_boxes(axes, other, study.spectrogram, FOUND, "--")
        _draw_boxes(axes, own, study.spectrogram, TRUE, "-")
        for (start, _, _, high), value in zip(other.tolist(), score.tolist(), strict=True):
            place = (start * study.spectrogram.shift_s, high)
            axes.annotate(
                f"{value:.2f}", place, color=FOUND, fontsize=7, va="bottom", clip_on=True, in_layout=False
            )
        label_frequencies(axes, study.spectrogram)
    grid[-1].set_xlabel("Seconds")
    lines = (
        (truths, Line2D([], [], color=TRUE, label=true_name)),
        (found, Line2D([], [], color=FOUND, linestyle="--", label="found")),
    )
    figure.legend(
        handles=[line for boxes, line in lines if any(len(own) for own in boxes)],
        loc="outside upper right",
        ncols=2,
        facecolor="#20202a",
        labelcolor="white",
    )
    with written_whole(str(path)) as file:
        figure.savefig(file, format="png")


def _draw_boxes(axes: Axes, boxes: Tensor, spectrogram: Spectrogram, colour: str, line: str) -> None:
    """Outlines of boxes (n, 4); a bin's centre lies at its number, as on the mel grid."""
    scale = (spectrogram.shift_s, 1.0)
    corners = boxes[:, [0, 1, 0, 3, 2, 3, 2, 1]].reshape(-1, 4, 2) * boxes.new_tensor(scale)  # (n, 4, 2)
    axes.add_collection(
        PolyCollection(
            corners.tolist(), facecolors="none", edgecolors=colour, linestyles=line, linewidths=1.2
        )
    )
