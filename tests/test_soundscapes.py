"""Tests of the soundscape benchmark on miniature sources: tones as calls, noise as backgrounds."""

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
from experiments.soundscapes import calls, scene, sites, sources, spectra, write
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
TINY = sites.Size(labelled=3, temporal_a_day=1, site_a_site=1, unseen=1, pool_days=1, pool_a_day=1)


def noise(length_s, seed, level=0.001):
    return (level * np.random.default_rng(seed).standard_normal(round(length_s * RATE_HZ))).astype(np.float32)


def with_tone(wave, start_s, length_s, hz, level=0.3):
    """Return a copy of the audio with a faded tone added."""
    samples = round(length_s * RATE_HZ)
    shape = np.minimum(1, np.minimum(np.arange(samples), np.arange(samples)[::-1]) / 80)
    first, copy = round(start_s * RATE_HZ), wave.copy()
    copy[first : first + samples] += level * shape * np.sin(2 * np.pi * hz * np.arange(samples) / RATE_HZ)
    return copy.astype(np.float32)


def write_source(folder, recordings, annotations=None):
    """Write a source as in the data folder: `recordings` are rows with their audio, `annotations` are rows."""
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
    """Yield three or more original recordings of every kind: the fourth frog has two, and one wind contains a bird."""
    number = 0
    for category, hz in (("frog", 1500), ("crow", 2500), ("insects", 400)):
        for source in (1, 2, 3, 4, 4):
            number += 1
            wave = with_tone(noise(2, number), 0.5, 0.3, hz + 40 * source)
            yield category, f"{category}{source}", with_tone(wave, 1.3, 0.2, hz + 900)
    for category in (*sources.BEDS[1:], *sources.DISTURBERS):
        for source in (1, 2, 3):
            number += 1
            yield category, f"{category}{source}", noise(3, number, level=0.1)
    yield "wind", "wind-with-bird", with_tone(noise(3, 999, level=0.01), 1, 0.4, 4000, level=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write a miniature data folder."""
    folder = tmp_path_factory.mktemp("data")
    esc50 = [
        ({"recording": f"{number}.flac", "category": category, "source_clip": source}, wave)
        for number, (category, source, wave) in enumerate(esc50_clips())
    ]
    write_source(folder / sources.ESC50, esc50)
    calm = [({"recording": f"{number}.flac"}, noise(4, 500 + number, level=0.02)) for number in range(3)]
    write_source(folder / sources.CALM, calm)
    ambient = [({"recording": f"{label}.flac"}, noise(4, 600, level=0.05)) for label in ("rain", "birds")]
    rows = [box_row("rain.flac", "rain"), box_row("birds.flac", "birds")]
    write_source(folder / sources.AMBIENT, ambient, rows)
    for number, source in enumerate(sources.SAME_RECORDING):
        wave = with_tone(with_tone(noise(2, 700 + number), 0.6, 0.2, 3000), 1.4, 0.2, 3000)
        metadata = {"site": "lek", "individual": "red"}
        box = (0.6, 0.8, 2900, 3100) if source != "xc-british-birds" else ()
        files = [({"recording": f"{name}.flac", **metadata}, wave) for name in ("certain", "uncertain")]
        rows = [
            box_row("certain.flac", f"species {number}", *box),
            box_row("uncertain.flac", sources.UNCERTAIN[0], *box),
        ]
        write_source(folder / source, files, rows)
    return folder


@pytest.fixture(scope="module")
def source_audio(data):
    return sources.read_sources(data)


@pytest.fixture(scope="module")
def world(source_audio):
    return sites.make_world(source_audio, TINY, seed=3)


@pytest.fixture(scope="module")
def written(source_audio, tmp_path_factory):
    """Write a benchmark; return its folder and its world."""
    folder = tmp_path_factory.mktemp("benchmark")
    progress = []
    made = write.write_benchmark(
        source_audio, folder, TINY, 3, lambda done, total: progress.append((done, total))
    )
    assert progress == [(number, 13) for number in range(1, 14)]
    return folder, made


# Spectra


def test_empty_audio_gives_an_empty_spectrum_and_back():
    assert len(spectra.wave_of(spectra.spectrum_of(np.zeros(0, np.float32)), 0)) == 0


@given(st.integers(1, 3000), st.integers(0, 9))
@settings(max_examples=20)
def test_the_inverse_transform_returns_the_audio(samples, seed):
    wave = noise(samples / RATE_HZ, seed, level=0.3)
    assert np.abs(spectra.wave_of(spectra.spectrum_of(wave), len(wave)) - wave).max(initial=0) < 1e-5


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=20)
def test_smoothing_is_the_mean_of_nine_neighbours(frames, bins, seed):
    power = np.random.default_rng(seed).random((frames, bins)).astype(np.float32)
    wide = np.pad(power, 1, mode="edge")
    naive = [[wide[t : t + 3, f : f + 3].mean() for f in range(bins)] for t in range(frames)]
    assert np.allclose(spectra.smoothed(power), naive, atol=1e-6)


def test_a_span_excludes_half_of_the_outside_fraction_at_either_end():
    assert spectra.span_of(np.array([0, 0, 1, 1, 1, 1, 0.0]), 0.5) == pytest.approx((2.5, 4.5))
    assert spectra.span_of(np.array([0, 5, 0.0]), 0.2) == pytest.approx((0.6, 1.4))


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=20), st.floats(0, 0.5))
@settings(max_examples=30)
def test_a_span_contains_the_requested_fraction_of_the_energy(row, outside):
    low, high = spectra.span_of(np.array(row), outside)
    inside = sum(
        value * max(0, min(high, cell + 0.5) - max(low, cell - 0.5)) for cell, value in enumerate(row)
    )
    assert inside == pytest.approx((1 - outside) * sum(row), rel=1e-6)


def test_a_filter_removes_frequencies_with_a_gain_of_zero():
    low, high = (with_tone(noise(1, 0, 0), 0.2, 0.6, hz) for hz in (500, 6000))
    gains = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0.0])
    filtered = spectra.filtered(low + high, gains)
    assert np.abs(filtered - low)[2000:-2000].max() < 0.01
    assert np.allclose(spectra.filtered(low, np.ones(2)), low, atol=1e-6)


@given(st.integers(1, 10**7))
@settings(max_examples=50)
def test_a_fast_size_is_slightly_larger_and_has_no_large_factor(size):
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


def test_a_tone_is_detected_with_a_tight_box():
    [(wave, box)] = calls.find_calls(with_tone(noise(2, 1), 0.7, 0.4, 3000))
    assert box[2] - box[0] == pytest.approx(0.4, abs=0.03)
    assert box[1] == pytest.approx(3000, abs=3 * BIN_HZ)
    assert box[3] == pytest.approx(3000, abs=3 * BIN_HZ)
    assert np.abs(wave).max() == pytest.approx(1, abs=0.01)
    assert len(wave) / RATE_HZ == pytest.approx(box[2] + calls.FADE_S, abs=FRAME_S)


@pytest.mark.parametrize(("gap_s", "count"), [(0.1, 1), (0.5, 2)])
def test_notes_close_together_are_one_call(gap_s, count):
    wave = with_tone(noise(3, 2), 0.7, 0.2, 2000)
    assert len(calls.find_calls(with_tone(wave, 0.9 + gap_s, 0.2, 2000))) == count


def test_a_faint_second_band_is_neither_in_the_box_nor_in_the_audio():
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
def test_audio_that_cannot_be_isolated_is_not_a_call(start_s, length_s, level):
    assert calls.find_calls(with_tone(noise(2, 4), start_s, length_s, 3000, level)) == []


def test_a_call_longer_than_four_seconds_is_excluded():
    assert calls.find_calls(with_tone(noise(7, 5), 1, 4.5, 3000)) == []


def test_a_search_box_gives_one_call_and_nothing_outside_it():
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


# Source recordings


def test_calls_come_with_species_and_original_recording(source_audio):
    labels = Counter(call.label for call in source_audio.calls)
    assert labels == {"crow": 10, "frog": 10, **{f"species {n}": 1 for n in range(4)}, "species 4": 2}
    frogs = {call.source for call in source_audio.calls if call.label == "frog"}
    assert frogs == {f"{sources.ESC50}/frog{number}" for number in (1, 2, 3, 4)}
    source_of = {call.label: call.source for call in source_audio.calls}
    assert source_of["species 0"] == "naturesounds-est/lek/red"
    assert source_of["species 2"] == "xc-green-hermit/certain.flac"
    assert source_of["species 3"] == "qut-noisypitta"


def test_a_bed_that_contains_a_bird_is_dropped(source_audio):
    assert source_audio.dropped == {"calm": 0, "rain": 0, "sea_waves": 0, "wind": 1}
    kinds = Counter(background.kind for background in source_audio.backgrounds)
    assert kinds == {**dict.fromkeys((*sources.BEDS, *sources.DISTURBERS), 3), "rain": 4}
    assert not any("bird" in background.source for background in source_audio.backgrounds)


def test_a_whistle_is_a_peak_but_a_hum_and_a_crack_are_not():
    quiet = noise(3, 1, level=0.01)
    hum = with_tone(quiet, 0, 3, 2000, level=0.1)
    crack = quiet.copy()
    crack[RATE_HZ : RATE_HZ + 400] += noise(400 / RATE_HZ, 2, level=0.5)
    assert sources.peak_fraction(quiet) < sources.MAX_PEAKS
    assert sources.peak_fraction(hum) < sources.MAX_PEAKS
    assert sources.peak_fraction(crack) < sources.MAX_PEAKS
    assert sources.peak_fraction(with_tone(quiet, 1, 0.3, 2000, level=0.1)) > sources.MAX_PEAKS


def test_a_folder_without_the_sources_raises_an_error_that_names_the_missing_table(tmp_path):
    with pytest.raises(StorageError, match="recordings.csv does not exist"):
        sources.read_sources(tmp_path)


def test_a_fingerprint_changes_with_the_source_recordings(source_audio):
    other = replace(source_audio, calls=source_audio.calls[1:])
    assert source_audio.fingerprint() == replace(source_audio).fingerprint() != other.fingerprint()


# World


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_each_original_recording_is_in_one_partition_and_common_kinds_are_in_all(source_audio, seed):
    partitions = sites.assign_partitions(source_audio, seed)
    everything = [*source_audio.calls, *source_audio.backgrounds]
    assert partitions.keys() == {recording.source for recording in everything}
    for kind in ("frog", "crow", *sources.BEDS, *sources.DISTURBERS):
        originals = {
            recording.source
            for recording in everything
            if kind in (getattr(recording, "label", ""), getattr(recording, "kind", ""))
        }
        assert {partitions[source] for source in originals} == set(sites.PARTITIONS)


def used_by_partition(source_audio, made) -> dict[str, set[str]]:
    """Return the original recordings that the days of each partition use."""
    source_of = {background.name: background.source for background in source_audio.backgrounds}
    used = {partition: set() for partition in sites.PARTITIONS}
    for day in made.days:
        used[sites.PARTITION_OF[day.role]] |= {*day.sources, *(source_of[name] for name in day.backgrounds)}
    return used


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_no_animal_and_no_background_is_in_two_partitions(source_audio, seed):
    labelled, pool, test = used_by_partition(
        source_audio, sites.make_world(source_audio, TINY, seed)
    ).values()
    assert labelled and pool and test
    assert not labelled & test and not pool & test and not labelled & pool


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_another_world_with_the_same_partitions_has_no_training_recordings_in_its_test(source_audio, seed):
    first, other = (
        sites.make_world(source_audio, TINY, number, partition_seed=seed) for number in (seed, seed + 1)
    )
    assert first == sites.make_world(source_audio, TINY, seed) and other.sites != first.sites
    labelled, pool, _ = used_by_partition(source_audio, first).values()
    assert not (labelled | pool) & used_by_partition(source_audio, other)["test"]


def test_a_world_has_a_day_for_every_role(world):
    roles = Counter((day.site, day.role) for day in world.days)
    assert roles == {
        ("A", "labelled"): 1,
        ("A", "temporal"): 2,
        **{(site, "pool"): 1 for site in "ABCD"},
        **{(site, "site"): 1 for site in "BCD"},
        ("Z", "unseen"): 1,
    }
    assert len({(day.site, day.date) for day in world.days}) == len(world.days)
    assert world.sites[0].beds[0] not in {site.beds[0] for site in world.sites[1:]}


@pytest.mark.parametrize(
    ("name", "labelled", "temporal", "site", "unseen", "pool"),
    [("smoke", 5, 2, 3, 1, 4), ("small", 40, 20, 45, 20, 152), ("full", 120, 20, 45, 20, 1520)],
)
def test_a_size_has_the_documented_minutes_of_each_role(
    source_audio, name, labelled, temporal, site, unseen, pool
):
    minutes = Counter()
    for day in sites.make_world(source_audio, sites.SIZES[name], 0).days:
        minutes[day.role] += day.minutes
    assert minutes == {
        "labelled": labelled, "temporal": temporal, "site": site, "unseen": unseen, "pool": pool,
    }  # fmt: skip


def test_rates_average_the_call_rate_of_the_site_and_absent_species_do_not_call(world):
    site = world.sites[0]
    assert sites.rates(site, [], 6) == {}
    present = [voice.label for voice in site.voices][:2]
    by_hour = [sites.rates(site, [*present, "unicorn"], hour) for hour in range(24)]
    assert by_hour[0].keys() == set(present)
    assert np.mean([sum(row.values()) for row in by_hour]) == pytest.approx(site.calls_a_minute)


def test_a_voice_has_its_highest_rate_at_its_hour_also_across_midnight():
    voice = sites.Voice("frog", weight=1, peak_hour=23, width_hours=3)
    assert voice.rate(23) == pytest.approx(1.1)
    assert voice.rate(1) == pytest.approx(voice.rate(21))
    assert voice.rate(1) > voice.rate(12)


def test_too_few_backgrounds_raise_an_error(source_audio):
    poor = replace(
        source_audio, backgrounds=tuple(each for each in source_audio.backgrounds if each.kind != "wind")
    )
    with pytest.raises(StorageError, match="no background of the kind wind"):
        sites.make_world(poor, TINY, 0)


# Scenes


def test_plans_depend_only_on_the_seed(source_audio, world):
    def boxes(made):
        return [
            (planned.path, [placed.box for placed in planned.placed])
            for planned in scene.plan(made, source_audio)
        ]

    assert boxes(world) == boxes(sites.make_world(source_audio, TINY, 3))
    assert boxes(world) != boxes(sites.make_world(source_audio, TINY, 4))


def test_a_larger_size_has_the_same_shifted_test_sets(source_audio, world):
    def tests(made):
        return [
            (planned.path, [placed.box for placed in planned.placed], planned.disturbances)
            for planned in scene.plan(made, source_audio)
            if planned.day.role in ("temporal", "site", "unseen")
        ]

    larger = sites.make_world(source_audio, replace(TINY, labelled=6, pool_days=3, pool_a_day=2), 3)
    assert tests(larger) == tests(world) != []


def test_calls_lie_within_their_minute_and_calls_of_one_animal_do_not_overlap(source_audio):
    busy = sites.make_world(source_audio, replace(TINY, labelled=60), 1)
    scenes = scene.plan(busy, source_audio)
    calls_placed = [placed for planned in scenes for placed in planned.placed]
    assert 3 < len(calls_placed) / len(scenes) < 12
    for placed in calls_placed:
        start_s, low_hz, end_s, high_hz = placed.box
        assert 0 < start_s < end_s < scene.MINUTE_S and 0 < low_hz < high_hz <= RATE_HZ / 2
        assert end_s - start_s == pytest.approx(placed.call.length_s / placed.pitch)
        assert scene.SOFTEST_DB <= placed.snr_db <= scene.LOUDEST_DB
    for planned in scenes:
        for one, other in pairwise(planned.placed):
            assert one.box <= other.box
            assert one.call.source != other.call.source or one.box[2] < other.box[0]


def test_recordings_of_a_day_are_evenly_spaced(source_audio):
    day = scene.plan(sites.make_world(source_audio, replace(TINY, labelled=48), 2), source_audio)[:48]
    steps = {(later.clock - earlier.clock).total_seconds() for earlier, later in pairwise(day)}
    assert steps == {1800}
    assert {planned.clock.date() for planned in day} == {sites.FIRST_DAY}


# Rendering


@pytest.fixture(scope="module")
def minute(source_audio, world):
    """Return the minute with the most calls, rendered with and without its calls."""
    planned = max(scene.plan(world, source_audio), key=lambda each: len(each.placed))
    assert len(planned.placed) > 3
    return (
        planned,
        render(world, source_audio, planned),
        render(world, source_audio, replace(planned, placed=())),
    )


def test_a_minute_is_never_clipped(minute):
    for wave in minute[1:]:
        assert wave.dtype == np.float32 and len(wave) == 60 * RATE_HZ
        assert 0.001 < np.abs(wave).max() <= 0.9


def test_a_call_has_the_planned_level_above_the_background(source_audio, world, minute):
    planned, _, background = minute
    for placed in planned.placed[:4]:
        alone = render(world, source_audio, replace(planned, placed=(placed,))) - background
        signal, noise_power = (mean_power(wave, placed.box[0], placed.box) for wave in (alone, background))
        assert 10 * np.log10(signal / noise_power) == pytest.approx(placed.snr_db, abs=0.3)


def test_the_energy_of_a_call_lies_in_its_box(source_audio, world, minute):
    planned, _, background = minute
    for placed in planned.placed[:4]:
        power = (
            np.abs(
                spectra.spectrum_of(
                    render(world, source_audio, replace(planned, placed=(placed,))) - background
                )
            )
            ** 2
        )
        start_s, low_hz, end_s, high_hz = placed.box
        band = power[:, int(low_hz / BIN_HZ) - 2 : int(high_hz / BIN_HZ) + 4]
        before = band[: int(start_s / FRAME_S) - 3]
        within = band[int(start_s / FRAME_S) - 3 : int(end_s / FRAME_S) + 4]
        assert band.sum() > 0.99 * power.sum()
        assert before.sum() < 0.01 * power.sum()
        assert within.sum() > 0.75 * power.sum()  # the rest is echo


def test_disturbances_and_rain_are_audible(source_audio, world, minute):
    planned, _, background = minute
    day = replace(planned.day, rain_db=10.0, rain_hour=planned.clock.hour + planned.clock.minute / 60)
    rain = render(world, source_audio, replace(planned, day=day, placed=()))
    clicks = scene.Disturbance(sites.CLICKS, 10.0, 20.0)
    clicked = render(world, source_audio, replace(planned, placed=(), disturbances=(clicks,)))
    quiet = render(world, source_audio, replace(planned, placed=(), disturbances=()))
    assert np.std(rain) > np.std(background)
    assert np.abs(clicked).max() > np.abs(quiet).max()


def test_the_same_minute_differs_between_sites(source_audio, world, minute):
    planned, _, background = minute
    [site] = [each for each in world.sites if each.name == planned.day.site]
    flat = replace(site, equaliser_db=tuple(value - 6 for value in site.equaliser_db))
    changed = replace(world, sites=tuple(flat if each is site else each for each in world.sites))
    softer = render(changed, source_audio, replace(planned, placed=()))
    assert np.std(softer) < 0.8 * np.std(background)


# Cards


def files_of(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_the_same_seed_writes_the_same_bytes(source_audio, written, tmp_path):
    write.write_benchmark(source_audio, tmp_path, TINY, 3, lambda done, total: None)
    assert files_of(tmp_path) == {
        path: content for path, content in files_of(written[0]).items() if path.parts[0] != "work"
    }


def test_an_interrupted_run_resumes_without_repeating_work(source_audio, tmp_path):
    class StopError(Exception):
        pass

    def stop(done, total):
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        write.write_benchmark(source_audio, tmp_path, TINY, 3, stop)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("card/*/*.WAV")}
    assert len(written) == 3 and not (tmp_path / "study.yaml").exists()
    write.write_benchmark(source_audio, tmp_path, TINY, 3, lambda done, total: None)
    assert len(list(tmp_path.glob("card/*/*.WAV"))) == 13
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_another_benchmark_is_not_mixed_into_a_folder(source_audio, written):
    with pytest.raises(StorageError, match="Use a new folder"):
        write.write_benchmark(source_audio, written[0], TINY, 4, lambda done, total: None)


def test_reviewed_recordings_have_tables_and_the_pool_has_none(written):
    folder, made = written
    boxes = read_annotations(folder / "boxes", "raven")
    with (folder / "calls.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pool = {f"{day.site}/{day.date:%Y%m%d}" for day in made.days if day.role == "pool"}
    reviewed = {span.recording_id for span in boxes.reviewed}
    assert len(reviewed) == 13 - 4
    assert not any(name.rpartition("_")[0] in pool for name in reviewed)
    expected = sorted(
        (event.recording_id, event.start_s, event.high_hz, event.label) for event in boxes.events
    )
    listed = [
        (row["recording"], float(row["start_s"]), float(row["high_hz"]), row["label"])
        for row in rows
        if row["role"] != "pool"
    ]
    assert expected == sorted(listed)
    assert {row["role"] for row in rows} > {"pool"}


def test_the_parameters_of_the_world_are_written(written):
    folder, made = written
    values = json.loads((folder / "world.json").read_text("utf-8"))
    assert values["seed"] == 3 and values["dropped_backgrounds"]["wind"] == 1
    assert [site["name"] for site in values["sites"]] == ["A", "B", "C", "D", "Z"]
    assert values["days"][0]["sources"] == list(made.days[0].sources)


def test_the_commands_accept_the_written_study(written):
    pytest.importorskip("lance")
    folder, _ = written
    study = load_study(folder / "study.yaml")
    assert study.chunking.hop_s == study.chunking.chunk_s == 5.12
    for command in ("scan", "split", "prepare"):
        outcome = CliRunner().invoke(app, [command, str(folder / "study.yaml")])
        assert outcome.exit_code == 0, outcome.output
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
    arguments = [
        "plot",
        str(recording),
        "--annotations",
        str(path),
        "--out",
        str(folder / "work" / "show.png"),
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 0


# Command line


def run_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["soundscapes", *map(str, arguments)])
    runpy.run_module("experiments.soundscapes", run_name="__main__")


def test_the_command_writes_and_plots_a_benchmark_and_prints_the_next_command(
    data, tmp_path, monkeypatch, capsys
):
    run_main(monkeypatch, data, tmp_path / "out", "--size", "smoke")
    assert len(list((tmp_path / "out").glob("card/*/*.WAV"))) == 15
    image = (tmp_path / "out" / "soundscapes.png").read_bytes()
    assert image.startswith(b"\x89PNG") and len(image) < 400_000
    assert f"mast scan {tmp_path / 'out' / 'study.yaml'}" in capsys.readouterr().out


def test_the_command_prints_an_error_if_sources_are_missing(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="does not exist"):
        run_main(monkeypatch, tmp_path, tmp_path / "out")


def test_real_sources_give_hundreds_of_isolated_calls():
    if DATA is None:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    source_audio = sources.read_sources(Path(DATA))
    assert len(source_audio.calls) > 500
    assert len({call.source for call in source_audio.calls}) > 150
    assert all(calls.MIN_CALL_S <= call.length_s <= calls.MAX_CALL_S for call in source_audio.calls)
    kinds = Counter(background.kind for background in source_audio.backgrounds)
    assert min(kinds[kind] for kind in (*sources.BEDS, *sources.DISTURBERS)) > 15
    sites.make_world(source_audio, sites.SIZES["full"], 0)
