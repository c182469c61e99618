"""What soundscapes are made of: calls and backgrounds of public sources, each with the original recording it is of."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.soundscapes.calls import Bounds, Call, find_calls
from experiments.soundscapes.spectra import RATE_HZ, Wave, smoothed, spectrum_of
from mast.errors import StorageError
from mast.recordings.decode import open_audio

ESC50, CALM, AMBIENT = "esc50-animals-and-weather", "scikit-maad-day", "blanket-ambient"

CALLERS = ("chirping_birds", "crickets", "crow", "frog", "hen", "rooster")
"""Animals of ESC-50. Its insects are left out: the buzz of a fly has no outline to put a box around."""

SAME_RECORDING: Mapping[str, tuple[str, ...]] = {
    "naturesounds-est": ("site", "individual"),
    "pykanto-great-tit": ("site",),
    "xc-green-hermit": ("recording",),
    "qut-noisypitta": (),
    "xc-british-birds": ("recording",),
}
"""Sources with tables of calls, and the columns that tell their original recordings apart; none, where all files may be
of one animal."""

UNSURE = ("Thyroptera tricolor",)
"""Names of files and table disagree about which bat it is."""

BEDS = ("calm", "rain", "sea_waves", "wind")
DISTURBERS = ("airplane", "chainsaw", "thunderstorm")
AMBIENT_KINDS = {"rain": "rain", "waves": "sea_waves", "wind": "wind"}

PEAK_DB, MAX_PEAKS = 8.0, 5e-4
"""A bed is dropped if more than this share of its cells is a peak: so far above its band's median over time, and above
the median of the bands around it. A drop of rain is only the former, a steady hum only the latter, a bird is both."""

AROUND_BINS = 20
SEARCH_S, SEARCH = 0.03, 0.1
"""An annotator's box may be so much too short, and by so large a share too narrow."""


@dataclass(frozen=True, eq=False)
class Background:
    """A sound without animals: a bed to lie under everything, or something that disturbs."""

    name: str
    kind: str
    source: str
    wave: Wave


@dataclass(frozen=True, eq=False)
class Material:
    """All calls and backgrounds; `dropped` counts the beds of each kind that seemed to have animals in them."""

    calls: tuple[Call, ...]
    backgrounds: tuple[Background, ...]
    dropped: Mapping[str, int]

    def fingerprint(self) -> str:
        """A number that changes with any sample or box."""
        digest = hashlib.blake2b(digest_size=8)
        for call in self.calls:
            digest.update(repr((call.name, call.label, call.source, call.box)).encode() + call.wave.tobytes())
        for item in self.backgrounds:
            digest.update(repr((item.name, item.kind, item.source)).encode() + item.wave.tobytes())
        return digest.hexdigest()


def read_material(data: Path) -> Material:
    """Read every source of a data folder."""
    calls = (*_esc50_calls(data), *_table_calls(data))
    backgrounds, dropped = [], dict.fromkeys(BEDS, 0)
    for item in _backgrounds(data):
        if item.kind in BEDS and peaks(item.wave) > MAX_PEAKS:
            dropped[item.kind] += 1
        else:
            backgrounds.append(item)
    return Material(calls, tuple(backgrounds), dropped)


def peaks(wave: Wave) -> float:
    """Share of a sound's cells above 500 Hz that stand out of their time and of their band."""
    power = smoothed((np.abs(spectrum_of(wave)) ** 2).astype(np.float32))[4:-5, 16:]
    level_db = 10 * np.log10(power + 1e-12)
    loud = np.argwhere(level_db > np.median(level_db, axis=0) + PEAK_DB)  # (K, 2)
    wide = np.pad(level_db, ((0, 0), (AROUND_BINS, AROUND_BINS)), mode="edge")
    around_db = wide[loud[:, :1], loud[:, 1:] + np.arange(0, 2 * AROUND_BINS + 1, 4)]  # (K, 11)
    above_db = level_db[loud[:, 0], loud[:, 1]] - np.median(around_db, axis=1)
    return float((above_db > PEAK_DB).sum() / level_db.size)


def _esc50_calls(data: Path) -> Iterator[Call]:
    """Calls of animal clips, wherever they stand out."""
    for row in read_rows(data / ESC50 / "recordings.csv"):
        if row["category"] in CALLERS:
            wave = _read(data / ESC50, row["recording"])
            for number, (cut, box) in enumerate(find_calls(wave)):
                name, source = f"{row['recording']}#{number}", f"{ESC50}/{row['source_clip']}"
                yield Call(name, row["category"], source, cut, box)


def _table_calls(data: Path) -> Iterator[Call]:
    """Calls that a table tells of: within its boxes where it has any, else wherever they stand out."""
    for folder, columns in SAME_RECORDING.items():
        facts = {row["recording"]: row for row in read_rows(data / folder / "recordings.csv")}
        known: dict[tuple[str, str], list[Bounds]] = {}
        for row in read_rows(data / folder / "annotations.csv"):
            boxes = known.setdefault((row["recording"], row["label"]), [])
            boxes += [_searched(row)] if row["start_s"] else []
        for (recording, label), boxes in known.items():
            if label not in UNSURE:
                source = "/".join([folder, *(facts[recording][column] for column in columns)])
                for number, (cut, box) in enumerate(find_calls(_read(data / folder, recording), boxes)):
                    yield Call(f"{recording}#{number}", label, source, cut, box)


def _searched(row: Mapping[str, str]) -> Bounds:
    """Where to look for a call that an annotator drew a box around, with frequencies or without."""
    low_hz, high_hz = float(row["low_hz"] or 0), float(row["high_hz"] or RATE_HZ)
    start_s, end_s = float(row["start_s"]) - SEARCH_S, float(row["end_s"]) + SEARCH_S
    return start_s, low_hz * (1 - SEARCH), end_s, high_hz * (1 + SEARCH)


def _backgrounds(data: Path) -> Iterator[Background]:
    """Weather, engines and quiet field recordings."""
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
    """Rows of a table of the sources, by column."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        raise StorageError(
            f"{table} is not there. Name the folder that holds the sources which docs/explanation/soundscapes.md lists."
        ) from None


def _read(folder: Path, recording: str) -> Wave:
    with open_audio(str(folder / "audio" / recording), RATE_HZ) as audio:
        return audio.read_samples(0, audio.samples)
