"""What each chunk is for, so that nothing heard in training is heard again in a test.

Chunks overlap, and a bird goes on singing: chunks drawn at random leak. So time is shared out in blocks: stretches of a
site's clock go to one split together, and a guard gap stays empty between neighbours of different splits. Labels grow:
what was shared out before stays where it went, so that no test set becomes something to train on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import translate
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mast.config import HeldOut, Splits

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

IN_DOMAIN = "in-domain"
SHARED = ("train", "val", "test")
GUARD, UNLABELLED, FIRST_HELD_OUT = 3, 4, 5
"""Codes of splits beyond the shared ones; `split_names` spells them out."""

FREE = -1
"""In place of a code: not shared out yet."""

EDGE_S = 0.01
"""Annotation tables round: a reviewed span reaches this much further than it says."""

SHUFFLES = 64
"""The best of so many ways to share out the blocks is taken: it matters where there are few."""

ORIGIN = datetime(2000, 1, 1)
UNTIMED_S = -3e9
"""Where on a site's timeline recordings without a clock stand, one after the other: long before all others."""


def split_names(settings: Splits) -> tuple[str, ...]:
    """Names of all splits in the order of their codes."""
    return (*SHARED, "guard", "unlabelled", *settings.held_out)


@dataclass(frozen=True, slots=True)
class Rule:
    """A held-out set's conditions, ready to be asked often."""

    name: str
    conditions: HeldOut
    sites: re.Pattern[str] | None
    paths: re.Pattern[str] | None

    def fits(self, path: str, site: str | None, day: date | None) -> bool:
        """Whether a recording belongs here; one without a trusted clock fits no dates."""
        return (
            (self.sites is None or (site is not None and self.sites.match(site) is not None))
            and (self.paths is None or self.paths.match(path) is not None)
            and self._fits_day(day)
        )

    def _fits_day(self, day: date | None) -> bool:
        asked = self.conditions
        if not (asked.dates or asked.from_date or asked.to_date):
            return True
        if day is None or (asked.dates and day not in asked.dates):
            return False
        return (asked.from_date or date.min) <= day <= (asked.to_date or date.max)


def held_out_rules(settings: Splits) -> tuple[Rule, ...]:
    """The held-out sets in their order."""
    return tuple(
        Rule(name, item, _any_of(item.sites), _any_of(item.paths)) for name, item in settings.held_out.items()
    )


