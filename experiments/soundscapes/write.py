"""Write the benchmark: a card of recordings, tables of boxes, and a study that MAST's commands accept."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import yaml

from experiments.soundscapes.render import render
from experiments.soundscapes.scene import Scene, plan
from experiments.soundscapes.sites import ELSEWHERE, HOME, UNSEEN, Size, World, make_world
from experiments.soundscapes.sources import SourceAudio
from experiments.soundscapes.spectra import RATE_HZ
from mast.annotations import Annotations, write_annotations
from mast.errors import StorageError
from mast.records import Event, ReviewedSpan
from mast.storage import atomic_write

COLUMNS = (
    "recording", "site", "day", "role", "start_s", "end_s", "low_hz", "high_hz", "label", "source", "call", "snr_db",
    "pitch",
)  # fmt: skip


def write_benchmark(
    source_audio: SourceAudio,
    folder: Path,
    size: Size,
    seed: int,
    on_progress: Callable[[int, int], None],
    partition_seed: int | None = None,
) -> World:
    """Write the missing files of a benchmark below `folder`; the study file is written last and marks it as complete."""
    world = make_world(source_audio, size, seed, partition_seed)
    scenes = plan(world, source_audio)
    _write_world(folder / "world.json", world, source_audio, size)
    _write_tables(folder, scenes)
    for number, scene in enumerate(scenes, start=1):
        path = folder / "card" / scene.path
        if not path.exists():
            samples = np.rint(render(world, source_audio, scene) * 32767).astype("<i2")
            with atomic_write(str(path)) as file:
                soundfile.write(file, samples, RATE_HZ, format="WAV", subtype="PCM_16")
        on_progress(number, len(scenes))
    _write_text(folder / "study.yaml", yaml.safe_dump(study_settings(world), sort_keys=False))
    return world


def events_of(scene: Scene) -> list[Event]:
    """Return the boxes of all calls in a recording, as a perfect annotator would draw them."""
    return [
        Event(
            scene.path,
            start_s=round(placed.box[0], 3),
            end_s=round(placed.box[2], 3),
            low_hz=round(placed.box[1], 1),
            high_hz=round(placed.box[3], 1),
            label=placed.call.label,
            annotator="simulator",
        )
        for placed in scene.placed
    ]


def study_settings(world: World) -> dict[str, Any]:
    """Return the study's settings. Chunks do not overlap, and every recording is a block: no audio is in two splits."""
    temporal = [day.date for day in world.days if day.role == "temporal"]
    return {
        "preset": "laptop",
        "work_dir": "work",
        "collections": {"card": {"root": "card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "boxes", "format": "raven"}],
        "chunking": {"chunk_s": 5.12, "hop_s": 5.12},
        "splits": {
            "block_s": 60.0,
            "held_out": {
                "temporal": {"sites": [HOME], "dates": temporal},
                "site": {"sites": list(ELSEWHERE)},
                "unseen": {"sites": [UNSEEN]},
            },
        },
    }


def _write_world(path: Path, world: World, source_audio: SourceAudio, size: Size) -> None:
    """Write all parameters of the world; raise an error if the folder contains another world."""
    content = {
        "size": asdict(size),
        "calls": len(source_audio.calls),
        "backgrounds": len(source_audio.backgrounds),
        "dropped_backgrounds": source_audio.dropped,
        "material": source_audio.fingerprint(),
        **asdict(world),
    }
    text = json.dumps(content, indent=1, default=str, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise StorageError(
            f"{path} describes another benchmark: other sources, another size or another seed. Use a new folder."
        )
    _write_text(path, text)


def _write_tables(folder: Path, scenes: Sequence[Scene]) -> None:
    """Write selection tables of the reviewed recordings, and one table of all calls, also those in the pool."""
    reviewed = [scene for scene in scenes if scene.day.is_reviewed]
    boxes = Annotations(
        events=tuple(event for scene in reviewed for event in events_of(scene)),
        reviewed=tuple(ReviewedSpan(scene.path) for scene in reviewed),
    )
    write_annotations(boxes, folder / "boxes", "raven")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for scene in scenes:
        for event, placed in zip(events_of(scene), scene.placed, strict=True):
            table.writerow(
                [
                    scene.path, scene.day.site, scene.day.date, scene.day.role, event.start_s, event.end_s, event.low_hz,
                    event.high_hz, event.label, placed.call.source, placed.call.name, round(placed.snr_db, 1),
                    round(placed.pitch, 3),
                ]
            )  # fmt: skip
    _write_text(folder / "calls.csv", text.getvalue())


def _write_text(path: Path, text: str) -> None:
    with atomic_write(str(path)) as file:
        file.write(text.encode())
