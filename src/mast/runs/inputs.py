"""Resolve the inputs of a run to one table of recordings: files, folders, buckets, the table of a scan, or a study."""

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

from mast.config import Collection, Detection, load_study, validate
from mast.errors import ConfigError, StorageError
from mast.recordings.discover_files import make_found_file, walk
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import CollectionContext, probe_row
from mast.recordings.scan import PROVENANCE, OnProgress, collections_from_folders, scan
from mast.records import Recording, arrow_schema, rows_to_table
from mast.storage import atomic_write, exists, is_folder, is_remote, join, open_binary
from mast.study.artifacts import artifact_status, fingerprint, not_scanned
from mast.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

_PROGRESS_EVERY_FILES = 1000


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Inputs of a run: collections, their table if they were scanned, and files that were specified individually.

    `files` are paths below the root of the collection `files_collection`, which contains nothing else. `out` is the
    default output folder; `note` is a message about the recordings for the user.
    """

    collections: Mapping[str, Collection]
    table: str | None = None
    files_collection: str | None = None
    files: tuple[str, ...] = ()
    detection: Detection = field(default_factory=Detection)
    out: str = "events"
    note: str | None = None

    def manifest(self) -> dict[str, Any]:
        """Return everything that determines the rows of the table, independent of where its roots are mounted."""
        names = (path.encode("utf-8", "surrogateescape") + b"\0" for path in self.files)
        return {
            "collections": {
                name: collection.model_dump(exclude={"root"}) for name, collection in self.collections.items()
            },
            "files": fingerprint(names) if self.files else None,
        }


def resolve_inputs(
    paths: Sequence[str],
    site: str | None = None,
    time_zone: str | None = None,
    overrides: Sequence[str] = (),
) -> InputSpec:
    """Resolve the paths of a command line; only a study file or the metadata of a table is read."""
    kinds = {_kind(path) for path in paths}
    if kinds & {"study", "table"}:
        if len(paths) > 1 or site or time_zone:
            raise ConfigError(
                "Specify one study file or one table of a scan alone: sites and time zones come from there."
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
        return InputSpec(collections)
    _check_apart(files, [collection.root for collection in collections.values()])
    root = _common_folder(files)
    name = Path(root).name or "files"
    while name in collections:
        name += "-files"
    collection = validate(Collection, {"root": root, "site": site, "time_zone": time_zone}, root)
    relative = sorted(path.removeprefix(root).replace(os.sep, "/").lstrip("/") for path in files)
    return InputSpec({**collections, name: collection}, files_collection=name, files=tuple(relative))


@contextmanager
def table_of(inputs: InputSpec, on_progress: OnProgress = lambda stage, done, total: None) -> Iterator[str]:
    """Yield the path of the table of recordings: the specified one, or a temporary one that a scan writes."""
    if inputs.table:
        yield inputs.table
        return
    folders = {name: item for name, item in inputs.collections.items() if name != inputs.files_collection}
    with tempfile.TemporaryDirectory(prefix="mast-detect-") as temporary:
        scanned, table = (str(Path(temporary, f"{name}.parquet")) for name in ("scanned", "recordings"))
        scan(folders, scanned, on_progress)
        if inputs.files_collection:
            _write_table(inputs, scanned, table)
        yield table if inputs.files_collection else scanned


def count_recordings(inputs: InputSpec, on_progress: OnProgress = lambda stage, done, total: None) -> int:
    """Count the recordings that exist now, from the metadata of the table or by walking the folders."""
    if inputs.table:
        import pyarrow.parquet as pq

        with open_binary(inputs.table) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
    roots = [item.root for name, item in inputs.collections.items() if name != inputs.files_collection]
    count = len(inputs.files)
    for root in roots:
        for _ in walk(root, Counter()):
            count += 1
            if count % _PROGRESS_EVERY_FILES == 0:
                on_progress("finding", count, None)
    return count


def read_table_metadata(table: str) -> dict[str, Any]:
    """Read the metadata of a table of recordings; raise StorageError unless it has collections and all columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_binary(table) as file:
            schema = pq.ParquetFile(file).schema_arrow
    except FileNotFoundError:
        raise StorageError(f"{table}: there is no such table. Create it with mast scan.") from None
    except pa.ArrowInvalid as error:
        raise StorageError(f"{table}: not a table of recordings: {error}.") from None
    metadata: dict[str, Any] = json.loads((schema.metadata or {}).get(PROVENANCE, b"{}"))
    if not isinstance(metadata.get("collections"), dict):
        raise StorageError(
            f"{table}: the metadata has no collections. Specify a table as mast scan wrote it."
        )
    if missing := {*arrow_schema(Recording).names} - {*schema.names}:
        raise StorageError(
            f"{table}: missing columns {', '.join(sorted(missing))}. Specify a table with all columns that mast scan "
            "wrote; rows may be removed."
        )
    return metadata