def pool_of(rules: Iterable[Rule], path: str, site: str | None, day: date | None) -> str:
    """The first held-out set that a recording fits, or in-domain."""
    return next((rule.name for rule in rules if rule.fits(path, site, day)), IN_DOMAIN)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Globs as one pattern; capital and small letters count as the same, `*` also stands for slashes."""
    return re.compile("|".join(map(translate, patterns)), re.IGNORECASE) if patterns else None


def merged(spans: Floats) -> Floats:
    """Spans in order, those that overlap made one; spans that only touch stay apart. (N, 2) → (M, 2)"""
    if not len(spans):
        return spans.reshape(0, 2)
    ordered = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    reach = np.maximum.accumulate(ordered[:, 1])
    first = np.flatnonzero(np.append(True, ordered[1:, 0] >= reach[:-1]))
    return np.stack([ordered[first, 0], np.maximum.reduceat(ordered[:, 1], first)], axis=1)


def reviewed_spans(spans: Floats, duration_s: float) -> Floats:
    """What was looked at of a recording, from spans whose end is NaN where they run to its end. (N, 2) → (M, 2)"""
    ends = np.where(np.isnan(spans[:, 1]), np.inf, spans[:, 1])
    wide = np.stack([spans[:, 0] - EDGE_S, ends + EDGE_S], axis=1).clip(0.0, duration_s)
    return merged(wide[wide[:, 0] < wide[:, 1]])


def reaches(spans: Floats, start_s: Floats, end_s: Floats) -> tuple[Mask, Mask]:
    """Which stretches touch any of the spans, and which lie wholly within one. (N,) → (N,), (N,)"""
    before = np.searchsorted(spans[:, 1], start_s, side="right")
    touch = np.searchsorted(spans[:, 0], end_s, side="left") > before
    here = np.minimum(before, max(0, len(spans) - 1))
    within = touch & (spans[here, 0] <= start_s) & (end_s <= spans[here, 1]) if len(spans) else touch
    return touch, within


@dataclass(frozen=True, slots=True)
class Labelled:
    """A reviewed recording; `spans` are seconds of its own, `start` its clock if that is trusted."""

    recording_id: str
    site: str | None
    start: datetime | None
    duration_s: float
    spans: Floats
    pool: str = IN_DOMAIN


@dataclass(frozen=True, slots=True)
class Dealt:
    """What of a recording was shared out before: stretches in seconds of its own, and codes of their splits."""

    spans: Floats  # (N, 2)
    split: Integers  # (N,)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A site's reviewed time of the domain in blocks: stretches of its timeline, their splits, and gaps to be kept."""

    spans: Floats  # (B, 2) seconds
    split: Integers  # (B,) codes
    gaps: Floats  # (G, 2) seconds

    def split_at(self, start_s: Floats, end_s: Floats) -> Integers:
        """Codes of stretches of reviewed time; those in or across a gap are guard. (N,) → (N,)"""
        block = np.searchsorted(self.spans[:, 0], (start_s + end_s) / 2, side="right") - 1
        in_gap, _ = reaches(self.gaps, start_s, end_s)
        return np.where(in_gap, GUARD, self.split[block.clip(0)])


@dataclass(frozen=True, slots=True)
class Plan:
    """How the reviewed time of the domain is shared out; `positions_s` says where each recording begins."""

    blocks: Mapping[str | None, Blocks]
    positions_s: Mapping[str, float]
    kept: int = 0
    """Blocks that were there before."""

    def block_count(self) -> int:
        """Blocks of all sites."""
        return sum(len(blocks.split) for blocks in self.blocks.values())


def plan_blocks(
    labelled: Iterable[Labelled], settings: Splits, dealt: Mapping[str, Dealt] = MappingProxyType({})
) -> Plan:
    """Cut every site's reviewed time into blocks and share these out; the order of `labelled` does not matter.

    Time that was shared out before, as `dealt` tells for each recording, keeps its split, and so does what lies within
    half a block of it. Held-out recordings are not shared out, but their neighbours by the clock keep the guard gap.
    """
    shared: dict[str | None, list[Labelled]] = {}
    held_out: dict[str | None, list[Floats]] = {}
    for item in sorted(labelled, key=lambda item: item.recording_id):
        if item.pool == IN_DOMAIN:
            shared.setdefault(item.site, []).append(item)
        elif item.start is not None:
            held_out.setdefault(item.site, []).append(item.spans + _clock_s(item.start))
    sites = sorted(shared, key=lambda site: (site is not None, site or ""))
    positions: dict[str, float] = {}
    cut: list[tuple[Floats, Integers, Floats]] = []
    for site in sites:
        positions |= _positions(shared[site])
        spans = np.concatenate([item.spans + positions[item.recording_id] for item in shared[site]])
        known = [
            Dealt(dealt[name].spans + positions[name], dealt[name].split)
            for name in (item.recording_id for item in shared[site])
            if name in dealt
        ]
        cut.append(_cut(merged(spans), _kept(known, settings), settings.block_s))
    known_codes = np.concatenate([np.zeros(0, np.int64), *(codes for _, codes, _ in cut)])
    heard_s = np.concatenate([np.zeros(0), *(heard for _, _, heard in cut)])
    shares = (settings.train, settings.val, settings.test)
    codes = share_out(heard_s, shares, settings.seed, known_codes)
    blocks: dict[str | None, Blocks] = {}
    for site, (spans_s, _, heard) in zip(sites, cut, strict=True):
        split, codes = codes[: len(heard)], codes[len(heard) :]
        foreign = np.concatenate([np.zeros((0, 2)), *held_out.get(site, ())])
        blocks[site] = Blocks(spans_s, split, _gaps(spans_s, split, foreign, settings.guard_s))
    return Plan(blocks, positions, int((known_codes != FREE).sum()))


