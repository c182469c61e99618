"""Sites, days, and what is heard where: everything that a benchmark holds, drawn from a seed.

Original recordings stand on three shelves, and each stands on one: `labelled` for the labelled day, `pool` for the
unlabelled days, `test` for the days under shift. So no animal and no background is on both sides of a comparison. Sites
are the same in all of them: a microphone, a room, a hum, a list of species.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Literal

import numpy as np

from experiments.soundscapes.material import BEDS, DISTURBERS, Material
from mast.datasets.order import randomness
from mast.errors import StorageError

Role = Literal["labelled", "pool", "temporal", "site", "unseen"]
Shelf = Literal["labelled", "pool", "test"]

SHELVES: tuple[Shelf, ...] = ("labelled", "pool", "test")
SHELF_OF: Mapping[Role, Shelf] = {
    "labelled": "labelled", "pool": "pool", "temporal": "test", "site": "test", "unseen": "test",
}  # fmt: skip

HOME, ELSEWHERE, UNSEEN = "A", ("B", "C", "D"), "Z"
FIRST_DAY, FIRST_TEST_DAY = date(2024, 5, 6), date(2024, 7, 1)

CLICKS = "clicks"
"""A disturber that needs no recording."""

EQUALISER_HZ = (0, 150, 400, 1000, 2000, 3500, 5500, 8000)
NIGHT_HOUR, DAWN_HOUR = 22.0, 5.5
HABITS = {
    "crickets": NIGHT_HOUR, "frog": NIGHT_HOUR, "Caprimulgus europaeus": NIGHT_HOUR, "rooster": DAWN_HOUR,
}  # fmt: skip
"""The hour at which an animal is loudest; of all others the seed decides."""

DRY_DB = -99.0
"""The level of rain on a day without it."""

SPECIES, SITES, DAYS, SHELVING, MINUTES, CLOCKS, ECHOES, SOUNDS = range(8)
"""Random numbers of their own for each of these: more of one does not change another."""

COMMON, RARE, RARE_WEIGHT = 0.75, 0.5, 0.2
"""How many of the species that stand on all shelves live at a site, how many of the others, and how seldom those call:
days of one site share most of what is heard there, and each has something of its own."""

SHARE_OF_ANIMALS, SHARE_OF_BACKGROUNDS = 0.8, 0.5
"""How much of what stands on a shelf is there on a day."""


@dataclass(frozen=True)
class Size:
    """Minutes of a benchmark; the pool has `pool_days` days at each site but the unseen one."""

    labelled: int
    temporal_a_day: int
    site_a_site: int
    unseen: int
    pool_days: int
    pool_a_day: int


SIZES: Mapping[str, Size] = {
    "smoke": Size(labelled=5, temporal_a_day=1, site_a_site=1, unseen=1, pool_days=1, pool_a_day=1),
    "small": Size(labelled=40, temporal_a_day=10, site_a_site=15, unseen=20, pool_days=2, pool_a_day=19),
    "full": Size(labelled=120, temporal_a_day=10, site_a_site=15, unseen=20, pool_days=10, pool_a_day=38),
}


@dataclass(frozen=True)
class Voice:
    """A species at a site: how often it calls beside the others, and when in the day."""

    label: str
    weight: float
    peak_hour: float
    width_hours: float

    def rate(self, hour: float) -> float:
        """How often it calls at an hour, beside the other voices; never quite silent."""
        away_hours = (hour - self.peak_hour + 12) % 24 - 12
        return float(self.weight * (0.1 + np.exp(-((away_hours / self.width_hours) ** 2))))


@dataclass(frozen=True)
class Site:
    """A place and its recorder. Levels are in dB beside the first bed's, which is 0."""

    name: str
    beds: tuple[tuple[str, float], ...]  # kind and level
    equaliser_db: tuple[float, ...]  # at EQUALISER_HZ
    t60_s: float
    echo_db: float  # of all echoes together, beside the sound itself
    hum_hz: float
    hum_db: float
    whine_hz: float
    whine_db: float
    floor_db: float
    level_dbfs: float
    disturbers: tuple[str, ...]
    disturbances_a_minute: float
    calls_a_minute: float
    voices: tuple[Voice, ...]


