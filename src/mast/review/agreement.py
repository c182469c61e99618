"""Agreement of two annotators on the events that both decided, and in the minutes that both reviewed.

Cohen's kappa corrects for agreement by chance. Boxes are compared by IoU. The numbers mean little if the second
annotator saw the verdicts of the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import torch

from mast.box_ops import box_iou
from mast.errors import StorageError
from mast.review.outcome import Interval, subtract_intervals
from mast.review.read_verdicts import read_verdicts, verdicts_location
from mast.review.verdicts import Verdict
from mast.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

MATCH_IOU = 0.5
"""Minimum IoU at which boxes of two annotators match."""

RESAMPLES = 500
SEED = 0
Z = 1.959964
"""Half width of the 95 % interval of a normal distribution, in standard deviations."""

Pair = tuple[Verdict, Verdict]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two annotators on the `events` that both decided: the agreed fraction and Cohen's kappa, with bounds.

    `box_iou` is the mean over events that both accepted. In the `minutes` that both reviewed, `boxes` are the numbers
    of boxes of each annotator, and `matched` is the number of matching pairs, with mean IoU `matched_iou`. NaN if
    there are no data.
    """

    users: tuple[str, str]
    events: int
    agreed: int
    agreement: tuple[float, float, float]
    kappa: tuple[float, float, float]
    box_iou: float
    minutes: float
    boxes: tuple[int, int]
    matched: int
    matched_iou: float

    def sentences(self) -> str:
        """Return the agreement as sentences."""
        first, second = self.users
        lines = []
        if self.events:
            agreement, kappa = _format_bounds(self.agreement, "{:.0%}"), _format_bounds(self.kappa, "{:.2f}")
            lines.append(
                f"{first} and {second} both decided {counted(self.events, 'event')} and agree on {agreement}; kappa "
                f"{kappa} ({interpret_kappa(self.kappa[0])})"
            )
        if not np.isnan(self.box_iou):
            lines.append(f"Mean IoU of the boxes that both accepted: {self.box_iou:.0%}")
        if self.minutes:
            both = f"{self.matched:,} matched" + (
                f", with a mean IoU of {self.matched_iou:.0%}" if self.matched else ""
            )
            lines.append(
                f"In {self.minutes:.1f} min that both reviewed: {first} {counted(self.boxes[0], 'box', 'boxes')}, "
                f"{second} {counted(self.boxes[1], 'box', 'boxes')}; {both}"
            )
        return "\n".join(lines)


def agreements(verdicts: Iterable[Verdict]) -> list[Agreement]:
    """Return the agreement of each pair of annotators with common events or minutes, most common events first."""
    by_user: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for item in decisions(verdicts):
        by_user[item.user][item.event_id] = item
    results = [
        _between(by_user[first], by_user[second], (first, second))
        for first, second in combinations(sorted(by_user), 2)
    ]
    return sorted(
        (item for item in results if item.events or item.minutes), key=lambda item: (-item.events, item.users)
    )