def _gaps(spans: Floats, split: Integers, foreign: Floats, guard_s: float) -> Floats:
    """What stays empty: between near blocks of different splits, and around held-out sound. (B, 2) → (G, 2)"""
    ends, starts = spans[:-1, 1], spans[1:, 0]
    near = (split[:-1] != split[1:]) & (starts - ends < guard_s + 1e-6)
    middle = ((ends + starts) / 2)[near]
    between = np.stack([middle - guard_s / 2, middle + guard_s / 2], axis=1)
    return merged(np.concatenate([between, foreign + np.array([-guard_s, guard_s])]))


def _clock_s(start: datetime) -> float:
    return (start - ORIGIN).total_seconds()


def _positions(labelled: Iterable[Labelled]) -> dict[str, float]:
    """Seconds on a site's timeline at which its recordings begin: by the clock, or one after the other without it."""
    positions: dict[str, float] = {}
    at_s = UNTIMED_S
    for item in labelled:
        if item.start is not None:
            positions[item.recording_id] = _clock_s(item.start)
        else:
            positions[item.recording_id] = at_s
            at_s += item.duration_s
    return positions


def _kept(known: Sequence[Dealt], settings: Splits) -> Dealt:
    """Blocks of a site that were there before: stretches of one split with half a block on either side of each.

    Where two of different splits come together, they meet halfway. They overlap only if clocks or sites were corrected.
    """
    spans = np.concatenate([np.zeros((0, 2)), *(item.spans for item in known)])
    split = np.concatenate([np.zeros(0, np.int64), *(item.split for item in known)])
    reach_s = max(settings.block_s, settings.guard_s) / 2
    runs: list[tuple[float, float, int]] = []
    for row in np.argsort(spans[:, 0]):
        (start_s, end_s), code = spans[row], split[row]
        if runs and code == runs[-1][2] and start_s <= runs[-1][1] + 2 * reach_s:
            runs[-1] = (runs[-1][0], max(end_s, runs[-1][1]), code)
        elif not runs or end_s > runs[-1][1]:
            runs.append((start_s, end_s, code))
    begin_s, end_s, codes = np.array(runs).reshape(-1, 3).T
    middle_s = (end_s[:-1] + begin_s[1:]) / 2
    first_s = np.maximum(begin_s - reach_s, np.append(-np.inf, middle_s)[: len(runs)])
    last_s = np.minimum(end_s + reach_s, np.append(middle_s, np.inf)[: len(runs)])
    return Dealt(np.stack([first_s, last_s], axis=1), codes.astype(np.int64))


def _cut(stretches: Floats, kept: Dealt, block_s: float) -> tuple[Floats, Integers, Floats]:
    """All blocks of reviewed time in order, their codes if they have one, and how much each has. → (B, 2), (B,), (B,)

    What lies in no block that was there before is cut into new ones, none of them across an old one.
    """
    free = _without(stretches, kept.spans)
    gap = np.searchsorted(kept.spans[:, 0], free[:, 0])
    new = [_pieces(free[gap == number], block_s) for number in np.unique(gap)]
    spans = np.concatenate([kept.spans, *(spans for spans, _ in new)])
    heard_s = np.concatenate([_heard_s(stretches, kept.spans), *(heard for _, heard in new)])
    codes = np.append(kept.split, np.full(len(spans) - len(kept.split), FREE))
    order = np.argsort(spans[:, 0])
    return spans[order], codes[order], heard_s[order]


