"""A study's work folder: what exists, what is out of date and why, and what to run next.

Each product is made from settings, files and other products. When a verb has made one, it writes down a fingerprint of
each of these; a product is out of date when one of them differs now.
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

from mast.annotations.study import label_tables
from mast.config import Study
from mast.errors import StorageError
from mast.events import read_column
from mast.recordings.find import walk
from mast.recordings.store import AudioStore
from mast.storage import exists, files_below, is_folder, is_remote, join, open_binary, written_whole
from mast.study.commands import mast_command

if TYPE_CHECKING:
    from rich.table import Table

JOURNAL = "made.json"
"""Where the work folder remembers what its products were made from."""

STORE = "audio.lance"
MOST_LISTED = 1_000_000
"""So many recordings are compared with what lies in their folders."""

State = Literal["missing", "current", "stale"]


@dataclass(frozen=True, slots=True)
class Product:
    """Something a verb makes in the work folder, from settings, from files the study names, and from other products."""

    name: str
    verb: str
    meaning: str
    settings: Callable[[Study], Any]
    needs: tuple[str, ...] = ()
    files: Callable[[Study], Iterable[str]] = lambda study: ()
    wanted: Callable[[Study], bool] = lambda study: True


def has_experts(study: Study) -> bool:
    """Whether anyone says anything about a study's recordings, or did when it was scanned."""
    known = join(study.work, "annotations.parquet")
    return bool(study.annotations or label_tables(study)) or exists(known)


