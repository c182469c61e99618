"""`mast evaluate --retrieval`: label test boxes by the nearest training boxes (paper, Box-Level Embeddings).

As in the paper, the queries are the annotations of a test set, and the detections that match them. The references are
the annotations of the training split; those of the query's own recording are excluded, which matters if a recording is
divided between splits.
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
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import detection_dataset
from mast.embeddings.box_encoder import BoxEncoder
from mast.embeddings.references import (
    Bounds,
    ReferenceEvent,
    ReferenceEvents,
    embed_references,
    recording_locators,
    study_references,
)
from mast.embeddings.whitening import fit_whitening
from mast.errors import AnnotationError
from mast.evaluation.matching import GroupedBoxes, match
from mast.evaluation.results import EVENTS, GROUND_TRUTH, RESULTS
from mast.evaluation.retrieval_metrics import LabelledVectors, Retrieval, retrieval_metrics
from mast.models.loading import load_encoder
from mast.storage import atomic_write, join, open_binary
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE

RETRIEVAL = "retrieval.json"
MODES = {"oracle": "annotations", "detected": "matched detections"}


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Retrieval metrics of each test set, with annotations (`oracle`) and matched detections (`detected`) as queries."""

    sets: Mapping[str, Mapping[str, Retrieval]]
    references: ReferenceEvents
    location: str

    def summary(self) -> str:
        """Return a readable summary."""
        lines = [
            f"Labels by the nearest of {len(self.references.boxes):,} training annotations of other recordings:"
        ]
        for name, modes in self.sets.items():
            lines += [
                f"  {name}, {title}: {modes[mode].summary() if modes[mode].queries else 'no queries'}"
                for mode, title in MODES.items()
            ]
        return "\n".join([*lines, f"Retrieval: {self.location}"])


def evaluate_retrieval(study: Study, folder: str, model: str, device: str = "auto") -> RetrievalResult:
    """Evaluate the vectors of an encoder on the detections of the evaluation in `folder`, and write the metrics there.

    Args:
        study: Study whose training split provides the references.
        folder: Folder of a finished `mast evaluate`.
        model: Location of the encoder, or of a detector.
        device: Device of the encoder.

    Returns:
        Metrics of each test set.

    Raises:
        AnnotationError: No annotation of the training split has a label.
    """
    encoder = BoxEncoder(load_encoder(model), "last", device)
    references = embed_references(training_references(study), encoder)
    if not references.boxes:
        raise AnnotationError(
            f"{study.work_dir}: no annotation of the training split has a label, so retrieval cannot be evaluated. Add "
            "labels to the annotations, then run mast scan and mast split again."
        )
    whiten = fit_whitening(references.labels.vectors)

    def metrics(boxes: list[ReferenceEvent]) -> Retrieval:
        queries = embed_references(boxes, encoder).labels
        return retrieval_metrics(
            _whiten(queries, whiten), _whiten(references.labels, whiten), np.random.default_rng(0)
        )

    sets = {
        name: {
            "oracle": metrics(_oracle(study, ground_truth)),
            "detected": metrics(_detected(study, ground_truth, events)),
        }
        for name, ground_truth, events in _evaluated(folder)
    }
    location = join(folder, RETRIEVAL)
    values = {name: {mode: item.as_json() for mode, item in modes.items()} for name, modes in sets.items()}
    content = {"encoder": encoder.description.identity, "known": len(references.boxes), "sets": values}
    with atomic_write(location) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False).encode())
    return RetrievalResult(sets, references, location)


def _whiten(labelled: LabelledVectors, whiten: Any) -> LabelledVectors:
    return LabelledVectors(whiten(labelled.vectors).astype(np.float32), labelled.labels, labelled.recordings)


def training_references(study: Study) -> list[ReferenceEvent]:
    """Return the labelled animal annotations whose middle lies in a chunk of the training split."""
    table = detection_dataset(study, AudioStore(require_artifact(study, STORE)), "train").table
    spans: dict[str, list[tuple[float, float]]] = {}
    columns = (table[name].to_pylist() for name in ("recording_id", "start_s", "audio_s"))
    for recording_id, start_s, audio_s in zip(*columns, strict=True):
        spans.setdefault(recording_id, []).append((start_s, start_s + audio_s))

    def is_in_training_split(box: ReferenceEvent) -> bool:
        middle_s = (box.bounds[0] + box.bounds[2]) / 2 * box.time_expansion
        return any(start_s <= middle_s < end_s for start_s, end_s in spans.get(box.recording_id, ()))

    return [box for box in study_references(study)[0] if is_in_training_split(box)]


def _evaluated(folder: str) -> list[tuple[str, pa.Table, pa.Table]]:
    """Return each test set of an evaluation with its ground truth and its detections at or above the threshold."""
    with open_binary(join(folder, RESULTS)) as file:
        results = json.loads(file.read())
    tables = []
    for name in (GROUND_TRUTH, EVENTS):
        with open_binary(join(folder, name)) as file:
            tables.append(pq.read_table(file))
    ground_truth, events = tables
    threshold = np.inf if results["threshold"] is None else results["threshold"]
    events = events.filter(pc.greater_equal(events["score"], threshold))
    names = [item["name"] for item in results["sets"]]
    return [
        (name, *(table.filter(pc.equal(table["set"], name)) for table in (ground_truth, events)))
        for name in names
    ]


def _oracle(study: Study, ground_truth: pa.Table) -> list[ReferenceEvent]:
    """Return the labelled annotations, each once even if it lies in several chunks."""
    locator = recording_locators(study)
    labels = ground_truth["label"].to_pylist()
    unique = {
        (recording_id, bounds, label): None
        for (recording_id, bounds), label in zip(_boxes(ground_truth), labels, strict=True)
        if label
    }
    return [ReferenceEvent(label, name, *locator(name), bounds) for name, bounds, label in unique]


def _detected(study: Study, ground_truth: pa.Table, events: pa.Table) -> list[ReferenceEvent]:
    """Return the detections that match an annotation, with its label."""
    annotations = _oracle(study, ground_truth)
    detections, locator = _boxes(events), recording_locators(study)
    names = sorted({name for name, _ in detections} | {box.recording_id for box in annotations})
    matches = match(
        _group(detections, names, events["score"].to_numpy()),
        _group([(box.recording_id, box.bounds) for box in annotations], names),
    )
    return [
        ReferenceEvent(annotations[matches.ground_truth_row[row]].label, name, *locator(name), bounds)
        for row, (name, bounds) in enumerate(detections)
        if matches.is_hit[row]
    ]


def _boxes(table: pa.Table) -> list[tuple[str, Bounds]]:
    columns = (table[name].to_pylist() for name in ("recording_id", "start_s", "low_hz", "end_s", "high_hz"))
    return [(row[0], row[1:]) for row in zip(*columns, strict=True)]


def _group(boxes: list[tuple[str, Bounds]], names: list[str], score: Any = None) -> GroupedBoxes:
    number = {name: row for row, name in enumerate(names)}
    return GroupedBoxes(
        np.array([number[name] for name, _ in boxes], np.int64),
        np.array([bounds for _, bounds in boxes], np.float64).reshape(-1, 4),
        score,
    )
