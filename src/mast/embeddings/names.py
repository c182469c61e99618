"""`mast name`: tentative names for the sounds of a run, by the examples that experts have named.

They stand in `names/` of the run's folder, a file for each part, as its events do; `mast export` and `mast report` tell
them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mast.detection.folder import NAMES, NAMING, part_in
from mast.embeddings.examples import Examples, Known
from mast.embeddings.table import batches, vectors_in
from mast.embeddings.votes import MAX_WRONG, NEIGHBOURS, Rule, calibrate, vote
from mast.events import EventName, write_table
from mast.storage import join, remove, written_whole

if TYPE_CHECKING:
    import lance

SHOWN_NAMES = 12


@dataclass
class NamedEvents:
    """What sounds were called, and by which rule."""

    folder: str
    rule: Rule
    examples: Examples
    counts: Counter[str] = field(default_factory=Counter)
    unknown: int = 0

    def summary(self) -> str:
        """The account for a person to read."""
        total = self.counts.total() + self.unknown
        lines = [self.examples.summary(), self.rule.summary()]
        lines.append(f"{self.counts.total():,} of {total:,} sounds have a name, {self.unknown:,} are unknown")
        lines += [f"  {count:,} × {name}" for name, count in self.counts.most_common(SHOWN_NAMES)]
        if (more := len(self.counts) - SHOWN_NAMES) > 0:
            lines.append(f"  and {more:,} more names")
        return "\n".join([*lines, f"Names: {self.folder}; mast export and mast report tell them"])


def name_events(
    known: Known,
    neighbours: int = NEIGHBOURS,
    max_wrong: float = MAX_WRONG,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> NamedEvents:
    """Name the sounds of a run by examples; `on_progress` is told of sounds."""
    folder = known.found.folder
    rule = calibrate(known.examples.named, neighbours, max_wrong)
    result = NamedEvents(join(folder, NAMES), rule, known.examples)
    total, done = known.dataset.count_rows(), 0
    remove(join(result.folder, NAMING))  # names of a run that was stopped do not count
    for number, names in _parts(known.dataset, known.examples, rule):
        write_table(names, EventName, part_in(folder, NAMES, number))
        result.counts.update(item.label for item in names if item.label is not None)
        result.unknown += sum(item.label is None for item in names)
        done += len(names)
        on_progress(done, total)
    threshold = rule.threshold if np.isfinite(rule.threshold) else None  # which JSON cannot hold
    told = {**asdict(rule), "threshold": threshold, "source": known.source, "model": known.story.model}
    with written_whole(join(result.folder, NAMING)) as file:
        file.write(json.dumps(told, indent=2, ensure_ascii=False).encode())
    return result


def _parts(
    dataset: lance.LanceDataset, examples: Examples, rule: Rule
) -> Iterator[tuple[int, list[EventName]]]:
    """Names of each part's sounds, which stand together in a table."""
    labels, number = np.unique(examples.named.labels, return_inverse=True)
    waiting: list[EventName] = []
    last: int | None = None
    for batch in batches(dataset, ["event_id", "part", "vector"]):
        votes = vote(vectors_in(batch) @ examples.named.vectors.T, number, len(labels), rule.neighbours)
        rows = zip(
            batch["event_id"].to_pylist(),
            batch["part"].to_pylist(),
            *(column.tolist() for column in votes),
            strict=True,
        )
        for event_id, part, name, confidence, nearest, similarity in rows:
            if part != last and last is not None:
                yield last, waiting
                waiting = []
            last = part
            label = str(labels[name]) if confidence >= rule.threshold else None
            waiting.append(
                EventName(event_id, label, confidence, str(examples.named.labels[nearest]), similarity)
            )
    if last is not None:
        yield last, waiting
