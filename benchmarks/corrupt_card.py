"""Write a recorder card with every kind of fault: WAV files of one second, and a list of expected faults."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

RATE_HZ = 16_000
SITES = 10
EVERY = timedelta(minutes=10)
FIRST = datetime(2023, 4, 1)
HUGE_BYTES = (1 << 32) + 64_000


@dataclass
class Card:
    """Collections as in a study file, and the expected (recording, fault) pairs; "" means a file without faults."""

    collections: dict[str, dict[str, str]]
    expected: list[tuple[str, str]] = field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Sounds:
    """Seconds of simulated wind, noise and chirps; every number gives another second."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        wind = np.cumsum(rng.standard_normal(4 * RATE_HZ)) * 0.1
        wind -= np.convolve(wind, np.ones(400) / 400, "same")
        time_s = np.arange(4 * RATE_HZ) / RATE_HZ
        chirp = np.sin(2 * np.pi * (3000 + 800 * np.sin(9 * time_s)) * time_s) * (np.sin(5 * time_s) > 0.6)
        audio = 800 * wind + 2500 * chirp + 60 * rng.standard_normal(4 * RATE_HZ)
        self._long = np.clip(audio, -30_000, 30_000).astype("<i2")

    def second(self, number: int) -> NDArray[np.int16]:
        start = (number * 7919) % (3 * RATE_HZ)
        samples: NDArray[np.int16] = self._long[start : start + RATE_HZ].copy()
        samples[:16] ^= np.frombuffer(struct.pack("<Q", number) * 4, "<i2") & 0xFF
        return samples


def wav(
    data: bytes,
    comment: str | None = None,
    stated_bytes: int | None = None,
    riff_bytes: int | None = None,
    layout: tuple[int, int] = (1, 16),
) -> bytes:
    """Return a mono WAV file, as an AudioMoth writes it; the stated sizes may be wrong."""
    tag, bits = layout
    chunk = b""
    if comment is not None:
        text = comment.encode().ljust(384, b"\0")
        chunk = struct.pack("<4sI4s4sI", b"LIST", len(text) + 12, b"INFO", b"ICMT", len(text)) + text
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, tag, 1, RATE_HZ, RATE_HZ * bits // 8, bits // 8, bits)
    stated = len(data) if stated_bytes is None else stated_bytes
    total = 4 + len(form) + len(chunk) + 8 + stated if riff_bytes is None else riff_bytes
    head = struct.pack("<4sI4s", b"RIFF", total & 0xFFFFFFFF, b"WAVE") + form + chunk
    return head + struct.pack("<4sI", b"data", stated & 0xFFFFFFFF) + data


def comment(clock: datetime, zone: str = "UTC", device: str = "24E144036037EA46") -> str:
    return (
        f"Recorded at {clock:%H:%M:%S %d/%m/%Y} ({zone}) by AudioMoth {device} at medium gain "
        "while battery was 4.1V and temperature was 21.5C."
    )


