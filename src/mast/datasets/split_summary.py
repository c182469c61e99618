"""Summarise a table of splits: the paper's table of data, and a calendar plot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.config import Study
from mast.datasets.split_table import split_metadata, write_splits
from mast.datasets.splits import IN_DOMAIN, IN_DOMAIN_SPLITS
from mast.plotting.calendar import SiteDay, plot_calendar
from mast.recordings.clocks import format_duration
from mast.recordings.duplicates import connect
from mast.storage import atomic_write, join, open_binary

if TYPE_CHECKING:
    from rich.console import Group

CALENDAR = "splits.png"


def split_study(study: Study) -> SplitsSummary:
    """Run `mast split`: write the table, and a calendar plot if any date is known; return the summary."""
    location = write_splits(study)
    days = site_days(location)
    if days:
        figure = plot_calendar(days, _split_order(study.splits.held_out), "Split of each day")
        with atomic_write(join(study.work_dir, CALENDAR)) as file:
            figure.savefig(file, format="png")
    return splits_summary(location)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A row of the paper's table of data.

    `hours` are after time expansion; audio in several overlapping chunks counts once.
    """

    split: str
    domain: str
    chunks: int
    boxes: int
    chunks_with_boxes: int
    recordings: int
    sites: int
    hours: float


@dataclass(frozen=True, slots=True)
class SplitsSummary:
    """Summary of a table of splits: its rows, and the number of excluded recordings and boxes by reason."""

    location: str
    rows: tuple[SplitRow, ...]
    blocks: int
    kept_blocks: int
    block_s: float
    excluded: dict[str, int]
    excluded_boxes: dict[str, int]
    remarks: dict[str, int]


def splits_summary(location: str) -> SplitsSummary:
    """Summarise a table of splits."""
    metadata = _read_split_metadata(location)
    order = _split_order(metadata["splits"]["held_out"])
    rows = [SplitRow(*row) for row in query_chunks(location, _ROWS)]
    rows.sort(key=lambda row: (order.index(row.split), row.domain != IN_DOMAIN, row.domain))
    return SplitsSummary(
        location=location,
        rows=tuple(rows),
        blocks=metadata["blocks"],
        kept_blocks=metadata.get("kept_blocks", 0),
        block_s=metadata["splits"]["block_s"],
        excluded=metadata["excluded"],
        excluded_boxes=metadata["excluded_boxes"],
        remarks=metadata["remarks"],
    )


def site_days(location: str) -> list[SiteDay]:
    """Return the hours of every split by site and day, without the chunks that have no trusted clock."""
    return [SiteDay(*row) for row in query_chunks(location, _SITE_DAYS)]


def render(summary: SplitsSummary) -> Group:
    """Return the summary as rich output that fits 80 columns."""
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
    return row.split if row.domain in (IN_DOMAIN, row.split) else f"{row.split}, {row.domain}"


def _cells(row: SplitRow) -> tuple[str, ...]:
    is_labelled = row.split not in _NO_LABELS
    return (
        f"{row.chunks:,}",
        f"{row.boxes:,}" if is_labelled else "–",
        f"{row.boxes / row.chunks:.2f}" if is_labelled else "–",
        f"{100 * row.chunks_with_boxes / row.chunks:.1f} %" if is_labelled else "–",
        f"{row.recordings:,}",
        f"{row.sites:,}",
        format_duration(3600 * row.hours),
    )


def _remarks(summary: SplitsSummary) -> Iterator[str]:
    """Yield one line for each fact that is not in the table."""
    labelled_h = {row.split: row.hours for row in summary.rows if row.split in IN_DOMAIN_SPLITS}
    if labelled_h:
        total = sum(labelled_h.values())
        fractions = " / ".join(f"{100 * labelled_h.get(split, 0) / total:.0f}" for split in IN_DOMAIN_SPLITS)
        plural = "" if summary.blocks == 1 else "s"
        yield f"Reviewed time: {summary.blocks:,} block{plural} of about {summary.block_s:g} s, split {fractions} %"
        if summary.kept_blocks:
            yield f"  {summary.kept_blocks:,} of them keep their previous split; a new splits.seed assigns all again."
    else:
        yield "No in-domain audio is reviewed, so all of it is unlabelled. mast sample proposes what to annotate."
    if 0 < summary.blocks < len(IN_DOMAIN_SPLITS):
        yield "  Too few blocks for three splits: annotate more, or set splits.block_s lower."
    for title, counts in (
        ("Excluded recordings", summary.excluded),
        ("Excluded boxes", summary.excluded_boxes),
    ):
        if counts:
            yield f"{title}:"
            yield from (f"  {count:,} x {reason}" for reason, count in counts.items())
    yield from (f"{count:,} x {remark}" for remark, count in summary.remarks.items())


def _split_order(held_out: Iterable[str]) -> tuple[str, ...]:
    return (*IN_DOMAIN_SPLITS, *held_out, *_NO_LABELS)


def _read_split_metadata(location: str) -> dict[str, Any]:
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        return split_metadata(pq.ParquetFile(file))


def query_chunks(location: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of an SQL query over the table. The table is streamed, and large results spill to disk.

    The query can use `chunk`, and `covered`: the same with `new_s`, the seconds that the previous chunk does not cover.
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
        SELECT *, audio_s - greatest(0, coalesce(lag(start_s + audio_s) OVER (
            PARTITION BY recording_id, split ORDER BY index), 0) - start_s) AS new_s
        FROM chunk
    )
"""
_ROWS = """
    SELECT split, domain, count(*), sum(boxes)::BIGINT, count(*) FILTER (boxes > 0), count(DISTINCT recording_id),
        count(DISTINCT site), sum(new_s) / 3600
    FROM covered GROUP BY split, domain
"""
_SITE_DAYS = """
    SELECT coalesce(site, '(no site)'), start_local::DATE AS day, split, sum(new_s) / 3600
    FROM covered WHERE start_local IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
