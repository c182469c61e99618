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


FAULTS: dict[str, Fault] = {
    "empty-file": Fault(
        "quarantined",
        "the file has no content",
        "Recorders leave these when the card is full or power fails.",
    ),
    "not-audio": Fault(
        "quarantined", "not a sound file, whatever its name says", "Look at it with a text editor."
    ),
    "damaged-header": Fault(
        "quarantined",
        "the header is broken, so the sound cannot be found",
        "Copy it from the card once more.",
    ),
    "unreadable": Fault("quarantined", "the file could not be read", "Copy it from the card once more."),
    "no-permission": Fault(
        "quarantined", "you may not read this file or folder", "Change its permissions and scan again."
    ),
    "no-sound": Fault(
        "quarantined", "a good header, but no sound behind it", "The recorder lost power at once."
    ),
    "odd-name": Fault(
        "quarantined", "the file name is not valid text on this system", "Rename it with plain letters."
    ),
    "broken-link": Fault(
        "quarantined", "a link that leads nowhere", "Mount the drive it points to, or delete it."
    ),
    "link-loop": Fault("quarantined", "a link that leads back to its own folder", "Delete the link."),
    "truncated": Fault(
        "suspect",
        "shorter than its header says",
        "The sound that is there is used; a second copy may be whole.",
    ),
    "wrong-length": Fault(
        "suspect",
        "longer than its header says",
        "The recorder did not finish the header; all its sound is used.",
    ),
    "misnamed": Fault(
        "suspect",
        "another sound format than its name says",
        "It is read all the same; other programs may refuse it.",
    ),
    "over-4-gb": Fault(
        "suspect", "larger than a WAV header can say", "All its sound is used; other programs may stop early."
    ),
    "not-a-number": Fault("suspect", "holds samples that are not numbers", "They are read as silence."),
    "silent": Fault("suspect", "no sound at all where it was sampled", "Check the microphone and its cable."),
    "clipped": Fault("suspect", "overloaded: many samples at the limit", "Lower the gain on this recorder."),
    "duplicate": Fault(
        "suspect", "the same content as another file", "Keep one; else its sounds count twice."
    ),
    "clock-reset": Fault(
        "suspect",
        "the recorder's clock was never set",
        "Set start times by hand, or leave it out of time analyses.",
    ),
    "clock-in-future": Fault("suspect", "made after today, says its clock", "Check the recorder's clock."),
    "clock-disagrees": Fault(
        "suspect", "file name and header tell different times", "The header's time is used."
    ),
    "no-start-time": Fault(
        "suspect",
        "nothing tells when it was made",
        "Use the recorder's own file names, such as 20230510_073000.WAV.",
    ),
    "no-time-zone": Fault(
        "suspect", "its clock does not say its time zone", "State it: mast scan --time-zone Europe/Madrid"
    ),
    "clock-twice": Fault(
        "suspect", "this hour came twice that day (clocks went back)", "The earlier one is assumed."
    ),
    "clock-skipped": Fault(
        "suspect", "this hour did not exist that day (clocks went forward)", "The time zone may be wrong."
    ),
}


@cache
def worst_status(faults: tuple[str, ...]) -> Literal["ok", "suspect", "quarantined"]:
    """Status of a recording with these faults."""
    kinds = {FAULTS[fault].status for fault in faults}
    if "quarantined" in kinds:
        return "quarantined"
    return "suspect" if kinds else "ok"
