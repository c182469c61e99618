"""Find, read and check every recording of the given collections, and write one table, `recordings.parquet`.

Memory use does not depend on the number of recordings: paths are written to a file, rows go to Parquet immediately, and
duplicates are found by a database that spills to disk. The temporary files below `TMPDIR` need about 300 bytes per
recording.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mast.errors import StorageError
from mast.recordings.duplicates import find_duplicates, mark_duplicates
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import CollectionContext, Row
from mast.recordings.probe_pool import ProbePool, write_spool
from mast.records import Recording, arrow_schema, rows_to_table
from mast.storage import atomic_write, is_remote, open_binary
from mast.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from mast.config import Collection

PROVENANCE = b"mast"
"""Key in the Parquet metadata for the table's provenance: JSON with version, time, collections and ignored files."""

ROW_GROUP_ROWS = 1 << 14

Stage = Literal["finding", "reading", "comparing"]
OnProgress = Callable[[Stage, int, int | None], None]
"""`on_progress(stage, done, total)`; the total is None while it is unknown."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Location of the table and its number of rows; `ignored` counts other files by extension."""

    location: str
    recordings: int
    ignored: dict[str, int]


def scan(
    collections: Mapping[str, Collection],
    out: str,
    on_progress: OnProgress = lambda stage, done, total: None,
    workers: int | None = None,
) -> ScanResult:
    """Check all recordings of `collections` and write a table to `out`; the file appears only when it is complete."""
    check_disjoint([collection.root for collection in collections.values()])
    now = datetime.now(UTC)
    contexts = [
        CollectionContext(name, collection.root, NamingScheme(collection.site, collection.time_zone), now)
        for name, collection in collections.items()
    ]
    with tempfile.TemporaryDirectory(prefix="mast-scan-") as temporary:
        folder = Path(temporary)
        table = folder / "rows.parquet"
        with ProbePool(folder / "spool", workers) as pool, table.open("wb") as file:

            def on_file(files: int) -> None:
                pool.expect(files)
                on_progress("finding", files, None)

            spool = write_spool(folder / "spool", contexts, on_file)
            metadata = _provenance(collections, spool.ignored, now)
            _write(file, metadata, _tables(_with_progress(pool.rows(spool), spool.files, on_progress)))
        roots = {context.collection: context.root for context in contexts}
        duplicates = find_duplicates(
            table, roots, folder, lambda compared: on_progress("comparing", compared, None)
        )
        with atomic_write(out) as output:
            if duplicates:
                _write(output, metadata, mark_duplicates(table, duplicates))
            else:
                with table.open("rb") as rows:
                    shutil.copyfileobj(rows, output, 1 << 20)
    return ScanResult(out, spool.files, spool.ignored)


def truncated_recordings(table: str) -> dict[str, int]:
    """Return the number of readable frames of each truncated recording, by recording id."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    frames: dict[str, int] = {}
    with open_binary(table) as file:
        for batch in pq.ParquetFile(file).iter_batches(columns=["recording_id", "frames", "faults"]):
            is_truncated = pc.equal(pc.list_flatten(batch["faults"]), "truncated")
            rows = batch.take(pc.list_parent_indices(batch["faults"]).filter(is_truncated))
            frames.update(zip(rows["recording_id"].to_pylist(), rows["frames"].to_pylist(), strict=True))
    return frames


def collections_from_folders(
    folders: Sequence[str], site: str | None = None, time_zone: str | None = None
) -> dict[str, Collection]:
    """Return a collection for each folder, named after it; parent folders are added to names that are equal."""
    from mast.config import Collection, validate

    roots = [folder.rstrip("/") if is_remote(folder) else str(Path(folder).absolute()) for folder in folders]
    for root in roots:
        if not is_remote(root) and not Path(root).is_dir():
            reason = (
                "it is a file; specify the folder that contains it"
                if Path(root).exists()
                else "there is no such folder"
            )
            raise StorageError(f"{root}: {reason}.")
    check_disjoint(roots)
    return {
        name: validate(Collection, {"root": root, "site": site, "time_zone": time_zone}, root)
        for name, root in zip(_names(roots), roots, strict=True)
    }


def check_disjoint(roots: Sequence[str]) -> None:
    """Raise StorageError if one root contains another: its files would count twice."""
    parts = [(root, _parts(root)) for root in roots]
    for (one, short), (other, long) in combinations(sorted(parts, key=lambda pair: len(pair[1])), 2):
        if long[: len(short)] == short:
            raise StorageError(f"{one} and {other} contain the same recordings. Specify only one of them.")


def _parts(root: str) -> tuple[str, ...]:
    return tuple(root.rstrip("/").split("/")) if is_remote(root) else Path(root).resolve().parts


def _names(roots: Sequence[str]) -> list[str]:
    """Return the shortest unique ends of the roots' paths, with a number appended if complete paths are equal."""
    parts = [[part for part in root.removeprefix("s3:").split("/") if part] or ["root"] for root in roots]
    names = [part[-1] for part in parts]
    for depth in range(2, max(map(len, parts), default=0) + 1):
        clashes = Counter(names)
        names = [
            "-".join(part[-depth:]) if clashes[name] > 1 else name
            for name, part in zip(names, parts, strict=True)
        ]
    clashes = Counter(names)
    return [f"{name}-{index}" if clashes[name] > 1 else name for index, name in enumerate(names, start=1)]


def _with_progress(batches: Iterable[list[Row]], total: int, on_progress: OnProgress) -> Iterator[list[Row]]:
    done = 0
    for rows in batches:
        yield rows
        done += len(rows)
        on_progress("reading", done, total)


def _tables(batches: Iterable[list[Row]]) -> Iterator[pa.Table]:
    for rows in batches:
        yield rows_to_table(rows, Recording)


def _write(file: object, metadata: bytes, tables: Iterable[pa.Table]) -> None:
    """Write tables as Parquet in row groups of bounded size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(Recording).with_metadata({PROVENANCE: metadata})
    pending: list[pa.Table] = []
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            pending.append(table)
            if sum(map(len, pending)) >= ROW_GROUP_ROWS:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending))


def _provenance(collections: Mapping[str, Collection], ignored: Mapping[str, int], now: datetime) -> bytes:
    metadata = {
        "mast_version": __version__,
        "created_utc": now.isoformat(timespec="seconds"),
        "collections": {name: collection.model_dump() for name, collection in collections.items()},
        "ignored": ignored,
    }
    return json.dumps(metadata, ensure_ascii=False).encode("utf-8", "backslashreplace")
