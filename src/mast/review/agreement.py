"""How far two people agree who decided about the same sounds, or reviewed the same minutes.

What they agree on by chance is taken off by Cohen's kappa. Boxes are compared by IoU. None of it means much where the
second person saw what the first had decided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import torch

from mast.boxes import iou
from mast.errors import StorageError
from mast.review.reading import read_verdicts, verdicts_at
from mast.review.taking import Stretch, without
from mast.review.verdicts import Verdict

if TYPE_CHECKING:
    from rich.table import Table

SAME_IOU = 0.5
"""Two people's boxes that share so much are of one sound."""

RESAMPLES = 500
SEED = 0
Z = 1.959964
"""Standard deviations within which 95 of 100 lie."""

Pair = tuple[Verdict, Verdict]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two people: on `sounds` that both decided about, the share on which they agree and Cohen's kappa, with bounds.

    `box_iou` is the mean over sounds that both accepted. In `minutes` that both reviewed, `boxes` are how many each
    of them has, and `matched` how many are of one sound, with `matched_iou` on average. NaN where nothing tells.
    """

    who: tuple[str, str]
    sounds: int
    agreed: int
    share: tuple[float, float, float]
    kappa: tuple[float, float, float]
    box_iou: float
    minutes: float
    boxes: tuple[int, int]
    matched: int
    matched_iou: float

    def sentences(self) -> str:
        """The account for a person to read."""
        first, second = self.who
        lines = []
        if self.sounds:
            share, kappa = _told(self.share, "{:.0%}"), _told(self.kappa, "{:.2f}")
            lines.append(
                f"{first} and {second} decided about {self.sounds:,} same sounds and agree on {share} of them; kappa "
                f"{kappa}, {in_words(self.kappa[0])}"
            )
        if not np.isnan(self.box_iou):
            lines.append(f"Where both accepted one, their boxes share {self.box_iou:.0%} of their area")
        if self.minutes:
            both = f"{self.matched:,} are of one sound" + (
                f", with {self.matched_iou:.0%} of their area shared" if self.matched else ""
            )
            lines.append(
                f"In {self.minutes:.1f} min that both reviewed, {first} has {self.boxes[0]:,} boxes and {second} "
                f"{self.boxes[1]:,}; {both}"
            )
        return "\n".join(lines)


def agreements(verdicts: Iterable[Verdict]) -> list[Agreement]:
    """Every two people who have something in common, those with most first."""
    own: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for item in decisions(verdicts):
        own[item.who][item.subject] = item
    found = [
        _between(own[first], own[second], (first, second)) for first, second in combinations(sorted(own), 2)
    ]
    return sorted(
        (item for item in found if item.sounds or item.minutes), key=lambda item: (-item.sounds, item.who)
    )


def decisions(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Each person's last own word on each subject; what was undone, and the undoing, are none."""
    rows = sorted(verdicts, key=lambda item: (item.subject, item.version))
    undone = {(item.subject, item.undoes) for item in rows if item.undoes is not None}
    last: dict[tuple[str, str], Verdict] = {}
    for item in rows:
        if item.undoes is None and (item.subject, item.version) not in undone and item.state != "open":
            last[item.subject, item.who] = item
    return list(last.values())


def _between(first: dict[str, Verdict], second: dict[str, Verdict], who: tuple[str, str]) -> Agreement:
    pairs = [(first[name], second[name]) for name in first if name in second and first[name].kind == "sound"]
    agreed = sum(one.state == other.state for one, other in pairs)
    both = [pair for pair in pairs if pair[0].state == pair[1].state == "accepted"]
    shared = [float(iou(_boxes([one]), _boxes([other]))[0, 0]) for one, other in both]
    spans = _common_spans(first.values(), second.values())
    seconds = sum(end_s - start_s for own in spans.values() for start_s, end_s in own)
    boxes = tuple(_accepted_in(person.values(), spans) for person in (first, second))
    matches = [
        value for name in spans for value in matched_iou(*(by_name.get(name, []) for by_name in boxes))
    ]
    return Agreement(
        who=who,
        sounds=len(pairs),
        agreed=agreed,
        share=wilson(agreed, len(pairs)),
        kappa=_with_bounds(kappa, pairs),
        box_iou=float(np.mean(shared)) if shared else np.nan,
        minutes=seconds / 60,
        boxes=(sum(map(len, boxes[0].values())), sum(map(len, boxes[1].values()))),
        matched=len(matches),
        matched_iou=float(np.mean(matches)) if matches else np.nan,
    )


def wilson(right: int, count: int) -> tuple[float, float, float]:
    """A share with Wilson's bounds, between which it lies in 95 of 100 samples; NaN of nothing."""
    if not count:
        return (np.nan, np.nan, np.nan)
    share, spread = right / count, Z**2 / count
    middle = (share + spread / 2) / (1 + spread)
    reach = np.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return share, max(0.0, float(middle - reach)), min(1.0, float(middle + reach))


