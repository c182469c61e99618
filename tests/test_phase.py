"""What the comparison of chunk phases counts: calls that a chunk cuts, and sounds that are found again."""

import numpy as np
from experiments.phase import Tally, cut_by_chunks, is_among, share
from hypothesis import given
from hypothesis import strategies as st

HOP_S, CHUNK_S = 4.5, 5.0


def test_without_calls_nothing_is_cut_and_without_sounds_nothing_is_found():
    assert cut_by_chunks(np.zeros((0, 4)), 0.0, HOP_S, CHUNK_S).tolist() == []
    assert is_among(np.zeros((0, 4)), np.zeros((0, 5)), 0.9).tolist() == []
    assert is_among(np.array([[0.0, 100, 1, 200]]), np.zeros((0, 5)), 0.9).tolist() == [False]
    assert share([Tally()]) is None


def test_a_call_is_cut_by_a_chunks_start_or_end_but_not_by_the_recordings_start():
    spans = [(0.0, 1.0), (4.0, 4.4), (4.4, 4.6), (4.9, 5.1), (8.9, 9.1), (5.1, 8.9)]
    calls = np.array([(start, 100.0, end, 200.0) for start, end in spans])
    assert cut_by_chunks(calls, 0.0, HOP_S, CHUNK_S).tolist() == [False, False, True, True, True, False]


@given(st.floats(0, 60), st.floats(0.05, 3), st.floats(0, 4))
def test_calls_are_cut_as_chunk_after_chunk_says(start_s, length_s, begin_s):
    end_s = start_s + length_s
    edges = [begin_s + number * HOP_S for number in range(1, 30)]
    edges += [begin_s + number * HOP_S + CHUNK_S for number in range(30)]
    call = np.array([[start_s, 100.0, end_s, 200.0]])
    assert cut_by_chunks(call, begin_s, HOP_S, CHUNK_S)[0] == any(start_s < edge < end_s for edge in edges)


def test_a_sound_is_found_again_only_where_it_was():
    sounds = np.array([[1.0, 100, 2, 200], [3.0, 100, 4, 200]])
    events = np.array([[1.0, 100, 2.05, 200, 0.9], [3.3, 100, 4, 200, 0.8]])
    assert is_among(sounds, events, 0.9).tolist() == [True, False]
    assert is_among(sounds, events, 0.5).tolist() == [True, True]
    tally = Tally()
    tally.add(is_among(sounds, events, 0.9))
    assert share([tally, Tally()]) == 0.5
