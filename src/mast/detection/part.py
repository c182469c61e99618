"""The sounds of one part of an archive: a table of events, and a row about every recording, whatever became of it.

`hear_part` is all that a part needs, whoever calls it: a child process here, a task of a cluster elsewhere. The same
part gives the same bytes. The status is written last: where it exists, the part is done.
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

from mast.config import Detection
from mast.detection.calibration import read_program
from mast.detection.chunks import BoxFinder
from mast.detection.folder import RECORDINGS
from mast.detection.part_tables import EventsTable, Orders, Source, events_table, read_rows, write_status
from mast.detection.plan import Part
from mast.detection.recording import hear_recording
from mast.errors import MastError, ModelError, StorageError
from mast.models.decoding import Detections
from mast.models.detector import Detector
from mast.models.encoder import Encoder
from mast.models.engines import QUANTISED, EngineName
from mast.models.loading import Loaded, load_detector
from mast.models.programs import Program
from mast.recordings.children import NEWS, Answer, Serve, serve_parent
from mast.recordings.decode import open_audio
from mast.recordings.faults import FAULTS
from mast.storage import is_folder, is_remote, join

NEWS_S = 1.0
"""So often a long recording tells how far it is."""

READINGS = 3
"""A recording that cannot be read once but can be at another of so many times is not the one to blame."""

_LONGEST_WORDS = 300


class PassingError(MastError):
    """A trouble that may be over the next time: the part is worth another try."""


class News(NamedTuple):
    """Where a part is: at which row, and how many seconds of sound have been heard."""

    row: int
    heard_s: float


class Ear(BoxFinder):
    """A finder that knows how much of a recording it has heard, and whether it was the finder itself that failed."""

    def __init__(
        self,
        loaded: Loaded[Detector],
        settings: Detection,
        device: str,
        hop_s: float,
        engine: EngineName | None = None,
        program: Program | None = None,
        *,
        embeds: bool = False,
    ) -> None:
        super().__init__(loaded, settings, device, engine, program, embeds=embeds)
        self.width = cast("Encoder", loaded.network.encoder).shape.width
        self.rate_hz = loaded.description.chunking.sample_rate_hz
        self._hop_samples = round(hop_s * self.rate_hz)
        self.begin(1.0, lambda heard_s: None)

    def begin(self, time_expansion: float, on_heard: Callable[[float], None]) -> None:
        """Begin a recording; `on_heard` is told its seconds as they are heard."""
        self._expansion, self._on_heard = time_expansion, on_heard
        self._chunks, self.heard_s = 0, 0.0
        self.failure: ModelError | None = None

    def __call__(self, sound: NDArray[np.int16], filled: NDArray[np.int64]) -> list[Detections]:
        """Boxes of the next chunks of the recording. (B, N), (B,) → B"""
        try:
            found = super().__call__(sound, filled)
        except Exception as error:
            words = " ".join(str(error).split())[:_LONGEST_WORDS]
            self.failure = ModelError(
                f"The model cannot compute: {type(error).__name__}: {words}. If memory is short, have fewer processes "
                "with --workers."
            )
            raise self.failure from error
        self._chunks += len(filled)
        samples = (self._chunks - 1) * self._hop_samples + int(filled[-1])
        self.heard_s = samples / self.rate_hz / self._expansion
        self._on_heard(self.heard_s)
        return found


def open_ear(orders: Orders, device: str) -> Ear:
    """The run's model on a device; refused if it is not the one that the run began with."""
    loaded = load_detector(orders.model)
    if loaded.description.identity != orders.identity:
        raise ModelError(
            f"{orders.model} is no longer the model {orders.identity} that this run began with. Put it back."
        )
    program = read_program(orders.out) if orders.engine in QUANTISED else None
    settings = Detection.model_validate(orders.detection)
    return Ear(loaded, settings, device, orders.hop_s, orders.engine, program, embeds=orders.embeds)


def hear_part(
    part: Part,
    orders: Orders,
    ear: Ear,
    crashed: Mapping[int, str] | None = None,
    on_news: Callable[[News], None] = lambda news: None,
) -> None:
    """Write the events and then the status of a part; rows that have `crashed` are not heard but given their reason."""
    status: list[tuple[Any, ...]] = []
    reporter = _Reporter(on_news)
    with events_table(part.number, orders, ear.width) as events:
        for row, source in enumerate(read_rows(join(orders.out, RECORDINGS), part), part.first_row):
            reason = _known_fault(source) or (crashed or {}).get(row)
            heard_s, before = 0.0, events.count
            if reason is None:
                reporter.begin(row)
                heard_s, reason = _hear(source, orders, ear, events, reporter.tell)
                reporter.end(heard_s)
            count = events.count - before
            word = "quarantined" if reason else "ok" if count else "empty"
            status.append((source.recording_id, word, reason, heard_s, count, source.site, source.start_utc))
    write_status(status, part.number, orders)


