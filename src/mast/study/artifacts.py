"""Track the artifacts in a study's work folder: their state, the changed inputs, and the command to run next.

Each artifact depends on settings, files and other artifacts. A command that creates an artifact records a fingerprint of
each input; the artifact is stale if a current fingerprint differs.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from mast.annotations.study_annotations import label_tables
from mast.config import Study
from mast.errors import StorageError
from mast.recordings.discover_files import walk
from mast.records import read_column
from mast.storage import atomic_write, exists, is_folder, is_remote, join, list_files, open_binary
from mast.store.audio_store import AudioStore
from mast.study.commands import mast_command
from mast.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

PROVENANCE_FILE = "artifacts.json"
"""File in the work folder with the inputs of each artifact."""

STORE = "audio.lance"
MAX_LISTED = 1_000_000
"""Maximum number of recordings for which the table is compared with the folders."""

State = Literal["missing", "current", "stale"]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a command creates in the work folder from settings, from the study's files, and from other artifacts.

    Artifacts for which `is_optional_input` is False are skipped.
    """

    name: str
    command: str
    meaning: str
    settings: Callable[[Study], Any]
    needs: tuple[str, ...] = ()
    files: Callable[[Study], Iterable[str]] = lambda study: ()
    is_optional_input: Callable[[Study], bool] = lambda study: True


def has_annotations(study: Study) -> bool:
    """Return True if the study has annotations, or had some at the last scan."""
    scanned = join(study.work_dir, "annotations.parquet")
    return bool(study.annotations or label_tables(study)) or exists(scanned)


ARTIFACTS: tuple[Artifact, ...] = (
    Artifact(
        "recordings.parquet",
        "scan",
        "recordings, with metadata and faults",
        lambda study: {
            name: collection.model_dump(exclude={"time_expansion"})
            for name, collection in study.collections.items()
        },
    ),
    Artifact(
        "annotations.parquet",
        "scan",
        "annotations",
        lambda study: [study.labels.model_dump(), [source.model_dump() for source in study.annotations]],
        needs=("recordings.parquet",),
        files=lambda study: [*(source.path for source in study.annotations), *label_tables(study)],
        is_optional_input=has_annotations,
    ),
    Artifact(
        "splits.parquet",
        "split",
        "training, validation and test splits",
        lambda study: [
            study.splits.model_dump(mode="json"),
            study.chunking.model_dump(),
            study.spectrogram.model_dump(),
            _expansions(study),
        ],
        needs=("recordings.parquet", "annotations.parquet"),
    ),
    Artifact(
        STORE,
        "prepare",
        "audio for training",
        lambda study: [study.chunking.sample_rate_hz, study.chunking.chunk_s, _expansions(study)],
        needs=("recordings.parquet",),
    ),
    Artifact(
        "normalisation.json",
        "prepare",
        "statistics that scale spectrograms",
        lambda study: [study.normalisation, study.spectrogram.model_dump()],
        needs=(STORE, "splits.parquet"),
    ),
)


@dataclass(frozen=True, slots=True)
class ArtifactStatus:
    """State of an artifact; `changed` lists the inputs that have changed since it was created."""

    artifact: Artifact
    state: State
    changed: tuple[str, ...] = ()
    created_utc: str | None = None


def artifact_status(study: Study) -> list[ArtifactStatus]:
    """Return the state of every artifact of the study, in the order of creation."""
    journal = _read_journal(study)
    statuses: dict[str, ArtifactStatus] = {}
    for artifact in ARTIFACTS:
        if artifact.is_optional_input(study):
            statuses[artifact.name] = _state(study, artifact, journal.get(artifact.name), statuses)
    return list(statuses.values())


def next_step(statuses: Iterable[ArtifactStatus]) -> str | None:
    """Return the command to run next, or None if all artifacts are current."""
    return next((status.artifact.command for status in statuses if status.state != "current"), None)


def not_scanned(study: Study, study_file: str) -> str | None:
    """Return a note if a study's folders contain recordings that are not in its table, else None.

    Buckets are skipped, as listing takes too long; so are tables of more than `MAX_LISTED` recordings, whose ids are held
    in memory.
    """
    import pyarrow.parquet as pq

    table = join(study.work_dir, "recordings.parquet")
    if not exists(table):
        return None
    with open_binary(table) as file:
        if pq.ParquetFile(file).metadata.num_rows > MAX_LISTED:
            return None
    scanned, count = {*read_column(table, "recording_id")}, 0
    for name, collection in study.collections.items():
        if not is_remote(collection.root):
            with suppress(StorageError):  # a missing drive is reported by the commands that need it
                count += sum(
                    f"{name}/{file.path}" not in scanned for file in walk(collection.root, Counter())
                )
    if not count:
        return None
    subject = counted(count, "recording is", "recordings are")
    return f"{subject} not in the study's table: run {mast_command('scan', study_file)}."


