"""Render tiles on request: cache them, and render at most one tile per core at the same time."""

from __future__ import annotations

import os
import threading
from dataclasses import astuple

from mast.audio.reader import Audio, open_audio
from mast.review.review_set import ReviewRecording
from mast.review.web.tile_cache import TileCache
from mast.review.web.tiles import Levels, TileSpec, background_levels, knot_weights, render_tile

TILE_VERSION = 1
"""Version of the tiles' appearance: increase it so that older cached tiles are not shown."""

MAX_BACKGROUNDS = 512


class TileRenderer:
    """Renderer of tiles; measures each background once and caches it."""

    def __init__(self, cache: TileCache) -> None:
        self._cache = cache
        self._backgrounds: dict[tuple[str, str, int, int], Levels] = {}
        self._slots = threading.BoundedSemaphore(os.cpu_count() or 1)

    def tile(self, recording: ReviewRecording, tile: TileSpec) -> bytes:
        """Return a tile as PNG."""
        name = f"{TILE_VERSION} {recording.location} {recording.version} {astuple(tile)}"
        png = self._cache.get(name)
        if png is None:
            with self._slots, open_audio(recording.location, None, frames=recording.frames) as audio:
                png = render_tile(audio, tile, self._background(audio, recording, tile))
            self._cache.put(name, png)
        return png

    def _background(self, audio: Audio, recording: ReviewRecording, tile: TileSpec) -> Levels:
        """Return the background level of each column of a tile in dB, shape (width, F)."""
        before, after, weight = knot_weights(tile, audio.duration_s)
        window = tile.window(audio.sample_rate_hz)
        first, second = (self._background_at_knot(audio, recording, window, knot) for knot in (before, after))
        mixed: Levels = first * (1 - weight) + second * weight
        return mixed

    def _background_at_knot(self, audio: Audio, recording: ReviewRecording, window: int, knot: int) -> Levels:
        key = (recording.location, recording.version, window, knot)
        if key not in self._backgrounds:
            while len(self._backgrounds) >= MAX_BACKGROUNDS:
                self._backgrounds.pop(next(iter(self._backgrounds)), None)
            self._backgrounds[key] = background_levels(audio, window, knot)
        return self._backgrounds[key]
