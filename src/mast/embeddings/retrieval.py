"""`mast evaluate --retrieval`: do the nearest training boxes tell who is calling (paper, Box-Level Embeddings)?

The paper asks twice: with the experts' own boxes of a test set, and with the detections that match them. The known boxes
are those of the training split; none of the same recording counts, which matters where a recording is cut between splits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast.config import Study
from mast.datasets.examples import detection_examples
from mast.datasets.split_table import existing
from mast.embeddings.boxes import BoxEncoder
from mast.embeddings.examples import (
    Bounds,
    Example,
    Examples,
    hear_examples,
    recording_places,
    study_examples,
)
from mast.embeddings.whitening import measure
from mast.errors import AnnotationError
from mast.evaluation.matching import Boxes, match
from mast.evaluation.results import EVENTS, RESULTS, TRUTHS
from mast.evaluation.retrieval import Named, Retrieval, retrieval
from mast.models.loading import load_encoder
from mast.recordings.store import AudioStore
from mast.storage import join, open_binary, written_whole
from mast.study.products import STORE

RETRIEVAL = "retrieval.json"
WAYS = {"oracle": "experts' boxes", "detected": "detections that match one"}


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The figures of every test set, by the experts' own boxes (`oracle`) and by matched detections (`detected`)."""

    sets: Mapping[str, Mapping[str, Retrieval]]
    known: Examples
    place: str

    def summary(self) -> str:
        """The account for a person to read."""
        lines = [f"Names by the nearest of {len(self.known.boxes):,} training boxes of other recordings:"]
        for name, ways in self.sets.items():
            lines += [
                f"  {name}, {title}: {ways[way].summary() if ways[way].queries else 'none can be asked for'}"
                for way, title in WAYS.items()
            ]
        return "\n".join([*lines, f"Retrieval: {self.place}"])


def retrieve(study: Study, folder: str, model: str, device: str = "auto") -> Retrieved:
    """Measure an encoder's vectors on what an evaluation in `folder` has found, and write the figures beside it."""
    encoder = BoxEncoder(load_encoder(model), "last", device)
    known = hear_examples(training_examples(study), encoder)
    if not known.boxes:
        raise AnnotationError(
            f"{study.work}: no box of the training split has a name, so that nothing can be told apart. Give labels to "
            "the boxes, and run mast scan and mast splits again."
        )
    whiten = measure(known.named.vectors)

    def figures(boxes: list[Example]) -> Retrieval:
        asked = hear_examples(boxes, encoder).named
        return retrieval(_with(asked, whiten), _with(known.named, whiten), np.random.default_rng(0))

    sets = {
        name: {
            "oracle": figures(_oracle(study, truths)),
            "detected": figures(_detected(study, truths, events)),
        }
        for name, truths, events in _evaluated(folder)
    }
    place = join(folder, RETRIEVAL)
    told = {name: {way: own.as_json() for way, own in ways.items()} for name, ways in sets.items()}
    story = {"encoder": encoder.description.identity, "known": len(known.boxes), "sets": told}
    with written_whole(place) as file:
        file.write(json.dumps(story, indent=2, ensure_ascii=False).encode())
    return Retrieved(sets, known, place)


def _with(named: Named, whiten: Any) -> Named:
    return Named(whiten(named.vectors).astype(np.float32), named.labels, named.recordings)


def training_examples(study: Study) -> list[Example]:
    """Named boxes of animals whose middle lies in a chunk of the training split."""
    table = detection_examples(study, AudioStore(existing(study, STORE)), "train").table
    spans: dict[str, list[tuple[float, float]]] = {}
    columns = (table[name].to_pylist() for name in ("recording_id", "start_s", "filled_s"))
    for recording_id, start_s, filled_s in zip(*columns, strict=True):
        spans.setdefault(recording_id, []).append((start_s, start_s + filled_s))

    def is_trained_on(box: Example) -> bool:
        middle_s = (box.bounds[0] + box.bounds[2]) / 2 * box.time_expansion
        return any(start_s <= middle_s < end_s for start_s, end_s in spans.get(box.recording_id, ()))

    return [box for box in study_examples(study)[0] if is_trained_on(box)]


def _evaluated(folder: str) -> list[tuple[str, pa.Table, pa.Table]]:
    """Every test set of an evaluation with its truths, and with the sounds that count as found."""
    with open_binary(join(folder, RESULTS)) as file:
        results = json.loads(file.read())
    tables = []
    for name in (TRUTHS, EVENTS):
        with open_binary(join(folder, name)) as file:
            tables.append(pq.read_table(file))
    truths, events = tables
    least = np.inf if results["threshold"] is None else results["threshold"]
    events = events.filter(pc.greater_equal(events["score"], least))
    names = [item["name"] for item in results["sets"]]
    return [
        (name, *(table.filter(pc.equal(table["set"], name)) for table in (truths, events))) for name in names
    ]


def _oracle(study: Study, truths: pa.Table) -> list[Example]:
    """The experts' named boxes, each once although it may lie in several chunks."""
    place = recording_places(study)
    labels = truths["label"].to_pylist()
    found = {
        (recording_id, bounds, label): None
        for (recording_id, bounds), label in zip(_boxes(truths), labels, strict=True)
        if label
    }
    return [Example(label, name, *place(name), bounds) for name, bounds, label in found]


def _detected(study: Study, truths: pa.Table, events: pa.Table) -> list[Example]:
    """Detections that match an expert's box, under its name."""
    known = _oracle(study, truths)
    found, place = _boxes(events), recording_places(study)
    names = sorted({name for name, _ in found} | {box.recording_id for box in known})
    matches = match(
        _group(found, names, events["score"].to_numpy()),
        _group([(box.recording_id, box.bounds) for box in known], names),
    )
    return [
        Example(known[matches.truth[row]].label, name, *place(name), bounds)
        for row, (name, bounds) in enumerate(found)
        if matches.is_hit[row]
    ]


def _boxes(table: pa.Table) -> list[tuple[str, Bounds]]:
    columns = (table[name].to_pylist() for name in ("recording_id", "start_s", "low_hz", "end_s", "high_hz"))
    return [(row[0], row[1:]) for row in zip(*columns, strict=True)]


def _group(boxes: list[tuple[str, Bounds]], names: list[str], score: Any = None) -> Boxes:
    number = {name: row for row, name in enumerate(names)}
    return Boxes(
        np.array([number[name] for name, _ in boxes], np.int64),
        np.array([bounds for _, bounds in boxes], np.float64).reshape(-1, 4),
        score,
    )
