"""Plot a recording with its boxes and its clock to an image file (`mast plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from matplotlib.figure import Figure

from mast.annotations import detect_format, match_recordings, read_annotations
from mast.audio.reader import Audio, open_audio
from mast.config import AnnotationFormat
from mast.errors import AnnotationError, AudioError
from mast.plotting.spectrogram import plot_spectrogram
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import probe
from mast.records import Event, Recording
from mast.storage import atomic_write

DEFAULT_SPAN_S = 60.0
"""Seconds to plot of a long recording by default."""


@dataclass(frozen=True, slots=True)
class PlottedRecording:
    """Span and number of boxes that a figure shows."""

    start_s: float
    end_s: float
    duration_s: float
    boxes: int


def read_boxes(location: str, table: str, format_: AnnotationFormat | None) -> tuple[Event, ...]:
    """Read the events of one recording from a table of annotations, which may name it by path, file name or stem."""
    annotations = read_annotations(table, format_ or detect_format(table))
    matched = match_recordings(annotations, [location]).annotations
    if location not in matched.recording_ids():
        names = ", ".join(annotations.recording_ids()[:5]) or "no recording"
        raise AnnotationError(f"{table} has no annotations of {location}. It has annotations of {names} …")
    return matched.events


def plot_recording(
    location: str,
    events: Sequence[Event],
    figure_path: Path,
    *,
    span_s: tuple[float, float | None] = (0.0, None),
    band_hz: tuple[float, float | None] = (0.0, None),
    time_zone: str | None = None,
) -> PlottedRecording:
    """Plot a span of a recording with the events in it.

    Args:
        location: Audio file, on a disk or at s3://….
        events: Events of the recording.
        figure_path: Image file to write; its suffix is the format.
        span_s: Start and end in seconds, by default the first `DEFAULT_SPAN_S`.
        band_hz: Lowest and highest frequency, by default 0 Hz to the Nyquist frequency.
        time_zone: Time zone of the recorder, if its file name has none.

    Returns:
        The span and the number of boxes in the figure.

    Raises:
        AudioError: If the recording cannot be read, or the span or band is empty.
    """
    figure, plotted = recording_figure(location, events, span_s=span_s, band_hz=band_hz, time_zone=time_zone)
    with atomic_write(str(figure_path)) as file:
        figure.savefig(file, format=figure_path.suffix.lstrip(".") or "png")
    return plotted


def recording_figure(
    location: str,
    events: Sequence[Event],
    *,
    span_s: tuple[float, float | None] = (0.0, None),
    band_hz: tuple[float, float | None] = (0.0, None),
    time_zone: str | None = None,
) -> tuple[Figure, PlottedRecording]:
    """Return the figure of `plot_recording`, and its span and number of boxes."""
    root, _, name = location.rpartition("/")
    recording = probe(root or ".", "", name, NamingScheme(time_zone=time_zone))
    with open_audio(location, None, frames=recording.frames or None) as audio:
        start_s, end_s = _span(location, span_s, audio.duration_s)
        visible = [event for event in events if event.end_s >= start_s and event.start_s <= end_s]
        figure = plot_spectrogram(
            audio,
            (start_s, end_s),
            visible,
            title=name,
            start_clock=start_clock(recording),
            band_hz=_band(location, band_hz, audio),
        )
        return figure, PlottedRecording(start_s, end_s, audio.duration_s, len(visible))


def start_clock(recording: Recording) -> datetime | None:
    """Return the local start time of a recording; without a time zone, the time of the recorder's clock."""
    if recording.start_utc is None or recording.utc_offset_min is None:
        return recording.start_local
    return recording.start_utc.astimezone(timezone(timedelta(minutes=recording.utc_offset_min)))


def _span(location: str, span_s: tuple[float, float | None], duration_s: float) -> tuple[float, float]:
    start_s, end_s = span_s
    if start_s >= duration_s:
        raise AudioError(f"{location} lasts {duration_s:.1f} s; the span cannot start at {start_s:g} s.")
    end_s = min(start_s + DEFAULT_SPAN_S if end_s is None else end_s, duration_s)
    if end_s <= start_s:
        raise AudioError(f"The span from {start_s:g} s to {end_s:g} s is empty: --to must be after --from.")
    return start_s, end_s


def _band(location: str, band_hz: tuple[float, float | None], audio: Audio) -> tuple[float, float]:
    max_hz = audio.sample_rate_hz / 2
    low_hz, high_hz = band_hz[0], min(band_hz[1] or max_hz, max_hz)
    if not 0 <= low_hz < high_hz:
        raise AudioError(f"{location}: the band must lie between 0 and {max_hz:g} Hz, the lower limit first.")
    return low_hz, high_hz
