"""Fault codes of recordings, each with its meaning and advice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fault:
    """Meaning of a fault; a *quarantined* file is excluded from all later steps, a *suspect* one is used and reported."""

    status: Literal["suspect", "quarantined"]
    meaning: str
    advice: str


_QUARANTINED = {
    "empty-file": (
        "the file has no content",
        "Recorders leave these when the card is full or power fails.",
    ),
    "not-audio": (
        "not an audio file, despite its extension",
        "Open it in a text editor to see its content.",
    ),
    "damaged-header": (
        "the header is damaged, so the audio data cannot be located",
        "Copy it from the card again.",
    ),
    "unreadable": (
        "the file or folder could not be read",
        "Copy it from the card again; a card or disk with such errors is failing.",
    ),
    "no-permission": (
        "you have no permission to read this file or folder",
        "Change its permissions and scan again.",
    ),
    "no-sound": (
        "a valid header, but no audio data after it",
        "The recorder lost power immediately.",
    ),
    "invalid-filename": (
        "the file name is not valid text on this system",
        "Rename it with plain letters.",
    ),
    "broken-link": (
        "a link whose target does not exist",
        "Mount the drive it points to, or delete it.",
    ),
    "link-loop": (
        "a link that points to itself or to a folder above it",
        "Delete the link.",
    ),
}
_SUSPECT = {
    "truncated": (
        "shorter than its header states",
        "The available audio is used; another copy may be complete.",
    ),
    "wrong-length": (
        "longer than its header states",
        "The recorder did not finish the header; all the audio is used.",
    ),
    "over-4-gb": (
        "larger than a WAV header can state",
        "All the audio is used; other programs may stop early.",
    ),
    "misnamed": (
        "another audio format than its extension states",
        "MAST reads it; other programs may refuse it.",
    ),
    "nan-samples": (
        "contains samples that are not numbers (NaN or infinite)",
        "These samples are set to 0.",
    ),
    "silent": (
        "all sampled frames are identical",
        "Check the microphone and its cable.",
    ),
    "clipped": (
        "overloaded: many samples at full scale",
        "Lower the gain on this recorder.",
    ),
    "duplicate": (
        "the same content as another file",
        "Keep one copy; otherwise its detections count twice.",
    ),
    "clock-reset": (
        "the recorder's clock was never set",
        "Correct the start times, or exclude it from analyses of time.",
    ),
    "clock-in-future": (
        "the recorder's clock shows a date in the future",
        "Check the recorder's clock setting.",
    ),
    "clock-disagrees": (
        "file name and header state different times",
        "The header's time is used.",
    ),
    "no-start-time": (
        "neither file name nor header states the start time",
        "Keep the recorder's file names, such as 20230510_073000.WAV.",
    ),
    "no-time-zone": (
        "the time zone of its clock is unknown",
        "Specify it: mast scan --time-zone Europe/Madrid",
    ),
    "ambiguous-local-time": (
        "this local time occurred twice that day (clocks went back)",
        "The earlier time is assumed.",
    ),
    "nonexistent-local-time": (
        "this local time did not exist that day (clocks went forward)",
        "The time zone may be wrong.",
    ),
}

FAULTS: dict[str, Fault] = {
    **{code: Fault("quarantined", *texts) for code, texts in _QUARANTINED.items()},
    **{code: Fault("suspect", *texts) for code, texts in _SUSPECT.items()},
}


@cache
def worst_status(faults: tuple[str, ...]) -> Literal["ok", "suspect", "quarantined"]:
    """Return the status of a recording with these faults."""
    if not faults:
        return "ok"
    kinds = {FAULTS[fault].status for fault in faults}
    return "quarantined" if "quarantined" in kinds else "suspect"
