"""All review queues of a run, with the data that they need."""

from __future__ import annotations

from functools import partial

from mast.embeddings.vector_table import EMBEDDINGS
from mast.review.event_table import processed_recordings
from mast.review.queues.basic import QUEUES, Queue
from mast.review.queues.minutes import minutes
from mast.review.queues.similarity import likely_false_positives, novel_events
from mast.runs.results import DetectionResults
from mast.storage import exists, join

QUEUE_DESCRIPTIONS = {
    "sequential": "events in the order of the recordings",
    "uncertain": "events that score closest to the threshold, one of each recording before a second",
    "novel": "events unlike all decided events, one of each cluster (needs mast embed)",
    "stratified-minutes": "minutes to review fully, spread over sites, days and hours",
    "uncertain-minutes": "minutes spread in the same way, the most uncertain of each day first, for the next training",
    "likely-false-positives": "events with high scores that are similar to rejected events",
    "random-sample": "audit: a random sample of events, for mast estimate-precision",
}
"""Description of each queue, shown on the page."""


def available_queues(results: DetectionResults) -> dict[str, Queue]:
    """Return all queues of a run by name."""
    location = join(results.folder, EMBEDDINGS)
    processed = processed_recordings(results)
    return {
        **QUEUES,
        "novel": partial(novel_events, vectors=location),
        "stratified-minutes": partial(minutes, processed=processed),
        "uncertain-minutes": partial(minutes, processed=processed, priority="uncertain"),
        "likely-false-positives": partial(
            likely_false_positives, vectors=location if exists(location) else None
        ),
    }
