"""Spectrogram figures: spans, boxes, bands and clocks."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
import soundfile
from matplotlib.colors import to_hex

from mast.audio.reader import open_audio
from mast.plotting.spectrogram import COLOURS, COLUMNS, plot_spectrogram
from mast.records import Event


@pytest.fixture
def tone(tmp_path):
    """Write ten seconds at 32 kHz: faint noise, and a 5 kHz tone from second 4 to 6."""
    time_s = np.arange(320_000) / 32_000
    samples = np.random.default_rng(0).normal(0, 0.01, len(time_s))
    samples += np.where((time_s >= 4) & (time_s < 6), 0.3 * np.sin(2 * np.pi * 5000 * time_s), 0)
    path = tmp_path / "tone.wav"
    soundfile.write(path, samples, 32_000)
    return str(path)


def plotted(path, span_s, *args, **kwargs):
    with open_audio(path, None) as audio:
        return plot_spectrogram(audio, span_s, *args, **kwargs)


def test_the_brightest_spot_is_where_the_tone_is(tone):
    image = plotted(tone, (0, 10)).axes[0].images[0]
    levels = np.asarray(image.get_array())
    row, column = np.unravel_index(levels.argmax(), levels.shape)
    left, right, bottom, top = image.get_extent()
    assert bottom + (row + 0.5) / levels.shape[0] * (top - bottom) == pytest.approx(5.0, abs=0.05)
    assert 3.95 <= left + (column + 0.5) / levels.shape[1] * (right - left) <= 6.05
    lit = np.flatnonzero(levels[row] > levels.max() / 2) / levels.shape[1] * 10
    assert (lit[0], lit[-1]) == pytest.approx((4, 6), abs=0.05)


@pytest.mark.parametrize("span_s", [(0.0, 10.0), (3.9, 4.1), (9.99, 10.0), (0.0, 0.0004)])
def test_any_span_fills_the_axes_with_a_limited_number_of_columns(tone, span_s):
    axes = plotted(tone, span_s).axes[0]
    assert axes.get_xlim() == pytest.approx(span_s)
    assert axes.images[0].get_array().shape[1] <= COLUMNS + 64


def test_silence_is_plotted_without_an_error(tmp_path):
    soundfile.write(tmp_path / "silence.wav", np.zeros(8000), 8000)
    assert np.asarray(plotted(str(tmp_path / "silence.wav"), (0, 1)).axes[0].images[0].get_array()).max() == 0


def test_boxes_are_at_their_seconds_and_kilohertz_in_the_colour_of_their_label(tone):
    events = [
        Event("tone", 4, 6, 4500, 5500, "tone"),
        Event("tone", 1, 2, 1000, 2000, "noise"),
        Event("tone", 7, 8, 1000, 2000, "tone", origin="model"),
        Event("tone", 8, 9),
    ]
    axes = plotted(tone, (0, 10), events).axes[0]
    boxes = axes.patches
    assert boxes[0].get_bbox().bounds == pytest.approx((4, 4.5, 2, 1))
    assert to_hex(boxes[0].get_edgecolor()) == COLOURS[0] != to_hex(boxes[1].get_edgecolor())
    assert boxes[0].get_linestyle() != boxes[2].get_linestyle()
    assert boxes[3].get_bbox().bounds == pytest.approx((8, 0, 1, 16))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["tone", "noise"]


def test_more_labels_than_colours_share_the_last_as_other(tone):
    events = [Event("tone", 1, 2, 1000, 2000, f"label {n}") for n in range(len(COLOURS) + 3)]
    names = [text.get_text() for text in plotted(tone, (0, 10), events).axes[0].get_legend().get_texts()]
    assert len(names) == len(COLOURS)
    assert names[-1] == "other"


def test_boxes_without_labels_need_no_legend(tone):
    assert plotted(tone, (0, 10), [Event("tone", 1, 2, 1000, 2000)]).axes[0].get_legend() is None


@pytest.mark.parametrize(
    ("clock", "named"),
    [
        (datetime(2024, 5, 10, 7, 30, tzinfo=UTC), "10 May 2024, UTC"),
        (
            datetime(2024, 5, 10, 7, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
            "10 May 2024, UTC+05:45",
        ),
        (datetime(2024, 5, 10, 7, 30), "10 May 2024, recorder's clock"),
    ],
)
def test_the_clock_title_has_the_time_zone(tone, clock, named):
    figure = plotted(tone, (0, 10), start_clock=clock)
    above = figure.axes[-1] if figure.axes[-1].get_title(loc="right") else figure.axes[1]
    assert above.get_title(loc="right") == named
    figure.canvas.draw()
    labels = [tick.get_text() for tick in above.get_xticklabels()]
    assert "07:30:05" in labels


def test_short_spans_have_tenths_on_the_clock(tone):
    figure = plotted(tone, (4, 5), start_clock=datetime(2024, 5, 10, tzinfo=UTC))
    figure.canvas.draw()
    labels = [tick.get_text() for axes in figure.axes for tick in axes.get_xticklabels()]
    assert "00:00:04.4" in labels


def test_a_band_limits_the_frequency_axis(tone):
    assert plotted(tone, (0, 10), band_hz=(2000, 6000)).axes[0].get_ylim() == (2, 6)
