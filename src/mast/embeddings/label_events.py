"""`mast label-events`: assign tentative labels to the events of a run, by similarity to labelled annotations.

Labels are written to `labels/` in the run's folder, one file per part like the events; `mast export` and `mast report`
include them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mast.embeddings.knn import MAX_ERROR_RATE, NEIGHBOURS, LabellingRule, choose_threshold, knn_vote
from mast.embeddings.references import ReferenceEvents, ReferenceSet
from mast.embeddings.vector_table import batches, vectors_in
from mast.records import EventLabel, write_table
from mast.runs.layout import LABELLING, LABELS, part_in
from mast.storage import atomic_write, delete, join
from mast.wording import counted

if TYPE_CHECKING:
    import lance

MAX_LISTED_LABELS = 12


@dataclass
class LabellingResult:
    """Number of events per assigned label and without a label, the rule, and the references."""

    folder: str
    rule: LabellingRule
    references: ReferenceEvents
    counts: Counter[str] = field(default_factory=Counter)
    unlabelled: int = 0

    def summary(self) -> str:
        """Return a readable summary."""
        total = self.counts.total() + self.unlabelled
        lines = [self.references.summary(), self.rule.summary()]
        lines.append(
            f"{self.counts.total():,} of {counted(total, 'event')} labelled, {self.unlabelled:,} unknown"
        )
        lines += [f"  {count:,} × {label}" for label, count in self.counts.most_common(MAX_LISTED_LABELS)]
        if (more := len(self.counts) - MAX_LISTED_LABELS) > 0:
            lines.append(f"  and {counted(more, 'more label')}")
        return "\n".join([*lines, f"Labels: {self.folder}; mast export and mast report include them"])


def label_events(
    references: ReferenceSet,
    neighbours: int = NEIGHBOURS,
    max_error_rate: float = MAX_ERROR_RATE,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> LabellingResult:
    """Label the events of a run by the nearest references; `on_progress(done, total)` counts events."""
    folder = references.results.folder
    rule = choose_threshold(references.references.labels, neighbours, max_error_rate)
    result = LabellingResult(join(folder, LABELS), rule, references.references)
    total, done = references.dataset.count_rows(), 0
    delete(
        join(result.folder, LABELLING)
    )  # labels without this file are ignored, as those of an interrupted call
    for number, labels in _parts(references.dataset, references.references, rule):
        write_table(labels, EventLabel, part_in(folder, LABELS, number))
        result.counts.update(item.label for item in labels if item.label is not None)
        result.unlabelled += sum(item.label is None for item in labels)
        done += len(labels)
        on_progress(done, total)
    threshold = rule.threshold if np.isfinite(rule.threshold) else None  # JSON has no infinity
    metadata = {
        **asdict(rule),
        "threshold": threshold,
        "source": references.source,
        "model": references.metadata.model,
    }
    with atomic_write(join(result.folder, LABELLING)) as file:
        file.write(json.dumps(metadata, indent=2, ensure_ascii=False).encode())
    return result


def _parts(
    dataset: lance.LanceDataset, references: ReferenceEvents, rule: LabellingRule
) -> Iterator[tuple[int, list[EventLabel]]]:
    """Yield each part with the labels of its events, which are adjacent in the table."""
    labels, label_index = np.unique(references.labels.labels, return_inverse=True)
    waiting: list[EventLabel] = []
    last: int | None = None
    for batch in batches(dataset, ["event_id", "part", "vector"]):
        votes = knn_vote(
            vectors_in(batch) @ references.labels.vectors.T, label_index, len(labels), rule.neighbours
        )
        rows = zip(
            batch["event_id"].to_pylist(),
            batch["part"].to_pylist(),
            *(column.tolist() for column in votes),
            strict=True,
        )
        for event_id, part, winner, confidence, nearest, similarity in rows:
            if part != last and last is not None:
                yield last, waiting
                waiting = []
            last = part
            label = str(labels[winner]) if confidence >= rule.threshold else None
            waiting.append(
                EventLabel(event_id, label, confidence, str(references.labels.labels[nearest]), similarity)
            )
    if last is not None:
        yield last, waiting
