"""Build small WAV files byte by byte."""

from __future__ import annotations

import struct

import numpy as np

RATE_HZ = 16_000


def noise(seconds: float = 1.0, seed: int = 0) -> bytes:
    samples = np.random.default_rng(seed).normal(0, 2000, int(seconds * RATE_HZ))
    return samples.astype("<i2").tobytes()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack("<4sI", name, len(body)) + body + b"\0" * (len(body) % 2)


def form(tag: int = 1, channels: int = 1, rate_hz: int = RATE_HZ, bits: int = 16) -> bytes:
    frame_bytes = channels * ((bits + 7) // 8)
    return chunk(
        b"fmt ", struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * frame_bytes, frame_bytes, bits)
    )


def info(comment: str) -> bytes:
    return chunk(b"LIST", b"INFO" + chunk(b"ICMT", comment.encode() + b"\0"))


def wav(
    data: bytes,
    *,
    before: bytes = b"",
    after: bytes = b"",
    stated_bytes: int | None = None,
    layout: bytes | None = None,
    riff: bytes = b"RIFF",
    riff_bytes: int | None = None,
) -> bytes:
    stated = len(data) if stated_bytes is None else stated_bytes
    body = b"WAVE" + before + (form() if layout is None else layout)
    body += struct.pack("<4sI", b"data", stated) + data + after
    return riff + struct.pack("<I", len(body) if riff_bytes is None else riff_bytes) + body
