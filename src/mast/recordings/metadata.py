"""What recorders say about themselves: when, where, by which device, with which gain, and who says so."""

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
    agree,
    is_in_future,
    is_plausible,
    offset_minutes,
    place,
    wall_time,
    zone_named,
)
from mast.recordings.names import Told, folder_site, read_name, site_pattern, template_site


@dataclass(frozen=True, slots=True)
class Naming:
    """What the user states of a collection: where paths name the site, the zone of clocks that do not say."""

    site: str | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        """Refuse a template or a zone that cannot be, before any file is read."""
        if self.site is not None:
            site_pattern(self.site)
        if self.time_zone is not None:
            zone_named(self.time_zone)


class Facts(NamedTuple):
    """What is known of a recording's making, each fact with its source; named as in `Recording`."""

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
"""GUANO itself has no site and no gain: makers add them in namespaces, such as `NABat|Site Name`."""

_GAINS = ("low", "low-medium", "medium", "medium-high", "high")
_SILENT = Told()
_Source = tuple[str, Told]


def read_facts(
    path: str, comment: str | None, guano: str | None, naming: Naming, now: datetime | None = None
) -> Facts:
    """What a recording's headers and its path below the collection's root tell; headers come first.

    A clock later than a day after `now` (default: this moment) is reported as running in the future.
    """
    name = read_name(path)
    if comment and name.clock and not name.clock.audiomoth and "AudioMoth" in comment:
        name = name._replace(clock=name.clock._replace(audiomoth=True))
    sources: list[_Source] = [("file name", name)]
    if guano:
        sources.insert(0, ("GUANO", read_guano(guano)))
    if comment:
        sources.insert(0, ("AudioMoth comment", read_comment(comment)))
    device = device_source = gain = gain_source = None
    for source, told in reversed(sources):
        if told.device:
            device, device_source = told.device, source
        if told.gain:
            gain, gain_source = told.gain, source
    instant, local, start_source, detail = _start(sources, naming, now or datetime.now(UTC))
    return Facts(
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


def read_comment(comment: str) -> Told:
    """What an AudioMoth wrote into its WAV comment; any other text tells nothing.

    One pattern serves all firmware, 1.0 to today: the sentence's end has changed often, its beginning hardly.
    """
    match = _COMMENT_TIME.search(comment)
    if match is None:
        return _SILENT
    time, day, month, year = match.groups()
    local = wall_time(f"{year}-{month}-{day}T{time}")
    rest = _rest_of_comment(comment[match.end() :].partition(" while ")[0])
    if local is None or rest is None:
        return _SILENT
    offset_min, device, gain = rest
    return Told(Clock(local, offset_min, audiomoth=True), None, device, gain)


@lru_cache(4096)
def _rest_of_comment(rest: str) -> tuple[int | None, str | None, str | None] | None:
    """Offset, device and gain: one recorder writes the same ones into all its files."""
    match = _COMMENT_REST.match(rest)
    if match is None:
        return None
    utc, sign, hours, minutes, serial, level, gain = match.groups()
    offset_min = offset_minutes(sign, hours, minutes) if sign else 0 if utc else None
    return offset_min, f"AudioMoth {serial}" if serial else None, _GAINS[int(level)] if level else gain


def read_guano(guano: str) -> Told:
    """What a GUANO chunk tells: `Key: value` lines, of which any may be missing or damaged."""
    values = {key.rpartition("|")[2]: value.strip(" \t\r\0") for key, value in _GUANO.findall(guano)}
    model = values.get("Model") or values.get("Make")
    device = " ".join(filter(None, (model, values.get("Serial")))) or None
    clock = _guano_clock(values.get("Timestamp", ""))
    if clock and model == "AudioMoth":
        clock = clock._replace(audiomoth=True)
    site = values.get("Site Name") or values.get("Site") or None
    return Told(clock, site, device, values.get("Gain") or None)


class _Start(NamedTuple):
    instant: Instant
    local: datetime | None = None
    source: str | None = None
    detail: str | None = None


def _start(sources: Sequence[_Source], naming: Naming, now: datetime) -> _Start:
    """The first clock that tells a time, checked against the file name and against `now`."""
    telling = [(source, told.clock) for source, told in sources if told.clock]
    if not telling:
        return _Start(Instant(None, faults=("no-start-time",)))
    source, clock = telling[0]
    name_clock = sources[-1][1].clock
    zone_source = source
    if name_clock and _lends_zone(name_clock, clock):
        clock, zone_source = clock._replace(offset_min=name_clock.offset_min), "file name"
    instant = place(clock, zone_source, naming.time_zone)
    detail = None
    if is_in_future(clock, instant, now):
        instant = instant._replace(faults=(*instant.faults, "clock-in-future"))
    if name_clock and not agree(clock, name_clock):
        instant = instant._replace(faults=(*instant.faults, "clock-disagrees"))
        detail = f"{source}: {clock.local}; file name: {name_clock.local}"
    return _Start(instant, clock.local, source, detail)


def _site(path: str, sources: Sequence[_Source], naming: Naming) -> tuple[str | None, str | None]:
    """The site by the user's template, else by GUANO or the file name, else by the folder of a bare time."""
    site = template_site(path, naming.site) if naming.site else None
    if site:
        return site, "template"
    for source, told in sources:
        if told.site:
            return told.site, source
    folder = folder_site(path) if sources[-1][1].clock else None
    return (folder, "folder") if folder else (None, None)


def _lends_zone(name: Clock, header: Clock) -> bool:
    """Whether a file name's zone holds for a header that says none: both showed the same time."""
    if header.offset_min is not None or name.offset_min is None:
        return False
    return abs((name.local - header.local).total_seconds()) <= START_DELAY_S


def _guano_clock(timestamp: str) -> Clock | None:
    """An ISO 8601 time, with or without its offset; a date alone is no start."""
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
