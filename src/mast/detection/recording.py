"""The animal sounds of one recording of any length, format and rate: decode, cut, detect, stitch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from mast.config import Detection
from mast.detection.chunks import BoxFinder
from mast.detection.stitching import Stitched, Vector, stitch
from mast.errors import ConfigError
from mast.events import Event
from mast.models.checkpoint import Description
from mast.models.decoding import Detections
from mast.models.loading import load_detector
from mast.recordings.decode import Audio, chunk_and_hop, open_audio
from mast.recordings.store import to_int16
from mast.spectrogram import MelGrid

Samples = NDArray[np.int16]

HOP = 0.9
"""From one chunk to the next, in chunks: the second that two of 10.24 s share is enough to put calls together again.

The paper's half would hear every moment twice, at nearly double the cost.
"""


def detect(
    path: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    min_score: float | None = None,
    device: str = "auto",
) -> list[Event]:
    """Find the animal sounds in a recording, by start, each as a box in seconds and Hz with a score.

    The recording is any sound file, on a disk or at s3://…; the model a trained detector: a folder, s3://… or
    hf://owner/name. `min_score` is the least score to report, by default the one that the model was saved with.

        >>> import mast
        >>> for event in mast.detect("A1/20240510_053000.WAV", "work/runs/train/main/model"):
        ...     print(f"{event.start_s:.2f} s, {event.low_hz:.0f} to {event.high_hz:.0f} Hz: {event.score:.2f}")

    For many recordings load the model once, and ask `mast.detection.recording.detect_recording` for each.
    """
    loaded = load_detector(os.fspath(model))
    settings = Detection()
    chosen = settings.model_copy(
        update={
            "nms_iou": loaded.description.thresholds.get("nms_iou", settings.nms_iou),
            "min_score": settings.min_score if min_score is None else min(min_score, settings.min_score),
        }
    )
    finder = BoxFinder(loaded, chosen, device)
    return list(detect_recording(os.fspath(path), finder, min_score=min_score))


def detect_recording(
    location: str,
    finder: BoxFinder,
    *,
    recording_id: str | None = None,
    min_score: float | None = None,
    hop_s: float | None = None,
    time_expansion: float = 1.0,
    batch: int | None = None,
) -> Iterator[Event]:
    """Sounds of a recording, by start and then low_hz, in its own seconds and Hz; memory does not grow with its length.

    Boxes from the finder's own least score on are stitched, so that a faint part can still join its sound; then only
    sounds of at least `min_score` are given: by default the model's own threshold, or the finder's where it has none.
    Chunks start `hop_s` apart, as heard, by default `HOP` of a chunk; `time_expansion=10` hears a bat at a tenth of its
    speed. `recording_id` names the recording in its events, by default its location; `batch` changes only the speed.
    """
    heard = hear_recording(
        location,
        finder,
        recording_id=recording_id,
        min_score=min_score,
        hop_s=hop_s,
        time_expansion=time_expansion,
        batch=batch,
    )
    return (event for event, _ in heard)


def hear_recording(  # noqa: PLR0913 (as `detect_recording`, and what only a scan can know)
    location: str,
    finder: BoxFinder,
    *,
    recording_id: str | None = None,
    min_score: float | None = None,
    hop_s: float | None = None,
    time_expansion: float = 1.0,
    batch: int | None = None,
    frames: int | None = None,
) -> Iterator[tuple[Event, Vector | None]]:
    """As `detect_recording`: sounds, each with its vector if the finder embeds; up to `frames`, if a scan told them."""
    description = finder.description
    grid = MelGrid(description.spectrogram, finder.frames)
    least = description.thresholds.get("score", finder.settings.min_score) if min_score is None else min_score
    if not 0 <= least <= 1:
        raise ConfigError(f"A least score of {least:g}: give a number from 0 to 1.")
    chunk, hop = _chunk_and_hop(description, grid, hop_s)
    with open_audio(location, description.chunking.sample_rate_hz, time_expansion, frames) as audio:
        found = _found(_chunks(audio, chunk, hop), finder, batch or finder.batch)
        frame_samples = description.spectrogram.shift_s * audio.sample_rate_hz
        top_hz = float(audio.ratio) * audio.sample_rate_hz / 2
        for sound in stitch(((first / frame_samples, item) for first, item in found), grid.frames):
            if sound.score >= least:
                yield _event(sound, grid, time_expansion, recording_id or location, top_hz), sound.vector


def _chunk_and_hop(description: Description, grid: MelGrid, hop_s: float | None) -> tuple[int, int]:
    """Samples of a chunk, and from one to the next."""
    if hop_s is None:
        hop_s = round(HOP * grid.frames) * grid.settings.shift_s  # whole frames: neighbours see the same ones
    chunk, hop = chunk_and_hop(description.chunking.model_copy(update={"hop_s": hop_s}))
    if not 0 < hop <= chunk:
        raise ConfigError(
            f"A hop of {hop_s:g} s: give more than 0 and at most a chunk, {description.chunking.chunk_s:g} s, "
            "so that no sound goes unheard."
        )
    return chunk, hop


def _chunks(audio: Audio, chunk: int, hop: int) -> Iterator[tuple[int, int, Samples]]:
    """First sample, number of samples and padded sound of each chunk; decoded once, and none without new sound."""
    held, first = np.zeros(0, np.int16), 0
    for block in audio.stream():
        samples = np.empty(len(block), np.int16)
        to_int16(block, samples)
        held = np.concatenate([held, samples])
        while len(held) >= chunk:
            yield first, chunk, held[:chunk]
            held, first = held[hop:], first + hop
    if len(held) > (chunk - hop if first else 0):
        yield first, len(held), np.pad(held, (0, chunk - len(held)))


def _found(
    chunks: Iterator[tuple[int, int, Samples]], finder: BoxFinder, batch: int
) -> Iterator[tuple[int, Detections]]:
    """First sample and boxes of each chunk, some chunks at a time; where a recording breaks, those before it still."""
    broken: Exception | None = None
    while broken is None:
        some = []
        try:
            for one in islice(chunks, batch):
                some.append(one)  # a list made at once is lost with its last item
        except Exception as error:  # whatever a decoder throws
            broken = error
        if not some:
            break
        firsts, filled, sound = zip(*some, strict=True)
        yield from zip(firsts, finder(np.stack(sound), np.array(filled)), strict=True)
    if broken is not None:
        raise broken


def _event(sound: Stitched, grid: MelGrid, time_expansion: float, recording_id: str, top_hz: float) -> Event:
    """A sound in the seconds and Hz of its recording, cut at `top_hz`, above which there is none, as heard."""
    box = torch.tensor(
        [[sound.start_frames, sound.low_bins, sound.end_frames, sound.high_bins]], dtype=torch.float64
    )
    start_s, low_hz, end_s, high_hz = grid.to_events(box)[0].tolist()
    high_hz = min(high_hz, top_hz) if low_hz < top_hz else high_hz
    return Event(
        recording_id,
        start_s / time_expansion,
        end_s / time_expansion,
        low_hz * time_expansion,
        high_hz * time_expansion,
        score=sound.score,
        origin="model",
    )
