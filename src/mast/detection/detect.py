"""Detect the events of one recording of any length, format and rate: decode, split into chunks, predict, stitch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from mast.audio.reader import Audio, chunk_and_hop, open_audio
from mast.audio.spectrogram import MelGrid
from mast.config import Detection
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.stitching import StitchedEvent, stitch
from mast.errors import ConfigError
from mast.models.checkpoint import ModelInfo
from mast.models.postprocess import ChunkDetections
from mast.records import Event
from mast.store.audio_store import to_int16
from mast.types import Floats16, Samples

CHUNK_HOP_FRACTION = 0.9
"""Hop between chunks as a fraction of a chunk: chunks of 10.24 s overlap by 1 s, enough to stitch calls together.

The paper's hop of one half would process all audio twice, at nearly double the cost.
"""


def detection_settings(
    description: ModelInfo, min_score: float | None = None, chosen: Detection | None = None
) -> Detection:
    """Return the settings that turn predictions into boxes: as in a study, otherwise as saved with the model.

    Args:
        description: The model.
        min_score: Minimum score to report; lowers the score threshold if it is smaller.
        chosen: Settings of a study; those that it does not set come from the model.
    """
    settings = chosen or Detection()
    changed: dict[str, float] = {}
    if "nms_iou_threshold" in description.thresholds and "nms_iou_threshold" not in settings.model_fields_set:
        changed["nms_iou_threshold"] = description.thresholds["nms_iou_threshold"]
    if min_score is not None:
        changed["score_threshold"] = min(min_score, settings.score_threshold)
    return settings.model_copy(update=changed)


def detect_recording(
    location: str,
    detector: ModelChunkDetector,
    *,
    recording_id: str | None = None,
    min_score: float | None = None,
    hop_s: float | None = None,
    time_expansion: float = 1.0,
    batch: int | None = None,
) -> Iterator[Event]:
    """Yield the events of a recording by start, then low_hz, in its own seconds and Hz.

    Boxes above the detector's own score threshold are stitched first, so that a faint part can still join its event;
    then only events of at least `min_score` are yielded. Memory does not grow with the length of the recording.

    Args:
        location: Audio file, on a disk or at s3://….
        detector: Detector to run on each chunk.
        recording_id: Name of the recording in its events, by default `location`.
        min_score: Minimum score of an event, by default the model's own threshold, or the detector's if it has none.
        hop_s: Seconds between chunk starts in the processed audio, by default `CHUNK_HOP_FRACTION` of a chunk.
        time_expansion: Factor by which to slow the recording down; 10 processes bat calls at a tenth of their speed.
        batch: Chunks in a batch; it changes only the speed.

    Yields:
        Events of the recording.

    Raises:
        ConfigError: If `min_score` or `hop_s` is out of range.
        AudioError: If the recording cannot be read; events before the broken part are yielded first.
    """
    events = detect_with_vectors(
        location,
        detector,
        recording_id=recording_id,
        min_score=min_score,
        hop_s=hop_s,
        time_expansion=time_expansion,
        batch=batch,
    )
    return (event for event, _ in events)


def detect_with_vectors(  # noqa: PLR0913 (the arguments of `detect_recording`, and the frame count from a scan)
    location: str,
    detector: ModelChunkDetector,
    *,
    recording_id: str | None = None,
    min_score: float | None = None,
    hop_s: float | None = None,
    time_expansion: float = 1.0,
    batch: int | None = None,
    frames: int | None = None,
) -> Iterator[tuple[Event, Floats16 | None]]:
    """Yield events as `detect_recording` does, each with its vector if the detector embeds.

    `frames` is the number of audio frames to read, if a scan has counted them.
    """
    description = detector.description
    grid = MelGrid(description.spectrogram, detector.frames)
    min_event_score = (
        description.thresholds.get("score", detector.settings.score_threshold)
        if min_score is None
        else min_score
    )
    if not 0 <= min_event_score <= 1:
        raise ConfigError(f"min_score is {min_event_score:g}; it must be from 0 to 1.")
    chunk, hop = _chunk_and_hop(description, grid, hop_s)
    with open_audio(location, description.chunking.sample_rate_hz, time_expansion, frames) as audio:
        detections = _detect_chunks(_chunks(audio, chunk, hop), detector, batch or detector.batch)
        frame_samples = description.spectrogram.frame_shift_s * audio.sample_rate_hz
        top_hz = float(audio.ratio) * audio.sample_rate_hz / 2
        for stitched in stitch(
            ((first / frame_samples, chunk_detections) for first, chunk_detections in detections), grid.frames
        ):
            if stitched.score >= min_event_score:
                yield (
                    _event(stitched, grid, time_expansion, recording_id or location, top_hz),
                    stitched.vector,
                )


def _chunk_and_hop(description: ModelInfo, grid: MelGrid, hop_s: float | None) -> tuple[int, int]:
    """Return the samples in a chunk and from one chunk start to the next."""
    if hop_s is None:
        hop_frames = round(
            CHUNK_HOP_FRACTION * grid.frames
        )  # whole frames, so that overlapping chunks share them
        hop_s = hop_frames * grid.settings.frame_shift_s
    chunk, hop = chunk_and_hop(description.chunking.model_copy(update={"hop_s": hop_s}))
    if not 0 < hop <= chunk:
        raise ConfigError(
            f"hop_s is {hop_s:g} s; it must be above 0 and at most one chunk, {description.chunking.chunk_s:g} s, "
            "so that no audio is skipped."
        )
    return chunk, hop


def _chunks(audio: Audio, chunk: int, hop: int) -> Iterator[tuple[int, int, Samples]]:
    """Yield the first sample, the number of valid samples and the zero-padded audio of each chunk.

    The audio is decoded once, and every chunk contains samples that no earlier chunk has.
    """
    pending, first = np.zeros(0, np.int16), 0
    for block in audio.stream():
        samples = np.empty(len(block), np.int16)
        to_int16(block, samples)
        pending = np.concatenate([pending, samples])
        while len(pending) >= chunk:
            yield first, chunk, pending[:chunk]
            pending, first = pending[hop:], first + hop
    if len(pending) > (chunk - hop if first else 0):
        yield first, len(pending), np.pad(pending, (0, chunk - len(pending)))


def _detect_chunks(
    chunks: Iterator[tuple[int, int, Samples]], detector: ModelChunkDetector, batch: int
) -> Iterator[tuple[int, ChunkDetections]]:
    """Yield the first sample and detections of each chunk; if decoding fails, first those of the chunks before it."""
    broken: Exception | None = None
    while broken is None:
        batch_chunks = []
        try:
            for chunk in islice(chunks, batch):
                batch_chunks.append(chunk)  # list(islice(…)) would lose all chunks when one of them raises
        except Exception as error:  # decoders raise many types
            broken = error
        if not batch_chunks:
            break
        firsts, valid_samples, audio = zip(*batch_chunks, strict=True)
        yield from zip(firsts, detector(np.stack(audio), np.array(valid_samples)), strict=True)
    if broken is not None:
        raise broken


def _event(
    stitched: StitchedEvent, grid: MelGrid, time_expansion: float, recording_id: str, top_hz: float
) -> Event:
    """Convert to an event in the seconds and Hz of its recording, clipped to `top_hz`, its Nyquist limit as processed."""
    box = torch.tensor(
        [[stitched.start_frames, stitched.low_bins, stitched.end_frames, stitched.high_bins]],
        dtype=torch.float64,
    )
    start_s, low_hz, end_s, high_hz = grid.boxes_to_events(box)[0].tolist()
    high_hz = min(high_hz, top_hz) if low_hz < top_hz else high_hz
    return Event(
        recording_id,
        start_s / time_expansion,
        end_s / time_expansion,
        low_hz * time_expansion,
        high_hz * time_expansion,
        score=stitched.score,
        origin="model",
    )
