"""Stitching of chunk detections into events, for any phase, hop and length of the chunks."""

import itertools
import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.detection.stitching import EDGE_FRAMES, LONGEST_FRAMES, stitch
from mast.models.postprocess import ChunkDetections

CHUNK = 1000.0
"""Length of the chunks in cases by hand; overlapping ones share 200 frames: 0 to 1000, 800 to 1800, …"""


def chunk(start, *rows):
    """Build a chunk that starts at `start`, with rows of (start, low, end, high, score) in frames of the recording."""
    values = torch.from_numpy(
        np.array(rows, dtype=np.float64).reshape(-1, 5) - [start, 0, start, 0, 0]
    ).float()
    return float(start), ChunkDetections(values[:, :4], values[:, 4])


def stitched(*chunks, frames=CHUNK):
    """Stitch chunks to rows of (start, low, end, high, score), rounded."""
    return [tuple(round(value, 2) for value in astuple(event)[:5]) for event in stitch(chunks, frames)]


def test_without_chunks_or_boxes_there_is_no_event():
    assert stitched() == []
    assert stitched(chunk(0), chunk(800)) == []


def test_boxes_of_a_single_chunk_stay_as_they_are_by_start_and_then_low():
    late, high, low = (500, 10, 600, 20, 0.9), (100, 40, 200, 50, 0.8), (100, 10, 900, 20, 0.7)
    assert stitched(chunk(0, late, high, low)) == [low, high, late]


def test_a_call_completely_in_two_chunks_is_reported_once_with_the_band_of_the_higher_score():
    assert stitched(chunk(0, (850, 10, 950, 20, 0.6)), chunk(800, (852, 11, 953, 21, 0.9))) == [
        (850, 11, 953, 21, 0.9)  # each edge from the chunk with more context: the midpoint is at 900
    ]


def test_a_call_cut_by_a_chunk_boundary_is_reported_once_with_edges_and_score_of_the_complete_box():
    part, complete = (950, 12, 1000, 20, 0.9), (948, 10, 1200, 20, 0.7)
    assert stitched(chunk(0, part), chunk(800, complete)) == [complete]
    complete, part = (600, 10, 830, 20, 0.7), (800, 12, 834, 20, 0.9)
    assert stitched(chunk(0, complete), chunk(800, part)) == [complete]


def test_a_call_takes_its_vector_from_the_chunk_that_covers_most_of_it():
    (start, first), (later, second) = chunk(0, (600, 10, 1000, 20, 0.9)), chunk(800, (800, 11, 1600, 21, 0.8))
    first, second = replace(first, vectors=torch.zeros(1, 2)), replace(second, vectors=torch.ones(1, 2))
    (event,) = stitch([(start, first), (later, second)], CHUNK)
    assert event.vector.tolist() == [1, 1]


def test_a_call_that_no_chunk_covers_completely_gets_each_edge_from_the_chunk_that_has_it():
    left, right = (600, 10, 1000, 20, 0.5), (800, 11, 1600, 21, 0.8)
    assert stitched(chunk(0, left), chunk(800, right)) == [(600, 11, 1600, 21, 0.8)]


def test_an_edge_is_not_taken_from_a_chunk_that_starts_or_ends_there():
    early, late = (
        (3, 10, 950, 20, 0.9),
        (860, 10, 1200, 20, 0.8),
    )  # each box stops short of its chunk boundary
    assert stitched(chunk(0, early), chunk(800, late)) == [(3, 10, 1200, 20, 0.9)]
    wider, after = (860, 10, 1200, 32, 0.8), (940, 10, 1200, 20, 0.8)
    assert stitched(chunk(0, early), chunk(800, wider)) == [early, wider]
    assert stitched(chunk(0, early), chunk(800, after)) == [early, after]


def test_a_call_longer_than_a_chunk_is_one_event():
    fragments = [(700, 1000), (800, 1800), (1600, 2600), (2400, 2900)]
    chunks = [
        chunk(800 * number, (start, 10, end, 20, 0.5 + number / 10))
        for number, (start, end) in enumerate(fragments)
    ]
    assert stitched(*chunks) == [(700, 10, 2900, 20, 0.7)]


