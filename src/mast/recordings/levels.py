"""Measure the level of a recording in three sampled blocks: at its start, in its middle, and at its end.

Three blocks are enough to distinguish a dead microphone, an overloaded one and a damaged file, with few reads: on a hard
disk or in an object store, each additional read costs more time than all the arithmetic in this module.
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
"""A sample at or above this fraction of full scale is at the limit: some converters saturate slightly below it."""

CLIPPED_FRACTION = 0.001
"""A recording with at least this fraction of its sampled samples at the limit is reported as clipped."""

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
    clipped_fraction: float | None = None


def block_starts(
    start: int, length: int, frame: int = 1, block: int = BLOCK_BYTES
) -> tuple[tuple[int, ...], int]:
    """Return the offsets of the blocks to sample in `length` bytes from `start`, and the block length in bytes.

    Blocks contain complete frames and do not overlap.
    """
    count = max(block // frame, 1) * frame
    if length <= BLOCKS * count:
        return (start,), length
    last = (length - count) // frame
    return (start, start + last // 2 * frame, start + last * frame), count


def levels_of_bytes(blocks: bytes, encoding: str, frame_bytes: int) -> Levels:
    """Compute levels of uncompressed samples, given as the bytes in the file."""
    dtype, full_scale = _LAYOUTS[encoding]
    if encoding == "PCM_24":
        samples = _widen_24_bit(blocks)
    elif encoding == "PCM_U8":
        samples = np.frombuffer(blocks, np.uint8).astype(np.int16) - 128
    else:
        samples = np.frombuffer(blocks, dtype)
    low, high = float(np.minimum.reduce(samples)), float(np.maximum.reduce(samples))
    peak = max(-low, high) / full_scale
    if low < high and peak < LIMIT and frame_bytes == samples.itemsize:  # one channel, nothing wrong
        return Levels((), peak, 0.0)
    silent = blocks[frame_bytes:] == blocks[:-frame_bytes]  # every frame equals the next
    return _levels(samples, full_scale, silent=silent, exceeds_full_scale=full_scale == 1.0)


def levels_of_floats(blocks: Sequence[NDArray[np.float32]]) -> Levels:
    """Compute levels of decoded blocks, each (frames, channels)."""
    samples = np.concatenate(blocks)
    return _levels(samples, 1.0, silent=bool((samples == samples[0]).all()), exceeds_full_scale=False)


def fingerprint(header: bytes, blocks: bytes) -> int:
    """Return a 63-bit hash of header and sampled audio, to find files that may be identical.

    Equal files have equal hashes; different files rarely do. Candidates are then compared in full.
    """
    middle = len(blocks) // 2
    sample = blocks[max(middle - _HASHED_BYTES // 2, 0) : middle + _HASHED_BYTES // 2]
    return zlib.crc32(sample) << 31 | zlib.crc32(header) >> 1


def _levels(samples: NDArray[Any], full_scale: float, *, silent: bool, exceeds_full_scale: bool) -> Levels:
    """Compute levels of samples of any shape.

    With `exceeds_full_scale`, samples above full scale are valid (float files), and only those at full scale are clipped.
    """
    faults: tuple[str, ...] = ()
    finite = np.isfinite(samples)
    if not finite.all():
        faults, silent = ("nan-samples",), False
        samples = samples[finite]
        if not samples.size:
            return Levels(faults)
    size = np.abs(samples.astype(np.float64)) / full_scale
    at_limit = (size >= LIMIT) & ((size <= 1) | (not exceeds_full_scale))
    clipped_fraction = 0.0 if silent else int(np.count_nonzero(at_limit)) / size.size
    if silent:
        faults += ("silent",)
    elif clipped_fraction >= CLIPPED_FRACTION:
        faults += ("clipped",)
    return Levels(faults, float(size.max()), clipped_fraction)


def _widen_24_bit(blocks: bytes) -> NDArray[Any]:
    """Convert 24-bit samples to 32 bits; they become the upper three bytes."""
    wide = np.zeros((len(blocks) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(blocks, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0]
