"""What an annotation file says, whatever its format: `Annotations`, and how several become one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from mast.events import Event, Heard, Recording, Reviewed


@dataclass(frozen=True, slots=True)
class Source:
    """Where annotations came from."""

    path: str
    format: str


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """What is known about a recording besides its name; None where nothing tells.

    `start_utc` needs a known time zone; `start_local` is what the recorder's clock showed. `location` is where the
    file is.
    """

    recording_id: str
    duration_s: float | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None
    bit_depth: int | None = None
    gain: str | None = None
    start_utc: datetime | None = None
    start_local: datetime | None = None
    utc_offset_min: int | None = None
    site: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Annotations:
    """Boxes, the spans somebody looked at completely, and what their files tell about the recordings.

    `recordings` stand in the order of their file sequence. `heard` are those that a model listened to, whether or not
    it found anything; no file that is read tells that. `problems` count, by a sentence each, everything the
    files hold that could not be taken over.
    """

    events: tuple[Event, ...] = ()
    reviewed: tuple[Reviewed, ...] = ()
    recordings: tuple[RecordingFacts, ...] = ()
    problems: Counter[str] = field(default_factory=Counter)
    sources: tuple[Source, ...] = ()
    heard: tuple[Heard, ...] = ()

    def recording_ids(self) -> tuple[str, ...]:
        """Every recording spoken of: those with known facts in their order, then by first mention."""
        names = (
            item.recording_id
            for group in (self.recordings, self.events, self.reviewed, self.heard)
            for item in group
        )
        return tuple(dict.fromkeys(names))

    def facts(self) -> dict[str, RecordingFacts]:
        """Facts by recording, empty ones where nothing is known."""
        known = {item.recording_id: item for item in self.recordings}
        return {name: known.get(name, RecordingFacts(name)) for name in self.recording_ids()}


def merge(parts: Iterable[Annotations]) -> Annotations:
    """One from several: events in order, each reviewed span once, facts of a recording filled from all parts."""
    parts = list(parts)
    problems: Counter[str] = Counter()
    for part in parts:
        problems.update(part.problems)
    return Annotations(
        events=tuple(event for part in parts for event in part.events),
        reviewed=tuple(dict.fromkeys(span for part in parts for span in part.reviewed)),
        recordings=join_facts(item for part in parts for item in part.recordings),
        problems=problems,
        sources=tuple(dict.fromkeys(source for part in parts for source in part.sources)),
        heard=tuple(item for part in parts for item in part.heard),
    )


def join_facts(items: Iterable[RecordingFacts]) -> tuple[RecordingFacts, ...]:
    """One entry a recording, in order of first mention; what an earlier entry says stands."""
    joined: dict[str, RecordingFacts] = {}
    for item in items:
        earlier = joined.setdefault(item.recording_id, item)
        news = {
            entry.name: getattr(item, entry.name)
            for entry in fields(RecordingFacts)
            if getattr(earlier, entry.name) is None
        }
        joined[item.recording_id] = replace(earlier, **news)
    return tuple(joined.values())


def with_recordings(annotations: Annotations, recordings: Sequence[Recording]) -> Annotations:
    """The same annotations, knowing what a scan found out; the scan's order and facts come first.

    Quarantined files are no recordings: no program could open them in a sequence.
    """
    found = (facts_of(recording) for recording in recordings if recording.status != "quarantined")
    return replace(annotations, recordings=join_facts([*found, *annotations.recordings]))


def facts_of(recording: Recording) -> RecordingFacts:
    """What a scanned recording tells an annotation file."""
    digits = re.search(r"\d+", recording.encoding or "")
    return RecordingFacts(
        recording_id=recording.recording_id,
        duration_s=recording.duration_s,
        sample_rate_hz=recording.sample_rate_hz,
        channels=recording.channels,
        bit_depth=int(digits.group()) if digits else None,
        gain=recording.gain,
        start_utc=recording.start_utc,
        start_local=recording.start_local,
        utc_offset_min=recording.utc_offset_min,
        site=recording.site,
    )


def local_start(facts: RecordingFacts) -> datetime | None:
    """What the recorder's clock showed at the start, as far as known."""
    if facts.start_local is None and facts.start_utc is not None and facts.utc_offset_min is not None:
        return (facts.start_utc + timedelta(minutes=facts.utc_offset_min)).replace(tzinfo=None)
    return facts.start_local


def by_recording(annotations: Annotations) -> dict[str, Annotations]:
    """Annotations cut into one part for every recording they speak of."""
    facts = annotations.facts()
    events: dict[str, list[Event]] = {name: [] for name in facts}
    spans: dict[str, list[Reviewed]] = {name: [] for name in facts}
    for event in annotations.events:
        events[event.recording_id].append(event)
    for span in annotations.reviewed:
        spans[span.recording_id].append(span)
    heard = {item.recording_id: (item,) for item in annotations.heard}
    return {
        name: Annotations(
            events=tuple(events[name]),
            reviewed=tuple(spans[name]),
            recordings=(facts[name],),
            sources=annotations.sources,
            heard=heard.get(name, ()),
        )
        for name in facts
    }


def is_whole(span: Reviewed) -> bool:
    """Whether a reviewed span is its whole recording."""
    return span.start_s <= 0 and span.end_s is None