def test_two_simultaneous_calls_in_different_bands_stay_two_events_over_a_boundary():
    high, low = (700, 60, 1300, 70, 0.9), (750, 10, 1250, 20, 0.8)
    first = [(700, 60, 1000, 70, 0.9), (750, 10, 1000, 20, 0.8)]
    second = [(800, 60, 1300, 70, 0.9), (800, 10, 1250, 20, 0.8)]
    for swapped in (second, second[::-1]):
        assert stitched(chunk(0, *first), chunk(800, *swapped)) == [high, low]


def test_a_box_is_in_one_pair_only_and_the_best_pair_comes_first():
    exact, near = (700, 10, 1000, 20, 0.5), (700, 13, 1000, 23, 0.9)
    longer = (800, 10, 1500, 20, 0.5)
    assert stitched(chunk(0, near, exact), chunk(800, longer)) == [(700, 10, 1500, 20, 0.5), near]


def test_chunks_that_only_touch_join_boxes_that_meet_at_the_boundary_in_one_band():
    left, right = (700, 10, 998, 20, 0.9), (1003, 10, 1200, 21, 0.8)
    assert stitched(chunk(0, left), chunk(1000, right)) == [(700, 10, 1200, 20, 0.9)]
    higher, later = (1003, 16, 1200, 26, 0.8), (1000 + EDGE_FRAMES + 1, 10, 1200, 20, 0.8)
    assert stitched(chunk(0, left), chunk(1000, higher)) == [left, higher]
    assert stitched(chunk(0, left), chunk(1000, later)) == [left, later]


def test_boxes_are_not_joined_over_a_gap_between_chunks():
    left, right = (700, 10, 1000, 20, 0.9), (1500, 10, 1700, 20, 0.8)
    assert stitched(chunk(0, left), chunk(1500, right)) == [left, right]


def test_a_call_missed_in_one_of_many_overlapping_chunks_is_reported_once():
    call = (620, 10, 700, 20, 0.9)
    assert stitched(chunk(0, call), chunk(300), chunk(600, call)) == [call]


def test_a_partial_box_that_differs_from_the_complete_box_is_dropped():
    complete = (950, 10, 1200, 20, 0.7)
    for part in ((940, 8, 1000, 40, 0.9), (980, 14, 995, 17, 0.9)):
        assert stitched(chunk(0, part), chunk(800, complete)) == [complete]
    complete = (600, 10, 850, 20, 0.7)
    for part in ((800, 8, 860, 40, 0.9), (804, 14, 815, 17, 0.9)):
        assert stitched(chunk(0, complete), chunk(800, part)) == [complete]


def test_of_two_different_partial_boxes_at_both_boundaries_one_stays():
    assert stitched(chunk(0, (900, 10, 1000, 20, 0.9)), chunk(800, (800, 10, 960, 20, 0.8))) == [
        (900, 10, 1000, 20, 0.9)
    ]


def test_a_box_that_is_not_cut_or_not_covered_completely_by_another_chunk_is_not_dropped():
    complete = (950, 10, 1200, 40, 0.7)
    inside = (960, 14, 985, 17, 0.9)
    assert stitched(chunk(0, inside), chunk(800, complete)) == [complete, inside]
    long, short = (300, 10, 1000, 40, 0.9), (900, 14, 950, 17, 0.8)
    assert stitched(chunk(0, long), chunk(800, short)) == [long, short]
    short, long = (850, 14, 900, 17, 0.8), (800, 10, 1500, 40, 0.9)
    assert stitched(chunk(0, short), chunk(800, long)) == [long, short]


