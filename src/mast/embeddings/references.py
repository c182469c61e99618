"""Reference events: labelled annotations with their vectors, with which other events are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mast.annotations.formats import detect_format, read_annotations
from mast.annotations.recording_names import match_recordings, name_prefilter
from mast.audio.reader import open_audio
from mast.config import Study, collection_of, load_study
from mast.datasets.split_table import require_artifact
from mast.embeddings.box_encoder import BoxEncoder, embed_boxes
from mast.embeddings.vector_search import encoder_of_table, locator_of
from mast.embeddings.vector_table import EMBEDDINGS, TableMetadata, open_vectors
from mast.errors import AnnotationError, AudioError, StorageError
from mast.evaluation.retrieval_metrics import LabelledVectors
from mast.recordings.scan import truncated_recordings
from mast.records import Annotation, Event, from_table, read_column
from mast.runs.layout import RECORDINGS
from mast.runs.results import DetectionResults, open_results
from mast.storage import join, open_binary
from mast.wording import counted

if TYPE_CHECKING:
    import lance

Bounds = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

RecordingLocator = Callable[[str], tuple[str, float, int | None]]
"""`locator(recording_id)` → location, time expansion, and the number of readable frames if the recording is truncated."""


@dataclass(frozen=True, slots=True)
class ReferenceEvent:
    """A labelled box and the location of its recording; seconds and Hz are the recording's own.

    `frames` is the number of readable frames of a truncated recording, otherwise None.
    """

    label: str
    recording_id: str
    location: str
    time_expansion: float
    frames: int | None
    bounds: Bounds


@dataclass(frozen=True)
class ReferenceEvents:
    """Reference events with their vectors; `excluded` counts the annotations without a vector by reason."""

    boxes: tuple[ReferenceEvent, ...]
    labels: LabelledVectors
    excluded: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """Return a readable summary."""
        labels, recordings = len(set(self.labels.labels)), len(set(self.labels.recordings))
        lines = [
            f"{counted(len(self.boxes), 'labelled example')} of {counted(labels, 'label')} "
            f"in {counted(recordings, 'recording')}"
        ]
        lines += [f"  excluded: {count:,} × {reason}" for reason, count in self.excluded.most_common()]
        return "\n".join(lines)


class ReferenceSet(NamedTuple):
    """A run with its table of vectors, and reference events embedded by the same model; `source` is their location."""

    results: DetectionResults
    dataset: lance.LanceDataset
    metadata: TableMetadata
    references: ReferenceEvents
    source: str


def load_references(
    events: str, references: str, table: str | None = None, model: str | None = None, device: str = "auto"
) -> ReferenceSet:
    """Load the run `events` and embed the annotations `references` with the model of its table.

    `references` is a study file, or annotations of the run's recordings in any format.
    """
    results, location = open_results(events), table or join(events, EMBEDDINGS)
    dataset, metadata = open_vectors(location)
    encoder = encoder_of_table(location, metadata, model or metadata.location, device)
    if Path(references).suffix in (".yaml", ".yml"):
        boxes, excluded = study_references(load_study(Path(references)))
    else:
        boxes, excluded = table_references(references, results)
    embedded = embed_references(boxes, encoder)
    reference_events = ReferenceEvents(embedded.boxes, embedded.labels, excluded + embedded.excluded)
    if not reference_events.boxes:
        raise AnnotationError(
            f"{references}: no annotation has a label, a frequency range and readable audio. {reference_events.summary()}"
        )
    return ReferenceSet(results, dataset, metadata, reference_events, references)


def study_references(study: Study) -> tuple[list[ReferenceEvent], Counter[str]]:
    """Return the labelled animal annotations of a study, and the number of excluded annotations by reason."""
    import pyarrow.parquet as pq

    with open_binary(require_artifact(study, "annotations.parquet")) as file:
        annotations: list[Annotation] = from_table(pq.read_table(file), Annotation)
    return _references((item for item in annotations if item.kind == "animal"), recording_locators(study))


def recording_locators(study: Study) -> RecordingLocator:
    """Return a function that locates the recordings of a study."""
    frames = truncated_recordings(require_artifact(study, RECORDINGS))

    def locator(recording_id: str) -> tuple[str, float, int | None]:
        name = collection_of(recording_id, study.collections)
        collection = study.collections[name]
        location = join(collection.root, recording_id.removeprefix(f"{name}/"))
        return location, collection.time_expansion, frames.get(recording_id)

    return locator


def table_references(path: str, results: DetectionResults) -> tuple[list[ReferenceEvent], Counter[str]]:
    """Return the labelled annotations in files of any format that belong to recordings of a run.

    The counter holds the number of excluded annotations by reason.
    """
    annotations = read_annotations(path, detect_format(path))
    may_match = name_prefilter(annotations.recording_ids())
    recording_ids = filter(may_match, read_column(join(results.folder, RECORDINGS), "recording_id"))
    matched = match_recordings(annotations, recording_ids).annotations
    boxes, excluded = _references(matched.events, partial(locator_of, results))
    return boxes, excluded + matched.problems


def _references(
    events: Iterable[Event], locator: RecordingLocator
) -> tuple[list[ReferenceEvent], Counter[str]]:
    """Return the boxes with a label and frequencies as reference events, and count the others."""
    boxes, excluded = [], Counter[str]()
    for event in events:
        if not event.label:
            excluded["box without a label"] += 1
        elif event.low_hz is None or event.high_hz is None:
            excluded["box without frequencies"] += 1
        else:
            bounds = (event.start_s, event.low_hz, event.end_s, event.high_hz)
            boxes.append(
                ReferenceEvent(event.label, event.recording_id, *locator(event.recording_id), bounds)
            )
    return boxes, excluded


def embed_references(boxes: Sequence[ReferenceEvent], encoder: BoxEncoder) -> ReferenceEvents:
    """Embed reference events, ordered by recording; count unreadable ones by reason."""
    embedded: list[ReferenceEvent] = []
    vectors = [np.zeros((0, encoder.width), np.float16)]
    excluded: Counter[str] = Counter()
    for _, group in groupby(sorted(boxes, key=_sort_key), key=lambda box: box.recording_id):
        recording_boxes = list(group)
        bounds = np.array([box.bounds for box in recording_boxes])
        location, expansion, frames = (
            recording_boxes[0].location,
            recording_boxes[0].time_expansion,
            recording_boxes[0].frames,
        )
        try:
            with open_audio(location, encoder.rate_hz, expansion, frames) as audio:
                box_vectors, rows = embed_boxes(audio, bounds, encoder, expansion)
        except (AudioError, StorageError, OSError) as error:
            excluded[str(error)] += len(recording_boxes)
            continue
        vectors.append(box_vectors)
        embedded += [recording_boxes[row] for row in rows]
        excluded["box without audio, or outside the model's frequency band"] += len(recording_boxes) - len(
            rows
        )
    labels = LabelledVectors(
        np.concatenate(vectors).astype(np.float32),
        np.array([box.label for box in embedded], dtype=np.str_),
        np.array([box.recording_id for box in embedded], dtype=np.str_),
    )
    return ReferenceEvents(tuple(embedded), labels, +excluded)


def _sort_key(box: ReferenceEvent) -> tuple[str, Bounds, str]:
    return box.recording_id, box.bounds, box.label
