"""Effort and events by site, day, hour, frequency band and score, and random samples of events."""

from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.outputs.activity import (
    BAND_HZ,
    BANDS,
    DAY_S,
    Activity,
    by_day_s,
    by_hour_s,
    touching_bands,
)
from mast.outputs.examples import MAX_CANDIDATES, EventSampler
from mast.records import DetectedEvent, Recording, RecordingStatus, to_table
from mast.runs.results import ResultsPart, open_results
from tests.runs.finished import event, night, recording, status_of, write_run


def part_of(rows, number=0):
    return ResultsPart(
        number,
        to_table([item for item, _, _ in rows], Recording),
        to_table([item for _, item, _ in rows], RecordingStatus),
        to_table([item for _, _, events in rows for item in events], DetectedEvent),
    )


def activity_of(*parts):
    activity = Activity()
    for number, rows in enumerate(parts):
        activity.add(part_of(rows, number))
    return activity


def test_a_recording_without_events_counts_only_as_effort():
    item = recording("1.WAV")
    activity = activity_of([(item, status_of(item), [])])
    assert activity.sites["ridge"].effort_s == 60.0
    assert activity.sites["ridge"].rate == 0.0
    assert activity.scores.sum() == activity.touching.sum() == 0


def test_a_site_without_effort_has_no_rate():
    item = recording("1.WAV")
    activity = activity_of([(item, status_of(item, effort_s=0.0, status="quarantined", reason="x"), [])])
    assert np.isnan(activity.sites["ridge"].rate)


def test_counts_of_a_night_by_hand():
    activity = activity_of(*night())
    assert {
        site: (counts.effort_s, counts.events, counts.recordings) for site, counts in activity.sites.items()
    } == {
        "ridge": (120.0, 2, 2),
        "swamp": (12.0, 1, 2),
    }
    assert activity.sites["ridge"].rate == 60.0
    assert activity.effort_by_hour_s[[23, 0]].tolist() == [
        72.0,
        60.0,
    ]  # the second recording starts at midnight
    assert activity.events_by_hour[23] == activity.events_by_hour.sum() == 3
    assert activity.days["ridge", date(2024, 5, 11)].events == 2
    assert activity.days["ridge", date(2024, 5, 12)].effort_s == 60.0
    assert activity.scores[[25, 50, 75]].tolist() == [1, 1, 1]
    assert activity.stats.quarantined == 2
    assert activity.quarantined == [
        ("card/swamp/3.WAV", "it breaks off at 12 s", 12.0),
        ("card/swamp/4.WAV", "the file has no content", 0.0),
    ]
    assert activity.faults == {"empty-file": 1}
    rates = activity.rates()
    assert rates[23, 4] == pytest.approx(3 / (72 / 3600))  # all three overlap 1000 to 1250 Hz
    assert np.isnan(rates[12]).all()


def test_recordings_with_an_unreliable_clock_count_at_no_hour():
    reset = recording("1.WAV", start=datetime(1970, 1, 1), faults=("clock-reset",))
    activity = activity_of([(reset, status_of(reset, 1), [event(reset, 1.0)])])
    assert activity.without_clock_s == 60.0
    assert activity.sites["ridge"].events == 1
    assert not activity.days
    assert activity.effort_by_hour_s.sum() == 0


def test_copies_are_counted():
    item = recording("1.WAV", duplicate_of="card/0.WAV")
    assert activity_of([(item, status_of(item), [])]).copies == 1


def test_counts_do_not_depend_on_the_partition_into_parts(tmp_path):
    first, second = night()
    together, separate = activity_of([*first, *second]), activity_of(first, second)
    assert together.sites == separate.sites and together.days == separate.days
    np.testing.assert_array_equal(together.touching, separate.touching)
    results = open_results(write_run(tmp_path, [first, second]))
    read = Activity()
    for part in results.parts():
        read.add(part)
    assert read.sites == separate.sites and read.days == separate.days


spans = st.lists(
    st.tuples(st.integers(0, 3 * 86_400), st.integers(0, 2 * 86_400)).map(
        lambda pair: tuple(map(float, pair))
    ),
    max_size=5,
)