def kappa(pairs: Sequence[Pair]) -> float:
    """Cohen's kappa: agreement beyond chance, 1 at best, 0 by chance; NaN where both always say the same one thing."""
    if not pairs:
        return np.nan
    said = [Counter(pair[side].state for pair in pairs) for side in (0, 1)]
    by_chance = sum(said[0][state] * said[1][state] for state in said[0]) / len(pairs) ** 2
    agreed = sum(one.state == other.state for one, other in pairs) / len(pairs)
    return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else np.nan


def _with_bounds(
    figure: Callable[[Sequence[Pair]], float], pairs: Sequence[Pair]
) -> tuple[float, float, float]:
    """A figure with bounds from drawing recordings again and again: sounds of one stand or fall together."""
    by_recording: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_recording[pair[0].recording_id].append(pair)
    units, rng = list(by_recording.values()), np.random.default_rng(SEED)
    drawn = [
        figure([pair for unit in rng.integers(len(units), size=len(units)) for pair in units[unit]])
        for _ in range(RESAMPLES if len(units) > 1 else 0)
    ]
    known = [value for value in drawn if not np.isnan(value)]
    if not known:
        return figure(pairs), np.nan, np.nan
    low, high = np.quantile(known, [0.025, 0.975])
    return figure(pairs), float(low), float(high)


def _common_spans(first: Iterable[Verdict], second: Iterable[Verdict]) -> dict[str, list[Stretch]]:
    """What both have reviewed from end to end, by recording."""
    spans = [_spans(person) for person in (first, second)]
    common = {}
    for name in sorted(spans[0].keys() & spans[1].keys()):
        alone = without(spans[0][name], spans[1][name])
        common[name] = without(spans[0][name], alone)
    return {name: own for name, own in common.items() if own}


def _spans(person: Iterable[Verdict]) -> dict[str, list[Stretch]]:
    spans: dict[str, list[Stretch]] = defaultdict(list)
    for item in person:
        if item.kind == "span" and item.state == "accepted":
            spans[item.recording_id].append((item.start_s, item.end_s))
    return spans


def _accepted_in(person: Iterable[Verdict], spans: dict[str, list[Stretch]]) -> dict[str, list[Verdict]]:
    """A person's accepted sounds whose middle lies in one of the spans, by recording."""
    boxes: dict[str, list[Verdict]] = defaultdict(list)
    for item in person:
        middle_s = (item.start_s + item.end_s) / 2
        inside = any(start_s <= middle_s <= end_s for start_s, end_s in spans.get(item.recording_id, ()))
        if item.kind == "sound" and item.state == "accepted" and inside:
            boxes[item.recording_id].append(item)
    return boxes


def matched_iou(first: Sequence[Verdict], second: Sequence[Verdict]) -> list[float]:
    """IoU of the pairs of boxes that are of one sound: the best first, each box once."""
    if not first or not second:
        return []
    shared = iou(_boxes(first), _boxes(second)).numpy()  # (N, M)
    matches = []
    while shared.size and shared.max() >= SAME_IOU:
        row, column = np.unravel_index(shared.argmax(), shared.shape)
        matches.append(float(shared[row, column]))
        shared = np.delete(np.delete(shared, row, axis=0), column, axis=1)
    return matches


def _boxes(items: Sequence[Verdict]) -> torch.Tensor:
    """start_s, low_hz, end_s, high_hz; without frequencies a sound is as high as any. → (N, 4)"""
    rows = [[item.start_s, item.low_hz or 0.0, item.end_s, item.high_hz or 1.0] for item in items]
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)


def in_words(value: float) -> str:
    """What a kappa means, by the usual scale of Landis and Koch."""
    if np.isnan(value):
        return "which cannot be told"
    names = (
        (0.0, "no better than chance"),
        (0.2, "slight"),
        (0.4, "fair"),
        (0.6, "moderate"),
        (0.8, "substantial"),
    )
    return next((name for limit, name in names if value <= limit), "almost perfect")


def _told(values: tuple[float, float, float], form: str) -> str:
    value, low, high = values
    if np.isnan(value):
        return "–"
    bounds = "" if np.isnan(low) else f" ({form.format(low)} to {form.format(high)})"
    return form.format(value) + bounds


def measure_agreement(events: str, location: str | None = None) -> list[Agreement]:
    """What `mast agreement` does."""
    place = verdicts_at(events, location)
    found = agreements(read_verdicts(place))
    if not found:
        raise StorageError(
            f"{place}: no two people have decided about the same sound or reviewed the same minute yet."
        )
    return found


def render(found: Sequence[Agreement]) -> Table:
    """A row for every two people."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("Who", "Same sounds", "Agree on", "Kappa", "Same minutes", "Boxes of one sound"):
        table.add_column(name, justify="left" if name == "Who" else "right")
    for item in found:
        table.add_row(
            " and ".join(item.who),
            f"{item.sounds:,}",
            _told(item.share, "{:.0%}"),
            _told(item.kappa, "{:.2f}"),
            f"{item.minutes:.1f}",
            f"{item.matched:,} of {item.boxes[0]:,} and {item.boxes[1]:,}" if item.minutes else "–",
        )
    return table
