"""Plan the calls and disturbances of each minute of a world, with every box, without rendering audio.

A plan is cheap and depends only on the world's seed, the site, the day and the minute. So tables can be written before
any audio, and a minute that already exists on disk is not rendered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta

import numpy as np

from experiments.soundscapes.calls import Bounds, Call
from experiments.soundscapes.sites import CLICKS, CLOCKS, MINUTES, Day, Site, World, random_day, rates
from experiments.soundscapes.sources import SourceAudio
from experiments.soundscapes.spectra import RATE_HZ

MINUTE_S = 60.0

SOFTEST_DB, LOUDEST_DB = 3.0, 20.0
"""Level of a call in its box above the background there."""

PITCH = 0.05
"""Maximum relative change of the playback speed, and so of the pitch, which makes each call different."""

CallsBySpecies = dict[str, dict[str, list[Call]]]
"""Calls available on a day, by species and animal."""


@dataclass(frozen=True)
class Placed:
    """A call placed in a recording; `box` are its bounds there."""

    call: Call
    box: Bounds
    pitch: float
    snr_db: float


@dataclass(frozen=True)
class Disturbance:
    """A sound without animals: a background by name, or clicks."""

    name: str
    start_s: float
    level_db: float


@dataclass(frozen=True)
class Scene:
    """The content of a recording."""

    path: str
    day: Day
    clock: datetime
    placed: tuple[Placed, ...]
    disturbances: tuple[Disturbance, ...]
    minute: int  # index of the recording within its day


def plan(world: World, source_audio: SourceAudio) -> list[Scene]:
    """Return the scene of every recording of a world, in order of days."""
    scenes: list[Scene] = []
    for day in world.days:
        calls_by_species = _available_calls(day, source_audio)
        scenes += [
            _scene(world, source_audio, calls_by_species, day, minute) for minute in range(day.minutes)
        ]
    return scenes


def _available_calls(day: Day, source_audio: SourceAudio) -> CallsBySpecies:
    calls_by_species: CallsBySpecies = {}
    for call in source_audio.calls:
        if call.source in day.sources:
            calls_by_species.setdefault(call.label, {}).setdefault(call.source, []).append(call)
    return calls_by_species


def _scene(
    world: World, source_audio: SourceAudio, calls_by_species: CallsBySpecies, day: Day, minute: int
) -> Scene:
    """Return a recording of a day; recordings are evenly spaced over the day, after a random first minute."""
    site, step_min = world.site(day.site), 24 * 60 // day.minutes
    first_min = int(random_day(world.seed, CLOCKS, day.site, day.date).integers(step_min))
    clock = datetime.combine(day.date, time()) + timedelta(minutes=first_min + step_min * minute)
    rng = random_day(world.seed, MINUTES, day.site, day.date, minute)
    placed = _place_calls(
        rates(site, calls_by_species, clock.hour + clock.minute / 60), calls_by_species, rng
    )
    return Scene(
        path=f"{site.name}/{clock:%Y%m%d_%H%M%S}.WAV",
        day=day,
        clock=clock,
        placed=tuple(sorted(placed, key=lambda call: call.box)),
        disturbances=_disturbances(site, day, source_audio, rng),
        minute=minute,
    )


def _place_calls(
    calls_per_minute: Mapping[str, float], calls_by_species: CallsBySpecies, rng: np.random.Generator
) -> list[Placed]:
    """Place the calls of a minute: one or two animals of each species, each at a random distance."""
    placed: list[Placed] = []
    for label, rate in calls_per_minute.items():
        animals = sorted(calls_by_species[label])
        near_db = {
            animals[index]: rng.uniform(SOFTEST_DB, LOUDEST_DB)
            for index in rng.permutation(len(animals))[: rng.integers(1, 3)]
        }
        for _ in range(rng.poisson(rate)):
            animal = list(near_db)[rng.integers(len(near_db))]
            calls = calls_by_species[label][animal]
            candidate = _place_call(calls[rng.integers(len(calls))], near_db[animal], rng)
            if all(other.call.source != animal or _are_apart(candidate.box, other.box) for other in placed):
                placed.append(candidate)  # calls of one animal do not overlap
    return placed


def _place_call(call: Call, near_db: float, rng: np.random.Generator) -> Placed:
    """Place a call at a random time, with a random pitch."""
    pitch = rng.uniform(1 - PITCH, 1 + PITCH)
    snr_db = float(np.clip(near_db + rng.uniform(-2, 2), SOFTEST_DB, LOUDEST_DB))
    length_s = call.length_s / pitch
    start_s = rng.uniform(0.1, MINUTE_S - 0.1 - length_s)
    high_hz = min(call.box[3] * pitch, RATE_HZ / 2)
    box = (start_s, call.box[1] * pitch, start_s + length_s, high_hz)
    return Placed(call, box, pitch, snr_db)


def _are_apart(one: Bounds, other: Bounds) -> bool:
    return one[2] < other[0] or other[2] < one[0]


def _disturbances(
    site: Site, day: Day, source_audio: SourceAudio, rng: np.random.Generator
) -> tuple[Disturbance, ...]:
    names = {background.name for background in source_audio.backgrounds if background.kind in site.disturbers}
    choices = [*(name for name in day.backgrounds if name in names), *({CLICKS} & set(site.disturbers))]
    return tuple(
        Disturbance(str(rng.choice(choices)), rng.uniform(0, MINUTE_S), rng.uniform(-6, 12))
        for _ in range(rng.poisson(site.disturbances_a_minute))
    )
