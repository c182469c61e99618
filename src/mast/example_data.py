"""Synthetic example data: a small memory card with calls and exact boxes, three sites, and common faults.

All audio is synthesised here, so it can be shared freely and is identical on every machine.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from mast.annotations import Annotations, write_annotations
from mast.errors import StorageError
from mast.records import Event, ReviewedSpan
from mast.storage import atomic_write
from mast.types import Floats

RATE_HZ = 32_000
RECORDING_S = 30.0

UTC_OFFSET_MIN = 120
DEVICE = "24F31901603A0"


@dataclass(frozen=True, slots=True)
class Note:
    """A frequency sweep with overtones that starts `gap_s` after the previous note."""

    length_s: float
    from_hz: float
    to_hz: float
    gap_s: float = 0.0
    overtones: int = 0


@dataclass(frozen=True, slots=True)
class Voice:
    """A species: its song, number of songs per recording, and hours of activity."""

    label: str
    song: tuple[Note, ...]
    songs: int
    hours: range


VOICES: dict[str, tuple[Voice, ...]] = {
    "A1": (
        Voice("two-note song", (Note(0.13, 4200, 4150), Note(0.16, 5600, 5500, 0.05)) * 4, 4, range(4, 12)),
        Voice("trill", (Note(0.035, 2600, 5800, 0.03),) * 14, 3, range(4, 20)),
    ),
    "A2": (
        Voice("hoot", (Note(0.32, 640, 620, 0.0, 1), Note(0.55, 600, 560, 0.25, 1)), 4, range(18, 30)),
        Voice("whistle", (Note(0.7, 2300, 3100),), 5, range(3, 20)),
    ),
    "B1": (
        Voice("insect", (Note(0.02, 6900, 6950, 0.03),) * 60, 2, range(30)),
        Voice("frog", (Note(0.06, 900, 1500, 0.05, 2),) * 6, 5, range(18, 30)),
    ),
}
RECORDING_HOURS = (5, 7, 21)


def write_example(folder: Path) -> int:
    """Write audio and annotations below `folder`; return the number of audio files, faulty files included."""
    if folder.exists() and any(folder.iterdir()):
        raise StorageError(f"{folder} is not empty. Name a new folder for the example data.")
    events: list[Event] = []
    paths: list[str] = []
    for number, (site, hour) in enumerate((site, hour) for site in VOICES for hour in RECORDING_HOURS):
        local = datetime(2024, 5, 10, hour, 30) + timedelta(days=number % 2)
        path = f"{site}/{local:%Y%m%d_%H%M%S}.WAV"
        rng = np.random.default_rng(number)
        sound, calls = _soundscape(site, hour, path, rng)
        _write(folder / "card" / path, audiomoth_wav(sound, local, UTC_OFFSET_MIN, f"{DEVICE}{site}"))
        events += calls
        paths.append(path)
    boxes = Annotations(events=tuple(events), reviewed=tuple(ReviewedSpan(path) for path in paths))
    write_annotations(boxes, folder / "boxes", "raven")
    return len(paths) + _write_faults(folder / "card")


def audiomoth_wav(sound: Floats, start_local: datetime, utc_offset_min: int, device: str) -> bytes:
    """Encode audio in -1…1 as a 16-bit WAV file with the comment of an AudioMoth."""
    hours, minutes = divmod(abs(utc_offset_min), 60)
    sign = "-" if utc_offset_min < 0 else "+"
    zone = f"UTC{sign}{hours}" + (f":{minutes:02d}" if minutes else "") if utc_offset_min else "UTC"
    comment = (
        f"Recorded at {start_local:%H:%M:%S %d/%m/%Y} ({zone}) by AudioMoth {device} at medium gain "
        "while battery was 4.1V and temperature was 14.2C."
    ).encode()
    samples = (np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()
    info = b"INFO" + _chunk(b"ICMT", comment)
    layout = struct.pack("<HHIIHH", 1, 1, RATE_HZ, RATE_HZ * 2, 2, 16)
    body = b"WAVE" + _chunk(b"fmt ", layout) + _chunk(b"LIST", info) + _chunk(b"data", samples)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def _write(path: Path, content: bytes) -> None:
    with atomic_write(str(path)) as file:
        file.write(content)


def _write_faults(card: Path) -> int:
    """Write files with common faults and return their number."""
    good = (card / "A1" / "20240510_053000.WAV").read_bytes()
    complete = audiomoth_wav(
        _background(RECORDING_S, np.random.default_rng(2)),
        datetime(2024, 5, 11, 9, 30),
        UTC_OFFSET_MIN,
        f"{DEVICE}A1",
    )
    clock_reset = datetime.fromtimestamp(95, UTC).replace(tzinfo=None)
    silent = np.zeros(RATE_HZ * 5)
    clipped = np.sign(np.sin(np.arange(RATE_HZ * 5) / 9))
    evening = datetime(2024, 5, 12, 21, 30)
    faults = {
        "A1/20240511_093000.WAV": complete[: len(complete) // 3],  # the card was pulled out
        "A1/20240511_113000.WAV": b"",  # the card was full
        "A1/copy of 20240510_053000.WAV": good,
        f"A2/{clock_reset:%Y%m%d_%H%M%S}.WAV": audiomoth_wav(
            _background(5, np.random.default_rng(1)), clock_reset, 0, f"{DEVICE}A2"
        ),
        "A2/20240512_213000.WAV": audiomoth_wav(silent, evening, UTC_OFFSET_MIN, f"{DEVICE}A2"),
        "B1/20240512_213000.WAV": audiomoth_wav(clipped, evening, UTC_OFFSET_MIN, f"{DEVICE}B1"),
        "B1/notes.wav": b"Changed the batteries. Wasps in the box!\n",
    }
    for path, content in faults.items():
        _write(card / path, content)
    return len(faults)


def _soundscape(site: str, hour: int, path: str, rng: np.random.Generator) -> tuple[Floats, list[Event]]:
    """Synthesise background, wind and the songs of a site at an hour; return the audio and a box for each song."""
    sound = _background(RECORDING_S, rng)
    events: list[Event] = []
    for voice in VOICES[site]:
        if hour not in voice.hours and hour + 24 not in voice.hours:
            continue
        length_s = sum(note.gap_s + note.length_s for note in voice.song)
        slot_s = RECORDING_S / voice.songs
        for number in range(voice.songs):
            start_s = number * slot_s + rng.uniform(0, slot_s - length_s)
            sound += _synthesize_song(
                voice.song, start_s, 10 ** rng.uniform(-1.7, -0.9), rng.uniform(0.97, 1.03)
            )
            events.append(_box(path, voice, start_s, length_s))
    return sound, sorted(events, key=lambda event: event.start_s)


def _synthesize_song(song: tuple[Note, ...], start_s: float, loudness: float, pitch: float) -> Floats:
    sound = np.zeros(round(RECORDING_S * RATE_HZ))
    at_s = start_s
    for note in song:
        at_s += note.gap_s
        samples = round(note.length_s * RATE_HZ)
        first = round(at_s * RATE_HZ)
        sweep_hz = np.linspace(note.from_hz, note.to_hz, samples) * pitch
        phase = 2 * np.pi * np.cumsum(sweep_hz) / RATE_HZ
        tones = sum(
            (np.sin(phase * (n + 1)) / (n + 1) ** 2 for n in range(note.overtones + 1)), np.zeros(samples)
        )
        sound[first : first + samples] += loudness * np.hanning(samples) * tones
        at_s += note.length_s
    return sound


def _box(path: str, voice: Voice, start_s: float, length_s: float) -> Event:
    """Return the box of a song with a small margin, as an annotator draws it."""
    pitches_hz = [hz for note in voice.song for hz in (note.from_hz, note.to_hz * (1 + note.overtones))]
    return Event(
        path,
        round(max(0.0, start_s - 0.05), 3),
        round(start_s + length_s + 0.05, 3),
        round(min(pitches_hz) * 0.94 - 60, 1),
        round(max(pitches_hz) * 1.05 + 60, 1),
        label=voice.label,
        annotator="example",
    )


def _background(length_s: float, rng: np.random.Generator) -> Floats:
    """Synthesise wind of varying loudness over noise that decreases with frequency."""
    samples = round(length_s * RATE_HZ)
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    hz = np.fft.rfftfreq(samples, 1 / RATE_HZ)
    hiss = np.fft.irfft(spectrum / (1 + hz / 900), samples)
    wind = np.fft.irfft(spectrum / (1 + (hz / 90) ** 2), samples)
    knots = rng.uniform(0.2, 1.0, max(3, round(length_s / 3)))
    swell = np.interp(np.arange(samples), np.linspace(0, samples, len(knots)), knots)
    sound: Floats = 0.006 * hiss / hiss.std() + 0.02 * swell * wind / wind.std()
    return sound
