"""Read the openly licensed recordings that the detector that ships may learn from, with their authors and licences.

Calls are isolated and measured as in `experiments.soundscapes`. A fifth of the original recordings, and some classes, are
held out for the validation world.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.soundscapes.calls import Bounds, find_calls
from experiments.soundscapes.sources import MAX_PEAKS, peak_fraction, read_rows
from experiments.soundscapes.spectra import RATE_HZ, Wave
from mast.audio.reader import open_audio
from mast.errors import ConfigError

Role = Literal["call", "bed", "chorus", "human", "machine", "weather"]
"""Use of a clip: an isolated call; a bed or chorus of insects that plays throughout an example; or a distractor."""

Part = Literal["train", "validation"]

OPEN_CLIPS, SHARED_CLIPS = "esc50-open-clips", "esc50-animals-and-weather"
AMBIENT, FIELD = "blanket-ambient", "pam-clips-misc"
ANNOTATED: Mapping[str, str] = {
    "powdermill-snippet": "CC0: Chronister et al. 2021",
    "pykanto-great-tit": "MIT: Nilo M. Recalde 2020",
    "qut-noisypitta": "CC BY-SA 4.0: QUT Ecoacoustics",
}
"""Sources with annotated calls, and their licences and authors."""

FOLDERS = frozenset({OPEN_CLIPS, SHARED_CLIPS, AMBIENT, FIELD, *ANNOTATED})
"""Folders that may be read; of `SHARED_CLIPS`, only the clips that the table of `OPEN_CLIPS` names."""

HELD_OUT_CLASSES = frozenset({"hen", "Pitta versicolor", "helicopter", "siren", "laughing", "water_drops"})
"""Classes of the validation world only: none of their clips is in the training world."""

HELD_OUT_ORIGINALS = 5
"""One of this many original recordings is held out."""

CHORUSES, BEDS = frozenset({"insects"}), frozenset({"rain", "wind", "sea_waves"})
AMBIENT_BEDS = frozenset({"rain", "storm", "waves", "wind"})
SEARCH_S, SEARCH_FRACTION = 0.03, 0.1
"""Margin around an annotated box in which its call is searched: seconds, and a fraction of the frequency."""

FIELD_PIECE_S = 5.0


@dataclass(frozen=True, eq=False)
class Clip:
    """Audio at 16 kHz with its use, class, original recording and attribution; a call has its box in the wave."""

    name: str
    role: Role
    label: str
    original: str
    attribution: str
    wave: NDArray[np.int16]
    box: Bounds | None = None

    @property
    def part(self) -> Part:
        """Part of the world that may use the clip."""
        if self.label in HELD_OUT_CLASSES:
            return "validation"
        digest = hashlib.blake2b(self.original.encode(), digest_size=4).digest()
        return "train" if int.from_bytes(digest) % HELD_OUT_ORIGINALS else "validation"


def read_clips(data: Path) -> list[Clip]:
    """Read all calls, beds and distractors of a data folder."""
    return [*_open_clips(data), *_annotated_calls(data), *_ambient_beds(data), *_field_beds(data)]


def attributions(clips: list[Clip]) -> list[str]:
    """Return the attribution of every original recording, for the model card."""
    return sorted({f"{clip.original}: {clip.attribution}" for clip in clips})


def _open_clips(data: Path) -> Iterator[Clip]:
    """Yield the calls and distractors of the open ESC-50 clips."""
    for row in read_rows(data / OPEN_CLIPS / "recordings.csv"):
        wave = _read(data / OPEN_CLIPS, row["recording"])
        name, label, role = row["recording"], row["category"], row["role"]
        original, attribution = f"ESC-50/{row['source_clip']}", f"{row['licence']}: {row['attribution']}"
        if role == "animal" and label not in CHORUSES:
            for number, (cut, box) in enumerate(find_calls(wave)):
                yield Clip(f"{name}#{number}", "call", label, original, attribution, _to_int16(cut), box)
            continue
        if label in CHORUSES:
            used: Role = "chorus"
        elif role == "weather-water":
            used = "bed" if label in BEDS else "weather"
        else:
            used = "human" if role == "human" else "machine"
        if used == "bed" and peak_fraction(wave) > MAX_PEAKS:
            continue  # an animal may call in it
        yield Clip(name, used, label, original, attribution, _to_int16(wave))


def _annotated_calls(data: Path) -> Iterator[Clip]:
    for folder, attribution in ANNOTATED.items():
        for row in read_rows(data / folder / "annotations.csv"):
            start_s, end_s = float(row["start_s"]) - SEARCH_S, float(row["end_s"]) + SEARCH_S
            low_hz, high_hz = (float(row[name]) for name in ("low_hz", "high_hz"))
            within = (start_s, low_hz * (1 - SEARCH_FRACTION), end_s, high_hz * (1 + SEARCH_FRACTION))
            wave = _read(data / folder, f"audio/{row['recording']}")
            original = f"{folder}/{row['recording'].split('_')[0]}"
            for number, (cut, box) in enumerate(find_calls(wave, [within])):
                name = f"{folder}/{row['recording']}@{start_s:.2f}#{number}"
                yield Clip(name, "call", row["label"], original, attribution, _to_int16(cut), box)


def _ambient_beds(data: Path) -> Iterator[Clip]:
    for row in read_rows(data / AMBIENT / "recordings.csv"):
        kind = row["recording"].removesuffix(".flac")
        if kind in AMBIENT_BEDS:
            wave, name = _read(data / AMBIENT, f"audio/{row['recording']}"), f"{AMBIENT}/{row['recording']}"
            yield Clip(name, "bed", kind, name, row["license"], _to_int16(wave))


def _field_beds(data: Path) -> Iterator[Clip]:
    """Yield the pieces of unlabelled field recordings in which no animal stands out."""
    size = round(FIELD_PIECE_S * RATE_HZ)
    for row in read_rows(data / FIELD / "recordings.csv"):
        wave = _read(data / FIELD, f"audio/{row['recording']}")
        for first in range(0, len(wave) - size + 1, size):
            piece = wave[first : first + size]
            if peak_fraction(piece) <= MAX_PEAKS:
                name = f"{FIELD}/{row['recording']}"
                yield Clip(f"{name}@{first}", "bed", "field", name, row["source"], _to_int16(piece))


def _read(folder: Path, recording: str) -> Wave:
    """Read a recording at 16 kHz; raise ConfigError if its folder is not openly licensed."""
    path = (folder / recording).resolve()
    if path.parents[1].name not in FOLDERS:
        raise ConfigError(f"{path} is not a recording that weights that ship may learn from.")
    with open_audio(str(path), RATE_HZ) as audio:
        return audio.read_samples(0, audio.samples)


def _to_int16(wave: Wave) -> NDArray[np.int16]:
    """Return the audio with a peak of full scale, in half the memory."""
    samples: NDArray[np.int16] = np.rint(wave / max(float(np.abs(wave).max()), 1e-9) * 32767).astype(np.int16)
    return samples
