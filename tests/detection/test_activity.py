"""Effort and sounds, added up by site, day, hour, band and score."""

from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.detection.activity import (
    BAND_HZ,
    BANDS,
    DAY_S,
    Activity,
    by_day_s,
    by_hour_s,
    touching_bands,
)
from mast.detection.examples import KEPT, Lottery
from mast.detection.found import FoundPart, open_found
from mast.events import Detected, Heard, Recording, to_table
from tests.detection.runs import event, heard, night, recording, write_run


def part_of(rows, number=0):
    return FoundPart(
        number,
        to_table([item for item, _, _ in rows], Recording),
        to_table([item for _, item, _ in rows], Heard),
        to_table([item for _, _, own in rows for item in own], Detected),
    )


def added(*parts):
    activity = Activity()
    for number, rows in enumerate(parts):
        activity.add(part_of(rows, number))
    return activity


def test_a_recording_without_sounds_is_effort_and_nothing_else():
    item = recording("1.WAV")
    activity = added([(item, heard(item), [])])
    assert activity.sites["ridge"].effort_s == 60.0
    assert activity.sites["ridge"].rate == 0.0
    assert activity.scores.sum() == activity.touching.sum() == 0


def test_a_site_of_which_nothing_was_heard_has_no_rate():
    item = recording("1.WAV")
    activity = added([(item, heard(item, effort_s=0.0, status="quarantined", reason="x"), [])])
    assert np.isnan(activity.sites["ridge"].rate)


def test_sums_of_a_night_by_hand():
    activity = added(*night())
    assert {site: (sums.effort_s, sums.events, sums.recordings) for site, sums in activity.sites.items()} == {
        "ridge": (120.0, 2, 2),
        "swamp": (12.0, 1, 2),
    }
    assert activity.sites["ridge"].rate == 60.0
    assert activity.effort_by_hour_s[[23, 0]].tolist() == [72.0, 60.0]  # the second begins at midnight
    assert activity.events_by_hour[23] == activity.events_by_hour.sum() == 3
    assert activity.days["ridge", date(2024, 5, 11)].events == 2
    assert activity.days["ridge", date(2024, 5, 12)].effort_s == 60.0
    assert activity.scores[[25, 50, 75]].tolist() == [1, 1, 1]
    assert activity.tally.quarantined == 2
    assert activity.quarantined == [
        ("card/swamp/3.WAV", "it breaks off at 12 s", 12.0),
        ("card/swamp/4.WAV", "the file has no content", 0.0),
    ]
    assert activity.faults == {"empty-file": 1}
    rates = activity.rates()
    assert rates[23, 4] == pytest.approx(3 / (72 / 3600))  # all three reach into 1000 to 1250 Hz
    assert np.isnan(rates[12]).all()


def test_a_clock_that_cannot_be_trusted_counts_at_no_hour():
    reset = recording("1.WAV", start=datetime(1970, 1, 1), faults=("clock-reset",))
    activity = added([(reset, heard(reset, 1), [event(reset, 1.0)])])
    assert activity.without_clock_s == 60.0
    assert activity.sites["ridge"].events == 1
    assert not activity.days
    assert activity.effort_by_hour_s.sum() == 0


def test_copies_are_counted():
    item = recording("1.WAV", duplicate_of="card/0.WAV")
    assert added([(item, heard(item), [])]).copies == 1


def test_however_parts_are_cut_the_sums_are_the_same(tmp_path):
    first, second = night()
    whole, cut = added([*first, *second]), added(first, second)
    assert whole.sites == cut.sites and whole.days == cut.days
    np.testing.assert_array_equal(whole.touching, cut.touching)
    found = open_found(write_run(tmp_path, [first, second]))
    read = Activity()
    for part in found.parts():
        read.add(part)
    assert read.sites == cut.sites and read.days == cut.days


spans = st.lists(
    st.tuples(st.integers(0, 3 * 86_400), st.integers(0, 2 * 86_400)).map(
        lambda pair: tuple(map(float, pair))
    ),
    max_size=5,
)


