"""BatDetect2 JSON: one object for each recording, or a list of them; every detection has frequencies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mast.annotations.delimited import file_name, format_number, number, read_text
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile, by_recording, is_whole, merge
from mast.annotations.paths import is_one_file, recording_name_from_table, table_paths
from mast.annotations.table_io import Row, annotations_to_rows, format_spans, rows_to_annotations
from mast.errors import AnnotationError
from mast.storage import atomic_write, join

SUFFIXES = (".json",)
ENDING = ".json"

KEYS = {
    "start_time": "start_s",
    "end_time": "end_s",
    "low_freq": "low_hz",
    "high_freq": "high_hz",
    "class": "label",
    "det_prob": "score",
    "event_origin": "origin",
    "annotator": "annotator",
}
"""Keys of a detection and the `Row` fields they map to; other keys are free columns."""

NUMBERS = frozenset({"start_time", "end_time", "low_freq", "high_freq", "det_prob", "class_prob"})
UNSET = {"individual": "-1", "event": ""}
"""Values that BatDetect2 writes for unknown properties."""

NO_BAND = "event without frequencies: not written"
RESERVED = "free column with the name of a column of the format: not written"
FILE_NOTES = "note on a whole file: not imported"
FILE_ISSUES = "mark that a file has issues: not imported"
EXPANDED = "time-expanded recording: times and frequencies are kept unchanged"


def sniff(head: str) -> bool:
    """Return True if a file begins like BatDetect2 JSON."""
    return head.lstrip().startswith(("{", "[")) and '"annotation"' in head


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read the annotations of one recording, or of a list of recordings."""
    location = str(path)
    default_name = recording_name_from_table(name or file_name(location))
    try:
        stored = json.loads(read_text(location))
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{location}: not valid JSON: {error}.") from None
    files = stored if isinstance(stored, list) else [stored]
    return merge(
        [Annotations(sources=(_source(location),)), *(_file(item, location, default_name) for item in files)]
    )


def _source(location: str) -> SourceFile:
    return SourceFile(location, "batdetect2")


def _file(item: Any, location: str, default_name: str) -> Annotations:
    if not isinstance(item, dict) or not isinstance(item.get("annotation"), list):
        raise AnnotationError(
            f"{location}: BatDetect2 JSON needs a list called 'annotation' for each recording."
        )
    recording_id = str(item.get("id") or default_name)
    problems = {
        FILE_NOTES: bool(str(item.get("notes") or "").strip()),
        FILE_ISSUES: bool(item.get("issues")),
        EXPANDED: item.get("time_exp", 1) != 1,
    }
    duration_s = number(_text(item.get("duration")), location, "duration")
    return rows_to_annotations(
        _rows(item, recording_id, location),
        _source(location),
        default_name,
        +Counter(problems),
        [RecordingMetadata(recording_id, duration_s=duration_s)],
    )


def _rows(item: dict[str, Any], recording_id: str, location: str) -> Iterator[Row]:
    """Yield a row for each detection; in an annotated file, the origin is `expert` whatever the score."""
    annotated = item.get("annotated") is True
    reviewed = str(item.get("reviewed_s") or ("all" if annotated else "none"))
    yield Row(location, {"recording": recording_id, "reviewed": reviewed})
    for index, detection in enumerate(item["annotation"], start=1):
        where = f"{location}, annotation {index}"
        if not isinstance(detection, dict):
            raise AnnotationError(
                f"{where}: must be an object with start_time, end_time, low_freq and high_freq."
            )
        texts = {key: _text(value) for key, value in detection.items()}
        fields = {field: texts.get(key, "") for key, field in KEYS.items()}
        fields["recording"] = recording_id
        fields["reviewed"] = reviewed
        fields["origin"] = fields["origin"] or ("expert" if annotated else "")
        free = {key: text for key, text in texts.items() if key not in KEYS and text != UNSET.get(key, "")}
        if not fields["start_s"] or not fields["end_s"]:
            raise AnnotationError(f"{where}: start_time or end_time is missing.")
        yield Row(where, fields, tuple(free.items()))


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return (value or "").encode(errors="replace").decode()
    return format_number(value) if isinstance(value, float) else json.dumps(value)


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write one file for all recordings, or a folder with one file for each recording."""
    location = str(path)
    losses: Counter[str] = Counter()
    items = {
        name: _item(part, name, losses)
        for name, part in by_recording(annotations).items()
        if part.events or part.reviewed or part.recordings[0].duration_s is not None
    }
    if is_one_file(location):
        _dump(next(iter(items.values())) if len(items) == 1 else list(items.values()), location)
    else:
        for name, path_below in table_paths(items, ENDING).items():
            _dump(items[name], join(location, path_below))
    return +losses


def _item(part: Annotations, name: str, losses: Counter[str]) -> dict[str, Any]:
    annotated = any(is_whole(span) for span in part.reviewed)
    labels = Counter(event.label for event in part.events if event.label)
    detections = [
        _detection(row, annotated=annotated, losses=losses)
        for row, event in zip(annotations_to_rows(part), part.events, strict=False)
        if event.low_hz is not None
    ]
    losses[NO_BAND] += len(part.events) - len(detections)
    item = {
        "annotated": annotated,
        "annotation": detections,
        "class_name": labels.most_common(1)[0][0] if labels else "",
        "duration": part.recordings[0].duration_s,
        "id": name,
        "issues": False,
        "notes": "",
        "time_exp": 1,
    }
    if part.reviewed and not annotated:
        item["reviewed_s"] = format_spans(part.reviewed)
    return item


def _detection(row: Row, *, annotated: bool, losses: Counter[str]) -> dict[str, Any]:
    origin = row.get("origin") or ("model" if row.get("score") else "expert")
    implied = "expert" if annotated or not row.get("score") else "model"
    fields = {**row.fields, "origin": "" if origin == implied else origin}
    texts = {key: fields[field] for key, field in KEYS.items()}
    texts = {key: text for key, text in texts.items() if text or key == "class"} | UNSET
    losses[RESERVED] += sum(key in KEYS for key, _ in row.free)
    texts |= {key: text for key, text in row.free if key not in KEYS}
    return {key: _value(key, text) for key, text in texts.items()}


def _value(key: str, text: str) -> str | float:
    try:
        return float(text) if key in NUMBERS else text
    except ValueError:
        return text


def _dump(item: Any, location: str) -> None:
    with atomic_write(location) as file:
        file.write(json.dumps(item, indent=2, ensure_ascii=False).encode())
