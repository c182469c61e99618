r"""Audacity label tracks: `start⇥end⇥label` in seconds, and on the next line `\⇥low⇥high` in Hz; -1 means unset.

A label track belongs to one recording, is named after it, and holds only times, frequencies and labels.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mast.annotations.delimited import file_name, format_number, read_text
from mast.annotations.model import Annotations, SourceFile, by_recording, is_whole
from mast.annotations.paths import is_one_file, recording_name_from_table, table_paths
from mast.annotations.table_io import Columns, Row, annotations_to_rows, one_line, rows_to_annotations
from mast.errors import AnnotationError
from mast.records import Event
from mast.storage import atomic_write, join

SUFFIXES = (".txt",)
ENDING = ".txt"
NAME_CHANGED = "recording name: changed to a valid file name"
PARTLY_REVIEWED = "recording not reviewed completely: a label track cannot store this"


def sniff(head: str) -> bool:
    """Return True if a file begins with a label or is empty."""
    first = re.split(r"[\r\n]", head.lstrip(), maxsplit=1)[0]
    return not first or re.match(r"-?\d+([.,]\d+)?\t-?\d+([.,]\d+)?(\t|$)", first) is not None


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a label track; an empty track means that its recording was reviewed and has no events."""
    location = str(path)
    default_name = recording_name_from_table(name or file_name(location))
    rows: list[Row] = []
    for line, text in enumerate(re.split(r"\r\n|\r|\n", read_text(location)), start=1):
        if text.strip():
            _parse_rows(text, f"{location}, line {line}", rows)
    return rows_to_annotations(rows or [Row(location, {})], SourceFile(location, "audacity"), default_name)


def _parse_rows(text: str, where: str, rows: list[Row]) -> None:
    """Parse one line: append a label, or add frequencies to the previous label."""
    first, *rest = (cell.strip() for cell in text.split("\t"))
    if first == "\\":
        if not rows or "low_hz" in rows[-1].fields or len(rest) < 2:
            raise AnnotationError(
                f"{where}: a line of frequencies must hold '\\', low and high, and follow its label."
            )
        rows[-1].fields.update(low_hz=rest[0], high_hz=rest[1])
        return
    if not rest:
        raise AnnotationError(
            f"{where}: {text!r} is not a label. A label track has tab-separated start, end and label: export it in "
            "Audacity with File > Export > Export Labels."
        )
    rows.append(Row(where, {"start_s": first, "end_s": rest[0], "label": " ".join(rest[1:])}))


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write one label track, or a folder with one label track for each recording."""
    location = str(path)
    losses: Counter[str] = Counter()
    parts = {name: part for name, part in by_recording(annotations).items() if part.events or part.reviewed}
    if is_one_file(location):
        if len(parts) > 1:
            raise AnnotationError(
                f"{location}: a label track holds one recording, but the annotations cover {len(parts)}. Name a folder, "
                "without .txt, to write one track for each recording."
            )
        targets = dict.fromkeys(parts, location)
        if not parts:
            _write_track((), location, losses)
    else:
        targets = {name: join(location, target) for name, target in table_paths(parts, ENDING).items()}
    for name, part in parts.items():
        _write_track([part], targets[name], losses)
        losses[NAME_CHANGED] += recording_name_from_table(_write_below(targets[name], location)) != name
        losses[PARTLY_REVIEWED] += not any(is_whole(span) for span in part.reviewed)
    return +losses


def _write_below(target: str, location: str) -> str:
    """Return the path of a track below the output folder, with slashes; its file name if it is the only output."""
    return (
        file_name(target)
        if target == location
        else target.removeprefix(location).replace("\\", "/").lstrip("/")
    )


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one label track from parts of annotations, in order; the format cannot store further `columns`."""
    losses: Counter[str] = Counter()
    _write_track(parts, str(path), losses)
    return +losses


def _write_track(parts: Iterable[Annotations], location: str, losses: Counter[str]) -> None:
    with atomic_write(location) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        for part in parts:
            for event, row in zip(part.events, annotations_to_rows(part), strict=False):
                _count_losses(event, losses)
                times = row.get("start_s"), row.get("end_s"), one_line(row.get("label"), losses)
                text.write("\t".join(times) + "\n")
                if event.low_hz is not None:
                    text.write(f"\\\t{format_number(event.low_hz)}\t{format_number(event.high_hz)}\n")
        text.flush()
        text.detach()


def _count_losses(event: Event, losses: Counter[str]) -> None:
    losses["score: not written"] += event.score is not None
    losses["annotator: not written"] += event.annotator is not None
    losses["origin other than expert: not written"] += event.origin != "expert"
    losses["free column: not written"] += len(event.columns)
