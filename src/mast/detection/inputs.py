"""What people point at, as one table of recordings: files, folders, buckets, the table of a scan, or a study."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast import __version__
from mast.config import Collection, Detection, checked, load_study
from mast.errors import ConfigError, StorageError
from mast.events import Recording, arrow_schema, rows_to_table
from mast.recordings.find import named, walk
from mast.recordings.metadata import Naming
from mast.recordings.probe import Place, probe_row
from mast.recordings.scan import PROVENANCE, OnProgress, collections_from_folders, scan
from mast.storage import exists, is_folder, is_remote, join, open_binary, written_whole
from mast.study.products import fingerprint, look, not_scanned

if TYPE_CHECKING:
    import pyarrow as pa

_TOLD_FILES = 1000


@dataclass(frozen=True, slots=True)
class Given:
    """What was pointed at: collections, the table of them if they were scanned, and files that were named one by one.

    `files` are paths below the root of the collection `single`, which holds nothing else. `out` is where events go by
    default; `note` is what the user should know of the recordings.
    """

    collections: Mapping[str, Collection]
    table: str | None = None
    single: str | None = None
    files: tuple[str, ...] = ()
    detection: Detection = field(default_factory=Detection)
    out: str = "events"
    note: str | None = None

    def story(self) -> dict[str, Any]:
        """What decides which rows the table has, wherever its roots are mounted today."""
        names = (path.encode("utf-8", "surrogateescape") + b"\0" for path in self.files)
        return {
            "collections": {
                name: item.model_dump(exclude={"root"}) for name, item in self.collections.items()
            },
            "files": fingerprint(names) if self.files else None,
        }


def look_at(
    paths: Sequence[str],
    site: str | None = None,
    time_zone: str | None = None,
    overrides: Sequence[str] = (),
) -> Given:
    """What the words of a command line point at; nothing is read yet but a study or the head of a table."""
    kinds = {_kind(path) for path in paths}
    if kinds & {"study", "table"}:
        if len(paths) > 1 or site or time_zone:
            raise ConfigError(
                "Give one study file or one table of a scan alone: sites and time zones are known from there."
            )
        return _study(paths[0], overrides) if kinds == {"study"} else _table(paths[0], overrides)
    _refuse(overrides)
    files = [_absolute(path) for path in paths if not is_folder(path)]
    folders = [path for path in paths if is_folder(path)]
    for path in files:
        if not exists(path):
            raise StorageError(f"{path}: there is no such file or folder.")
    collections = collections_from_folders(folders, site, time_zone)
    if not files:
        return Given(collections)
    _check_apart(files, [collection.root for collection in collections.values()])
    root = _common_folder(files)
    name = Path(root).name or "files"
    while name in collections:
        name += "-files"
    single = checked(Collection, {"root": root, "site": site, "time_zone": time_zone}, root)
    inside = sorted(path.removeprefix(root).replace(os.sep, "/").lstrip("/") for path in files)
    return Given({**collections, name: single}, single=name, files=tuple(inside))


@contextmanager
def table_of(given: Given, on_progress: OnProgress = lambda stage, done, total: None) -> Iterator[str]:
    """Where the table of the recordings is: the one that was given, or one that a scan makes and that is gone later."""
    if given.table:
        yield given.table
        return
    folders = {name: item for name, item in given.collections.items() if name != given.single}
    with tempfile.TemporaryDirectory(prefix="mast-detect-") as temporary:
        scanned, table = (str(Path(temporary, f"{name}.parquet")) for name in ("scanned", "recordings"))
        scan(folders, scanned, on_progress)
        if given.single:
            _write_with_files(given, scanned, table)
        yield table if given.single else scanned


def count_recordings(given: Given, on_progress: OnProgress = lambda stage, done, total: None) -> int:
    """How many recordings there are now; a walk, or a look at the table's head."""
    if given.table:
        import pyarrow.parquet as pq

        with open_binary(given.table) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
    roots = [item.root for name, item in given.collections.items() if name != given.single]
    count = len(given.files)
    for root in roots:
        for _ in walk(root, Counter()):
            count += 1
            if count % _TOLD_FILES == 0:
                on_progress("finding", count, None)
    return count


