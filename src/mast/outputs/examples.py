"""Sample a few events of a run across sites and scores, and render their spectrograms and audio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.audio.reader import open_audio
from mast.errors import AudioError, StorageError
from mast.plotting.html import audio_data_uri, image_uri
from mast.plotting.thumbnails import Bounds, render_thumbnail
from mast.runs.results import DetectionResults, ResultsPart

EXAMPLES = 9
"""Number of examples: three each of low, medium and high scores."""

MAX_CANDIDATES = 16
"""Size of the random sample of events from each site, from which examples are chosen."""

CONTEXT_S = 1.0
LONGEST_S = 10.0
"""Context before and after an event, and maximum length of a clip, in seconds of audio as played; the clip of a longer
event is cut off at its end."""

BROWSER_RATES_HZ = (16_000, 32_000, 48_000)
"""Sample rates that browsers play; a clip uses the lowest one that contains its box."""


@dataclass(frozen=True, slots=True)
class SampledEvent:
    """Randomly sampled event, with the number of its part."""

    hash_key: int
    part: int
    site: str
    recording_id: str
    collection: str
    path: str
    bounds: Bounds
    score: float
    start_local: datetime | None


@dataclass(frozen=True, slots=True)
class Example:
    """Event with its spectrogram image and its audio, each as a data URI."""

    event: SampledEvent
    image: str
    audio: str


class EventSampler:
    """Random sample of a stream of events: those with the lowest hash keys of each site.

    Hash keys depend only on the position of an event in the run, so the sample is reproducible.
    """

    def __init__(self) -> None:
        self._candidates: dict[str, list[SampledEvent]] = {}

    def add(self, part: ResultsPart) -> None:
        """Add the events of a part to the candidates."""
        import pyarrow.compute as pc

        hash_keys = _hash_keys(part.number, len(part.events))  # (N,)
        sites = pc.fill_null(pc.cast(part.events["site"], "string"), "").to_numpy(zero_copy_only=False)
        for site in np.unique(sites.astype(str)).tolist():
            indices = np.flatnonzero(sites == site)
            rows = indices[np.argsort(hash_keys[indices], kind="stable")[:MAX_CANDIDATES]]
            sampled = [_sampled_event(part, row, int(hash_keys[row]), site) for row in rows.tolist()]
            kept = sorted([*self._candidates.get(site, ()), *sampled], key=lambda event: event.hash_key)
            self._candidates[site] = kept[:MAX_CANDIDATES]

    def chosen(self, count: int = EXAMPLES) -> list[SampledEvent]:
        """Choose examples of all scores, sorted by score; each third of the scores covers the maximum number of sites."""
        events = sorted((event for site in self._candidates.values() for event in site), key=_by_score)
        thirds = np.array_split(np.arange(len(events)), 3)
        chosen = [event for rows in thirds for event in _spread([events[row] for row in rows], count // 3)]
        return sorted(chosen, key=_by_score)


def _by_score(event: SampledEvent) -> tuple[float, int]:
    return event.score, event.hash_key


def _spread(events: list[SampledEvent], count: int) -> list[SampledEvent]:
    """Choose `count` events, taking one of each site in turn, in the order of hash keys."""
    turns: dict[str, int] = {}
    ranked = []
    for event in sorted(events, key=lambda event: event.hash_key):
        turns[event.site] = turns.get(event.site, 0) + 1
        ranked.append((turns[event.site], event.hash_key, event))
    return [event for _, _, event in sorted(ranked, key=lambda item: item[:2])[:count]]


def _hash_keys(part: int, count: int) -> NDArray[np.uint64]:
    """Return a reproducible pseudo-random key for every event of a part: SplitMix64 of its position. → (N,)"""
    with np.errstate(over="ignore"):
        mixed = (np.arange(count, dtype=np.uint64) + (np.uint64(part) << np.uint64(32))) * np.uint64(
            0x9E3779B97F4A7C15
        )
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _sampled_event(part: ResultsPart, row: int, hash_key: int, site: str) -> SampledEvent:
    event: dict[str, Any] = part.events.slice(row, 1).to_pylist()[0]
    at = part.recordings["recording_id"].index(event["recording_id"]).as_py()
    return SampledEvent(
        hash_key=hash_key,
        part=part.number,
        site=site,
        recording_id=event["recording_id"],
        collection=part.recordings["collection"][at].as_py(),
        path=part.recordings["path"][at].as_py(),
        bounds=_bounds(event),
        score=event["score"],
        start_local=event["start_local"],
    )


def render_examples(
    results: DetectionResults, events: Iterable[SampledEvent], min_score: float = 0.0
) -> tuple[list[Example], list[str]]:
    """Render the events whose recordings can be read; return these examples, and the errors of the others."""
    examples, reasons = [], []
    for event in events:
        try:
            examples.append(_example(results, event, min_score))
        except (AudioError, StorageError, OSError) as error:
            reasons.append(str(error))
    return examples, reasons


def _example(results: DetectionResults, event: SampledEvent, min_score: float) -> Example:
    """Render an event with all boxes of score >= `min_score` that overlap its clip."""
    expansion = results.expansions[event.collection]
    location, frames = (
        results.location(event.collection, event.path),
        results.cut_short.get(event.recording_id),
    )
    clip = extract_clip(location, event.bounds, expansion, frames)
    others = [box for box in _boxes(results, event, clip.shown_s, min_score) if box != event.bounds]
    return Example(event, *clip.render([event.bounds, *others]))


@dataclass(frozen=True, slots=True)
class AudioClip:
    """Audio around a box, at `rate_hz` as played; `shown_s` is its start and end in the recording, in seconds."""

    wave: NDArray[np.float32]
    rate_hz: int
    expansion: float
    shown_s: tuple[float, float]

    def render(self, boxes: Sequence[Bounds]) -> tuple[str, str]:
        """Return the spectrogram with boxes, of which the first is highlighted, and the audio, as data URIs."""
        image = render_thumbnail(
            self.wave,
            self.rate_hz * self.expansion,
            self.shown_s[0],
            [("model", box) for box in boxes],
        )
        return image_uri(image), audio_data_uri(self.wave, self.rate_hz)


def extract_clip(
    location: str, bounds: Bounds, expansion: float = 1.0, frames: int | None = None
) -> AudioClip:
    """Read the audio of a box with one second of context from a recording, of which `frames` are readable."""
    start_s, _, end_s, high_hz = bounds
    rate_hz = next(
        (rate for rate in BROWSER_RATES_HZ if rate * expansion >= 2 * high_hz), BROWSER_RATES_HZ[-1]
    )
    first_s = max(0.0, start_s * expansion - CONTEXT_S)
    length_s = min(end_s * expansion + CONTEXT_S - first_s, LONGEST_S)
    with open_audio(location, rate_hz, expansion, frames) as audio:
        wave = audio.read(first_s, length_s)
    if not len(wave):
        raise AudioError(f"{location}: the recording no longer has audio at {start_s:.1f} s.")
    return AudioClip(wave, rate_hz, expansion, (first_s / expansion, (first_s + length_s) / expansion))


def _boxes(
    results: DetectionResults, event: SampledEvent, shown_s: tuple[float, float], min_score: float
) -> list[Bounds]:
    """Return all boxes of the event's recording that overlap a time span, of score >= `min_score`."""
    import pyarrow.compute as pc

    events = results.events(event.part)
    events = events.filter(pc.greater_equal(events["score"], min_score))
    overlaps = pc.and_(
        pc.equal(pc.cast(events["recording_id"], "string"), event.recording_id),
        pc.and_(pc.less(events["start_s"], shown_s[1]), pc.greater(events["end_s"], shown_s[0])),
    )
    return [_bounds(row) for row in events.filter(overlaps).to_pylist()]


def _bounds(event: dict[str, Any]) -> Bounds:
    return event["start_s"], event["low_hz"], event["end_s"], event["high_hz"]
