"""The queues of a run: all there are, each with what it needs to know of that run."""

from __future__ import annotations

from functools import partial

from mast.detection.found import Found
from mast.embeddings.table import EMBEDDINGS
from mast.review.alike import false_alarms, novel
from mast.review.queues import QUEUES, Queue
from mast.review.sounds import heard_of
from mast.review.spans import minutes
from mast.storage import exists, join

ASKS_FOR = {
    "in order": "sounds as they follow each other",
    "uncertain": "sounds that score nearest the threshold, of every recording one before a second",
    "novel": "sounds unlike all that was decided, one of each group (needs mast embed)",
    "balanced": "minutes to review completely, spread over sites, days and hours",
    "doubtful": "minutes spread the same way, the most doubtful of each day first: for the next training",
    "false alarms": "high scores that are like what was rejected",
    "audit": "sounds by lot, for mast precision",
}
"""What each queue asks for, as the page tells it."""


def queues_of(found: Found) -> dict[str, Queue]:
    """Every queue of a run by its name."""
    place = join(found.folder, EMBEDDINGS)
    heard = heard_of(found)
    return {
        **QUEUES,
        "novel": partial(novel, vectors=place),
        "balanced": partial(minutes, heard=heard),
        "doubtful": partial(minutes, heard=heard, liking="doubtful"),
        "false alarms": partial(false_alarms, vectors=place if exists(place) else None),
    }
