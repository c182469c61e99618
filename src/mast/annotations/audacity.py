r"""Audacity label tracks: `start⇥end⇥label` in seconds, and on the next line `\⇥low⇥high` in Hz; -1 means unset.

A label track belongs to one recording, which it is named after, and holds nothing but times, frequencies and a label.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mast.annotations.files import is_one_file, places_below, recording_named_by
from mast.annotations.rows import Columns, Row, collect, one_line, rows_of
from mast.annotations.tables import Annotations, Source, by_recording, is_whole
from mast.annotations.text import file_name, plain, read_text
from mast.errors import AnnotationError
from mast.events import Event
from mast.storage import join, written_whole

SUFFIXES = (".txt",)
ENDING = ".txt"
NAME_CHANGED = "name of a recording: changed to fit a file name"
NOT_WHOLE = "recording not reviewed from end to end: a label track does not tell"


def fits(head: str) -> bool:
    """Whether a file begins with a label, or holds none."""
    first = re.split(r"[\r\n]", head.lstrip(), maxsplit=1)[0]
    return not first or re.match(r"-?\d+([.,]\d+)?\t-?\d+([.,]\d+)?(\t|$)", first) is not None


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a label track; an empty one means that its recording was reviewed and nothing was found."""
    location = str(path)
    own_name = recording_named_by(name or file_name(location))
    rows: list[Row] = []
    for line, text in enumerate(re.split(r"\r\n|\r|\n", read_text(location)), start=1):
        if text.strip():
            _take(text, f"{location}, line {line}", rows)
    return collect(rows or [Row(location, {})], Source(location, "audacity"), own_name)


def _take(text: str, where: str, rows: list[Row]) -> None:
    """Add a label, or the frequencies of the label before."""
    first, *rest = (cell.strip() for cell in text.split("\t"))
    if first == "\\":
        if not rows or "low_hz" in rows[-1].fields or len(rest) < 2:
            raise AnnotationError(
                f"{where}: a line of frequencies is '\\', low and high, and follows its label."
            )
        rows[-1].fields.update(low_hz=rest[0], high_hz=rest[1])
        return
    if not rest:
        raise AnnotationError(
            f"{where}: {text!r} is no label. A label track has start, end and label between tabs: export it in "
            "Audacity with File > Export > Export Labels."
        )
    rows.append(Row(where, {"start_s": first, "end_s": rest[0], "label": " ".join(rest[1:])}))


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write a label track for one recording, or into a folder one for each."""
    location = str(path)
    losses: Counter[str] = Counter()
    parts = {name: part for name, part in by_recording(annotations).items() if part.events or part.reviewed}
    if is_one_file(location):
        if len(parts) > 1:
            raise AnnotationError(
                f"{location}: a label track belongs to one recording, and these are {len(parts)}. Name a folder, "
                "without .txt, to write one for each."
            )
        places = dict.fromkeys(parts, location)
        if not parts:
            _write_track((), location, losses)
    else:
        places = {name: join(location, place) for name, place in places_below(parts, ENDING).items()}
    for name, part in parts.items():
        _write_track([part], places[name], losses)
        losses[NAME_CHANGED] += recording_named_by(_below(places[name], location)) != name
        losses[NOT_WHOLE] += not any(is_whole(span) for span in part.reviewed)
    return +losses


def _below(place: str, location: str) -> str:
    return (
        file_name(place) if place == location else place.removeprefix(location).replace("\\", "/").lstrip("/")
    )


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one label track of annotations that come part by part; it has no room for further `columns`."""
    losses: Counter[str] = Counter()
    _write_track(parts, str(path), losses)
    return +losses


def _write_track(parts: Iterable[Annotations], location: str, losses: Counter[str]) -> None:
    with written_whole(location) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        for part in parts:
            for event, row in zip(part.events, rows_of(part), strict=False):
                _count_losses(event, losses)
                times = row.get("start_s"), row.get("end_s"), one_line(row.get("label"), losses)
                text.write("\t".join(times) + "\n")
                if event.low_hz is not None:
                    text.write(f"\\\t{plain(event.low_hz)}\t{plain(event.high_hz)}\n")
        text.flush()
        text.detach()


def _count_losses(event: Event, losses: Counter[str]) -> None:
    losses["score: left out"] += event.score is not None
    losses["annotator: left out"] += event.annotator is not None
    losses["origin other than expert: left out"] += event.origin != "expert"
    losses["free column: left out"] += len(event.columns)
