"""A data folder with a few short clips, in the form of the real one."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import soundfile
from experiments.starter.sources import AMBIENT, ANNOTATED, FIELD, OPEN_CLIPS
from numpy.typing import NDArray

RATE_HZ = 16_000
CLIPS = {
    ("frog", "animal"): 6, ("hen", "animal"): 2, ("insects", "animal"): 6, ("rain", "weather-water"): 6,
    ("laughing", "human"): 2, ("sneezing", "human"): 6, ("train", "machine"): 6, ("thunderstorm", "weather-water"): 6,
}  # fmt: skip


def write_sources(folder: Path) -> Path:
    """Write every source that the starter may learn from."""
    rng = np.random.default_rng(0)
    rows = []
    for (category, role), count in CLIPS.items():
        for number in range(count):
            name = f"audio/{category}-{number}.flac"
            wave = calls(rng) if role == "animal" else rng.normal(0, 0.1, 3 * RATE_HZ)
            write(folder / OPEN_CLIPS / name, wave)
            rows.append([name, category, role, 1, f"{category}{number}", "CC-BY", f"by author {number}"])
    columns = ["recording", "category", "role", "fold", "source_clip", "licence", "attribution"]
    table(folder / OPEN_CLIPS / "recordings.csv", columns, rows)
    for source in ANNOTATED:
        write(folder / source / "audio" / "one_1.flac", calls(rng))
        boxes = [["one_1.flac", 0.5, 0.9, 1800, 2200, "bird"], ["one_1.flac", 1.5, 1.9, 1800, 2200, "bird"]]
        table(
            folder / source / "annotations.csv",
            ["recording", "start_s", "end_s", "low_hz", "high_hz", "label"],
            boxes,
        )
    write(folder / AMBIENT / "audio" / "wind.flac", rng.normal(0, 0.1, 6 * RATE_HZ))
    write(folder / AMBIENT / "audio" / "birds.flac", calls(rng))
    table(
        folder / AMBIENT / "recordings.csv",
        ["recording", "license"],
        [["wind.flac", "CC0"], ["birds.flac", "CC0"]],
    )
    write(folder / FIELD / "audio" / "site.flac", rng.normal(0, 0.1, 11 * RATE_HZ))
    table(folder / FIELD / "recordings.csv", ["recording", "source"], [["site.flac", "project (MIT)"]])
    return folder


def calls(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return three seconds of faint noise with two tones at 2 kHz."""
    wave = rng.normal(0, 1e-3, 3 * RATE_HZ)
    for start_s in (0.5, 1.5):
        time_s = np.arange(round(0.4 * RATE_HZ)) / RATE_HZ
        first = round(start_s * RATE_HZ)
        wave[first : first + len(time_s)] += 0.5 * np.sin(2 * np.pi * 2000 * time_s) * np.hanning(len(time_s))
    return wave


def write(path: Path, wave: NDArray[np.float64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, wave, RATE_HZ)


def table(path: Path, columns: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
