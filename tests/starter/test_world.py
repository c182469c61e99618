"""The training world of the detector that ships: its sources, its calls, and the boxes of its examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.starter import effects, sources
from experiments.starter.calls import BAND_HZ, KINDS, RATE_HZ, Note
from experiments.starter.sources import FOLDERS, HELD_OUT_CLASSES, Clip, attributions, read_clips
from experiments.starter.world import ALL, JOINED_S, MAX_CALL_S, World, join_notes, measure_box
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.errors import ConfigError
from tests.starter.sources_folder import write_sources

CHUNK_S = 5.12
CLOSED = (
    "birdeep-am1", "whombat-bats", "batdetect2-example", "xc-green-hermit", "xc-british-birds", "naturesounds-est",
    "scikit-maad-day", "qut-boobook",
)  # fmt: skip
"""Sources that are not openly licensed, or that are kept for tests."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def clips(data: Path) -> list[Clip]:
    return read_clips(data)


def test_only_open_sources_are_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not FOLDERS & {*CLOSED}
    opened: list[str] = []
    real = sources.open_audio

    def record(path: str, rate_hz: int) -> object:
        opened.append(Path(path).parents[1].name)
        return real(path, rate_hz)

    monkeypatch.setattr(sources, "open_audio", record)
    read_clips(data)
    assert set(opened) == FOLDERS - {"esc50-animals-and-weather"}


@pytest.mark.parametrize("closed", CLOSED)
def test_a_recording_of_another_source_is_refused(closed: str, data: Path) -> None:
    table = data / "esc50-open-clips" / "recordings.csv"
    before = table.read_text()
    table.write_text(before + f"../{closed}/audio/x.flac,frog,animal,1,x,CC-BY,by x\n")
    with pytest.raises(ConfigError, match="not a recording that weights that ship may learn from"):
        read_clips(data)
    table.write_text(before)


def test_every_clip_states_its_original_and_its_licence(clips: list[Clip]) -> None:
    assert all(clip.original and clip.attribution for clip in clips)
    lines = attributions(clips)
    assert "ESC-50/frog0: CC-BY: by author 0" in lines and len(lines) == len(
        {clip.original for clip in clips}
    )


def test_calls_have_boxes_and_choruses_and_beds_have_none(clips: list[Clip]) -> None:
    calls = [clip for clip in clips if clip.role == "call"]
    assert len(calls) == 2 * (6 + 2 + 3)  # two calls in each clip of frogs, hens, and annotated birds
    for clip in calls:
        assert clip.box is not None
        assert 1900 < clip.box[1] < 2000 < clip.box[3] < 2100
    assert {clip.label for clip in clips if clip.role == "chorus"} == {"insects"}
    assert {clip.label for clip in clips if clip.role == "bed"} == {"rain", "wind", "field"}
    assert all(clip.box is None for clip in clips if clip.role != "call")


def test_no_original_and_no_held_out_class_is_in_both_parts(clips: list[Clip]) -> None:
    parts = {part: {clip.original for clip in clips if clip.part == part} for part in ("train", "validation")}
    assert parts["train"] and not parts["train"] & parts["validation"]
    assert not {clip.label for clip in clips if clip.part == "train"} & HELD_OUT_CLASSES


def test_an_example_follows_from_the_seed_and_its_number(clips: list[Clip]) -> None:
    first, again, other = (World(clips, CHUNK_S, seed) for seed in (0, 0, 1))
    for number in (0, 7):
        audio, boxes = first[number]
        assert torch.equal(audio, again[number][0]) and torch.equal(boxes, again[number][1])
        assert not torch.equal(audio, other[number][0])
    assert not torch.equal(first[0][0], first[1][0])


def test_boxes_lie_in_the_chunk_and_calls_stand_out_in_them(clips: list[Clip]) -> None:
    quiet = replace(ALL, distractors=0.0, recorder_effects=0.0, empty=0.0)
    world = World(clips, CHUNK_S, 0, quiet)
    above = []
    for number in range(40):
        audio, events = world.mix(number)
        assert audio.dtype == np.int16 and len(audio) == round(CHUNK_S * RATE_HZ)
        for start_s, low_hz, end_s, high_hz in events:
            assert 0 <= start_s < end_s <= CHUNK_S and 0 <= low_hz < high_hz <= RATE_HZ / 2
        boxes = world[number][1]
        assert boxes.shape == (len(events), 4)
        assert (boxes[:, 2:] > boxes[:, :2]).all() and (boxes >= 0).all() and (boxes <= 512).all()
        above += [level_above(audio, event) for event in events if event[2] - event[0] > 0.1]
    assert len(above) > 50 and np.mean(np.array(above) > 0) > 0.8


