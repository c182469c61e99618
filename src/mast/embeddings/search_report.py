"""`mast search`: write the results as an HTML page with spectrograms and audio, and as a CSV table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from mast.annotations.delimited import open_table
from mast.embeddings.vector_search import Neighbour, Query, SearchFilter, locator_of
from mast.errors import AudioError, StorageError
from mast.outputs.examples import extract_clip
from mast.plotting.html import render_page
from mast.runs.results import DetectionResults
from mast.storage import atomic_write, join
from mast.version import __version__
from mast.wording import counted

MAX_TILES = 48
"""Maximum number of tiles on a page; each embeds its spectrogram and audio, about 300 kB. The table has all results."""

COLUMNS = (
    *("similarity", "event_id", "recording", "start_s", "end_s", "low_hz", "high_hz"),
    *("score", "site", "start_utc", "start_local"),
)


@dataclass(frozen=True, slots=True)
class NeighbourTile:
    """A search result with its spectrogram and audio as data URLs, or the reason why there are none."""

    neighbour: Neighbour
    image: str = ""
    audio: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The nearest events, and the locations of the page and the table that were written."""

    neighbours: Sequence[Neighbour]
    page: str
    table: str

    def summary(self) -> str:
        """Return a readable summary."""
        if not self.neighbours:
            text = "No event matches the query and its filter."
        else:
            first, last = self.neighbours[0].similarity, self.neighbours[-1].similarity
            sites = {item.event.site for item in self.neighbours} - {None}
            at_sites = f" at {len(sites):,} sites" if len(sites) > 1 else ""
            events = counted(len(self.neighbours), "event")
            text = f"{events}{at_sites}, similarity {first:.3f} to {last:.3f}"
        return f"{text}\nReport: {self.page}\nTable: {self.table}"


def write_search_report(
    results: DetectionResults,
    query: Query,
    neighbours: Sequence[Neighbour],
    search_filter: SearchFilter,
    out: str | None = None,
) -> SearchResult:
    """Write the page `out`, by default `search-EVENT_ID.html` in the run's folder, and the CSV table beside it."""
    page = out or join(results.folder, f"search-{query.event_id}.html")
    table = f"{page.removesuffix('.html')}.csv"
    with open_table(table, COLUMNS) as add:
        add(map(_cells, neighbours))
    with atomic_write(page) as file:
        file.write(search_page(results, query, neighbours, search_filter).encode("utf-8", "backslashreplace"))
    return SearchResult(neighbours, page, table)


def search_page(
    results: DetectionResults, query: Query, neighbours: Sequence[Neighbour], search_filter: SearchFilter
) -> str:
    """Render the page: the query event, then the most similar events."""
    image, audio, reason = render_clip(
        query.location, query.time_expansion, query.frames, _bounds(query.event)
    )
    return render_page(
        "search.html",
        {
            "results": results,
            "version": __version__,
            "query": query.event,
            "name": query.event_id,
            "image": image,
            "audio": audio,
            "reason": reason,
            "tiles": list(_tiles(results, neighbours[:MAX_TILES])),
            "count": len(neighbours),
            "filter_text": _describe_filter(search_filter),
        },
    )


def _tiles(results: DetectionResults, neighbours: Sequence[Neighbour]) -> Iterator[NeighbourTile]:
    for item in neighbours:
        yield NeighbourTile(
            item, *render_clip(*locator_of(results, item.event.recording_id), _bounds(item.event))
        )


def render_clip(
    location: str, expansion: float, frames: int | None, bounds: tuple[float, float, float, float]
) -> tuple[str, str, str]:
    """Return the spectrogram and the audio of a box as data URLs, and the reason if they are empty."""
    try:
        return (*extract_clip(location, bounds, expansion, frames).render([bounds]), "")
    except (AudioError, StorageError, OSError) as error:
        return "", "", str(error)


def _bounds(event: object) -> tuple[float, float, float, float]:
    start_s, low_hz, end_s, high_hz = (
        getattr(event, name) for name in ("start_s", "low_hz", "end_s", "high_hz")
    )
    return start_s, low_hz, end_s, high_hz


def _cells(item: Neighbour) -> list[str]:
    event = item.event
    return [
        f"{item.similarity:.6f}",
        event.event_id,
        event.recording_id,
        *(f"{value:.6f}" for value in (event.start_s, event.end_s)),
        *(f"{value:.3f}" for value in (event.low_hz, event.high_hz)),
        f"{event.score:.6f}",
        event.site or "",
        _iso(event.start_utc),
        _iso(event.start_local),
    ]


def _iso(time: datetime | None) -> str:
    """Format a time as ISO 8601 to the millisecond: with a Z in UTC, without a zone for the recorder's clock."""
    return "" if time is None else time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _describe_filter(search_filter: SearchFilter) -> str:
    """Describe a filter in one line of text."""
    terms = [f"at {' or '.join(search_filter.sites)}"] if search_filter.sites else []
    terms += [
        f"{word} {time:%Y-%m-%d %H:%M} UTC"
        for word, time in (("from", search_filter.since), ("before", search_filter.until))
        if time is not None
    ]
    terms += [
        f"{word} {value:g}{unit}"
        for word, value, unit in (
            ("above", search_filter.low_hz, " Hz"),
            ("below", search_filter.high_hz, " Hz"),
            ("score at least", search_filter.min_score, ""),
        )
        if value is not None
    ]
    return ", ".join(terms)
