"""Parse recording paths: the time in a recorder's file name, and the site in its prefix, its folder or a template."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import NamedTuple

from mast.errors import ConfigError
from mast.recordings.clocks import Clock, offset_minutes, wall_time


class FilenameMetadata(NamedTuple):
    """Metadata of a recording from one source (a header or a file name); None for each missing value."""

    clock: Clock | None = None
    site: str | None = None
    device: str | None = None
    gain: str | None = None


_TIME = re.compile(
    r"""
    (?<!\d)((?:19[7-9]|20\d)\d)([-_.]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])
    ([_T$\ -]?)
    ([01]\d|2[0-3])([-:_.]?)([0-5]\d)\7([0-5]\d)(?!\d)
    (?:[.,](\d{1,6})(?=[Z+_.-]|$))?
    (?:(Z)(?![A-Za-z])|_?([+-])(0\d|1[0-4]):?(00|15|30|45)(?!\d))?
    """,
    re.ASCII | re.VERBOSE,
)
"""Offsets are multiples of 15 minutes, as in all current time zones, so a counter does not match as an offset."""

_HEX_TIME = re.compile(r"[0-9A-Fa-f]{8}")
_AUDIOMOTH_ID = re.compile(r"[0-9A-F]{16}")
_COPY_PREFIX = re.compile(
    r"^(?:(?:copy(?: \(\d+\))? of|copia de|cópia de|copie de|kopie von)\s+)+", re.IGNORECASE
)
"""Prefix that file managers give to a copied file, in English, Spanish, Portuguese, French and German."""

_SYNC_MARK = re.compile(r"_[01]?[+-][01]?$")
_OBSERVATORY_TAIL = re.compile(r"_(.+)_\d+", re.ASCII)
_DATE_FOLDER = re.compile(r"\d{4}([-_]?)\d\d\1\d\d", re.ASCII)
_TEMPLATE_TOKEN = re.compile(r"(\{site\}|\*\*/?|\*)")
_TOKEN_PATTERNS = {"{site}": r"(?P<site>[^/]+?)", "**/": r"(?:[^/]+/)*", "**": r".*", "*": r"[^/]*"}
_HEX_YEARS = range(2016, 2032)
"""Years in which AudioMoths used Unix times as file names; other names of eight hex digits are not times."""


def parse_filename(path: str) -> FilenameMetadata:
    """Parse time, zone, site and device from a file name in the formats of common recorders and archives."""
    name = path[path.rfind("/") + 1 :]
    if len(name) == 19 and name[8] == "_" and name[15] == "." and "1970" <= name < "2100":
        bare = f"{name[:8]}T{name[9:15]}"  # most AudioMoth files; faster than the pattern
        if bare.isascii() and bare.replace("T", "0").isdigit() and (local := wall_time(bare)):
            return FilenameMetadata(Clock(local, None, audiomoth=True))
    for match in _TIME.finditer(name):
        year, dash, month, day, joint, hour, colon, minute, second, fraction, zulu, sign, hours, minutes = (
            match.groups()
        )
        local = wall_time(f"{year}-{month}-{day}T{hour}:{minute}:{second}.{fraction or 0}")
        if local is not None:
            zone = (zulu, sign, hours, minutes)
            rest = _parse_rest(name[: match.start()], name[match.end() :], zone, (dash, joint, colon))
            return FilenameMetadata(Clock(local, rest.offset_min, rest.audiomoth), rest.site, rest.device)
    return _read_hex_name(_without_extension(name))


class _Rest(NamedTuple):
    """Metadata from the parts of a file name before and after its time."""

    offset_min: int | None = None
    audiomoth: bool = False
    site: str | None = None
    device: str | None = None


@lru_cache(4096)
def _parse_rest(before: str, after: str, zone: tuple[str | None, ...], marks: tuple[str, str, str]) -> _Rest:
    """Parse the parts around the time; cached, because the files of one recorder differ only in their time."""
    prefix, tail = _COPY_PREFIX.sub("", before).strip("_-. "), _without_extension(after).strip()
    offset_min = _offset(*zone)
    if offset_min is None and marks == ("", "_", "") and tail in ("", "T"):
        if not prefix:
            return _Rest(audiomoth=True)
        if _AUDIOMOTH_ID.fullmatch(prefix):
            return _Rest(audiomoth=True, device=f"AudioMoth {prefix}")
    if prefix:
        return _Rest(offset_min, site=_SYNC_MARK.sub("", prefix))
    observatory = _OBSERVATORY_TAIL.fullmatch(tail) if marks[1] == "T" and offset_min is not None else None
    return _Rest(offset_min, site=observatory[1] if observatory else None)


def folder_site(path: str) -> str | None:
    """Return the nearest folder whose name is not only a date; AudioMoths create a folder for each day."""
    return _folder_site(path.rpartition("/")[0])


@lru_cache(4096)
def _folder_site(folders: str) -> str | None:
    for folder in reversed(folders.split("/")):
        if folder and not _DATE_FOLDER.fullmatch(folder):
            return folder
    return None


def template_site(path: str, template: str) -> str | None:
    """Return the site that a template extracts from a path, or None if the path does not match."""
    match = site_pattern(template).fullmatch(path)
    return match["site"].strip() or None if match else None


@cache
def site_pattern(template: str) -> re.Pattern[str]:
    """Compile a site template: `{site}` and `*` stay within one folder or file name, `**` is any folders."""
    plain = template.replace("\\", "/").removeprefix("./")
    if re.findall(r"\{[^{}]*\}?|\}", plain) != ["{site}"]:
        raise ConfigError(
            f"site template {template!r}: it should contain {{site}} once and nothing else in braces, such as "
            f"'{{site}}/*' (a folder for each site) or '{{site}}_*.wav' (files that start with the site)."
        )
    pattern = "".join(_TOKEN_PATTERNS.get(part, re.escape(part)) for part in _TEMPLATE_TOKEN.split(plain))
    extension = "" if "." in plain.rpartition("/")[2] else r"(?:\.[^./]*)?"
    return re.compile(pattern + extension, re.IGNORECASE | re.DOTALL)


def _offset(zulu: str | None, sign: str | None, hours: str | None, minutes: str | None) -> int | None:
    if zulu:
        return 0
    return offset_minutes(sign, hours, minutes) if sign and hours else None


def _read_hex_name(stem: str) -> FilenameMetadata:
    """Parse the name that old AudioMoth firmware gives a file: its Unix time in hex, which is always UTC."""
    if not _HEX_TIME.fullmatch(stem):
        return FilenameMetadata()
    utc = datetime.fromtimestamp(int(stem, 16), UTC)
    return (
        FilenameMetadata(Clock(utc.replace(tzinfo=None), 0)) if utc.year in _HEX_YEARS else FilenameMetadata()
    )


def _without_extension(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return stem if dot else extension
