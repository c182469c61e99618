"""Sounds most like a given one (paper, Retrieval-based event characterization): the nearest vectors by cosine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.detection.found import Found, open_found
from mast.embeddings.boxes import BoxEncoder, embed_boxes
from mast.embeddings.table import EMBEDDINGS, Story, nearest, open_vectors
from mast.embeddings.whitening import read_whitening
from mast.errors import AudioError, ConfigError, ModelError, StorageError
from mast.events import Embedded, Event, event_id, from_table
from mast.models.loading import load_encoder
from mast.recordings.decode import open_audio
from mast.storage import exists, is_remote, join

TOP = 24
"""So many sounds are found where no number is given: two screens of a page."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sounds may be found: all conditions hold for each. Sites are alternatives; times are UTC, `until` excluded.

    The box of a sound lies between `low_hz` and `high_hz`. A sound whose clock is not known is at no time.
    """

    sites: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    low_hz: float | None = None
    high_hz: float | None = None
    min_score: float | None = None

    def condition(self) -> str | None:
        """The same as a filter of the table; None for all."""
        terms = []
        if self.sites:
            terms.append(f"site IN ({', '.join(map(_quoted, self.sites))})")
        for sign, moment in ((">=", self.since), ("<", self.until)):
            if moment is not None:
                terms.append(f"start_utc {sign} timestamp '{_instant(moment)}'")
        for column, sign, value in (
            ("low_hz", ">=", self.low_hz),
            ("high_hz", "<=", self.high_hz),
            ("score", ">=", self.min_score),
        ):
            if value is not None:
                terms.append(f"{column} {sign} {float(value)!r}")
        return " AND ".join(terms) or None


ALL = Wanted()


class Query(NamedTuple):
    """The sound asked for: its name, its box, where its recording is and how far it can be read, and its vector (C,)."""

    event_id: str
    event: Event
    location: str
    time_expansion: float
    frames: int | None
    vector: NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sound that was found, and the cosine between its vector and that of the sound asked for."""

    similarity: float
    event: Embedded


def search(
    events: str,
    like: Event | None = None,
    *,
    like_event: str | None = None,
    wanted: Wanted = ALL,
    top: int = TOP,
    exact: bool = False,
    table: str | None = None,
) -> list[Neighbour]:
    """Sounds of a run that are most like a box of any recording, or like one of its own by its name; nearest first.

    `events` is the folder of the run, `table` its vectors where they lie elsewhere. `like` names a recording of the run
    by its `recording_id`, or any sound file. `exact` compares with every sound although there is an index.

        >>> from mast.embeddings import search
        >>> for found in search("found", like_event="5d0f32c9b1e84a07c6f2", top=10):
        ...     print(f"{found.similarity:.3f} {found.event.recording_id} {found.event.start_s:.1f} s")
    """
    if (like is None) == (like_event is None):
        raise ConfigError("Give either a box with --like or the name of a sound with --like-event.")
    found, location = open_found(events), table or join(events, EMBEDDINGS)
    query = box_query(found, location, like) if like else event_query(found, location, like_event or "")
    return neighbours(location, query, wanted, top, exact=exact)


def neighbours(
    location: str, query: Query, wanted: Wanted = ALL, top: int = TOP, *, exact: bool = False
) -> list[Neighbour]:
    """Sounds of a table most like a query, without that sound itself; ties by name."""
    if top < 1:
        raise ConfigError(f"--top {top}: give 1 or more.")
    dataset, _ = open_vectors(location)
    # The sound itself is asked for and then left out: as a filter it would hide the index from the search.
    rows = nearest(dataset, query.vector, top + 1, wanted.condition(), exact=exact)
    similar = (1 - rows["_distance"].to_numpy()).tolist()
    found = [Neighbour(*pair) for pair in zip(similar, from_table(rows, Embedded), strict=True)]
    others = [item for item in found if item.event.event_id != query.event_id]
    return sorted(others, key=lambda item: (-item.similarity, item.event.event_id))[:top]


def event_query(found: Found, location: str, name: str) -> Query:
    """A sound of a table, by its name."""
    dataset, _ = open_vectors(location)
    rows = dataset.to_table(filter=f"event_id = {_quoted(name)}", limit=1)
    if not len(rows):
        raise ConfigError(
            f"{location} has no sound {name}. Take its name from the page or the table of a search."
        )
    (row,) = from_table(rows, Embedded)
    event = Event(row.recording_id, row.start_s, row.end_s, row.low_hz, row.high_hz)
    vector = np.asarray(rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False), np.float16)
    return Query(name, event, *place_of(found, row.recording_id), vector)


def box_query(
    found: Found, location: str, like: Event, model: str | None = None, device: str = "auto"
) -> Query:
    """A box of any recording, heard by the model of a table, which is looked for where it was unless `model` says."""
    if like.low_hz is None or like.high_hz is None:
        raise ConfigError("A sound to be searched for has a lower and an upper frequency.")
    _, story = open_vectors(location)
    place, expansion, frames = _recording(found, like.recording_id)
    encoder = encoder_of_table(location, story, model or story.location, device)
    bounds = np.array([[like.start_s, like.low_hz, like.end_s, like.high_hz]])
    with open_audio(place, encoder.rate_hz, expansion, frames) as audio:
        vectors, _ = embed_boxes(audio, bounds, encoder, expansion)
        lasting_s = audio.duration_s / expansion
    if not len(vectors):
        band = encoder.description.spectrogram
        raise AudioError(
            f"{place}: {like.start_s:g} to {like.end_s:g} s, {like.low_hz:g} to {like.high_hz:g} Hz is no sound that "
            f"can be searched for. The recording lasts {lasting_s:.1f} s, and the model hears "
            f"{band.low_hz * expansion:g} to {band.high_hz * expansion:g} Hz."
        )
    name = event_id(like.recording_id, like.start_s, like.end_s, like.low_hz, like.high_hz)
    return Query(name, like, place, expansion, frames, vectors[0])


def encoder_of_table(location: str, story: Story, model: str, device: str) -> BoxEncoder:
    """The model of a table; another one is refused, for its vectors mean something else."""
    try:
        loaded = load_encoder(model)
    except StorageError as error:
        raise StorageError(f"{error} If the model is elsewhere now, say where with --model.") from None
    if loaded.description.identity != story.model:
        raise ModelError(
            f"{model} is model {loaded.description.identity}, and the vectors of {location} are of model "
            f"{story.model}. Name that one with --model, or embed anew with another --out."
        )
    return BoxEncoder(loaded, story.pool, device, read_whitening(location))


def place_of(found: Found, recording_id: str) -> tuple[str, float, int | None]:
    """Where a recording of a run should be, its time expansion, and how many frames can be read if not all."""
    collection, path = found.split_id(recording_id)
    return found.place(collection, path), found.expansions[collection], found.cut_short.get(recording_id)


def _recording(found: Found, name: str) -> tuple[str, float, int | None]:
    """The same of a recording of the run, or else of a file."""
    with suppress(StorageError):
        place, expansion, frames = place_of(found, name)
        if exists(place):
            return place, expansion, frames
    if exists(name):
        return name if is_remote(name) else str(Path(name).absolute()), 1.0, None
    known = ", ".join(found.roots)
    raise AudioError(
        f"{name}: no recording of this run is at this place, and no file. Write it as the events do, such as "
        f"COLLECTION/PATH with one of the collections {known}, or give the path of a sound file."
    )


def _quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _instant(moment: datetime) -> str:
    """An instant as the filter writes it: UTC, without saying so."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
