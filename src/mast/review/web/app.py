"""Web application of the review page: routes for recordings, spectrogram tiles, audio, queues and verdicts."""

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

from mast.errors import MastError
from mast.review.database import ConflictError, ReviewDatabase
from mast.review.precision_estimate import estimate_precision
from mast.review.queues.registry import QUEUE_DESCRIPTIONS
from mast.review.review_set import ReviewRecording, ReviewSet
from mast.review.verdicts import Verdict
from mast.review.web.auth import CurrentUser, add_accounts, current_user, is_auth_disabled
from mast.review.web.playback import playback
from mast.review.web.requests import (
    STATE_WORDS,
    RefusedError,
    VerdictRequest,
    check_role,
    check_same_recording,
    make_verdict,
)
from mast.review.web.security import AccessPolicy, SecurityMiddleware
from mast.review.web.state import Box, ReviewState
from mast.review.web.tile_cache import TileCache
from mast.review.web.tile_renderer import TileRenderer
from mast.review.web.tiles import STEPS_PER_DB, TileSpec
from mast.review.web.users import role_of
from mast.version import __version__

PAGES = Path(__file__).parent / "pages"
COLOURS = ("magma", "viridis", "gray_r", "gray")
MAX_LISTED = 200
"""Maximum number of recordings in a list; users find others by searching for their name."""

RecordingId = Annotated[str, Query(max_length=4096)]
Seconds = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
Hertz = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
Count = Annotated[int, Query(ge=0, le=10_000_000)]


@dataclass(frozen=True, slots=True)
class Review:
    """Objects that the routes share."""

    review_set: ReviewSet
    store: ReviewDatabase
    state: ReviewState
    renderer: TileRenderer
    policy: AccessPolicy

    def recording(self, recording_id: str) -> ReviewRecording:
        """Return a recording of the review set; raise HTTPException 404 for any other id."""
        recording = self.review_set.recording(recording_id)
        if recording is None:
            raise HTTPException(404, "Recording not found.")
        return recording


def create_app(
    review_set: ReviewSet, store: ReviewDatabase, tiles: TileCache, policy: AccessPolicy | None = None
) -> FastAPI:
    """Create the web application for a review set and its database."""
    policy = policy or AccessPolicy()
    review = Review(review_set, store, ReviewState(store, review_set), TileRenderer(tiles), policy)
    responses: dict[int | str, dict[str, Any]] = {
        code: {"description": "Refused, with the reason as text", "model": dict[str, Any]}
        for code in (400, 401, 403, 404, 409, 413, 421, 422, 429)
    }
    app = FastAPI(title="mast review", version=__version__, docs_url=None, redoc_url=None, openapi_url=None,
                  responses=responses)  # fmt: skip
    app.state.review = review
    app.add_middleware(SecurityMiddleware, policy=policy)
    add_accounts(app, store, policy)
    _add_read_routes(app, review)
    _add_write_routes(app, review)
    _add_pages(app, review)
    for error, handler in _ERROR_HANDLERS.items():
        app.add_exception_handler(error, handler)
    return app


