"""Camtrap DP for audio: a folder with deployments, media and observations, described by datapackage.json.

The format stores clock times, so the start of each recording must be known. A box is an observation with
`frequencyLow` and `frequencyHigh`; a reviewed recording without events is a `blank` observation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath

from mast.annotations.camtrap_schemas import RESOURCES, TIME_FORMAT
from mast.annotations.delimited import format_number, number, open_table, read_table, write_table
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile
from mast.annotations.table_io import (
    OPTIONAL,
    Columns,
    Row,
    annotations_to_rows,
    open_row_writer,
    required_columns,
    rows_from,
    rows_to_annotations,
)
from mast.errors import AnnotationError
from mast.storage import atomic_write, join

SUFFIXES = ("datapackage.json",)
FILES = ("datapackage.json", "deployments.csv", "media.csv", "observations.csv")

OBSERVATIONS = {
    "id": ("observationID",),
    "site": ("deploymentID",),
    "recording": ("mediaID",),
    "start_clock": ("eventStart",),
    "end_clock": ("eventEnd",),
    "level": ("observationLevel",),
    "type": ("observationType",),
    "label": ("scientificName",),
    "method": ("classificationMethod",),
    "annotator": ("classifiedBy",),
    "score": ("classificationProbability", "classificationConfidence"),
    "low_hz": ("frequencyLow",),
    "high_hz": ("frequencyHigh",),
    "origin": ("event_origin",),
    "reviewed": ("reviewed_s",),
}
MEDIA = {
    "recording": ("mediaID",),
    "site": ("deploymentID",),
    "start_clock": ("timestamp",),
    "rate": ("samplingFrequency",),
    "bit_depth": ("bitDepth",),
    "gain": ("gain",),
    "channels": ("channels",),
    "duration": ("mediaDuration",),
}
MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".m4a": "audio/mp4",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
}
NO_SITE = "unknown-site"
NO_START_EVENT = "event of a recording with unknown start time: not written"
NO_START_REVIEWED = "reviewed span of a recording with unknown start time: not written"
NO_START_PROCESSED = "processed recording without detections and with unknown start time: not written"
SCORE_OUTSIDE = "score outside 0 to 1: not written"
NOT_ACOUSTIC = "observation without a time within a recording: not imported"
UNKNOWN_MEDIA = "observation of a medium that media.csv does not list: not imported"


def sniff(head: str) -> bool:
    """Return True if a file begins like a data package."""
    return '"resources"' in head and '"observations"' in head


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read the folder of a package, or its datapackage.json; `name` is unused because media have names."""
    folder = str(path).removesuffix("datapackage.json") or "."
    media = rows_from(read_table(join(folder, "media.csv")), MEDIA, required=("recording", "start_clock"))
    metadata = {item.recording_id: item for item in map(_metadata, media)}
    table = read_table(join(folder, "observations.csv"))
    required = ("recording", "start_clock", "end_clock")
    problems: Counter[str] = Counter()
    rows = list(_to_seconds(rows_from(table, OBSERVATIONS, required), metadata, problems))
    return rows_to_annotations(rows, SourceFile(str(path), "camtrap-dp"), "", problems, metadata.values())


