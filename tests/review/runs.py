"""A small run to review: tones with exact boxes, a bat at 192 kHz, and a recording without detections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from starlette.testclient import TestClient

from mast.review.database import ReviewDatabase
from mast.review.review_set import ReviewSet
from mast.review.web.app import create_app
from mast.review.web.security import AccessPolicy
from mast.review.web.tile_cache import TileCache
from tests.runs.finished import event, recording, status_of, write_run

ADDRESS = "http://127.0.0.1:8642"
ONE, BAT, QUIET = "card/ridge/one.wav", "card/swamp/bat <b>&amp;.wav", "card/ridge/quiet.wav"
STARTS_S = (1.0, 4.0, 7.0, 12.0)
TONE_HZ = 2000.0


def write_sound(path: Path, seconds: float, rate_hz: int, tone_hz: float, starts_s=STARTS_S) -> None:
    """Write faint noise with a tone of half a second at each start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    wave = np.random.default_rng(0).normal(0, 0.002, len(time_s))
    for start_s in starts_s:
        wave += 0.2 * np.sin(2 * np.pi * tone_hz * time_s) * ((time_s >= start_s) & (time_s < start_s + 0.5))
    soundfile.write(path, wave, rate_hz, subtype="PCM_16")


def write_review_run(folder: Path, more: int = 0) -> str:
    """Write a card and a run over it; add `more` events to its first recording. Return the run's folder."""
    card = folder / "card"
    write_sound(card / "ridge" / "one.wav", 20.0, 16_000, TONE_HZ)
    write_sound(card / "swamp" / "bat <b>&amp;.wav", 3.0, 192_000, 45_000.0, (1.0,))
    write_sound(card / "ridge" / "quiet.wav", 5.0, 16_000, TONE_HZ, ())
    one = recording("ridge/one.wav", duration_s=20.0)
    quiet = recording("ridge/quiet.wav", duration_s=5.0)
    bat = recording("swamp/bat <b>&amp;.wav", site="swamp", duration_s=3.0, sample_rate_hz=192_000)
    lost = recording("swamp/lost.wav", duration_s=None, sample_rate_hz=None, status="quarantined")
    events = [event(one, start_s, score=0.3 + 0.1 * at) for at, start_s in enumerate(STARTS_S)]
    events += [event(one, 19.0 * at / more, high_hz=1500.0 + at) for at in range(more)]
    bat_calls = [event(bat, 1.0, high_hz=50_000.0, score=0.9)]
    parts = [
        [(one, status_of(one, len(events)), events), (quiet, status_of(quiet), [])],
        [
            (bat, status_of(bat, 1), bat_calls),
            (lost, status_of(lost, status="quarantined", reason="no sound"), []),
        ],
    ]
    return write_run(folder / "found", parts, root=card)


def client_of(
    review_set: ReviewSet, store: ReviewDatabase, folder: Path, policy: AccessPolicy | None = None
) -> TestClient:
    """Create a test client of the review server."""
    app = create_app(review_set, store, TileCache(folder / "tiles"), policy)
    return TestClient(app, ADDRESS, headers={"origin": ADDRESS}, client=("127.0.0.1", 50_000))


def proposal(review_set: ReviewSet, number: int = 0, **changes) -> dict:
    """Build the request for the first verdict on an event; events of the first recording come first."""
    row = review_set.events.to_pylist()[number]
    return {
        "request_id": f"request-{number}",
        "event_id": row["event_id"],
        "version": 1,
        "kind": "sound",
        "state": "accepted",
        "recording_id": row["recording_id"],
        **{name: row[name] for name in ("start_s", "end_s", "low_hz", "high_hz", "label")},
        **changes,
    }
