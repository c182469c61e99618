"""Read recording metadata from headers and paths: time, site, device and gain, each with its source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from mast.recordings.clocks import (
    START_DELAY_S,
    Clock,
    Instant,
    are_consistent,
    is_in_future,
    is_plausible,
    offset_minutes,
    resolve_utc,
    wall_time,
    zone_named,
)
from mast.recordings.filenames import (
    FilenameMetadata,
    folder_site,
    parse_filename,
    site_pattern,
    template_site,
)


@dataclass(frozen=True, slots=True)
class NamingScheme:
    """The user's settings of a collection: the site template, and the zone of clocks that state none."""

    site: str | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid template or time zone, before any file is read."""
        if self.site is not None:
            site_pattern(self.site)
        if self.time_zone is not None:
            zone_named(self.time_zone)


class FileMetadata(NamedTuple):
    """Time, site, device and gain of a recording, each value with its source; fields are named as in `Recording`."""

    start_utc: datetime | None
    start_local: datetime | None
    utc_offset_min: int | None
    start_source: str | None
    zone_source: str | None
    site: str | None
    site_source: str | None
    device: str | None
    device_source: str | None
    gain: str | None
    gain_source: str | None
    faults: tuple[str, ...]
    detail: str | None


_COMMENT_TIME = re.compile(
    r"Recorded at (\d\d:\d\d:\d\d(?:\.\d{1,6})?) (\d\d)/(\d\d)/(\d{4})(?=[ (])", re.ASCII
)
_COMMENT_REST = re.compile(
    r"(?: \((UTC)(?:([+-])(0?\d|1[0-4])(?::(\d\d))?)?\))?"
    r" (?:by AudioMoth (\w+)|during deployment \w+)"
    r"(?:(?: using external microphone)? at (?:gain setting ([0-4])|([a-z-]+) gain))?",
    re.ASCII,
)
_GUANO = re.compile(
    r"^[ \t]*(Timestamp|Make|Model|Serial|(?:[^:|\n]+\|)*(?:Site Name|Site|Gain))[ \t]*:([^\n]*)",
    re.MULTILINE,
)
"""GUANO itself has no site and no gain: manufacturers add them in namespaces, such as `NABat|Site Name`."""

_GAINS = ("low", "low-medium", "medium", "medium-high", "high")
_EMPTY = FilenameMetadata()
_Source = tuple[str, FilenameMetadata]


def read_metadata(
    path: str, comment: str | None, guano: str | None, naming: NamingScheme, now: datetime | None = None
) -> FileMetadata:
    """Read a recording's metadata from its headers and its path below the collection's root; headers take precedence.

    A start time more than a day after `now` (default: the current time) is reported as `clock-in-future`.
    """
    name = parse_filename(path)
    if comment and name.clock and not name.clock.audiomoth and "AudioMoth" in comment:
        name = name._replace(clock=name.clock._replace(audiomoth=True))
    sources: list[_Source] = [("file name", name)]
    if guano:
        sources.insert(0, ("GUANO", read_guano(guano)))
    if comment:
        sources.insert(0, ("AudioMoth comment", read_comment(comment)))
    device = device_source = gain = gain_source = None
    for source, source_metadata in reversed(sources):
        if source_metadata.device:
            device, device_source = source_metadata.device, source
        if source_metadata.gain:
            gain, gain_source = source_metadata.gain, source
    instant, local, start_source, detail = _start(sources, naming, now or datetime.now(UTC))
    return FileMetadata(
        instant.utc,
        local,
        instant.offset_min,
        start_source,
        instant.zone_source,
        *_site(path, sources, naming),
        device,
        device_source,
        gain,
        gain_source,
        instant.faults,
        detail,
    )


def read_comment(comment: str) -> FilenameMetadata:
    """Parse the WAV comment of an AudioMoth; any other text gives empty metadata.

    One pattern matches all firmware versions since 1.0: the end of the comment changed often, its start rarely.
    """
    match = _COMMENT_TIME.search(comment)
    if match is None:
        return _EMPTY
    time, day, month, year = match.groups()
    local = wall_time(f"{year}-{month}-{day}T{time}")
    rest = _rest_of_comment(comment[match.end() :].partition(" while ")[0])
    if local is None or rest is None:
        return _EMPTY
    offset_min, device, gain = rest
    return FilenameMetadata(Clock(local, offset_min, audiomoth=True), None, device, gain)


@lru_cache(4096)
def _rest_of_comment(rest: str) -> tuple[int | None, str | None, str | None] | None:
    """Parse offset, device and gain; cached, because they are the same in all files of a recorder."""
    match = _COMMENT_REST.match(rest)
    if match is None:
        return None
    utc, sign, hours, minutes, serial, level, gain = match.groups()
    offset_min = offset_minutes(sign, hours, minutes) if sign else 0 if utc else None
    return offset_min, f"AudioMoth {serial}" if serial else None, _GAINS[int(level)] if level else gain


def read_guano(guano: str) -> FilenameMetadata:
    """Parse a GUANO chunk: `Key: value` lines, each of which may be missing or damaged."""
    values = {key.rpartition("|")[2]: value.strip(" \t\r\0") for key, value in _GUANO.findall(guano)}
    model = values.get("Model") or values.get("Make")
    device = " ".join(filter(None, (model, values.get("Serial")))) or None
    clock = _guano_clock(values.get("Timestamp", ""))
    if clock and model == "AudioMoth":
        clock = clock._replace(audiomoth=True)
    site = values.get("Site Name") or values.get("Site") or None
    return FilenameMetadata(clock, site, device, values.get("Gain") or None)


class _Start(NamedTuple):
    instant: Instant
    local: datetime | None = None
    source: str | None = None
    detail: str | None = None


def _start(sources: Sequence[_Source], naming: NamingScheme, now: datetime) -> _Start:
    """Return the start time of the first source that has one, checked against the file name and `now`."""
    clocks = [(source, source_metadata.clock) for source, source_metadata in sources if source_metadata.clock]
    if not clocks:
        return _Start(Instant(None, faults=("no-start-time",)))
    source, clock = clocks[0]
    name_clock = sources[-1][1].clock
    zone_source = source
    if name_clock and _gives_zone(name_clock, clock):
        clock, zone_source = clock._replace(offset_min=name_clock.offset_min), "file name"
    instant = resolve_utc(clock, zone_source, naming.time_zone)
    detail = None
    if is_in_future(clock, instant, now):
        instant = instant._replace(faults=(*instant.faults, "clock-in-future"))
    if name_clock and not are_consistent(clock, name_clock):
        instant = instant._replace(faults=(*instant.faults, "clock-disagrees"))
        detail = f"{source}: {clock.local}; file name: {name_clock.local}"
    return _Start(instant, clock.local, source, detail)


def _site(path: str, sources: Sequence[_Source], naming: NamingScheme) -> tuple[str | None, str | None]:
    """Return the site and its source: the template, else GUANO or the file name, else the folder of a bare time."""
    site = template_site(path, naming.site) if naming.site else None
    if site:
        return site, "template"
    for source, source_metadata in sources:
        if source_metadata.site:
            return source_metadata.site, source
    folder = folder_site(path) if sources[-1][1].clock else None
    return (folder, "folder") if folder else (None, None)


def _gives_zone(name: Clock, header: Clock) -> bool:
    """Return True if a file name's zone applies to a header without one: both show the same local time."""
    if header.offset_min is not None or name.offset_min is None:
        return False
    return abs((name.local - header.local).total_seconds()) <= START_DELAY_S


def _guano_clock(timestamp: str) -> Clock | None:
    """Parse an ISO 8601 time, with or without offset; a date alone returns None."""
    if ":" not in timestamp:
        return None
    try:
        time = datetime.fromisoformat(timestamp.replace(" ", "T", 1).replace(" ", ""))
    except ValueError:
        return None
    if not is_plausible(time):
        return None
    offset = time.utcoffset()
    return Clock(time.replace(tzinfo=None), None if offset is None else offset // timedelta(minutes=1))
