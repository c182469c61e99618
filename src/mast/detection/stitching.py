"""From the boxes of chunks to the sounds of a recording: what several chunks heard of one is put together again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mast.models.decoding import Detections

Floats = NDArray[np.float64]
Vector = NDArray[np.float16]

MIN_OVERLAP = 0.5
"""Boxes that agree this well about the time that both chunks hear are of one sound."""

EDGE_FRAMES = 8.0
"""An edge so near to a chunk's own is a cut: a detector tells edges to about one cell of its finest map."""

LONGEST_FRAMES = 60_000.0
"""A sound that goes on for longer, ten minutes, is told in pieces: what starts after it need not wait for its end."""


@dataclass(frozen=True, slots=True, order=True)
class Stitched:
    """A sound of a recording, in frames of the recording and in bins, and the vector of its box, if it has one."""

    start_frames: float
    low_bins: float
    end_frames: float
    high_bins: float
    score: float
    vector: Vector | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _View:
    """A sound as the chunk from `chunk_start` to `chunk_end` tells it, in frames of the recording and in bins."""

    start: float
    low: float
    end: float
    high: float
    score: float
    chunk_start: float
    chunk_end: float
    vector: Vector | None = None

    def hears(self, start: float, end: float) -> float:
        """Frames of a span that the chunk hears, to a thousandth: what is equal but for rounding is equal."""
        return round(min(end, self.chunk_end) - max(start, self.chunk_start), 3)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Views of one sound by rising chunk, one of each; all before `begins` was told as an earlier piece of it."""

    views: tuple[_View, ...]
    begins: float = -math.inf

    @property
    def earliest(self) -> float:
        """None of the views can make the sound start before this; later ones start no earlier than their chunk."""
        return max(self.begins, min(view.start for view in self.views))

    def sound(self, ends: float = math.inf) -> Stitched:
        """What the views come to, up to `ends`; the rule is that of `stitch`."""
        start, end = self.views[0].start, self.views[0].end
        for view, later in pairwise(self.views):
            middle = _middle(view, later)
            start = later.start if start >= middle else start
            end = later.end if later.end > middle else end
        start, end = max(start, self.begins), min(end, ends)
        best = max(self.views, key=lambda view: (view.hears(start, end), view.score))
        return Stitched(start, best.low, end, best.high, best.score, best.vector)


def stitch(chunks: Iterable[tuple[float, Detections]], chunk_frames: float) -> Iterator[Stitched]:
    """Sounds of a recording, by start and then low, from the boxes of its chunks in frames and bins of each.

    Chunks come in order, each as its start in frames of the recording and what was found in it; all are
    `chunk_frames` long. They may overlap as much as they like, touch, or leave gaps.

    **One sound.** Boxes of two chunks are cut to the time that both hear. Those with an IoU of `MIN_OVERLAP` there are
    of one sound: the best pair first, each box in one pair only. So calls in other bands stay apart, and pair by pair
    a sound becomes a chain that may be longer than a chunk or be heard by many. An edge within `EDGE_FRAMES` of the
    shared time's counts as beyond it; so of chunks that only touch, boxes that meet at the seam in one band are a pair.
    Of a sound that goes on before and after the shared time, either box may stop short: the shorter one has to agree.

    **Bounds.** A moment is told best by the chunk in which it lies deepest: of two, up to the middle of the time that
    they share, by the earlier one. So the start is that of the first view that begins before this middle, and the end
    that of the last view that ends after it, and what a chunk merely cuts is never taken for an edge. Low, high, score
    and vector are those of the chunk that hears most of the sound; of equals, of the highest score.

    **Parts.** At its edge a detector is unsure, and may draw the part of a sound quite unlike the whole. A box that its
    chunk cuts, that another hears to its full length and hence deeper, and that is in no pair, is left out if it
    shares `MIN_OVERLAP` of the smaller area with a box of the other.

    A sound is given as soon as no later chunk can change it or start before it. Memory grows neither with the recording
    nor, beyond `LONGEST_FRAMES`, with any sound.
    """
    chains: list[_Chain] = []
    waiting: list[Stitched] = []  # a heap
    try:
        for chunk_start, found in chunks:
            for chain in chains:
                if not _is_open(chain, chunk_start):
                    heappush(waiting, chain.sound())
            views = _views(found, chunk_start, chunk_start + chunk_frames)
            chains, pieces = _joined([chain for chain in chains if _is_open(chain, chunk_start)], views)
            for piece in pieces:
                heappush(waiting, piece)
            settled = min([chunk_start, *(chain.earliest for chain in chains)])
            while waiting and waiting[0].start_frames < settled:
                yield heappop(waiting)
    except Exception:  # where a recording breaks off, what was heard before counts
        yield from _last(waiting, chains)
        raise
    yield from _last(waiting, chains)


def _last(waiting: list[Stitched], chains: list[_Chain]) -> list[Stitched]:
    """All that is left when no chunk will come."""
    return sorted([*waiting, *(chain.sound() for chain in chains)])


def _views(found: Detections, chunk_start: float, chunk_end: float) -> list[_View]:
    """The boxes of a chunk, in frames of the recording."""
    vectors = [None] * len(found.scores) if found.vectors is None else [*found.vectors.numpy()]
    rows = zip(found.boxes.tolist(), found.scores.tolist(), vectors, strict=True)
    return [
        _View(start + chunk_start, low, end + chunk_start, high, score, chunk_start, chunk_end, vector)
        for (start, low, end, high), score, vector in rows
    ]


def _is_open(chain: _Chain, chunk_start: float) -> bool:
    """Whether a chunk that starts there, or later, may hear more of a sound."""
    return chain.views[-1].end > chunk_start - EDGE_FRAMES


def _middle(view: _View, later: _View) -> float:
    """Of the time that two chunks share: where the later one begins to hear deeper."""
    return (later.chunk_start + view.chunk_end) / 2


def _joined(chains: Sequence[_Chain], views: Sequence[_View]) -> tuple[list[_Chain], list[Stitched]]:
    """Chains with the next chunk's views added, or begun with them; and pieces of sounds that got too long."""
    if not (chains and views):
        return [*chains, *(_Chain((view,)) for view in views)], []
    as_one, as_part = _overlaps(chains, views)
    view_of, agrees = _pairs(as_one), as_part >= MIN_OVERLAP
    free = sorted({*range(len(views))} - {*view_of.values()})
    whole = [number for number in free if not _is_part_of_chain(views[number], chains, agrees[:, number])]
    heard = [*view_of.values(), *whole]
    joined, pieces = [], []
    for row, chain in enumerate(chains):
        if row in view_of:
            longer, piece = _extended(chain, views[view_of[row]])
            joined.append(longer)
            pieces += piece
        elif not (agrees[row, heard].any() and _is_part_of_view(chain, views[0])):
            joined.append(chain)
    return [*joined, *(_Chain((views[number],)) for number in whole)], pieces