def make_card(folder: Path, files: int, seed: int = 0) -> Card:
    """Write about `files` recordings below `folder`, one in fifty of them with a fault."""
    maker = _Maker(folder, seed)
    each = max(files // (50 * len(FAULTY)), 1)
    for clock_number in range(files - each * len(FAULTY)):
        maker.good(clock_number)
    for make in FAULTY:
        for copy in range(min(each, 2) if make is _over_4_gb else each):
            make(maker, copy)
    for make in GOOD:
        make(maker, 0)
    return maker.card


class _Maker:
    """Write files and record their expected faults."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.sounds = Sounds(seed)
        self.roots = {name: folder / name for name in ("card", "zoned")}
        self.card = Card(
            {
                "card": {"root": str(self.roots["card"]), "site": "{site}/*"},
                "zoned": {"root": str(self.roots["zoned"]), "time_zone": "Europe/Madrid"},
            }
        )
        self._number = 0

    def data(self) -> bytes:
        self._number += 1
        return self.sounds.second(self._number).tobytes()

    def good(self, number: int) -> Path:
        site, turn = number % SITES, number // SITES
        clock = FIRST + EVERY * turn
        path = self.roots["card"] / f"site{site:02d}" / f"{clock:%Y%m%d_%H%M%S}.WAV"
        if turn == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav(self.data(), comment(clock, device=f"24E14403603700{site:02d}")))
        return path

    def place(self, fault: str, name: str, collection: str = "card") -> Path:
        """Return the path for a file of this name, and record its expected fault."""
        path = self.roots[collection] / ("faults" if collection == "card" else "") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = str(path.relative_to(self.roots[collection]))
        shown = shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        self.card.expected.append((f"{collection}/{shown}", fault))
        return path

    def write(self, fault: str, name: str, content: bytes, collection: str = "card") -> None:
        self.place(fault, name, collection).write_bytes(content)

    def clock(self, copy: int) -> datetime:
        return FIRST + EVERY * copy + timedelta(minutes=5)

    def named(self, kind: int, copy: int) -> str:
        return f"{kind:02d}/{self.clock(copy):%Y%m%d_%H%M%S}.WAV"


def _empty(card: _Maker, copy: int) -> None:
    card.write("empty-file", card.named(1, copy), b"")


def _text(card: _Maker, copy: int) -> None:
    card.write("not-audio", card.named(2, copy), b"Dear diary, the frogs were loud today.\n" * 40)


def _cut_header(card: _Maker, copy: int) -> None:
    card.write("damaged-header", card.named(3, copy), wav(b"")[:20])


def _no_permission(card: _Maker, copy: int) -> None:
    path = card.place("no-permission", card.named(4, copy))
    path.write_bytes(wav(card.data(), comment(card.clock(copy))))
    path.chmod(0)


def _no_sound(card: _Maker, copy: int) -> None:
    card.write("no-sound", card.named(5, copy), wav(b"", comment(card.clock(copy))))


def _odd_name(card: _Maker, copy: int) -> None:
    name = f"06/caf\udce9_{copy}_20230401_000500.WAV"
    card.write("invalid-filename", name, wav(card.data(), comment(card.clock(copy))))


def _broken_link(card: _Maker, copy: int) -> None:
    card.place("broken-link", card.named(7, copy)).symlink_to("on-another-drive.WAV")


def _file_loop(card: _Maker, copy: int) -> None:
    path = card.place("link-loop", card.named(8, copy))
    path.symlink_to(path.name)


def _folder_loop(card: _Maker, copy: int) -> None:
    card.place("link-loop", f"09/loop{copy}").symlink_to("..", target_is_directory=True)


def _cut_data(card: _Maker, copy: int) -> None:
    content = wav(card.data(), comment(card.clock(copy)))
    card.write("truncated", card.named(10, copy), content[: len(content) * 6 // 10])


def _unfinished_header(card: _Maker, copy: int) -> None:
    content = wav(card.data(), comment(card.clock(copy)), stated_bytes=0, riff_bytes=0)
    card.write("wrong-length", card.named(11, copy), content)


def _lying_header(card: _Maker, copy: int) -> None:
    content = wav(card.data(), comment(card.clock(copy)), stated_bytes=1000)
    card.write("wrong-length", card.named(12, copy), content)


def _over_4_gb(card: _Maker, copy: int) -> None:
    path = card.place("over-4-gb", card.named(13, copy))
    path.write_bytes(wav(card.data(), comment(card.clock(copy)), stated_bytes=HUGE_BYTES))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 2 * RATE_HZ + HUGE_BYTES)  # sparse: no disk is filled


def _nan(card: _Maker, copy: int) -> None:
    samples = card.sounds.second(copy).astype("<f4") / 32768
    samples[::50] = np.nan
    content = wav(samples.tobytes(), comment(card.clock(copy)), layout=(3, 32))
    card.write("nan-samples", card.named(14, copy), content)


def _silent(card: _Maker, copy: int) -> None:
    card.write("silent", card.named(15, copy), wav(bytes(2 * RATE_HZ), comment(card.clock(copy))))


def _clipped(card: _Maker, copy: int) -> None:
    loud = np.clip(card.sounds.second(copy).astype(np.int32) * 40, -32768, 32767).astype("<i2")
    card.write("clipped", card.named(16, copy), wav(loud.tobytes(), comment(card.clock(copy))))


def _duplicate(card: _Maker, copy: int) -> None:
    path = card.place("duplicate", card.named(17, copy))
    content = wav(card.data(), comment(card.clock(copy)))
    (path.parent / f"{copy:05d}").mkdir()
    (path.parent / f"{copy:05d}" / path.name).write_bytes(content)
    path.write_bytes(content)


def _reset_clock(card: _Maker, copy: int) -> None:
    clock = datetime(1970, 1, 1) + EVERY * copy
    card.write("clock-reset", f"18/{clock:%Y%m%d_%H%M%S}.WAV", wav(card.data(), comment(clock)))


def _future_clock(card: _Maker, copy: int) -> None:
    clock = datetime(2098, 1, 1) + EVERY * copy
    card.write("clock-in-future", f"19/{clock:%Y%m%d_%H%M%S}.WAV", wav(card.data(), comment(clock)))


def _two_clocks(card: _Maker, copy: int) -> None:
    commented = card.clock(copy) + timedelta(days=3, minutes=7)
    card.write("clock-disagrees", card.named(20, copy), wav(card.data(), comment(commented)))


def _no_start(card: _Maker, copy: int) -> None:
    card.write("no-start-time", f"21/frog song {copy}.wav", wav(card.data()))


def _no_zone(card: _Maker, copy: int) -> None:
    card.write("no-time-zone", f"22/SM4_{card.clock(copy):%Y%m%d_%H%M%S}.wav", wav(card.data()))


def _hour_twice(card: _Maker, copy: int) -> None:
    clock = datetime(2023, 10, 29, 2) + timedelta(seconds=copy % 3600)
    card.write("ambiguous-local-time", f"{copy:04d}_{clock:%Y%m%d_%H%M%S}.wav", wav(card.data()), "zoned")


def _hour_skipped(card: _Maker, copy: int) -> None:
    clock = datetime(2023, 3, 26, 2) + timedelta(seconds=copy % 3600)
    card.write("nonexistent-local-time", f"{copy:04d}_{clock:%Y%m%d_%H%M%S}.wav", wav(card.data()), "zoned")


def _misnamed(card: _Maker, copy: int) -> None:
    path = card.place("misnamed", card.named(23, copy))
    soundfile.write(path, card.sounds.second(copy), RATE_HZ, format="FLAC")


def _odd_but_good(card: _Maker, copy: int) -> None:
    for name in ("new\nline", " leading space", "trailing space ", "🦇 bat", "[bold]red[/bold]", "Ünïcödé"):
        clock = card.clock(copy)
        card.write("", f"24/{name}_{clock:%Y%m%d_%H%M%S}.WAV", wav(card.data(), comment(clock)))


def _half_hour_zone(card: _Maker, copy: int) -> None:
    card.write("", card.named(25, copy), wav(card.data(), comment(card.clock(copy), "UTC+5:30")))


Make = Callable[[_Maker, int], None]
FAULTY: tuple[Make, ...] = (
    _empty,
    _text,
    _cut_header,
    _no_permission,
    _no_sound,
    _odd_name,
    _broken_link,
    _file_loop,
    _folder_loop,
    _cut_data,
    _unfinished_header,
    _lying_header,
    _over_4_gb,
    _nan,
    _silent,
    _clipped,
    _duplicate,
    _reset_clock,
    _future_clock,
    _two_clocks,
    _no_start,
    _no_zone,
    _hour_twice,
    _hour_skipped,
    _misnamed,
)
GOOD: tuple[Make, ...] = (_odd_but_good, _half_hour_zone)


def delete_card(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
