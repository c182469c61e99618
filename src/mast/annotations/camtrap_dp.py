"""Camtrap DP for sound: a folder with deployments, media and observations, and a datapackage.json that describes them.

Times are the clock's, so a recording needs a known start; a box is an observation with `frequencyLow` and
`frequencyHigh`, and a reviewed recording without sounds is a `blank` observation.
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
from mast.annotations.rows import (
    OPTIONAL,
    Columns,
    Row,
    collect,
    columns_needed,
    open_rows,
    rows_from,
    rows_of,
)
from mast.annotations.tables import Annotations, RecordingFacts, Source
from mast.annotations.text import number, open_table, plain, read_table, write_table
from mast.errors import AnnotationError
from mast.storage import join, written_whole

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
NO_START_EVENT = "event of a recording whose start by the clock is unknown: left out"
NO_START_REVIEWED = "reviewed span of a recording whose start by the clock is unknown: left out"
NO_START_HEARD = "recording heard in vain whose start by the clock is unknown: left out"
SCORE_OUTSIDE = "score outside 0 to 1: left out"
NOT_OF_SOUND = "observation without a time within a recording: not taken over"
UNKNOWN_MEDIA = "observation of a medium that media.csv does not list: not taken over"


def fits(head: str) -> bool:
    """Whether a file begins like a data package."""
    return '"resources"' in head and '"observations"' in head


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a package's folder, or its datapackage.json; `name` is not needed, for media have their own."""
    folder = str(path).removesuffix("datapackage.json") or "."
    media = rows_from(read_table(join(folder, "media.csv")), MEDIA, needed=("recording", "start_clock"))
    facts = {item.recording_id: item for item in map(_facts, media)}
    table = read_table(join(folder, "observations.csv"))
    needed = ("recording", "start_clock", "end_clock")
    problems: Counter[str] = Counter()
    rows = list(_in_seconds(rows_from(table, OBSERVATIONS, needed), facts, problems))
    return collect(rows, Source(str(path), "camtrap-dp"), "", problems, facts.values())


