"""Stitch the detections of overlapping chunks into the events of a recording."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mast.models.postprocess import ChunkDetections
from mast.types import Floats, Floats16

MIN_OVERLAP = 0.5
"""Minimum IoU, within the time that both chunks cover, for two boxes to belong to one event."""

EDGE_FRAMES = 8.0
"""Distance from a chunk boundary within which a box edge counts as cut: about one cell of the detector's finest map."""

LONGEST_FRAMES = 60_000.0
"""Maximum length of an event, ten minutes; longer ones are split, so that later events need not wait for their end."""


@dataclass(frozen=True, slots=True, order=True)
class StitchedEvent:
    """Event of a recording, in frames of the recording and in bins, with the vector of its box if it has one."""

    start_frames: float
    low_bins: float
    end_frames: float
    high_bins: float
    score: float
    vector: Floats16 | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Fragment:
    """Detection in the chunk from `chunk_start` to `chunk_end`, in frames of the recording and in bins."""

    start: float
    low: float
    end: float
    high: float
    score: float
    chunk_start: float
    chunk_end: float
    vector: Floats16 | None = None

    def overlap_frames(self, start: float, end: float) -> float:
        """Return the frames of a span that the chunk covers, rounded to 0.001 to ignore rounding errors."""
        return round(min(end, self.chunk_end) - max(start, self.chunk_start), 3)


@dataclass(frozen=True, slots=True)
class _Track:
    """Fragments of one event by rising chunk, one of each; earlier pieces of the event end at `min_start`."""

    fragments: tuple[_Fragment, ...]
    min_start: float = -math.inf

    @property
    def earliest(self) -> float:
        """Earliest frame at which the event can start; later fragments start no earlier than their chunk."""
        return max(self.min_start, min(fragment.start for fragment in self.fragments))

    def resolve(self, max_end: float = math.inf) -> StitchedEvent:
        """Merge the fragments into one event that ends at `max_end` or earlier, by the rules of `stitch`."""
        start, end = self.fragments[0].start, self.fragments[0].end
        for fragment, later in pairwise(self.fragments):
            middle = _middle(fragment, later)
            start = later.start if start >= middle else start
            end = later.end if later.end > middle else end
        start, end = max(start, self.min_start), min(end, max_end)
        best = max(self.fragments, key=lambda fragment: (fragment.overlap_frames(start, end), fragment.score))
        return StitchedEvent(start, best.low, end, best.high, best.score, best.vector)


def stitch(chunks: Iterable[tuple[float, ChunkDetections]], chunk_frames: float) -> Iterator[StitchedEvent]:
    """Stitch the detections of chunks into events of the recording, sorted by start and then low.

    **Pairs.** Boxes of two chunks are clipped to the time that both chunks cover. Boxes with an IoU of at least
    `MIN_OVERLAP` there belong to one event; the best pair is taken first, and each box is in one pair only. So calls in
    different bands stay apart, and pair by pair an event becomes a track that may be longer than a chunk or extend over
    many. An edge within `EDGE_FRAMES` of the boundary of the shared time counts as beyond it; so in chunks that only
    touch, boxes that meet at the boundary in one band are a pair. If an event continues before and after the shared
    time, either box may stop short of it; then the shorter of the two boxes has to agree.

    **Bounds.** Each edge comes from the chunk with the most context around it: the earlier chunk up to the midpoint of
    the overlap, the later one after it. So the start is that of the first fragment that begins before this midpoint,
    and the end that of the last fragment that ends after it; the edge of a box that is merely cut by its chunk is never
    used. Low, high, score and vector come from the fragment whose chunk covers most of the event; among equals, from
    the one with the highest score.

    **Partial boxes.** Near a chunk boundary a detector is unreliable, and the box of a partial call may differ from
    that of the complete call. A box is dropped if its chunk cuts it, another chunk covers all of it, it is in no pair,
    and it shares at least `MIN_OVERLAP` of the smaller area with a box of the other chunk.

    An event is yielded as soon as no later chunk can change it or start before it. Memory grows neither with the
    recording nor, beyond `LONGEST_FRAMES`, with the length of an event.

    Args:
        chunks: Start of each chunk in frames of the recording, and its detections in frames and bins of the chunk.
            Chunks come in order; they may overlap by any amount, touch, or leave gaps.
        chunk_frames: Length of every chunk in frames.

    Yields:
        Events of the recording, sorted by start and then low.
    """
    tracks: list[_Track] = []
    waiting: list[StitchedEvent] = []  # a heap
    try:
        for chunk_start, detections in chunks:
            for track in tracks:
                if not _is_open(track, chunk_start):
                    heappush(waiting, track.resolve())
            fragments = _fragments(detections, chunk_start, chunk_start + chunk_frames)
            tracks, pieces = _join([track for track in tracks if _is_open(track, chunk_start)], fragments)
            for piece in pieces:
                heappush(waiting, piece)
            settled = min([chunk_start, *(track.earliest for track in tracks)])
            while waiting and waiting[0].start_frames < settled:
                yield heappop(waiting)
    except Exception:  # if the recording breaks off, yield the events before that
        yield from _remaining_events(waiting, tracks)
        raise
    yield from _remaining_events(waiting, tracks)


