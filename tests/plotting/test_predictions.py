"""Prediction figures: a row for each chunk, with annotated and predicted boxes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread

from mast.config import Spectrogram, Study
from mast.plotting import predictions
from mast.plotting.predictions import plot_predictions

STUDY = Study(spectrogram=Spectrogram(n_mels=32))


def is_dashed(boxes: PolyCollection) -> bool:
    ((_, dashes),) = boxes.get_linestyle()
    return dashes is not None


def test_a_figure_without_chunks_can_be_plotted(tmp_path: Path) -> None:
    plot_predictions(torch.zeros(0, 32, 64), [], [], [], STUDY, tmp_path / "none.png")
    assert imread(tmp_path / "none.png").ndim == 3


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collect the figures that are plotted."""
    figures: list[Figure] = []

    class RecordedFigure(Figure):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            figures.append(self)

    monkeypatch.setattr(predictions, "Figure", RecordedFigure)
    return figures


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_has_only_the_kinds_of_boxes_that_occur(tmp_path: Path, seen: list[Figure]) -> None:
    spec, box, score = torch.zeros(1, 32, 64), [torch.tensor([[10.0, 4, 30, 12]])], [torch.ones(1)]
    none, nothing = [torch.zeros(0, 4)], [torch.ones(0)]
    plot_predictions(spec, box, box, score, STUDY, tmp_path / "both.png")
    plot_predictions(spec, none, box, score, STUDY, tmp_path / "predicted.png")
    plot_predictions(spec, box, none, nothing, STUDY, tmp_path / "synthetic.png", annotation_name="synthetic")
    assert [legend(figure) for figure in seen] == [["annotated", "predicted"], ["predicted"], ["synthetic"]]


def test_annotated_boxes_are_solid_and_predicted_ones_dashed_at_their_position(
    tmp_path: Path, seen: list[Figure]
) -> None:
    spec = torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(0))
    annotations = [torch.tensor([[10.0, 4, 30, 12]]), torch.zeros(0, 4)]
    predicted = [torch.tensor([[12.0, 5, 31, 13], [40, 1, 50, 3]]), torch.zeros(0, 4)]
    scores = [torch.tensor([0.9, 0.25]), torch.zeros(0)]
    plot_predictions(spec, annotations, predicted, scores, STUDY, tmp_path / "two.png")
    first, second = seen[0].axes
    outlines = [
        (is_dashed(boxes), path.get_extents().bounds)
        for boxes in first.collections
        for path in boxes.get_paths()
    ]
    assert [line for line, _ in outlines] == [True, True, False]
    assert [bounds for _, bounds in outlines] == [
        pytest.approx(bounds) for bounds in ((0.12, 5, 0.19, 8), (0.4, 1, 0.1, 2), (0.1, 4, 0.2, 8))
    ]
    assert [text.get_text() for text in first.texts] == ["0.90", "0.25"]
    assert not any(boxes.get_paths() for boxes in second.collections)