def _overlaps(chains: Sequence[_Chain], views: Sequence[_View]) -> tuple[Floats, Floats]:
    """How well each chain's last view agrees with each new one, as views of one sound, and as part and whole. (N, M) each

    Of a sound that goes on before and after the time that both chunks hear, each may stop short of its own edge: there
    the shorter of the two says how much time they should share.
    """
    last = [chain.views[-1] for chain in chains]
    start, ends = views[0].chunk_start, np.array([[view.chunk_end] for view in last])  # (N, 1)
    ours, theirs = _bounds(last)[:, None], _bounds(views)[None]  # (N, 1, 4), (1, M, 4)
    goes_on = (ours[..., 0] < start) & (theirs[..., 2] > ends)  # (N, M)
    ours, theirs = _cut(ours, start, ends), _cut(theirs, start, ends)  # (N, 1, 4), (N, M, 4)
    sides, other_sides = (_sides(boxes[..., :2], boxes[..., 2:]) for boxes in (ours, theirs))
    shared = _sides(np.maximum(ours[..., :2], theirs[..., :2]), np.minimum(ours[..., 2:], theirs[..., 2:]))
    area, other_area, shared_area = (item.prod(axis=-1) for item in (sides, other_sides, shared))
    iou = _share(shared_area, area + other_area - shared_area)
    in_time = _share(shared, np.minimum(sides, other_sides))[..., 0]
    in_band = _share(shared, sides + other_sides - shared)[..., 1]
    return np.where(goes_on, in_time * in_band, iou), _share(shared_area, np.minimum(area, other_area))


def _bounds(views: Sequence[_View]) -> Floats:
    return np.array([(view.start, view.low, view.end, view.high) for view in views])


def _cut(boxes: Floats, start: float, ends: Floats) -> Floats:
    """Boxes cut to a span a little wider than the shared time, and drawn out to it where they come near its edges.

    Where chunks share no time, this span still has a length, and boxes on either side of the seam fill it.
    (N or 1, M or 1, 4), (N, 1) → (N, M or 1, 4)
    """
    drawn_start = np.where(boxes[..., 0] <= start + EDGE_FRAMES, start - EDGE_FRAMES, boxes[..., 0])
    drawn_end = np.where(boxes[..., 2] >= ends - EDGE_FRAMES, ends + EDGE_FRAMES, boxes[..., 2])
    return np.stack(np.broadcast_arrays(drawn_start, boxes[..., 1], drawn_end, boxes[..., 3]), axis=-1)


def _sides(start_low: Floats, end_high: Floats) -> Floats:
    """Frames and bins from one corner to the other, 0 where they are the wrong way round. (…, 2), (…, 2) → (…, 2)"""
    return (end_high - start_low).clip(min=0)


def _share(part: Floats, whole: Floats) -> Floats:
    """Part of a whole, 0 of nothing."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _pairs(overlap: Floats) -> dict[int, int]:
    """One to one, the best first; of equals, the earlier row and column. (N, M) → column of each row in a pair"""
    rows, columns = np.nonzero(overlap >= MIN_OVERLAP)
    pairs: dict[int, int] = {}
    taken = set()
    for place in np.argsort(-overlap[rows, columns], kind="stable"):
        row, column = int(rows[place]), int(columns[place])
        if row not in pairs and column not in taken:
            pairs[row] = column
            taken.add(column)
    return pairs


def _is_part_of_chain(view: _View, chains: Sequence[_Chain], agrees: NDArray[np.bool_]) -> bool:
    """Whether a view is cut at its chunk's start and lies, where an earlier chunk hears all of it, in a sound of that."""
    is_cut = view.start <= view.chunk_start + EDGE_FRAMES
    return is_cut and any(
        agrees[row] and view.end <= chain.views[-1].chunk_end for row, chain in enumerate(chains)
    )


def _is_part_of_view(chain: _Chain, later: _View) -> bool:
    """Whether a sound is cut at its chunk's end, and a later view's chunk hears all of it."""
    last = chain.views[-1]
    return last.end >= last.chunk_end - EDGE_FRAMES and chain.earliest >= later.chunk_start


def _extended(chain: _Chain, view: _View) -> tuple[_Chain, list[Stitched]]:
    """A chain with one more view; or, if it is too long already, a new one, and the piece before it."""
    middle = _middle(chain.views[-1], view)
    if middle - chain.earliest > LONGEST_FRAMES and view.end > middle:
        return _Chain((view,), begins=middle), [chain.sound(ends=middle)]
    return _Chain((*chain.views, view), chain.begins), []
