"""A row for each chunk: what is there, what is left of it, and the guess in its gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from torch import Tensor

from mast.config import Spectrogram, Study
from mast.errors import StorageError
from mast.pictures import reconstruction
from mast.pictures.reconstruction import DPI, HIDDEN, ROW_IN, TITLES, draw_reconstruction
from mast.spectrogram import MelGrid

STUDY = Study(spectrogram=Spectrogram(bins=32))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, to look at what is in them."""
    seen: list[Figure] = []

    class Kept(Figure):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            seen.append(self)

    monkeypatch.setattr(reconstruction, "Figure", Kept)
    return seen


def chunks(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Chunks of 32 bins and 64 frames with one hidden patch each, and a guess that is 10 too high everywhere."""
    spec = torch.randn(count, 32, 64, generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros(count, 2, 4, dtype=torch.bool)
    hidden[:, 1, 2] = True
    return spec, hidden, spec + 10


def test_a_picture_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    draw_reconstruction(*chunks(0), STUDY, tmp_path / "none.png")
    assert imread(tmp_path / "none.png").ndim == 3


def test_only_hidden_patches_are_covered_and_only_they_are_guessed(
    tmp_path: Path, figures: list[Figure]
) -> None:
    draw_reconstruction(*chunks(2), STUDY, tmp_path / "two.png")
    panels = figures[0].axes
    assert [panel.get_title(loc="left") for panel in panels[:3]] == list(TITLES)
    assert len(panels) == 2 * len(TITLES)
    covered = np.zeros((32, 64), bool)
    covered[16:, 32:48] = True
    for row in range(2):
        original, seen, pasted = (panel.images[0].get_array() for panel in panels[3 * row : 3 * row + 3])
        np.testing.assert_array_equal(np.ma.getmaskarray(seen), covered)
        np.testing.assert_array_equal(seen.data[~covered], original[~covered])
        np.testing.assert_allclose(pasted - original, 10 * covered, atol=1e-5)


def test_what_is_hidden_is_flat_and_of_one_colour_in_the_file(tmp_path: Path) -> None:
    spec, hidden, guess = chunks(1)
    draw_reconstruction(spec, torch.ones_like(hidden), guess, STUDY, tmp_path / "all.png")
    picture = imread(tmp_path / "all.png")
    flat = np.abs(picture[..., :3] - np.array(to_rgb(HIDDEN))).max(axis=2) < 1 / 255
    assert flat.sum() > 0.8 * (ROW_IN * DPI) * 3 * DPI  # one of three columns, 4 in wide with its margins


def test_frequencies_stand_at_their_bins_and_frames_at_their_seconds(
    tmp_path: Path, figures: list[Figure]
) -> None:
    draw_reconstruction(*chunks(1), STUDY, tmp_path / "axes.png")
    panel = figures[0].axes[0]
    named = dict(zip([text.get_text() for text in panel.get_yticklabels()], panel.get_yticks(), strict=True))
    assert {"1", "2", "4", "8"} <= named.keys()
    grid = MelGrid(STUDY.spectrogram, 64)
    assert named["2"] == pytest.approx(float(grid.bins_at(torch.tensor(2000.0))))
    assert named["8"] == 31.5  # the band's end, half a bin beyond the picture
    assert panel.images[0].get_extent() == pytest.approx((0.0, 0.64, -0.5, 31.5))


def test_a_chunk_of_silence_is_drawn_without_complaint(tmp_path: Path) -> None:
    _, hidden, _ = chunks(1)
    silence = torch.zeros(1, 32, 64)
    draw_reconstruction(silence, hidden, silence, STUDY, tmp_path / "silence.png")
    assert (tmp_path / "silence.png").exists()


def test_a_picture_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(StorageError, match="cannot be written"):
        draw_reconstruction(*chunks(1), STUDY, tmp_path / "taken" / "picture.png")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
