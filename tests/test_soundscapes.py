"""The soundscape benchmark on a miniature of its sources: tones for calls, noise for backgrounds."""

import csv
import json
import os
import runpy
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from experiments.soundscapes import calls, material, scene, spectra, world, write
from experiments.soundscapes.render import mean_power, render
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mast.annotations import read_annotations
from mast.cli import app
from mast.config import load_study
from mast.errors import StorageError

DATA = os.environ.get("MAST_DATA")
RATE_HZ, FRAME_S, BIN_HZ = spectra.RATE_HZ, spectra.FRAME_S, spectra.BIN_HZ
TINY = world.Size(labelled=3, temporal_a_day=1, site_a_site=1, unseen=1, pool_days=1, pool_a_day=1)


def noise(length_s, seed, level=0.001):
    return (level * np.random.default_rng(seed).standard_normal(round(length_s * RATE_HZ))).astype(np.float32)


def with_tone(wave, start_s, length_s, hz, level=0.3):
    """A tone with soft ends in a copy of a sound."""
    samples = round(length_s * RATE_HZ)
    shape = np.minimum(1, np.minimum(np.arange(samples), np.arange(samples)[::-1]) / 80)
    first, copy = round(start_s * RATE_HZ), wave.copy()
    copy[first : first + samples] += level * shape * np.sin(2 * np.pi * hz * np.arange(samples) / RATE_HZ)
    return copy.astype(np.float32)


def write_source(folder, recordings, annotations=None):
    """A source as the data folder has them: `recordings` are rows with their sound, `annotations` rows."""
    (folder / "audio").mkdir(parents=True)
    rows = [row for row, _ in recordings]
    for row, wave in recordings:
        soundfile.write(folder / "audio" / row["recording"], wave, RATE_HZ, subtype="PCM_16")
    write_rows(folder / "recordings.csv", rows)
    if annotations is not None:
        write_rows(folder / "annotations.csv", annotations)


