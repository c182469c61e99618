"""Read the calls and backgrounds of public sources, each with the name of its original recording."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.soundscapes.calls import Bounds, Call, find_calls
from experiments.soundscapes.spectra import RATE_HZ, Wave, smoothed, spectrum_of
from mast.audio.reader import open_audio
from mast.errors import StorageError

ESC50, CALM, AMBIENT = "esc50-animals-and-weather", "scikit-maad-day", "blanket-ambient"

CALLERS = ("chirping_birds", "crickets", "crow", "frog", "hen", "rooster")
"""Animal classes of ESC-50. Insects are excluded: the buzz of a fly has no clear outline for a box."""

SAME_RECORDING: Mapping[str, tuple[str, ...]] = {
    "naturesounds-est": ("site", "individual"),
    "pykanto-great-tit": ("site",),
    "xc-green-hermit": ("recording",),
    "qut-noisypitta": (),
    "xc-british-birds": ("recording",),
}
"""Sources with tables of calls, and the columns that identify the original recording. Without columns, all files of a
source count as one recording, because they may be of one animal."""

UNCERTAIN = ("Thyroptera tricolor",)
"""Labels excluded because file names and table disagree about the species."""

BEDS = ("calm", "rain", "sea_waves", "wind")
DISTURBERS = ("airplane", "chainsaw", "thunderstorm")
AMBIENT_KINDS = {"rain": "rain", "waves": "sea_waves", "wind": "wind"}

PEAK_DB, MAX_PEAKS = 8.0, 5e-4
"""A bed is dropped if more than this fraction of its cells are peaks: cells `PEAK_DB` above the median of their band over
time, and above the median of the neighbouring bands. A drop of rain exceeds only the first, a steady hum only the second,
a bird exceeds both."""

AROUND_BINS = 20
SEARCH_S, SEARCH_FRACTION = 0.03, 0.1
"""Margin around an annotator's box in which a call is searched: seconds in time, a fraction of the bound in frequency."""


@dataclass(frozen=True, eq=False)
class Background:
    """Audio without animals: a bed, which plays throughout a recording, or a disturbance."""

    name: str
    kind: str
    source: str
    wave: Wave


@dataclass(frozen=True, eq=False)
class SourceAudio:
    """All calls and backgrounds; `dropped` is the number of beds of each kind that were dropped for possible animals."""

    calls: tuple[Call, ...]
    backgrounds: tuple[Background, ...]
    dropped: Mapping[str, int]

    def fingerprint(self) -> str:
        """Return a hash that changes with any sample or box."""
        digest = hashlib.blake2b(digest_size=8)
        for call in self.calls:
            digest.update(repr((call.name, call.label, call.source, call.box)).encode() + call.wave.tobytes())
        for background in self.backgrounds:
            key = (background.name, background.kind, background.source)
            digest.update(repr(key).encode() + background.wave.tobytes())
        return digest.hexdigest()


def read_sources(data: Path) -> SourceAudio:
    """Read every source in a data folder."""
    calls = (*_esc50_calls(data), *_table_calls(data))
    backgrounds, dropped = [], dict.fromkeys(BEDS, 0)
    for background in _backgrounds(data):
        if background.kind in BEDS and peak_fraction(background.wave) > MAX_PEAKS:
            dropped[background.kind] += 1
        else:
            backgrounds.append(background)
    return SourceAudio(calls, tuple(backgrounds), dropped)


def peak_fraction(wave: Wave) -> float:
    """Return the fraction of the cells above 500 Hz that are peaks in time and in frequency."""
    power = smoothed((np.abs(spectrum_of(wave)) ** 2).astype(np.float32))[4:-5, 16:]
    level_db = 10 * np.log10(power + 1e-12)
    loud = np.argwhere(level_db > np.median(level_db, axis=0) + PEAK_DB)  # (K, 2)
    wide = np.pad(level_db, ((0, 0), (AROUND_BINS, AROUND_BINS)), mode="edge")
    around_db = wide[loud[:, :1], loud[:, 1:] + np.arange(0, 2 * AROUND_BINS + 1, 4)]  # (K, 11)
    above_db = level_db[loud[:, 0], loud[:, 1]] - np.median(around_db, axis=1)
    return float((above_db > PEAK_DB).sum() / level_db.size)


def _esc50_calls(data: Path) -> Iterator[Call]:
    """Yield the calls that stand out in clips of animals."""
    for row in read_rows(data / ESC50 / "recordings.csv"):
        if row["category"] in CALLERS:
            wave = _read(data / ESC50, row["recording"])
            for number, (cut, box) in enumerate(find_calls(wave)):
                name, source = f"{row['recording']}#{number}", f"{ESC50}/{row['source_clip']}"
                yield Call(name, row["category"], source, cut, box)


def _table_calls(data: Path) -> Iterator[Call]:
    """Yield the calls of sources with tables: within the boxes of a recording, or those that stand out if it has none."""
    for folder, columns in SAME_RECORDING.items():
        metadata = {row["recording"]: row for row in read_rows(data / folder / "recordings.csv")}
        annotated: dict[tuple[str, str], list[Bounds]] = {}
        for row in read_rows(data / folder / "annotations.csv"):
            boxes = annotated.setdefault((row["recording"], row["label"]), [])
            boxes += [_search_box(row)] if row["start_s"] else []
        for (recording, label), boxes in annotated.items():
            if label not in UNCERTAIN:
                source = "/".join([folder, *(metadata[recording][column] for column in columns)])
                for number, (cut, box) in enumerate(find_calls(_read(data / folder, recording), boxes)):
                    yield Call(f"{recording}#{number}", label, source, cut, box)


def _search_box(row: Mapping[str, str]) -> Bounds:
    """Return the bounds in which to search for an annotated call, whose frequencies may be missing."""
    low_hz, high_hz = float(row["low_hz"] or 0), float(row["high_hz"] or RATE_HZ)
    start_s, end_s = float(row["start_s"]) - SEARCH_S, float(row["end_s"]) + SEARCH_S
    return start_s, low_hz * (1 - SEARCH_FRACTION), end_s, high_hz * (1 + SEARCH_FRACTION)


def _backgrounds(data: Path) -> Iterator[Background]:
    """Yield weather, engines and quiet field recordings."""
    for row in read_rows(data / ESC50 / "recordings.csv"):
        if row["category"] in (*BEDS, *DISTURBERS):
            wave = _read(data / ESC50, row["recording"])
            name, source = f"{ESC50}/{row['recording']}", f"{ESC50}/{row['source_clip']}"
            yield Background(name, row["category"], source, wave)
    for row in read_rows(data / CALM / "recordings.csv"):
        name = f"{CALM}/{row['recording']}"
        yield Background(name, "calm", name, _read(data / CALM, row["recording"]))
    for row in read_rows(data / AMBIENT / "annotations.csv"):
        name = f"{AMBIENT}/{row['recording']}"
        if row["label"] in AMBIENT_KINDS:
            wave = _read(data / AMBIENT, row["recording"])
            yield Background(name, AMBIENT_KINDS[row["label"]], name, wave)


def read_rows(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table of the sources, as dictionaries by column."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        raise StorageError(
            f"{table} does not exist. Specify the folder of the sources that docs/explanation/soundscapes.md lists."
        ) from None


def _read(folder: Path, recording: str) -> Wave:
    with open_audio(str(folder / "audio" / recording), RATE_HZ) as audio:
        return audio.read_samples(0, audio.samples)
