"""Recorder clocks: what one showed, and the instant that was; and how long sound is, as people are told it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mast.errors import ConfigError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

START_DELAY_S = 10
"""A recorder names a file, wakes its microphone, then writes the header: so far apart their times may be."""

_FIRST_TRUE_YEAR = 2000
_ZONE_STEP_S = 15 * 60
_WIDEST_OFFSET_S = 14 * 3600
_FUTURE_SLACK = timedelta(days=1)


class Clock(NamedTuple):
    """What a recorder's clock showed; `offset_min` is None where it does not say its time zone.

    An AudioMoth runs on UTC unless it was told otherwise, so for one an unsaid zone can be guessed.
    """

    local: datetime
    offset_min: int | None = None
    audiomoth: bool = False


class Instant(NamedTuple):
    """Where a clock's time lies in UTC, who told the zone, and what is doubtful about it."""

    utc: datetime | None
    offset_min: int | None = None
    zone_source: str | None = None
    faults: tuple[str, ...] = ()


def length(seconds: float) -> str:
    """How much sound, in hours, or in minutes where it is less than one."""
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 1000 * 3600 else f"{seconds / 3600:,.0f} h"


def wall_time(text: str) -> datetime | None:
    """A time written as ISO 8601 without a zone; None if there is no such time."""
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        return None
    return local if is_plausible(local) else None


def is_plausible(local: datetime) -> bool:
    """Whether a year can come from a clock at all, be it a reset one."""
    return 1900 <= local.year < 2200


def offset_minutes(sign: str, hours: str, minutes: str | None) -> int:
    """Minutes east of UTC; the sign counts for the minutes too: -3:30 is 210 minutes west."""
    total_min = 60 * int(hours) + int(minutes or 0)
    return -total_min if sign == "-" else total_min


@cache
def zone_named(name: str) -> ZoneInfo:
    """The IANA time zone of this name."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"time zone {name!r}: there is none of this name. Use one such as Europe/Madrid, or UTC."
        ) from None


def place(clock: Clock, source: str, time_zone: str | None) -> Instant:
    """A clock's instant by its own zone, else the stated one, else AudioMoth's default, else unknown."""
    if clock.local.year < _FIRST_TRUE_YEAR:
        return Instant(None, clock.offset_min, None if clock.offset_min is None else source, ("clock-reset",))
    if clock.offset_min is not None:
        return Instant(_to_utc(clock.local, clock.offset_min), clock.offset_min, source)
    if time_zone is not None:
        return _place_in_zone(clock.local, zone_named(time_zone))
    if clock.audiomoth:
        return Instant(_to_utc(clock.local, 0), 0, "AudioMoth default")
    return Instant(None, faults=("no-time-zone",))


def is_in_future(clock: Clock, instant: Instant, now: datetime) -> bool:
    """Whether a clock runs ahead of `now` by more than a day, which no time zone explains."""
    if clock.local.year < now.year:
        return False
    return (instant.utc or clock.local.replace(tzinfo=UTC)) > now + _FUTURE_SLACK


def agree(header: Clock, name: Clock) -> bool:
    """Whether header and file name can mean one moment; if a zone is unsaid they may be whole zones apart."""
    if header.local == name.local and (
        name.offset_min is None or header.offset_min in (None, name.offset_min)
    ):
        return True
    apart_s = abs((header.local - name.local).total_seconds())
    if header.offset_min is not None and name.offset_min is not None:
        apart = _to_utc(header.local, header.offset_min) - _to_utc(name.local, name.offset_min)
        return abs(apart.total_seconds()) <= START_DELAY_S
    zones_s = _ZONE_STEP_S * round(apart_s / _ZONE_STEP_S)
    return zones_s <= _WIDEST_OFFSET_S and abs(apart_s - zones_s) <= START_DELAY_S


def _place_in_zone(local: datetime, zone: ZoneInfo) -> Instant:
    """Read a local time in a zone; of an hour that comes twice, take the first."""
    first = zone.utcoffset(local) or timedelta()
    second = zone.utcoffset(local.replace(fold=1)) or timedelta()
    faults: tuple[str, ...] = ()
    if first > second:
        faults = ("clock-twice",)
    elif first < second:
        faults = ("clock-skipped",)
    offset_min = first // timedelta(minutes=1)
    return Instant(_to_utc(local, offset_min), offset_min, "stated", faults)


def _to_utc(local: datetime, offset_min: int) -> datetime:
    utc = local.replace(tzinfo=UTC)
    return utc - _minutes(offset_min) if offset_min else utc


@cache
def _minutes(count: int) -> timedelta:
    return timedelta(minutes=count)
