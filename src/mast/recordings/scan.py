"""Find, read and audit every recording of some collections into one table, `recordings.parquet`.

Memory stays flat from a card to an archive: paths wait in a file, rows go to Parquet as they come, and duplicates
are found by a database that spills to disk. The temporary files need about 300 bytes a recording, below `TMPDIR`.
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

from mast import __version__
from mast.errors import StorageError
from mast.events import Recording, arrow_schema, rows_to_table
from mast.recordings.duplicates import find_duplicates, marked
from mast.recordings.metadata import Naming
from mast.recordings.probe import Place, Row
from mast.recordings.workers import Probing, write_spool
from mast.storage import is_remote, open_binary, written_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from mast.config import Collection

PROVENANCE = b"mast"
"""Key of the table's own story in the Parquet file's metadata: JSON with version, time, collections, ignored files."""

ROW_GROUP_ROWS = 1 << 14

Stage = Literal["finding", "reading", "comparing"]
OnProgress = Callable[[Stage, int, int | None], None]
"""`on_progress(stage, done, total)`; the total is None while it is not known."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Where the table is and how many rows it has; `ignored` counts other files by extension."""

    location: str
    recordings: int
    ignored: dict[str, int]


def scan(
    collections: Mapping[str, Collection],
    out: str,
    on_progress: OnProgress = lambda stage, done, total: None,
    workers: int | None = None,
) -> ScanResult:
    """Audit all recordings of `collections` into a table at `out`, which appears only when it is complete."""
    check_apart([collection.root for collection in collections.values()])
    now = datetime.now(UTC)
    places = [
        Place(name, collection.root, Naming(collection.site, collection.time_zone), now)
        for name, collection in collections.items()
    ]
    with tempfile.TemporaryDirectory(prefix="mast-scan-") as temporary:
        folder = Path(temporary)
        table = folder / "rows.parquet"
        with Probing(folder / "spool", workers) as probing, table.open("wb") as file:

            def on_found(files: int) -> None:
                probing.expect(files)
                on_progress("finding", files, None)

            spool = write_spool(folder / "spool", places, on_found)
            story = _provenance(collections, spool.ignored, now)
            _write(file, story, _tables(_watched(probing.rows(spool), spool.files, on_progress)))
        roots = {place.collection: place.root for place in places}
        duplicates = find_duplicates(
            table, roots, folder, lambda compared: on_progress("comparing", compared, None)
        )
        with written_whole(out) as whole:
            if duplicates:
                _write(whole, story, marked(table, duplicates))
            else:
                with table.open("rb") as rows:
                    shutil.copyfileobj(rows, whole, 1 << 20)
    return ScanResult(out, spool.files, spool.ignored)


def cut_short(table: str) -> dict[str, int]:
    """Frames that can be read of recordings which break off before the end that they state, by name."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, int] = {}
    with open_binary(table) as file:
        for batch in pq.ParquetFile(file).iter_batches(columns=["recording_id", "frames", "faults"]):
            is_cut = pc.equal(pc.list_flatten(batch["faults"]), "truncated")
            rows = batch.take(pc.list_parent_indices(batch["faults"]).filter(is_cut))
            found.update(zip(rows["recording_id"].to_pylist(), rows["frames"].to_pylist(), strict=True))
    return found


def collections_from_folders(
    folders: Sequence[str], site: str | None = None, time_zone: str | None = None
) -> dict[str, Collection]:
    """Folders of a command line as collections, each named as its folder, with parents' names where two are alike."""
    from mast.config import Collection, checked

    roots = [folder.rstrip("/") if is_remote(folder) else str(Path(folder).absolute()) for folder in folders]
    for root in roots:
        if not is_remote(root) and not Path(root).is_dir():
            why = (
                "it is a file; give the folder that holds it"
                if Path(root).exists()
                else "there is no such folder"
            )
            raise StorageError(f"{root}: {why}.")
    check_apart(roots)
    return {
        name: checked(Collection, {"root": root, "site": site, "time_zone": time_zone}, root)
        for name, root in zip(_names(roots), roots, strict=True)
    }


def check_apart(roots: Sequence[str]) -> None:
    """Refuse roots that share recordings: every file would count twice."""
    parts = [(root, _parts(root)) for root in roots]
    for (one, short), (other, long) in combinations(sorted(parts, key=lambda item: len(item[1])), 2):
        if long[: len(short)] == short:
            raise StorageError(f"{one} and {other} hold the same recordings. Give only one of them.")


def _parts(root: str) -> tuple[str, ...]:
    return tuple(root.rstrip("/").split("/")) if is_remote(root) else Path(root).resolve().parts


def _names(roots: Sequence[str]) -> list[str]:
    """The shortest tails of the roots' paths that tell them apart; a number where even whole paths do not."""
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


def _watched(batches: Iterable[list[Row]], total: int, on_progress: OnProgress) -> Iterator[list[Row]]:
    done = 0
    for rows in batches:
        yield rows
        done += len(rows)
        on_progress("reading", done, total)


def _tables(batches: Iterable[list[Row]]) -> Iterator[pa.Table]:
    for rows in batches:
        yield rows_to_table(rows, Recording)


def _write(file: object, story: bytes, tables: Iterable[pa.Table]) -> None:
    """Write tables as Parquet in row groups of a bounded size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(Recording).with_metadata({PROVENANCE: story})
    waiting: list[pa.Table] = []
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            waiting.append(table)
            if sum(map(len, waiting)) >= ROW_GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _provenance(collections: Mapping[str, Collection], ignored: Mapping[str, int], now: datetime) -> bytes:
    story = {
        "mast_version": __version__,
        "created_utc": now.isoformat(timespec="seconds"),
        "collections": {name: collection.model_dump() for name, collection in collections.items()},
        "ignored": ignored,
    }
    return json.dumps(story, ensure_ascii=False).encode("utf-8", "backslashreplace")