@dataclass(frozen=True)
class Day:
    """A day at a site: its weather, the animals that were there, and the backgrounds it is made of."""

    site: str
    date: date
    role: Role
    minutes: int
    wind_db: float
    rain_db: float
    rain_hour: float
    sources: tuple[str, ...]
    backgrounds: tuple[str, ...]

    @property
    def is_reviewed(self) -> bool:
        """Whether an annotator has gone through its recordings."""
        return self.role != "pool"


@dataclass(frozen=True)
class World:
    """All sites and days of a benchmark."""

    seed: int
    sites: tuple[Site, ...]
    days: tuple[Day, ...]

    def site(self, name: str) -> Site:
        """A site by its name."""
        return next(site for site in self.sites if site.name == name)


def make_world(material: Material, size: Size, seed: int, shelving: int | None = None) -> World:
    """Draw sites and days. Shelves are those of the world of seed `shelving`, by default of this one."""
    rng = randomness(seed, SPECIES)
    species = _species(material, rng)
    beds = [BEDS[number] for number in rng.permutation(len(BEDS))]
    places = zip((HOME, *ELSEWHERE, UNSEEN), (*beds, beds[-1]), strict=True)  # nowhere is it as at home
    sites = tuple(
        _site(name, bed, species, randomness(seed, SITES, number))
        for number, (name, bed) in enumerate(places)
    )
    shelves = share_out(material, seed if shelving is None else shelving)
    days = tuple(
        _day(
            site,
            role,
            minutes,
            day,
            _Stock(material, shelves, SHELF_OF[role]),
            random_day(seed, DAYS, site.name, day),
        )
        for site, role, minutes, day in _calendar(sites, size)
    )
    return World(seed, sites, days)


def random_day(seed: int, stream: int, site: str, day: date, *minute: int) -> np.random.Generator:
    """Random numbers of a day at a site, or of a minute of it: the same however many other days there are."""
    return randomness(seed, stream, *site.encode(), day.toordinal(), *minute)


def share_out(material: Material, seed: int) -> dict[str, Shelf]:
    """The shelf of each original recording: of every species, and of every kind of background, a third on each."""
    shelves: dict[str, Shelf] = {}
    groups: dict[str, set[str]] = {}
    for kind, source in [
        *((call.label, call.source) for call in material.calls),
        *((item.kind, item.source) for item in material.backgrounds),
    ]:
        groups.setdefault(kind, set()).add(source)
    rng = randomness(seed, SHELVING)
    for kind in sorted(groups):
        new = sorted(groups[kind] - shelves.keys())
        first = int(rng.integers(len(SHELVES)))  # so that rare species come to every shelf
        for turn, index in enumerate(rng.permutation(len(new)), start=first):
            shelves[new[index]] = SHELVES[turn % len(SHELVES)]
    return shelves


def rates(site: Site, labels: Iterable[str], hour: float) -> dict[str, float]:
    """Calls a minute at an hour of those species that are there; over the day they sum to the site's own rate."""
    there = set(labels)
    voices = [voice for voice in site.voices if voice.label in there]
    usual = np.mean([sum(voice.rate(at) for voice in voices) for at in range(24)])
    return {voice.label: float(voice.rate(hour) * site.calls_a_minute / usual) for voice in voices}


def _species(material: Material, rng: np.random.Generator) -> list[Voice]:
    """What all sites' voices are drawn from: how often each species calls, and when."""
    sources: dict[str, set[str]] = {}
    for call in material.calls:
        sources.setdefault(call.label, set()).add(call.source)
    return [
        Voice(
            label,
            weight=1.0 if len(sources[label]) >= len(SHELVES) else RARE_WEIGHT,
            peak_hour=HABITS.get(label, float(rng.choice([6, 7, 10, 16, 19]))),
            width_hours=_drawn(rng, 2, 6),
        )
        for label in sorted(sources)
    ]


