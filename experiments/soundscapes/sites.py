"""Sample the sites and days of a benchmark, and the source recordings of each day, from a seed.

Every original recording belongs to one of three partitions: `labelled` for the labelled day, `pool` for the unlabelled
days, `test` for the days of the shifted test sets. So no animal and no background is both in training and in test. Sites
are the same in all partitions: a microphone, a room, a hum, a list of species.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Literal

import numpy as np

from experiments.soundscapes.sources import BEDS, DISTURBERS, SourceAudio
from mast.datasets.sampler import make_rng
from mast.errors import StorageError

Role = Literal["labelled", "pool", "temporal", "site", "unseen"]
Partition = Literal["labelled", "pool", "test"]

PARTITIONS: tuple[Partition, ...] = ("labelled", "pool", "test")
PARTITION_OF: Mapping[Role, Partition] = {
    "labelled": "labelled", "pool": "pool", "temporal": "test", "site": "test", "unseen": "test",
}  # fmt: skip

HOME, ELSEWHERE, UNSEEN = "A", ("B", "C", "D"), "Z"
FIRST_DAY, FIRST_TEST_DAY = date(2024, 5, 6), date(2024, 7, 1)

CLICKS = "clicks"
"""A disturbance that is synthesised and needs no recording."""

EQUALISER_HZ = (0, 150, 400, 1000, 2000, 3500, 5500, 8000)
NIGHT_HOUR, DAWN_HOUR = 22.0, 5.5
HABITS = {
    "crickets": NIGHT_HOUR, "frog": NIGHT_HOUR, "Caprimulgus europaeus": NIGHT_HOUR, "rooster": DAWN_HOUR,
}  # fmt: skip
"""Hour of the day at which an animal calls most; the hour of other animals is random."""

DRY_DB = -99.0
"""Level of rain on a day without rain."""

SPECIES, SITES, DAYS, PARTITIONING, MINUTES, CLOCKS, ECHOES, SOUNDS = range(8)
"""Independent random streams: more values from one stream do not change another."""

COMMON, RARE, RARE_WEIGHT = 0.75, 0.5, 0.2
"""Probability that a species with recordings in all partitions lives at a site, that probability for other species, and
the relative call rate of the others: days of one site share most species, and each has some of its own."""

ANIMAL_FRACTION, BACKGROUND_FRACTION = 0.8, 0.5
"""Fraction of the recordings of a partition that is used on a day."""


@dataclass(frozen=True)
class Size:
    """Minutes of a benchmark by role; the pool has `pool_days` days at each site except the unseen one."""

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
    """A species at a site: its call rate relative to other species, and its peak time of day."""

    label: str
    weight: float
    peak_hour: float
    width_hours: float

    def rate(self, hour: float) -> float:
        """Return the relative call rate at an hour of the day; it is never 0."""
        away_hours = (hour - self.peak_hour + 12) % 24 - 12
        return float(self.weight * (0.1 + np.exp(-((away_hours / self.width_hours) ** 2))))


@dataclass(frozen=True)
class Site:
    """A site and its recorder. Levels are in dB relative to the first bed."""

    name: str
    beds: tuple[tuple[str, float], ...]  # kind and level
    equaliser_db: tuple[float, ...]  # at EQUALISER_HZ
    t60_s: float
    echo_db: float  # all echoes together, relative to the direct sound
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
    """A day at a site: its weather, the source recordings of its animals, and its backgrounds."""

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
        """True if the recordings of the day are annotated."""
        return self.role != "pool"


@dataclass(frozen=True)
class World:
    """All sites and days of a benchmark."""

    seed: int
    sites: tuple[Site, ...]
    days: tuple[Day, ...]

    def site(self, name: str) -> Site:
        """Return a site by its name."""
        return next(site for site in self.sites if site.name == name)


def make_world(source_audio: SourceAudio, size: Size, seed: int, partition_seed: int | None = None) -> World:
    """Sample sites and days. `partition_seed` is the seed of the partitions, by default `seed`."""
    rng = make_rng(seed, SPECIES)
    species = _species(source_audio, rng)
    beds = [BEDS[number] for number in rng.permutation(len(BEDS))]
    named_beds = zip(
        (HOME, *ELSEWHERE, UNSEEN), (*beds, beds[-1]), strict=True
    )  # only home has its first bed
    sites = tuple(
        _site(name, bed, species, make_rng(seed, SITES, number))
        for number, (name, bed) in enumerate(named_beds)
    )
    partitions = assign_partitions(source_audio, seed if partition_seed is None else partition_seed)
    days = tuple(
        _day(
            site,
            role,
            minutes,
            day,
            _PartitionSources(source_audio, partitions, PARTITION_OF[role]),
            random_day(seed, DAYS, site.name, day),
        )
        for site, role, minutes, day in _calendar(sites, size)
    )
    return World(seed, sites, days)


def random_day(seed: int, stream: int, site: str, day: date, *minute: int) -> np.random.Generator:
    """Return the random generator of a day at a site, or of a minute of it, independent of the number of other days."""
    return make_rng(seed, stream, *site.encode(), day.toordinal(), *minute)


def assign_partitions(source_audio: SourceAudio, seed: int) -> dict[str, Partition]:
    """Assign each original recording to a partition: of every species and kind of background, a third to each."""
    partitions: dict[str, Partition] = {}
    groups: dict[str, set[str]] = {}
    for kind, source in [
        *((call.label, call.source) for call in source_audio.calls),
        *((background.kind, background.source) for background in source_audio.backgrounds),
    ]:
        groups.setdefault(kind, set()).add(source)
    rng = make_rng(seed, PARTITIONING)
    for kind in sorted(groups):
        new = sorted(groups[kind] - partitions.keys())
        first = int(rng.integers(len(PARTITIONS)))  # so that rare species occur in every partition
        for turn, index in enumerate(rng.permutation(len(new)), start=first):
            partitions[new[index]] = PARTITIONS[turn % len(PARTITIONS)]
    return partitions


def rates(site: Site, labels: Iterable[str], hour: float) -> dict[str, float]:
    """Return the calls per minute of the given species at an hour; their sum averages the site's call rate over a day."""
    present = set(labels)
    voices = [voice for voice in site.voices if voice.label in present]
    mean_rate = np.mean([sum(voice.rate(at) for voice in voices) for at in range(24)])
    return {voice.label: float(voice.rate(hour) * site.calls_a_minute / mean_rate) for voice in voices}


