"""Summarise a scan for the user: amount of audio, sites, dates, gaps and faults.

All numbers are computed from the table by SQL that spills to disk, so memory use does not depend on its size.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.errors import StorageError
from mast.recordings.clocks import format_duration
from mast.recordings.duplicates import connect
from mast.recordings.faults import FAULTS, Fault
from mast.storage import is_remote, open_binary
from mast.wording import counted

if TYPE_CHECKING:
    import duckdb
    from rich.console import Group, RenderableType
    from rich.text import Text

MAX_SITES = 20
NO_SITE = "(no site)"
_CONTINUOUS = 1.05  # an interval below this multiple of the duration means recording without pauses


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """Recordings of one site; days are in the recorder's clock. None without a reliable clock."""

    site: str
    recordings: int
    hours: float
    first_day: date | None
    last_day: date | None
    missing_days: int
    longest_gap_days: int
    longest_gap_after: date | None
    duration_s: float | None
    interval_s: float | None
    recorded_fraction: float | None


@dataclass(frozen=True, slots=True)
class FaultCount:
    """Number of files with a fault, and an example."""

    code: str
    files: int
    example: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a complete scan.

    `hours` counts usable recordings, without duplicates. `sites` are up to `MAX_SITES` of the `site_count` sites, those
    with most recordings, and `longest_gap` is the site with the longest run of days without recordings.
    """

    files: int
    ok: int
    suspect: int
    quarantined: int
    hours: float
    size_bytes: int
    first_day: date | None
    last_day: date | None
    site_count: int
    sites: tuple[SiteSummary, ...]
    longest_gap: SiteSummary | None
    rates: tuple[tuple[int, int], ...]
    faults: tuple[FaultCount, ...]
    ignored: dict[str, int]


def summarise(location: str) -> Summary:
    """Summarise the table of a scan."""
    from mast.recordings.scan import PROVENANCE

    with _local_copy(location) as (table, folder), connect(folder) as database:
        import pyarrow.parquet as pq

        metadata = json.loads((pq.read_schema(table).metadata or {}).get(PROVENANCE, b"{}"))
        escaped = str(table).replace("'", "''")
        database.execute(_VIEWS.replace("$table", f"'{escaped}'"))
        totals: tuple[Any, ...] = database.execute(_TOTALS).fetchall()[0]
        files, ok, suspect, quarantined, hours, size_bytes, first_day, last_day, site_count = totals
        database.execute(_SITES)
        return Summary(
            files=files,
            ok=ok,
            suspect=suspect,
            quarantined=quarantined,
            hours=hours,
            size_bytes=size_bytes,
            first_day=first_day,
            last_day=last_day,
            site_count=site_count,
            sites=_sites(database.execute(_SHOWN, {"limit": MAX_SITES})),
            longest_gap=next(iter(_sites(database.execute(_LONGEST_GAP))), None),
            rates=tuple(database.execute(_RATES).fetchall()),
            faults=_faults(database),
            ignored=metadata.get("ignored", {}),
        )


def render(summary: Summary) -> Group:
    """Render the summary as rich output that fits 80 columns; names are printed literally, never read as markup."""
    from rich.console import Group

    parts: list[RenderableType] = [_headline(summary)]
    if summary.sites:
        parts += ["", _sites_table(summary)]
    parts += ["", *_remarks(summary)]
    for status, title in (
        ("quarantined", "Quarantined: excluded from all later steps"),
        ("suspect", "Suspect: used, but check these"),
    ):
        faults = [fault for fault in summary.faults if FAULTS[fault.code].status == status]
        if faults:
            parts += ["", _faults_table(title, faults)]
    if summary.files and not summary.faults:
        parts += ["", _safe("No faults found.", "green")]
    return Group(*parts)


_VIEWS = """
    CREATE VIEW recording AS FROM read_parquet($table);
    CREATE VIEW usable AS
        SELECT coalesce(site, '') AS site, duration_s, sample_rate_hz,
            CASE WHEN NOT list_has_any(faults, ['clock-reset', 'clock-in-future', 'no-start-time'])
                THEN start_local END AS start
        FROM recording WHERE status <> 'quarantined' AND duplicate_of IS NULL;
