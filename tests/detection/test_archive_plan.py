"""Cutting an archive into parts: the same everywhere, long enough, short enough, and nothing held but where they end."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.detection import plan
from mast.detection.archive import Shard
from mast.detection.plan import Part, Plan, cut, plan_parts
from mast.errors import ConfigError


def table(folder, rows, names=None, row_group_rows=7):
    """A table of recordings with (collection, status, duration_s) and a name alone."""
    columns = ("collection", "status", "duration_s", "recording_id")
    types = (pa.string(), pa.string(), pa.float64(), pa.string())
    named = names or map(str, range(len(rows)))
    values = (
        zip(*((*row, name) for row, name in zip(rows, named, strict=True)), strict=True) if rows else [()] * 4
    )
    arrays = [pa.array(column, kind) for column, kind in zip(values, types, strict=True)]
    pq.write_table(
        pa.table(arrays, names=columns), folder / "recordings.parquet", row_group_size=row_group_rows
    )
    return str(folder / "recordings.parquet")


def test_no_recordings_make_no_parts(tmp_path):
    empty = plan_parts(table(tmp_path, []), {"card": 1.0})
    assert (len(empty), empty.recordings, empty.seconds.sum()) == (0, 0, 0)
    assert list(cut([], 10)) == []


def test_a_large_archive_is_cut_every_four_hours_and_a_longer_recording_is_a_part_of_its_own(tmp_path):
    hours = [1.0] * 6 + [15.0] + [3.0, 2.0, 2.0] + [1.0] * 300
    found = plan_parts(table(tmp_path, [("card", "ok", 3600 * item) for item in hours]), {"card": 1.0})
    assert found.part_s == 4 * 3600
    assert [found.part(number) for number in range(5)] == [
        Part(0, 0, 4, 4 * 3600),
        Part(1, 4, 6, 2 * 3600),
        Part(2, 6, 7, 15 * 3600),
        Part(3, 7, 8, 3 * 3600),
        Part(4, 8, 10, 4 * 3600),
    ]
    assert found.recordings == len(hours)
    assert found.seconds.sum() == pytest.approx(3600 * sum(hours))


def test_a_small_archive_is_cut_finer_so_that_all_cores_have_work(tmp_path):
    found = plan_parts(table(tmp_path, [("card", "ok", 60.0)] * 320), {"card": 1.0})
    assert found.part_s == 320 * 60 / plan.MIN_PARTS
    assert len(found) == plan.MIN_PARTS
    assert plan_parts(table(tmp_path, [("card", "ok", 1.0)] * 90), {"card": 1.0}).part_s == plan.MIN_PART_S


def test_slowed_down_sound_costs_more_and_a_quarantined_file_has_no_length(tmp_path):
    rows = [("bats", "ok", 6.0)] * 4 + [("birds", "suspect", 60.0), ("birds", "quarantined", 900.0)] * 2
    found = plan_parts(table(tmp_path, [*rows, ("birds", "quarantined", None)]), {"birds": 1.0, "bats": 10.0})
    assert (found.part_s, found.stop_rows.tolist()) == (60, [1, 2, 3, 4, 5, 6, 7, 9])
    assert found.seconds.sum() == 4 * 6 + 2 * 60


def test_a_recording_of_an_unknown_collection_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a collection that it does not describe"):
        plan_parts(table(tmp_path, [("card", "ok", 1.0)]), {"other": 1.0})


def test_a_plan_is_known_by_the_names_and_lengths_of_its_recordings_however_they_are_stored(
    tmp_path, monkeypatch
):
    def identity(names, lengths_s, row_group_rows=7):
        rows = [("card", "ok", length_s) for length_s in lengths_s]
        return plan_parts(table(tmp_path, rows, names, row_group_rows), {"card": 1.0}).identity

    known = identity(["a", "bé", "c"], [60.0, 60.0, 30.0])
    assert identity(["a", "bé", "c"], [60.0, 60.0, 30.0], row_group_rows=1) == known
    monkeypatch.setattr(plan, "_BATCH_ROWS", 2)
    assert identity(["a", "bé", "c"], [60.0, 60.0, 30.0]) == known
    others = [
        identity(["a", "bé", "d"], [60.0, 60.0, 30.0]),
        identity(["ab", "é", "c"], [60.0, 60.0, 30.0]),
        identity(["bé", "a", "c"], [60.0, 60.0, 30.0]),
        identity(["a", "bé", "c"], [60.0, 60.0, 30.001]),
        identity(["a", "bé"], [60.0, 60.0]),
    ]
    assert len({known, *others}) == 6


def naive(costs, lengths, part_ms):
    parts, cost, length, rows = [], 0, 0, 0
    for row, (one, other) in enumerate(zip(costs, lengths, strict=True)):
        if rows and cost + one > part_ms:
            parts.append((row, length))
            cost = length = rows = 0
        cost, length, rows = cost + one, length + other, rows + 1
    return [*parts, (len(costs), length)] if rows else parts


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9)), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(1, 25),
)
def test_parts_are_those_of_a_naive_cut_however_the_rows_arrive(rows, edges, part_ms):
    costs, lengths = np.array(rows, np.int64).reshape(-1, 2).T
    edges = sorted(edge for edge in edges if edge <= len(rows))
    batches = zip(np.split(costs, edges), np.split(lengths, edges), strict=True)
    assert list(cut(batches, part_ms)) == naive(costs.tolist(), lengths.tolist(), part_ms)


@given(st.integers(0, 40), st.integers(1, 7))
def test_shards_share_all_parts_out(parts, count):
    whole = Plan(np.arange(1, parts + 1), np.ones(parts), 1.0, "")
    shares = [Shard(number, count).parts(whole) for number in range(1, count + 1)]
    assert Counter(np.concatenate(shares).tolist()) == Counter(range(parts))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_shard_is_written_as_the_third_of_ten():
    assert Shard.parse(" 3/10 ") == Shard(3, 10)
    for wrong in ("0/10", "11/10", "3", "3/", "a/b", "-1/4", "1/0"):
        with pytest.raises(ConfigError, match="write it as 3/10"):
            Shard.parse(wrong)