def _without(stretches: Floats, taken: Floats) -> Floats:
    """Stretches less those that are taken; both are in order, and none of a kind overlap. (N, 2), (M, 2) → (K, 2)"""
    edges = np.unique(np.concatenate([stretches, taken]))
    parts = np.stack([edges[:-1], edges[1:]], axis=1)
    middle = parts.mean(axis=1)
    is_there, is_taken = reaches(stretches, middle, middle)[1], reaches(taken, middle, middle)[1]
    return parts[is_there & ~is_taken]


def _heard_s(stretches: Floats, blocks: Floats) -> Floats:
    """How much of the stretches lies in each block. (N, 2), (B, 2) → (B,)"""
    lengths_s = np.stack([np.zeros(len(stretches)), stretches[:, 1] - stretches[:, 0]], axis=1)
    until_s: Floats = np.interp(blocks, stretches.ravel(), lengths_s.ravel().cumsum())
    return until_s[:, 1] - until_s[:, 0]


def _pieces(stretches: Floats, block_s: float) -> tuple[Floats, Floats]:
    """Blocks of about `block_s` of reviewed time, and how much each has. (N, 2) → (B, 2), (B,)

    Long stretches are cut into equal pieces; short ones are gathered for as long as that brings a block nearer to its
    length. Recordings that run at the same time share their blocks.
    """
    pieces = np.maximum(1, np.rint((stretches[:, 1] - stretches[:, 0]) / block_s)).astype(int)
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    step_s = np.repeat((stretches[:, 1] - stretches[:, 0]) / pieces, pieces)
    starts = np.repeat(stretches[:, 0], pieces) + number * step_s
    first, gathered_s = [], np.inf
    for index, length_s in enumerate(step_s):
        if gathered_s + length_s / 2 > block_s:
            first.append(index)
            gathered_s = 0.0
        gathered_s += length_s
    last = np.array([*first[1:], len(step_s)]) - 1
    return np.stack([starts[first], (starts + step_s)[last]], axis=1), np.add.reduceat(step_s, first)


def share_out(heard_s: Floats, shares: Sequence[float], seed: int, known: Integers | None = None) -> Integers:
    """Codes of blocks, as near to the shares of their time as `SHUFFLES` tries come. (B,) → (B,)

    A block that has a code in `known` keeps it. Every split that lacks time gets a block; where there are too few, the
    one that lacks most comes first.
    """
    best = np.full(len(heard_s), FREE) if known is None else known
    free, rng, best_miss = np.flatnonzero(best == FREE), np.random.default_rng(seed), np.inf
    lacking = np.array(shares) - _shares(best, heard_s, len(shares))
    used = np.argsort(-lacking, kind="stable")[: max(1, (lacking > 0).sum())]
    for _ in range(SHUFFLES if len(free) else 0):
        order = rng.permutation(free)
        codes = best.copy()
        codes[order] = used[_portions(heard_s[order], lacking[used])]
        miss = float(np.abs(_shares(codes, heard_s, len(shares)) - shares).sum())
        if miss < best_miss - 1e-9:
            best, best_miss = codes, miss
    return best


def _shares(codes: Integers, heard_s: Floats, splits: int) -> Floats:
    """Shares of all time that splits have. (B,), (B,) → (splits,)"""
    is_dealt = codes != FREE
    shares: Floats = np.bincount(codes[is_dealt], heard_s[is_dealt], splits) / max(heard_s.sum(), 1e-9)
    return shares


def _portions(heard_s: Floats, shares: Floats) -> Integers:
    """Which of the shares each block falls to, going along the blocks as they stand. (B,) → (B,)"""
    goals = np.cumsum(shares[: len(heard_s)])
    ends_s = np.append(0.0, np.cumsum(heard_s))
    cuts = [0]
    for left, goal in zip(range(len(goals) - 1, 0, -1), goals, strict=False):
        nearest = int(np.abs(ends_s - goal / goals[-1] * ends_s[-1]).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(heard_s) - left))
    return np.repeat(np.arange(len(goals)), np.diff([*cuts, len(heard_s)]))