def _species(source_audio: SourceAudio, rng: np.random.Generator) -> list[Voice]:
    """Return the call rate and the peak hour of every species, before they are varied by site."""
    sources: dict[str, set[str]] = {}
    for call in source_audio.calls:
        sources.setdefault(call.label, set()).add(call.source)
    return [
        Voice(
            label,
            weight=1.0 if len(sources[label]) >= len(PARTITIONS) else RARE_WEIGHT,
            peak_hour=HABITS.get(label, float(rng.choice([6, 7, 10, 16, 19]))),
            width_hours=_uniform(rng, 2, 6),
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
        beds=((bed, 0.0), (str(rng.choice(others)), _uniform(rng, -18, -6))),
        equaliser_db=tuple(_uniform(rng, -9, 9) for _ in EQUALISER_HZ),
        t60_s=_uniform(rng, 0.15, 0.9),
        echo_db=_uniform(rng, -16, -7),
        hum_hz=float(rng.choice([50, 60, 87, 120])),
        hum_db=_uniform(rng, -30, -8),
        whine_hz=round(_uniform(rng, 2500, 7500), 1),
        whine_db=_uniform(rng, -50, -28),
        floor_db=_uniform(rng, -42, -26),
        level_dbfs=_uniform(rng, -48, -38),
        disturbers=tuple(sorted(rng.choice([*DISTURBERS, CLICKS], 2, replace=False))),
        disturbances_a_minute=_uniform(rng, 0.3, 1.5),
        calls_a_minute=_uniform(rng, 5, 9),
        voices=voices,
    )


def _uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 2)


def _calendar(sites: Sequence[Site], size: Size) -> list[tuple[Site, Role, int, date]]:
    """Return every day of the benchmark: pool days follow the labelled day, test days are weeks later."""
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
class _PartitionSources:
    """The source recordings of one partition."""

    source_audio: SourceAudio
    partitions: Mapping[str, Partition]
    partition: Partition

    def sources(self, label: str) -> list[str]:
        """Return the original recordings of a species."""
        names = {call.source for call in self.source_audio.calls if call.label == label}
        return sorted(name for name in names if self.partitions[name] == self.partition)

    def backgrounds(self, kind: str) -> list[str]:
        """Return the names of the backgrounds of a kind."""
        names = [
            background.name
            for background in self.source_audio.backgrounds
            if background.kind == kind and self.partitions[background.source] == self.partition
        ]
        if not names:
            raise StorageError(
                f"There is no background of the kind {kind} for the {self.partition} days: at least {len(PARTITIONS)} "
                "original recordings of each kind are required. Add some to the data folder."
            )
        return names


def _day(
    site: Site, role: Role, minutes: int, day: date, partition: _PartitionSources, rng: np.random.Generator
) -> Day:
    sources: list[str] = []
    for voice in site.voices:
        names = partition.sources(voice.label)
        sources += [names[index] for index in sorted(_sample(rng, len(names), ANIMAL_FRACTION))]
    kinds = {*(kind for kind, _ in site.beds), *site.disturbers, "wind", "rain"} - {CLICKS}
    backgrounds: list[str] = []
    for kind in sorted(kinds):
        names = partition.backgrounds(kind)
        backgrounds += [names[index] for index in sorted(_sample(rng, len(names), BACKGROUND_FRACTION))]
    return Day(
        site=site.name,
        date=day,
        role=role,
        minutes=minutes,
        wind_db=_uniform(rng, -30, 2),
        rain_db=_uniform(rng, -6, 6) if rng.random() < 0.4 else DRY_DB,
        rain_hour=_uniform(rng, 0, 24),
        sources=tuple(sources),
        backgrounds=tuple(backgrounds),
    )


def _sample(rng: np.random.Generator, count: int, fraction: float) -> list[int]:
    """Return a random fraction of `count` indices, at least one if there is any."""
    return [int(index) for index in rng.permutation(count)[: max(1, round(fraction * count))]]