@given(spans)
@settings(max_examples=40, deadline=None)
def test_effort_by_hour_and_day_equals_a_count_of_minutes(drawn_spans):
    minutes = [(start_s // 60 * 60, effort_s // 60 * 60) for start_s, effort_s in drawn_spans]
    start_s, effort_s = np.array(minutes).reshape(-1, 2).T
    hours, days = np.zeros(24), {}
    for row, (start, duration) in enumerate(minutes):
        for at in np.arange(start, start + duration, 60.0):
            hours[int(at % DAY_S // 3600)] += 60
            key = (row, date(1970, 1, 1).toordinal() + int(at // DAY_S))
            days[key] = days.get(key, 0.0) + 60
    np.testing.assert_allclose(by_hour_s(start_s, effort_s), hours)
    rows, ordinals, seconds = by_day_s(start_s, effort_s)
    pieces = zip(rows.tolist(), ordinals.tolist(), seconds.tolist(), strict=True)
    assert {(row, day): span_s for row, day, span_s in pieces if span_s} == days


@given(st.lists(st.tuples(st.integers(0, 23), st.floats(0, 9000), st.floats(1, 4000)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_an_event_counts_in_every_band_that_it_overlaps(events):
    hour, low_hz, height_hz = (
        np.array(column) for column in (zip(*events, strict=True) if events else [[], [], []])
    )
    counts = touching_bands(hour.astype(np.int64), low_hz, low_hz + height_hz)
    edges = BAND_HZ * np.arange(BANDS + 1)
    naive = np.zeros((24, BANDS), np.int64)
    for at, low, height in events:
        naive[at] += (edges[1:] > low) & (edges[:-1] < low + height)
    np.testing.assert_array_equal(counts, naive)


def test_events_above_all_bands_count_in_the_highest():
    assert touching_bands(np.array([0]), np.array([1e6]), np.array([2e6]))[0, -1] == 1


def part_of_many(number, events=40, site="ridge"):
    item = replace(recording(f"{site}/{number}.WAV", site=site), start_local=None)
    return [
        (
            item,
            status_of(item, events),
            [event(item, at, score=0.2 + 0.7 * at / events) for at in range(events)],
        )
    ]


def test_no_events_give_no_examples():
    sampler = EventSampler()
    item = recording("1.WAV")
    sampler.add(part_of([(item, status_of(item), [])]))
    assert sampler.chosen() == []


def test_examples_are_of_all_sites_and_scores_and_always_the_same():
    def chosen(order):
        sampler = EventSampler()
        for number in order:
            sampler.add(part_of(part_of_many(number, site="ABC"[number % 3]), number))
        return sampler.chosen()

    examples = chosen(range(12))
    assert len(examples) == 9
    assert examples == chosen(reversed(range(12)))
    assert {item.site for item in examples} == {"A", "B", "C"}
    assert [item.score for item in examples] == sorted(item.score for item in examples)
    assert examples[0].score < 0.5 < examples[-1].score


def test_only_a_few_events_of_each_site_are_kept():
    sampler = EventSampler()
    for number in range(5):
        sampler.add(part_of(part_of_many(number), number))
    assert [len(kept) for kept in sampler._candidates.values()] == [MAX_CANDIDATES]


def test_events_are_sampled_evenly():
    """Check that examples from 4000 events in 100 parts come from early and late parts alike."""
    sampler = EventSampler()
    for number in range(100):
        sampler.add(part_of(part_of_many(number, site=f"s{number % 20}"), number))
    parts = [item.part for kept in sampler._candidates.values() for item in kept]
    assert 35 < np.mean(parts) < 65


def test_events_without_a_site_are_sampled_and_counted():
    item = recording("1.WAV", site=None)
    activity, sampler = Activity(), EventSampler()
    for consumer in (activity, sampler):
        consumer.add(part_of([(item, status_of(item, 1), [event(item, 1.0)])]))
    assert activity.sites[""].events == 1
    assert sampler.chosen()[0].site == ""


def test_an_event_after_midnight_counts_on_its_own_day():
    item = recording("1.WAV", duration_s=7200.0)
    activity = activity_of([(item, status_of(item, 1), [event(item, 3600.0)])])
    assert activity.days["ridge", date(2024, 5, 12)].events == 1
    assert activity.days["ridge", date(2024, 5, 11)].effort_s == timedelta(minutes=30).total_seconds()


def test_columns_of_sites_and_ids_may_be_strings_instead_of_dictionaries():
    rows = night()[0]
    part = part_of(rows)
    plain = part.events.cast(
        pa.schema(
            [
                field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field
                for field in part.events.schema
            ]
        )
    )
    activity, sampler = Activity(), EventSampler()
    for consumer in (activity, sampler):
        consumer.add(replace(part, events=plain))
    assert activity.sites["ridge"].events == 2
