"""Lay out an interactive map of embeddings in a page: pressing a point shows its spectrogram and plays its audio.

The map is plain SVG in the page itself, with one short script, which the page's policy allows by its hash.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from mast.plotting.chunk_map import OTHER, SITE_COLOURS

WIDTH, HEIGHT, MARGIN = 1000.0, 640.0, 26.0

SCRIPT = Markup(
    """
const map = document.getElementById("map"), panel = document.getElementById("panel");
function play(point) {
  const tile = document.getElementById(point.dataset.tile);
  if (!tile) return;
  map.querySelectorAll(".chosen").forEach(other => other.classList.remove("chosen"));
  point.classList.add("chosen");
  const copy = tile.cloneNode(true);
  copy.removeAttribute("id");
  panel.replaceChildren(copy);
  const audio = copy.querySelector("audio");
  if (audio) audio.play().catch(() => {});
}
map.addEventListener("click", event => {
  const point = event.target.closest("[data-tile]");
  if (point) play(point);
});
map.addEventListener("keydown", event => {
  if (event.key === "Enter" || event.key === " ") {
    const point = event.target.closest("[data-tile]");
    if (point) { event.preventDefault(); play(point); }
  }
});
"""
)
FINGERPRINT = f"sha256-{b64encode(sha256(str(SCRIPT).encode()).digest()).decode()}"


@dataclass(frozen=True, slots=True)
class MapPoint:
    """Event on the map, in canvas units; `tile` is the element id of the page that shows it, if any."""

    x: float
    y: float
    colour: str
    tile: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Number of a cluster, written next to the median of its points."""

    x: float
    y: float
    text: str
    colour: str


def colour_of(number: int | None) -> str:
    """Return the colour of a cluster by its rank; later clusters share one colour."""
    return SITE_COLOURS[number - 1] if number is not None and number <= len(SITE_COLOURS) else OTHER


def to_canvas(coordinates: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale coordinates to the canvas. (N, 2) → (N, 2)"""
    if not len(coordinates):
        return np.zeros((0, 2))
    low, high = np.quantile(coordinates, [0.0, 1.0], axis=0)
    scaled = (coordinates - low) / np.maximum(high - low, 1e-9)
    size = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    return np.asarray(MARGIN + scaled * size, np.float64)


def marks(coordinates: NDArray[np.float64], numbers: Sequence[int | None], maximum: int) -> list[Mark]:
    """Return the numbers of the first clusters, each at the median of its coordinates. (N, 2), N"""
    cluster = np.array([number or 0 for number in numbers])
    result = []
    for number in range(1, maximum + 1):
        if (cluster == number).any():
            x, y = np.median(coordinates[cluster == number], axis=0).tolist()
            result.append(Mark(x, y, str(number), colour_of(number)))
    return result
