"""Boxes of chunks put together to the sounds of a recording, whatever the chunks' phase, hop and length."""

import itertools
import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.detection.stitching import EDGE_FRAMES, LONGEST_FRAMES, stitch
from mast.models.decoding import Detections

CHUNK = 1000.0
"""Chunks of the cases by hand; those that overlap do so by 200 frames: 0 to 1000, 800 to 1800, …"""


def heard(start, *rows):
    """A chunk from a frame on, with rows of (start, low, end, high, score) in frames of the recording."""
    values = torch.from_numpy(
        np.array(rows, dtype=np.float64).reshape(-1, 5) - [start, 0, start, 0, 0]
    ).float()
    return float(start), Detections(values[:, :4], values[:, 4])


def stitched(*chunks, frames=CHUNK):
    """Sounds as rows of (start, low, end, high, score), rounded."""
    return [tuple(round(value, 2) for value in astuple(sound)[:5]) for sound in stitch(chunks, frames)]


def test_without_chunks_or_without_boxes_there_is_no_sound():
    assert stitched() == []
    assert stitched(heard(0), heard(800)) == []


def test_boxes_of_a_single_chunk_stay_as_they_are_by_start_and_then_low():
    late, high, low = (500, 10, 600, 20, 0.9), (100, 40, 200, 50, 0.8), (100, 10, 900, 20, 0.7)
    assert stitched(heard(0, late, high, low)) == [low, high, late]


def test_a_call_that_two_chunks_hear_whole_is_reported_once_with_the_surer_band_and_score():
    assert stitched(heard(0, (850, 10, 950, 20, 0.6)), heard(800, (852, 11, 953, 21, 0.9))) == [
        (850, 11, 953, 21, 0.9)  # each edge from the chunk in which it lies deeper: the middle is at 900
    ]


def test_a_call_cut_by_a_chunks_edge_is_reported_once_with_the_edges_and_the_score_of_its_whole():
    part, whole = (950, 12, 1000, 20, 0.9), (948, 10, 1200, 20, 0.7)
    assert stitched(heard(0, part), heard(800, whole)) == [whole]
    whole, part = (600, 10, 830, 20, 0.7), (800, 12, 834, 20, 0.9)
    assert stitched(heard(0, whole), heard(800, part)) == [whole]


def test_a_call_takes_its_vector_from_the_chunk_that_hears_most_of_it():
    (start, first), (later, second) = heard(0, (600, 10, 1000, 20, 0.9)), heard(800, (800, 11, 1600, 21, 0.8))
    first, second = replace(first, vectors=torch.zeros(1, 2)), replace(second, vectors=torch.ones(1, 2))
    (sound,) = stitch([(start, first), (later, second)], CHUNK)
    assert sound.vector.tolist() == [1, 1]


def test_a_call_that_no_chunk_hears_whole_gets_each_edge_from_the_chunk_that_has_it():
    left, right = (600, 10, 1000, 20, 0.5), (800, 11, 1600, 21, 0.8)
    assert stitched(heard(0, left), heard(800, right)) == [(600, 11, 1600, 21, 0.8)]


def test_an_edge_is_not_taken_from_a_chunk_that_merely_starts_to_hear_or_ceases_to():
    early, late = (3, 10, 950, 20, 0.9), (860, 10, 1200, 20, 0.8)  # each stops short of where it is cut
    assert stitched(heard(0, early), heard(800, late)) == [(3, 10, 1200, 20, 0.9)]
    wider, after = (860, 10, 1200, 32, 0.8), (940, 10, 1200, 20, 0.8)
    assert stitched(heard(0, early), heard(800, wider)) == [early, wider]
    assert stitched(heard(0, early), heard(800, after)) == [early, after]


def test_a_call_longer_than_a_chunk_is_one_event():
    views = [(700, 1000), (800, 1800), (1600, 2600), (2400, 2900)]
    chunks = [
        heard(800 * number, (start, 10, end, 20, 0.5 + number / 10))
        for number, (start, end) in enumerate(views)
    ]
    assert stitched(*chunks) == [(700, 10, 2900, 20, 0.7)]


def test_two_calls_at_once_in_other_bands_stay_two_events_over_an_edge():
    high, low = (700, 60, 1300, 70, 0.9), (750, 10, 1250, 20, 0.8)
    first = [(700, 60, 1000, 70, 0.9), (750, 10, 1000, 20, 0.8)]
    second = [(800, 60, 1300, 70, 0.9), (800, 10, 1250, 20, 0.8)]
    for swapped in (second, second[::-1]):
        assert stitched(heard(0, *first), heard(800, *swapped)) == [high, low]


def test_a_box_is_in_one_pair_only_and_the_pair_that_agrees_best_comes_first():
    exact, near = (700, 10, 1000, 20, 0.5), (700, 13, 1000, 23, 0.9)
    longer = (800, 10, 1500, 20, 0.5)
    assert stitched(heard(0, near, exact), heard(800, longer)) == [(700, 10, 1500, 20, 0.5), near]