"""
_TOTALS = """
    SELECT count(*), count(*) FILTER (status = 'ok'), count(*) FILTER (status = 'suspect'),
        count(*) FILTER (status = 'quarantined'),
        (SELECT coalesce(sum(duration_s), 0) / 3600 FROM usable), coalesce(sum(size_bytes), 0)::BIGINT,
        (SELECT min(start)::DATE FROM usable), (SELECT max(start)::DATE FROM usable),
        (SELECT count(DISTINCT site) FROM usable)
    FROM recording
"""
_SITES = """
    CREATE TEMP TABLE site_summary AS WITH total AS (
        SELECT site, count(*) AS recordings, sum(duration_s) / 3600 AS hours,
            approx_quantile(duration_s, 0.5) AS duration_s,
            sum(duration_s) FILTER (start IS NOT NULL)
                / nullif(date_diff('second', min(start), max(start)) + max_by(duration_s, start), 0) AS recorded_fraction
        FROM usable GROUP BY site
    ),
    step AS (
        SELECT site, date_diff('second', lag(start) OVER (PARTITION BY site ORDER BY start), start) AS interval_s
        FROM usable WHERE start IS NOT NULL
    ),
    pace AS (
        SELECT site, round(approx_quantile(interval_s, 0.5)) AS interval_s
        FROM step WHERE interval_s > 0 GROUP BY site
    ),
    day AS (SELECT DISTINCT site, start::DATE AS day FROM usable WHERE start IS NOT NULL),
    gap AS (
        SELECT site, day, lag(day) OVER (PARTITION BY site ORDER BY day) AS before,
            coalesce(day - before - 1, 0) AS missed
        FROM day
    ),
    days AS (
        SELECT site, min(day) AS first_day, max(day) AS last_day, sum(missed)::BIGINT AS missed,
            max(missed)::BIGINT AS longest, CASE WHEN max(missed) > 0 THEN arg_max(before, missed) END AS gap_after
        FROM gap GROUP BY site
    )
    SELECT site, recordings, hours, first_day, last_day, coalesce(missed, 0) AS missed,
        coalesce(longest, 0) AS longest, gap_after, duration_s, interval_s, recorded_fraction
    FROM total LEFT JOIN days USING (site) LEFT JOIN pace USING (site)
"""
_SHOWN = """
    SELECT * FROM (FROM site_summary ORDER BY recordings DESC, site LIMIT $limit) ORDER BY site = '', site
"""
_LONGEST_GAP = """
    FROM site_summary WHERE longest > 0 ORDER BY longest DESC, site LIMIT 1
"""
_RATES = """
    SELECT sample_rate_hz, count(*) FROM usable WHERE sample_rate_hz IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
_FAULTS = """
    SELECT fault, count(*), min(recording_id)
    FROM (SELECT unnest(faults) AS fault, recording_id FROM recording WHERE status <> 'ok')
    GROUP BY fault ORDER BY count(*) DESC, fault
"""


def _sites(rows: duckdb.DuckDBPyConnection) -> tuple[SiteSummary, ...]:
    return tuple(SiteSummary(row[0] or NO_SITE, *row[1:]) for row in rows.fetchall())


def _faults(database: duckdb.DuckDBPyConnection) -> tuple[FaultCount, ...]:
    return tuple(FaultCount(*row) for row in database.execute(_FAULTS).fetchall() if row[0] in FAULTS)


@contextmanager
def _local_copy(location: str) -> Iterator[tuple[Path, Path]]:
    """Provide the table as a local file, and a temporary folder for spilling."""
    with tempfile.TemporaryDirectory(prefix="mast-summary-") as temporary:
        folder = Path(temporary)
        table = folder / "table.parquet" if is_remote(location) else Path(location)
        if is_remote(location):
            with open_binary(location) as source, table.open("wb") as target:
                shutil.copyfileobj(source, target)
        if not table.is_file():
            raise StorageError(f"{location}: there is no such table. Create it with mast scan.")
        yield table, folder


