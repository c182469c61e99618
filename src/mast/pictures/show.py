"""`mast show`: a recording, its boxes and its clock, drawn into a picture file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from mast.annotations import guess_format, match_recordings, read_annotations
from mast.config import AnnotationFormat
from mast.errors import AnnotationError, AudioError
from mast.events import Event, Recording
from mast.pictures.spectrogram import draw_spectrogram
from mast.recordings.decode import Audio, open_audio
from mast.recordings.metadata import Naming
from mast.recordings.probe import probe
from mast.storage import written_whole

DEFAULT_SPAN_S = 60.0
"""What is drawn of a long recording unless a span is asked for."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a picture shows."""

    picture: Path
    start_s: float
    end_s: float
    duration_s: float
    boxes: int


def boxes_of(location: str, table: str, format_: AnnotationFormat | None) -> tuple[Event, ...]:
    """The events a table of annotations holds for one recording, which it may name by path, file name or stem."""
    annotations = read_annotations(table, format_ or guess_format(table))
    matched = match_recordings(annotations, [location]).annotations
    if location not in matched.recording_ids():
        names = ", ".join(annotations.recording_ids()[:5]) or "no recording"
        raise AnnotationError(f"{table}: says nothing about {location}. It speaks of {names} …")
    return matched.events


def show(
    location: str,
    events: Sequence[Event],
    picture: Path,
    *,
    span_s: tuple[float, float | None] = (0.0, None),
    band_hz: tuple[float, float | None] = (0.0, None),
    time_zone: str | None = None,
) -> Shown:
    """Draw a span of a recording with those of its events that lie in it."""
    root, _, name = location.rpartition("/")
    recording = probe(root or ".", "", name, Naming(time_zone=time_zone))
    clock = start_clock(recording)
    with open_audio(location, None, frames=recording.frames or None) as audio:
        start_s, end_s = _span(location, span_s, audio.duration_s)
        seen = [event for event in events if event.end_s >= start_s and event.start_s <= end_s]
        figure = draw_spectrogram(
            audio,
            (start_s, end_s),
            seen,
            title=name,
            start_clock=clock,
            band_hz=_band(location, band_hz, audio),
        )
        duration_s = audio.duration_s
    with written_whole(str(picture)) as file:
        figure.savefig(file, format=picture.suffix.lstrip(".") or "png")
    return Shown(picture, start_s, end_s, duration_s, len(seen))


def start_clock(recording: Recording) -> datetime | None:
    """When a recording began on the clock of the place it was made; without a zone, what its clock showed."""
    if recording.start_utc is None or recording.utc_offset_min is None:
        return recording.start_local
    return recording.start_utc.astimezone(timezone(timedelta(minutes=recording.utc_offset_min)))


def _span(location: str, span_s: tuple[float, float | None], duration_s: float) -> tuple[float, float]:
    start_s, end_s = span_s
    if start_s >= duration_s:
        raise AudioError(
            f"{location}: it lasts {duration_s:.1f} s; nothing can be shown from {start_s:g} s on."
        )
    end_s = min(start_s + DEFAULT_SPAN_S if end_s is None else end_s, duration_s)
    if end_s <= start_s:
        raise AudioError(f"A picture from {start_s:g} s to {end_s:g} s is empty: --to must be after --from.")
    return start_s, end_s


def _band(location: str, band_hz: tuple[float, float | None], audio: Audio) -> tuple[float, float]:
    most_hz = audio.sample_rate_hz / 2
    low_hz, high_hz = band_hz[0], min(band_hz[1] or most_hz, most_hz)
    if not 0 <= low_hz < high_hz:
        raise AudioError(
            f"{location}: the band must lie between 0 and {most_hz:g} Hz, the lower limit first."
        )
    return low_hz, high_hz