PRODUCTS: tuple[Product, ...] = (
    Product(
        "recordings.parquet",
        "scan",
        "what is on the cards",
        lambda study: {
            name: item.model_dump(exclude={"time_expansion"}) for name, item in study.collections.items()
        },
    ),
    Product(
        "annotations.parquet",
        "scan",
        "what the experts say",
        lambda study: [study.labels.model_dump(), [source.model_dump() for source in study.annotations]],
        needs=("recordings.parquet",),
        files=lambda study: [*(source.path for source in study.annotations), *label_tables(study)],
        wanted=has_experts,
    ),
    Product(
        "splits.parquet",
        "splits",
        "what is for training, what for testing",
        lambda study: [
            study.splits.model_dump(mode="json"),
            study.chunking.model_dump(),
            study.spectrogram.model_dump(),
            _expansions(study),
        ],
        needs=("recordings.parquet", "annotations.parquet"),
    ),
    Product(
        STORE,
        "prepare",
        "sound ready for training",
        lambda study: [study.chunking.sample_rate_hz, study.chunking.chunk_s, _expansions(study)],
        needs=("recordings.parquet",),
    ),
    Product(
        "normalisation.json",
        "prepare",
        "how spectrograms are scaled",
        lambda study: [study.normalisation, study.spectrogram.model_dump()],
        needs=(STORE, "splits.parquet"),
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """State of a product; `why` names what it was made from that has changed since."""

    product: Product
    state: State
    why: tuple[str, ...] = ()
    made_utc: str | None = None


def look(study: Study) -> list[Found]:
    """State of every product the study wants, in the order in which they are made."""
    journal = _read_journal(study)
    found: dict[str, Found] = {}
    for product in PRODUCTS:
        if product.wanted(study):
            found[product.name] = _state(study, product, journal.get(product.name), found)
    return list(found.values())


def next_step(found: Iterable[Found]) -> str | None:
    """The verb to run next, or None where everything is made and current."""
    return next((item.product.verb for item in found if item.state != "current"), None)


def not_scanned(study: Study, study_file: str) -> str | None:
    """A note where recordings lie in a study's folders that its table does not know.

    Buckets take too long to list, and so do more than `MOST_LISTED` recordings, which are also held in memory.
    """
    import pyarrow.parquet as pq

    table = join(study.work, "recordings.parquet")
    if not exists(table):
        return None
    with open_binary(table) as file:
        if pq.ParquetFile(file).metadata.num_rows > MOST_LISTED:
            return None
    known, count = {*read_column(table, "recording_id")}, 0
    for name, collection in study.collections.items():
        if not is_remote(collection.root):
            with suppress(StorageError):  # the drive is not here today, which is told where it is needed
                count += sum(f"{name}/{own.path}" not in known for own in walk(collection.root, Counter()))
    if not count:
        return None
    what = "1 recording is" if count == 1 else f"{count:,} recordings are"
    return f"{what} not in the study's table: run {mast_command('scan', study_file)}."


def content_of(study: Study, name: str) -> str | None:
    """Fingerprint of a product's content as it was made, if it was."""
    content: str | None = _read_journal(study).get(name, {}).get("content")
    return content


def inputs_of(study: Study, name: str) -> dict[str, str]:
    """Fingerprints of what a product would be made from now; a verb takes them before it begins."""
    return _inputs(study, next(item for item in PRODUCTS if item.name == name))


def remember(study: Study, name: str, inputs: Mapping[str, str] | None = None) -> None:
    """Write down what a product that was just made was made from: `inputs`, or what is there now."""
    journal = _read_journal(study)
    journal[name] = {
        "made_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": inputs_of(study, name) if inputs is None else dict(inputs),
        "content": fingerprint_file(join(study.work, name)),
    }
    with written_whole(join(study.work, JOURNAL)) as file:
        file.write(json.dumps(journal, indent=2).encode())


def _state(
    study: Study, product: Product, made: Mapping[str, Any] | None, found: Mapping[str, Found]
) -> Found:
    if not exists(join(study.work, product.name)):
        return Found(product, "missing")
    if made is None:
        return Found(product, "stale", ("it is not known what it was made from",))
    now = _inputs(study, product)
    changed = [name for name in {**made["inputs"], **now} if made["inputs"].get(name) != now.get(name)]
    behind = [name for name in product.needs if name in found and found[name].state != "current"]
    why = tuple(dict.fromkeys([*changed, *behind]))
    return Found(product, "stale" if why else "current", why, made["made_utc"])


def _inputs(study: Study, product: Product) -> dict[str, str]:
    """Fingerprint of everything a product is made from, by a name a person understands."""
    journal = _read_journal(study)
    inputs = {
        "settings": fingerprint([json.dumps(product.settings(study), sort_keys=True, default=str).encode()])
    }
    inputs |= {path: _fingerprint_tree(path) for path in product.files(study)}
    inputs |= {name: journal[name]["content"] for name in product.needs if name in journal}
    return inputs


def fingerprint(contents: Iterable[bytes]) -> str:
    """A short name for content that comes in pieces: equal content, equal name."""
    digest = hashlib.blake2b(digest_size=16)
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def fingerprint_file(location: str) -> str:
    """Fingerprint of a product's content.

    Of a Parquet table it is that of the rows alone, whenever and however they were written; prepared sound knows its own.
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
    """Fingerprint of a file, or of the names and contents of all files below a folder."""
    if not is_folder(path):
        return fingerprint(_blocks(path)) if exists(path) else "missing"
    return fingerprint(
        chain.from_iterable(chain([name.encode()], _blocks(join(path, name))) for name in files_below(path))
    )


def _read_journal(study: Study) -> dict[str, Any]:
    location = join(study.work, JOURNAL)
    if not exists(location):
        return {}
    with open_binary(location) as file:
        journal: dict[str, Any] = json.loads(file.read())
    return journal


def render(found: Iterable[Found]) -> Table:
    """The state of a study for a person to read."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    colours = {"current": "green", "stale": "yellow", "missing": "red"}
    words = {"current": "up to date", "stale": "out of date", "missing": "not made yet"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("Product", "What it is", "State", "Changed since"):
        table.add_column(name, overflow="fold")
    for item in found:
        state = Text(words[item.state], colours[item.state])
        table.add_row(item.product.name, item.product.meaning, state, Text("\n".join(item.why)))
    return table
