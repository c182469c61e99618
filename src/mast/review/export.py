"""What people stand for, in the files of other programs: accepted and drawn sounds with their labels and annotators.

A review is people's work and fits into memory; with all that nobody has seen, the sounds of the whole run have to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from mast.annotations import Annotations, write_annotations
from mast.annotations.files import keep_only, places_below
from mast.annotations.tables import by_recording, facts_of
from mast.annotations.text import listed, plain
from mast.config import AnnotationFormat
from mast.detection.export import SHAPES, clock_text, events_for, file_or_folder, names_of, still_there
from mast.detection.found import Found, FoundPart, open_found
from mast.events import Event, Recording, from_table
from mast.review.reading import read_verdicts, verdicts_at
from mast.review.sounds import decided_among, sounds_of, with_names
from mast.review.taking import Taken, event_of, take
from mast.review.verdicts import Verdict, holding
from mast.storage import join


@dataclass(frozen=True, slots=True)
class Written:
    """What was written where; `losses` count what the format cannot hold.

    `accepted` are the sounds that people stand for, without those of recordings that are not in this run. `changed`
    counts tables of earlier exports that are still there, for somebody has worked on them.
    """

    format: AnnotationFormat
    out: str
    taken: Taken
    accepted: tuple[Verdict, ...]
    unseen: int
    losses: Counter[str]
    changed: int

    def summary(self) -> str:
        """The account for a person to read."""
        drawn = sum(item.score is None for item in self.accepted)
        unseen = f", and {self.unseen:,} that nobody has seen" if self.unseen else ""
        lines = [
            f"{len(self.accepted):,} sounds accepted, {drawn:,} of them drawn by hand{unseen}",
            f"Left out: {self.taken.rejected:,} rejected, {len(self.taken.unsure):,} unsure",
            *listed(f"Not kept in {self.format}:", self.losses),
            *still_there(self.changed),
            f"Written: {self.out}",
        ]
        return "\n".join(lines)


def export_reviewed(
    events: str,
    to: AnnotationFormat,
    out: str | None = None,
    *,
    combined: bool | None = None,
    min_score: float | None = None,
    and_unseen: bool = False,
    location: str | None = None,
) -> Written:
    """Write what a review of a run has come to; `and_unseen` adds the sounds nobody has decided about, as the model's.

    Tables of an earlier export of this run into the same folder are removed, unless somebody has changed them.
    """
    folder = out or join(events, f"{to}-reviewed")
    place = file_or_folder(to, combined, folder)
    found = open_found(events, min_score)
    verdicts = read_verdicts(verdicts_at(events, location))
    taken = take(sounds_of(found, min_score), verdicts)
    accepted: dict[str, list[Verdict]] = {}
    for item in taken.accepted:
        accepted.setdefault(item.recording_id, []).append(item)
    held, unseen = holding(verdicts), 0
    written: list[Verdict] = []
    boxes: list[Event] = []
    recordings: list[Recording] = []
    for part in found.parts(min_score):
        own: list[Recording] = from_table(part.recordings, Recording)
        recordings += own
        for recording in own:
            here = accepted.get(recording.recording_id, [])
            written += here
            boxes += [_told(item, recording, to) for item in here]
        if and_unseen:
            others = _unseen(found, part, held, to)
            unseen += len(others)
            boxes += others
    ordered = sorted(boxes, key=lambda event: (event.recording_id, event.start_s, event.low_hz or 0.0))
    facts = tuple(
        replace(facts_of(item), location=found.place(item.collection, item.path))
        for item in recordings
        if item.status != "quarantined"
    )
    annotations = Annotations(tuple(ordered), taken.reviewed, facts)
    losses, names = _write(annotations, to, place, folder)
    changed = keep_only(names, folder, found.fingerprint)
    return Written(to, place, taken, tuple(written), unseen, losses, changed)


def _write(
    annotations: Annotations, to: AnnotationFormat, place: str, folder: str
) -> tuple[Counter[str], list[str]]:
    """Write all at one place, or where that is a folder of files, one for each recording of which people tell anything.

    → what the format cannot hold, and names of the files
    """
    if place != folder or not SHAPES[to].ending:
        return write_annotations(annotations, place, to), names_of(to, place)
    parts = {name: part for name, part in by_recording(annotations).items() if part.events or part.reviewed}
    names = places_below(parts, SHAPES[to].ending)
    if to in ("raven", "audacity"):  # which write folders themselves, known by the slash
        return write_annotations(annotations, f"{folder}/", to), [*names.values()]
    losses: Counter[str] = Counter()
    for name, part in parts.items():
        losses += write_annotations(part, join(folder, names[name]), to)
    return losses, [*names.values()]


def _told(verdict: Verdict, recording: Recording, to: AnnotationFormat) -> Event:
    """An accepted sound with the columns that the format's tables have."""
    return replace(event_of(verdict), columns=_columns(recording, verdict, to))


def _unseen(found: Found, part: FoundPart, held: Mapping[str, Verdict], to: AnnotationFormat) -> list[Event]:
    """Sounds of a part that nobody has decided about, as the model left them."""
    rows = np.flatnonzero(~decided_among(with_names(part.events), held.values()))
    return list(events_for(to, found, part.events.take(rows), {}))


def _columns(recording: Recording, verdict: Verdict, to: AnnotationFormat) -> tuple[tuple[str, str], ...]:
    """Clock times, site and model, where the format's own export has them."""
    since = timedelta(seconds=verdict.start_s)
    values = {
        "site": recording.site or "",
        "start_utc": clock_text(recording.start_utc and recording.start_utc + since),
        "start_local": clock_text(recording.start_local and recording.start_local + since),
        "utc_offset_min": plain(recording.utc_offset_min),
        "model": verdict.model or "",
    }
    return tuple((name, values[name]) for name in SHAPES[to].columns.free if values[name])
