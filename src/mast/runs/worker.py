"""Detect the events of one part of an archive: write a table of events, and a status row for every recording.

`process_part` does all the work of a part; worker processes of both backends call it. The same part gives identical
files. The status is written last: if it exists, the part is done.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from mast.audio.reader import open_audio
from mast.config import Detection
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.detect import detect_with_vectors
from mast.errors import MastError, ModelError, StorageError
from mast.models.detector import Detector
from mast.models.inference_engines import QUANTISED, EngineName
from mast.models.loading import AnyEncoder, LoadedModel, load_detector
from mast.models.openvino import OpenVINOModel
from mast.models.postprocess import ChunkDetections
from mast.recordings.faults import FAULTS
from mast.runs.layout import RECORDINGS
from mast.runs.plan import Part
from mast.runs.quantisation import read_program
from mast.runs.tables import EventsTable, RecordingRow, RunConfig, events_table, read_rows, write_status
from mast.storage import is_folder, is_remote, join
from mast.workers.process import PROGRESS, Answer, Serve, worker_main

PROGRESS_INTERVAL_S = 1.0
"""Interval of progress reports within a long recording."""

MAX_READ_ATTEMPTS = 3
"""Attempts to read a recording: if any of them succeeds, an error is transient, and the recording is not quarantined."""

_MAX_ERROR_CHARS = 300


class TransientError(MastError):
    """Error that may not occur again: the part is tried again."""


class PartProgress(NamedTuple):
    """Progress of a part: the current row, and the seconds of audio processed so far."""

    row: int
    processed_s: float


class ProgressDetector(ModelChunkDetector):
    """Detector that counts the processed seconds of a recording, and keeps the error if the model itself fails."""

    def __init__(
        self,
        loaded: LoadedModel[Detector],
        settings: Detection,
        device: str,
        hop_s: float,
        engine: EngineName | None = None,
        program: OpenVINOModel | None = None,
        *,
        embeds: bool = False,
    ) -> None:
        super().__init__(loaded, settings, device, engine, program, embeds=embeds)
        self.width = cast("AnyEncoder", loaded.network.encoder).shape.width
        self.rate_hz = loaded.description.chunking.sample_rate_hz
        self._hop_samples = round(hop_s * self.rate_hz)
        self.begin(1.0, lambda processed_s: None)

    def begin(self, time_expansion: float, on_processed: Callable[[float], None]) -> None:
        """Begin a recording; `on_processed(seconds)` is called after every batch of chunks."""
        self._expansion, self._on_processed = time_expansion, on_processed
        self._chunks, self.processed_s = 0, 0.0
        self.failure: ModelError | None = None

    def __call__(self, audio: NDArray[np.int16], valid_samples: NDArray[np.int64]) -> list[ChunkDetections]:
        """Predict boxes in the next chunks of the recording. (B, N), (B,) → B"""
        try:
            detections = super().__call__(audio, valid_samples)
        except Exception as error:
            message = " ".join(str(error).split())[:_MAX_ERROR_CHARS]
            self.failure = ModelError(
                f"The model failed: {type(error).__name__}: {message}. If memory is short, use fewer processes with "
                "--workers."
            )
            raise self.failure from error
        self._chunks += len(valid_samples)
        samples = (self._chunks - 1) * self._hop_samples + int(valid_samples[-1])
        self.processed_s = samples / self.rate_hz / self._expansion
        self._on_processed(self.processed_s)
        return detections


def load_detector_for_run(config: RunConfig, device: str) -> ProgressDetector:
    """Load the run's model on a device; raise ModelError if it is not the model that the run started with."""
    loaded = load_detector(config.model)
    if loaded.description.identity != config.identity:
        raise ModelError(
            f"{config.model} is no longer the model {config.identity} that this run started with. Restore it."
        )
    program = read_program(config.out) if config.engine in QUANTISED else None
    settings = Detection.model_validate(config.detection)
    return ProgressDetector(
        loaded, settings, device, config.hop_s, config.engine, program, embeds=config.embeds
    )


def process_part(
    part: Part,
    config: RunConfig,
    detector: ProgressDetector,
    crashed: Mapping[int, str] | None = None,
    on_progress: Callable[[PartProgress], None] = lambda progress: None,
) -> None:
    """Write the events and then the status of a part; rows in `crashed` are quarantined with the reason there."""
    status: list[tuple[Any, ...]] = []
    reporter = _Reporter(on_progress)
    with events_table(part.number, config, detector.width) as events:
        for row, recording in enumerate(read_rows(join(config.out, RECORDINGS), part), part.first_row):
            reason = _recorded_fault(recording) or (crashed or {}).get(row)
            processed_s, before = 0.0, events.count
            if reason is None:
                reporter.begin(row)
                processed_s, reason = _detect(recording, config, detector, events, reporter.update)
                reporter.end(processed_s)
            count = events.count - before
            outcome = "quarantined" if reason else "ok" if count else "empty"
            status.append(
                (
                    recording.recording_id,
                    outcome,
                    reason,
                    processed_s,
                    count,
                    recording.site,
                    recording.start_utc,
                )
            )
    write_status(status, part.number, config)