def _headline(summary: Summary) -> Text:
    from rich.text import Text

    line = Text()
    line.append(counted(summary.files, "recording"), "bold")
    line.append(f", {format_duration(3600 * summary.hours)} of audio")
    line.append(f" ({_bytes(summary.size_bytes)})")
    if summary.first_day and summary.last_day:
        line.append(f", {_day(summary.first_day)} to {_day(summary.last_day)}")
    line.append("\n")
    for count, status, style in (
        (summary.ok, "ok", "green"),
        (summary.suspect, "suspect", "yellow"),
        (summary.quarantined, "quarantined", "red"),
    ):
        line.append(f"{count:,} {status}   ", style if count else "dim")
    line.rstrip()
    return line


def _sites_table(summary: Summary) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    table.add_column("Site", overflow="fold", max_width=32)
    for name in ("Files", "Audio", "First day", "Last day", "Days\nmissed", "Duty\ncycle"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    table.add_column("Schedule", no_wrap=True)
    for site in summary.sites:
        missed = "–" if site.first_day is None else f"{site.missing_days:,}" if site.missing_days else "none"
        table.add_row(
            _safe(site.site, "" if site.site != NO_SITE else "italic"),
            f"{site.recordings:,}",
            format_duration(3600 * site.hours),
            str(site.first_day or "–"),
            str(site.last_day or "–"),
            _safe(missed, "yellow" if site.missing_days else ""),
            _percent(site.recorded_fraction if site.interval_s else None),
            _schedule(site),
        )
    more = summary.site_count - len(summary.sites)
    return Group(table, _safe(f"… and {more:,} more", "dim")) if more else table


def _remarks(summary: Summary) -> Iterator[Text]:
    """Yield lines on gaps, sample rates, and files that are not recordings."""
    gap = summary.longest_gap
    if gap and gap.longest_gap_after:
        yield _remark(
            "Longest gap",
            f"{counted(gap.longest_gap_days, 'day')} without recordings at {gap.site} "
            f"after {_day(gap.longest_gap_after)}",
        )
    if summary.rates:
        kinds = [f"{rate / 1000:g} kHz" for rate, _ in summary.rates]
        if len(kinds) > 1:
            kinds = [f"{name} ({files:,})" for name, (_, files) in zip(kinds, summary.rates, strict=True)]
        yield _remark("Sample rate" if len(kinds) == 1 else "Sample rates", ", ".join(kinds))
    if summary.ignored:
        named = [f"{count:,} {name}" for name, count in list(summary.ignored.items())[:8]]
        rest = sum(list(summary.ignored.values())[8:])
        yield _remark("Not recordings", ", ".join(named) + (f", {rest:,} of other kinds" if rest else ""))


def _remark(title: str, text: str) -> Text:
    line = _safe(f"{title}: ", "bold")
    line.append_text(_safe(text))
    return line


def _faults_table(title: str, faults: list[FaultCount]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for fault in faults:
        description: Fault = FAULTS[fault.code]
        text = _safe(f"{description.meaning[0].upper()}{description.meaning[1:]}. ")
        text.append(description.advice)
        text.append("\n")
        text.append_text(_safe(f"{'such as ' if fault.files > 1 else ''}{fault.example}", "dim"))
        colour = "red" if description.status == "quarantined" else "yellow"
        grid.add_row(f"{fault.files:,}", _safe(fault.code, colour), text)
    return Group(_safe(title, "bold"), grid)


def _schedule(site: SiteSummary) -> str:
    """Describe the recording schedule, such as '1 min every 10 min'."""
    if site.duration_s is None or site.interval_s is None:
        return "–"
    if site.interval_s <= site.duration_s * _CONTINUOUS:
        return f"{_span(site.duration_s)}, no pause"
    return f"{_span(site.duration_s)} every {_span(site.interval_s)}"


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else "<1 %" if fraction < 0.01 else f"{100 * fraction:.0f} %"


def _span(seconds: float) -> str:
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s and abs(seconds / unit_s - round(seconds / unit_s)) < 0.02:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return counted(round(count), "byte") if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def _safe(text: str, style: str = "") -> Text:
    """Return text that is never read as markup, with control characters escaped."""
    from rich.text import Text

    printable = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return Text(printable, style)
