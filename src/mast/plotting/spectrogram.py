"""Plot a spectrogram with its boxes, suitable for a presentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
from matplotlib import dates as mdates
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from mast.audio.reader import Audio
from mast.records import Event

WIDTH_IN, HEIGHT_IN, DPI = 12.0, 4.8, 200
COLUMNS = 2400
"""Maximum columns; more are not distinguishable in the figure."""

DARKEST_DB, BRIGHTEST_DB = 0.0, 18.0
"""Minimum range of the colour scale, as levels above the background in dB: background noise stays dark."""

COLOURS = ("#35d0ff", "#ffd23f", "#7cf29c", "#ff8fab", "#c4a7ff", "#ffa45c", "#ffffff")
"""Box colours with contrast to the dark colour map, also for colour-blind readers; most frequent label first."""


def plot_spectrogram(
    audio: Audio,
    span_s: tuple[float, float],
    events: Sequence[Event] = (),
    *,
    title: str = "",
    start_clock: datetime | None = None,
    band_hz: tuple[float, float] | None = None,
) -> Figure:
    """Plot a span of a recording: Hz and clock time on the axes, boxes in one colour for each label.

    Args:
        audio: Opened recording.
        span_s: Start and end of the span in seconds.
        events: Events to plot as boxes.
        title: Title of the figure.
        start_clock: Clock time at the start of the recording, in the time zone to show.
        band_hz: Lowest and highest frequency to show, by default 0 Hz to the Nyquist frequency.

    Returns:
        The figure.
    """
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    low_hz, high_hz = band_hz or (0.0, audio.sample_rate_hz / 2)
    levels_db = _levels_above_background(audio, span_s)
    image = axes.imshow(
        levels_db,
        origin="lower",
        aspect="auto",
        extent=(span_s[0], span_s[1], 0.0, audio.sample_rate_hz / 2000),
        cmap="magma",
        vmin=DARKEST_DB,
        vmax=max(BRIGHTEST_DB, float(np.percentile(levels_db, 99.9))),
        interpolation="bilinear",
    )
    axes.set_ylim(low_hz / 1000, high_hz / 1000)
    axes.set_xlim(*span_s)
    _plot_boxes(axes, events, high_hz)
    axes.set_ylabel("Frequency (kHz)")
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    _label_time(axes, span_s, start_clock)
    bar = figure.colorbar(image, ax=axes, pad=0.01, shrink=0.85, ticks=MaxNLocator(6, integer=True))
    bar.set_label("dB above background")
    bar.outline.set_visible(False)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _levels_above_background(audio: Audio, span_s: tuple[float, float]) -> NDArray[np.float32]:
    """Compute levels in dB above each bin's own median, so that faint calls are visible at all frequencies. → (F, T)"""
    window = 1024 if audio.sample_rate_hz >= 24_000 else 512
    first, stop = (round(time_s * audio.sample_rate_hz) for time_s in span_s)
    hop = max(1, min(window // 4, (stop - first) // COLUMNS))
    pooled = math.ceil((stop - first) / hop / COLUMNS)
    block = hop * pooled * 64
    columns = [
        _powers(audio, (at, min(at + block, stop)), window, hop, pooled) for at in range(first, stop, block)
    ]
    power = _smooth(_smooth(np.concatenate(columns).T, 0), 1)
    levels_db = 10 * np.log10(np.maximum(power, 1e-12))
    return levels_db - np.median(levels_db, axis=1, keepdims=True)  # type: ignore[no-any-return]


def _powers(audio: Audio, span: tuple[int, int], window: int, hop: int, pooled: int) -> NDArray[np.float32]:
    """Compute the power of windows centred on every hop of the span, the maximum of each group of `pooled`. → (T, F)"""
    first, stop = span[0] - window // 2, span[1] + window // 2
    samples = np.pad(audio.read_samples(first, stop), (max(0, -first), max(0, stop - audio.samples)))
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[:-1:hop]  # (T, window)
    power = np.abs(np.fft.rfft(frames * np.hanning(window).astype(np.float32))).astype(np.float32) ** 2
    return np.maximum.reduceat(power, np.arange(0, len(power), pooled), axis=0)


def _smooth(power: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Smooth along an axis with weights 1, 2, 1."""
    ends = [(1, 1) if axis == number else (0, 0) for number in range(2)]
    padded = np.pad(power, ends, mode="edge")
    before, after = (np.take(padded, np.arange(at, at + power.shape[axis]), axis) for at in (0, 2))
    return (before + 2 * power + after) / np.float32(4)


def _plot_boxes(axes: Axes, events: Sequence[Event], high_hz: float) -> None:
    labels = [event.label or "" for event in events]
    by_count = sorted(set(labels), key=lambda label: (-labels.count(label), label))
    colours = {label: COLOURS[min(rank, len(COLOURS) - 1)] for rank, label in enumerate(by_count)}
    outline = [patheffects.withStroke(linewidth=2.6, foreground="#000000aa")]
    for event, label in zip(events, labels, strict=True):
        low = (event.low_hz or 0.0) / 1000
        high = (event.high_hz if event.high_hz is not None else high_hz) / 1000
        box = Rectangle(
            (event.start_s, low),
            event.end_s - event.start_s,
            high - low,
            fill=False,
            edgecolor=colours[label],
            linewidth=1.4,
            linestyle="-" if event.origin == "expert" else (0, (4, 2)),
            label=label,
            path_effects=outline,
        )
        axes.add_patch(box)
    _plot_legend(axes, by_count)


def _plot_legend(axes: Axes, labels: Sequence[str]) -> None:
    """Plot one legend entry for each label, most frequent first; none if no event has a label."""
    if not any(labels):
        return
    handles = {handle.get_label(): handle for handle in axes.patches}
    with_entry = [label for label in labels if label][: len(COLOURS)]
    names = [*with_entry[:-1], "other"] if len(labels) > len(COLOURS) else with_entry
    legend = axes.legend(
        [handles[label] for label in with_entry],
        names,
        loc="upper right",
        fontsize=8,
        labelcolor="white",
        frameon=True,
    )
    legend.get_frame().set(facecolor="#00000099", edgecolor="none")


def _label_time(axes: Axes, span_s: tuple[float, float], start_clock: datetime | None) -> None:
    """Label the seconds into the recording below, and the clock above if it is known."""
    axes.set_xlabel("Seconds into the recording")
    if start_clock is None:
        return
    zone = start_clock.strftime("%z")
    zone_name = (
        f"UTC{zone[:3]}:{zone[3:]}" if zone and zone != "+0000" else "UTC" if zone else "recorder's clock"
    )
    naive = start_clock.replace(tzinfo=None)
    clock = axes.twiny()
    first, last = (mdates.date2num(naive + timedelta(seconds=time_s)) for time_s in span_s)
    clock.set_xlim(float(first), float(last))
    clock.xaxis.set_major_locator(mdates.AutoDateLocator(minticks=3, maxticks=9))
    tenths = span_s[1] - span_s[0] < 8
    clock.xaxis.set_major_formatter(FuncFormatter(lambda number, _: _clock_time(number, tenths=tenths)))
    clock.set_title(f"{naive:%d %B %Y}, {zone_name}", loc="right", fontsize=10)
    for side in clock.spines.values():
        side.set_visible(False)


def _clock_time(number: float, *, tenths: bool) -> str:
    """Format a matplotlib date number as a clock time."""
    time = mdates.num2date(number)
    return f"{time:%H:%M:%S}.{time.microsecond // 100_000}" if tenths else f"{time:%H:%M:%S}"