def _kind(path: str) -> str:
    ending = path.lower().rpartition(".")[2]
    return {"yaml": "study", "yml": "study", "parquet": "table"}.get(ending, "audio")


def _study(path: str, overrides: Sequence[str]) -> InputSpec:
    """Return the inputs of a study: its collections, with their table if it is up to date."""
    study = load_study(Path(path), overrides)
    if not study.collections:
        raise ConfigError(f"{path}: no collections. Add at least one folder of recordings under collections.")
    scan_status = next(
        status for status in artifact_status(study) if status.artifact.name == "recordings.parquet"
    )
    table = join(study.work_dir, "recordings.parquet") if scan_status.state == "current" else None
    note = not_scanned(study, path) if table else None
    return InputSpec(
        study.collections, table, detection=study.detection, out=join(study.work_dir, "events"), note=note
    )


def _table(path: str, overrides: Sequence[str]) -> InputSpec:
    _refuse(overrides)
    collections = read_table_metadata(path)["collections"]
    return InputSpec({name: validate(Collection, values, path) for name, values in collections.items()}, path)


def _refuse(overrides: Sequence[str]) -> None:
    if overrides:
        raise ConfigError(
            "--set changes the settings of a study file; specify one, such as mast detect study.yaml."
        )


def _absolute(path: str) -> str:
    return path if is_remote(path) else os.path.normpath(Path(path).absolute())


def _common_folder(files: Sequence[str]) -> str:
    """Return the deepest folder that contains all files."""
    if not any(map(is_remote, files)):
        return os.path.commonpath([str(Path(path).parent) for path in files])
    common: list[str] = []
    for level in zip(*(path.split("/")[:-1] for path in files), strict=False):
        if len({*level}) > 1:
            break
        common.append(level[0])
    if len(common) < len(("s3:", "", "bucket")):
        raise ConfigError("Specify single files of only one bucket, or only of this machine.")
    return "/".join(common)


def _check_apart(files: Sequence[str], roots: Sequence[str]) -> None:
    """Raise StorageError for files that would be processed twice."""
    repeated = [path for path, count in Counter(files).items() if count > 1]
    below = [path for path in files if any(path.startswith(f"{root.rstrip('/')}/") for root in roots)]
    if repeated or below:
        raise StorageError(f"{(repeated or below)[0]} is specified twice. Specify it only once.")


def _write_table(inputs: InputSpec, scanned: str, out: str) -> None:
    """Write the table of the scanned folders, followed by the files that were specified individually."""
    import pyarrow.parquet as pq

    metadata = read_table_metadata(scanned)
    collections = {name: collection.model_dump() for name, collection in inputs.collections.items()}
    metadata = metadata | {"mast_version": __version__, "collections": collections}
    schema = arrow_schema(Recording).with_metadata({PROVENANCE: json.dumps(metadata)})
    with atomic_write(out) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(inputs, scanned):
            writer.write_table(table)


def _tables(inputs: InputSpec, scanned: str) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_binary(scanned) as file:
        for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches():
            yield pa.Table.from_batches([batch])
    if inputs.files_collection:
        collection = inputs.collections[inputs.files_collection]
        context = CollectionContext(
            inputs.files_collection,
            collection.root,
            NamingScheme(collection.site, collection.time_zone),
            datetime.now(UTC),
        )
        yield rows_to_table([probe_row(context, make_found_file(path)) for path in inputs.files], Recording)