@given(spans)
@settings(max_examples=40, deadline=None)
def test_effort_by_hour_and_day_is_that_of_every_minute_counted(found):
    found = [(start_s // 60 * 60, effort_s // 60 * 60) for start_s, effort_s in found]
    start_s, effort_s = np.array(found).reshape(-1, 2).T
    hours, days = np.zeros(24), {}
    for row, (start, lasting) in enumerate(found):
        for at in np.arange(start, start + lasting, 60.0):
            hours[int(at % DAY_S // 3600)] += 60
            key = (row, date(1970, 1, 1).toordinal() + int(at // DAY_S))
            days[key] = days.get(key, 0.0) + 60
    np.testing.assert_allclose(by_hour_s(start_s, effort_s), hours)
    rows, when, seconds = by_day_s(start_s, effort_s)
    pieces = zip(rows.tolist(), when.tolist(), seconds.tolist(), strict=True)
    assert {(row, day): span_s for row, day, span_s in pieces if span_s} == days


@given(st.lists(st.tuples(st.integers(0, 23), st.floats(0, 9000), st.floats(1, 4000)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_sound_touches_the_bands_that_it_shares_hertz_with(found):
    hour, low_hz, height_hz = (
        np.array(column) for column in (zip(*found, strict=True) if found else [[], [], []])
    )
    counts = touching_bands(hour.astype(np.int64), low_hz, low_hz + height_hz)
    edges = BAND_HZ * np.arange(BANDS + 1)
    naive = np.zeros((24, BANDS), np.int64)
    for at, low, height in found:
        naive[at] += (edges[1:] > low) & (edges[:-1] < low + height)
    np.testing.assert_array_equal(counts, naive)


def test_sounds_above_all_bands_count_in_the_highest():
    assert touching_bands(np.array([0]), np.array([1e6]), np.array([2e6]))[0, -1] == 1


def many(number, events=40, site="ridge"):
    item = replace(recording(f"{site}/{number}.WAV", site=site), start_local=None)
    return [
        (item, heard(item, events), [event(item, at, score=0.2 + 0.7 * at / events) for at in range(events)])
    ]


def test_no_events_give_no_examples():
    lottery = Lottery()
    item = recording("1.WAV")
    lottery.add(part_of([(item, heard(item), [])]))
    assert lottery.chosen() == []


def test_examples_are_of_all_sites_and_scores_and_always_the_same():
    def chosen(order):
        lottery = Lottery()
        for number in order:
            lottery.add(part_of(many(number, site="ABC"[number % 3]), number))
        return lottery.chosen()

    one = chosen(range(12))
    assert len(one) == 9
    assert one == chosen(reversed(range(12)))
    assert {item.site for item in one} == {"A", "B", "C"}
    assert [item.score for item in one] == sorted(item.score for item in one)
    assert one[0].score < 0.5 < one[-1].score


def test_of_each_site_only_a_few_events_are_kept():
    lottery = Lottery()
    for number in range(5):
        lottery.add(part_of(many(number), number))
    assert [len(kept) for kept in lottery._drawn.values()] == [KEPT]


def test_lots_are_drawn_evenly():
    """Of 4000 events in 100 parts, the examples come from early and late parts alike."""
    lottery = Lottery()
    for number in range(100):
        lottery.add(part_of(many(number, site=f"s{number % 20}"), number))
    parts = [item.part for kept in lottery._drawn.values() for item in kept]
    assert 35 < np.mean(parts) < 65


def test_events_without_a_site_take_part():
    item = recording("1.WAV", site=None)
    activity, lottery = Activity(), Lottery()
    for taker in (activity, lottery):
        taker.add(part_of([(item, heard(item, 1), [event(item, 1.0)])]))
    assert activity.sites[""].events == 1
    assert lottery.chosen()[0].site == ""


def test_an_event_after_midnight_counts_on_its_own_day():
    item = recording("1.WAV", duration_s=7200.0)
    activity = added([(item, heard(item, 1), [event(item, 3600.0)])])
    assert activity.days["ridge", date(2024, 5, 12)].events == 1
    assert activity.days["ridge", date(2024, 5, 11)].effort_s == timedelta(minutes=30).total_seconds()


def test_dictionaries_of_sites_and_ids_may_be_plain_text_too():
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
    activity, lottery = Activity(), Lottery()
    for taker in (activity, lottery):
        taker.add(replace(part, events=plain))
    assert activity.sites["ridge"].events == 2
