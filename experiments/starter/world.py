"""Mix endless training examples: calls over backgrounds, with distractors and the faults of recorders, and exact boxes.

An example follows from the world's seed and its number alone. Nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from experiments.soundscapes.spectra import fast_size
from experiments.starter import effects
from experiments.starter.calls import RATE_HZ, Note, Wave, synthesise_caller
from experiments.starter.sources import Clip, Role
from mast.audio.spectrogram import MelGrid, chunk_frames
from mast.config import Spectrogram
from mast.datasets.sampler import make_rng

JOINED_S = 0.2
"""Maximum gap between notes of one box; `experiments.soundscapes` joins the notes of real calls by the same rule."""

OUTSIDE = 0.05
"""Fraction of a call's energy outside its box, half of it on either side."""

MIN_VISIBLE_S = 0.05
MAX_CALL_S = 4.0
LEVEL_DB = (0.0, 24.0)
"""Range of a caller's level above the background, within its box."""

MAX_CALLS = 24
DIGITAL_FLOOR = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """Probabilities of what an example contains; the tests of single ingredients set some to 0."""

    real_calls: float = 0.5
    distractors: float = 0.5
    recorder_effects: float = 1.0
    empty: float = 0.25


ALL = Ingredients()


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call in an example: its wave from `start_s`, and its box."""

    wave: Wave
    start_s: float
    box: tuple[float, float, float, float]


class World(Dataset[tuple[Tensor, Tensor]]):
    """Examples by number: audio (N,) int16, and boxes (n, 4) in frames and bins."""

    def __init__(
        self, clips: Sequence[Clip], chunk_s: float, seed: int, ingredients: Ingredients = ALL
    ) -> None:
        self.samples = round(chunk_s * RATE_HZ)
        self.seed, self.ingredients = seed, ingredients
        self._grid = MelGrid(Spectrogram(), chunk_frames(chunk_s, Spectrogram()))
        self._clips: dict[Role, dict[str, list[Clip]]] = {}
        for clip in clips:
            self._clips.setdefault(clip.role, {}).setdefault(clip.label, []).append(clip)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Mix an example."""
        audio, boxes = self.mix(number)
        events = torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4)
        return torch.from_numpy(audio), self._grid.events_to_boxes(events)

    def mix(self, number: int) -> tuple[NDArray[np.int16], list[tuple[float, float, float, float]]]:
        """Mix an example; return its audio, and its boxes in seconds and Hz."""
        rng = make_rng(self.seed, number)
        audio = self._background(rng)
        edge_hz = self._edge_hz(rng)
        calls: list[PlacedCall] = []
        if rng.random() >= self.ingredients.empty:
            response = rng.normal(0, 3, len(effects.EQUALISER_HZ))
            for _ in range(1 + min(6, int(rng.geometric(0.45)) - 1)):
                calls += self._caller(rng, audio, response, MAX_CALLS - len(calls))
        for call in calls:
            _add(audio, call.wave, round(call.start_s * RATE_HZ))
        boxes = [call.box for call in calls]
        visible = [box for box in boxes if box[1] < 0.9 * edge_hz]
        return self._record(audio, rng, edge_hz), [(*box[:3], min(box[3], edge_hz)) for box in visible]

    def _background(self, rng: Generator) -> Wave:
        """Mix noise, beds, choruses of insects, distractors and weather on the microphone."""
        count = self.samples
        audio = effects.coloured_noise(rng, count, rng.uniform(-9, 0)) * 10 ** (rng.uniform(-30, 0) / 20)
        if rng.random() < 0.8:
            audio += self._loop("bed", rng) * 10 ** (rng.uniform(-12, 6) / 20)
        if rng.random() < 0.1:
            audio += self._loop("chorus", rng) * 10 ** (rng.uniform(-20, 0) / 20)
        if rng.random() < self.ingredients.distractors:
            for _ in range(int(rng.integers(1, 4))):
                role: Role = ("machine", "human", "weather")[int(rng.choice(3, p=[0.45, 0.35, 0.2]))]
                wave = self._clip_wave(role, rng)
                _add(
                    audio, wave * 10 ** (rng.uniform(-15, 22) / 20), int(rng.integers(-len(wave) // 2, count))
                )
        if rng.random() < self.ingredients.recorder_effects:
            for effect, probability in (
                (effects.wind, 0.2), (effects.handling, 0.1), (effects.drops, 0.12),
                (effects.interference, 0.05), (effects.hum, 0.15),
            ):  # fmt: skip
                if rng.random() < probability:
                    audio += effect(rng, count) * 10 ** (rng.uniform(-15, 12) / 20)
        return audio

    def _loop(self, role: Role, rng: Generator) -> Wave:
        """Return a clip of a role from a random position, repeated to fill an example."""
        wave = self._clip_wave(role, rng)
        first = int(rng.integers(len(wave)))
        return np.resize(np.roll(wave, -first), self.samples)

    def _clip_wave(self, role: Role, rng: Generator) -> Wave:
        """Return a random clip of a role, of unit level; every class is equally likely."""
        wave = self._choose(role, rng).wave.astype(np.float64)
        wave -= wave.mean()
        unit: Wave = wave / max(float(np.sqrt(np.mean(wave**2))), 1e-9)
        return unit

    def _choose(self, role: Role, rng: Generator) -> Clip:
        classes = list(self._clips[role].values())
        clips = classes[int(rng.integers(len(classes)))]
        return clips[int(rng.integers(len(clips)))]

    def _caller(self, rng: Generator, background: Wave, response: Wave, max_calls: int) -> list[PlacedCall]:
        """Place the calls of one animal at one distance: the softer, the farther."""
        level_db = rng.uniform(*LEVEL_DB)
        distance = float(np.clip(1 - (level_db - LEVEL_DB[0]) / 25 + rng.normal(0, 0.25), 0, 1))
        if "call" in self._clips and rng.random() < self.ingredients.real_calls:
            notes = self._real_notes(rng)
        else:
            notes = synthesise_caller(rng)
        waves, absorption_db = join_notes(notes), effects.absorption_db(distance)
        placed: list[PlacedCall] = []
        at_s = rng.uniform(-0.3, 1.0) * self.samples / RATE_HZ
        for wave, gap_s in waves:
            if at_s > self.samples / RATE_HZ or len(placed) == max_calls:
                break
            received = effects.filter_wave(wave, effects.EQUALISER_HZ, tuple(response + absorption_db))
            start_s, low_hz, end_s, high_hz = measure_box(received)
            begin_s, stop_s = max(0.0, at_s + start_s), min(self.samples / RATE_HZ, at_s + end_s)
            if stop_s - begin_s >= MIN_VISIBLE_S or (stop_s - begin_s) > 0.9 * (end_s - start_s) > 0:
                span = slice(round(begin_s * RATE_HZ), round(stop_s * RATE_HZ))
                inside = slice(round((begin_s - at_s) * RATE_HZ), round((stop_s - at_s) * RATE_HZ))
                powers = [band_power(item, low_hz, high_hz) for item in (background[span], received[inside])]
                if min(powers) > 0:
                    gain = np.sqrt(powers[0] / powers[1]) * 10 ** ((level_db + rng.uniform(-2, 2)) / 20)
                    wet = effects.reverberate(received, rng, distance) * gain
                    placed.append(PlacedCall(wet, at_s, (begin_s, low_hz, stop_s, high_hz)))
            at_s += len(wave) / RATE_HZ + gap_s
        return placed

    def _real_notes(self, rng: Generator) -> list[Note]:
        """Return a real call, at another speed, once or several times."""
        wave = self._choose("call", rng).wave.astype(np.float64)
        speed = 2 ** rng.uniform(-0.5, 0.5)
        if rng.random() < 0.5:
            position = np.arange(0, len(wave) - 1, speed)
            wave = np.interp(position, np.arange(len(wave)), wave)
        gap_s = float(np.exp(rng.uniform(np.log(JOINED_S + 0.05), np.log(2.5))))
        return [Note(wave, gap_s)] * int(min(rng.geometric(0.5), 5))

    def _edge_hz(self, rng: Generator) -> float:
        """Return the highest frequency that the recorder keeps."""
        is_narrow = rng.random() < 0.15 * self.ingredients.recorder_effects
        return float(rng.uniform(3000, 7000)) if is_narrow else RATE_HZ / 2

    def _record(self, audio: Wave, rng: Generator, edge_hz: float) -> NDArray[np.int16]:
        """Apply the faults of a recorder and its level."""
        if rng.random() < self.ingredients.recorder_effects:
            gains_db = rng.uniform(-8, 8, len(effects.EQUALISER_HZ))
            audio = effects.filter_wave(audio, effects.EQUALISER_HZ, tuple(gains_db))
            if edge_hz < RATE_HZ / 2:
                audio = effects.filter_wave(
                    audio, (0, edge_hz, 1.05 * edge_hz, RATE_HZ / 2), (0, 0, -60, -60)
                )
            if rng.random() < 0.06:
                audio = effects.clip(audio, rng)
            if rng.random() < 0.05:
                audio = effects.compress(audio, rng)
            if rng.random() < 0.08:
                audio = effects.encode_mp3(audio, rng)
        peak = float(np.abs(audio).max()) or 1.0
        audio = audio * (10 ** (rng.uniform(-45, -1) / 20) / peak)
        audio += DIGITAL_FLOOR * 10 ** (rng.uniform(-20, 10) / 20) * rng.standard_normal(len(audio))
        return np.rint(np.clip(audio, -1, 1) * 32767).astype(np.int16)


def join_notes(notes: Sequence[Note]) -> list[tuple[Wave, float]]:
    """Join notes with short gaps to calls of at most `MAX_CALL_S`; return each call and the gap after it in seconds."""
    calls: list[tuple[Wave, float]] = []
    parts: list[Wave] = []
    for number, note in enumerate(notes):
        parts.append(note.wave)
        length_s = sum(map(len, parts)) / RATE_HZ
        if note.gap_s <= JOINED_S and number + 1 < len(notes) and length_s < MAX_CALL_S:
            parts.append(np.zeros(round(note.gap_s * RATE_HZ)))
        else:
            calls.append((np.concatenate(parts), max(note.gap_s, JOINED_S + 0.02)))
            parts = []
    return calls


def measure_box(wave: Wave) -> tuple[float, float, float, float]:
    """Return the bounds in seconds and Hz that hold all but `OUTSIDE` of the energy, on each axis."""
    start, end = _span(wave**2)
    size = fast_size(len(wave))
    low, high = _span(np.abs(np.fft.rfft(wave, size)) ** 2)
    hz = RATE_HZ / size
    return start / RATE_HZ, low * hz, end / RATE_HZ, high * hz


def band_power(wave: Wave, low_hz: float, high_hz: float) -> float:
    """Return the energy of a wave within a band."""
    if not len(wave):
        return 0.0
    size = fast_size(len(wave))
    hz = RATE_HZ / size
    power = np.abs(np.fft.rfft(wave, size)) ** 2
    return float(power[int(low_hz / hz) : int(high_hz / hz) + 1].sum())


def _span(energy: Wave) -> tuple[float, float]:
    cumulative = np.cumsum(energy)
    edges = np.array([OUTSIDE / 2, 1 - OUTSIDE / 2]) * max(float(cumulative[-1]), 1e-30)
    first, last = np.searchsorted(cumulative, edges)
    return float(first), float(last + 1)


def _add(target: Wave, wave: Wave, first: int) -> None:
    """Add `wave` to `target`, starting at the sample `first`; parts outside `target` are dropped."""
    begin, end = max(first, 0), min(first + len(wave), len(target))
    if begin < end:
        target[begin:end] += wave[begin - first : end - first]