def _hear(
    source: Source, orders: Orders, ear: Ear, events: EventsTable, on_heard: Callable[[float], None]
) -> tuple[float, str | None]:
    """Write the events of a recording; gives the seconds heard, and why it ended before its end, if it did."""
    root, expansion = orders.roots[source.collection], orders.expansions[source.collection]
    location = join(root, source.path)
    ear.begin(expansion, on_heard)
    found = hear_recording(
        location,
        ear,
        recording_id=source.recording_id,
        min_score=orders.threshold,
        hop_s=orders.hop_s,
        time_expansion=expansion,
        frames=source.frames,
    )
    while True:
        try:
            heard = next(found, None)
        except Exception as error:  # one bad file must never end the work, whatever a decoder throws
            if ear.failure:
                raise ear.failure from None
            check_reachable(root)
            reason = in_words(error, location)
            if can_be_read(location, ear.rate_hz, expansion, source.frames):
                raise PassingError(
                    f"{location}: {reason} When it was read again, nothing was wrong."
                ) from None
            return ear.heard_s, reason
        if heard is None:
            return ear.heard_s, None
        events.add(source, *heard)


class _Reporter:
    """Tells where a part is: at every recording, and now and then in a long one."""

    def __init__(self, on_news: Callable[[News], None]) -> None:
        self._on_news = on_news
        self._row, self._before_s, self._told_s = 0, 0.0, 0.0

    def begin(self, row: int) -> None:
        self._row, self._told_s = row, 0.0
        self.tell(0.0)

    def tell(self, heard_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= NEWS_S:
            self._told_s = now_s
            self._on_news(News(self._row, self._before_s + heard_s))

    def end(self, heard_s: float) -> None:
        self._before_s += heard_s


def _known_fault(source: Source) -> str | None:
    """Why a recording cannot be heard, where that was known when it was found."""
    if source.status != "quarantined":
        return None
    meanings = [FAULTS[code].meaning for code in source.faults if FAULTS[code].status == "quarantined"]
    return "; ".join(meanings) + (f" ({source.detail})" if source.detail else "")


def in_words(error: Exception, location: str) -> str:
    """Why a recording cannot be heard, as one line that does not name it again."""
    text = str(error) if isinstance(error, MastError) else f"{type(error).__name__}: {error}"
    return " ".join(text.removeprefix(f"{location}: ").split()).encode("utf-8", "backslashreplace").decode()


def check_reachable(root: str) -> None:
    """Refuse to blame recordings for a drive that was unplugged, or a bucket that is gone."""
    told = f"{root}: the recordings cannot be reached any more"
    try:
        if is_remote(root):
            is_there = is_folder(root)
        else:
            with os.scandir(root) as entries:
                is_there = any(entries)  # where a drive was, an empty folder may be left
    except OSError as error:
        kind = PassingError if is_remote(root) else StorageError  # a network may be up again soon
        raise kind(f"{told}: {error.strerror or error}.") from None
    if not is_there:
        raise StorageError(f"{told}: they are gone.")


def can_be_read(location: str, rate_hz: int, time_expansion: float, frames: int | None = None) -> bool:
    """Whether a recording that could not be read can be now, from its start to its end."""
    for _ in range(READINGS - 1):
        with suppress(Exception), open_audio(location, rate_hz, time_expansion, frames) as audio:
            for _block in audio.stream():
                pass
            return True
    return False


def serve(orders: Orders, ear: Ear, jobs: Iterator[bytes], answer: Callable[[Answer], None]) -> None:
    """What a child process does: one part after the other."""
    for line in jobs:
        job = json.loads(line)
        try:
            hear_part(
                Part(*job["part"]),
                orders,
                ear,
                dict(job["crashed"]),
                lambda news: answer({NEWS: news}),
            )
        except (MastError, OSError) as error:
            answer(trouble(error))
        else:
            answer({})


def trouble(error: MastError | OSError) -> Answer:
    """What a child process answers that could not do its part, and whether another try may."""
    if isinstance(error, MastError):  # a full disk, a drive that is gone, a model that cannot compute
        return {"error": str(error), "may_pass": isinstance(error, PassingError)}
    # a bucket that cannot be written or read just now
    return {"error": f"{str(error).rstrip('.')}.", "may_pass": error.errno != errno.ENOSPC}


def take_orders() -> tuple[dict[str, Any], str]:
    """What a child process was started with, the orders' values and its device: one thread, or one of the GPUs."""
    orders, device, gpu = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(gpu)
    return orders, device


def _get_ready() -> Serve:
    values, device = take_orders()
    orders = Orders(**values)
    return partial(serve, orders, open_ear(orders, device))


if __name__ == "__main__":
    serve_parent(_get_ready)
