"""What to show next: each queue asks for what it promises, says why, never asks twice, and is quick with a million."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.detection.found import open_found
from mast.errors import StorageError
from mast.review.alike import false_alarms, grouped, nearest, novel
from mast.review.asking import ASKS_FOR, queues_of
from mast.review.queues import QUEUES, STRATA, audit, audit_order, in_order, lots, uncertain
from mast.review.sounds import heard_of, rank_within, sounds_of
from mast.review.spans import minutes
from tests.detection.runs import night, write_run
from tests.embeddings.runs import made_table
from tests.review.made import decided_as, field_season, heard, scored, sounds, span, verdict

EVERY = {
    **QUEUES,
    "balanced": lambda *given: minutes(*given, heard=field_season()),
    "false alarms": lambda *given: false_alarms(*given, vectors=None),
}


def names(asks) -> list[str]:
    return [name for ask in asks for name in ask.subjects]


# ---------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", QUEUES)
def test_nothing_is_asked_of_nothing(name):
    assert QUEUES[name](sounds([]), {}, 5) == []


@pytest.mark.parametrize("name", EVERY)
def test_what_somebody_has_decided_is_not_asked_again_but_what_was_undone_is(name):
    table = scored(np.linspace(0.3, 0.9, 12), recordings=3)
    decided = decided_as(table, ["rejected"] * 11 + ["open"])
    asked = names(EVERY[name](table, decided, 20))
    assert asked in ([table["event_id"][11].as_py()], [])  # minutes lie in other recordings
    assert name == "balanced" or asked


@pytest.mark.parametrize("name", EVERY)
def test_every_ask_says_why_in_one_short_sentence_and_is_asked_again_the_same(name):
    table = scored(np.linspace(0.3, 0.9, 40), recordings=3, threshold=0.5)
    decided = decided_as(table, ["rejected"])
    asks = EVERY[name](table, decided, 5)
    assert len(asks) == 5 == len(set(asks))
    assert asks == EVERY[name](table, decided, 5)
    assert all(0 < len(ask.why) < 100 and "\n" not in ask.why for ask in asks)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=30))
@settings(max_examples=50)
def test_places_within_groups_are_those_of_sorting_each_group(rows):
    groups, keys = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    ranks = rank_within(groups, keys)
    for group in set(groups.tolist()):
        own = np.flatnonzero(groups == group)
        assert ranks[own].tolist() == np.argsort(np.argsort(keys[own], kind="stable")).tolist()


def test_a_million_sounds_take_seconds():
    rng = np.random.default_rng(0)
    count = 1_000_000
    few = sounds([{}])
    columns = {name: pa.array(np.zeros(count)) for name in ("start_s", "end_s", "low_hz", "high_hz")}
    columns |= {
        "recording_id": pa.array(np.char.add("card/", (np.arange(count) % 2000).astype(str))),
        "score": pa.array(rng.random(count)),
        "site": pa.array(["ridge"] * count),
        "event_id": pa.array(np.char.zfill(np.arange(count).astype(str), 20)),
    }
    table = pa.table(columns)
    assert set(columns) <= set(few.schema.names)
    season = heard([(f"card/{row}", "ridge", datetime(2024, 5, 1, row % 24), 3600.0) for row in range(2000)])
    decided = decided_as(few, [])
    for queue in (
        in_order,
        uncertain,
        audit,
        lambda *given: minutes(*given, heard=season, liking="doubtful"),
    ):
        start_s = time.process_time()
        assert len(queue(table, decided, 50)) == 50
        assert time.process_time() - start_s < 10  # a second or two, on a machine at rest


# ---------------------------------------------------------------------------------------------- one by one


def test_in_order_goes_along_the_recordings():
    table = scored([0.9, 0.1, 0.5])
    decided = decided_as(table, [None, "accepted"])
    assert names(in_order(table, decided, 5)) == [table["event_id"][0].as_py(), table["event_id"][2].as_py()]


def test_uncertain_takes_what_scores_nearest_the_threshold():
    table = scored([0.9, 0.31, 0.5, 0.35], threshold=0.3)
    asks = uncertain(table, {}, 3)
    assert [ask.start_s for ask in asks] == [1.0, 3.0, 2.0]
    assert asks[0].why == "scores 0.31, where 0.30 decides"


def test_uncertain_asks_for_every_recording_before_it_asks_for_a_second_of_one():
    table = scored([0.5, 0.8, 0.51, 0.9, 0.52, 0.95], recordings=2)
    first, second, *_ = uncertain(table, {}, 6)
    assert {first.recording_id, second.recording_id} == {"card/0.WAV", "card/1.WAV"}
    assert (first.start_s, second.start_s) == (0.0, 1.0)


def test_an_audit_takes_equally_many_of_each_bin_of_scores():
    table = scored(np.concatenate([np.full(500, 0.25), np.full(60, 0.65), np.full(30, 0.95)]))
    scores = dict(zip(table["event_id"].to_pylist(), table["score"].to_pylist(), strict=True))
    assert Counter(scores[name] for name in names(audit(table, {}, 60))) == {0.25: 20, 0.65: 20, 0.95: 20}


def test_a_longer_audit_begins_as_a_shorter_one():
    table = scored(np.random.default_rng(0).random(300))
    assert names(audit(table, {}, 200))[:50] == names(audit(table, {}, 50))


def test_the_lots_of_an_audit_are_fair_to_all_and_other_ones_for_another_seed():
    table = scored(np.full(400, 0.55))
    drawn = np.zeros(400)
    for seed in range(300):
        _, rank = audit_order(table, seed)
        drawn += rank < 100
    assert abs(drawn.mean() / 300 - 0.25) < 1e-9
    spread = np.sqrt(300 * 0.25 * 0.75)
    assert np.abs(drawn - 75).max() < 4.5 * spread  # the largest of 400
    assert abs(drawn.std() / spread - 1) < 0.15
    assert len(np.unique(lots(table["event_id"], 0))) == 400


def test_bins_hold_their_lower_edge_and_the_highest_score():
    strata, _ = audit_order(scored([0.0, 0.1, 0.29999, 0.3, 0.7, 1.0]))
    assert strata.tolist() == [0, 1, 2, 3, 7, STRATA - 1]


# ---------------------------------------------------------------------------------------------- minutes


def test_minutes_are_spread_over_hours_sites_and_days():
    asks = minutes(sounds([]), {}, 24, heard=field_season())
    start = {row["recording_id"]: row["start_local"] for row in field_season().to_pylist()}
    assert len({start[ask.recording_id].hour for ask in asks}) == 24
    assert Counter(ask.recording_id[5:7] for ask in asks) == {"S0": 8, "S1": 8, "S2": 8}
    assert "little was reviewed so far from" in asks[0].why


def test_days_come_in_turn_within_an_hour_and_site():
    season = field_season(sites=1, days=4, every_min=1440)
    asks = minutes(sounds([]), {}, 4, heard=season)
    assert len({ask.recording_id for ask in asks}) == 4  # of each day one, though each has three minutes


def test_hours_that_were_reviewed_come_later_and_no_moment_comes_twice():
    season = field_season(sites=1, days=1, every_min=720)  # midnight and noon, three minutes each
    done = {"a": span("card/S0/10_0000.WAV", 0.0, 90.0)}
    asks = minutes(sounds([]), done, 10, heard=season)
    assert [ask.recording_id for ask in asks[:1]] == ["card/S0/10_1200.WAV"]
    spans = [(ask.recording_id, ask.start_s) for ask in asks]
    assert sorted(spans) == [("card/S0/10_0000.WAV", 120.0)] + [
        ("card/S0/10_1200.WAV", at_s) for at_s in (0.0, 60.0, 120.0)
    ]
    undone = {"a": span("card/S0/10_0000.WAV", 0.0, 90.0, state="open")}
    assert len(minutes(sounds([]), undone, 10, heard=season)) == 6


def test_a_doubtful_minute_comes_before_its_neighbours_and_names_its_sounds():
    season = heard([("card/1.WAV", "ridge", datetime(2024, 5, 10, 5), 180.0)])
    table = sounds([{"start_s": 10.0, "end_s": 10.5, "score": 0.95}, {"start_s": 70.0, "end_s": 70.5}])
    (ask,) = minutes(table, {}, 1, heard=season, liking="doubtful")
    assert (ask.start_s, ask.end_s, ask.subjects) == (60.0, 120.0, (table["event_id"][1].as_py(),))
    assert ask.why == "little was reviewed so far from 05 h at ridge, and its 1 open sounds are most in doubt"


def test_recordings_of_any_length_and_without_a_clock_are_cut_into_minutes():
    season = heard([("a", None, None, 20.0), ("b", None, None, 100.0), ("c", None, None, 80.0)])
    asks = minutes(sounds([]), {}, 10, heard=season)
    spans = sorted((ask.recording_id, ask.start_s, ask.end_s) for ask in asks)
    assert spans == [("a", 0.0, 20.0), ("b", 0.0, 60.0), ("b", 60.0, 100.0), ("c", 0.0, 60.0)]
    assert asks[0].why == "little was reviewed so far from an unknown hour"


# ---------------------------------------------------------------------------------------------- how sounds sound


@pytest.fixture
def voices(tmp_path):
    """Sounds of three kinds, 60, 30 and 10 of each, with vectors that lie together, and where these are."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [60, 30, 10])
    vectors = np.eye(8)[kind] + 0.05 * rng.normal(size=(100, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = scored(np.linspace(0.3, 0.99, 100))
    place = str(tmp_path / "embeddings.lance")
    made_table(place, vectors, event_id=table["event_id"].to_pylist())
    return table, kind, place


def kinds_of(asks, table, kind) -> list[int]:
    of = dict(zip(table["event_id"].to_pylist(), kind.tolist(), strict=True))
    return [of[name] for name in names(asks)]


def test_novel_shows_one_of_each_group_the_largest_first(voices):
    table, kind, place = voices
    asks = novel(table, {}, 3, vectors=place)
    assert kinds_of(asks, table, kind) == [0, 1, 2]
    assert asks[0].why == "of a group that nobody has looked at, one of 60 that are alike"


def test_novel_looks_away_from_what_was_decided(voices):
    table, kind, place = voices
    decided = decided_as(table, np.where(kind == 0, "accepted", None))  # the first kind is known
    asks = novel(table, decided, 2, vectors=place)
    assert set(kinds_of(asks, table, kind)) <= {1, 2}
    assert asks[0].why.startswith("unlike all that was decided so far")
    everything = decided_as(table, ["accepted"] * 100)
    assert novel(table, everything, 2, vectors=place) == []


def test_without_vectors_novel_says_how_to_make_them(tmp_path):
    with pytest.raises(StorageError, match="there are no vectors. Make them with mast embed"):
        novel(scored([0.5]), {}, 1, vectors=str(tmp_path / "embeddings.lance"))


def test_groups_of_nothing_are_none_and_equal_sounds_are_one():
    rows, sizes = grouped(np.zeros((0, 4), np.float32), 3)
    assert (len(rows), sizes) == (0, [])
    rows, sizes = grouped(np.ones((5, 4), np.float32), 3)
    assert (rows.tolist(), sizes) == ([0], [5])


def test_false_alarms_are_high_scores_that_sound_like_a_rejected_one(voices):
    table, kind, place = voices
    first_of = [int(np.flatnonzero(kind == own)[0]) for own in (0, 1)]
    states = [None] * 100
    states[first_of[0]], states[first_of[1]] = "accepted", "rejected"
    asks = false_alarms(table, decided_as(table, states), 40, vectors=place)
    told = Counter(kinds_of(asks, table, kind))
    assert told[0] == 0 and told[1] == 29
    scores = [float(ask.why.split()[1].strip(",")) for ask in asks]
    assert scores == sorted(scores, reverse=True)
    assert asks[0].why.endswith("yet sounds like one that was rejected")


def test_without_vectors_false_alarms_go_by_band_length_and_site_and_say_so():
    low = [{"low_hz": 200.0, "high_hz": 600.0, "score": 0.6 + number / 100} for number in range(5)]
    high = [{"low_hz": 4000.0, "high_hz": 6000.0, "score": 0.9} for _ in range(5)]
    table = sounds([*low, *high])
    decided = decided_as(table, ["rejected", None, None, None, None, "accepted"])
    asks = false_alarms(table, decided, 20, vectors=None)
    assert [ask.start_s for ask in asks] == [4.0, 3.0, 2.0, 1.0]
    assert "has the band and length of a rejected one" in asks[0].why and "mast embed" in asks[0].why


def test_without_a_rejected_sound_there_are_no_false_alarms_to_hunt():
    table = scored([0.5, 0.9])
    assert false_alarms(table, decided_as(table, ["accepted"]), 5, vectors=None) == []
    assert false_alarms(sounds([]), {"x": verdict("x", "rejected")}, 5, vectors=None) == []


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=20)
def test_the_nearest_known_one_is_the_nearest_of_all(count, known, seed):
    rng = np.random.default_rng(seed)
    found, others = (rng.normal(size=(size, 3)).astype(np.float32) for size in (count, known))
    naive = ((found[:, None] - others) ** 2).sum(axis=2).min(axis=1)
    assert np.allclose(nearest(found, others, rows_at_once=7), naive, atol=1e-4)


# ---------------------------------------------------------------------------------------------- of a run


def test_a_run_has_every_queue_and_tells_what_each_is_for(tmp_path):
    found = open_found(write_run(tmp_path / "found", night()))
    queues, table = queues_of(found), sounds_of(found)
    assert queues.keys() == ASKS_FOR.keys()
    assert table.num_rows == 3 and float(table.schema.metadata[b"mast.threshold"]) == 0.2
    assert heard_of(found)["effort_s"].to_pylist() == [60.0, 60.0, 12.0]
    assert len(queues["balanced"](table, {}, 9)) == 3  # also the recording without sounds
    assert queues["audit"](table, {}, 9)


def test_a_run_without_recordings_asks_for_nothing(tmp_path):
    found = open_found(write_run(tmp_path / "found", []))
    table = sounds_of(found)
    for name, queue in queues_of(found).items():
        assert name == "novel" or queue(table, {}, 3) == []


def test_clocks_that_pass_midnight_count_in_the_next_day():
    season = heard([("a", "ridge", datetime(2024, 5, 10, 23, 59), 120.0)])
    asks = minutes(sounds([]), {}, 2, heard=season)
    assert sorted(ask.why[-15:] for ask in asks) == ["m 00 h at ridge", "m 23 h at ridge"]
    assert timedelta(0) < season["start_local"][0].as_py() - datetime(2024, 5, 10)
