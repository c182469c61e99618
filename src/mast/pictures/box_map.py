"""A map of sounds by how they sound, in a page: a point that is pressed shows its spectrogram and is heard.

The map is plain SVG in the page itself, and one short script, which the page allows by its fingerprint and no other.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from mast.pictures.chunk_map import OTHER, SITE_COLOURS

WIDTH, HEIGHT, MARGIN = 1000.0, 640.0, 26.0

SCRIPT = Markup(
    """
const map = document.getElementById("map"), panel = document.getElementById("panel");
function hear(point) {
  const tile = document.getElementById(point.dataset.tile);
  if (!tile) return;
  map.querySelectorAll(".chosen").forEach(other => other.classList.remove("chosen"));
  point.classList.add("chosen");
  const copy = tile.cloneNode(true);
  copy.removeAttribute("id");
  panel.replaceChildren(copy);
  const sound = copy.querySelector("audio");
  if (sound) sound.play().catch(() => {});
}
map.addEventListener("click", event => {
  const point = event.target.closest("[data-tile]");
  if (point) hear(point);
});
map.addEventListener("keydown", event => {
  if (event.key === "Enter" || event.key === " ") {
    const point = event.target.closest("[data-tile]");
    if (point) { event.preventDefault(); hear(point); }
  }
});
"""
)
FINGERPRINT = f"sha256-{b64encode(sha256(str(SCRIPT).encode()).digest()).decode()}"


@dataclass(frozen=True, slots=True)
class Point:
    """A sound on the map, in the picture's units; `tile` is the element of the page that shows it, if any."""

    x: float
    y: float
    colour: str
    tile: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A group's number, written beside the middle of its points."""

    x: float
    y: float
    text: str
    colour: str


def colour_of(number: int | None) -> str:
    """The colour of a group by its place in the order; only the first can be told apart."""
    return SITE_COLOURS[number - 1] if number is not None and number <= len(SITE_COLOURS) else OTHER


def on_canvas(places: NDArray[np.floating]) -> NDArray[np.float64]:
    """Places stretched over the picture, whatever their own scale. (N, 2) → (N, 2)"""
    if not len(places):
        return np.zeros((0, 2))
    low, high = np.quantile(places, [0.0, 1.0], axis=0)
    share = (places - low) / np.maximum(high - low, 1e-9)
    size = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    return np.asarray(MARGIN + share * size, np.float64)


def marks(places: NDArray[np.float64], numbers: Sequence[int | None], most: int) -> list[Mark]:
    """Numbers of the first groups, each at the median of its places. (N, 2), N"""
    known = np.array([number or 0 for number in numbers])
    found = []
    for number in range(1, most + 1):
        if (known == number).any():
            x, y = np.median(places[known == number], axis=0).tolist()
            found.append(Mark(x, y, str(number), colour_of(number)))
    return found