def content_of(study: Study, name: str) -> str | None:
    """Return the recorded fingerprint of an artifact's content, or None if none is recorded."""
    content: str | None = _read_journal(study).get(name, {}).get("content")
    return content


def inputs_of(study: Study, name: str) -> dict[str, str]:
    """Return the current fingerprints of an artifact's inputs; a command computes them before it starts."""
    return _inputs(study, next(artifact for artifact in ARTIFACTS if artifact.name == name))


def record_inputs(study: Study, name: str, inputs: Mapping[str, str] | None = None) -> None:
    """Record the inputs of an artifact that was just created: `inputs`, or by default the current ones."""
    journal = _read_journal(study)
    journal[name] = {
        "made_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": inputs_of(study, name) if inputs is None else dict(inputs),
        "content": fingerprint_file(join(study.work_dir, name)),
    }
    with atomic_write(join(study.work_dir, PROVENANCE_FILE)) as file:
        file.write(json.dumps(journal, indent=2).encode())


def _state(
    study: Study,
    artifact: Artifact,
    created: Mapping[str, Any] | None,
    statuses: Mapping[str, ArtifactStatus],
) -> ArtifactStatus:
    if not exists(join(study.work_dir, artifact.name)):
        return ArtifactStatus(artifact, "missing")
    if created is None:
        return ArtifactStatus(artifact, "stale", ("its inputs are not recorded",))
    current = _inputs(study, artifact)
    differing = [
        name for name in {**created["inputs"], **current} if created["inputs"].get(name) != current.get(name)
    ]
    outdated = [name for name in artifact.needs if name in statuses and statuses[name].state != "current"]
    changed = tuple(dict.fromkeys([*differing, *outdated]))
    return ArtifactStatus(artifact, "stale" if changed else "current", changed, created["made_utc"])


def _inputs(study: Study, artifact: Artifact) -> dict[str, str]:
    """Return the fingerprint of each input of an artifact, by a readable name."""
    journal = _read_journal(study)
    inputs = {
        "settings": fingerprint([json.dumps(artifact.settings(study), sort_keys=True, default=str).encode()])
    }
    inputs |= {path: _fingerprint_tree(path) for path in artifact.files(study)}
    inputs |= {name: journal[name]["content"] for name in artifact.needs if name in journal}
    return inputs


def fingerprint(contents: Iterable[bytes]) -> str:
    """Return a hash of content given in pieces."""
    digest = hashlib.blake2b(digest_size=16)
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def fingerprint_file(location: str) -> str:
    """Return the fingerprint of an artifact's content.

    For a Parquet table, only the rows count, not the metadata or the compression; the audio store records its own.
    """
    if location.endswith(STORE):
        return AudioStore(location).fingerprint
    return fingerprint(_rows(location) if location.endswith(".parquet") else _blocks(location))


def _expansions(study: Study) -> dict[str, float]:
    return {name: collection.time_expansion for name, collection in study.collections.items()}


def _rows(location: str) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        for batch in pq.ParquetFile(file).iter_batches():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema.remove_metadata()) as writer:
                writer.write_batch(batch)
            yield sink.getvalue().to_pybytes()


def _blocks(location: str) -> Iterator[bytes]:
    with open_binary(location) as file:
        while block := file.read(1 << 20):
            yield block


def _fingerprint_tree(path: str) -> str:
    """Return the fingerprint of a file, or of the names and contents of all files below a folder."""
    if not is_folder(path):
        return fingerprint(_blocks(path)) if exists(path) else "missing"
    return fingerprint(
        chain.from_iterable(chain([name.encode()], _blocks(join(path, name))) for name in list_files(path))
    )


def _read_journal(study: Study) -> dict[str, Any]:
    location = join(study.work_dir, PROVENANCE_FILE)
    if not exists(location):
        return {}
    with open_binary(location) as file:
        journal: dict[str, Any] = json.loads(file.read())
    return journal


def render(statuses: Iterable[ArtifactStatus]) -> Table:
    """Render the state of a study as a rich table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    colours = {"current": "green", "stale": "yellow", "missing": "red"}
    texts = {"current": "up to date", "stale": "out of date", "missing": "not created yet"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("Artifact", "Content", "State", "Changed inputs"):
        table.add_column(name, overflow="fold")
    for status in statuses:
        state = Text(texts[status.state], colours[status.state])
        table.add_row(status.artifact.name, status.artifact.meaning, state, Text("\n".join(status.changed)))
    return table
