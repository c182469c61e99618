"""Convert the times of recorder clocks to UTC, and format durations for messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mast.errors import ConfigError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

START_DELAY_S = 10
"""Maximum difference between the times in file name and header: a recorder names the file, then starts its microphone,
then writes the header."""

_FIRST_VALID_YEAR = 2000
_ZONE_STEP_S = 15 * 60
_MAX_OFFSET_S = 14 * 3600
_FUTURE_SLACK = timedelta(days=1)


class Clock(NamedTuple):
    """Time shown by a recorder's clock; `offset_min` is None if its time zone is not stated.

    An AudioMoth uses UTC unless configured otherwise, so its default zone is UTC.
    """

    local: datetime
    offset_min: int | None = None
    audiomoth: bool = False


class Instant(NamedTuple):
    """A clock's time in UTC, the source of its zone, and the faults of the time."""

    utc: datetime | None
    offset_min: int | None = None
    zone_source: str | None = None
    faults: tuple[str, ...] = ()


def format_duration(seconds: float) -> str:
    """Format a duration in hours, or in minutes if it is less than one hour."""
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 1000 * 3600 else f"{seconds / 3600:,.0f} h"


def wall_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time without zone; return None if the time is invalid."""
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        return None
    return local if is_plausible(local) else None


def is_plausible(local: datetime) -> bool:
    """Return True if a recorder clock can show this year, including clocks that were reset."""
    return 1900 <= local.year < 2200


def offset_minutes(sign: str, hours: str, minutes: str | None) -> int:
    """Return minutes east of UTC; the sign applies to the minutes too: -3:30 is 210 minutes west."""
    total_min = 60 * int(hours) + int(minutes or 0)
    return -total_min if sign == "-" else total_min


@cache
def zone_named(name: str) -> ZoneInfo:
    """Return the IANA time zone with this name."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"time zone {name!r}: there is no zone with this name. Use a name such as Europe/Madrid, or UTC."
        ) from None


def resolve_utc(clock: Clock, source: str, time_zone: str | None) -> Instant:
    """Convert a clock's time to UTC by its own zone, else `time_zone`, else AudioMoth's default; else to None."""
    if clock.local.year < _FIRST_VALID_YEAR:
        return Instant(None, clock.offset_min, None if clock.offset_min is None else source, ("clock-reset",))
    if clock.offset_min is not None:
        return Instant(_to_utc(clock.local, clock.offset_min), clock.offset_min, source)
    if time_zone is not None:
        return _resolve_in_zone(clock.local, zone_named(time_zone))
    if clock.audiomoth:
        return Instant(_to_utc(clock.local, 0), 0, "AudioMoth default")
    return Instant(None, faults=("no-time-zone",))


def is_in_future(clock: Clock, instant: Instant, now: datetime) -> bool:
    """Return True if a clock is more than a day ahead of `now`, which no time zone explains."""
    if clock.local.year < now.year:
        return False
    return (instant.utc or clock.local.replace(tzinfo=UTC)) > now + _FUTURE_SLACK


def are_consistent(header: Clock, name: Clock) -> bool:
    """Return True if header and file name can state the same instant.

    If a zone is missing, their times may differ by a multiple of 15 minutes, as time zones do.
    """
    if header.local == name.local and (
        name.offset_min is None or header.offset_min in (None, name.offset_min)
    ):
        return True
    apart_s = abs((header.local - name.local).total_seconds())
    if header.offset_min is not None and name.offset_min is not None:
        apart = _to_utc(header.local, header.offset_min) - _to_utc(name.local, name.offset_min)
        return abs(apart.total_seconds()) <= START_DELAY_S
    zones_s = _ZONE_STEP_S * round(apart_s / _ZONE_STEP_S)
    return zones_s <= _MAX_OFFSET_S and abs(apart_s - zones_s) <= START_DELAY_S


def _resolve_in_zone(local: datetime, zone: ZoneInfo) -> Instant:
    """Convert a local time in a zone to UTC; if the time occurs twice, use the first."""
    first = zone.utcoffset(local) or timedelta()
    second = zone.utcoffset(local.replace(fold=1)) or timedelta()
    faults: tuple[str, ...] = ()
    if first > second:
        faults = ("ambiguous-local-time",)
    elif first < second:
        faults = ("nonexistent-local-time",)
    offset_min = first // timedelta(minutes=1)
    return Instant(_to_utc(local, offset_min), offset_min, "stated", faults)


def _to_utc(local: datetime, offset_min: int) -> datetime:
    utc = local.replace(tzinfo=UTC)
    return utc - _minutes(offset_min) if offset_min else utc


@cache
def _minutes(count: int) -> timedelta:
    return timedelta(minutes=count)
