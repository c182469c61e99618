"""Partition of an archive into parts: reproducible, of suitable length, with only the ends of parts in memory."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.errors import ConfigError
from mast.runs import plan
from mast.runs.plan import Part, PartPlan, partition_rows, plan_parts
from mast.runs.run import Shard


def table(folder, rows, names=None, row_group_rows=7):
    """Write a table of recordings with only (collection, status, duration_s) and a name; return its path."""
    columns = ("collection", "status", "duration_s", "recording_id")
    types = (pa.string(), pa.string(), pa.float64(), pa.string())
    ids = names or map(str, range(len(rows)))
    values = (
        zip(*((*row, name) for row, name in zip(rows, ids, strict=True)), strict=True) if rows else [()] * 4
    )
    arrays = [pa.array(column, kind) for column, kind in zip(values, types, strict=True)]
    pq.write_table(
        pa.table(arrays, names=columns), folder / "recordings.parquet", row_group_size=row_group_rows
    )
    return str(folder / "recordings.parquet")


def test_no_recordings_make_no_parts(tmp_path):
    empty = plan_parts(table(tmp_path, []), {"card": 1.0})
    assert (len(empty), empty.recordings, empty.seconds.sum()) == (0, 0, 0)
    assert list(partition_rows([], 10)) == []


def test_a_large_archive_has_parts_of_four_hours_and_a_longer_recording_is_a_separate_part(tmp_path):
    hours = [1.0] * 6 + [15.0] + [3.0, 2.0, 2.0] + [1.0] * 300
    parts_plan = plan_parts(table(tmp_path, [("card", "ok", 3600 * item) for item in hours]), {"card": 1.0})
    assert parts_plan.part_s == 4 * 3600
    assert [parts_plan.part(number) for number in range(5)] == [
        Part(0, 0, 4, 4 * 3600),
        Part(1, 4, 6, 2 * 3600),
        Part(2, 6, 7, 15 * 3600),
        Part(3, 7, 8, 3 * 3600),
        Part(4, 8, 10, 4 * 3600),
    ]
    assert parts_plan.recordings == len(hours)
    assert parts_plan.seconds.sum() == pytest.approx(3600 * sum(hours))


def test_a_small_archive_has_shorter_parts_so_that_all_cores_have_work(tmp_path):
    parts_plan = plan_parts(table(tmp_path, [("card", "ok", 60.0)] * 320), {"card": 1.0})
    assert parts_plan.part_s == 320 * 60 / plan.MIN_PARTS
    assert len(parts_plan) == plan.MIN_PARTS
    assert plan_parts(table(tmp_path, [("card", "ok", 1.0)] * 90), {"card": 1.0}).part_s == plan.MIN_PART_S


def test_time_expansion_raises_the_cost_and_a_quarantined_file_has_no_length(tmp_path):
    rows = [("bats", "ok", 6.0)] * 4 + [("birds", "suspect", 60.0), ("birds", "quarantined", 900.0)] * 2
    parts_plan = plan_parts(
        table(tmp_path, [*rows, ("birds", "quarantined", None)]), {"birds": 1.0, "bats": 10.0}
    )
    assert (parts_plan.part_s, parts_plan.stop_rows.tolist()) == (60, [1, 2, 3, 4, 5, 6, 7, 9])
    assert parts_plan.seconds.sum() == 4 * 6 + 2 * 60


def test_a_recording_of_an_unknown_collection_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a collection that its metadata does not describe"):
        plan_parts(table(tmp_path, [("card", "ok", 1.0)]), {"other": 1.0})


def test_the_identity_of_a_plan_depends_only_on_names_and_lengths_of_recordings(tmp_path, monkeypatch):
    def identity(names, lengths_s, row_group_rows=7):
        rows = [("card", "ok", length_s) for length_s in lengths_s]
        return plan_parts(table(tmp_path, rows, names, row_group_rows), {"card": 1.0}).identity

    expected = identity(["a", "bé", "c"], [60.0, 60.0, 30.0])
    assert identity(["a", "bé", "c"], [60.0, 60.0, 30.0], row_group_rows=1) == expected
    monkeypatch.setattr(plan, "_BATCH_ROWS", 2)
    assert identity(["a", "bé", "c"], [60.0, 60.0, 30.0]) == expected
    others = [
        identity(["a", "bé", "d"], [60.0, 60.0, 30.0]),
        identity(["ab", "é", "c"], [60.0, 60.0, 30.0]),
        identity(["bé", "a", "c"], [60.0, 60.0, 30.0]),
        identity(["a", "bé", "c"], [60.0, 60.0, 30.001]),
        identity(["a", "bé"], [60.0, 60.0]),
    ]
    assert len({expected, *others}) == 6


def naive(costs, lengths, part_ms):
    parts, cost, length, rows = [], 0, 0, 0
    for row, (row_cost, row_length) in enumerate(zip(costs, lengths, strict=True)):
        if rows and cost + row_cost > part_ms:
            parts.append((row, length))
            cost = length = rows = 0
        cost, length, rows = cost + row_cost, length + row_length, rows + 1
    return [*parts, (len(costs), length)] if rows else parts


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9)), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(1, 25),
)
def test_parts_equal_those_of_a_naive_partition_for_any_batches_of_rows(rows, edges, part_ms):
    costs, lengths = np.array(rows, np.int64).reshape(-1, 2).T
    edges = sorted(edge for edge in edges if edge <= len(rows))
    batches = zip(np.split(costs, edges), np.split(lengths, edges), strict=True)
    assert list(partition_rows(batches, part_ms)) == naive(costs.tolist(), lengths.tolist(), part_ms)


@given(st.integers(0, 40), st.integers(1, 7))
def test_every_part_belongs_to_one_shard_and_shards_have_similar_sizes(parts, count):
    parts_plan = PartPlan(np.arange(1, parts + 1), np.ones(parts), 1.0, "")
    shards = [Shard(number, count).parts(parts_plan) for number in range(1, count + 1)]
    assert Counter(np.concatenate(shards).tolist()) == Counter(range(parts))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_shard_is_written_as_the_third_of_ten():
    assert Shard.parse(" 3/10 ") == Shard(3, 10)
    for wrong in ("0/10", "11/10", "3", "3/", "a/b", "-1/4", "1/0"):
        with pytest.raises(ConfigError, match="write it as 3/10"):
            Shard.parse(wrong)
