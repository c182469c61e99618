"""Assign chunks to splits without leakage between training and test.

Chunks overlap, and a bird keeps singing, so a random assignment of chunks would leak. Instead, the reviewed time is
divided into blocks: a block of a site's timeline belongs to one split, and a guard gap separates neighbouring blocks of
different splits. When annotations are added, previously assigned time keeps its split, so test audio never becomes
training audio.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import translate
from types import MappingProxyType

import numpy as np

from mast.config import HeldOut, Splits
from mast.types import Floats, Integers, Mask

IN_DOMAIN = "in-domain"
IN_DOMAIN_SPLITS = ("train", "val", "test")
GUARD, UNLABELLED, FIRST_HELD_OUT_CODE = 3, 4, 5
"""Codes of the other splits; `split_names` gives their names."""

UNASSIGNED = -1
"""Code of blocks without a split."""

EDGE_S = 0.01
"""Extension of reviewed spans on both sides, since annotation tables round times."""

SHUFFLES = 64
"""Number of random assignments of blocks from which the best is chosen; it matters for small numbers of blocks."""

ORIGIN = datetime(2000, 1, 1)
UNTIMED_S = -3e9
"""Position on a site's timeline of the recordings without a clock, one after the other, long before all others."""


def split_names(settings: Splits) -> tuple[str, ...]:
    """Return the names of all splits in the order of their codes."""
    return (*IN_DOMAIN_SPLITS, "guard", "unlabelled", *settings.held_out)


@dataclass(frozen=True, slots=True)
class HeldOutRule:
    """The conditions of a held-out set, with compiled patterns."""

    name: str
    conditions: HeldOut
    sites: re.Pattern[str] | None
    paths: re.Pattern[str] | None

    def matches(self, path: str, site: str | None, day: date | None) -> bool:
        """Return True if a recording belongs to the set; one without a trusted clock matches no date rule."""
        return (
            (self.sites is None or (site is not None and self.sites.match(site) is not None))
            and (self.paths is None or self.paths.match(path) is not None)
            and self._matches_day(day)
        )

    def _matches_day(self, day: date | None) -> bool:
        conditions = self.conditions
        if not (conditions.dates or conditions.from_date or conditions.to_date):
            return True
        if day is None or (conditions.dates and day not in conditions.dates):
            return False
        return (conditions.from_date or date.min) <= day <= (conditions.to_date or date.max)


def held_out_rules(settings: Splits) -> tuple[HeldOutRule, ...]:
    """Return the rules of the held-out sets in their order."""
    return tuple(
        HeldOutRule(name, conditions, _compile_globs(conditions.sites), _compile_globs(conditions.paths))
        for name, conditions in settings.held_out.items()
    )


def assign_domain(rules: Iterable[HeldOutRule], path: str, site: str | None, day: date | None) -> str:
    """Return the first held-out set that a recording matches, or in-domain."""
    return next((rule.name for rule in rules if rule.matches(path, site, day)), IN_DOMAIN)


