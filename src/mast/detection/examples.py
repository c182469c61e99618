"""A few of the sounds that a run has found, drawn across sites and scores, to look at and to listen to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.detection.found import Found, FoundPart
from mast.errors import AudioError, StorageError
from mast.pictures.html import image_uri, sound_uri
from mast.pictures.tiles import Bounds, draw_tile
from mast.recordings.decode import open_audio

EXAMPLES = 9
"""Three rows of three: unsure, in between, sure."""

KEPT = 16
"""So many events of each site are drawn by lot, and examples chosen from these."""

CONTEXT_S = 1.0
LONGEST_S = 10.0
"""As heard: a second before and after a sound; a longer one is shown by its beginning."""

RATES_HZ = (16_000, 32_000, 48_000)
"""Sound is kept at the lowest rate that holds the box."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """An event drawn by lot, and the part it is in."""

    lot: int
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
    """A sound with its picture and its wave, each as an address that holds it."""

    event: Drawn
    picture: str
    sound: str


class Lottery:
    """Events drawn by lot, as they pass: of each site those with the lowest lots, which follow from their place."""

    def __init__(self) -> None:
        self._drawn: dict[str, list[Drawn]] = {}

    def add(self, part: FoundPart) -> None:
        """Let a part's events take part."""
        import pyarrow.compute as pc

        lots = _lots(part.number, len(part.events))  # (N,)
        sites = pc.fill_null(pc.cast(part.events["site"], "string"), "").to_numpy(zero_copy_only=False)
        for site in np.unique(sites.astype(str)).tolist():
            own = np.flatnonzero(sites == site)
            rows = own[np.argsort(lots[own], kind="stable")[:KEPT]]
            fresh = [_drawn(part, row, int(lots[row]), site) for row in rows.tolist()]
            kept = sorted([*self._drawn.get(site, ()), *fresh], key=lambda event: event.lot)
            self._drawn[site] = kept[:KEPT]

    def chosen(self, count: int = EXAMPLES) -> list[Drawn]:
        """Examples of all scores, the surest last; in each third as many sites as can be."""
        every = sorted((event for events in self._drawn.values() for event in events), key=_by_score)
        thirds = np.array_split(np.arange(len(every)), 3)
        chosen = [event for rows in thirds for event in _spread([every[row] for row in rows], count // 3)]
        return sorted(chosen, key=_by_score)


def _by_score(event: Drawn) -> tuple[float, int]:
    return event.score, event.lot


def _spread(events: list[Drawn], count: int) -> list[Drawn]:
    """Some events: one of each site in turn, by their lots."""
    turns: dict[str, int] = {}
    ranked = []
    for event in sorted(events, key=lambda event: event.lot):
        turns[event.site] = turns.get(event.site, 0) + 1
        ranked.append((turns[event.site], event.lot, event))
    return [event for _, _, event in sorted(ranked, key=lambda item: item[:2])[:count]]


def _lots(part: int, count: int) -> NDArray[np.uint64]:
    """A lot for every event of a part, as if by chance but always the same: SplitMix64 of its place. → (N,)"""
    with np.errstate(over="ignore"):
        mixed = (np.arange(count, dtype=np.uint64) + (np.uint64(part) << np.uint64(32))) * np.uint64(
            0x9E3779B97F4A7C15
        )
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _drawn(part: FoundPart, row: int, lot: int, site: str) -> Drawn:
    event: dict[str, Any] = part.events.slice(row, 1).to_pylist()[0]
    at = part.recordings["recording_id"].index(event["recording_id"]).as_py()
    return Drawn(
        lot=lot,
        part=part.number,
        site=site,
        recording_id=event["recording_id"],
        collection=part.recordings["collection"][at].as_py(),
        path=part.recordings["path"][at].as_py(),
        bounds=_bounds(event),
        score=event["score"],
        start_local=event["start_local"],
    )


def draw_examples(
    found: Found, events: Iterable[Drawn], min_score: float = 0.0
) -> tuple[list[Example], list[str]]:
    """Examples whose recordings can be read, and why the others cannot."""
    examples, reasons = [], []
    for event in events:
        try:
            examples.append(_example(found, event, min_score))
        except (AudioError, StorageError, OSError) as error:
            reasons.append(str(error))
    return examples, reasons


def _example(found: Found, event: Drawn, min_score: float) -> Example:
    """An event cut out of its recording, drawn with all boxes there."""
    expansion = found.expansions[event.collection]
    location, frames = found.place(event.collection, event.path), found.cut_short.get(event.recording_id)
    cut = cut_out(location, event.bounds, expansion, frames)
    others = [box for box in _boxes(found, event, cut.shown_s, min_score) if box != event.bounds]
    return Example(event, *cut.drawn([event.bounds, *others]))


@dataclass(frozen=True, slots=True)
class Cut:
    """Sound around a box, at `rate_hz` as heard; `shown_s` is where it lies in its recording."""

    wave: NDArray[np.float32]
    rate_hz: int
    expansion: float
    shown_s: tuple[float, float]

    def drawn(self, boxes: Sequence[Bounds]) -> tuple[str, str]:
        """Its picture with boxes in it, the first of which is the one meant, and its sound, as addresses."""
        picture = draw_tile(
            self.wave,
            self.rate_hz * self.expansion,
            self.shown_s[0],
            [("model", box) for box in boxes],
        )
        return image_uri(picture), sound_uri(self.wave, self.rate_hz)


def cut_out(location: str, bounds: Bounds, expansion: float = 1.0, frames: int | None = None) -> Cut:
    """The sound of a box out of its recording, as far as its `frames`, with a second around it."""
    start_s, _, end_s, high_hz = bounds
    rate_hz = next((rate for rate in RATES_HZ if rate * expansion >= 2 * high_hz), RATES_HZ[-1])
    first_s = max(0.0, start_s * expansion - CONTEXT_S)
    lasting_s = min(end_s * expansion + CONTEXT_S - first_s, LONGEST_S)
    with open_audio(location, rate_hz, expansion, frames) as audio:
        wave = audio.read(first_s, lasting_s)
    if not len(wave):
        raise AudioError(f"{location}: there is no sound at {start_s:.1f} s any more.")
    return Cut(wave, rate_hz, expansion, (first_s / expansion, (first_s + lasting_s) / expansion))


def _boxes(found: Found, event: Drawn, shown_s: tuple[float, float], min_score: float) -> list[Bounds]:
    """All boxes of a recording that are seen between two moments."""
    import pyarrow.compute as pc

    events = found.events(event.part)
    events = events.filter(pc.greater_equal(events["score"], min_score))
    near = pc.and_(
        pc.equal(pc.cast(events["recording_id"], "string"), event.recording_id),
        pc.and_(pc.less(events["start_s"], shown_s[1]), pc.greater(events["end_s"], shown_s[0])),
    )
    return [_bounds(row) for row in events.filter(near).to_pylist()]


def _bounds(event: dict[str, Any]) -> Bounds:
    return event["start_s"], event["low_hz"], event["end_s"], event["high_hz"]
