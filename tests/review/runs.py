"""A small run to review: tones whose boxes are known, a bat at 192 kHz, and a recording in which nothing was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from starlette.testclient import TestClient

from mast.review.guard import Gate
from mast.review.material import Material
from mast.review.server import make_app
from mast.review.store import Store
from mast.review.tile_cache import TileCache
from tests.detection.runs import event, heard, recording, write_run

ADDRESS = "http://127.0.0.1:8642"
ONE, BAT, QUIET = "card/ridge/one.wav", "card/swamp/bat <b>&amp;.wav", "card/ridge/quiet.wav"
STARTS_S = (1.0, 4.0, 7.0, 12.0)
TONE_HZ = 2000.0


def write_sound(path: Path, seconds: float, rate_hz: int, tone_hz: float, starts_s=STARTS_S) -> None:
    """Faint noise, and half a second of a tone from each start on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    wave = np.random.default_rng(0).normal(0, 0.002, len(time_s))
    for start_s in starts_s:
        wave += 0.2 * np.sin(2 * np.pi * tone_hz * time_s) * ((time_s >= start_s) & (time_s < start_s + 0.5))
    soundfile.write(path, wave, rate_hz, subtype="PCM_16")


def made_run(folder: Path, more: int = 0) -> str:
    """The folder of a run over a card beside it; `more` sounds are added to its first recording."""
    card = folder / "card"
    write_sound(card / "ridge" / "one.wav", 20.0, 16_000, TONE_HZ)
    write_sound(card / "swamp" / "bat <b>&amp;.wav", 3.0, 192_000, 45_000.0, (1.0,))
    write_sound(card / "ridge" / "quiet.wav", 5.0, 16_000, TONE_HZ, ())
    one = recording("ridge/one.wav", duration_s=20.0)
    quiet = recording("ridge/quiet.wav", duration_s=5.0)
    bat = recording("swamp/bat <b>&amp;.wav", site="swamp", duration_s=3.0, sample_rate_hz=192_000)
    lost = recording("swamp/lost.wav", duration_s=None, sample_rate_hz=None, status="quarantined")
    sounds = [event(one, start_s, score=0.3 + 0.1 * at) for at, start_s in enumerate(STARTS_S)]
    sounds += [event(one, 19.0 * at / more, high_hz=1500.0 + at) for at in range(more)]
    cries = [event(bat, 1.0, high_hz=50_000.0, score=0.9)]
    parts = [
        [(one, heard(one, len(sounds)), sounds), (quiet, heard(quiet), [])],
        [(bat, heard(bat, 1), cries), (lost, heard(lost, status="quarantined", reason="no sound"), [])],
    ]
    return write_run(folder / "found", parts, root=card)


def client_of(material: Material, store: Store, folder: Path, gate: Gate | None = None) -> TestClient:
    """A browser without a screen, on the page of this server."""
    app = make_app(material, store, TileCache(folder / "tiles"), gate)
    return TestClient(app, ADDRESS, headers={"origin": ADDRESS}, client=("127.0.0.1", 50_000))


def proposal(material: Material, number: int = 0, **changed) -> dict:
    """The first verdict on a sound; those of the first recording are first."""
    row = material.sounds.to_pylist()[number]
    return {
        "request_id": f"request-{number}",
        "subject": row["event_id"],
        "version": 1,
        "kind": "sound",
        "state": "accepted",
        "recording_id": row["recording_id"],
        **{name: row[name] for name in ("start_s", "end_s", "low_hz", "high_hz", "label")},
        **changed,
    }
