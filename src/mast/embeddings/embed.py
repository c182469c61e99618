"""`mast embed`: compute a vector for every event of a run, in one worker process per core or GPU."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mast.embeddings.box_encoder import BoxEncoder, Layers
from mast.embeddings.vector_table import (
    EMBEDDINGS,
    INDEX_FROM,
    TableMetadata,
    append,
    compact_and_index,
    delete_orphans,
    open_or_create,
    parts_in,
)
from mast.embeddings.whitening import MIN_SAMPLES, read_whitening
from mast.embeddings.worker import EmbedConfig, EmbeddedPart, embed_part, finished_parts, fit_table_whitening
from mast.errors import MastError, StorageError
from mast.models.loading import load_encoder
from mast.models.location import absolute_location
from mast.runs.local import ComputeResources, choose_compute, worker_pool
from mast.runs.results import open_results
from mast.storage import exclusive_lock, is_remote, join
from mast.types import OnStage
from mast.wording import counted
from mast.workers.pool import Supervisor

if TYPE_CHECKING:
    import lance


MAX_ATTEMPTS, PAUSE_S = 4, 1.0
"""Maximum number of attempts at a part whose process dies or whose network fails; the pause doubles each time."""

SHOWN_REASONS = 5


@dataclass
class EmbedResult:
    """The contents of the table and the outcome of this call: `excluded` counts events without a vector by reason."""

    table: str
    model: str
    width: int
    events: int = 0
    added: int = 0
    unfinished: int = 0
    has_index: bool = False
    is_whitened: bool = True
    excluded: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """Return a readable summary."""
        lines = [f"{counted(self.events, 'event')}, {self.added:,} new, embedded with model {self.model}"]
        if self.excluded:
            lines.append(f"{counted(self.excluded.total(), 'event has', 'events have')} no vector:")
            shown = self.excluded.most_common(SHOWN_REASONS)
            lines += [f"  {count:,} × {reason}" for reason, count in shown]
            if more := len(self.excluded) - len(shown):
                lines.append(f"  and {counted(more, 'more reason')}")
        if self.unfinished:
            lines.append(
                f"{counted(self.unfinished, 'part of the run is', 'parts of the run are')} not "
                "finished: finish mast detect, then run this command again."
            )
        if self.events and not self.is_whitened:
            lines.append(
                f"The vectors are not whitened, because fewer than {MIN_SAMPLES} events were readable when the first "
                "were written. They distinguish sounds less well."
            )
            if self.events >= MIN_SAMPLES:
                lines.append(f"There are more events now: delete {self.table} and run this command again.")
        index = (
            "with an index"
            if self.has_index
            else f"without an index, which is built from {INDEX_FROM:,} events"
        )
        return "\n".join([*lines, f"Vectors: {self.table} ({self.width} components each, {index})"])


def embed_events(
    events: str,
    model: str,
    layers: Layers = "last",
    out: str | None = None,
    compute: ComputeResources | None = None,
    on_progress: OnStage = lambda stage, done, total: None,
) -> EmbedResult:
    """Compute a vector for every event of the run `events`, in `embeddings.lance` of its folder or in `out`.

    Called again after an interruption, or after the run has added events, it computes the missing vectors.
    """
    results = open_results(events)
    loaded = load_encoder(model)
    identity, width = loaded.description.identity, loaded.network.shape.width
    location, table = absolute_location(model), _absolute(out or join(events, EMBEDDINGS))
    metadata = TableMetadata(results.fingerprint, identity, layers, width, location)
    open_or_create(table, metadata)
    config = EmbedConfig(_absolute(events), table, location, identity, layers)
    result = EmbedResult(out or join(events, EMBEDDINGS), identity, width, unfinished=results.unfinished)
    with exclusive_lock(table, "embed"):
        dataset = open_or_create(table, metadata)  # its current version, now that the lock is held
        if not is_remote(table):  # on object storage another process may be writing despite the lock
            delete_orphans(dataset)
        done = parts_in(dataset)
        chosen = compute or choose_compute()
        if not done:
            on_progress("sampling", 0, None)
            fit_table_whitening(results, BoxEncoder(loaded, layers, chosen.kind), table)
        whitening = read_whitening(table)
        result.is_whitened = whitening.is_measured
        encoder = BoxEncoder(loaded, layers, chosen.kind, whitening)
        missing = [number for number in results.numbers if number not in done]
        stored = sorted(finished_parts(results, encoder).intersection(missing))
        for copied, number in enumerate(stored, 1):  # the vectors exist, so no worker process is needed
            dataset = _added(dataset, embed_part(results, number, encoder, table), result)
            on_progress("embedding", copied, len(missing))
        numbers = sorted({*missing} - {*stored})
        pool = worker_pool(_EmbeddingSupervisor, asdict(config), chosen, len(numbers))
        with closing(pool.run(numbers)) as parts:
            for part in parts:
                if part is not None:
                    dataset = _added(dataset, part, result)
                on_progress("embedding", len(stored) + pool.progress, len(missing))
        on_progress("indexing", 0, None)
        result.has_index = compact_and_index(dataset)
        result.events = dataset.count_rows()
    return result


def _added(dataset: lance.LanceDataset, part: EmbeddedPart, result: EmbedResult) -> lance.LanceDataset:
    """Commit a part to the table, add its counts to `result`, and return the new version of the table."""
    result.added += part.events
    result.excluded += part.excluded
    return append(dataset, part.fragments) if part.fragments else dataset


def _absolute(location: str) -> str:
    return location if "://" in location else str(Path(location).absolute())


class _EmbeddingSupervisor(Supervisor[int, EmbeddedPart]):
    """Supervisor of a worker process that embeds parts; `progress` is in parts."""

    module, purpose = "mast.embeddings.worker", "embedding"

    def run(self, number: int) -> EmbeddedPart:
        """Embed a part, with retries after crashes and transient failures."""
        before = self.progress

        def on_progress(fraction: float) -> None:
            self.progress = before + fraction

        for attempt in range(MAX_ATTEMPTS):
            answer = self.process.call({"part": number}, on_progress)
            if answer is not None and not answer.get("is_transient"):
                break
            self.process.pause(PAUSE_S * 2**attempt)
        if answer is None:
            raise MastError(
                f"The embedding processes died {MAX_ATTEMPTS} times ({self.process.ending}). If memory is short, use "
                "fewer processes with --workers. Finished parts are kept: run the same command to resume."
            )
        if "error" in answer:
            raise StorageError(f"{answer['error']} Finished parts are kept: run the same command to resume.")
        self.progress = before + 1
        fragments, events, excluded = answer["written"]
        return EmbeddedPart(number, fragments, events, Counter(excluded))
