"""Record classes define their table schemas and reject invalid boxes."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.records import (
    Annotation,
    Chunk,
    Event,
    Recording,
    ReviewedSpan,
    arrow_schema,
    event_id,
    from_table,
    rows_to_table,
    to_table,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
EVENTS = st.builds(
    Event,
    recording_id=TEXT,
    start_s=st.floats(0, 10),
    end_s=st.floats(10, 20),
    low_hz=st.just(100.0),
    high_hz=st.floats(100, 8000),
    label=st.none() | TEXT,
    score=st.none() | st.floats(0, 1),
    origin=st.sampled_from(["expert", "model", "pseudo"]),
    annotator=st.none() | TEXT,
    columns=st.lists(st.tuples(TEXT, TEXT), max_size=3, unique_by=lambda pair: pair[0]).map(tuple),
)


@pytest.mark.parametrize("record", [Recording, Chunk, Event, Annotation, ReviewedSpan])
def test_every_field_is_a_column_in_order_and_no_rows_make_an_empty_table(record):
    assert arrow_schema(record).names == [field.name for field in fields(record)]
    assert rows_to_table([], record).num_rows == 0


def test_start_utc_has_a_time_zone_and_start_local_has_none():
    schema = arrow_schema(Recording)
    assert schema.field("start_utc").type == pa.timestamp("us", tz="UTC")
    assert schema.field("start_local").type == pa.timestamp("us")
    assert not schema.field("recording_id").nullable
    assert schema.field("start_utc").nullable


@given(st.lists(EVENTS, max_size=5))
def test_events_to_table_to_events_is_the_identity(events):
    assert from_table(to_table(events, Event), Event) == events


def test_a_recording_keeps_its_times_and_faults_in_a_table():
    start = datetime(2023, 5, 10, 7, 30, tzinfo=UTC)
    recording = Recording(
        "c/a.wav",
        "c",
        "a.wav",
        10,
        start,
        "suspect",
        faults=("silent", "clipped"),
        start_utc=start,
        start_local=datetime(2023, 5, 10, 9, 30),
        utc_offset_min=120,
    )
    (back,) = from_table(to_table([recording], Recording), Recording)
    assert back == recording
    assert back.start_utc.utcoffset() == timedelta(0)


def test_an_event_id_depends_on_the_recording_and_the_box():
    first = event_id("card/a.wav", 1.0, 2.0, 500.0, 900.0)
    assert first == event_id("card/a.wav", 1, 2, 500, 900) and len(first) == 20 and int(first, 16)
    others = [
        ("card/b.wav", 1, 2, 500, 900),
        ("card/a.wav", 1.000002, 2, 500, 900),
        ("card/a.wav", 1, 2, 500, 901),
    ]
    assert len({first, *(event_id(*other) for other in others)}) == 4


@given(*[st.floats(0, 1e6)] * 4)
def test_an_exported_event_keeps_its_id(start_s, end_s, low_hz, high_hz):
    written = [float(str(round(value, 6))) for value in (start_s, end_s)]
    written += [float(str(round(value, 3))) for value in (low_hz, high_hz)]
    assert event_id("a", *written) == event_id("a", start_s, end_s, low_hz, high_hz)


@pytest.mark.parametrize(
    "bounds",
    [
        {"start_s": 2, "end_s": 1},
        {"start_s": float("nan"), "end_s": 1},
        {"start_s": 0, "end_s": float("inf")},
        {"start_s": 0, "end_s": 1, "low_hz": 5},
        {"start_s": 0, "end_s": 1, "low_hz": 5, "high_hz": 4},
        {"start_s": 0, "end_s": 1, "low_hz": -1, "high_hz": 4},
    ],
)
def test_invalid_boxes_are_rejected(bounds):
    with pytest.raises(ValueError, match="an event"):
        Event("a.wav", **bounds)
