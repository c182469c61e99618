"""`mast embed`: a vector for every sound that a run has found, by as many processes as there are cores."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mast.detection.found import open_found
from mast.detection.local import Compute, choose_compute
from mast.embeddings.boxes import BoxEncoder, Pool
from mast.embeddings.part import Orders, Written, embed_part, measure_whitening, parts_kept
from mast.embeddings.table import (
    EMBEDDINGS,
    INDEX_FROM,
    Story,
    append,
    delete_orphans,
    finish,
    open_or_create,
    parts_in,
)
from mast.embeddings.whitening import ENOUGH, read_whitening
from mast.errors import MastError, StorageError
from mast.models.loading import load_encoder
from mast.recordings.children import Child
from mast.recordings.crew import work_off
from mast.storage import held_alone, is_remote, join

if TYPE_CHECKING:
    import lance

OnProgress = Callable[[str, float, float | None], None]
"""`on_progress(stage, done, total)`, in parts."""

TRIES, PAUSE_S = 4, 1.0
"""So often a part is begun while processes end on the way or a network fails, after pauses that double each time."""

SHOWN_REASONS = 5


@dataclass
class EmbedResult:
    """What is in the table now, and what came of this run: `left_out` counts sounds that have no vector, by reason."""

    table: str
    model: str
    width: int
    events: int = 0
    added: int = 0
    unfinished: int = 0
    has_index: bool = False
    is_whitened: bool = True
    left_out: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """The account for a person to read."""
        lines = [f"{self.events:,} sounds, {self.added:,} of them new, as model {self.model} hears them"]
        if self.left_out:
            lines.append(f"{self.left_out.total():,} sounds have no vector:")
            shown = self.left_out.most_common(SHOWN_REASONS)
            lines += [f"  {count:,} × {reason}" for reason, count in shown]
            if more := len(self.left_out) - len(shown):
                lines.append(f"  and {more:,} more reasons")
        if self.unfinished:
            lines.append(
                f"{self.unfinished:,} parts of the run are not done yet: finish mast detect, then run this again."
            )
        if self.events and not self.is_whitened:
            lines.append(
                f"When the first were written, fewer than {ENOUGH} sounds could be heard: vectors are compared as they "
                "are, without taking away what all have in common, and tell sounds apart less well."
            )
            if self.events >= ENOUGH:
                lines.append(f"Now there are more: delete {self.table} and run this again.")
        how = (
            "with an index" if self.has_index else f"without an index, which begins at {INDEX_FROM:,} sounds"
        )
        return "\n".join([*lines, f"Vectors: {self.table} ({self.width} numbers each, {how})"])


def embed_events(
    events: str,
    model: str,
    pool: Pool = "last",
    out: str | None = None,
    compute: Compute | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> EmbedResult:
    """Give every sound of a run its vector, in `embeddings.lance` of the run's folder or in `out`.

    Run again after whatever stopped it, or after the run has found more, it does what is missing.
    """
    found = open_found(events)
    loaded = load_encoder(model)
    identity, width = loaded.description.identity, loaded.network.shape.width
    location, table = _absolute(model), _absolute(out or join(events, EMBEDDINGS))
    story = Story(found.fingerprint, identity, pool, width, location)
    open_or_create(table, story)
    orders = Orders(_absolute(events), table, location, identity, pool)
    result = EmbedResult(out or join(events, EMBEDDINGS), identity, width, unfinished=found.unfinished)
    with held_alone(table, "embed"):
        dataset = open_or_create(table, story)  # as it is now that it is ours
        if not is_remote(table):  # elsewhere nobody knows whether another run is writing
            delete_orphans(dataset)
        done = parts_in(dataset)
        chosen = compute or choose_compute()
        if not done:
            on_progress("sampling", 0, None)
            measure_whitening(found, BoxEncoder(loaded, pool, chosen.kind), table)
        whitening = read_whitening(table)
        result.is_whitened = whitening.is_measured
        encoder = BoxEncoder(loaded, pool, chosen.kind, whitening)
        missing = [number for number in found.numbers if number not in done]
        kept = sorted(parts_kept(found, encoder).intersection(missing))
        for gathered, number in enumerate(kept, 1):  # nothing is left to hear
            dataset = _added(dataset, embed_part(found, number, encoder, table), result)
            on_progress("embedding", gathered, len(missing))
        crew = _Crew(orders, chosen, sorted({*missing} - {*kept}))
        with closing(crew.written()) as parts:
            for written in parts:
                if written is not None:
                    dataset = _added(dataset, written, result)
                on_progress("embedding", len(kept) + crew.done, len(missing))
        on_progress("indexing", 0, None)
        result.has_index = finish(dataset)
        result.events = dataset.count_rows()
    return result


def _added(dataset: lance.LanceDataset, written: Written, result: EmbedResult) -> lance.LanceDataset:
    """The table with a part, which is counted."""
    result.added += written.events
    result.left_out += written.left_out
    return append(dataset, written.fragments) if written.fragments else dataset


def _absolute(location: str) -> str:
    return location if "://" in location else str(Path(location).absolute())


class _Crew:
    """Child processes that embed parts, each led by a thread; parts come as they are ready."""

    def __init__(self, orders: Orders, compute: Compute, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._finished = 0
        self._over = threading.Event()
        text = json.dumps(asdict(orders))
        self._children = [
            Child(
                "mast.embeddings.part", "embedding", (text, compute.kind, str(number % max(compute.gpus, 1)))
            )
            for number in range(min(compute.processes, len(numbers)))
        ]
        self._shares = [0.0] * len(self._children)  # of the part that each is at

    @property
    def done(self) -> float:
        """Parts that are ready, and how much of those under way."""
        return self._finished + sum(self._shares)

    def written(self) -> Generator[Written | None]:
        """Every part when it is ready, and None now and then in between."""
        hands = [partial(self._embedded, place) for place in range(len(self._children))]
        with closing(work_off(iter(self._numbers), hands, self._end)) as parts:
            for written in parts:
                self._finished += written is not None
                yield written

    def _end(self) -> None:
        self._over.set()
        for child in self._children:
            child.end()

    def _embedded(self, place: int, number: int) -> Written:
        """A part, begun again while it may go better the next time."""
        child = self._children[place]

        def on_news(share: float) -> None:
            self._shares[place] = share

        for tries in range(TRIES):
            answer = child.ask({"part": number}, on_news)
            if answer is not None and not answer.get("may_pass"):
                break
            self._over.wait(PAUSE_S * 2**tries)
        if answer is None:
            raise MastError(
                f"Embedding processes end again and again ({child.ending}). If memory is short, have fewer of them "
                "with --workers. What is done is kept: the same command goes on."
            )
        if "error" in answer:
            raise StorageError(f"{answer['error']} What is done is kept: the same command goes on.")
        self._shares[place] = 0.0
        fragments, events, left_out = answer["written"]
        return Written(number, fragments, events, Counter(left_out))
