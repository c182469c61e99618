"""From what someone asks for to a verdict: what may be said about which sound, and by whom."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mast.review.material import Recorded
from mast.review.users import Role, User
from mast.review.verdicts import DRAWN, SPAN, State, Verdict

SLACK_S, SLACK_HZ = 0.5, 1.0
"""Headers round a recording's length; a box may reach so much beyond, and is cut."""


WORDS: dict[State, str] = {
    "open": "taken back their verdict on",
    "accepted": "accepted",
    "rejected": "rejected",
    "unsure": "doubted",
}
"""What someone who decided so has done to a sound."""


class RefusedError(Exception):
    """A verdict that cannot be kept, for a reason in words; `forbidden` where another person could."""

    def __init__(self, told: str, *, forbidden: bool = False) -> None:
        super().__init__(told)
        self.forbidden = forbidden


def _plain(text: str) -> str:
    """Text without characters that no database and no screen knows what to do with."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise ValueError("must have no control characters")
    return text


Text = Annotated[str, AfterValidator(_plain)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Hertz = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]


class Proposal(BaseModel):
    """A verdict as the page sends it: the whole of what shall hold, as version `version` of its subject.

    `request_id` is made by the page, so that sending it again is not deciding again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    request_id: Name
    subject: Name
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
    undoes: int | None = Field(default=None, ge=1, le=1_000_000)


def decide(
    proposal: Proposal, recording: Recorded, sound: dict[str, Any] | None, who: str, at_utc: datetime
) -> Verdict:
    """The verdict that is asked for; `sound` is the row of its subject, or None where a person drew it."""
    _check_subject(proposal, sound)
    end_s = min(proposal.end_s, recording.duration_s)
    if proposal.end_s > recording.duration_s + SLACK_S or not proposal.start_s < end_s:
        raise RefusedError(
            f"{proposal.start_s:g} s to {proposal.end_s:g} s is no span of this recording of {recording.duration_s:g} s."
        )
    if proposal.undoes is not None and proposal.undoes != proposal.version - 1:
        raise RefusedError("Only the verdict that holds can be undone.")
    low_hz, high_hz = _band(proposal, recording, sound)
    return Verdict(
        number=0,
        subject=proposal.subject,
        version=proposal.version,
        kind=proposal.kind,
        state=proposal.state,
        recording_id=proposal.recording_id,
        start_s=proposal.start_s,
        end_s=end_s,
        low_hz=low_hz,
        high_hz=high_hz,
        label=(proposal.label or "").strip() or None,
        score=sound["score"] if sound else None,
        model=sound["model"] if sound else None,
        who=who,
        at_utc=at_utc,
        queue=proposal.queue,
        undoes=proposal.undoes,
    )


def check_same(proposal: Proposal, holds: Verdict | None) -> None:
    """Refuse to carry what a person drew over to another recording."""
    if holds is not None and holds.recording_id != proposal.recording_id:
        raise RefusedError(
            f"{proposal.subject} is a {proposal.kind} of another recording. Load the page again."
        )


def check_rank(user: User, holds: Verdict | None, role_then: Role) -> None:
    """Refuse an annotator who would overrule a reviewer; one who took their word back said nothing."""
    if holds is None or holds.state == "open" or holds.who == user.name:
        return
    if user.role != "annotator" or role_then == "annotator":
        return
    raise RefusedError(
        f"{holds.who} has {WORDS[holds.state]} this as a {role_then}. Ask a reviewer to look at it again.",
        forbidden=True,
    )


def _check_subject(proposal: Proposal, sound: dict[str, Any] | None) -> None:
    begins = {"sound": DRAWN, "span": SPAN}[proposal.kind]
    if sound is None and not proposal.subject.startswith(begins):
        raise RefusedError(f"No {proposal.kind} is called {proposal.subject}. Load the page again.")
    if sound is not None and (proposal.kind != "sound" or sound["recording_id"] != proposal.recording_id):
        raise RefusedError(f"{proposal.subject} is a sound of another recording. Load the page again.")


def _band(
    proposal: Proposal, recording: Recorded, sound: dict[str, Any] | None
) -> tuple[float | None, float | None]:
    """The band of a sound, cut at half the rate; a span has none.

    A box that a model or an expert left beyond it can be decided about like any other, where it is.
    """
    low_hz, high_hz, top_hz = proposal.low_hz, proposal.high_hz, recording.sample_rate_hz / 2
    if proposal.kind == "span":
        if low_hz is not None or high_hz is not None or proposal.label:
            raise RefusedError("A span has no frequencies and no label.")
        return None, None
    if sound is not None and (low_hz, high_hz) == (sound["low_hz"], sound["high_hz"]):
        return low_hz, high_hz
    if low_hz is None or high_hz is None or high_hz > top_hz + SLACK_HZ or not low_hz < min(high_hz, top_hz):
        raise RefusedError(
            f"A sound of this recording lies between 0 and {top_hz:g} Hz, and has a low and a high one."
        )
    return low_hz, min(high_hz, top_hz)
