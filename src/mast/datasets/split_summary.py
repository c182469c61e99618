"""What a table of splits comes to: the paper's table of data, and a calendar of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.config import Study
from mast.datasets.split_table import story_of, write_splits
from mast.datasets.splits import IN_DOMAIN, SHARED
from mast.pictures.calendar import SiteDay, draw_calendar
from mast.recordings.clocks import length
from mast.recordings.duplicates import connect
from mast.storage import join, open_binary, written_whole

if TYPE_CHECKING:
    from rich.console import Group

CALENDAR = "splits.png"


def split_study(study: Study) -> SplitsSummary:
    """What `mast splits` does: writes the table into the work folder, and a calendar if any day is known; sums it up."""
    location = write_splits(study)
    days = site_days(location)
    if days:
        figure = draw_calendar(days, _shown_order(study.splits.held_out), "What each day is for")
        with written_whole(join(study.work, CALENDAR)) as file:
            figure.savefig(file, format="png")
    return splits_summary(location)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One line of the paper's table of data. `hours` are as heard, each moment once though chunks overlap."""

    split: str
    pool: str
    chunks: int
    boxes: int
    chunks_with_boxes: int
    recordings: int
    sites: int
    hours: float


@dataclass(frozen=True, slots=True)
class SplitsSummary:
    """A whole table of splits: its lines, and what was left out, by reason."""

    location: str
    rows: tuple[SplitRow, ...]
    blocks: int
    kept_blocks: int
    block_s: float
    left_out: dict[str, int]
    boxes_left_out: dict[str, int]
    remarks: dict[str, int]


def splits_summary(location: str) -> SplitsSummary:
    """Sum up a table of splits."""
    story = _read_story(location)
    order = _shown_order(story["splits"]["held_out"])
    rows = [SplitRow(*row) for row in query_chunks(location, _ROWS)]
    rows.sort(key=lambda row: (order.index(row.split), row.pool != IN_DOMAIN, row.pool))
    return SplitsSummary(
        location=location,
        rows=tuple(rows),
        blocks=story["blocks"],
        kept_blocks=story.get("kept_blocks", 0),
        block_s=story["splits"]["block_s"],
        left_out=story["left_out"],
        boxes_left_out=story["boxes_left_out"],
        remarks=story["remarks"],
    )


def site_days(location: str) -> list[SiteDay]:
    """Hours of every split by site and day; chunks without a trusted clock have no day."""
    return [SiteDay(*row) for row in query_chunks(location, _SITE_DAYS)]


def render(summary: SplitsSummary) -> Group:
    """The summary as rich output that fits 80 columns."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    table.add_column("Split", overflow="fold", vertical="bottom")
    for name in ("Chunks", "Boxes", "Boxes/\nchunk", "With\nboxes", "Files", "Sites", "Time"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    for row in summary.rows:
        table.add_row(Text(_row_name(row)), *_cells(row), style="dim" if row.split in _NO_LABELS else "")
    lines = [Text(line) for line in _remarks(summary)]
    return Group(table, Text(), *lines)


def _row_name(row: SplitRow) -> str:
    return row.split if row.pool in (IN_DOMAIN, row.split) else f"{row.split}, {row.pool}"


def _cells(row: SplitRow) -> tuple[str, ...]:
    known = row.split not in _NO_LABELS
    return (
        f"{row.chunks:,}",
        f"{row.boxes:,}" if known else "–",
        f"{row.boxes / row.chunks:.2f}" if known else "–",
        f"{100 * row.chunks_with_boxes / row.chunks:.1f} %" if known else "–",
        f"{row.recordings:,}",
        f"{row.sites:,}",
        length(3600 * row.hours),
    )


def _remarks(summary: SplitsSummary) -> Iterator[str]:
    """What the table does not say, a line each."""
    shared_h = {row.split: row.hours for row in summary.rows if row.split in SHARED}
    if shared_h:
        total = sum(shared_h.values())
        reached = " / ".join(f"{100 * shared_h.get(split, 0) / total:.0f}" for split in SHARED)
        plural = "" if summary.blocks == 1 else "s"
        yield f"Shared out: {summary.blocks:,} block{plural} of about {summary.block_s:g} s, {reached} % of the time"
        if summary.kept_blocks:
            yield f"  {summary.kept_blocks:,} of them from before: what tested goes on testing. splits.seed deals anew."
    else:
        yield "Nothing of the domain is reviewed: all of it is unlabelled. mast budget proposes what to label."
    if 0 < summary.blocks < len(SHARED):
        yield "  Too few blocks for three splits: label more, or set splits.block_s lower."
    for title, counts in (
        ("Recordings left out", summary.left_out),
        ("Boxes left out", summary.boxes_left_out),
    ):
        if counts:
            yield f"{title}:"
            yield from (f"  {count:,} x {reason}" for reason, count in counts.items())
    yield from (f"{count:,} x {remark}" for remark, count in summary.remarks.items())


def _shown_order(held_out: Iterable[str]) -> tuple[str, ...]:
    return (*SHARED, *held_out, *_NO_LABELS)


def _read_story(location: str) -> dict[str, Any]:
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        return story_of(pq.ParquetFile(file))


def query_chunks(location: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of an SQL query over the table, streamed; what does not fit into memory goes to disk.

    The query sees `chunk`, and `covered`: the same with `new_s`, the time that no chunk before it had.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (
        tempfile.TemporaryDirectory(prefix="mast-splits-") as folder,
        connect(Path(folder)) as database,
        open_binary(location) as file,
    ):
        table = pq.ParquetFile(file)
        reader = pa.RecordBatchReader.from_batches(table.schema_arrow, table.iter_batches())
        database.register("chunk", reader)
        rows: list[tuple[Any, ...]] = database.execute(_COVERED + sql).fetchall()
    return rows


_NO_LABELS = ("guard", "unlabelled")
_COVERED = """
    WITH covered AS (
        SELECT *, filled_s - greatest(0, coalesce(lag(start_s + filled_s) OVER (
            PARTITION BY recording_id, split ORDER BY index), 0) - start_s) AS new_s
        FROM chunk
    )
"""
_ROWS = """
    SELECT split, pool, count(*), sum(boxes)::BIGINT, count(*) FILTER (boxes > 0), count(DISTINCT recording_id),
        count(DISTINCT site), sum(new_s) / 3600
    FROM covered GROUP BY split, pool
"""
_SITE_DAYS = """
    SELECT coalesce(site, '(no site)'), start_local::DATE AS day, split, sum(new_s) / 3600
    FROM covered WHERE start_local IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