def decisions(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the last verdict of each user on each event, without reverted and reverting verdicts."""
    rows = sorted(verdicts, key=lambda item: (item.event_id, item.version))
    reverted = {(item.event_id, item.reverts) for item in rows if item.reverts is not None}
    last: dict[tuple[str, str], Verdict] = {}
    for item in rows:
        if item.reverts is None and (item.event_id, item.version) not in reverted and item.state != "open":
            last[item.event_id, item.user] = item
    return list(last.values())


def _between(first: dict[str, Verdict], second: dict[str, Verdict], users: tuple[str, str]) -> Agreement:
    pairs = [(first[name], second[name]) for name in first if name in second and first[name].kind == "sound"]
    agreed = sum(one.state == other.state for one, other in pairs)
    both = [pair for pair in pairs if pair[0].state == pair[1].state == "accepted"]
    ious = [float(box_iou(_boxes([one]), _boxes([other]))[0, 0]) for one, other in both]
    spans = _common_spans(first.values(), second.values())
    seconds = sum(end_s - start_s for intervals in spans.values() for start_s, end_s in intervals)
    boxes = tuple(_accepted_in(verdicts.values(), spans) for verdicts in (first, second))
    matches = [
        value for name in spans for value in matched_iou(*(by_name.get(name, []) for by_name in boxes))
    ]
    return Agreement(
        users=users,
        events=len(pairs),
        agreed=agreed,
        agreement=wilson(agreed, len(pairs)),
        kappa=_bootstrap_bounds(kappa, pairs),
        box_iou=float(np.mean(ious)) if ious else np.nan,
        minutes=seconds / 60,
        boxes=(sum(map(len, boxes[0].values())), sum(map(len, boxes[1].values()))),
        matched=len(matches),
        matched_iou=float(np.mean(matches)) if matches else np.nan,
    )


def wilson(successes: int, count: int) -> tuple[float, float, float]:
    """Return a fraction and its 95 % Wilson interval; NaN if `count` is 0."""
    if not count:
        return (np.nan, np.nan, np.nan)
    fraction, spread = successes / count, Z**2 / count
    middle = (fraction + spread / 2) / (1 + spread)
    reach = np.sqrt(fraction * (1 - fraction) * spread + spread**2 / 4) / (1 + spread)
    return fraction, max(0.0, float(middle - reach)), min(1.0, float(middle + reach))


def kappa(pairs: Sequence[Pair]) -> float:
    """Return Cohen's kappa: 1 for full agreement, 0 for agreement by chance; NaN if all verdicts are the same state."""
    if not pairs:
        return np.nan
    counts = [Counter(pair[side].state for pair in pairs) for side in (0, 1)]
    by_chance = sum(counts[0][state] * counts[1][state] for state in counts[0]) / len(pairs) ** 2
    agreed = sum(one.state == other.state for one, other in pairs) / len(pairs)
    return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else np.nan


def _bootstrap_bounds(
    statistic: Callable[[Sequence[Pair]], float], pairs: Sequence[Pair]
) -> tuple[float, float, float]:
    """Return a statistic with 95 % bounds from a bootstrap over recordings (events of one are not independent)."""
    by_recording: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_recording[pair[0].recording_id].append(pair)
    units, rng = list(by_recording.values()), np.random.default_rng(SEED)
    resampled = [
        statistic([pair for unit in rng.integers(len(units), size=len(units)) for pair in units[unit]])
        for _ in range(RESAMPLES if len(units) > 1 else 0)
    ]
    values = [value for value in resampled if not np.isnan(value)]
    if not values:
        return statistic(pairs), np.nan, np.nan
    low, high = np.quantile(values, [0.025, 0.975])
    return statistic(pairs), float(low), float(high)


def _common_spans(first: Iterable[Verdict], second: Iterable[Verdict]) -> dict[str, list[Interval]]:
    """Return the spans that both annotators reviewed, by recording."""
    spans = [_spans(verdicts) for verdicts in (first, second)]
    common = {}
    for name in sorted(spans[0].keys() & spans[1].keys()):
        only_first = subtract_intervals(spans[0][name], spans[1][name])
        common[name] = subtract_intervals(spans[0][name], only_first)
    return {name: intervals for name, intervals in common.items() if intervals}


def _spans(verdicts: Iterable[Verdict]) -> dict[str, list[Interval]]:
    spans: dict[str, list[Interval]] = defaultdict(list)
    for item in verdicts:
        if item.kind == "span" and item.state == "accepted":
            spans[item.recording_id].append((item.start_s, item.end_s))
    return spans


def _accepted_in(verdicts: Iterable[Verdict], spans: dict[str, list[Interval]]) -> dict[str, list[Verdict]]:
    """Return an annotator's accepted events whose midpoint lies in one of the spans, by recording."""
    boxes: dict[str, list[Verdict]] = defaultdict(list)
    for item in verdicts:
        middle_s = (item.start_s + item.end_s) / 2
        inside = any(start_s <= middle_s <= end_s for start_s, end_s in spans.get(item.recording_id, ()))
        if item.kind == "sound" and item.state == "accepted" and inside:
            boxes[item.recording_id].append(item)
    return boxes


def matched_iou(first: Sequence[Verdict], second: Sequence[Verdict]) -> list[float]:
    """Return the IoU of matched pairs: highest IoU first, each box at most once."""
    if not first or not second:
        return []
    ious = box_iou(_boxes(first), _boxes(second)).numpy()  # (N, M)
    matches = []
    while ious.size and ious.max() >= MATCH_IOU:
        row, column = np.unravel_index(ious.argmax(), ious.shape)
        matches.append(float(ious[row, column]))
        ious = np.delete(np.delete(ious, row, axis=0), column, axis=1)
    return matches


def _boxes(items: Sequence[Verdict]) -> torch.Tensor:
    """Return start_s, low_hz, end_s, high_hz; events without frequencies get the same band, 0 to 1 Hz, shape (N, 4)."""
    rows = [[item.start_s, item.low_hz or 0.0, item.end_s, item.high_hz or 1.0] for item in items]
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)


def interpret_kappa(value: float) -> str:
    """Return the name of a kappa on the scale of Landis and Koch."""
    if np.isnan(value):
        return "not defined"
    names = (
        (0.0, "no better than chance"),
        (0.2, "slight"),
        (0.4, "fair"),
        (0.6, "moderate"),
        (0.8, "substantial"),
    )
    return next((name for limit, name in names if value <= limit), "almost perfect")


def _format_bounds(values: tuple[float, float, float], form: str) -> str:
    value, low, high = values
    if np.isnan(value):
        return "–"
    bounds = "" if np.isnan(low) else f" ({form.format(low)} to {form.format(high)})"
    return form.format(value) + bounds


def measure_agreement(events: str, location: str | None = None) -> list[Agreement]:
    """Read the verdicts of a run and compute the agreement of its annotators, for `mast agreement`."""
    source = verdicts_location(events, location)
    results = agreements(read_verdicts(source))
    if not results:
        raise StorageError(
            f"{source}: no two users have decided the same event or reviewed the same minute yet."
        )
    return results


def render(results: Sequence[Agreement]) -> Table:
    """Return a table with a row for each pair of annotators."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("Annotators", "Common events", "Agreement", "Kappa", "Common minutes", "Matched boxes"):
        table.add_column(name, justify="left" if name == "Annotators" else "right")
    for item in results:
        table.add_row(
            " and ".join(item.users),
            f"{item.events:,}",
            _format_bounds(item.agreement, "{:.0%}"),
            _format_bounds(item.kappa, "{:.2f}"),
            f"{item.minutes:.1f}",
            f"{item.matched:,} of {item.boxes[0]:,} and {item.boxes[1]:,}" if item.minutes else "–",
        )
    return table
