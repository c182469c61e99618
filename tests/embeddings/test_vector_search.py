"""A search returns the same events as a comparison with all events, and every result satisfies the filter."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mast.embeddings
from mast.embeddings import Neighbour, SearchFilter, search, vector_table
from mast.embeddings.vector_search import Query, box_query, event_query, nearest_events
from mast.embeddings.vector_table import build_index, compact_and_index, has_index, nearest
from mast.errors import AudioError, ConfigError, ModelError, StorageError
from mast.records import Event
from mast.runs.results import open_results
from tests.embeddings.runs import build_table, clustered_vectors, rows_of, save_encoder
from tests.runs.finished import write_run

MAY = datetime(2024, 5, 1, tzinfo=UTC)
COUNT = 300


def query(vector, name="none") -> Query:
    return Query(name, Event("x", 0.0, 1.0, 1.0, 2.0), "x", 1.0, None, np.asarray(vector, np.float16))


def naive(vectors, vector, top, keep=lambda number: True) -> list[tuple[str, float]]:
    """Compute the ids and cosines of the most similar events one by one."""
    wide = vectors.astype(np.float64)
    query = np.asarray(vector, np.float64)
    cosines = wide @ query / np.linalg.norm(wide, axis=1) / np.linalg.norm(query)
    order = sorted((n for n in range(len(vectors)) if keep(n)), key=lambda number: -cosines[number])
    return [(f"{number:06}", cosines[number]) for number in order[:top]]


@pytest.fixture(scope="module")
def vectors():
    return clustered_vectors(COUNT)


@pytest.fixture(scope="module")
def table(vectors, tmp_path_factory):
    table = str(tmp_path_factory.mktemp("table") / "vectors.lance")
    sites = [None, "ridge", "o'brien's", "swamp"]
    build_table(
        table,
        vectors,
        parts=3,
        site=[sites[number % 4] for number in range(COUNT)],
        start_utc=[None if number % 5 == 0 else MAY + timedelta(hours=number) for number in range(COUNT)],
        low_hz=[float(number % 7 * 500) for number in range(COUNT)],
        high_hz=[float(number % 7 * 500 + 700) for number in range(COUNT)],
        score=[number % 11 / 10 for number in range(COUNT)],
    )
    return table


def keeps(search_filter: SearchFilter, number: int) -> bool:
    """Return whether a synthetic event satisfies a filter, in plain Python."""
    site = [None, "ridge", "o'brien's", "swamp"][number % 4]
    when = None if number % 5 == 0 else MAY + timedelta(hours=number)
    low_hz = number % 7 * 500
    return (
        (not search_filter.sites or site in search_filter.sites)
        and (search_filter.since is None or (when is not None and when >= search_filter.since))
        and (search_filter.until is None or (when is not None and when < search_filter.until))
        and (search_filter.low_hz is None or low_hz >= search_filter.low_hz)
        and (search_filter.high_hz is None or low_hz + 700 <= search_filter.high_hz)
        and (search_filter.min_score is None or number % 11 / 10 >= search_filter.min_score)
    )


def test_an_empty_table_has_no_neighbours(tmp_path):
    build_table(str(tmp_path / "t.lance"), np.zeros((0, 8), np.float16))
    assert nearest_events(str(tmp_path / "t.lance"), query(np.ones(8))) == []


def test_three_events_worked_out_by_hand(tmp_path):
    vectors = np.array([[1, 0], [0.6, 0.8], [-1, 0]], np.float16)
    build_table(str(tmp_path / "t.lance"), vectors)
    results = nearest_events(str(tmp_path / "t.lance"), query([1, 0]))
    assert [item.event.event_id for item in results] == ["000000", "000001", "000002"]
    assert [item.similarity for item in results] == pytest.approx([1, 0.6, -1], abs=1e-3)


FILTERS = st.builds(
    SearchFilter,
    sites=st.lists(st.sampled_from(["ridge", "o'brien's", "swamp", "nowhere"]), unique=True).map(tuple),
    since=st.none() | st.integers(0, COUNT).map(lambda hours: MAY + timedelta(hours=hours)),
    until=st.none() | st.integers(0, COUNT).map(lambda hours: MAY + timedelta(hours=hours)),
    low_hz=st.none() | st.sampled_from([0.0, 500.0, 2000.0]),
    high_hz=st.none() | st.sampled_from([1200.0, 3000.0]),
    min_score=st.none() | st.sampled_from([0.25, 0.8]),
)


@settings(max_examples=40)
@given(search_filter=FILTERS, row=st.integers(0, COUNT - 1), top=st.integers(1, 20))
def test_search_results_equal_a_comparison_with_all_events(vectors, table, search_filter, row, top):
    results = nearest_events(table, query(vectors[row]), search_filter, top)
    expected = naive(vectors, vectors[row], top, lambda number: keeps(search_filter, number))
    assert [item.similarity for item in results] == pytest.approx(
        [cosine for _, cosine in expected], abs=2e-3
    )
    assert {item.event.event_id for item in results[:-1]} <= {
        name for name, _ in naive(vectors, vectors[row], top + 3, lambda number: keeps(search_filter, number))
    }
    assert all(keeps(search_filter, int(item.event.event_id)) for item in results)


def test_the_query_event_is_not_among_the_results(vectors, table):
    results = nearest_events(table, query(vectors[7], "000007"), top=5)
    assert len(results) == 5 and "000007" not in [item.event.event_id for item in results]


def test_times_without_a_zone_are_utc(table, vectors):
    results = nearest_events(table, query(vectors[0]), SearchFilter(since=datetime(2024, 5, 10)), COUNT)
    assert len(results) == len(
        [n for n in range(COUNT) if keeps(SearchFilter(since=datetime(2024, 5, 10, tzinfo=UTC)), n)]
    )


@pytest.fixture
def small_index(monkeypatch):
    monkeypatch.setattr(vector_table, "INDEX_FROM", 1000)
    monkeypatch.setattr(vector_table, "PARTITION_ROWS", 200)


@pytest.mark.usefixtures("small_index")
def test_a_search_with_an_index_returns_nearly_all_nearest_events_and_the_index_grows(tmp_path):
    vectors, queries = np.split(clustered_vectors(2030), [2000])
    table = str(tmp_path / "t.lance")
    dataset = build_table(table, vectors[:900], parts=3)
    assert not compact_and_index(dataset)
    columns = {"event_id": [f"{number:06}" for number in range(900, 2000)]}
    dataset = build_table(table, vectors[900:], parts=2, **columns)
    assert compact_and_index(dataset) and len(lance.dataset(table).get_fragments()) == 1
    dataset = lance.dataset(table)
    hits = 0
    for vector in queries:
        expected = {name for name, _ in naive(vectors, vector, 10)}
        indexed = nearest(dataset, vector, 10)
        hits += len(expected & {*indexed["event_id"].to_pylist()})
        exact = nearest(dataset, vector, 10, exact=True)
        assert len(expected & {*exact["event_id"].to_pylist()}) >= 9  # float16 ties at the end
        assert indexed["_distance"].to_pylist()[0] == pytest.approx(
            exact["_distance"].to_pylist()[0], abs=1e-3
        )
    assert hits / (10 * len(queries)) >= 0.95
    dataset = build_table(table, queries[:5], event_id=[f"new {number}" for number in range(5)])
    assert compact_and_index(dataset)
    assert lance.dataset(table).describe_indices()[0].num_rows_indexed == 2005
    assert nearest_events(table, query(queries[3]), top=1)[0].event.event_id == "new 3"
    assert event_query(open_results(write_run(tmp_path / "run", [])), table, "new 3").event_id == "new 3"


@pytest.mark.usefixtures("small_index")
def test_a_filter_that_matches_few_events_bypasses_the_index(tmp_path):
    vectors = clustered_vectors(1500)
    sites = ["rare" if number % 300 == 0 else "common" for number in range(1500)]
    dataset = build_table(str(tmp_path / "t.lance"), vectors, site=sites)
    build_index(dataset)
    assert has_index(lance.dataset(str(tmp_path / "t.lance")))
    rare = SearchFilter(sites=("rare",))
    results = nearest_events(str(tmp_path / "t.lance"), query(-vectors[1]), rare, top=10)
    assert {item.event.event_id for item in results} == {f"{300 * number:06}" for number in range(5)}


def event_row(embedded, number=4):
    return rows_of(embedded[0].table)[number]


def box_of(row) -> Event:
    return Event(row["recording_id"], row["start_s"], row["end_s"], row["low_hz"], row["high_hz"])


def test_an_event_of_the_run_is_a_query_by_its_id(run, embedded):
    row = event_row(embedded)
    results = search(run, query_event=row["event_id"], top=5)
    vectors = np.array([item["vector"] for item in rows_of(embedded[0].table)])
    expected = naive(vectors, vectors[4], 6)[1:]
    assert [item.similarity for item in results] == pytest.approx(
        [cosine for _, cosine in expected], abs=2e-3
    )
    assert all(isinstance(item, Neighbour) for item in results)


def test_a_query_box_is_embedded_with_the_model_of_the_table(run, embedded):
    row = event_row(embedded)
    query = box_query(open_results(run), embedded[0].table, box_of(row), device="cpu")
    assert query.event_id == row["event_id"]
    cosine = query.vector.astype(np.float32) @ np.array(row["vector"], np.float32)
    assert cosine > 0.9  # the box may lie in a different chunk
    results = search(run, box_of(row), top=3)
    assert len(results) == 3 and row["event_id"] not in [item.event.event_id for item in results]


def test_a_query_box_may_be_in_a_file_outside_the_run(run, embedded, tmp_path):
    row = event_row(embedded)
    results = open_results(run)
    shutil.copy(results.location(*results.split_id(row["recording_id"])), tmp_path / "reference.wav")
    event = Event(
        str(tmp_path / "reference.wav"), row["start_s"], row["end_s"], row["low_hz"], row["high_hz"]
    )
    same = box_query(results, embedded[0].table, box_of(row), device="cpu")
    np.testing.assert_array_equal(
        box_query(results, embedded[0].table, event, device="cpu").vector, same.vector
    )


def test_a_moved_model_is_specified_and_another_model_is_refused(run, embedded, encoder, tmp_path):
    shutil.copytree(Path(run), tmp_path / "found")
    dataset = lance.dataset(str(tmp_path / "found" / "embeddings.lance"))
    metadata = dataset.schema.metadata[b"mast"].decode().replace(encoder, str(tmp_path / "gone"))
    dataset.update_schema_metadata({"mast": metadata})
    results, table = open_results(str(tmp_path / "found")), str(tmp_path / "found" / "embeddings.lance")
    event = box_of(event_row(embedded))
    with pytest.raises(
        StorageError, match="there is no such folder. If the model was moved, specify its location"
    ):
        box_query(results, table, event, device="cpu")
    assert box_query(results, table, event, encoder, "cpu").event_id
    with pytest.raises(ModelError, match=r"is model \w{16}, and the vectors of .* are of model \w{16}"):
        box_query(results, table, event, save_encoder(tmp_path / "other", seed=9), "cpu")


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (Event("card/A/nothing.WAV", 0, 1, 1000, 2000), "COLLECTION/PATH with one of the collections card"),
        (
            Event("elsewhere.wav", 0, 1, 1000, 2000),
            "this run has no such recording, and there is no such file",
        ),
        (Event("card/A/20230510_003000.WAV", 9, 10, 1000, 2000), r"The recording lasts 2\.5 s"),
        (
            Event("card/A/20230510_003000.WAV", 0, 1, 9000, 9500),
            "the model's frequency band is 20 to 8000 Hz",
        ),
    ],
)
def test_a_query_box_without_audio_is_refused_with_the_reason(run, embedded, event, complaint):
    with pytest.raises(AudioError, match=complaint):
        search(run, event)


def test_invalid_queries_are_refused(run, embedded, table):
    with pytest.raises(ConfigError, match="either a box with --query or an event id with --query-event"):
        search(run)
    with pytest.raises(ConfigError, match="has no event it's. Copy the event id from the page"):
        search(run, query_event="it's")
    with pytest.raises(ConfigError, match="needs a lower and an upper frequency"):
        search(run, Event("card/A/20230510_003000.WAV", 0.0, 1.0))
    with pytest.raises(ConfigError, match="--top 0: specify 1 or more"):
        nearest_events(table, query(np.ones(32)), top=0)
    with pytest.raises(StorageError, match="nowhere.lance: there are no vectors"):
        search(run, query_event="x", table="nowhere.lance")
    with pytest.raises(StorageError, match="does not belong to any of the collections card"):
        open_results(run).split_id("other/1.WAV")


def test_the_package_exports_the_names_needed_for_a_search():
    assert [
        getattr(mast.embeddings, name).__name__ for name in mast.embeddings.__all__
    ] == mast.embeddings.__all__
    with pytest.raises(AttributeError, match="no attribute 'find'"):
        _ = mast.embeddings.find
