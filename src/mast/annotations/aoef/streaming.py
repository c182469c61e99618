"""Write prediction sets larger than memory: convert each part with soundevent and join the lists on disk."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from typing import BinaryIO, cast
from uuid import NAMESPACE_URL, uuid5

from soundevent.io.aoef import to_aeof

from mast.annotations.aoef.objects import predicted_part
from mast.annotations.model import Annotations
from mast.storage import atomic_write

SEPARATOR = b",\n"


def write_predictions(parts: Iterable[Annotations], location: str) -> Counter[str]:
    """Write one AOEF file; return counts of everything it cannot store."""
    losses: Counter[str] = Counter()
    names, annotators = hashlib.sha256(), set[str]()
    with ExitStack() as open_files:
        lists: dict[str, BinaryIO] = {}
        for part in chain([Annotations()], parts):
            predicted, part_losses = predicted_part(part)
            losses += part_losses
            stored = json.loads(to_aeof(predicted).model_dump_json(exclude_none=True))
            head: dict[str, object] = {name: value for name, value in stored.items() if name != "data"}
            data = stored["data"]
            for name in [name for name, value in data.items() if isinstance(value, list)]:
                if name not in lists:
                    lists[name] = cast(BinaryIO, open_files.enter_context(tempfile.TemporaryFile()))
                _append(lists[name], data.pop(name))
            annotators |= {event.annotator for event in part.events if event.annotator}
            for recording_id in part.recording_ids():
                names.update(recording_id.encode("utf-8", "surrogatepass") + b"\0")
        data["uuid"] = str(uuid5(NAMESPACE_URL, f"mast:collection:{names.hexdigest()}"))
        data["description"] = "; ".join(sorted(annotators))
        with atomic_write(location) as file:
            _join(file, head, data, lists)
    return losses


def _append(file: BinaryIO, items: list[object]) -> None:
    for item in items:
        file.write(SEPARATOR if file.tell() else b"")
        file.write(json.dumps(item, ensure_ascii=False).encode())


def _join(
    file: BinaryIO, head: dict[str, object], data: dict[str, object], lists: dict[str, BinaryIO]
) -> None:
    """Write the JSON head, the data fields and the lists."""
    file.write(json.dumps(head, ensure_ascii=False).encode()[:-1] + b', "data": ')
    file.write(json.dumps(data, ensure_ascii=False).encode()[:-1])
    for name, items in lists.items():
        file.write(f', "{name}": [\n'.encode())
        items.seek(0)
        shutil.copyfileobj(items, file)
        file.write(b"\n]")
    file.write(b"}}\n")