def _facts(row: Row) -> RecordingFacts:
    start = _moment(row, "start_clock")
    offset = start.utcoffset() if start else None
    rate, channels, bit_depth = (
        number(row.get(field), row.where, MEDIA[field][0]) for field in ("rate", "channels", "bit_depth")
    )
    return RecordingFacts(
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


def _moment(row: Row, field: str) -> datetime | None:
    text = row.get(field)
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise AnnotationError(
            f"{row.where}: {text!r} is no ISO 8601 time such as 2023-05-10T07:30:00Z."
        ) from None


def _in_seconds(
    rows: Iterable[Row], facts: dict[str, RecordingFacts], problems: Counter[str]
) -> Iterator[Row]:
    """Observations with seconds from the start of their recording; those of no recording are counted."""
    for row in rows:
        recording = facts.get(row.get("recording"))
        start, end = _moment(row, "start_clock"), _moment(row, "end_clock")
        if recording is None:
            problems[UNKNOWN_MEDIA] += 1
        elif row.get("type") == "blank":
            yield replace(row, fields=_blank(row, recording, start, end), free=())
        elif start is None or end is None:
            problems[NOT_OF_SOUND] += 1
        else:
            origin = {"machine": "model", "human": "expert"}.get(row.get("method"), "")
            times = {"start_s": _seconds(start, recording), "end_s": _seconds(end, recording)}
            yield replace(row, fields={**row.fields, **times, "origin": row.get("origin") or origin})


def _blank(
    row: Row, recording: RecordingFacts, start: datetime | None, end: datetime | None
) -> dict[str, str]:
    """A span in which nothing was found: the whole recording, or as long as the observation lasts.

    Where a machine found nothing, nobody has reviewed it.
    """
    reviewed = "none" if row.get("method") == "machine" else row.get("reviewed")
    if not reviewed and row.get("level") == "interval" and start and end:
        reviewed = f"{_seconds(start, recording)}..{_seconds(end, recording)}"
    return {"recording": recording.recording_id, "reviewed": reviewed or "all"}


def _seconds(moment: datetime, recording: RecordingFacts) -> str:
    start = recording.start_utc if moment.tzinfo else recording.start_local
    if start is None:
        raise AnnotationError(
            f"{recording.recording_id}: media.csv and observations.csv must both state a time zone, or neither."
        )
    return plain(Decimal((moment - start) // timedelta(microseconds=1)) / 1_000_000)


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write a package into a folder; recordings without a known start cannot be in it and are counted."""
    rows = [row for row in map(_observation_of(annotations, Counter()), _rows(annotations)) if row]
    return write_parts([annotations], path, columns_needed(rows, OBSERVATIONS))


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write a package of annotations that come part by part."""
    folder = str(path).removesuffix("datapackage.json") or "."
    losses: Counter[str] = Counter()
    sites: dict[str, tuple[RecordingFacts, RecordingFacts]] = {}
    media = _header("media")
    optional = OPTIONAL - {"score", "annotator"}
    with (
        open_rows(join(folder, "observations.csv"), OBSERVATIONS, columns, optional=optional) as table,
        open_table(join(folder, "media.csv"), media) as add_media,
    ):
        count, unknown = 0, 0
        for part in parts:
            known = [item for item in part.facts().values() if item.start_utc is not None]
            unknown += len(part.facts()) - len(known)
            observed = filter(None, map(_observation_of(part, losses), _rows(part)))
            numbered = [_numbered(row, count + number) for number, row in enumerate(observed, start=1)]
            count += len(numbered)
            table.add(numbered)
            add_media([[medium[name] for name in media] for medium in map(_medium, known)])
            for item in known:
                _widen(sites, item)
        if unknown and not sites:
            raise AnnotationError(
                f"{folder}: Camtrap DP needs the clock time of recordings, and no start is known. Give them with "
                "--recordings recordings.parquet, made by mast scan --time-zone."
            )
    deployments = [_deployment(site, *reach) for site, reach in sites.items()]
    header = _header("deployments")
    write_table(
        join(folder, "deployments.csv"), header, [[row[name] for name in header] for row in deployments]
    )
    _write_package(folder, {"deployments": header, "media": media, "observations": table.header})
    return +(losses + table.losses)


def _rows(annotations: Annotations) -> list[Row]:
    """Rows of events and reviews, then one for every recording that a model heard in vain."""
    named = {item.recording_id for group in (annotations.events, annotations.reviewed) for item in group}
    return rows_of(annotations) + [
        Row("", {"recording": item.recording_id, "heard_s": plain(item.effort_s), "origin": "model"})
        for item in annotations.heard
        if item.recording_id not in named
    ]


def _observation_of(annotations: Annotations, losses: Counter[str]) -> Callable[[Row], Row | None]:
    """What makes observations of rows; None of those whose recording has no known start, which are counted."""
    facts = annotations.facts()
    spans = Counter(span.recording_id for span in annotations.reviewed)

    def observation(row: Row) -> Row | None:
        item = facts[row.get("recording")]
        if item.start_utc is not None:
            return _observation(row, item, losses)
        losses[NO_START_EVENT] += bool(row.get("start_s"))
        losses[NO_START_REVIEWED] += spans.pop(item.recording_id, 0)
        losses[NO_START_HEARD] += bool(row.get("heard_s"))
        return None

    return observation


def _numbered(row: Row, number: int) -> Row:
    return replace(row, fields={**row.fields, "id": f"o{number}"})


def _observation(row: Row, facts: RecordingFacts, losses: Counter[str]) -> Row:
    is_event = bool(row.get("start_s"))
    whole_s = plain(facts.duration_s or 0.0)
    end_s = row.get("end_s" if is_event else "heard_s") or whole_s
    is_part = is_event or Decimal(end_s) < Decimal(whole_s)
    origin = row.get("origin") or ("model" if row.get("score") else "expert")
    outside = bool(row.get("score")) and not 0 <= float(row.get("score")) <= 1
    losses[SCORE_OUTSIDE] += outside
    fields = {
        **row.fields,
        "site": facts.site or NO_SITE,
        "start_clock": _clock(facts, row.get("start_s") or "0"),
        "end_clock": _clock(facts, end_s),
        "level": "interval" if is_part else "media",
        "type": "animal" if is_event else "blank",
        "method": "human" if origin == "expert" else "machine",
        "score": "" if outside else row.get("score"),
        "origin": origin if origin == "pseudo" else "",
    }
    return replace(row, fields=fields)


def _clock(facts: RecordingFacts, seconds: str) -> str:
    """A moment in a recording, in the recorder's own zone where known."""
    if facts.start_utc is None:
        return ""
    zone = UTC if facts.utc_offset_min is None else timezone(timedelta(minutes=facts.utc_offset_min))
    microseconds = int((Decimal(seconds) * 1_000_000).to_integral_value())
    try:
        moment = facts.start_utc + timedelta(microseconds=microseconds)
    except OverflowError:
        raise AnnotationError(
            f"{facts.recording_id}: {seconds} s after its start is past the calendar."
        ) from None
    return moment.astimezone(zone).strftime(TIME_FORMAT)


def _medium(facts: RecordingFacts) -> dict[str, str]:
    name = PurePosixPath(facts.recording_id.replace("\\", "/"))
    return {
        "mediaID": facts.recording_id,
        "deploymentID": facts.site or NO_SITE,
        "timestamp": _clock(facts, "0"),
        "filePath": facts.recording_id,
        "filePublic": "false",
        "fileName": name.name,
        "fileMediatype": MEDIA_TYPES.get(name.suffix.lower(), "audio/x-unknown"),
        "samplingFrequency": plain(facts.sample_rate_hz),
        "bitDepth": plain(facts.bit_depth),
        "gain": facts.gain or "",
        "channels": plain(facts.channels),
        "mediaDuration": plain(facts.duration_s),
    }


def _widen(sites: dict[str, tuple[RecordingFacts, RecordingFacts]], facts: RecordingFacts) -> None:
    """Count a recording in: each site has the one that began first, and the one that ended last."""
    first, last = sites.get(facts.site or NO_SITE, (facts, facts))
    sites[facts.site or NO_SITE] = (min(first, facts, key=_begins), max(last, facts, key=_ends))


def _deployment(site: str, first: RecordingFacts, last: RecordingFacts) -> dict[str, str]:
    """A site from its first recording's start to its last one's end."""
    return {
        "deploymentID": site,
        "locationName": "" if site == NO_SITE else site,
        "deploymentStart": _clock(first, "0"),
        "deploymentEnd": _clock(last, plain(last.duration_s or 0.0)),
    }


def _begins(facts: RecordingFacts) -> datetime:
    return facts.start_utc or datetime.max.replace(tzinfo=UTC)


def _ends(facts: RecordingFacts) -> datetime:
    return _begins(facts) + timedelta(seconds=facts.duration_s or 0.0)


def _header(name: str) -> list[str]:
    return [field["name"] for field in RESOURCES[name]["fields"]]


def _write_package(folder: str, headers: Mapping[str, Sequence[str]]) -> None:
    """Describe the three tables as they were written, free columns included."""
    resources = []
    for name, schema in RESOURCES.items():
        header = headers[name]
        known = {field["name"]: field for field in schema["fields"]}
        fields = [known.get(column, {"name": column, "type": "string"}) for column in header]
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
        "title": "Animal sounds found in field recordings",
        "description": "Camtrap DP for sound: boxes in time and frequency, written by MAST.",
        "resources": resources,
    }
    with written_whole(join(folder, "datapackage.json")) as file:
        file.write(json.dumps(package, indent=2, ensure_ascii=False).encode())
