"""The benchmark on disk: a card of recordings, tables of boxes, a study that the product takes as it is."""

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

from experiments.soundscapes.material import Material
from experiments.soundscapes.render import render
from experiments.soundscapes.scene import Scene, plan
from experiments.soundscapes.spectra import RATE_HZ
from experiments.soundscapes.world import ELSEWHERE, HOME, UNSEEN, Size, World, make_world
from mast.annotations import Annotations, write_annotations
from mast.errors import StorageError
from mast.events import Event, Reviewed
from mast.storage import written_whole

COLUMNS = (
    "recording", "site", "day", "role", "start_s", "end_s", "low_hz", "high_hz", "label", "source", "call", "snr_db",
    "pitch",
)  # fmt: skip


def write_benchmark(
    material: Material,
    folder: Path,
    size: Size,
    seed: int,
    on_progress: Callable[[int, int], None],
    shelving: int | None = None,
) -> World:
    """Write what is missing of a benchmark below `folder`; its study file comes last and says that all is there."""
    world = make_world(material, size, seed, shelving)
    scenes = plan(world, material)
    _write_world(folder / "world.json", world, material, size)
    _write_tables(folder, scenes)
    for number, scene in enumerate(scenes, start=1):
        path = folder / "card" / scene.path
        if not path.exists():
            samples = np.rint(render(world, material, scene) * 32767).astype("<i2")
            with written_whole(str(path)) as file:
                soundfile.write(file, samples, RATE_HZ, format="WAV", subtype="PCM_16")
        on_progress(number, len(scenes))
    _write_text(folder / "study.yaml", yaml.safe_dump(study_settings(world), sort_keys=False))
    return world


def events_of(scene: Scene) -> list[Event]:
    """The boxes of a recording as an expert who hears everything would write them."""
    return [
        Event(
            scene.path,
            start_s=round(item.box[0], 3),
            end_s=round(item.box[2], 3),
            low_hz=round(item.box[1], 1),
            high_hz=round(item.box[3], 1),
            label=item.call.label,
            annotator="simulator",
        )
        for item in scene.placed
    ]


def study_settings(world: World) -> dict[str, Any]:
    """A study of the card. Its chunks do not overlap, and every recording is a block: no moment is in two splits."""
    temporal = [day.date for day in world.days if day.role == "temporal"]
    return {
        "preset": "laptop",
        "work": "work",
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


def _write_world(path: Path, world: World, material: Material, size: Size) -> None:
    """Every parameter; a folder that was begun with others is not gone on with."""
    content = {
        "size": asdict(size),
        "calls": len(material.calls),
        "backgrounds": len(material.backgrounds),
        "dropped_backgrounds": material.dropped,
        "material": material.fingerprint(),
        **asdict(world),
    }
    text = json.dumps(content, indent=1, default=str, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise StorageError(
            f"{path} tells of another benchmark: other sources, another size or another seed. Name a new folder."
        )
    _write_text(path, text)


def _write_tables(folder: Path, scenes: Sequence[Scene]) -> None:
    """Selection tables of the reviewed recordings, and one table of all calls, also those that no expert has seen."""
    reviewed = [scene for scene in scenes if scene.day.is_reviewed]
    boxes = Annotations(
        events=tuple(event for scene in reviewed for event in events_of(scene)),
        reviewed=tuple(Reviewed(scene.path) for scene in reviewed),
    )
    write_annotations(boxes, folder / "boxes", "raven")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for scene in scenes:
        for event, item in zip(events_of(scene), scene.placed, strict=True):
            table.writerow(
                [
                    scene.path, scene.day.site, scene.day.date, scene.day.role, event.start_s, event.end_s, event.low_hz,
                    event.high_hz, event.label, item.call.source, item.call.name, round(item.snr_db, 1),
                    round(item.pitch, 3),
                ]
            )  # fmt: skip
    _write_text(folder / "calls.csv", text.getvalue())


def _write_text(path: Path, text: str) -> None:
    with written_whole(str(path)) as file:
        file.write(text.encode())
