"""What is heard in each minute of a world, and when: every box, without any sound.

A plan is cheap and follows from the world's seed and the recording's place in it alone. So tables never wait for sound,
and a minute that is already on disk is not made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta

import numpy as np

from experiments.soundscapes.calls import Bounds, Call
from experiments.soundscapes.material import Material
from experiments.soundscapes.spectra import RATE_HZ
from experiments.soundscapes.world import CLICKS, CLOCKS, MINUTES, Day, Site, World, random_day, rates

MINUTE_S = 60.0

SOFTEST_DB, LOUDEST_DB = 3.0, 20.0
"""Level of a call in its box above the background there."""

PITCH = 0.05
"""No animal calls twice alike: each call is played faster and higher, or slower and lower, by up to so much."""

Chorus = dict[str, dict[str, list[Call]]]
"""Calls that can be heard on a day, by species and animal."""


@dataclass(frozen=True)
class Placed:
    """A call in a recording; `box` is where it is heard there."""

    call: Call
    box: Bounds
    pitch: float
    snr_db: float


@dataclass(frozen=True)
class Disturbance:
    """A sound that is no animal: a background by name, or clicks."""

    name: str
    start_s: float
    level_db: float


@dataclass(frozen=True)
class Scene:
    """All that is heard in a recording."""

    path: str
    day: Day
    clock: datetime
    placed: tuple[Placed, ...]
    disturbances: tuple[Disturbance, ...]
    minute: int  # which of its day's recordings it is


def plan(world: World, material: Material) -> list[Scene]:
    """What is heard in every recording of a world, day after day."""
    scenes: list[Scene] = []
    for day in world.days:
        chorus = _chorus(day, material)
        scenes += [_scene(world, material, chorus, day, minute) for minute in range(day.minutes)]
    return scenes


def _chorus(day: Day, material: Material) -> Chorus:
    chorus: Chorus = {}
    for call in material.calls:
        if call.source in day.sources:
            chorus.setdefault(call.label, {}).setdefault(call.source, []).append(call)
    return chorus


def _scene(world: World, material: Material, chorus: Chorus, day: Day, minute: int) -> Scene:
    """A recording of a day; recordings stand evenly over the day, from a minute of their own on."""
    site, step_min = world.site(day.site), 24 * 60 // day.minutes
    first_min = int(random_day(world.seed, CLOCKS, day.site, day.date).integers(step_min))
    clock = datetime.combine(day.date, time()) + timedelta(minutes=first_min + step_min * minute)
    rng = random_day(world.seed, MINUTES, day.site, day.date, minute)
    placed = _placed(rates(site, chorus, clock.hour + clock.minute / 60), chorus, rng)
    return Scene(
        path=f"{site.name}/{clock:%Y%m%d_%H%M%S}.WAV",
        day=day,
        clock=clock,
        placed=tuple(sorted(placed, key=lambda item: item.box)),
        disturbances=_disturbances(site, day, material, rng),
        minute=minute,
    )


def _placed(a_minute: Mapping[str, float], chorus: Chorus, rng: np.random.Generator) -> list[Placed]:
    """Calls of a minute: of each species one or two animals, each as near as it happens to be."""
    placed: list[Placed] = []
    for label, rate in a_minute.items():
        animals = sorted(chorus[label])
        near_db = {
            animals[at]: rng.uniform(SOFTEST_DB, LOUDEST_DB)
            for at in rng.permutation(len(animals))[: rng.integers(1, 3)]
        }
        for _ in range(rng.poisson(rate)):
            animal = list(near_db)[rng.integers(len(near_db))]
            calls = chorus[label][animal]
            item = _put(calls[rng.integers(len(calls))], near_db[animal], rng)
            if all(other.call.source != animal or _apart(item.box, other.box) for other in placed):
                placed.append(item)  # an animal does not call over itself
    return placed


def _put(call: Call, near_db: float, rng: np.random.Generator) -> Placed:
    """A call at some moment, at a pitch of its own."""
    pitch = rng.uniform(1 - PITCH, 1 + PITCH)
    snr_db = float(np.clip(near_db + rng.uniform(-2, 2), SOFTEST_DB, LOUDEST_DB))
    length_s = call.length_s / pitch
    start_s = rng.uniform(0.1, MINUTE_S - 0.1 - length_s)
    high_hz = min(call.box[3] * pitch, RATE_HZ / 2)
    box = (start_s, call.box[1] * pitch, start_s + length_s, high_hz)
    return Placed(call, box, pitch, snr_db)


def _apart(one: Bounds, other: Bounds) -> bool:
    return one[2] < other[0] or other[2] < one[0]


def _disturbances(
    site: Site, day: Day, material: Material, rng: np.random.Generator
) -> tuple[Disturbance, ...]:
    names = {item.name for item in material.backgrounds if item.kind in site.disturbers}
    choice = [*(name for name in day.backgrounds if name in names), *({CLICKS} & set(site.disturbers))]
    return tuple(
        Disturbance(str(rng.choice(choice)), rng.uniform(0, MINUTE_S), rng.uniform(-6, 12))
        for _ in range(rng.poisson(site.disturbances_a_minute))
    )