def _remaining_events(waiting: list[StitchedEvent], tracks: list[_Track]) -> list[StitchedEvent]:
    """Return all remaining events, after the last chunk."""
    return sorted([*waiting, *(track.resolve() for track in tracks)])


def _fragments(detections: ChunkDetections, chunk_start: float, chunk_end: float) -> list[_Fragment]:
    """Convert the detections of a chunk to fragments in frames of the recording."""
    vectors = [None] * len(detections.scores) if detections.vectors is None else [*detections.vectors.numpy()]
    rows = zip(detections.boxes.tolist(), detections.scores.tolist(), vectors, strict=True)
    return [
        _Fragment(start + chunk_start, low, end + chunk_start, high, score, chunk_start, chunk_end, vector)
        for (start, low, end, high), score, vector in rows
    ]


def _is_open(track: _Track, chunk_start: float) -> bool:
    """Return whether a chunk that starts at `chunk_start` or later can extend the track."""
    return track.fragments[-1].end > chunk_start - EDGE_FRAMES


def _middle(fragment: _Fragment, later: _Fragment) -> float:
    """Return the midpoint of the overlap of two chunks, after which the later one has more context."""
    return (later.chunk_start + fragment.chunk_end) / 2


def _join(
    tracks: Sequence[_Track], fragments: Sequence[_Fragment]
) -> tuple[list[_Track], list[StitchedEvent]]:
    """Add the next chunk's fragments to the tracks, or start new tracks with them.

    Returns:
        The tracks, and the finished pieces of events that became too long.
    """
    if not (tracks and fragments):
        return [*tracks, *(_Track((fragment,)) for fragment in fragments)], []
    as_one, as_part = _overlaps(tracks, fragments)
    fragment_of, agrees = _pairs(as_one), as_part >= MIN_OVERLAP
    free = sorted({*range(len(fragments))} - {*fragment_of.values()})
    complete = [
        number for number in free if not _belongs_to_track(fragments[number], tracks, agrees[:, number])
    ]
    joining = [*fragment_of.values(), *complete]
    joined, pieces = [], []
    for row, track in enumerate(tracks):
        if row in fragment_of:
            extended, piece = _extend(track, fragments[fragment_of[row]])
            joined.append(extended)
            pieces += piece
        elif not (agrees[row, joining].any() and _belongs_to_fragment(track, fragments[0])):
            joined.append(track)
    return [*joined, *(_Track((fragments[number],)) for number in complete)], pieces