def test_chunks_that_only_touch_join_what_meets_at_the_seam_in_one_band():
    left, right = (700, 10, 998, 20, 0.9), (1003, 10, 1200, 21, 0.8)
    assert stitched(heard(0, left), heard(1000, right)) == [(700, 10, 1200, 20, 0.9)]
    higher, later = (1003, 16, 1200, 26, 0.8), (1000 + EDGE_FRAMES + 1, 10, 1200, 20, 0.8)
    assert stitched(heard(0, left), heard(1000, higher)) == [left, higher]
    assert stitched(heard(0, left), heard(1000, later)) == [left, later]


def test_chunks_with_a_gap_between_them_are_no_neighbours():
    left, right = (700, 10, 1000, 20, 0.9), (1500, 10, 1700, 20, 0.8)
    assert stitched(heard(0, left), heard(1500, right)) == [left, right]


def test_a_call_that_one_of_many_overlapping_chunks_misses_is_reported_once():
    call = (620, 10, 700, 20, 0.9)
    assert stitched(heard(0, call), heard(300), heard(600, call)) == [call]


def test_a_part_that_a_chunk_draws_unlike_the_whole_is_left_out():
    whole = (950, 10, 1200, 20, 0.7)
    for part in ((940, 8, 1000, 40, 0.9), (980, 14, 995, 17, 0.9)):
        assert stitched(heard(0, part), heard(800, whole)) == [whole]
    whole = (600, 10, 850, 20, 0.7)
    for part in ((800, 8, 860, 40, 0.9), (804, 14, 815, 17, 0.9)):
        assert stitched(heard(0, whole), heard(800, part)) == [whole]


def test_of_two_unlike_parts_at_both_edges_one_stays():
    assert stitched(heard(0, (900, 10, 1000, 20, 0.9)), heard(800, (800, 10, 960, 20, 0.8))) == [
        (900, 10, 1000, 20, 0.9)
    ]


def test_a_box_that_is_not_cut_or_of_which_nobody_else_hears_all_is_not_taken_for_a_part():
    whole = (950, 10, 1200, 40, 0.7)
    inside = (960, 14, 985, 17, 0.9)
    assert stitched(heard(0, inside), heard(800, whole)) == [whole, inside]
    long, short = (300, 10, 1000, 40, 0.9), (900, 14, 950, 17, 0.8)
    assert stitched(heard(0, long), heard(800, short)) == [long, short]
    short, long = (850, 14, 900, 17, 0.8), (800, 10, 1500, 40, 0.9)
    assert stitched(heard(0, short), heard(800, long)) == [long, short]


def test_a_call_is_given_as_soon_as_no_later_chunk_can_change_it_or_come_before_it():
    fed = []

    def chunks():
        for number in itertools.count():  # without end
            fed.append(number)
            start = 800 * number
            yield heard(
                start, (start + 300, 10, start + 400, 20, 0.9), (start + 500, 40, start + 600, 50, 0.8)
            )

    for number, sound in enumerate(itertools.islice(stitch(chunks(), CHUNK), 100)):
        assert sound.start_frames == 800 * (number // 2) + (300, 500)[number % 2]
        assert fed[-1] <= number // 2 + 1


def test_a_sound_without_end_is_told_in_pieces_that_touch_and_holds_up_nothing_for_long():
    fed = []

    def chunks():
        for number in itertools.count():
            fed.append(number)
            start = 500 * number
            yield heard(start, (start, 10, start + 1000, 20, 0.9), (start + 300, 40, start + 400, 50, 0.8))

    sounds = list(itertools.islice(stitch(chunks(), CHUNK), 500))
    assert sounds == sorted(sounds)
    pieces = [sound for sound in sounds if sound.high_bins == 20]
    assert len(pieces) > 2 and pieces[0].start_frames == 0
    assert all(one.end_frames == other.start_frames for one, other in itertools.pairwise(pieces))
    assert all(
        LONGEST_FRAMES < piece.end_frames - piece.start_frames <= LONGEST_FRAMES + 500 for piece in pieces
    )
    assert fed[-1] * 500 - sounds[-1].start_frames < LONGEST_FRAMES + 2 * CHUNK
    calls = [sound.start_frames for sound in sounds if sound.high_bins == 50]
    assert calls == [500.0 * number + 300 for number in range(len(calls))]


# An ideal detector tells of each sound the part that lies in the chunk. Sounds of one lane of bins keep apart in time,
# and lanes overlap by a little.
LANES, LANE_BINS, LAP_BINS = 4, 16, 3


@st.composite
def recordings(draw, min_frames=1.0, gap_frames=2 * EDGE_FRAMES + 1):
    """Sounds as rows of (start, low, end, high, score), and chunks of any length, hop and phase over them."""
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
    sounds = np.array(rows).reshape(-1, 5)
    starts = np.arange(phase, sounds[:, 2].max(initial=frames), hop)
    return sounds, starts, frames


def parts(sounds, start, frames):
    """What lies of each sound in a chunk, in frames of the recording; and the sounds' rows."""
    cut = sounds.copy()
    cut[:, [0, 2]] = np.clip(sounds[:, [0, 2]], start, start + frames)
    rows = np.flatnonzero(cut[:, 2] > cut[:, 0])
    return cut[rows], rows


def told(sounds):
    return np.array([astuple(sound)[:5] for sound in sounds]).reshape(-1, 5)


def in_order(rows):
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


@settings(max_examples=150)
@given(recordings())
def test_an_ideal_detector_gives_back_exactly_the_sounds_for_any_phase_hop_and_length_of_chunks(made):
    sounds, starts, frames = made
    found = told(stitch((heard(start, *parts(sounds, start, frames)[0]) for start in starts), frames))
    assert found.shape == sounds.shape
    np.testing.assert_allclose(found, in_order(sounds), atol=0.01)


def naive(views):
    """Views (chunk start, box …) joined by trying every two of them: the least box around all that hang together."""
    parent = list(range(len(views)))

    def root(number):
        while parent[number] != number:
            number = parent[number]
        return number

    for one, other in itertools.combinations(range(len(views)), 2):
        if is_same(*views[one], *views[other]):
            parent[root(one)] = root(other)
    groups = {}
    for number, (_, _, box) in enumerate(views):
        groups.setdefault(root(number), []).append(box)
    united = [[*np.min(boxes, axis=0)[:2], *np.max(boxes, axis=0)[2:]] for boxes in groups.values()]
    return in_order(np.array(united).reshape(-1, 5))


def is_same(start, frames, box, other_start, _, other):
    """Whether two boxes share half of what both chunks hear of them, or of the band at a seam."""
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
def test_the_views_of_an_ideal_detector_hang_together_as_in_a_plain_union_of_all_pairs(made):
    sounds, starts, frames = made
    views = [(start, frames, row) for start in starts for row in parts(sounds, start, frames)[0]]
    found = told(stitch((heard(start, *parts(sounds, start, frames)[0]) for start in starts), frames))
    expected = naive(views)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=0.01)


