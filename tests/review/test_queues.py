"""Review queues: order, reasons, no decided events, and speed with a million events."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.errors import StorageError
from mast.review.event_table import processed_recordings, rank_within, run_events
from mast.review.queues.basic import (
    QUEUES,
    STRATA,
    hash_order,
    random_sample,
    random_sample_order,
    sequential,
    uncertain,
)
from mast.review.queues.minutes import minutes
from mast.review.queues.registry import QUEUE_DESCRIPTIONS, available_queues
from mast.review.queues.similarity import cluster_rows, likely_false_positives, nearest_distance, novel_events
from mast.runs.results import open_results
from tests.embeddings.runs import build_table
from tests.review.builders import (
    decided_as,
    event_table,
    field_season,
    processed_table,
    scored,
    span,
    verdict,
)
from tests.runs.finished import night, write_run

ALL_QUEUES = {
    **QUEUES,
    "stratified-minutes": lambda *arguments: minutes(*arguments, processed=field_season()),
    "likely-false-positives": lambda *arguments: likely_false_positives(*arguments, vectors=None),
}


def event_ids(items) -> list[str]:
    return [event_id for item in items for event_id in item.event_ids]


# ---------------------------------------------------------------------------------------------- all queues


@pytest.mark.parametrize("name", QUEUES)
def test_without_events_a_queue_is_empty(name):
    assert QUEUES[name](event_table([]), {}, 5) == []


@pytest.mark.parametrize("name", ALL_QUEUES)
def test_queues_have_no_decided_events_but_events_with_an_undone_verdict(name):
    table = scored(np.linspace(0.3, 0.9, 12), recordings=3)
    decided = decided_as(table, ["rejected"] * 11 + ["open"])
    listed = event_ids(ALL_QUEUES[name](table, decided, 20))
    assert listed in ([table["event_id"][11].as_py()], [])  # the minutes are in other recordings
    assert name == "stratified-minutes" or listed


@pytest.mark.parametrize("name", ALL_QUEUES)
def test_every_item_has_a_short_reason_and_the_order_is_reproducible(name):
    table = scored(np.linspace(0.3, 0.9, 40), recordings=3, threshold=0.5)
    decided = decided_as(table, ["rejected"])
    items = ALL_QUEUES[name](table, decided, 5)
    assert len(items) == 5 == len(set(items))
    assert items == ALL_QUEUES[name](table, decided, 5)
    assert all(0 < len(item.reason) < 100 and "\n" not in item.reason for item in items)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=30))
@settings(max_examples=50)
def test_ranks_within_groups_equal_those_of_sorting_each_group(rows):
    groups, keys = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    ranks = rank_within(groups, keys)
    for group in set(groups.tolist()):
        rows = np.flatnonzero(groups == group)
        assert ranks[rows].tolist() == np.argsort(np.argsort(keys[rows], kind="stable")).tolist()


def test_queues_of_a_million_events_take_seconds():
    rng = np.random.default_rng(0)
    count = 1_000_000
    small = event_table([{}])
    columns = {name: pa.array(np.zeros(count)) for name in ("start_s", "end_s", "low_hz", "high_hz")}
    columns |= {
        "recording_id": pa.array(np.char.add("card/", (np.arange(count) % 2000).astype(str))),
        "score": pa.array(rng.random(count)),
        "site": pa.array(["ridge"] * count),
        "event_id": pa.array(np.char.zfill(np.arange(count).astype(str), 20)),
    }
    table = pa.table(columns)
    assert set(columns) <= set(small.schema.names)
    season = processed_table(
        [(f"card/{row}", "ridge", datetime(2024, 5, 1, row % 24), 3600.0) for row in range(2000)]
    )
    decided = decided_as(small, [])
    for queue in (
        sequential,
        uncertain,
        random_sample,
        lambda *arguments: minutes(*arguments, processed=season, priority="uncertain"),
    ):
        start_s = time.process_time()
        assert len(queue(table, decided, 50)) == 50
        assert time.process_time() - start_s < 10  # 1 to 2 s on an idle machine


# ---------------------------------------------------------------------------------------------- single queues


def test_sequential_follows_the_recordings():
    table = scored([0.9, 0.1, 0.5])
    decided = decided_as(table, [None, "accepted"])
    assert event_ids(sequential(table, decided, 5)) == [
        table["event_id"][0].as_py(),
        table["event_id"][2].as_py(),
    ]


def test_uncertain_takes_the_scores_closest_to_the_threshold():
    table = scored([0.9, 0.31, 0.5, 0.35], threshold=0.3)
    items = uncertain(table, {}, 3)
    assert [item.start_s for item in items] == [1.0, 3.0, 2.0]
    assert items[0].reason == "score 0.31, close to the threshold 0.30"


def test_uncertain_takes_one_event_of_every_recording_before_a_second():
    table = scored([0.5, 0.8, 0.51, 0.9, 0.52, 0.95], recordings=2)
    first, second, *_ = uncertain(table, {}, 6)
    assert {first.recording_id, second.recording_id} == {"card/0.WAV", "card/1.WAV"}
    assert (first.start_s, second.start_s) == (0.0, 1.0)


def test_the_random_sample_has_equal_numbers_of_each_score_bin():
    table = scored(np.concatenate([np.full(500, 0.25), np.full(60, 0.65), np.full(30, 0.95)]))
    scores = dict(zip(table["event_id"].to_pylist(), table["score"].to_pylist(), strict=True))
    assert Counter(scores[name] for name in event_ids(random_sample(table, {}, 60))) == {
        0.25: 20,
        0.65: 20,
        0.95: 20,
    }


def test_a_longer_random_sample_starts_with_the_shorter_one():
    table = scored(np.random.default_rng(0).random(300))
    assert event_ids(random_sample(table, {}, 200))[:50] == event_ids(random_sample(table, {}, 50))


def test_every_event_is_equally_likely_and_another_seed_gives_another_sample():
    table = scored(np.full(400, 0.55))
    counts = np.zeros(400)
    for seed in range(300):
        _, rank = random_sample_order(table, seed)
        counts += rank < 100
    assert abs(counts.mean() / 300 - 0.25) < 1e-9
    spread = np.sqrt(300 * 0.25 * 0.75)
    assert np.abs(counts - 75).max() < 4.5 * spread  # the largest of 400
    assert abs(counts.std() / spread - 1) < 0.15
    assert len(np.unique(hash_order(table["event_id"], 0))) == 400


def test_bins_contain_their_lower_edge_and_the_highest_score():
    strata, _ = random_sample_order(scored([0.0, 0.1, 0.29999, 0.3, 0.7, 1.0]))
    assert strata.tolist() == [0, 1, 2, 3, 7, STRATA - 1]


# ---------------------------------------------------------------------------------------------- minutes


def test_minutes_are_spread_over_hours_sites_and_days():
    items = minutes(event_table([]), {}, 24, processed=field_season())
    start = {row["recording_id"]: row["start_local"] for row in field_season().to_pylist()}
    assert len({start[item.recording_id].hour for item in items}) == 24
    assert Counter(item.recording_id[5:7] for item in items) == {"S0": 8, "S1": 8, "S2": 8}
    assert "few minutes reviewed so far from" in items[0].reason


def test_days_alternate_within_an_hour_and_site():
    season = field_season(sites=1, days=4, every_min=1440)
    items = minutes(event_table([]), {}, 4, processed=season)
    assert (
        len({item.recording_id for item in items}) == 4
    )  # one of each day, although each day has three minutes


def test_reviewed_hours_come_later_and_no_time_comes_twice():
    season = field_season(sites=1, days=1, every_min=720)  # midnight and noon, three minutes each
    reviewed = {"a": span("card/S0/10_0000.WAV", 0.0, 90.0)}
    items = minutes(event_table([]), reviewed, 10, processed=season)
    assert [item.recording_id for item in items[:1]] == ["card/S0/10_1200.WAV"]
    spans = [(item.recording_id, item.start_s) for item in items]
    assert sorted(spans) == [("card/S0/10_0000.WAV", 120.0)] + [
        ("card/S0/10_1200.WAV", at_s) for at_s in (0.0, 60.0, 120.0)
    ]
    undone = {"a": span("card/S0/10_0000.WAV", 0.0, 90.0, state="open")}
    assert len(minutes(event_table([]), undone, 10, processed=season)) == 6


def test_an_uncertain_minute_comes_before_its_neighbours_and_lists_its_events():
    season = processed_table([("card/1.WAV", "ridge", datetime(2024, 5, 10, 5), 180.0)])
    table = event_table([{"start_s": 10.0, "end_s": 10.5, "score": 0.95}, {"start_s": 70.0, "end_s": 70.5}])
    (item,) = minutes(table, {}, 1, processed=season, priority="uncertain")
    assert (item.start_s, item.end_s, item.event_ids) == (60.0, 120.0, (table["event_id"][1].as_py(),))
    reason = "few minutes reviewed so far from 05 h at ridge; most uncertain, 1 open event"
    assert item.reason == reason


def test_recordings_of_any_length_and_without_a_clock_are_cut_into_minutes():
    season = processed_table([("a", None, None, 20.0), ("b", None, None, 100.0), ("c", None, None, 80.0)])
    items = minutes(event_table([]), {}, 10, processed=season)
    spans = sorted((item.recording_id, item.start_s, item.end_s) for item in items)
    assert spans == [("a", 0.0, 20.0), ("b", 0.0, 60.0), ("b", 60.0, 100.0), ("c", 0.0, 60.0)]
    assert items[0].reason == "few minutes reviewed so far from an unknown hour"


# ---------------------------------------------------------------------------------------------- similarity


@pytest.fixture
def groups(tmp_path):
    """Return events of three groups of 60, 30 and 10, their groups, and the location of their clustered embeddings."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [60, 30, 10])
    vectors = np.eye(8)[group] + 0.05 * rng.normal(size=(100, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = scored(np.linspace(0.3, 0.99, 100))
    location = str(tmp_path / "embeddings.lance")
    build_table(location, vectors, event_id=table["event_id"].to_pylist())
    return table, group, location


def groups_of(items, table, group) -> list[int]:
    by_id = dict(zip(table["event_id"].to_pylist(), group.tolist(), strict=True))
    return [by_id[event_id] for event_id in event_ids(items)]


def test_novel_has_one_event_of_each_cluster_the_largest_first(groups):
    table, group, location = groups
    items = novel_events(table, {}, 3, vectors=location)
    assert groups_of(items, table, group) == [0, 1, 2]
    assert items[0].reason == "no similar event was reviewed; one of 60 similar events"


def test_novel_avoids_events_similar_to_decided_ones(groups):
    table, group, location = groups
    decided = decided_as(table, np.where(group == 0, "accepted", None))  # the first group is decided
    items = novel_events(table, decided, 2, vectors=location)
    assert set(groups_of(items, table, group)) <= {1, 2}
    assert items[0].reason.startswith("unlike all decided events")
    all_decided = decided_as(table, ["accepted"] * 100)
    assert novel_events(table, all_decided, 2, vectors=location) == []


def test_without_embeddings_novel_names_the_command_to_compute_them(tmp_path):
    with pytest.raises(StorageError, match="there are no vectors. Create them with mast embed"):
        novel_events(scored([0.5]), {}, 1, vectors=str(tmp_path / "embeddings.lance"))


def test_no_vectors_have_no_cluster_and_equal_vectors_have_one():
    rows, sizes = cluster_rows(np.zeros((0, 4), np.float32), 3)
    assert (len(rows), sizes) == (0, [])
    rows, sizes = cluster_rows(np.ones((5, 4), np.float32), 3)
    assert (rows.tolist(), sizes) == ([0], [5])


def test_likely_false_positives_are_high_scores_similar_to_a_rejected_event(groups):
    table, group, location = groups
    first_of = [int(np.flatnonzero(group == number)[0]) for number in (0, 1)]
    states = [None] * 100
    states[first_of[0]], states[first_of[1]] = "accepted", "rejected"
    items = likely_false_positives(table, decided_as(table, states), 40, vectors=location)
    counts = Counter(groups_of(items, table, group))
    assert counts[0] == 0 and counts[1] == 29
    scores = [float(item.reason.split()[1].strip(",")) for item in items]
    assert scores == sorted(scores, reverse=True)
    assert items[0].reason.endswith("but similar to a rejected event")


def test_without_embeddings_events_are_compared_by_frequency_duration_and_site():
    low = [{"low_hz": 200.0, "high_hz": 600.0, "score": 0.6 + number / 100} for number in range(5)]
    high = [{"low_hz": 4000.0, "high_hz": 6000.0, "score": 0.9} for _ in range(5)]
    table = event_table([*low, *high])
    decided = decided_as(table, ["rejected", None, None, None, None, "accepted"])
    items = likely_false_positives(table, decided, 20, vectors=None)
    assert [item.start_s for item in items] == [4.0, 3.0, 2.0, 1.0]
    assert (
        "frequencies and duration like a rejected event" in items[0].reason
        and "mast embed" in items[0].reason
    )


def test_without_a_rejected_event_there_are_no_likely_false_positives():
    table = scored([0.5, 0.9])
    assert likely_false_positives(table, decided_as(table, ["accepted"]), 5, vectors=None) == []
    assert likely_false_positives(event_table([]), {"x": verdict("x", "rejected")}, 5, vectors=None) == []


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=20)
def test_the_nearest_distance_equals_a_naive_minimum(count, references, seed):
    rng = np.random.default_rng(seed)
    candidates, others = (rng.normal(size=(size, 3)).astype(np.float32) for size in (count, references))
    naive = ((candidates[:, None] - others) ** 2).sum(axis=2).min(axis=1)
    assert np.allclose(nearest_distance(candidates, others, rows_at_once=7), naive, atol=1e-4)


# ---------------------------------------------------------------------------------------------- queues of a run


def test_a_run_has_all_queues_with_a_description(tmp_path):
    results = open_results(write_run(tmp_path / "found", night()))
    queues, table = available_queues(results), run_events(results)
    assert queues.keys() == QUEUE_DESCRIPTIONS.keys()
    assert table.num_rows == 3 and float(table.schema.metadata[b"mast.threshold"]) == 0.2
    assert processed_recordings(results)["effort_s"].to_pylist() == [60.0, 60.0, 12.0]
    assert len(queues["stratified-minutes"](table, {}, 9)) == 3  # also the recording without events
    assert queues["random-sample"](table, {}, 9)


def test_a_run_without_recordings_has_empty_queues(tmp_path):
    results = open_results(write_run(tmp_path / "found", []))
    table = run_events(results)
    for name, queue in available_queues(results).items():
        assert name == "novel" or queue(table, {}, 3) == []


def test_times_after_midnight_belong_to_the_next_day():
    season = processed_table([("a", "ridge", datetime(2024, 5, 10, 23, 59), 120.0)])
    items = minutes(event_table([]), {}, 2, processed=season)
    assert sorted(item.reason[-15:] for item in items) == ["m 00 h at ridge", "m 23 h at ridge"]
    assert timedelta(0) < season["start_local"][0].as_py() - datetime(2024, 5, 10)
