"""The server behind the page: recordings, tiles and sounds to look at and listen to, and verdicts to keep."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from mast import __version__
from mast.errors import MastError
from mast.review.accounts import Person, add_accounts, find_person, is_open
from mast.review.asking import ASKS_FOR
from mast.review.deciding import WORDS, Proposal, RefusedError, check_rank, check_same, decide
from mast.review.drawing import Drawer
from mast.review.guard import Gate, Guard
from mast.review.ledger import Box, Ledger
from mast.review.material import Material, Recorded
from mast.review.precision import tell_precision
from mast.review.sound import playback
from mast.review.store import OutdatedError, Store
from mast.review.tile_cache import TileCache
from mast.review.tiles import STEPS_PER_DB, Tile
from mast.review.users import role_of
from mast.review.verdicts import Verdict

PAGES = Path(__file__).parent / "pages"
COLOURS = ("magma", "viridis", "gray_r", "gray")
LISTED = 200
"""Recordings of a list at once; people look for others by their name."""

RecordingId = Annotated[str, Query(max_length=4096)]
Seconds = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
Hertz = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
Count = Annotated[int, Query(ge=0, le=10_000_000)]


@dataclass(frozen=True, slots=True)
class Review:
    """All that the server works with."""

    material: Material
    store: Store
    ledger: Ledger
    drawer: Drawer
    gate: Gate

    def recording(self, recording_id: str) -> Recorded:
        """A recording of this material; anything else is not found, whatever it names."""
        known = self.material.recording(recording_id)
        if known is None:
            raise HTTPException(404, "There is no such recording here.")
        return known


def make_app(material: Material, store: Store, tiles: TileCache, gate: Gate | None = None) -> FastAPI:
    """The web application over some material and its database."""
    gate = gate or Gate()
    review = Review(material, store, Ledger(store, material), Drawer(tiles), gate)
    answers: dict[int | str, dict[str, Any]] = {
        code: {"description": "Refused, with the reason in words", "model": dict[str, Any]}
        for code in (400, 401, 403, 404, 409, 413, 421, 422, 429)
    }
    app = FastAPI(title="mast review", version=__version__, docs_url=None, redoc_url=None, openapi_url=None,
                  responses=answers)  # fmt: skip
    app.state.review = review
    app.add_middleware(Guard, gate=gate)
    add_accounts(app, store, gate)
    _add_looking(app, review)
    _add_deciding(app, review)
    _add_pages(app, review)
    for error, answer in _TOLD.items():
        app.add_exception_handler(error, answer)
    return app


def _add_looking(app: FastAPI, review: Review) -> None:
    """What is there to see and hear."""
    material, ledger = review.material, review.ledger
    turns = threading.BoundedSemaphore(os.cpu_count() or 1)  # as for tiles: decoding takes a core each

    @app.get("/api/about")
    def about(person: Person) -> dict[str, Any]:
        """Who is here, and what the page needs to know once."""
        return {
            "name": material.name,
            "material": material.fingerprint,
            "version": __version__,
            "who": person.name,
            "role": person.role,
            "queues": {name: ASKS_FOR[name] for name in material.queues},
            "labels": ledger.labels(),
            "recordings": len(material.recordings),
            "sounds": len(material.sounds),
            "decided": sum(verdict.kind == "sound" for verdict in ledger.decided().values()),
            "signs_in": not is_open(review.gate, review.store),
            "precision": material.run is not None,
            "colours": {name: _colours(name) for name in COLOURS},
            "steps_per_db": STEPS_PER_DB,
        }

    @app.get("/api/recordings", dependencies=[Depends(find_person)])
    def recordings(search: Annotated[str, Query(max_length=200)] = "", first: Count = 0) -> dict[str, Any]:
        """Recordings whose name has `search` in it, from the `first` on."""
        names = [name for name in material.rows if search.lower() in name.lower()]
        shown = [_listed(review, name) for name in names[first : first + LISTED]]
        return {"found": len(names), "first": first, "recordings": shown}

    @app.get("/api/recording", dependencies=[Depends(find_person)])
    def recording(recording_id: RecordingId) -> Response:
        """A recording and all its boxes as they stand."""
        known = review.recording(recording_id)
        ledger.catch_up()
        boxes = [_shown(box) for box in ledger.boxes(recording_id)]
        return JSONResponse({**_facts(known), "boxes": boxes})

    @app.get("/api/tile", dependencies=[Depends(find_person)], response_class=Response)
    def tile(recording_id: RecordingId, start_s: Seconds, end_s: Seconds, low_hz: Hertz, high_hz: Hertz,
             width: Annotated[int, Query(ge=16, le=1024)] = 512,
             height: Annotated[int, Query(ge=16, le=1024)] = 256) -> Response:  # fmt: skip
        """A picture of a span and a band."""
        known = review.recording(recording_id)
        if end_s - start_s < 0.001 or high_hz - low_hz < 1 or start_s >= known.duration_s:
            raise HTTPException(422, "A tile has a span of the recording, and a band of at least 1 Hz.")
        picture = review.drawer.tile(known, Tile(start_s, end_s, low_hz, high_hz, width, height))
        return Response(picture, media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/sound", dependencies=[Depends(find_person)], response_class=Response)
    def sound(recording_id: RecordingId, start_s: Seconds, end_s: Seconds,
              low_hz: Hertz | None = None, high_hz: Hertz | None = None,
              slow: Annotated[float, Query(ge=1, le=50, allow_inf_nan=False)] = 1.0) -> Response:  # fmt: skip
        """A span to listen to: all of it, or a band, and slower."""
        known = review.recording(recording_id)
        band_hz = None if low_hz is None or high_hz is None else (low_hz, high_hz)
        if not start_s < end_s or (band_hz and not band_hz[0] < band_hz[1]):
            raise HTTPException(422, "A sound has a span, and a band if any.")
        with turns:
            wave = playback(known.location, (start_s, end_s), band_hz, slow, known.frames)
        return Response(wave, media_type="audio/wav", headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/asks")
    def asks(person: Person, queue: Annotated[str, Query(max_length=200)] = "in order",
             count: Annotated[int, Query(ge=1, le=100)] = 24,
             without: Annotated[list[str] | None, Query(max_length=200)] = None) -> dict[str, Any]:  # fmt: skip
        """What a queue asks someone to look at next, and why."""
        if queue not in material.queues:
            raise HTTPException(404, f"There is no such queue. There are: {', '.join(material.queues)}.")
        ledger.catch_up()
        found = []
        for ask in ledger.asks(queue, count, person.name, without or ()):
            boxes = [_shown(box) for name in ask.subjects if (box := ledger.box(name))]
            found.append(
                {
                    **asdict(ask),
                    "keys": ask.keys,
                    "boxes": boxes,
                    **_facts(review.recording(ask.recording_id)),
                }
            )
        return {"queue": queue, "asks": found}

    @app.get("/api/precision", dependencies=[Depends(find_person)])
    def precision() -> dict[str, Any]:
        """What the audit tells of the model so far, in words."""
        if material.run is None:
            raise HTTPException(404, "These sounds were not found by a model.")
        told = tell_precision(material.run, material.sounds, list(review.store.verdicts()))
        return {"told": told.summary().splitlines()}


def _add_deciding(app: FastAPI, review: Review) -> None:
    """What people say about it."""
    ledger, store = review.ledger, review.store

    @app.post("/api/verdicts")
    def verdicts(proposal: Proposal, person: Person) -> dict[str, Any]:
        """Keep a verdict; 409 with what holds where someone else was quicker."""
        known, sound = review.recording(proposal.recording_id), review.material.sound(proposal.subject)
        verdict = decide(proposal, known, sound, person.name, datetime.now(UTC))
        holds = ledger.holds(proposal.subject)
        check_same(proposal, holds)
        if person.role == "annotator" and holds is not None and holds.version < proposal.version:
            check_rank(person, holds, role_of(store, holds.who))
        kept = store.add(verdict, proposal.request_id)
        ledger.learn([kept])
        return _said(kept)

    @app.get("/api/verdicts", dependencies=[Depends(find_person)])
    def history(subject: Annotated[str, Query(max_length=64)]) -> dict[str, Any]:
        """All that was ever decided about a sound or a span."""
        return {"verdicts": [_said(verdict) for verdict in store.history(_printable(subject))]}

    @app.exception_handler(OutdatedError)
    def outdated(_: Request, error: OutdatedError) -> Response:
        """Someone else was quicker: who, and what they said."""
        if error.holds is None:
            return _told(409, "Nothing is known of what this verdict follows. Load the page again.")
        ledger.learn([error.holds])
        told = f"{error.holds.who} has {WORDS[error.holds.state]} this in the meantime. Look at it again."
        return JSONResponse({"told": told, "holds": _said(error.holds)}, 409)


def _add_pages(app: FastAPI, review: Review) -> None:
    """The page itself: plain files."""

    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        """The review, or where to sign in first."""
        try:
            find_person(request)
        except HTTPException as error:
            if error.status_code != 401:
                raise
            return FileResponse(PAGES / "sign-in.html", headers={"cache-control": "no-store"})
        return FileResponse(PAGES / "index.html", headers={"cache-control": "no-store"})

    app.mount("/pages", StaticFiles(directory=PAGES), name="pages")


def _listed(review: Review, recording_id: str) -> dict[str, Any]:
    known = review.recording(recording_id)
    sounds = len(review.material.sounds_of(recording_id))
    return {**_facts(known), "sounds": sounds, "decided": review.ledger.count_decided(recording_id)}


def _facts(recording: Recorded) -> dict[str, Any]:
    """What the page may know of a recording: not where it lies."""
    return {
        "recording_id": recording.recording_id,
        "site": recording.site,
        "duration_s": recording.duration_s,
        "sample_rate_hz": recording.sample_rate_hz,
        "start_local": recording.start_local.isoformat() if recording.start_local else None,
    }


def _shown(box: Box) -> dict[str, Any]:
    return {name: getattr(box, name) for name in Box.__slots__}


def _said(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "at_utc": verdict.at_utc.isoformat()}


def _printable(text: str) -> str:
    return text if text.isprintable() else ""


def _colours(name: str) -> list[list[int]]:
    """256 colours from quiet to loud."""
    from matplotlib import colormaps

    table: list[list[int]] = (colormaps[name](range(256), bytes=True)[:, :3]).tolist()
    return table


def _told(status: int, told: str) -> JSONResponse:
    return JSONResponse({"told": told}, status)


def _http(_: Request, error: Any) -> Response:
    answer = _told(error.status_code, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _invalid(_: Request, error: Any) -> Response:
    places = [".".join(map(str, item["loc"])) + ": " + str(item["msg"]) for item in error.errors()[:5]]
    return _told(422, "; ".join(places).encode("utf-8", "replace").decode())


def _refused(_: Request, error: Any) -> Response:
    return _told(403 if error.forbidden else 422, str(error))


def _faulty(request: Request, error: Any) -> Response:
    """A recording that cannot be read, or the like; where it lies is not for everyone."""
    told = str(error)
    known = request.app.state.review.material.recording(request.query_params.get("recording_id", ""))
    if known is not None:
        told = told.removeprefix(f"{known.location}: ").replace(known.location, "this recording")
    place, _, reason = told.partition(": ")
    return _told(404, reason if "/" in place and reason else told)


def _unreachable(_: Request, __: Any) -> Response:
    """The database was restarted, or is busy for too long: the page sends its verdicts again by itself."""
    return _told(503, "The database does not answer. What you decided is kept in the browser and sent again.")


_TOLD: dict[Any, Callable[[Request, Any], Response]] = {
    HTTPException: _http,
    RequestValidationError: _invalid,
    RefusedError: _refused,
    MastError: _faulty,
    OperationalError: _unreachable,
}