@settings(max_examples=150)
@given(recordings(min_frames=40.0, gap_frames=40.0), st.integers(0, 2**32 - 1))
def test_a_detector_that_is_a_little_off_and_blind_to_short_parts_still_tells_each_sound_once(made, seed):
    sounds, starts, frames = made
    rng = np.random.default_rng(seed)

    def hears(start):
        rows, _ = parts(sounds, start, frames)
        rows = rows[rows[:, 2] - rows[:, 0] >= 10]
        rows[:, [0, 2]] += rng.uniform(-2, 2, (len(rows), 2))
        rows[:, [1, 3]] += rng.uniform(-0.5, 0.5, (len(rows), 2))
        rows[:, [0, 2]] = np.clip(rows[:, [0, 2]], start, start + frames)
        rows[:, 4] = rng.uniform(0.1, 1, len(rows))
        return heard(start, *rows)

    found = told(stitch([hears(start) for start in starts], frames))
    assert found.shape == sounds.shape
    for row in found:  # the blind spot of 10 frames and twice the error
        assert np.abs(sounds[:, :4] - row[:4]).max(axis=1).min() < 14


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9, 0.5, 0.2]))
def test_of_any_boxes_come_sounds_in_order_made_of_their_bounds_and_scores(seed, share):
    rng = np.random.default_rng(seed)
    chunks = []
    for number in range(12):
        count = int(rng.integers(0, 12))
        corner = rng.uniform(0, [95, 30], (count, 2))
        far = corner + rng.uniform(1, [60, 10], (count, 2))
        boxes = np.hstack([corner, np.minimum(far, [100, 40])])
        chunks.append(
            (100 * share * number, Detections(torch.tensor(boxes), torch.tensor(rng.random(count))))
        )
    sounds = list(stitch(chunks, 100.0))
    assert sounds == sorted(sounds) == list(stitch(iter(chunks), 100.0))
    assert all(sound.start_frames < sound.end_frames and sound.low_bins < sound.high_bins for sound in sounds)
    views = {
        (round(low, 6), round(high, 6), round(score, 6))
        for _, found in chunks
        for (_, low, _, high), score in zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
    }
    made = [(round(sound.low_bins, 6), round(sound.high_bins, 6), round(sound.score, 6)) for sound in sounds]
    assert set(made) <= views and len(set(made)) == len(made)
    every = [start + edge for start, found in chunks for edge in found.boxes[:, ::2].flatten().tolist()]
    assert all(
        any(math.isclose(edge, other) for other in every)
        for s in sounds
        for edge in (s.start_frames, s.end_frames)
    )


def test_where_the_recording_breaks_off_what_was_heard_before_is_given_first():
    def chunks():
        yield heard(0, (100, 10, 200, 20, 0.9), (900, 10, 1000, 20, 0.8))
        raise OSError("the card ends here")

    sounds = stitch(chunks(), CHUNK)
    assert [next(sounds).start_frames, next(sounds).start_frames] == [100, 900]
    with pytest.raises(OSError, match="card ends"):
        next(sounds)
