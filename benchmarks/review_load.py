"""Measure response times of the review server with many clients, and check that every verdict is stored exactly once.

    python -m benchmarks.review_load            writes benchmarks/results/review_load.json
    python -m benchmarks.review_load --small    a small version

`mast review` runs in a separate process with its own PostgreSQL server. Each client is signed in as another user and
sends a verdict, then waits for up to `MAX_WAIT_S`: two verdicts per second from each, faster than human reviewers.
Some verdicts are sent twice with the same request id, as after a lost response, and some are on events that all
clients review, so that most of these conflict. Tiles are requested by a single client, each twice: uncached, then
cached.
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
from mast.records import DetectedEvent, Recording, RecordingStatus, event_id, write_table
from mast.review.database import VERDICTS, open_store
from mast.review.web.users import add_user

RATE_HZ, TILE_S = 48_000, 30.0
MAX_WAIT_S, REPEATED, SHARED = 1.0, 0.1, 0.05
"""Maximum time between two verdicts; fraction of verdicts sent twice, and fraction on events that all clients review."""

PASSWORD = "only for this benchmark"


@dataclass(frozen=True, slots=True)
class Load:
    """Extent of the benchmark."""

    seconds: float
    clients: int
    recordings: int
    recording_s: float
    events: int


FULL = Load(120.0, 50, 10, 120.0, 20_000)
SMALL = Load(3.0, 6, 2, 60.0, 2000)


@dataclass(slots=True)
class Tally:
    """Responses that the clients received."""

    acknowledged: set[str] = field(default_factory=set)
    waits_ms: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, help="duration of the load")
    parser.add_argument("--small", action="store_true", help="6 clients for 3 seconds")
    parser.add_argument("--out", type=Path, default=FOLDER / "review_load.json")
    options = parser.parse_args()
    load = SMALL if options.small else FULL
    seconds = options.seconds or load.seconds
    with tempfile.TemporaryDirectory(prefix="mast-review-") as folder, postgres_server() as database:
        events = write_run(Path(folder), load)
        names = [f"reviewer {number}" for number in range(load.clients)]
        with open_store(database) as store:
            for name in names:
                add_user(store, name, "reviewer", PASSWORD)
        with serving(Path(folder), database) as address:
            metrics = tile_metrics(address, names[0], load)
            tally = asyncio.run(review_all(address, names, events, seconds))
        metrics |= {"clients": load.clients, "seconds": seconds, **verdict_metrics(tally, database, seconds)}
    packages = ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "numpy")
    write_result(options.out, metrics, packages)
    print(options.out.read_text())


def write_run(folder: Path, load: Load) -> list[dict[str, Any]]:
    """Write recordings of noise and the folder of a run; return requests for its events."""
    rng = np.random.default_rng(0)
    recordings, events = [], []
    each = load.events // load.recordings
    for number in range(load.recordings):
        path = f"{number:03d}.wav"
        noise = rng.normal(0, 0.01, round(load.recording_s * RATE_HZ))
        (folder / "card").mkdir(exist_ok=True)
        soundfile.write(folder / "card" / path, noise, RATE_HZ, subtype="PCM_16")
        recording = Recording(f"card/{path}", "card", path, 1, None, "ok", sample_rate_hz=RATE_HZ,
                          duration_s=load.recording_s)  # fmt: skip
        recordings.append(recording)
        for index in range(each):
            start_s = index * (load.recording_s - 1) / each
            box = (start_s, start_s + 0.5, 1000.0, 3000.0)
            events.append(DetectedEvent(recording.recording_id, *box, 0.5, None, None, None, None, "0" * 16))
    statuses = [
        RecordingStatus(recording.recording_id, "ok", None, load.recording_s, each, None, None)
        for recording in recordings
    ]
    run_folder = folder / "run"
    write_table(recordings, Recording, str(run_folder / "recordings.parquet"))
    write_table(events, DetectedEvent, str(run_folder / "events" / "part-000000.parquet"))
    write_table(statuses, RecordingStatus, str(run_folder / "status" / "part-000000.parquet"))
    run = {
        "mast_version": "0", "fingerprint": "load", "settings": {"model": "0" * 16, "threshold": 0.1}, "parts": 1,
        "collections": {"card": {"root": str(folder / "card"), "time_expansion": 1.0}},
    }  # fmt: skip
    (run_folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return [_request(event) for event in events]


def _request(event: DetectedEvent) -> dict[str, Any]:
    box = {name: getattr(event, name) for name in ("start_s", "end_s", "low_hz", "high_hz")}
    name = event_id(event.recording_id, **box)
    return {"event_id": name, "version": 1, "kind": "sound", "recording_id": event.recording_id, **box}


@contextmanager
def serving(folder: Path, database: str) -> Iterator[str]:
    """Run `mast review` on a free port of this machine; yield its address."""
    code = "from mast.cli import main; main()"
    command = [sys.executable, "-c", code, "review", str(folder / "run"), "--database", database]
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


def tile_metrics(address: str, name: str, load: Load) -> dict[str, float]:
    """Return the response times of tiles of 30 s for one client, uncached and cached."""
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
                    request_s = time.perf_counter()
                    client.get("/api/tile", params=values).raise_for_status()
                    waits_ms[-1].append(1000 * (time.perf_counter() - request_s))
    cold_ms, cached_ms = (round(float(np.percentile(row, 95)), 1) for row in waits_ms)
    return {"tiles": len(waits_ms[0]), "p95_tile_cold_ms": cold_ms, "p95_tile_cached_ms": cached_ms}


async def review_all(address: str, names: list[str], events: list[dict[str, Any]], seconds: float) -> Tally:
    """Run all clients for `seconds`; return their responses."""
    tally = Tally()
    shared, others = events[: len(events) // 20], events[len(events) // 20 :]
    clients = [_Client(address, name, tally) for name in names]
    for client in clients:
        await client.sign_in()
    end_s = time.monotonic() + seconds
    work = [
        client.review(others[index :: len(clients)], shared, end_s, random.Random(index))
        for index, client in enumerate(clients)
    ]
    await asyncio.gather(*work)
    for client in clients:
        await client.http.aclose()
    return tally


class _Client:
    """One simulated reviewer."""

    def __init__(self, address: str, name: str, tally: Tally) -> None:
        self.http = httpx.AsyncClient(base_url=address, headers={"origin": address}, timeout=60)
        self._name, self._tally = name, tally

    async def sign_in(self) -> None:
        response = await self.http.post("/api/sign-in", json={"name": self._name, "password": PASSWORD})
        response.raise_for_status()

    async def review(
        self, events: list[dict[str, Any]], shared: list[dict[str, Any]], end_s: float, rng: random.Random
    ) -> None:
        versions: Counter[str] = Counter()
        position = 0
        while time.monotonic() < end_s:
            is_shared = rng.random() < SHARED
            event = rng.choice(shared) if is_shared else events[position % len(events)]
            position += not is_shared
            version = 1 if is_shared else versions[event["event_id"]] + 1
            request = {**event, "version": version, "state": "accepted", "request_id": secrets.token_hex(12)}
            if await self._send(request) == 200 and not is_shared:
                versions[event["event_id"]] = version
            if rng.random() < REPEATED:
                await self._send(request)
            await asyncio.sleep(rng.uniform(0, MAX_WAIT_S))

    async def _send(self, request: dict[str, Any]) -> int:
        start_s = time.perf_counter()
        response = await self.http.post("/api/verdicts", json=request)
        self._tally.waits_ms.append(1000 * (time.perf_counter() - start_s))
        self._tally.codes[response.status_code] += 1
        if response.status_code == 200:
            self._tally.acknowledged.add(request["request_id"])
        return response.status_code


def verdict_metrics(tally: Tally, database: str, seconds: float) -> dict[str, Any]:
    """Compare the acknowledged verdicts with the stored ones; return their counts and response times."""
    with open_store(database) as store, store.reading.connect() as connection:
        stored = list(connection.execute(sa.select(VERDICTS.c.request_id)).scalars())
    return {
        "verdicts_sent": len(tally.acknowledged),
        "verdicts_stored": len(stored),
        "lost": len(tally.acknowledged - {*stored}),
        "duplicated": len(stored) - len({*stored}),
        "conflicts": tally.codes[409],
        "failed": sum(count for code, count in tally.codes.items() if code not in (200, 409)),
        "requests_per_s": round(sum(tally.codes.values()) / seconds, 1),
        "median_verdict_ms": round(float(np.median(tally.waits_ms)), 1),
        "p95_verdict_ms": round(float(np.percentile(tally.waits_ms, 95)), 1),
    }


if __name__ == "__main__":
    main()