def _overlaps(tracks: Sequence[_Track], fragments: Sequence[_Fragment]) -> tuple[Floats, Floats]:
    """Score each pair of a track's last fragment and a new one, as one event and as part and whole. (N, M) each

    If an event continues before and after the time that both chunks cover, each box may stop short of its own chunk
    boundary; then the shorter of the two determines how much time they should share.
    """
    last = [track.fragments[-1] for track in tracks]
    start, ends = fragments[0].chunk_start, np.array([[fragment.chunk_end] for fragment in last])  # (N, 1)
    before, after = _bounds(last)[:, None], _bounds(fragments)[None]  # (N, 1, 4), (1, M, 4)
    continues = (before[..., 0] < start) & (after[..., 2] > ends)  # (N, M)
    before, after = _clip(before, start, ends), _clip(after, start, ends)  # (N, 1, 4), (N, M, 4)
    sides_before, sides_after = (_sides(boxes[..., :2], boxes[..., 2:]) for boxes in (before, after))
    overlap = _sides(np.maximum(before[..., :2], after[..., :2]), np.minimum(before[..., 2:], after[..., 2:]))
    area_before, area_after, overlap_area = (
        extent.prod(axis=-1) for extent in (sides_before, sides_after, overlap)
    )
    iou = _ratio(overlap_area, area_before + area_after - overlap_area)
    in_time = _ratio(overlap, np.minimum(sides_before, sides_after))[..., 0]
    in_band = _ratio(overlap, sides_before + sides_after - overlap)[..., 1]
    return np.where(continues, in_time * in_band, iou), _ratio(
        overlap_area, np.minimum(area_before, area_after)
    )


def _bounds(fragments: Sequence[_Fragment]) -> Floats:
    return np.array([(fragment.start, fragment.low, fragment.end, fragment.high) for fragment in fragments])


def _clip(boxes: Floats, start: float, ends: Floats) -> Floats:
    """Clip boxes to a span slightly wider than the shared time, and extend them to its ends where they come close.

    If chunks share no time, this span still has a length, and boxes on either side of the boundary fill it.
    (N or 1, M or 1, 4), (N, 1) → (N, M or 1, 4)
    """
    box_start = np.where(boxes[..., 0] <= start + EDGE_FRAMES, start - EDGE_FRAMES, boxes[..., 0])
    box_end = np.where(boxes[..., 2] >= ends - EDGE_FRAMES, ends + EDGE_FRAMES, boxes[..., 2])
    return np.stack(np.broadcast_arrays(box_start, boxes[..., 1], box_end, boxes[..., 3]), axis=-1)


def _sides(start_low: Floats, end_high: Floats) -> Floats:
    """Return the extent in frames and bins, 0 if the corners are swapped. (…, 2), (…, 2) → (…, 2)"""
    return (end_high - start_low).clip(min=0)


def _ratio(part: Floats, total: Floats) -> Floats:
    """Divide elementwise; 0 where the denominator is 0."""
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)


def _pairs(overlap: Floats) -> dict[int, int]:
    """Pair rows and columns one to one, best first; ties go to the earlier row and column. (N, M) → column by row"""
    rows, columns = np.nonzero(overlap >= MIN_OVERLAP)
    pairs: dict[int, int] = {}
    used = set()
    for pair in np.argsort(-overlap[rows, columns], kind="stable"):
        row, column = int(rows[pair]), int(columns[pair])
        if row not in pairs and column not in used:
            pairs[row] = column
            used.add(column)
    return pairs


def _belongs_to_track(fragment: _Fragment, tracks: Sequence[_Track], agrees: NDArray[np.bool_]) -> bool:
    """Return whether a fragment cut at its chunk's start lies in a track of an earlier chunk that covers all of it."""
    is_cut = fragment.start <= fragment.chunk_start + EDGE_FRAMES
    return is_cut and any(
        agrees[row] and fragment.end <= track.fragments[-1].chunk_end for row, track in enumerate(tracks)
    )


def _belongs_to_fragment(track: _Track, later: _Fragment) -> bool:
    """Return whether a track is cut at its chunk's end, and the later fragment's chunk covers all of it."""
    last = track.fragments[-1]
    return last.end >= last.chunk_end - EDGE_FRAMES and track.earliest >= later.chunk_start


def _extend(track: _Track, fragment: _Fragment) -> tuple[_Track, list[StitchedEvent]]:
    """Add a fragment to a track; if the track is too long already, emit it as a piece and start a new one."""
    middle = _middle(track.fragments[-1], fragment)
    if middle - track.earliest > LONGEST_FRAMES and fragment.end > middle:
        return _Track((fragment,), min_start=middle), [track.resolve(max_end=middle)]
    return _Track((*track.fragments, fragment), track.min_start), []
