"""Reconstruction figures: the original, its visible patches, and the reconstruction of masked ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from torch import Tensor

from mast.audio.spectrogram import MelGrid
from mast.config import Spectrogram, Study
from mast.errors import StorageError
from mast.plotting import reconstruction
from mast.plotting.reconstruction import DPI, MASKED, ROW_IN, TITLES, plot_reconstruction

STUDY = Study(spectrogram=Spectrogram(n_mels=32))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collect the figures that are plotted."""
    figures_made: list[Figure] = []

    class RecordedFigure(Figure):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            figures_made.append(self)

    monkeypatch.setattr(reconstruction, "Figure", RecordedFigure)
    return figures_made


def chunks(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Build chunks of 32 bins and 64 frames with one masked patch each, and a reconstruction that is 10 too high."""
    spec = torch.randn(count, 32, 64, generator=torch.Generator().manual_seed(0))
    masked = torch.zeros(count, 2, 4, dtype=torch.bool)
    masked[:, 1, 2] = True
    return spec, masked, spec + 10


def test_a_figure_without_chunks_can_be_plotted(tmp_path: Path) -> None:
    plot_reconstruction(*chunks(0), STUDY, tmp_path / "none.png")
    assert imread(tmp_path / "none.png").ndim == 3


def test_only_masked_patches_are_covered_and_reconstructed(tmp_path: Path, figures: list[Figure]) -> None:
    plot_reconstruction(*chunks(2), STUDY, tmp_path / "two.png")
    panels = figures[0].axes
    assert [panel.get_title(loc="left") for panel in panels[:3]] == list(TITLES)
    assert len(panels) == 2 * len(TITLES)
    covered = np.zeros((32, 64), bool)
    covered[16:, 32:48] = True
    for row in range(2):
        original, visible, filled = (panel.images[0].get_array() for panel in panels[3 * row : 3 * row + 3])
        np.testing.assert_array_equal(np.ma.getmaskarray(visible), covered)
        np.testing.assert_array_equal(visible.data[~covered], original[~covered])
        np.testing.assert_allclose(filled - original, 10 * covered, atol=1e-5)


def test_masked_patches_have_one_uniform_colour_in_the_file(tmp_path: Path) -> None:
    spec, masked, reconstructed = chunks(1)
    plot_reconstruction(spec, torch.ones_like(masked), reconstructed, STUDY, tmp_path / "all.png")
    image = imread(tmp_path / "all.png")
    flat = np.abs(image[..., :3] - np.array(to_rgb(MASKED))).max(axis=2) < 1 / 255
    assert flat.sum() > 0.8 * (ROW_IN * DPI) * 3 * DPI  # one of three columns, 4 in wide with its margins


def test_frequencies_are_at_their_bins_and_frames_at_their_seconds(
    tmp_path: Path, figures: list[Figure]
) -> None:
    plot_reconstruction(*chunks(1), STUDY, tmp_path / "axes.png")
    panel = figures[0].axes[0]
    ticks = dict(zip([text.get_text() for text in panel.get_yticklabels()], panel.get_yticks(), strict=True))
    assert {"1", "2", "4", "8"} <= ticks.keys()
    grid = MelGrid(STUDY.spectrogram, 64)
    assert ticks["2"] == pytest.approx(float(grid.hz_to_bins(torch.tensor(2000.0))))
    assert ticks["8"] == 31.5  # the upper limit of the band, half a bin beyond the image
    assert panel.images[0].get_extent() == pytest.approx((0.0, 0.64, -0.5, 31.5))


def test_a_chunk_of_silence_is_plotted_without_an_error(tmp_path: Path) -> None:
    _, masked, _ = chunks(1)
    silence = torch.zeros(1, 32, 64)
    plot_reconstruction(silence, masked, silence, STUDY, tmp_path / "silence.png")
    assert (tmp_path / "silence.png").exists()


def test_a_figure_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(StorageError, match="cannot be written"):
        plot_reconstruction(*chunks(1), STUDY, tmp_path / "taken" / "figure.png")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
