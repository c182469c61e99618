"""Validate the verdict requests of the page and convert them to verdicts."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mast.review.review_set import ReviewRecording
from mast.review.verdicts import SPAN, USER_DRAWN, State, Verdict
from mast.review.web.users import Role, User

SLACK_S, SLACK_HZ = 0.5, 1.0
"""Tolerance for boxes beyond the end or the Nyquist frequency, because headers round the duration; they are clipped."""


STATE_WORDS: dict[State, str] = {
    "open": "undone the verdict on this",
    "accepted": "accepted this",
    "rejected": "rejected this",
    "unsure": "marked this as unsure",
}
"""Description of each state in messages, after the user and "has"."""


class RefusedError(Exception):
    """Invalid verdict, with the reason as message; `forbidden` if a user with another role could give it."""

    def __init__(self, message: str, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.forbidden = forbidden


def _plain(text: str) -> str:
    """Check that a text has no control characters or surrogates."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise ValueError("must not contain control characters")
    return text


Text = Annotated[str, AfterValidator(_plain)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Hertz = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]


class VerdictRequest(BaseModel):
    """Verdict as the page sends it: the complete new state, as version `version` of the event.

    The page creates `request_id`, so that a request sent twice is stored once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    request_id: Name
    event_id: Name
    version: int = Field(ge=1, le=1_000_000)
    kind: Literal["sound", "span"]
    state: State
    recording_id: Text = Field(max_length=4096)
    start_s: Seconds
    end_s: Seconds
    low_hz: Hertz | None = None
    high_hz: Hertz | None = None
    label: Text | None = Field(default=None, max_length=200)
    queue: Text | None = Field(default=None, max_length=200)
    reverts: int | None = Field(default=None, ge=1, le=1_000_000)


def make_verdict(
    request: VerdictRequest,
    recording: ReviewRecording,
    event: dict[str, Any] | None,
    user_name: str,
    created_at: datetime,
) -> Verdict:
    """Validate a request and return its verdict; `event` is the row of its event, or None for a drawn event or a span."""
    _check_event(request, event)
    end_s = min(request.end_s, recording.duration_s)
    if request.end_s > recording.duration_s + SLACK_S or not request.start_s < end_s:
        raise RefusedError(
            f"{request.start_s:g} s to {request.end_s:g} s is outside this recording of {recording.duration_s:g} s."
        )
    if request.reverts is not None and request.reverts != request.version - 1:
        raise RefusedError("Only the latest verdict can be undone.")
    low_hz, high_hz = _band(request, recording, event)
    return Verdict(
        number=0,
        event_id=request.event_id,
        version=request.version,
        kind=request.kind,
        state=request.state,
        recording_id=request.recording_id,
        start_s=request.start_s,
        end_s=end_s,
        low_hz=low_hz,
        high_hz=high_hz,
        label=(request.label or "").strip() or None,
        score=event["score"] if event else None,
        model=event["model"] if event else None,
        user=user_name,
        created_at=created_at,
        queue=request.queue,
        reverts=request.reverts,
    )


def check_same_recording(request: VerdictRequest, current: Verdict | None) -> None:
    """Raise RefusedError if a drawn event or span would move to another recording."""
    if current is not None and current.recording_id != request.recording_id:
        raise RefusedError(f"{request.event_id} belongs to another recording. Reload the page.")


def check_role(user: User, current: Verdict | None, role_then: Role) -> None:
    """Raise RefusedError if an annotator would overrule a reviewer; a verdict that was undone does not count."""
    if current is None or current.state == "open" or current.user == user.name:
        return
    if user.role != "annotator" or role_then == "annotator":
        return
    raise RefusedError(
        f"{current.user} has {STATE_WORDS[current.state]} as a {role_then}. Ask a reviewer to review it again.",
        forbidden=True,
    )


def _check_event(request: VerdictRequest, event: dict[str, Any] | None) -> None:
    prefix = {"sound": USER_DRAWN, "span": SPAN}[request.kind]
    if event is None and not request.event_id.startswith(prefix):
        raise RefusedError(f"{request.event_id}: event or span not found. Reload the page.")
    if event is not None and (request.kind != "sound" or event["recording_id"] != request.recording_id):
        raise RefusedError(f"{request.event_id} belongs to another recording. Reload the page.")


def _band(
    request: VerdictRequest, recording: ReviewRecording, event: dict[str, Any] | None
) -> tuple[float | None, float | None]:
    """Return the frequency band of an event, clipped at half the sample rate; a span has none.

    A detection or annotation above that limit is accepted if its frequencies are unchanged.
    """
    low_hz, high_hz, nyquist_hz = request.low_hz, request.high_hz, recording.sample_rate_hz / 2
    if request.kind == "span":
        if low_hz is not None or high_hz is not None or request.label:
            raise RefusedError("A span cannot have frequencies or a label.")
        return None, None
    if event is not None and (low_hz, high_hz) == (event["low_hz"], event["high_hz"]):
        return low_hz, high_hz
    if (
        low_hz is None
        or high_hz is None
        or high_hz > nyquist_hz + SLACK_HZ
        or not low_hz < min(high_hz, nyquist_hz)
    ):
        raise RefusedError(
            f"An event of this recording needs a low and a high frequency between 0 and {nyquist_hz:g} Hz."
        )
    return low_hz, min(high_hz, nyquist_hz)
