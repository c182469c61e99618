"""Everything that can be wrong with a recording: a word for tables, a sentence, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fault:
    """What a fault means; a *quarantined* file is left out of all work, a *suspect* one is used and reported."""

    status: Literal["suspect", "quarantined"]
    meaning: str
    advice: str


_QUARANTINED = {
    "empty-file": (
        "the file has no content",
        "Recorders leave these when the card is full or power fails.",
    ),
    "not-audio": (
        "not a sound file, whatever its name says",
        "Look at it with a text editor.",
    ),
    "damaged-header": (
        "the header is broken, so the sound cannot be found",
        "Copy it from the card once more.",
    ),
    "unreadable": (
        "the file or folder could not be read",
        "Copy it from the card once more; cards and disks that do this are failing.",
    ),
    "no-permission": (
        "you may not read this file or folder",
        "Change its permissions and scan again.",
    ),
    "no-sound": (
        "a good header, but no sound behind it",
        "The recorder lost power at once.",
    ),
    "odd-name": (
        "the file name is not valid text on this system",
        "Rename it with plain letters.",
    ),
    "broken-link": (
        "a link that leads nowhere",
        "Mount the drive it points to, or delete it.",
    ),
    "link-loop": (
        "a link that leads back to itself or its own folder",
        "Delete the link.",
    ),
}
_SUSPECT = {
    "truncated": (
        "shorter than its header says",
        "The sound that is there is used; a second copy may be whole.",
    ),
    "wrong-length": (
        "longer than its header says",
        "The recorder did not finish the header; all its sound is used.",
    ),
    "over-4-gb": (
        "larger than a WAV header can say",
        "All its sound is used; other programs may stop early.",
    ),
    "misnamed": (
        "another sound format than its name says",
        "It is read all the same; other programs may refuse it.",
    ),
    "not-a-number": (
        "holds samples that are not numbers",
        "They are read as silence.",
    ),
    "silent": (
        "no sound at all where it was sampled",
        "Check the microphone and its cable.",
    ),
    "clipped": (
        "overloaded: many samples at the limit",
        "Lower the gain on this recorder.",
    ),
    "duplicate": (
        "the same content as another file",
        "Keep one; else its sounds count twice.",
    ),
    "clock-reset": (
        "the recorder's clock was never set",
        "Set start times by hand, or leave it out of time analyses.",
    ),
    "clock-in-future": (
        "made after today, says its clock",
        "Check the recorder's clock.",
    ),
    "clock-disagrees": (
        "file name and header tell different times",
        "The header's time is used.",
    ),
    "no-start-time": (
        "nothing tells when it was made",
        "Use the recorder's own file names, such as 20230510_073000.WAV.",
    ),
    "no-time-zone": (
        "its clock does not say its time zone",
        "State it: mast scan --time-zone Europe/Madrid",
    ),
    "clock-twice": (
        "this hour came twice that day (clocks went back)",
        "The earlier one is assumed.",
    ),
    "clock-skipped": (
        "this hour did not exist that day (clocks went forward)",
        "The time zone may be wrong.",
    ),
}

FAULTS: dict[str, Fault] = {
    **{code: Fault("quarantined", *words) for code, words in _QUARANTINED.items()},
    **{code: Fault("suspect", *words) for code, words in _SUSPECT.items()},
}


@cache
def worst_status(faults: tuple[str, ...]) -> Literal["ok", "suspect", "quarantined"]:
    """Status of a recording with these faults."""
    if not faults:
        return "ok"
    kinds = {FAULTS[fault].status for fault in faults}
    return "quarantined" if "quarantined" in kinds else "suspect"
