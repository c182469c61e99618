"""How loud a recording is where it is sampled: three blocks, at its start, in its middle, and at its end.

Three places tell a dead microphone, an overloaded one and a broken file apart at the price of a few reads: on a
disk that turns, or in an object store, every further place costs more than all the arithmetic here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCKS = 3
BLOCK_BYTES = 2048
LIMIT = 0.999
"""A sample at this share of full scale or above is at the limit: some converters stop a little below it."""

CLIPPED_SHARE = 0.001
"""A recording with at least this share of its sampled samples at the limit is reported as clipped."""

_HASHED_BYTES = 1024
_LAYOUTS: dict[str, tuple[str, float]] = {
    "PCM_U8": ("u1", 2.0**7),
    "PCM_16": ("<i2", 2.0**15),
    "PCM_24": ("<i4", 2.0**31),
    "PCM_32": ("<i4", 2.0**31),
    "FLOAT": ("<f4", 1.0),
    "DOUBLE": ("<f8", 1.0),
}


class Levels(NamedTuple):
    """Levels of the sampled blocks, relative to full scale."""

    faults: tuple[str, ...] = ()
    peak: float | None = None
    clipped_share: float | None = None


def block_starts(
    start: int, length: int, frame: int = 1, block: int = BLOCK_BYTES
) -> tuple[tuple[int, ...], int]:
    """Where to sample `length` bytes from `start` on, and how many bytes at each place: whole frames, never twice."""
    count = max(block // frame, 1) * frame
    if length <= BLOCKS * count:
        return (start,), length
    room = (length - count) // frame
    return (start, start + room // 2 * frame, start + room * frame), count


def levels_of_bytes(blocks: bytes, encoding: str, frame_bytes: int) -> Levels:
    """Levels of plain samples as they lie in the file."""
    dtype, full_scale = _LAYOUTS[encoding]
    if encoding == "PCM_24":
        samples = _widened(blocks)
    elif encoding == "PCM_U8":
        samples = np.frombuffer(blocks, np.uint8).astype(np.int16) - 128
    else:
        samples = np.frombuffer(blocks, dtype)
    low, high = float(np.minimum.reduce(samples)), float(np.maximum.reduce(samples))
    peak = max(-low, high) / full_scale
    if low < high and peak < LIMIT and frame_bytes == samples.itemsize:  # one channel, nothing wrong
        return Levels((), peak, 0.0)
    silent = blocks[frame_bytes:] == blocks[:-frame_bytes]  # every frame equals the next
    return _levels(samples, full_scale, silent=silent, holds_more=full_scale == 1.0)


def levels_of_floats(blocks: Sequence[NDArray[np.float32]]) -> Levels:
    """Levels of decoded blocks, each (frames, channels)."""
    samples = np.concatenate(blocks)
    return _levels(samples, 1.0, silent=bool((samples == samples[0]).all()), holds_more=False)


def fingerprint(header: bytes, blocks: bytes) -> int:
    """63 bits that equal files share and others hardly ever do: enough to find those worth comparing in full."""
    middle = len(blocks) // 2
    sample = blocks[max(middle - _HASHED_BYTES // 2, 0) : middle + _HASHED_BYTES // 2]
    return zlib.crc32(sample) << 31 | zlib.crc32(header) >> 1


def _levels(samples: NDArray[Any], full_scale: float, *, silent: bool, holds_more: bool) -> Levels:
    """Levels of samples of any shape; a float file `holds_more` than full scale: only samples at it are clipped."""
    faults: tuple[str, ...] = ()
    finite = np.isfinite(samples)
    if not finite.all():
        faults, silent = ("not-a-number",), False
        samples = samples[finite]
        if not samples.size:
            return Levels(faults)
    size = np.abs(samples.astype(np.float64)) / full_scale
    at_limit = (size >= LIMIT) & ((size <= 1) | (not holds_more))
    clipped_share = 0.0 if silent else int(np.count_nonzero(at_limit)) / size.size
    if silent:
        faults += ("silent",)
    elif clipped_share >= CLIPPED_SHARE:
        faults += ("clipped",)
    return Levels(faults, float(size.max()), clipped_share)


def _widened(blocks: bytes) -> NDArray[Any]:
    """24-bit samples as the upper part of 32-bit ones."""
    wide = np.zeros((len(blocks) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(blocks, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0]
