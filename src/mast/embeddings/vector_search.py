"""Search for the events most similar to a query (paper, Retrieval-based event characterization): nearest by cosine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.audio.reader import open_audio
from mast.embeddings.box_encoder import BoxEncoder, embed_boxes
from mast.embeddings.vector_table import EMBEDDINGS, TableMetadata, nearest, open_vectors
from mast.embeddings.whitening import read_whitening
from mast.errors import AudioError, ConfigError, ModelError, StorageError
from mast.models.loading import load_encoder
from mast.records import EmbeddedEvent, Event, event_id, from_table
from mast.runs.results import DetectionResults, open_results
from mast.storage import exists, is_remote, join

TOP = 24
"""Default number of results: two screens of the page."""


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Conditions that every search result satisfies.

    `sites` are alternatives. `since` and `until` limit the start in UTC, `until` excluded; an event of a recording
    without a clock time satisfies neither. `low_hz` and `high_hz` enclose the box of the event.
    """

    sites: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    low_hz: float | None = None
    high_hz: float | None = None
    min_score: float | None = None

    def condition(self) -> str | None:
        """Return the filter as an SQL condition on the table; None without any condition."""
        terms = []
        if self.sites:
            terms.append(f"site IN ({', '.join(map(_quoted, self.sites))})")
        for operator, time in ((">=", self.since), ("<", self.until)):
            if time is not None:
                terms.append(f"start_utc {operator} timestamp '{_sql_timestamp(time)}'")
        for column, operator, value in (
            ("low_hz", ">=", self.low_hz),
            ("high_hz", "<=", self.high_hz),
            ("score", ">=", self.min_score),
        ):
            if value is not None:
                terms.append(f"{column} {operator} {float(value)!r}")
        return " AND ".join(terms) or None


ALL = SearchFilter()


