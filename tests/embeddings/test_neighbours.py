"""The nearest sounds are those that comparing with all of them finds, and all that was asked of them holds."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mast.embeddings
from mast.detection.found import open_found
from mast.embeddings import Neighbour, Wanted, search, table
from mast.embeddings.neighbours import Query, box_query, event_query, neighbours
from mast.embeddings.table import build_index, finish, has_index, nearest
from mast.errors import AudioError, ConfigError, ModelError, StorageError
from mast.events import Event
from tests.detection.runs import write_run
from tests.embeddings.runs import clustered, made_table, rows_of, save_encoder

MAY = datetime(2024, 5, 1, tzinfo=UTC)
COUNT = 300


def query(vector, name="none") -> Query:
    return Query(name, Event("x", 0.0, 1.0, 1.0, 2.0), "x", 1.0, None, np.asarray(vector, np.float16))


def naive(vectors, vector, top, keep=lambda number: True) -> list[tuple[str, float]]:
    """Names and cosines of the most similar, one by one."""
    wide = vectors.astype(np.float64)
    asked = np.asarray(vector, np.float64)
    cosines = wide @ asked / np.linalg.norm(wide, axis=1) / np.linalg.norm(asked)
    order = sorted((n for n in range(len(vectors)) if keep(n)), key=lambda number: -cosines[number])
    return [(f"{number:06}", cosines[number]) for number in order[:top]]


@pytest.fixture(scope="module")
def vectors():
    return clustered(COUNT)


@pytest.fixture(scope="module")
def place(vectors, tmp_path_factory):
    place = str(tmp_path_factory.mktemp("made") / "vectors.lance")
    sites = [None, "ridge", "o'brien's", "swamp"]
    made_table(
        place,
        vectors,
        parts=3,
        site=[sites[number % 4] for number in range(COUNT)],
        start_utc=[None if number % 5 == 0 else MAY + timedelta(hours=number) for number in range(COUNT)],
        low_hz=[float(number % 7 * 500) for number in range(COUNT)],
        high_hz=[float(number % 7 * 500 + 700) for number in range(COUNT)],
        score=[number % 11 / 10 for number in range(COUNT)],
    )
    return place


def keeps(wanted: Wanted, number: int) -> bool:
    """Whether a made-up sound is wanted, in plain Python."""
    site = [None, "ridge", "o'brien's", "swamp"][number % 4]
    when = None if number % 5 == 0 else MAY + timedelta(hours=number)
    low_hz = number % 7 * 500
    return (
        (not wanted.sites or site in wanted.sites)
        and (wanted.since is None or (when is not None and when >= wanted.since))
        and (wanted.until is None or (when is not None and when < wanted.until))
        and (wanted.low_hz is None or low_hz >= wanted.low_hz)
        and (wanted.high_hz is None or low_hz + 700 <= wanted.high_hz)
        and (wanted.min_score is None or number % 11 / 10 >= wanted.min_score)
    )


def test_an_empty_table_has_no_neighbours(tmp_path):
    made_table(str(tmp_path / "t.lance"), np.zeros((0, 8), np.float16))
    assert neighbours(str(tmp_path / "t.lance"), query(np.ones(8))) == []


def test_three_sounds_worked_out_by_hand(tmp_path):
    vectors = np.array([[1, 0], [0.6, 0.8], [-1, 0]], np.float16)
    made_table(str(tmp_path / "t.lance"), vectors)
    found = neighbours(str(tmp_path / "t.lance"), query([1, 0]))
    assert [item.event.event_id for item in found] == ["000000", "000001", "000002"]
    assert [item.similarity for item in found] == pytest.approx([1, 0.6, -1], abs=1e-3)


WANTED = st.builds(
    Wanted,
    sites=st.lists(st.sampled_from(["ridge", "o'brien's", "swamp", "nowhere"]), unique=True).map(tuple),
    since=st.none() | st.integers(0, COUNT).map(lambda hours: MAY + timedelta(hours=hours)),
    until=st.none() | st.integers(0, COUNT).map(lambda hours: MAY + timedelta(hours=hours)),
    low_hz=st.none() | st.sampled_from([0.0, 500.0, 2000.0]),
    high_hz=st.none() | st.sampled_from([1200.0, 3000.0]),
    min_score=st.none() | st.sampled_from([0.25, 0.8]),
)


@settings(max_examples=40)
@given(wanted=WANTED, asked=st.integers(0, COUNT - 1), top=st.integers(1, 20))
def test_what_is_found_is_what_comparing_with_all_finds(vectors, place, wanted, asked, top):
    found = neighbours(place, query(vectors[asked]), wanted, top)
    expected = naive(vectors, vectors[asked], top, lambda number: keeps(wanted, number))
    assert [item.similarity for item in found] == pytest.approx([cosine for _, cosine in expected], abs=2e-3)
    assert {item.event.event_id for item in found[:-1]} <= {
        name for name, _ in naive(vectors, vectors[asked], top + 3, lambda number: keeps(wanted, number))
    }
    assert all(keeps(wanted, int(item.event.event_id)) for item in found)


def test_the_sound_itself_is_not_among_them(vectors, place):
    found = neighbours(place, query(vectors[7], "000007"), top=5)
    assert len(found) == 5 and "000007" not in [item.event.event_id for item in found]


def test_times_without_a_zone_are_utc(place, vectors):
    told = neighbours(place, query(vectors[0]), Wanted(since=datetime(2024, 5, 10)), COUNT)
    assert len(told) == len(
        [n for n in range(COUNT) if keeps(Wanted(since=datetime(2024, 5, 10, tzinfo=UTC)), n)]
    )


@pytest.fixture
def small_index(monkeypatch):
    monkeypatch.setattr(table, "INDEX_FROM", 1000)
    monkeypatch.setattr(table, "PARTITION_ROWS", 200)


@pytest.mark.usefixtures("small_index")
def test_an_index_finds_nearly_all_and_grows_with_the_table(tmp_path):
    vectors, asked = np.split(clustered(2030), [2000])
    place = str(tmp_path / "t.lance")
    dataset = made_table(place, vectors[:900], parts=3)
    assert not finish(dataset)
    columns = {"event_id": [f"{number:06}" for number in range(900, 2000)]}
    dataset = made_table(place, vectors[900:], parts=2, **columns)
    assert finish(dataset) and len(lance.dataset(place).get_fragments()) == 1
    dataset = lance.dataset(place)
    hits = 0
    for vector in asked:
        true = {name for name, _ in naive(vectors, vector, 10)}
        found = nearest(dataset, vector, 10)
        hits += len(true & {*found["event_id"].to_pylist()})
        exact = nearest(dataset, vector, 10, exact=True)
        assert len(true & {*exact["event_id"].to_pylist()}) >= 9  # float16 ties at the end
        assert found["_distance"].to_pylist()[0] == pytest.approx(exact["_distance"].to_pylist()[0], abs=1e-3)
    assert hits / (10 * len(asked)) >= 0.95
    dataset = made_table(place, asked[:5], event_id=[f"new {number}" for number in range(5)])
    assert finish(dataset)
    assert lance.dataset(place).describe_indices()[0].num_rows_indexed == 2005
    assert neighbours(place, query(asked[3]), top=1)[0].event.event_id == "new 3"
    assert event_query(open_found(write_run(tmp_path / "run", [])), place, "new 3").event_id == "new 3"


@pytest.mark.usefixtures("small_index")
def test_where_a_filter_leaves_few_sounds_the_index_does_not_hide_them(tmp_path):
    vectors = clustered(1500)
    sites = ["rare" if number % 300 == 0 else "common" for number in range(1500)]
    dataset = made_table(str(tmp_path / "t.lance"), vectors, site=sites)
    build_index(dataset)
    assert has_index(lance.dataset(str(tmp_path / "t.lance")))
    found = neighbours(str(tmp_path / "t.lance"), query(-vectors[1]), Wanted(sites=("rare",)), top=10)
    assert {item.event.event_id for item in found} == {f"{300 * number:06}" for number in range(5)}


def a_sound(run, embedded, number=4):
    return rows_of(embedded[0].table)[number]


def box_of(row) -> Event:
    return Event(row["recording_id"], row["start_s"], row["end_s"], row["low_hz"], row["high_hz"])


def test_a_sound_of_the_run_is_asked_for_by_its_name(run, embedded):
    row = a_sound(run, embedded)
    found = search(run, like_event=row["event_id"], top=5)
    every = rows_of(embedded[0].table)
    vectors = np.array([item["vector"] for item in every])
    expected = naive(vectors, vectors[4], 6)[1:]
    assert [item.similarity for item in found] == pytest.approx([cosine for _, cosine in expected], abs=2e-3)
    assert all(isinstance(item, Neighbour) for item in found)


def test_a_box_is_asked_for_and_heard_by_the_model_of_the_table(run, embedded):
    row = a_sound(run, embedded)
    asked = box_query(open_found(run), embedded[0].table, box_of(row), device="cpu")
    assert asked.event_id == row["event_id"]
    cosine = asked.vector.astype(np.float32) @ np.array(row["vector"], np.float32)
    assert cosine > 0.9  # it may have been heard in another chunk
    found = search(run, box_of(row), top=3)
    assert len(found) == 3 and row["event_id"] not in [item.event.event_id for item in found]


def test_a_file_that_is_not_of_the_run_can_be_asked_for(run, embedded, tmp_path):
    row = a_sound(run, embedded)
    found = open_found(run)
    shutil.copy(found.place(*found.split_id(row["recording_id"])), tmp_path / "reference.wav")
    event = Event(
        str(tmp_path / "reference.wav"), row["start_s"], row["end_s"], row["low_hz"], row["high_hz"]
    )
    same = box_query(found, embedded[0].table, box_of(row), device="cpu")
    np.testing.assert_array_equal(
        box_query(found, embedded[0].table, event, device="cpu").vector, same.vector
    )


def test_a_model_that_was_moved_is_named_and_another_is_refused(run, embedded, encoder, tmp_path):
    shutil.copytree(Path(run), tmp_path / "found")
    dataset = lance.dataset(str(tmp_path / "found" / "embeddings.lance"))
    told = dataset.schema.metadata[b"mast"].decode().replace(encoder, str(tmp_path / "gone"))
    dataset.update_schema_metadata({"mast": told})
    found, place = open_found(str(tmp_path / "found")), str(tmp_path / "found" / "embeddings.lance")
    event = box_of(a_sound(run, embedded))
    with pytest.raises(
        StorageError, match="there is no such folder. If the model is elsewhere now, say where"
    ):
        box_query(found, place, event, device="cpu")
    assert box_query(found, place, event, encoder, "cpu").event_id
    with pytest.raises(ModelError, match=r"is model \w{16}, and the vectors of .* are of model \w{16}"):
        box_query(found, place, event, save_encoder(tmp_path / "other", seed=9), "cpu")


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (Event("card/A/nothing.WAV", 0, 1, 1000, 2000), "COLLECTION/PATH with one of the collections card"),
        (Event("elsewhere.wav", 0, 1, 1000, 2000), "no recording of this run is at this place, and no file"),
        (Event("card/A/20230510_003000.WAV", 9, 10, 1000, 2000), r"The recording lasts 2\.5 s"),
        (Event("card/A/20230510_003000.WAV", 0, 1, 9000, 9500), "the model hears 20 to 8000 Hz"),
    ],
)
def test_a_box_without_sound_is_refused_with_what_there_is(run, embedded, event, complaint):
    with pytest.raises(AudioError, match=complaint):
        search(run, event)


def test_questions_that_are_none_are_refused(run, embedded, place):
    with pytest.raises(
        ConfigError, match="either a box with --like or the name of a sound with --like-event"
    ):
        search(run)
    with pytest.raises(ConfigError, match="has no sound it's. Take its name from the page"):
        search(run, like_event="it's")
    with pytest.raises(ConfigError, match="has a lower and an upper frequency"):
        search(run, Event("card/A/20230510_003000.WAV", 0.0, 1.0))
    with pytest.raises(ConfigError, match="--top 0: give 1 or more"):
        neighbours(place, query(np.ones(32)), top=0)
    with pytest.raises(StorageError, match="nowhere.lance: there are no vectors"):
        search(run, like_event="x", table="nowhere.lance")
    with pytest.raises(StorageError, match="of none of the collections card"):
        open_found(run).split_id("other/1.WAV")


def test_the_package_offers_what_searching_takes():
    assert [
        getattr(mast.embeddings, name).__name__ for name in mast.embeddings.__all__
    ] == mast.embeddings.__all__
    with pytest.raises(AttributeError, match="no attribute 'find'"):
        _ = mast.embeddings.find
