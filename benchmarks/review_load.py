"""Many people decide at once: how long they wait, and whether every verdict is kept exactly once.

    python -m benchmarks.review_load            writes benchmarks/results/review_load.json
    python -m benchmarks.review_load --small    a small version

`mast review` runs in a process of its own over a PostgreSQL server of its own. Each client is signed in as someone else,
and decides, then thinks for up to `THINKS_S`: two verdicts a second from each, quicker than people are. Some verdicts
are sent twice with the same request id, as after a lost answer, and some are on sounds that all clients decide about, so
that most of these come too late. Tiles are asked for by one client alone, each twice: cold, and again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
import sqlalchemy as sa

from benchmarks.postgres import postgres_server
from benchmarks.results import FOLDER, write_result
from mast.events import Detected, Heard, Recording, event_id, write_table
from mast.review.store import VERDICTS, open_store
from mast.review.users import add_user

RATE_HZ, TILE_S = 48_000, 30.0
THINKS_S, TWICE, SHARED = 1.0, 0.1, 0.05
"""Longest thought between two verdicts; share of verdicts sent twice, and share on sounds that all decide about."""

PASSWORD = "only for this benchmark"


@dataclass(frozen=True, slots=True)
class Load:
    """How much of it."""

    seconds: float
    clients: int
    recordings: int
    recording_s: float
    sounds: int


FULL = Load(120.0, 50, 10, 120.0, 20_000)
SMALL = Load(3.0, 6, 2, 60.0, 2000)


@dataclass(slots=True)
class Tally:
    """What the clients saw."""

    acknowledged: set[str] = field(default_factory=set)
    waits_ms: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, help="how long people decide")
    parser.add_argument("--small", action="store_true", help="6 clients for 3 seconds")
    parser.add_argument("--out", type=Path, default=FOLDER / "review_load.json")
    options = parser.parse_args()
    load = SMALL if options.small else FULL
    seconds = options.seconds or load.seconds
    with tempfile.TemporaryDirectory(prefix="mast-review-") as folder, postgres_server() as database:
        sounds = write_run(Path(folder), load)
        names = [f"person {number}" for number in range(load.clients)]
        with open_store(database) as store:
            for name in names:
                add_user(store, name, "reviewer", PASSWORD)
        with serving(Path(folder), database) as address:
            figures = tile_figures(address, names[0], load)
            tally = asyncio.run(decide_all(address, names, sounds, seconds))
        figures |= {"clients": load.clients, "seconds": seconds, **verdict_figures(tally, database, seconds)}
    packages = ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "numpy")
    write_result(options.out, figures, packages)
    print(options.out.read_text())


def write_run(folder: Path, load: Load) -> list[dict[str, Any]]:
    """Recordings of noise and the folder of a run over them; the sounds that were found there."""
    rng = np.random.default_rng(0)
    recordings, sounds = [], []
    each = load.sounds // load.recordings
    for number in range(load.recordings):
        path = f"{number:03d}.wav"
        noise = rng.normal(0, 0.01, round(load.recording_s * RATE_HZ))
        (folder / "card").mkdir(exist_ok=True)
        soundfile.write(folder / "card" / path, noise, RATE_HZ, subtype="PCM_16")
        known = Recording(f"card/{path}", "card", path, 1, None, "ok", sample_rate_hz=RATE_HZ,
                          duration_s=load.recording_s)  # fmt: skip
        recordings.append(known)
        for at in range(each):
            start_s = at * (load.recording_s - 1) / each
            box = (start_s, start_s + 0.5, 1000.0, 3000.0)
            sounds.append(Detected(known.recording_id, *box, 0.5, None, None, None, None, "0" * 16))
    heard = [Heard(item.recording_id, "ok", None, load.recording_s, each, None, None) for item in recordings]
    found = folder / "found"
    write_table(recordings, Recording, str(found / "recordings.parquet"))
    write_table(sounds, Detected, str(found / "events" / "part-000000.parquet"))
    write_table(heard, Heard, str(found / "status" / "part-000000.parquet"))
    run = {
        "mast_version": "0", "fingerprint": "load", "settings": {"model": "0" * 16, "threshold": 0.1}, "parts": 1,
        "collections": {"card": {"root": str(folder / "card"), "time_expansion": 1.0}},
    }  # fmt: skip
    (found / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return [_proposal(sound) for sound in sounds]


def _proposal(sound: Detected) -> dict[str, Any]:
    box = {name: getattr(sound, name) for name in ("start_s", "end_s", "low_hz", "high_hz")}
    subject = event_id(sound.recording_id, **box)
    return {"subject": subject, "version": 1, "kind": "sound", "recording_id": sound.recording_id, **box}


@contextmanager
def serving(folder: Path, database: str) -> Iterator[str]:
    """`mast review` on a free port of this machine."""
    code = "from mast.cli import main; main()"
    command = [sys.executable, "-c", code, "review", str(folder / "found"), "--database", database]
    process = subprocess.Popen(
        [*command, "--no-browser", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1].rstrip("/")
    finally:
        process.kill()
        process.wait()


def tile_figures(address: str, name: str, load: Load) -> dict[str, float]:
    """How long one client waits for a tile of 30 s, the first time and the second."""
    with httpx.Client(base_url=address, headers={"origin": address}, timeout=30) as client:
        client.post("/api/sign-in", json={"name": name, "password": PASSWORD}).raise_for_status()
        waits_ms: list[list[float]] = []
        for _ in range(2):
            waits_ms.append([])
            for number in range(load.recordings):
                for start_s in np.arange(0.0, load.recording_s, TILE_S).tolist():
                    values = {
                        "recording_id": f"card/{number:03d}.wav", "start_s": start_s, "end_s": start_s + TILE_S,
                        "low_hz": 0, "high_hz": RATE_HZ / 2, "width": 512, "height": 512,
                    }  # fmt: skip
                    began_s = time.perf_counter()
                    client.get("/api/tile", params=values).raise_for_status()
                    waits_ms[-1].append(1000 * (time.perf_counter() - began_s))
    cold_ms, cached_ms = (round(float(np.percentile(row, 95)), 1) for row in waits_ms)
    return {"tiles": len(waits_ms[0]), "p95_tile_cold_ms": cold_ms, "p95_tile_cached_ms": cached_ms}


async def decide_all(address: str, names: list[str], sounds: list[dict[str, Any]], seconds: float) -> Tally:
    """Let everyone decide for so long."""
    tally = Tally()
    shared, own = sounds[: len(sounds) // 20], sounds[len(sounds) // 20 :]
    clients = [_Client(address, name, tally) for name in names]
    for client in clients:
        await client.sign_in()
    end_s = time.monotonic() + seconds
    work = [
        client.decide(own[at :: len(clients)], shared, end_s, random.Random(at))
        for at, client in enumerate(clients)
    ]
    await asyncio.gather(*work)
    for client in clients:
        await client.http.aclose()
    return tally


class _Client:
    """One person, who decides faster than any."""

    def __init__(self, address: str, name: str, tally: Tally) -> None:
        self.http = httpx.AsyncClient(base_url=address, headers={"origin": address}, timeout=60)
        self._name, self._tally = name, tally

    async def sign_in(self) -> None:
        answer = await self.http.post("/api/sign-in", json={"name": self._name, "password": PASSWORD})
        answer.raise_for_status()

    async def decide(
        self, own: list[dict[str, Any]], shared: list[dict[str, Any]], end_s: float, rng: random.Random
    ) -> None:
        versions: Counter[str] = Counter()
        at = 0
        while time.monotonic() < end_s:
            common = rng.random() < SHARED
            sound = rng.choice(shared) if common else own[at % len(own)]
            at += not common
            version = 1 if common else versions[sound["subject"]] + 1
            proposal = {**sound, "version": version, "state": "accepted", "request_id": secrets.token_hex(12)}
            if await self._send(proposal) == 200 and not common:
                versions[sound["subject"]] = version
            if rng.random() < TWICE:
                await self._send(proposal)
            await asyncio.sleep(rng.uniform(0, THINKS_S))

    async def _send(self, proposal: dict[str, Any]) -> int:
        began_s = time.perf_counter()
        answer = await self.http.post("/api/verdicts", json=proposal)
        self._tally.waits_ms.append(1000 * (time.perf_counter() - began_s))
        self._tally.codes[answer.status_code] += 1
        if answer.status_code == 200:
            self._tally.acknowledged.add(proposal["request_id"])
        return answer.status_code


def verdict_figures(tally: Tally, database: str, seconds: float) -> dict[str, Any]:
    """What was promised against what is there."""
    with open_store(database) as store, store.reading.connect() as connection:
        stored = list(connection.execute(sa.select(VERDICTS.c.request_id)).scalars())
    return {
        "verdicts_sent": len(tally.acknowledged),
        "verdicts_stored": len(stored),
        "lost": len(tally.acknowledged - {*stored}),
        "doubled": len(stored) - len({*stored}),
        "too_late": tally.codes[409],
        "failed": sum(count for code, count in tally.codes.items() if code not in (200, 409)),
        "requests_per_s": round(sum(tally.codes.values()) / seconds, 1),
        "median_verdict_ms": round(float(np.median(tally.waits_ms)), 1),
        "p95_verdict_ms": round(float(np.percentile(tally.waits_ms, 95)), 1),
    }


if __name__ == "__main__":
    main()