def read_story(table: str) -> dict[str, Any]:
    """What a table of recordings says about itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_binary(table) as file:
            schema = pq.ParquetFile(file).schema_arrow
    except FileNotFoundError:
        raise StorageError(f"{table}: there is no such table. Make it with mast scan.") from None
    except pa.ArrowInvalid as error:
        raise StorageError(f"{table}: not a table of recordings: {error}.") from None
    story: dict[str, Any] = json.loads((schema.metadata or {}).get(PROVENANCE, b"{}"))
    if not isinstance(story.get("collections"), dict):
        raise StorageError(
            f"{table}: does not say where its recordings are. Give a table as mast scan has written it."
        )
    if lacking := {*arrow_schema(Recording).names} - {*schema.names}:
        raise StorageError(
            f"{table}: lacks {', '.join(sorted(lacking))}. Give a table with all columns that mast scan has written; "
            "rows may be left out."
        )
    return story


def _kind(path: str) -> str:
    ending = path.lower().rpartition(".")[2]
    return {"yaml": "study", "yml": "study", "parquet": "table"}.get(ending, "sound")


def _study(path: str, overrides: Sequence[str]) -> Given:
    """A study's collections, with their table if it is up to date."""
    study = load_study(Path(path), overrides)
    if not study.collections:
        raise ConfigError(
            f"{path}: no collections. Name at least one folder of recordings under collections."
        )
    scanned = next(item for item in look(study) if item.product.name == "recordings.parquet")
    table = join(study.work, "recordings.parquet") if scanned.state == "current" else None
    note = not_scanned(study, path) if table else None
    return Given(
        study.collections, table, detection=study.detection, out=join(study.work, "events"), note=note
    )


def _table(path: str, overrides: Sequence[str]) -> Given:
    _refuse(overrides)
    told = read_story(path)["collections"]
    return Given({name: checked(Collection, values, path) for name, values in told.items()}, path)


def _refuse(overrides: Sequence[str]) -> None:
    if overrides:
        raise ConfigError(
            "--set changes the settings of a study file; give one, such as mast detect study.yaml."
        )


def _absolute(path: str) -> str:
    return path if is_remote(path) else os.path.normpath(Path(path).absolute())


def _common_folder(files: Sequence[str]) -> str:
    """The folder that holds all files, directly or further below."""
    if not any(map(is_remote, files)):
        return os.path.commonpath([str(Path(path).parent) for path in files])
    common: list[str] = []
    for level in zip(*(path.split("/")[:-1] for path in files), strict=False):
        if len({*level}) > 1:
            break
        common.append(level[0])
    if len(common) < len(("s3:", "", "bucket")):
        raise ConfigError("Give single files of one bucket, or of this machine, at a time.")
    return "/".join(common)


def _check_apart(files: Sequence[str], roots: Sequence[str]) -> None:
    """Refuse files that would count twice."""
    twice = [path for path, count in Counter(files).items() if count > 1]
    below = [path for path in files if any(path.startswith(f"{root.rstrip('/')}/") for root in roots)]
    if twice or below:
        raise StorageError(f"{(twice or below)[0]} is given twice. Give it only once.")


def _write_with_files(given: Given, scanned: str, out: str) -> None:
    """The scan of folders, and after it the files that were named one by one."""
    import pyarrow.parquet as pq

    told = read_story(scanned)
    collections = {name: item.model_dump() for name, item in given.collections.items()}
    story = told | {"mast_version": __version__, "collections": collections}
    schema = arrow_schema(Recording).with_metadata({PROVENANCE: json.dumps(story)})
    with written_whole(out) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(given, scanned):
            writer.write_table(table)


def _tables(given: Given, scanned: str) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_binary(scanned) as file:
        for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches():
            yield pa.Table.from_batches([batch])
    if given.single:
        collection = given.collections[given.single]
        place = Place(
            given.single,
            collection.root,
            Naming(collection.site, collection.time_zone),
            datetime.now(UTC),
        )
        yield rows_to_table([probe_row(place, named(path)) for path in given.files], Recording)