def level_above(audio: np.ndarray, event: tuple[float, float, float, float]) -> float:
    """Return how many dB a box has more power than the same band in the rest of the chunk."""
    size, hop = 512, 256
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(float), size)[::hop] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames)) ** 2
    start_s, low_hz, end_s, high_hz = event
    band = power[:, int(low_hz / RATE_HZ * size) : int(high_hz / RATE_HZ * size) + 1].mean(axis=1)
    time_s = (np.arange(len(band)) * hop + size / 2) / RATE_HZ
    inside = (time_s >= start_s) & (time_s <= end_s)
    return float(10 * np.log10(band[inside].mean() / np.median(band)))


def test_an_ingredient_with_probability_0_is_left_out(clips: list[Clip]) -> None:
    without = World(clips, CHUNK_S, 0, replace(ALL, empty=1.0))
    assert all(len(without[number][1]) == 0 for number in range(10))
    synthetic = World([clip for clip in clips if clip.role != "call"], CHUNK_S, 0, replace(ALL, empty=0.0))
    assert any(len(synthetic[number][1]) for number in range(10))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_synthetic_caller_is_finite_and_lies_in_the_band(kind) -> None:
    for seed in range(20):
        for wave, gap_s in join_notes(kind(np.random.default_rng(seed))):
            assert np.isfinite(wave).all() and np.abs(wave).max() > 0 and gap_s > JOINED_S
            start_s, low_hz, end_s, high_hz = measure_box(wave)
            assert 0 <= start_s < end_s <= len(wave) / RATE_HZ + 1e-6
            assert low_hz < high_hz <= 1.05 * BAND_HZ[1] or kind.__name__ in ("rasps", "drums")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=20))
def test_notes_are_joined_over_short_gaps_only(lengths: list[tuple[float, float]]) -> None:
    notes = [Note(np.ones(round(length_s * RATE_HZ)), gap_s) for length_s, gap_s in lengths]
    calls = join_notes(notes)
    assert sum(float(wave.sum()) for wave, _ in calls) == sum(len(note.wave) for note in notes)
    long_gaps = sum(note.gap_s > JOINED_S for note in notes[:-1])
    assert len(calls) >= long_gaps + 1
    assert all(len(wave) / RATE_HZ < MAX_CALL_S + 1.01 for wave, _ in calls)


def test_a_box_holds_95_percent_of_the_energy_of_a_call() -> None:
    wave = np.zeros(RATE_HZ)
    wave[4000:8000] = np.sin(2 * np.pi * 3000 * np.arange(4000) / RATE_HZ)
    start_s, low_hz, end_s, high_hz = measure_box(wave)
    assert start_s == pytest.approx(0.25 + 0.025 * 0.25, abs=0.002)
    assert end_s == pytest.approx(0.5 - 0.025 * 0.25, abs=0.002)
    assert 2950 < low_hz < 3000 < high_hz < 3050


@pytest.mark.parametrize(
    "effect",
    [effects.wind, effects.handling, effects.drops, effects.interference, effects.hum],
    ids=lambda f: f.__name__,
)
def test_an_effect_has_the_level_of_1(effect) -> None:
    for seed in range(5):
        wave = effect(np.random.default_rng(seed), 2 * RATE_HZ)
        assert np.sqrt(np.mean(wave**2)) == pytest.approx(1, abs=1e-6)


def test_faults_of_recorders_change_a_recording_and_keep_its_length() -> None:
    rng = np.random.default_rng(0)
    wave = rng.normal(size=RATE_HZ)
    for fault in (effects.clip, effects.compress, effects.encode_mp3):
        changed = fault(wave, rng)
        assert changed.shape == wave.shape and np.isfinite(changed).all() and not np.allclose(changed, wave)
    muffled = effects.filter_wave(wave, effects.EQUALISER_HZ, tuple(effects.absorption_db(1.0)))
    power, before = (np.abs(np.fft.rfft(item)) ** 2 for item in (muffled, wave))
    assert 10 * np.log10(power[7000:].sum() / before[7000:].sum()) == pytest.approx(-22.5, abs=2)
