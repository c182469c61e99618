"""A row for each chunk, with the experts' boxes and the detector's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread

from mast.config import Spectrogram, Study
from mast.pictures import predictions
from mast.pictures.predictions import draw_predictions

STUDY = Study(spectrogram=Spectrogram(bins=32))


def is_dashed(boxes: PolyCollection) -> bool:
    ((_, dashes),) = boxes.get_linestyle()
    return dashes is not None


def test_a_picture_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    draw_predictions(torch.zeros(0, 32, 64), [], [], [], STUDY, tmp_path / "none.png")
    assert imread(tmp_path / "none.png").ndim == 3


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """All figures that are drawn."""
    figures: list[Figure] = []

    class Kept(Figure):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            figures.append(self)

    monkeypatch.setattr(predictions, "Figure", Kept)
    return figures


def told(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_tells_of_boxes_that_there_are(tmp_path: Path, seen: list[Figure]) -> None:
    spec, box, score = torch.zeros(1, 32, 64), [torch.tensor([[10.0, 4, 30, 12]])], [torch.ones(1)]
    none, nothing = [torch.zeros(0, 4)], [torch.ones(0)]
    draw_predictions(spec, box, box, score, STUDY, tmp_path / "both.png")
    draw_predictions(spec, none, box, score, STUDY, tmp_path / "found.png")
    draw_predictions(spec, box, none, nothing, STUDY, tmp_path / "made_up.png", true_name="made up")
    assert [told(figure) for figure in seen] == [["annotated", "found"], ["found"], ["made up"]]


def test_true_boxes_are_solid_and_found_ones_dashed_where_they_are(
    tmp_path: Path, seen: list[Figure]
) -> None:
    spec = torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(0))
    truths = [torch.tensor([[10.0, 4, 30, 12]]), torch.zeros(0, 4)]
    found = [torch.tensor([[12.0, 5, 31, 13], [40, 1, 50, 3]]), torch.zeros(0, 4)]
    scores = [torch.tensor([0.9, 0.25]), torch.zeros(0)]
    draw_predictions(spec, truths, found, scores, STUDY, tmp_path / "two.png")
    first, second = seen[0].axes
    drawn = [
        (is_dashed(boxes), path.get_extents().bounds)
        for boxes in first.collections
        for path in boxes.get_paths()
    ]
    assert [line for line, _ in drawn] == [True, True, False]
    assert [bounds for _, bounds in drawn] == [
        pytest.approx(bounds) for bounds in ((0.12, 5, 0.19, 8), (0.4, 1, 0.1, 2), (0.1, 4, 0.2, 8))
    ]
    assert [text.get_text() for text in first.texts] == ["0.90", "0.25"]
    assert not any(boxes.get_paths() for boxes in second.collections)