def _detect(
    recording: RecordingRow,
    config: RunConfig,
    detector: ProgressDetector,
    events: EventsTable,
    on_processed: Callable[[float], None],
) -> tuple[float, str | None]:
    """Write the events of a recording; return the seconds processed, and the reason if processing failed."""
    root, expansion = config.roots[recording.collection], config.expansions[recording.collection]
    location = join(root, recording.path)
    detector.begin(expansion, on_processed)
    detections = detect_with_vectors(
        location,
        detector,
        recording_id=recording.recording_id,
        min_score=config.threshold,
        hop_s=config.hop_s,
        time_expansion=expansion,
        frames=recording.frames,
    )
    while True:
        try:
            detection = next(detections, None)
        except Exception as error:  # a bad file must never stop the run, whatever exception a decoder raises
            if detector.failure:
                raise detector.failure from None
            check_reachable(root)
            reason = describe_error(error, location)
            if can_be_read(location, detector.rate_hz, expansion, recording.frames):
                raise TransientError(
                    f"{location}: {reason} The file was readable on a second attempt."
                ) from None
            return detector.processed_s, reason
        if detection is None:
            return detector.processed_s, None
        events.add(recording, *detection)


class _Reporter:
    """Reporter of a part's progress: at every recording, and every PROGRESS_INTERVAL_S within a long one."""

    def __init__(self, on_progress: Callable[[PartProgress], None]) -> None:
        self._on_progress = on_progress
        self._row, self._before_s, self._reported_s = 0, 0.0, 0.0

    def begin(self, row: int) -> None:
        self._row, self._reported_s = row, 0.0
        self.update(0.0)

    def update(self, processed_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= PROGRESS_INTERVAL_S:
            self._reported_s = now_s
            self._on_progress(PartProgress(self._row, self._before_s + processed_s))

    def end(self, processed_s: float) -> None:
        self._before_s += processed_s


def _recorded_fault(recording: RecordingRow) -> str | None:
    """Return the reason why the scan quarantined a recording, or None."""
    if recording.status != "quarantined":
        return None
    meanings = [FAULTS[code].meaning for code in recording.faults if FAULTS[code].status == "quarantined"]
    return "; ".join(meanings) + (f" ({recording.detail})" if recording.detail else "")


def describe_error(error: Exception, location: str) -> str:
    """Return the message of an error as one line, without the recording's location."""
    text = str(error) if isinstance(error, MastError) else f"{type(error).__name__}: {error}"
    return " ".join(text.removeprefix(f"{location}: ").split()).encode("utf-8", "backslashreplace").decode()


def check_reachable(root: str) -> None:
    """Raise an error if the recordings are unreachable, as after a drive was unplugged: the files are not at fault."""
    message = f"{root}: the recordings are no longer reachable"
    try:
        if is_remote(root):
            is_present = is_folder(root)
        else:
            with os.scandir(root) as entries:
                is_present = any(entries)  # an unplugged drive may leave an empty folder
    except OSError as error:
        kind = TransientError if is_remote(root) else StorageError  # a network may recover soon
        raise kind(f"{message}: {error.strerror or error}.") from None
    if not is_present:
        raise StorageError(f"{message}: the folder is missing or empty.")


def can_be_read(location: str, rate_hz: int, time_expansion: float, frames: int | None = None) -> bool:
    """Return True if a recording that could not be read is now readable from start to end."""
    for _ in range(MAX_READ_ATTEMPTS - 1):
        with suppress(Exception), open_audio(location, rate_hz, time_expansion, frames) as audio:
            for _block in audio.stream():
                pass
            return True
    return False


def serve(
    config: RunConfig, detector: ProgressDetector, jobs: Iterator[bytes], answer: Callable[[Answer], None]
) -> None:
    """Process jobs of a worker process: one part after the other."""
    for line in jobs:
        job = json.loads(line)
        try:
            process_part(
                Part(*job["part"]),
                config,
                detector,
                dict(job["crashed"]),
                lambda progress: answer({PROGRESS: progress}),
            )
        except (MastError, OSError) as error:
            answer(error_response(error))
        else:
            answer({})


def error_response(error: MastError | OSError) -> Answer:
    """Return the answer of a worker process that failed at a part; another attempt may succeed if `is_transient`."""
    if isinstance(error, MastError):  # a full disk, an unplugged drive, a failing model
        return {"error": str(error), "is_transient": isinstance(error, TransientError)}
    # a bucket that is temporarily unavailable
    return {"error": f"{str(error).rstrip('.')}.", "is_transient": error.errno != errno.ENOSPC}


def read_worker_args() -> tuple[dict[str, Any], str]:
    """Read the arguments of a worker process: the values of its configuration and its device.

    The process computes on one thread, or on one of the GPUs.
    """
    config, device, gpu = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(gpu)
    return config, device


def _get_ready() -> Serve:
    values, device = read_worker_args()
    config = RunConfig(**values)
    return partial(serve, config, load_detector_for_run(config, device))


if __name__ == "__main__":
    worker_main(_get_ready)