def _add_read_routes(app: FastAPI, review: Review) -> None:
    """Add the routes that read recordings, tiles, audio, queues and precision."""
    review_set, state = review.review_set, review.state
    slots = threading.BoundedSemaphore(os.cpu_count() or 1)  # one core for each decoding, as for tiles

    @app.get("/api/about")
    def about(user: CurrentUser) -> dict[str, Any]:
        """Return the current user and the constants of the page."""
        return {
            "name": review_set.name,
            "material": review_set.fingerprint,
            "version": __version__,
            "user": user.name,
            "role": user.role,
            "queues": {name: QUEUE_DESCRIPTIONS[name] for name in review_set.queues},
            "labels": state.labels(),
            "recordings": len(review_set.recordings),
            "sounds": len(review_set.events),
            "decided": sum(verdict.kind == "sound" for verdict in state.decided().values()),
            "signs_in": not is_auth_disabled(review.policy, review.store),
            "precision": review_set.run is not None,
            "colours": {name: _colours(name) for name in COLOURS},
            "steps_per_db": STEPS_PER_DB,
        }

    @app.get("/api/recordings", dependencies=[Depends(current_user)])
    def recordings(search: Annotated[str, Query(max_length=200)] = "", first: Count = 0) -> dict[str, Any]:
        """Return recordings whose name contains `search`, starting at index `first`."""
        names = [name for name in review_set.rows if search.lower() in name.lower()]
        listed = [_list_entry(review, name) for name in names[first : first + MAX_LISTED]]
        return {"found": len(names), "first": first, "recordings": listed}

    @app.get("/api/recording", dependencies=[Depends(current_user)])
    def recording(recording_id: RecordingId) -> Response:
        """Return a recording and the current state of all its boxes."""
        opened = review.recording(recording_id)
        state.refresh()
        boxes = [_box_json(box) for box in state.boxes(recording_id)]
        return JSONResponse({**_recording_json(opened), "boxes": boxes})

    @app.get("/api/tile", dependencies=[Depends(current_user)], response_class=Response)
    def tile(recording_id: RecordingId, start_s: Seconds, end_s: Seconds, low_hz: Hertz, high_hz: Hertz,
             width: Annotated[int, Query(ge=16, le=1024)] = 512,
             height: Annotated[int, Query(ge=16, le=1024)] = 256) -> Response:  # fmt: skip
        """Return a spectrogram tile of a span and a frequency band as PNG."""
        opened = review.recording(recording_id)
        if end_s - start_s < 0.001 or high_hz - low_hz < 1 or start_s >= opened.duration_s:
            raise HTTPException(
                422, "A tile must start within the recording and have a band of at least 1 Hz."
            )
        png = review.renderer.tile(opened, TileSpec(start_s, end_s, low_hz, high_hz, width, height))
        return Response(png, media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/audio", dependencies=[Depends(current_user)], response_class=Response)
    def audio(recording_id: RecordingId, start_s: Seconds, end_s: Seconds,
              low_hz: Hertz | None = None, high_hz: Hertz | None = None,
              slow: Annotated[float, Query(ge=1, le=50, allow_inf_nan=False)] = 1.0) -> Response:  # fmt: skip
        """Return the audio of a span as WAV, optionally only a frequency band, and slowed down."""
        opened = review.recording(recording_id)
        band_hz = None if low_hz is None or high_hz is None else (low_hz, high_hz)
        if not start_s < end_s or (band_hz and not band_hz[0] < band_hz[1]):
            raise HTTPException(422, "start_s must be less than end_s, and low_hz less than high_hz.")
        with slots:
            wave = playback(opened.location, (start_s, end_s), band_hz, slow, opened.frames)
        return Response(wave, media_type="audio/wav", headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/queue-items")
    def queue_items(user: CurrentUser, queue: Annotated[str, Query(max_length=200)] = "sequential",
             count: Annotated[int, Query(ge=1, le=100)] = 24,
             without: Annotated[list[str] | None, Query(max_length=200)] = None) -> dict[str, Any]:  # fmt: skip
        """Return the next items of a queue for the current user, with reasons."""
        if queue not in review_set.queues:
            raise HTTPException(404, f"Queue not found. Available queues: {', '.join(review_set.queues)}.")
        state.refresh()
        items = []
        for queue_item in state.next_items(queue, count, user.name, without or ()):
            boxes = [_box_json(box) for name in queue_item.event_ids if (box := state.box(name))]
            items.append(
                {
                    **asdict(queue_item),
                    "keys": queue_item.keys,
                    "boxes": boxes,
                    **_recording_json(review.recording(queue_item.recording_id)),
                }
            )
        return {"queue": queue, "items": items}

    @app.get("/api/precision", dependencies=[Depends(current_user)])
    def precision() -> dict[str, Any]:
        """Return the precision estimated from the audit so far, as lines of text."""
        if review_set.run is None:
            raise HTTPException(404, "Precision is only available for the detections of a run.")
        estimate = estimate_precision(review_set.run, review_set.events, list(review.store.verdicts()))
        return {"message": estimate.summary().splitlines()}


def _add_write_routes(app: FastAPI, review: Review) -> None:
    """Add the routes that write and list verdicts."""
    state, store = review.state, review.store

    @app.post("/api/verdicts")
    def verdicts(proposal: VerdictRequest, user: CurrentUser) -> dict[str, Any]:
        """Store a verdict; respond 409 with the current verdict if another user was faster."""
        opened, event = review.recording(proposal.recording_id), review.review_set.event(proposal.event_id)
        verdict = make_verdict(proposal, opened, event, user.name, datetime.now(UTC))
        current = state.current(proposal.event_id)
        check_same_recording(proposal, current)
        if user.role == "annotator" and current is not None and current.version < proposal.version:
            check_role(user, current, role_of(store, current.user))
        stored = store.add(verdict, proposal.request_id)
        state.apply([stored])
        return _verdict_json(stored)

    @app.get("/api/verdicts", dependencies=[Depends(current_user)])
    def history(event_id: Annotated[str, Query(max_length=64)]) -> dict[str, Any]:
        """Return all verdicts on an event or span, oldest first."""
        return {"verdicts": [_verdict_json(verdict) for verdict in store.history(_printable(event_id))]}

    @app.exception_handler(ConflictError)
    def conflict(_: Request, error: ConflictError) -> Response:
        """Respond with the verdict of the user who was faster."""
        if error.current is None:
            return _error_response(
                409, "The previous version of this verdict does not exist. Reload the page."
            )
        state.apply([error.current])
        message = (
            f"{error.current.user} has {STATE_WORDS[error.current.state]} in the meantime. Review it again."
        )
        return JSONResponse({"message": message, "current": _verdict_json(error.current)}, 409)


def _add_pages(app: FastAPI, review: Review) -> None:
    """Add the routes of the pages, which are static files."""

    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        """Return the review page, or the sign-in page if the user must sign in first."""
        try:
            current_user(request)
        except HTTPException as error:
            if error.status_code != 401:
                raise
            return FileResponse(PAGES / "sign-in.html", headers={"cache-control": "no-store"})
        return FileResponse(PAGES / "index.html", headers={"cache-control": "no-store"})

    app.mount("/pages", StaticFiles(directory=PAGES), name="pages")


def _list_entry(review: Review, recording_id: str) -> dict[str, Any]:
    recording = review.recording(recording_id)
    events = len(review.review_set.events_of(recording_id))
    return {
        **_recording_json(recording),
        "sounds": events,
        "decided": review.state.count_decided(recording_id),
    }


def _recording_json(recording: ReviewRecording) -> dict[str, Any]:
    """Return the fields of a recording for the page, without its location."""
    return {
        "recording_id": recording.recording_id,
        "site": recording.site,
        "duration_s": recording.duration_s,
        "sample_rate_hz": recording.sample_rate_hz,
        "start_local": recording.start_local.isoformat() if recording.start_local else None,
    }


def _box_json(box: Box) -> dict[str, Any]:
    return {name: getattr(box, name) for name in Box.__slots__}


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "created_at": verdict.created_at.isoformat()}


def _printable(text: str) -> str:
    return text if text.isprintable() else ""


def _colours(name: str) -> list[list[int]]:
    """Return 256 RGB colours from quiet to loud."""
    from matplotlib import colormaps

    table: list[list[int]] = (colormaps[name](range(256), bytes=True)[:, :3]).tolist()
    return table


def _error_response(status: int, message: str) -> JSONResponse:
    return JSONResponse({"message": message}, status)


def _http_error(_: Request, error: Any) -> Response:
    response = _error_response(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


def _invalid(_: Request, error: Any) -> Response:
    problems = [".".join(map(str, item["loc"])) + ": " + str(item["msg"]) for item in error.errors()[:5]]
    return _error_response(422, "; ".join(problems).encode("utf-8", "replace").decode())


def _refused_verdict(_: Request, error: Any) -> Response:
    return _error_response(403 if error.forbidden else 422, str(error))


def _mast_error(request: Request, error: Any) -> Response:
    """Respond to a recording that cannot be read, or a similar error, without its location."""
    message = str(error)
    recording = request.app.state.review.review_set.recording(request.query_params.get("recording_id", ""))
    if recording is not None:
        message = message.removeprefix(f"{recording.location}: ").replace(
            recording.location, "this recording"
        )
    location, _, reason = message.partition(": ")
    return _error_response(404, reason if "/" in location and reason else message)


def _unreachable(_: Request, __: Any) -> Response:
    """Respond that the database is unavailable or busy; the page sends its verdicts again."""
    return _error_response(
        503, "The database does not respond. Your verdicts are stored in the browser and will be sent again."
    )


_ERROR_HANDLERS: dict[Any, Callable[[Request, Any], Response]] = {
    HTTPException: _http_error,
    RequestValidationError: _invalid,
    RefusedError: _refused_verdict,
    MastError: _mast_error,
    OperationalError: _unreachable,
}
