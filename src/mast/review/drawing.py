"""Tiles of recordings, drawn when someone looks: kept once drawn, and no more at a time than there are cores."""

from __future__ import annotations

import os
import threading
from dataclasses import astuple

from mast.recordings.decode import Audio, open_audio
from mast.review.material import Recorded
from mast.review.tile_cache import TileCache
from mast.review.tiles import Levels, Tile, background, between_knots, draw_tile

FORM = 1
"""Counts up when tiles come to look different, so that none drawn before is shown."""

MOST_BACKGROUNDS = 512


class Drawer:
    """Draws tiles over a background that it has measured once."""

    def __init__(self, cache: TileCache) -> None:
        self._cache = cache
        self._backgrounds: dict[tuple[str, str, int, int], Levels] = {}
        self._turns = threading.BoundedSemaphore(os.cpu_count() or 1)

    def tile(self, recording: Recorded, tile: Tile) -> bytes:
        """A tile as PNG."""
        name = f"{FORM} {recording.location} {recording.version} {astuple(tile)}"
        known = self._cache.get(name)
        if known is None:
            with self._turns, open_audio(recording.location, None, frames=recording.frames) as audio:
                known = draw_tile(audio, tile, self._background(audio, recording, tile))
            self._cache.put(name, known)
        return known

    def _background(self, audio: Audio, recording: Recorded, tile: Tile) -> Levels:
        """The background below each column of a tile. → (width, F)"""
        before, after, way = between_knots(tile, audio.duration_s)
        window = tile.window(audio.sample_rate_hz)
        first, second = (self._at_knot(audio, recording, window, knot) for knot in (before, after))
        mixed: Levels = first * (1 - way) + second * way
        return mixed

    def _at_knot(self, audio: Audio, recording: Recorded, window: int, knot: int) -> Levels:
        key = (recording.location, recording.version, window, knot)
        if key not in self._backgrounds:
            while len(self._backgrounds) >= MOST_BACKGROUNDS:
                self._backgrounds.pop(next(iter(self._backgrounds)), None)
            self._backgrounds[key] = background(audio, window, knot)
        return self._backgrounds[key]