class Query(NamedTuple):
    """The query event: its id, its box, the location of its recording, and its vector (C,).

    `frames` is the number of readable frames of a truncated recording, otherwise None.
    """

    event_id: str
    event: Event
    location: str
    time_expansion: float
    frames: int | None
    vector: NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A search result, and the cosine between its vector and that of the query."""

    similarity: float
    event: EmbeddedEvent


def search(
    events: str,
    query_box: Event | None = None,
    *,
    query_event: str | None = None,
    search_filter: SearchFilter = ALL,
    top: int = TOP,
    exact: bool = False,
    table: str | None = None,
) -> list[Neighbour]:
    """Return the events of a run most similar to a box or to one of its own events, most similar first.

        >>> from mast.embeddings import search
        >>> for neighbour in search("found", query_event="5d0f32c9b1e84a07c6f2", top=10):
        ...     event = neighbour.event
        ...     print(f"{neighbour.similarity:.3f} {event.recording_id} {event.start_s:.1f} s")

    Args:
        events: Folder of the run.
        query_box: A box of a recording, given by its `recording_id` in the run or by the path of an audio file.
        query_event: Id of an event of the run, instead of `query_box`.
        search_filter: Conditions that every result satisfies.
        top: Number of results.
        exact: Compare the query with every event, even if the table has an index.
        table: Location of the vectors, if not in the folder of the run.

    Returns:
        The nearest events with their cosine similarity, without the query itself.

    Raises:
        ConfigError: Not exactly one query is given, or the table has no such event.
        AudioError: The box has no audio in the frequency band of the model.
        StorageError: The run, its vectors or the model do not exist.
    """
    if (query_box is None) == (query_event is None):
        raise ConfigError("Specify either a box with --query or an event id with --query-event.")
    results, location = open_results(events), table or join(events, EMBEDDINGS)
    query = (
        box_query(results, location, query_box)
        if query_box
        else event_query(results, location, query_event or "")
    )
    return nearest_events(location, query, search_filter, top, exact=exact)


def nearest_events(
    location: str, query: Query, search_filter: SearchFilter = ALL, top: int = TOP, *, exact: bool = False
) -> list[Neighbour]:
    """Return the events of a table most similar to a query, without the query event; ties are ordered by id."""
    if top < 1:
        raise ConfigError(f"--top {top}: specify 1 or more.")
    dataset, _ = open_vectors(location)
    # Request one more and drop the query event here: excluding it by a filter would bypass the index.
    rows = nearest(dataset, query.vector, top + 1, search_filter.condition(), exact=exact)
    similarity = (1 - rows["_distance"].to_numpy()).tolist()
    neighbours = [Neighbour(*pair) for pair in zip(similarity, from_table(rows, EmbeddedEvent), strict=True)]
    others = [item for item in neighbours if item.event.event_id != query.event_id]
    return sorted(others, key=lambda item: (-item.similarity, item.event.event_id))[:top]


def event_query(results: DetectionResults, location: str, name: str) -> Query:
    """Return the query for the event of a table with the id `name`."""
    dataset, _ = open_vectors(location)
    rows = dataset.to_table(filter=f"event_id = {_quoted(name)}", limit=1)
    if not len(rows):
        raise ConfigError(
            f"{location} has no event {name}. Copy the event id from the page or the table of a search."
        )
    (row,) = from_table(rows, EmbeddedEvent)
    event = Event(row.recording_id, row.start_s, row.end_s, row.low_hz, row.high_hz)
    vector = np.asarray(rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False), np.float16)
    return Query(name, event, *locator_of(results, row.recording_id), vector)


def box_query(
    results: DetectionResults, location: str, query_box: Event, model: str | None = None, device: str = "auto"
) -> Query:
    """Return the query for a box of any recording, embedded with the model of the table.

    The model is loaded from `model`, by default from its location when the table was created.
    """
    if query_box.low_hz is None or query_box.high_hz is None:
        raise ConfigError("A query box needs a lower and an upper frequency.")
    _, metadata = open_vectors(location)
    recording, expansion, frames = _locate(results, query_box.recording_id)
    encoder = encoder_of_table(location, metadata, model or metadata.location, device)
    bounds = np.array([[query_box.start_s, query_box.low_hz, query_box.end_s, query_box.high_hz]])
    with open_audio(recording, encoder.rate_hz, expansion, frames) as audio:
        vectors, _ = embed_boxes(audio, bounds, encoder, expansion)
        duration_s = audio.duration_s / expansion
    if not len(vectors):
        band = encoder.description.spectrogram
        raise AudioError(
            f"{recording}: a box from {query_box.start_s:g} to {query_box.end_s:g} s and {query_box.low_hz:g} to "
            f"{query_box.high_hz:g} Hz contains no audio to search for. The recording lasts {duration_s:.1f} s, and the "
            f"model's frequency band is {band.low_hz * expansion:g} to {band.high_hz * expansion:g} Hz."
        )
    name = event_id(
        query_box.recording_id, query_box.start_s, query_box.end_s, query_box.low_hz, query_box.high_hz
    )
    return Query(name, query_box, recording, expansion, frames, vectors[0])


def encoder_of_table(location: str, metadata: TableMetadata, model: str, device: str) -> BoxEncoder:
    """Load the model of a table; raise `ModelError` for another model, whose vectors are not comparable."""
    try:
        loaded = load_encoder(model)
    except StorageError as error:
        raise StorageError(f"{error} If the model was moved, specify its location with --model.") from None
    if loaded.description.identity != metadata.model:
        raise ModelError(
            f"{model} is model {loaded.description.identity}, and the vectors of {location} are of model "
            f"{metadata.model}. Specify that model with --model, or run mast embed again with another --out."
        )
    return BoxEncoder(loaded, metadata.layers, device, read_whitening(location))


def locator_of(results: DetectionResults, recording_id: str) -> tuple[str, float, int | None]:
    """Return the location of a run's recording, its time expansion, and its readable frames if it is truncated."""
    collection, path = results.split_id(recording_id)
    return (
        results.location(collection, path),
        results.expansions[collection],
        results.cut_short.get(recording_id),
    )


def _locate(results: DetectionResults, name: str) -> tuple[str, float, int | None]:
    """Return the same as `locator_of` for a recording of the run, or else for the audio file `name`."""
    with suppress(StorageError):
        location, expansion, frames = locator_of(results, name)
        if exists(location):
            return location, expansion, frames
    if exists(name):
        return name if is_remote(name) else str(Path(name).absolute()), 1.0, None
    collections = ", ".join(results.roots)
    raise AudioError(
        f"{name}: this run has no such recording, and there is no such file. Specify the recording as in the events, "
        f"such as COLLECTION/PATH with one of the collections {collections}, or the path of an audio file."
    )


def _quoted(text: str) -> str:
    """Return a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _sql_timestamp(time: datetime) -> str:
    """Return a time as an SQL timestamp in UTC without a zone; a time without a zone is taken as UTC."""
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
