"""`mast search`: what was found as a contact sheet to look at and to listen to, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from mast import __version__
from mast.annotations.text import open_table
from mast.detection.examples import cut_out
from mast.detection.found import Found
from mast.embeddings.neighbours import Neighbour, Query, Wanted, place_of
from mast.errors import AudioError, StorageError
from mast.pictures.html import render_page
from mast.storage import join, written_whole

SHOWN = 48
"""Tiles of a page, at most; each holds its picture and its sound, some 300 kB. The table has all."""

COLUMNS = (
    *("similarity", "event_id", "recording", "start_s", "end_s", "low_hz", "high_hz"),
    *("score", "site", "start_utc", "start_local"),
)


@dataclass(frozen=True, slots=True)
class Tile:
    """A sound with its picture and its wave, each as an address that holds it; or why there is none."""

    neighbour: Neighbour
    picture: str = ""
    sound: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found, and where it is told."""

    neighbours: Sequence[Neighbour]
    page: str
    table: str

    def summary(self) -> str:
        """The account for a person to read."""
        if not self.neighbours:
            told = "No sound fits what was asked for."
        else:
            first, last = self.neighbours[0].similarity, self.neighbours[-1].similarity
            sites = {item.event.site for item in self.neighbours} - {None}
            where = f" at {len(sites):,} sites" if len(sites) > 1 else ""
            told = f"{len(self.neighbours):,} sounds{where}, similarity {first:.3f} to {last:.3f}"
        return f"{told}\nLook and listen: {self.page}\nAs a table: {self.table}"


def write_sheet(
    found: Found,
    query: Query,
    neighbours: Sequence[Neighbour],
    wanted: Wanted,
    out: str | None = None,
) -> Searched:
    """Write the page `out`, by default in the run's folder and named after the sound, and the table beside it."""
    page = out or join(found.folder, f"alike-{query.event_id}.html")
    table = f"{page.removesuffix('.html')}.csv"
    with open_table(table, COLUMNS) as add:
        add(map(_cells, neighbours))
    with written_whole(page) as file:
        file.write(sheet_page(found, query, neighbours, wanted).encode("utf-8", "backslashreplace"))
    return Searched(neighbours, page, table)


def sheet_page(found: Found, query: Query, neighbours: Sequence[Neighbour], wanted: Wanted) -> str:
    """The page: the sound asked for, then those most like it."""
    picture, sound, reason = drawn(query.location, query.time_expansion, query.frames, _bounds(query.event))
    return render_page(
        "alike.html",
        {
            "found": found,
            "version": __version__,
            "query": query.event,
            "name": query.event_id,
            "picture": picture,
            "sound": sound,
            "reason": reason,
            "tiles": list(_tiles(found, neighbours[:SHOWN])),
            "count": len(neighbours),
            "asked": _in_words(wanted),
        },
    )


def _tiles(found: Found, neighbours: Sequence[Neighbour]) -> Iterator[Tile]:
    for item in neighbours:
        yield Tile(item, *drawn(*place_of(found, item.event.recording_id), _bounds(item.event)))


def drawn(
    location: str, expansion: float, frames: int | None, bounds: tuple[float, float, float, float]
) -> tuple[str, str, str]:
    """Picture and sound of a box, or why there are none."""
    try:
        return (*cut_out(location, bounds, expansion, frames).drawn([bounds]), "")
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
        _clock(event.start_utc),
        _clock(event.start_local),
    ]


def _clock(moment: datetime | None) -> str:
    """ISO 8601 to the millisecond: with a Z in UTC, without a zone by the recorder's clock."""
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_words(wanted: Wanted) -> str:
    """What was asked for, in a line."""
    terms = [f"at {' or '.join(wanted.sites)}"] if wanted.sites else []
    terms += [
        f"{word} {moment:%Y-%m-%d %H:%M} UTC"
        for word, moment in (("from", wanted.since), ("before", wanted.until))
        if moment is not None
    ]
    terms += [
        f"{word} {value:g}{unit}"
        for word, value, unit in (
            ("above", wanted.low_hz, " Hz"),
            ("below", wanted.high_hz, " Hz"),
            ("scored at least", wanted.min_score, ""),
        )
        if value is not None
    ]
    return ", ".join(terms)