def _compile_globs(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Compile globs to one pattern, which ignores case; `*` also matches slashes."""
    return re.compile("|".join(map(translate, patterns)), re.IGNORECASE) if patterns else None


def merge_spans(spans: Floats) -> Floats:
    """Sort spans and merge overlapping ones; spans that only touch stay separate. (N, 2) → (M, 2)"""
    if not len(spans):
        return spans.reshape(0, 2)
    ordered = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    latest_end = np.maximum.accumulate(ordered[:, 1])
    first = np.flatnonzero(np.append(True, ordered[1:, 0] >= latest_end[:-1]))
    return np.stack([ordered[first, 0], np.maximum.reduceat(ordered[:, 1], first)], axis=1)


def reviewed_spans(spans: Floats, duration_s: float) -> Floats:
    """Return a recording's reviewed spans, merged; an end of NaN stands for the recording's end. (N, 2) → (M, 2)"""
    ends = np.where(np.isnan(spans[:, 1]), np.inf, spans[:, 1])
    extended = np.stack([spans[:, 0] - EDGE_S, ends + EDGE_S], axis=1).clip(0.0, duration_s)
    return merge_spans(extended[extended[:, 0] < extended[:, 1]])


def intersects_and_within(spans: Floats, start_s: Floats, end_s: Floats) -> tuple[Mask, Mask]:
    """Return masks of the intervals that intersect any span, and that lie within one span. (N,) → (N,), (N,)"""
    before = np.searchsorted(spans[:, 1], start_s, side="right")
    intersects = np.searchsorted(spans[:, 0], end_s, side="left") > before
    span = np.minimum(before, max(0, len(spans) - 1))
    within = (
        intersects & (spans[span, 0] <= start_s) & (end_s <= spans[span, 1]) if len(spans) else intersects
    )
    return intersects, within


@dataclass(frozen=True, slots=True)
class ReviewedRecording:
    """A reviewed recording; `spans` (N, 2) are seconds from its start, `start` is its clock time if trusted."""

    recording_id: str
    site: str | None
    start: datetime | None
    duration_s: float
    spans: Floats
    domain: str = IN_DOMAIN


@dataclass(frozen=True, slots=True)
class AssignedSpans:
    """Previously assigned spans of a recording, in seconds from its start, and the codes of their splits."""

    spans: Floats  # (N, 2)
    split: Integers  # (N,)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of a site's in-domain reviewed time: spans of its timeline, their splits, and the guard gaps."""

    spans: Floats  # (B, 2) seconds
    split: Integers  # (B,) codes
    gaps: Floats  # (G, 2) seconds

    def split_at(self, start_s: Floats, end_s: Floats) -> Integers:
        """Return split codes of intervals of reviewed time; intervals that intersect a gap are guard. (N,) → (N,)"""
        block = np.searchsorted(self.spans[:, 0], (start_s + end_s) / 2, side="right") - 1
        in_gap, _ = intersects_and_within(self.gaps, start_s, end_s)
        return np.where(in_gap, GUARD, self.split[block.clip(0)])


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The assignment of in-domain reviewed time to splits; `positions_s` are the recordings' timeline positions."""

    blocks: Mapping[str | None, Blocks]
    positions_s: Mapping[str, float]
    previous_blocks: int = 0
    """Number of blocks that keep a previous split."""

    def block_count(self) -> int:
        """Return the number of blocks of all sites."""
        return sum(len(blocks.split) for blocks in self.blocks.values())


def plan_blocks(
    reviewed: Iterable[ReviewedRecording],
    settings: Splits,
    assigned: Mapping[str, AssignedSpans] = MappingProxyType({}),
) -> SplitPlan:
    """Divide every site's reviewed time into blocks and assign the blocks to splits.

    The order of `reviewed` does not matter. Time in `assigned`, by recording, keeps its split, and so does time within
    half a block of it. Held-out recordings are not assigned to blocks, but a guard gap separates them from recordings
    that are close by the clock.
    """
    in_domain: dict[str | None, list[ReviewedRecording]] = {}
    held_out: dict[str | None, list[Floats]] = {}
    for recording in sorted(reviewed, key=lambda recording: recording.recording_id):
        if recording.domain == IN_DOMAIN:
            in_domain.setdefault(recording.site, []).append(recording)
        elif recording.start is not None:
            held_out.setdefault(recording.site, []).append(recording.spans + _clock_s(recording.start))
    sites = sorted(in_domain, key=lambda site: (site is not None, site or ""))
    positions: dict[str, float] = {}
    site_blocks: list[tuple[Floats, Integers, Floats]] = []
    for site in sites:
        positions |= _positions(in_domain[site])
        spans = np.concatenate(
            [recording.spans + positions[recording.recording_id] for recording in in_domain[site]]
        )
        previous = [
            AssignedSpans(assigned[name].spans + positions[name], assigned[name].split)
            for name in (recording.recording_id for recording in in_domain[site])
            if name in assigned
        ]
        site_blocks.append(
            _make_blocks(merge_spans(spans), _keep_previous(previous, settings), settings.block_s)
        )
    previous_codes = np.concatenate([np.zeros(0, np.int64), *(codes for _, codes, _ in site_blocks)])
    audio_s = np.concatenate([np.zeros(0), *(seconds for _, _, seconds in site_blocks)])
    fractions = (settings.train, settings.val, settings.test)
    codes = assign_blocks(audio_s, fractions, settings.seed, previous_codes)
    blocks: dict[str | None, Blocks] = {}
    for site, (spans_s, _, seconds) in zip(sites, site_blocks, strict=True):
        split, codes = codes[: len(seconds)], codes[len(seconds) :]
        held_out_s = np.concatenate([np.zeros((0, 2)), *held_out.get(site, ())])
        blocks[site] = Blocks(spans_s, split, _gaps(spans_s, split, held_out_s, settings.guard_s))
    return SplitPlan(blocks, positions, int((previous_codes != UNASSIGNED).sum()))


def _gaps(spans: Floats, split: Integers, held_out_s: Floats, guard_s: float) -> Floats:
    """Return guard gaps: between close blocks of different splits, and around held-out audio. (B, 2) → (G, 2)"""
    ends, starts = spans[:-1, 1], spans[1:, 0]
    is_close = (split[:-1] != split[1:]) & (starts - ends < guard_s + 1e-6)
    middle = ((ends + starts) / 2)[is_close]
    between = np.stack([middle - guard_s / 2, middle + guard_s / 2], axis=1)
    return merge_spans(np.concatenate([between, held_out_s + np.array([-guard_s, guard_s])]))


def _clock_s(start: datetime) -> float:
    return (start - ORIGIN).total_seconds()


def _positions(reviewed: Iterable[ReviewedRecording]) -> dict[str, float]:
    """Return the start of each recording on its site's timeline in s: by the clock, or consecutive without a clock."""
    positions: dict[str, float] = {}
    next_s = UNTIMED_S
    for recording in reviewed:
        if recording.start is not None:
            positions[recording.recording_id] = _clock_s(recording.start)
        else:
            positions[recording.recording_id] = next_s
            next_s += recording.duration_s
    return positions


def _keep_previous(previous: Sequence[AssignedSpans], settings: Splits) -> AssignedSpans:
    """Return the previous blocks of a site: spans of one split, extended by half a block on each side.

    Neighbouring blocks of different splits meet halfway. They overlap only if clocks or sites were corrected.
    """
    spans = np.concatenate([np.zeros((0, 2)), *(assigned.spans for assigned in previous)])
    split = np.concatenate([np.zeros(0, np.int64), *(assigned.split for assigned in previous)])
    margin_s = max(settings.block_s, settings.guard_s) / 2
    runs: list[tuple[float, float, int]] = []
    for row in np.argsort(spans[:, 0]):
        (start_s, end_s), code = spans[row], split[row]
        if runs and code == runs[-1][2] and start_s <= runs[-1][1] + 2 * margin_s:
            runs[-1] = (runs[-1][0], max(end_s, runs[-1][1]), code)
        elif not runs or end_s > runs[-1][1]:
            runs.append((start_s, end_s, code))
    begin_s, end_s, codes = np.array(runs).reshape(-1, 3).T
    middle_s = (end_s[:-1] + begin_s[1:]) / 2
    first_s = np.maximum(begin_s - margin_s, np.append(-np.inf, middle_s)[: len(runs)])
    last_s = np.minimum(end_s + margin_s, np.append(middle_s, np.inf)[: len(runs)])
    return AssignedSpans(np.stack([first_s, last_s], axis=1), codes.astype(np.int64))


def _make_blocks(
    spans_s: Floats, previous_blocks: AssignedSpans, block_s: float
) -> tuple[Floats, Integers, Floats]:
    """Return all blocks of reviewed time in order, their codes or `UNASSIGNED`, and their reviewed seconds.

    Time outside all previous blocks is divided into new blocks; no new block spans a previous one. → (B, 2), (B,), (B,)
    """
    free = _subtract_spans(spans_s, previous_blocks.spans)
    gap = np.searchsorted(previous_blocks.spans[:, 0], free[:, 0])
    new = [_new_blocks(free[gap == number], block_s) for number in np.unique(gap)]
    spans = np.concatenate([previous_blocks.spans, *(spans for spans, _ in new)])
    audio_s = np.concatenate(
        [_audio_seconds(spans_s, previous_blocks.spans), *(seconds for _, seconds in new)]
    )
    codes = np.append(previous_blocks.split, np.full(len(spans) - len(previous_blocks.split), UNASSIGNED))
    order = np.argsort(spans[:, 0])
    return spans[order], codes[order], audio_s[order]


def _subtract_spans(spans_s: Floats, occupied: Floats) -> Floats:
    """Subtract occupied spans from spans; both are sorted and do not overlap. (N, 2), (M, 2) → (K, 2)"""
    edges = np.unique(np.concatenate([spans_s, occupied]))
    parts = np.stack([edges[:-1], edges[1:]], axis=1)
    middle = parts.mean(axis=1)
    is_present, is_occupied = (
        intersects_and_within(spans_s, middle, middle)[1],
        intersects_and_within(occupied, middle, middle)[1],
    )
    return parts[is_present & ~is_occupied]


def _audio_seconds(spans_s: Floats, blocks: Floats) -> Floats:
    """Return the seconds of the spans that lie in each block. (N, 2), (B, 2) → (B,)"""
    lengths_s = np.stack([np.zeros(len(spans_s)), spans_s[:, 1] - spans_s[:, 0]], axis=1)
    until_s: Floats = np.interp(blocks, spans_s.ravel(), lengths_s.ravel().cumsum())
    return until_s[:, 1] - until_s[:, 0]


def _new_blocks(spans_s: Floats, block_s: float) -> tuple[Floats, Floats]:
    """Return blocks with about `block_s` of reviewed time, and the reviewed seconds of each. (N, 2) → (B, 2), (B,)

    Long spans are divided into equal pieces; short ones are collected as long as this brings a block closer to
    `block_s`. Simultaneous recordings are in the same block.
    """
    pieces = np.maximum(1, np.rint((spans_s[:, 1] - spans_s[:, 0]) / block_s)).astype(int)
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    step_s = np.repeat((spans_s[:, 1] - spans_s[:, 0]) / pieces, pieces)
    starts = np.repeat(spans_s[:, 0], pieces) + number * step_s
    first, collected_s = [], np.inf
    for index, length_s in enumerate(step_s):
        if collected_s + length_s / 2 > block_s:
            first.append(index)
            collected_s = 0.0
        collected_s += length_s
    last = np.array([*first[1:], len(step_s)]) - 1
    return np.stack([starts[first], (starts + step_s)[last]], axis=1), np.add.reduceat(step_s, first)


def assign_blocks(
    audio_s: Floats, fractions: Sequence[float], seed: int, previous: Integers | None = None
) -> Integers:
    """Return split codes of blocks; the best of `SHUFFLES` random assignments approximates `fractions`. (B,) → (B,)

    A block with a code in `previous` keeps it. Every split below its fraction gets a block; if there are too few blocks,
    the split that is furthest below comes first.
    """
    best = np.full(len(audio_s), UNASSIGNED) if previous is None else previous
    unassigned, rng, best_error = np.flatnonzero(best == UNASSIGNED), np.random.default_rng(seed), np.inf
    missing = np.array(fractions) - _fractions(best, audio_s, len(fractions))
    used = np.argsort(-missing, kind="stable")[: max(1, (missing > 0).sum())]
    for _ in range(SHUFFLES if len(unassigned) else 0):
        order = rng.permutation(unassigned)
        codes = best.copy()
        codes[order] = used[_portions(audio_s[order], missing[used])]
        error = float(np.abs(_fractions(codes, audio_s, len(fractions)) - fractions).sum())
        if error < best_error - 1e-9:
            best, best_error = codes, error
    return best


def _fractions(codes: Integers, audio_s: Floats, splits: int) -> Floats:
    """Return the fraction of all time that each split has. (B,), (B,) → (splits,)"""
    is_assigned = codes != UNASSIGNED
    fractions: Floats = np.bincount(codes[is_assigned], audio_s[is_assigned], splits) / max(
        audio_s.sum(), 1e-9
    )
    return fractions


def _portions(audio_s: Floats, fractions: Floats) -> Integers:
    """Return the index of the split of each block, dividing the blocks in their order. (B,) → (B,)"""
    targets = np.cumsum(fractions[: len(audio_s)])
    ends_s = np.append(0.0, np.cumsum(audio_s))
    cuts = [0]
    for remaining, target in zip(range(len(targets) - 1, 0, -1), targets, strict=False):
        nearest = int(np.abs(ends_s - target / targets[-1] * ends_s[-1]).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(audio_s) - remaining))
    return np.repeat(np.arange(len(targets)), np.diff([*cuts, len(audio_s)]))