def test_an_event_is_yielded_as_soon_as_no_later_chunk_can_change_it_or_precede_it():
    consumed = []

    def chunks():
        for number in itertools.count():  # endless
            consumed.append(number)
            start = 800 * number
            yield chunk(
                start, (start + 300, 10, start + 400, 20, 0.9), (start + 500, 40, start + 600, 50, 0.8)
            )

    for number, event in enumerate(itertools.islice(stitch(chunks(), CHUNK), 100)):
        assert event.start_frames == 800 * (number // 2) + (300, 500)[number % 2]
        assert consumed[-1] <= number // 2 + 1


def test_an_endless_event_is_split_into_touching_pieces_and_delays_no_other_for_long():
    consumed = []

    def chunks():
        for number in itertools.count():
            consumed.append(number)
            start = 500 * number
            yield chunk(start, (start, 10, start + 1000, 20, 0.9), (start + 300, 40, start + 400, 50, 0.8))

    events = list(itertools.islice(stitch(chunks(), CHUNK), 500))
    assert events == sorted(events)
    pieces = [event for event in events if event.high_bins == 20]
    assert len(pieces) > 2 and pieces[0].start_frames == 0
    assert all(one.end_frames == other.start_frames for one, other in itertools.pairwise(pieces))
    assert all(
        LONGEST_FRAMES < piece.end_frames - piece.start_frames <= LONGEST_FRAMES + 500 for piece in pieces
    )
    assert consumed[-1] * 500 - events[-1].start_frames < LONGEST_FRAMES + 2 * CHUNK
    calls = [event.start_frames for event in events if event.high_bins == 50]
    assert calls == [500.0 * number + 300 for number in range(len(calls))]


# An ideal detector predicts the part of each event that lies in the chunk. Events of one lane of bins are apart in time,
# and lanes overlap slightly.
LANES, LANE_BINS, LAP_BINS = 4, 16, 3


@st.composite
def recordings(draw, min_frames=1.0, gap_frames=2 * EDGE_FRAMES + 1):
    """Draw events as rows of (start, low, end, high, score), and chunks of any length, hop and phase over them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    frames = draw(st.sampled_from([128.0, 256.0, 1000.0, 1024.0]))
    hop = frames * draw(st.sampled_from([1.0, 0.98, 0.9, 0.75, 0.5, 0.3, 0.1]))
    phase = -frames * draw(st.floats(0, 0.99))
    rows = []
    for lane in range(LANES):
        at = 0.0
        for _ in range(int(rng.integers(0, 4))):
            start = at + gap_frames + rng.exponential(frames / 4)
            at = start + min_frames + rng.exponential(frames * rng.choice([0.05, 0.5, 2]))
            low, high = (
                lane * LANE_BINS + rng.uniform(0, 3),
                (lane + 1) * LANE_BINS + rng.uniform(0, LAP_BINS),
            )
            rows.append((start, low, at, high, rng.uniform(0.1, 1)))
    events = np.array(rows).reshape(-1, 5)
    starts = np.arange(phase, events[:, 2].max(initial=frames), hop)
    return events, starts, frames


def parts(events, start, frames):
    """Return the part of each event in a chunk, in frames of the recording, and the rows of these events."""
    cut = events.copy()
    cut[:, [0, 2]] = np.clip(events[:, [0, 2]], start, start + frames)
    rows = np.flatnonzero(cut[:, 2] > cut[:, 0])
    return cut[rows], rows


def as_rows(events):
    return np.array([astuple(event)[:5] for event in events]).reshape(-1, 5)


def in_order(rows):
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


@settings(max_examples=150)
@given(recordings())
def test_an_ideal_detector_recovers_exactly_the_events_for_any_phase_hop_and_length_of_chunks(case):
    events, starts, frames = case
    result = as_rows(stitch((chunk(start, *parts(events, start, frames)[0]) for start in starts), frames))
    assert result.shape == events.shape
    np.testing.assert_allclose(result, in_order(events), atol=0.01)


def naive(fragments):
    """Join fragments (chunk start, box …) by testing every pair: the smallest box around each connected group."""
    parent = list(range(len(fragments)))

    def root(number):
        while parent[number] != number:
            number = parent[number]
        return number

    for one, other in itertools.combinations(range(len(fragments)), 2):
        if is_same(*fragments[one], *fragments[other]):
            parent[root(one)] = root(other)
    groups = {}
    for number, (_, _, box) in enumerate(fragments):
        groups.setdefault(root(number), []).append(box)
    merged = [[*np.min(boxes, axis=0)[:2], *np.max(boxes, axis=0)[2:]] for boxes in groups.values()]
    return in_order(np.array(merged).reshape(-1, 5))


def is_same(start, frames, box, other_start, _, other):
    """Return whether two boxes share half of the part that both chunks cover, or half of the band at a boundary."""
    if start == other_start:
        return False
    begin, end = max(start, other_start), min(start, other_start) + frames
    (a, b), (c, d) = ((max(x[0], begin), min(x[2], end)) for x in (box, other))
    low, high = max(box[1], other[1]), min(box[3], other[3])
    band = max(0, high - low) / (max(box[3], other[3]) - min(box[1], other[1]))
    if end - begin < 2 * EDGE_FRAMES:
        gap = max(box[0], other[0]) - min(box[2], other[2])
        return end - begin > -1e-3 and gap < 1e-3 and band >= 0.5
    if min(b, d) <= max(a, c):
        return False
    return band * (min(b, d) - max(a, c)) / (max(b, d) - min(a, c)) >= 0.5


@settings(max_examples=60)
@given(recordings())
def test_the_fragments_of_an_ideal_detector_are_joined_as_by_a_plain_union_of_all_pairs(case):
    events, starts, frames = case
    fragments = [(start, frames, row) for start in starts for row in parts(events, start, frames)[0]]
    result = as_rows(stitch((chunk(start, *parts(events, start, frames)[0]) for start in starts), frames))
    expected = naive(fragments)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, atol=0.01)


@settings(max_examples=150)
@given(recordings(min_frames=40.0, gap_frames=40.0), st.integers(0, 2**32 - 1))
def test_a_slightly_inaccurate_detector_that_misses_short_parts_still_yields_each_event_once(case, seed):
    events, starts, frames = case
    rng = np.random.default_rng(seed)

    def predict(start):
        rows, _ = parts(events, start, frames)
        rows = rows[rows[:, 2] - rows[:, 0] >= 10]
        rows[:, [0, 2]] += rng.uniform(-2, 2, (len(rows), 2))
        rows[:, [1, 3]] += rng.uniform(-0.5, 0.5, (len(rows), 2))
        rows[:, [0, 2]] = np.clip(rows[:, [0, 2]], start, start + frames)
        rows[:, 4] = rng.uniform(0.1, 1, len(rows))
        return chunk(start, *rows)

    result = as_rows(stitch([predict(start) for start in starts], frames))
    assert result.shape == events.shape
    for row in result:  # the missed 10 frames and twice the error
        assert np.abs(events[:, :4] - row[:4]).max(axis=1).min() < 14


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9, 0.5, 0.2]))
def test_events_of_any_boxes_are_sorted_and_have_their_bounds_and_scores(seed, hop_fraction):
    rng = np.random.default_rng(seed)
    chunks = []
    for number in range(12):
        count = int(rng.integers(0, 12))
        corner = rng.uniform(0, [95, 30], (count, 2))
        far = corner + rng.uniform(1, [60, 10], (count, 2))
        boxes = np.hstack([corner, np.minimum(far, [100, 40])])
        chunks.append(
            (
                100 * hop_fraction * number,
                ChunkDetections(torch.tensor(boxes), torch.tensor(rng.random(count))),
            )
        )
    events = list(stitch(chunks, 100.0))
    assert events == sorted(events) == list(stitch(iter(chunks), 100.0))
    assert all(event.start_frames < event.end_frames and event.low_bins < event.high_bins for event in events)
    fragments = {
        (round(low, 6), round(high, 6), round(score, 6))
        for _, result in chunks
        for (_, low, _, high), score in zip(result.boxes.tolist(), result.scores.tolist(), strict=True)
    }
    case = [(round(event.low_bins, 6), round(event.high_bins, 6), round(event.score, 6)) for event in events]
    assert set(case) <= fragments and len(set(case)) == len(case)
    edges = [start + edge for start, result in chunks for edge in result.boxes[:, ::2].flatten().tolist()]
    assert all(
        any(math.isclose(edge, other) for other in edges)
        for s in events
        for edge in (s.start_frames, s.end_frames)
    )


def test_events_before_a_broken_part_of_the_recording_are_yielded_before_the_error():
    def chunks():
        yield chunk(0, (100, 10, 200, 20, 0.9), (900, 10, 1000, 20, 0.8))
        raise OSError("unexpected end of file")

    events = stitch(chunks(), CHUNK)
    assert [next(events).start_frames, next(events).start_frames] == [100, 900]
    with pytest.raises(OSError, match="unexpected end"):
        next(events)