def write_rows(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def box_row(recording, label, start_s="", end_s="", low_hz="", high_hz=""):
    return {
        "recording": recording, "start_s": start_s, "end_s": end_s, "low_hz": low_hz, "high_hz": high_hz,
        "label": label,
    }  # fmt: skip


def esc50_clips():
    """Three or more originals of every kind; the fourth frog has two takes, and one wind has a bird in it."""
    number = 0
    for category, hz in (("frog", 1500), ("crow", 2500), ("insects", 400)):
        for source in (1, 2, 3, 4, 4):
            number += 1
            wave = with_tone(noise(2, number), 0.5, 0.3, hz + 40 * source)
            yield category, f"{category}{source}", with_tone(wave, 1.3, 0.2, hz + 900)
    for category in (*material.BEDS[1:], *material.DISTURBERS):
        for source in (1, 2, 3):
            number += 1
            yield category, f"{category}{source}", noise(3, number, level=0.1)
    yield "wind", "wind-with-bird", with_tone(noise(3, 999, level=0.01), 1, 0.4, 4000, level=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder in miniature."""
    folder = tmp_path_factory.mktemp("data")
    esc50 = [
        ({"recording": f"{number}.flac", "category": category, "source_clip": source}, wave)
        for number, (category, source, wave) in enumerate(esc50_clips())
    ]
    write_source(folder / material.ESC50, esc50)
    calm = [({"recording": f"{number}.flac"}, noise(4, 500 + number, level=0.02)) for number in range(3)]
    write_source(folder / material.CALM, calm)
    ambient = [({"recording": f"{label}.flac"}, noise(4, 600, level=0.05)) for label in ("rain", "birds")]
    rows = [box_row("rain.flac", "rain"), box_row("birds.flac", "birds")]
    write_source(folder / material.AMBIENT, ambient, rows)
    for number, source in enumerate(material.SAME_RECORDING):
        wave = with_tone(with_tone(noise(2, 700 + number), 0.6, 0.2, 3000), 1.4, 0.2, 3000)
        facts = {"site": "lek", "individual": "red"}
        box = (0.6, 0.8, 2900, 3100) if source != "xc-british-birds" else ()
        files = [({"recording": f"{name}.flac", **facts}, wave) for name in ("known", "unsure")]
        rows = [
            box_row("known.flac", f"species {number}", *box),
            box_row("unsure.flac", material.UNSURE[0], *box),
        ]
        write_source(folder / source, files, rows)
    return folder


@pytest.fixture(scope="module")
def stuff(data):
    return material.read_material(data)


@pytest.fixture(scope="module")
def earth(stuff):
    return world.make_world(stuff, TINY, seed=3)


@pytest.fixture(scope="module")
def written(stuff, tmp_path_factory):
    """A benchmark on disk, and the world it is of."""
    folder = tmp_path_factory.mktemp("benchmark")
    told = []
    made = write.write_benchmark(stuff, folder, TINY, 3, lambda done, total: told.append((done, total)))
    assert told == [(number, 13) for number in range(1, 14)]
    return folder, made


# Spectra


def test_windows_of_no_sound_give_no_sound():
    assert len(spectra.wave_of(spectra.spectrum_of(np.zeros(0, np.float32)), 0)) == 0


@given(st.integers(1, 3000), st.integers(0, 9))
@settings(max_examples=20)
def test_sound_taken_apart_and_put_together_is_the_same(samples, seed):
    wave = noise(samples / RATE_HZ, seed, level=0.3)
    assert np.abs(spectra.wave_of(spectra.spectrum_of(wave), len(wave)) - wave).max(initial=0) < 1e-5


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=20)
def test_smoothing_is_the_mean_of_nine_neighbours(frames, bins, seed):
    power = np.random.default_rng(seed).random((frames, bins)).astype(np.float32)
    wide = np.pad(power, 1, mode="edge")
    naive = [[wide[t : t + 3, f : f + 3].mean() for f in range(bins)] for t in range(frames)]
    assert np.allclose(spectra.smoothed(power), naive, atol=1e-6)


def test_the_span_of_an_even_row_leaves_half_of_what_is_outside_at_either_end():
    assert spectra.span_of(np.array([0, 0, 1, 1, 1, 1, 0.0]), 0.5) == pytest.approx((2.5, 4.5))
    assert spectra.span_of(np.array([0, 5, 0.0]), 0.2) == pytest.approx((0.6, 1.4))


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=20), st.floats(0, 0.5))
@settings(max_examples=30)
def test_a_span_holds_what_it_says(row, outside):
    low, high = spectra.span_of(np.array(row), outside)
    inside = sum(value * max(0, min(high, at + 0.5) - max(low, at - 0.5)) for at, value in enumerate(row))
    assert inside == pytest.approx((1 - outside) * sum(row), rel=1e-6)


def test_a_filter_takes_away_the_frequencies_it_has_no_gain_for():
    low, high = (with_tone(noise(1, 0, 0), 0.2, 0.6, hz) for hz in (500, 6000))
    gains = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0.0])
    kept = spectra.filtered(low + high, gains)
    assert np.abs(kept - low)[2000:-2000].max() < 0.01
    assert np.allclose(spectra.filtered(low, np.ones(2)), low, atol=1e-6)


@given(st.integers(1, 10**7))
@settings(max_examples=50)
def test_a_fast_size_is_little_larger_and_has_no_large_factor(size):
    fast = spectra.fast_size(size)
    assert size <= fast <= size * 1.125 + 1
    while fast % 2 == 0:
        fast //= 2
    assert fast <= 15


# Calls


def test_silence_and_noise_have_no_calls():
    assert calls.find_calls(np.zeros(RATE_HZ, np.float32)) == []
    assert calls.find_calls(noise(3, 1)) == []
    assert calls.find_calls(np.zeros(0, np.float32)) == []


def test_a_tone_is_found_with_a_tight_box():
    [(wave, box)] = calls.find_calls(with_tone(noise(2, 1), 0.7, 0.4, 3000))
    assert box[2] - box[0] == pytest.approx(0.4, abs=0.03)
    assert box[1] == pytest.approx(3000, abs=3 * BIN_HZ)
    assert box[3] == pytest.approx(3000, abs=3 * BIN_HZ)
    assert np.abs(wave).max() == pytest.approx(1, abs=0.01)
    assert len(wave) / RATE_HZ == pytest.approx(box[2] + calls.FADE_S, abs=FRAME_S)


@pytest.mark.parametrize(("gap_s", "found"), [(0.1, 1), (0.5, 2)])
def test_notes_close_together_are_one_call(gap_s, found):
    wave = with_tone(noise(3, 2), 0.7, 0.2, 2000)
    assert len(calls.find_calls(with_tone(wave, 0.9 + gap_s, 0.2, 2000))) == found


def test_a_faint_second_band_is_not_in_the_box_and_not_in_the_sound():
    wave = with_tone(with_tone(noise(2, 3), 0.7, 0.4, 2000), 0.7, 0.4, 6000, level=0.03)
    [(cut, box)] = calls.find_calls(wave)
    power = np.abs(spectra.spectrum_of(cut)) ** 2
    above = np.arange(power.shape[1]) * BIN_HZ > box[3] + 6 * BIN_HZ
    assert box[3] < 2200
    assert power[:, above].sum() < 1e-4 * power.sum()


@pytest.mark.parametrize(
    ("start_s", "length_s", "level"),
    [(0.0, 0.4, 0.3), (1.5, 0.5, 0.3), (0.5, 0.02, 0.3), (0.7, 0.4, 0.0012)],
    ids=["cut off at the start", "cut off at the end", "too short", "hardly above the noise"],
)
def test_a_sound_that_cannot_be_cut_clean_is_no_call(start_s, length_s, level):
    assert calls.find_calls(with_tone(noise(2, 4), start_s, length_s, 3000, level)) == []


def test_a_call_of_more_than_four_seconds_is_left_out():
    assert calls.find_calls(with_tone(noise(7, 5), 1, 4.5, 3000)) == []


def test_a_known_box_is_one_call_and_what_lies_outside_is_not_looked_at():
    wave = with_tone(with_tone(noise(3, 6), 0.7, 0.2, 2000), 1.5, 0.2, 2000)
    [(_, box)] = calls.find_calls(wave, [(0.5, 1800, 1.9, 2200)])
    assert box[2] - box[0] == pytest.approx(1.0, abs=0.05)
    assert calls.find_calls(wave, [(0.5, 4000, 1.9, 6000)]) == []
    assert len(calls.find_calls(wave, [(0.6, 1800, 1.0, 2200), (1.4, 1800, 1.8, 2200)])) == 2


@given(st.floats(0.4, 1.2), st.floats(0.1, 0.6), st.floats(400, 7500), st.integers(0, 99))
@settings(max_examples=15)
def test_any_tone_is_boxed_within_two_frames_and_three_bins(start_s, length_s, hz, seed):
    [(_, box)] = calls.find_calls(with_tone(noise(2.5, seed), start_s, length_s, hz))
    assert abs(box[2] - box[0] - length_s) < 3 * FRAME_S + 0.05 * length_s
    assert hz - 3 * BIN_HZ < box[1] < hz < box[3] < hz + 3 * BIN_HZ


# Material


def test_calls_come_with_species_and_original_recording(stuff):
    labels = Counter(call.label for call in stuff.calls)
    assert labels == {"crow": 10, "frog": 10, **{f"species {n}": 1 for n in range(4)}, "species 4": 2}
    frogs = {call.source for call in stuff.calls if call.label == "frog"}
    assert frogs == {f"{material.ESC50}/frog{number}" for number in (1, 2, 3, 4)}
    sources = {call.label: call.source for call in stuff.calls}
    assert sources["species 0"] == "naturesounds-est/lek/red"
    assert sources["species 2"] == "xc-green-hermit/known.flac"
    assert sources["species 3"] == "qut-noisypitta"


def test_a_bed_with_a_bird_in_it_is_dropped(stuff):
    assert stuff.dropped == {"calm": 0, "rain": 0, "sea_waves": 0, "wind": 1}
    kinds = Counter(item.kind for item in stuff.backgrounds)
    assert kinds == {**dict.fromkeys((*material.BEDS, *material.DISTURBERS), 3), "rain": 4}
    assert not any("bird" in item.source for item in stuff.backgrounds)


def test_a_hum_and_a_crack_are_no_peaks_but_a_whistle_is():
    quiet = noise(3, 1, level=0.01)
    hum = with_tone(quiet, 0, 3, 2000, level=0.1)
    crack = quiet.copy()
    crack[RATE_HZ : RATE_HZ + 400] += noise(400 / RATE_HZ, 2, level=0.5)
    assert material.peaks(quiet) < material.MAX_PEAKS
    assert material.peaks(hum) < material.MAX_PEAKS
    assert material.peaks(crack) < material.MAX_PEAKS
    assert material.peaks(with_tone(quiet, 1, 0.3, 2000, level=0.1)) > material.MAX_PEAKS


def test_a_folder_without_the_sources_says_what_is_missing(tmp_path):
    with pytest.raises(StorageError, match="recordings.csv is not there"):
        material.read_material(tmp_path)


def test_a_fingerprint_tells_materials_apart(stuff):
    other = replace(stuff, calls=stuff.calls[1:])
    assert stuff.fingerprint() == replace(stuff).fingerprint() != other.fingerprint()


# World


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_each_original_stands_on_one_shelf_and_common_kinds_on_all(stuff, seed):
    shelves = world.share_out(stuff, seed)
    everything = [*stuff.calls, *stuff.backgrounds]
    assert shelves.keys() == {item.source for item in everything}
    for kind in ("frog", "crow", *material.BEDS, *material.DISTURBERS):
        own = {
            item.source
            for item in everything
            if kind in (getattr(item, "label", ""), getattr(item, "kind", ""))
        }
        assert {shelves[source] for source in own} == set(world.SHELVES)


def heard_by_shelf(stuff, made) -> dict[str, set[str]]:
    """Original recordings that are heard on the days of each shelf."""
    source_of = {item.name: item.source for item in stuff.backgrounds}
    heard = {shelf: set() for shelf in world.SHELVES}
    for day in made.days:
        heard[world.SHELF_OF[day.role]] |= {*day.sources, *(source_of[name] for name in day.backgrounds)}
    return heard


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_no_animal_and_no_background_is_on_two_sides(stuff, seed):
    labelled, pool, test = heard_by_shelf(stuff, world.make_world(stuff, TINY, seed)).values()
    assert labelled and pool and test
    assert not labelled & test and not pool & test and not labelled & pool


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_another_world_with_the_same_shelves_tests_with_nothing_that_was_learned_from(stuff, seed):
    first, other = (world.make_world(stuff, TINY, number, shelving=seed) for number in (seed, seed + 1))
    assert first == world.make_world(stuff, TINY, seed) and other.sites != first.sites
    labelled, pool, _ = heard_by_shelf(stuff, first).values()
    assert not (labelled | pool) & heard_by_shelf(stuff, other)["test"]


def test_a_world_has_a_day_for_every_role(earth):
    roles = Counter((day.site, day.role) for day in earth.days)
    assert roles == {
        ("A", "labelled"): 1,
        ("A", "temporal"): 2,
        **{(site, "pool"): 1 for site in "ABCD"},
        **{(site, "site"): 1 for site in "BCD"},
        ("Z", "unseen"): 1,
    }
    assert len({(day.site, day.date) for day in earth.days}) == len(earth.days)
    assert earth.sites[0].beds[0] not in {site.beds[0] for site in earth.sites[1:]}


@pytest.mark.parametrize(
    ("name", "labelled", "temporal", "site", "unseen", "pool"),
    [("smoke", 5, 2, 3, 1, 4), ("small", 40, 20, 45, 20, 152), ("full", 120, 20, 45, 20, 1520)],
)
def test_a_size_has_so_many_minutes_of_each_role(stuff, name, labelled, temporal, site, unseen, pool):
    minutes = Counter()
    for day in world.make_world(stuff, world.SIZES[name], 0).days:
        minutes[day.role] += day.minutes
    assert minutes == {
        "labelled": labelled, "temporal": temporal, "site": site, "unseen": unseen, "pool": pool,
    }  # fmt: skip


def test_rates_sum_to_the_sites_own_over_the_day_and_absent_species_do_not_call(earth):
    site = earth.sites[0]
    assert world.rates(site, [], 6) == {}
    there = [voice.label for voice in site.voices][:2]
    by_hour = [world.rates(site, [*there, "unicorn"], hour) for hour in range(24)]
    assert by_hour[0].keys() == set(there)
    assert np.mean([sum(item.values()) for item in by_hour]) == pytest.approx(site.calls_a_minute)


def test_a_voice_is_loudest_at_its_hour_also_across_midnight():
    voice = world.Voice("frog", weight=1, peak_hour=23, width_hours=3)
    assert voice.rate(23) == pytest.approx(1.1)
    assert voice.rate(1) == pytest.approx(voice.rate(21))
    assert voice.rate(1) > voice.rate(12)


def test_too_few_backgrounds_are_told(stuff):
    poor = replace(stuff, backgrounds=tuple(item for item in stuff.backgrounds if item.kind != "wind"))
    with pytest.raises(StorageError, match="no background of the kind wind"):
        world.make_world(poor, TINY, 0)


# Scenes


def test_plans_follow_from_the_seed(stuff, earth):
    def boxes(made):
        return [(item.path, [placed.box for placed in item.placed]) for item in scene.plan(made, stuff)]

    assert boxes(earth) == boxes(world.make_world(stuff, TINY, 3))
    assert boxes(earth) != boxes(world.make_world(stuff, TINY, 4))


def test_a_larger_size_has_the_same_tests_under_shift(stuff, earth):
    def tests(made):
        return [
            (item.path, [placed.box for placed in item.placed], item.disturbances)
            for item in scene.plan(made, stuff)
            if item.day.role in ("temporal", "site", "unseen")
        ]

    larger = world.make_world(stuff, replace(TINY, labelled=6, pool_days=3, pool_a_day=2), 3)
    assert tests(larger) == tests(earth) != []


def test_calls_lie_within_their_minute_and_no_animal_calls_over_itself(stuff):
    busy = world.make_world(stuff, replace(TINY, labelled=60), 1)
    scenes = scene.plan(busy, stuff)
    placed = [item for planned in scenes for item in planned.placed]
    assert 3 < len(placed) / len(scenes) < 12
    for item in placed:
        start_s, low_hz, end_s, high_hz = item.box
        assert 0 < start_s < end_s < scene.MINUTE_S and 0 < low_hz < high_hz <= RATE_HZ / 2
        assert end_s - start_s == pytest.approx(item.call.length_s / item.pitch)
        assert scene.SOFTEST_DB <= item.snr_db <= scene.LOUDEST_DB
    for planned in scenes:
        for one, other in pairwise(planned.placed):
            assert one.box <= other.box
            assert one.call.source != other.call.source or one.box[2] < other.box[0]


def test_recordings_of_a_day_stand_evenly_over_it(stuff):
    day = scene.plan(world.make_world(stuff, replace(TINY, labelled=48), 2), stuff)[:48]
    steps = {(later.clock - earlier.clock).total_seconds() for earlier, later in pairwise(day)}
    assert steps == {1800}
    assert {item.clock.date() for item in day} == {world.FIRST_DAY}


# Sound


@pytest.fixture(scope="module")
def minute(stuff, earth):
    """The liveliest minute, with two takes of it: as it is, and without its calls."""
    planned = max(scene.plan(earth, stuff), key=lambda item: len(item.placed))
    assert len(planned.placed) > 3
    return planned, render(earth, stuff, planned), render(earth, stuff, replace(planned, placed=()))


def test_a_minute_is_never_clipped(minute):
    for wave in minute[1:]:
        assert wave.dtype == np.float32 and len(wave) == 60 * RATE_HZ
        assert 0.001 < np.abs(wave).max() <= 0.9


def test_a_call_stands_as_far_above_the_background_as_planned(stuff, earth, minute):
    planned, _, background = minute
    for item in planned.placed[:4]:
        alone = render(earth, stuff, replace(planned, placed=(item,))) - background
        own, there = (mean_power(wave, item.box[0], item.box) for wave in (alone, background))
        assert 10 * np.log10(own / there) == pytest.approx(item.snr_db, abs=0.3)


def test_what_a_call_adds_lies_in_its_box(stuff, earth, minute):
    planned, _, background = minute
    for item in planned.placed[:4]:
        power = (
            np.abs(spectra.spectrum_of(render(earth, stuff, replace(planned, placed=(item,))) - background))
            ** 2
        )
        start_s, low_hz, end_s, high_hz = item.box
        band = power[:, int(low_hz / BIN_HZ) - 2 : int(high_hz / BIN_HZ) + 4]
        before = band[: int(start_s / FRAME_S) - 3]
        within = band[int(start_s / FRAME_S) - 3 : int(end_s / FRAME_S) + 4]
        assert band.sum() > 0.99 * power.sum()
        assert before.sum() < 0.01 * power.sum()
        assert within.sum() > 0.75 * power.sum()  # the rest is echo


def test_disturbances_and_rain_are_heard(stuff, earth, minute):
    planned, _, background = minute
    day = replace(planned.day, rain_db=10.0, rain_hour=planned.clock.hour + planned.clock.minute / 60)
    rain = render(earth, stuff, replace(planned, day=day, placed=()))
    clicks = scene.Disturbance(world.CLICKS, 10.0, 20.0)
    clicked = render(earth, stuff, replace(planned, placed=(), disturbances=(clicks,)))
    quiet = render(earth, stuff, replace(planned, placed=(), disturbances=()))
    assert np.std(rain) > np.std(background)
    assert np.abs(clicked).max() > np.abs(quiet).max()


def test_sites_differ_in_how_the_same_minute_sounds(stuff, earth, minute):
    planned, _, background = minute
    [site] = [item for item in earth.sites if item.name == planned.day.site]
    flat = replace(site, equaliser_db=tuple(value - 6 for value in site.equaliser_db))
    changed = replace(earth, sites=tuple(flat if item is site else item for item in earth.sites))
    softer = render(changed, stuff, replace(planned, placed=()))
    assert np.std(softer) < 0.8 * np.std(background)


# Cards


def files_of(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_the_same_seed_writes_the_same_bytes(stuff, written, tmp_path):
    write.write_benchmark(stuff, tmp_path, TINY, 3, lambda done, total: None)
    assert files_of(tmp_path) == {
        path: content for path, content in files_of(written[0]).items() if path.parts[0] != "work"
    }


def test_a_broken_off_run_goes_on_and_makes_nothing_twice(stuff, tmp_path):
    class StopError(Exception):
        pass

    def stop(done, total):
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        write.write_benchmark(stuff, tmp_path, TINY, 3, stop)
    begun = {path: path.stat().st_mtime_ns for path in tmp_path.glob("card/*/*.WAV")}
    assert len(begun) == 3 and not (tmp_path / "study.yaml").exists()
    write.write_benchmark(stuff, tmp_path, TINY, 3, lambda done, total: None)
    assert len(list(tmp_path.glob("card/*/*.WAV"))) == 13
    assert {path: path.stat().st_mtime_ns for path in begun} == begun


def test_another_benchmark_is_not_mixed_into_a_folder(stuff, written):
    with pytest.raises(StorageError, match="Name a new folder"):
        write.write_benchmark(stuff, written[0], TINY, 4, lambda done, total: None)


def test_reviewed_recordings_have_tables_and_the_pool_has_none(written):
    folder, made = written
    boxes = read_annotations(folder / "boxes", "raven")
    with (folder / "calls.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pool = {f"{day.site}/{day.date:%Y%m%d}" for day in made.days if day.role == "pool"}
    reviewed = {item.recording_id for item in boxes.reviewed}
    assert len(reviewed) == 13 - 4
    assert not any(name.rpartition("_")[0] in pool for name in reviewed)
    known = sorted((event.recording_id, event.start_s, event.high_hz, event.label) for event in boxes.events)
    told = [
        (row["recording"], float(row["start_s"]), float(row["high_hz"]), row["label"])
        for row in rows
        if row["role"] != "pool"
    ]
    assert known == sorted(told)
    assert {row["role"] for row in rows} > {"pool"}


def test_the_world_is_written_down(written):
    folder, made = written
    told = json.loads((folder / "world.json").read_text("utf-8"))
    assert told["seed"] == 3 and told["dropped_backgrounds"]["wind"] == 1
    assert [site["name"] for site in told["sites"]] == ["A", "B", "C", "D", "Z"]
    assert told["days"][0]["sources"] == list(made.days[0].sources)


def test_the_product_takes_the_study_as_it_is(written):
    pytest.importorskip("lance")
    folder, _ = written
    study = load_study(folder / "study.yaml")
    assert study.chunking.hop_s == study.chunking.chunk_s == 5.12
    for verb in ("scan", "splits", "prepare"):
        done = CliRunner().invoke(app, [verb, str(folder / "study.yaml")])
        assert done.exit_code == 0, done.output
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "work" / "splits.parquet").to_pylist()
    minutes = Counter((row["split"], row["site"]) for row in table if row["index"] == 0)
    assert minutes == {
        **{(split, "A"): 1 for split in ("train", "val", "test")},
        ("temporal", "A"): 2,
        **{("site", site): 1 for site in "BCD"},
        ("unseen", "Z"): 1,
        **{("unlabelled", site): 1 for site in "ABCD"},
    }
    path = next((folder / "boxes" / "Z").glob("*.txt"))
    recording = folder / "card" / "Z" / path.name.partition(".Table")[0]
    shown = ["show", str(recording), "--boxes", str(path), "--out", str(folder / "work" / "show.png")]
    assert CliRunner().invoke(app, shown).exit_code == 0


# Command line


def run_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["soundscapes", *map(str, arguments)])
    runpy.run_module("experiments.soundscapes", run_name="__main__")


def test_the_command_writes_and_draws_a_benchmark_and_says_what_next(data, tmp_path, monkeypatch, capsys):
    run_main(monkeypatch, data, tmp_path / "out", "--size", "smoke")
    assert len(list((tmp_path / "out").glob("card/*/*.WAV"))) == 15
    picture = (tmp_path / "out" / "soundscapes.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 400_000
    assert f"mast scan {tmp_path / 'out' / 'study.yaml'}" in capsys.readouterr().out


def test_the_command_ends_with_a_sentence_where_sources_are_missing(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="is not there"):
        run_main(monkeypatch, tmp_path, tmp_path / "out")


def test_real_sources_give_hundreds_of_clean_calls():
    if DATA is None:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    stuff = material.read_material(Path(DATA))
    assert len(stuff.calls) > 500
    assert len({call.source for call in stuff.calls}) > 150
    assert all(calls.MIN_CALL_S <= call.length_s <= calls.MAX_CALL_S for call in stuff.calls)
    kinds = Counter(item.kind for item in stuff.backgrounds)
    assert min(kinds[kind] for kind in (*material.BEDS, *material.DISTURBERS)) > 15
    world.make_world(stuff, world.SIZES["full"], 0)
