"""Sounds that experts have named, as a model hears them: what the others are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mast.annotations.formats import guess_format, read_annotations
from mast.annotations.matching import match_recordings, might_match
from mast.config import Study, collection_of, load_study
from mast.datasets.split_table import existing
from mast.detection.folder import RECORDINGS
from mast.detection.found import Found, open_found
from mast.embeddings.boxes import BoxEncoder, embed_boxes
from mast.embeddings.neighbours import encoder_of_table, place_of
from mast.embeddings.table import EMBEDDINGS, Story, open_vectors
from mast.errors import AnnotationError, AudioError, StorageError
from mast.evaluation.retrieval import Named
from mast.events import Annotation, Event, from_table, read_column
from mast.recordings.decode import open_audio
from mast.recordings.scan import cut_short
from mast.storage import join, open_binary

if TYPE_CHECKING:
    import lance

Bounds = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

Place = Callable[[str], tuple[str, float, int | None]]
"""`place(recording_id)`: where a recording is, its time expansion, and how many frames can be read if not all."""


@dataclass(frozen=True, slots=True)
class Example:
    """A box with a name, where its recording is, and how far that can be read; seconds and Hz are the recording's own."""

    label: str
    recording_id: str
    location: str
    time_expansion: float
    frames: int | None
    bounds: Bounds


@dataclass(frozen=True)
class Examples:
    """Examples with their vectors, and why some that were given have none."""

    boxes: tuple[Example, ...]
    named: Named
    left_out: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """The account for a person to read."""
        labels, recordings = len(set(self.named.labels)), len(set(self.named.recordings))
        lines = [f"{len(self.boxes):,} examples of {labels:,} names in {recordings:,} recordings"]
        lines += [f"  left out: {count:,} × {reason}" for reason, count in self.left_out.most_common()]
        return "\n".join(lines)


class Known(NamedTuple):
    """A run with its table of vectors, and examples that the same model has heard; `source` is where these are from."""

    found: Found
    dataset: lance.LanceDataset
    story: Story
    examples: Examples
    source: str


def open_known(
    events: str, examples: str, table: str | None = None, model: str | None = None, device: str = "auto"
) -> Known:
    """A run and examples: those of a study file, or of annotations about recordings of the run, in any format."""
    found, location = open_found(events), table or join(events, EMBEDDINGS)
    dataset, story = open_vectors(location)
    encoder = encoder_of_table(location, story, model or story.location, device)
    if Path(examples).suffix in (".yaml", ".yml"):
        boxes, left_out = study_examples(load_study(Path(examples)))
    else:
        boxes, left_out = table_examples(examples, found)
    heard = hear_examples(boxes, encoder)
    known = Examples(heard.boxes, heard.named, left_out + heard.left_out)
    if not known.boxes:
        raise AnnotationError(
            f"{examples}: no box here has a name, frequencies, and sound that can be heard. {known.summary()}"
        )
    return Known(found, dataset, story, known, examples)


def study_examples(study: Study) -> tuple[list[Example], Counter[str]]:
    """All boxes of animals that the experts of a study have named."""
    import pyarrow.parquet as pq

    with open_binary(existing(study, "annotations.parquet")) as file:
        annotations: list[Annotation] = from_table(pq.read_table(file), Annotation)
    return _examples((item for item in annotations if item.kind == "animal"), recording_places(study))


def recording_places(study: Study) -> Place:
    """Where a study's recordings are."""
    frames = cut_short(existing(study, RECORDINGS))

    def place(recording_id: str) -> tuple[str, float, int | None]:
        name = collection_of(recording_id, study.collections)
        collection = study.collections[name]
        location = join(collection.root, recording_id.removeprefix(f"{name}/"))
        return location, collection.time_expansion, frames.get(recording_id)

    return place


def table_examples(path: str, found: Found) -> tuple[list[Example], Counter[str]]:
    """All named boxes of annotation files in any format, about recordings of a run."""
    annotations = read_annotations(path, guess_format(path))
    meant = might_match(annotations.recording_ids())
    known = filter(meant, read_column(join(found.folder, RECORDINGS), "recording_id"))
    matched = match_recordings(annotations, known).annotations
    boxes, left_out = _examples(matched.events, partial(place_of, found))
    return boxes, left_out + matched.problems


def _examples(events: Iterable[Event], place: Place) -> tuple[list[Example], Counter[str]]:
    """Examples of boxes that have a name and frequencies; the others are counted."""
    boxes, left_out = [], Counter[str]()
    for event in events:
        if not event.label:
            left_out["box without a name"] += 1
        elif event.low_hz is None or event.high_hz is None:
            left_out["box without frequencies"] += 1
        else:
            bounds = (event.start_s, event.low_hz, event.end_s, event.high_hz)
            boxes.append(Example(event.label, event.recording_id, *place(event.recording_id), bounds))
    return boxes, left_out


def hear_examples(boxes: Sequence[Example], encoder: BoxEncoder) -> Examples:
    """Vectors of examples, in the order of their recordings; what cannot be heard is counted, with the reason."""
    heard: list[Example] = []
    vectors = [np.zeros((0, encoder.width), np.float16)]
    left_out: Counter[str] = Counter()
    for _, group in groupby(sorted(boxes, key=_place), key=lambda box: box.recording_id):
        own = list(group)
        bounds = np.array([box.bounds for box in own])
        place, expansion, frames = own[0].location, own[0].time_expansion, own[0].frames
        try:
            with open_audio(place, encoder.rate_hz, expansion, frames) as audio:
                found, rows = embed_boxes(audio, bounds, encoder, expansion)
        except (AudioError, StorageError, OSError) as error:
            left_out[str(error)] += len(own)
            continue
        vectors.append(found)
        heard += [own[row] for row in rows]
        left_out["box without sound, or outside the band that the model hears"] += len(own) - len(rows)
    named = Named(
        np.concatenate(vectors).astype(np.float32),
        np.array([box.label for box in heard], dtype=np.str_),
        np.array([box.recording_id for box in heard], dtype=np.str_),
    )
    return Examples(tuple(heard), named, +left_out)


def _place(box: Example) -> tuple[str, Bounds, str]:
    return box.recording_id, box.bounds, box.label