def _metadata(row: Row) -> RecordingMetadata:
    start = _parse_time(row, "start_clock")
    offset = start.utcoffset() if start else None
    rate, channels, bit_depth = (
        number(row.get(field), row.where, MEDIA[field][0]) for field in ("rate", "channels", "bit_depth")
    )
    return RecordingMetadata(
        recording_id=row.get("recording"),
        duration_s=number(row.get("duration"), row.where, "mediaDuration"),
        sample_rate_hz=None if rate is None else int(rate),
        channels=None if channels is None else int(channels),
        bit_depth=None if bit_depth is None else int(bit_depth),
        gain=row.get("gain") or None,
        start_utc=start.astimezone(UTC) if start and offset is not None else None,
        start_local=start.replace(tzinfo=None) if start else None,
        utc_offset_min=None if offset is None else int(offset.total_seconds() // 60),
        site=None if row.get("site") == NO_SITE else row.get("site") or None,
    )


def _parse_time(row: Row, field: str) -> datetime | None:
    text = row.get(field)
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise AnnotationError(
            f"{row.where}: {text!r} is not an ISO 8601 time such as 2023-05-10T07:30:00Z."
        ) from None


def _to_seconds(
    rows: Iterable[Row], metadata: dict[str, RecordingMetadata], problems: Counter[str]
) -> Iterator[Row]:
    """Yield observations with times in seconds from the start of their recording; count those without a recording."""
    for row in rows:
        recording = metadata.get(row.get("recording"))
        start, end = _parse_time(row, "start_clock"), _parse_time(row, "end_clock")
        if recording is None:
            problems[UNKNOWN_MEDIA] += 1
        elif row.get("type") == "blank":
            yield replace(row, fields=_blank(row, recording, start, end), free=())
        elif start is None or end is None:
            problems[NOT_ACOUSTIC] += 1
        else:
            origin = {"machine": "model", "human": "expert"}.get(row.get("method"), "")
            times = {"start_s": _seconds(start, recording), "end_s": _seconds(end, recording)}
            yield replace(row, fields={**row.fields, **times, "origin": row.get("origin") or origin})


def _blank(
    row: Row, recording: RecordingMetadata, start: datetime | None, end: datetime | None
) -> dict[str, str]:
    """Return the fields of a span without events: the whole recording, or the interval of the observation.

    A blank observation made by a machine is not a review.
    """
    reviewed = "none" if row.get("method") == "machine" else row.get("reviewed")
    if not reviewed and row.get("level") == "interval" and start and end:
        reviewed = f"{_seconds(start, recording)}..{_seconds(end, recording)}"
    return {"recording": recording.recording_id, "reviewed": reviewed or "all"}


def _seconds(moment: datetime, recording: RecordingMetadata) -> str:
    start = recording.start_utc if moment.tzinfo else recording.start_local
    if start is None:
        raise AnnotationError(
            f"{recording.recording_id}: media.csv and observations.csv must both state a time zone, or neither."
        )
    return format_number(Decimal((moment - start) // timedelta(microseconds=1)) / 1_000_000)


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write a package into a folder; recordings with unknown start cannot be written and are counted."""
    rows = [row for row in map(_observation_of(annotations, Counter()), _rows(annotations)) if row]
    return write_parts([annotations], path, required_columns(rows, OBSERVATIONS))


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write a package from parts of annotations, in order."""
    folder = str(path).removesuffix("datapackage.json") or "."
    losses: Counter[str] = Counter()
    sites: dict[str, tuple[RecordingMetadata, RecordingMetadata]] = {}
    media = _header("media")
    optional = OPTIONAL - {"score", "annotator"}
    with (
        open_row_writer(join(folder, "observations.csv"), OBSERVATIONS, columns, optional=optional) as table,
        open_table(join(folder, "media.csv"), media) as add_media,
    ):
        count, without_start = 0, 0
        for part in parts:
            with_start = [
                item for item in part.metadata_by_recording().values() if item.start_utc is not None
            ]
            without_start += len(part.metadata_by_recording()) - len(with_start)
            observed = filter(None, map(_observation_of(part, losses), _rows(part)))
            numbered = [_numbered(row, count + number) for number, row in enumerate(observed, start=1)]
            count += len(numbered)
            table.add(numbered)
            add_media([[medium[name] for name in media] for medium in map(_media_row, with_start)])
            for item in with_start:
                _update_site(sites, item)
        if without_start and not sites:
            raise AnnotationError(
                f"{folder}: Camtrap DP needs the start time of recordings, and none is known. Pass "
                "--recordings recordings.parquet, as written by mast scan --time-zone."
            )
    deployments = [_deployment(site, *limits) for site, limits in sites.items()]
    header = _header("deployments")
    write_table(
        join(folder, "deployments.csv"), header, [[row[name] for name in header] for row in deployments]
    )
    _write_package(folder, {"deployments": header, "media": media, "observations": table.header})
    return +(losses + table.losses)


def _rows(annotations: Annotations) -> list[Row]:
    """Return rows of events and reviews, then one for each processed recording without detections."""
    mentioned = {item.recording_id for group in (annotations.events, annotations.reviewed) for item in group}
    return annotations_to_rows(annotations) + [
        Row(
            "",
            {"recording": item.recording_id, "processed_s": format_number(item.effort_s), "origin": "model"},
        )
        for item in annotations.processed
        if item.recording_id not in mentioned
    ]


def _observation_of(annotations: Annotations, losses: Counter[str]) -> Callable[[Row], Row | None]:
    """Return a function from row to observation, or to None, counted as a loss, if the recording's start is unknown."""
    metadata = annotations.metadata_by_recording()
    spans = Counter(span.recording_id for span in annotations.reviewed)

    def observation(row: Row) -> Row | None:
        item = metadata[row.get("recording")]
        if item.start_utc is not None:
            return _observation(row, item, losses)
        losses[NO_START_EVENT] += bool(row.get("start_s"))
        losses[NO_START_REVIEWED] += spans.pop(item.recording_id, 0)
        losses[NO_START_PROCESSED] += bool(row.get("processed_s"))
        return None

    return observation


def _numbered(row: Row, number: int) -> Row:
    return replace(row, fields={**row.fields, "id": f"o{number}"})


def _observation(row: Row, metadata: RecordingMetadata, losses: Counter[str]) -> Row:
    is_event = bool(row.get("start_s"))
    whole_s = format_number(metadata.duration_s or 0.0)
    end_s = row.get("end_s" if is_event else "processed_s") or whole_s
    is_part = is_event or Decimal(end_s) < Decimal(whole_s)
    origin = row.get("origin") or ("model" if row.get("score") else "expert")
    outside = bool(row.get("score")) and not 0 <= float(row.get("score")) <= 1
    losses[SCORE_OUTSIDE] += outside
    fields = {
        **row.fields,
        "site": metadata.site or NO_SITE,
        "start_clock": _clock(metadata, row.get("start_s") or "0"),
        "end_clock": _clock(metadata, end_s),
        "level": "interval" if is_part else "media",
        "type": "animal" if is_event else "blank",
        "method": "human" if origin == "expert" else "machine",
        "score": "" if outside else row.get("score"),
        "origin": origin if origin == "pseudo" else "",
    }
    return replace(row, fields=fields)


def _clock(metadata: RecordingMetadata, seconds: str) -> str:
    """Format a time in a recording as clock time, in the recorder's time zone if known."""
    if metadata.start_utc is None:
        return ""
    zone = UTC if metadata.utc_offset_min is None else timezone(timedelta(minutes=metadata.utc_offset_min))
    microseconds = int((Decimal(seconds) * 1_000_000).to_integral_value())
    try:
        moment = metadata.start_utc + timedelta(microseconds=microseconds)
    except OverflowError:
        raise AnnotationError(
            f"{metadata.recording_id}: {seconds} s after its start is later than year 9999."
        ) from None
    return moment.astimezone(zone).strftime(TIME_FORMAT)


def _media_row(metadata: RecordingMetadata) -> dict[str, str]:
    name = PurePosixPath(metadata.recording_id.replace("\\", "/"))
    return {
        "mediaID": metadata.recording_id,
        "deploymentID": metadata.site or NO_SITE,
        "timestamp": _clock(metadata, "0"),
        "filePath": metadata.recording_id,
        "filePublic": "false",
        "fileName": name.name,
        "fileMediatype": MEDIA_TYPES.get(name.suffix.lower(), "audio/x-unknown"),
        "samplingFrequency": format_number(metadata.sample_rate_hz),
        "bitDepth": format_number(metadata.bit_depth),
        "gain": metadata.gain or "",
        "channels": format_number(metadata.channels),
        "mediaDuration": format_number(metadata.duration_s),
    }


def _update_site(
    sites: dict[str, tuple[RecordingMetadata, RecordingMetadata]], metadata: RecordingMetadata
) -> None:
    """Update the recordings of a site that start first and end last."""
    first, last = sites.get(metadata.site or NO_SITE, (metadata, metadata))
    sites[metadata.site or NO_SITE] = (min(first, metadata, key=_start_of), max(last, metadata, key=_end_of))


def _deployment(site: str, first: RecordingMetadata, last: RecordingMetadata) -> dict[str, str]:
    """Return the deployment of a site, from the start of its first recording to the end of its last one."""
    return {
        "deploymentID": site,
        "locationName": "" if site == NO_SITE else site,
        "deploymentStart": _clock(first, "0"),
        "deploymentEnd": _clock(last, format_number(last.duration_s or 0.0)),
    }


def _start_of(metadata: RecordingMetadata) -> datetime:
    return metadata.start_utc or datetime.max.replace(tzinfo=UTC)


def _end_of(metadata: RecordingMetadata) -> datetime:
    return _start_of(metadata) + timedelta(seconds=metadata.duration_s or 0.0)


def _header(name: str) -> list[str]:
    return [field["name"] for field in RESOURCES[name]["fields"]]


def _write_package(folder: str, headers: Mapping[str, Sequence[str]]) -> None:
    """Write datapackage.json, which describes the three tables with their free columns."""
    resources = []
    for name, schema in RESOURCES.items():
        header = headers[name]
        schema_fields = {field["name"]: field for field in schema["fields"]}
        fields = [schema_fields.get(column, {"name": column, "type": "string"}) for column in header]
        resources.append(
            {
                "name": name,
                "path": f"{name}.csv",
                "profile": "tabular-data-resource",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "schema": {**schema, "fields": fields},
            }
        )
    package = {
        "name": "mast-camtrap-dp",
        "profile": "tabular-data-package",
        "title": "Animal sounds in field recordings",
        "description": "Camtrap DP for audio: boxes in time and frequency, written by MAST.",
        "resources": resources,
    }
    with atomic_write(join(folder, "datapackage.json")) as file:
        file.write(json.dumps(package, indent=2, ensure_ascii=False).encode())