def _site(name: str, bed: str, species: Sequence[Voice], rng: np.random.Generator) -> Site:
    others = [kind for kind in BEDS if kind != bed]
    voices = tuple(
        replace(
            voice,
            weight=round(voice.weight * float(rng.lognormal(0, 0.5)), 3),
            peak_hour=round((voice.peak_hour + float(rng.normal(0, 1))) % 24, 2),
        )
        for voice in species
        if rng.random() < (RARE if voice.weight < 1 else COMMON)
    )
    return Site(
        name=name,
        beds=((bed, 0.0), (str(rng.choice(others)), _drawn(rng, -18, -6))),
        equaliser_db=tuple(_drawn(rng, -9, 9) for _ in EQUALISER_HZ),
        t60_s=_drawn(rng, 0.15, 0.9),
        echo_db=_drawn(rng, -16, -7),
        hum_hz=float(rng.choice([50, 60, 87, 120])),
        hum_db=_drawn(rng, -30, -8),
        whine_hz=round(_drawn(rng, 2500, 7500), 1),
        whine_db=_drawn(rng, -50, -28),
        floor_db=_drawn(rng, -42, -26),
        level_dbfs=_drawn(rng, -48, -38),
        disturbers=tuple(sorted(rng.choice([*DISTURBERS, CLICKS], 2, replace=False))),
        disturbances_a_minute=_drawn(rng, 0.3, 1.5),
        calls_a_minute=_drawn(rng, 5, 9),
        voices=voices,
    )


def _drawn(rng: np.random.Generator, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 2)


def _calendar(sites: Sequence[Site], size: Size) -> list[tuple[Site, Role, int, date]]:
    """Every day of the benchmark: the pool's follow the labelled one, those under test come weeks later."""
    home, elsewhere, unseen = sites[0], sites[1:-1], sites[-1]
    days: list[tuple[Site, Role, int, date]] = [(home, "labelled", size.labelled, FIRST_DAY)]
    for site in sites[:-1]:
        for number in range(1, size.pool_days + 1):
            days.append((site, "pool", size.pool_a_day, FIRST_DAY + timedelta(days=number)))
    for number in range(2):
        days.append((home, "temporal", size.temporal_a_day, FIRST_TEST_DAY + timedelta(days=9 * number)))
    days += [(site, "site", size.site_a_site, FIRST_TEST_DAY + timedelta(days=2)) for site in elsewhere]
    return [*days, (unseen, "unseen", size.unseen, FIRST_TEST_DAY + timedelta(days=4))]


@dataclass(frozen=True)
class _Stock:
    """What stands on a shelf."""

    material: Material
    shelves: Mapping[str, Shelf]
    shelf: Shelf

    def sources(self, label: str) -> list[str]:
        """Original recordings of a species."""
        found = {call.source for call in self.material.calls if call.label == label}
        return sorted(source for source in found if self.shelves[source] == self.shelf)

    def backgrounds(self, kind: str) -> list[str]:
        """Backgrounds of a kind."""
        found = [
            item.name
            for item in self.material.backgrounds
            if item.kind == kind and self.shelves[item.source] == self.shelf
        ]
        if not found:
            raise StorageError(
                f"There is no background of the kind {kind} for the {self.shelf} days: at least {len(SHELVES)} "
                "original recordings of each kind are needed. Add some to the data folder."
            )
        return found


def _day(site: Site, role: Role, minutes: int, day: date, stock: _Stock, rng: np.random.Generator) -> Day:
    sources: list[str] = []
    for voice in site.voices:
        found = stock.sources(voice.label)
        sources += [found[at] for at in sorted(_some(rng, len(found), SHARE_OF_ANIMALS))]
    kinds = {*(kind for kind, _ in site.beds), *site.disturbers, "wind", "rain"} - {CLICKS}
    backgrounds: list[str] = []
    for kind in sorted(kinds):
        names = stock.backgrounds(kind)
        backgrounds += [names[at] for at in sorted(_some(rng, len(names), SHARE_OF_BACKGROUNDS))]
    return Day(
        site=site.name,
        date=day,
        role=role,
        minutes=minutes,
        wind_db=_drawn(rng, -30, 2),
        rain_db=_drawn(rng, -6, 6) if rng.random() < 0.4 else DRY_DB,
        rain_hour=_drawn(rng, 0, 24),
        sources=tuple(sources),
        backgrounds=tuple(backgrounds),
    )


def _some(rng: np.random.Generator, count: int, share: float) -> list[int]:
    """A random share of so many, at least one if there is any."""
    return [int(index) for index in rng.permutation(count)[: max(1, round(share * count))]]
