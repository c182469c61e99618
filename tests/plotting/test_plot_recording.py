"""`mast plot`: the right recording, boxes and clock, or an error with the remedy."""

import os
from datetime import UTC, datetime

import matplotlib.image
import numpy as np
import pytest
import soundfile

from mast.errors import AnnotationError, AudioError
from mast.example_data import audiomoth_wav
from mast.plotting.plot_recording import plot_recording, read_boxes, start_clock
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import probe
from mast.records import Event


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "A1" / "20240510_053000.WAV"
    path.parent.mkdir()
    sound = np.random.default_rng(0).normal(0, 0.1, 32_000 * 3)
    path.write_bytes(audiomoth_wav(sound, datetime(2024, 5, 10, 5, 30), 330, "24F3190160"))
    return path


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_figure_is_written_in_the_format_of_its_suffix(recording, tmp_path, suffix):
    plotted = plot_recording(str(recording), [Event("x", 1, 2, 100, 200)], tmp_path / f"figure.{suffix}")
    assert (plotted.start_s, plotted.end_s, plotted.duration_s, plotted.boxes) == (0, 3, 3, 1)
    start = (tmp_path / f"figure.{suffix}").read_bytes()[:100]
    assert {"png": b"PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix] in start


def test_a_figure_is_large_enough_for_a_slide(recording, tmp_path):
    plot_recording(str(recording), [], tmp_path / "figure.png")
    assert matplotlib.image.imread(tmp_path / "figure.png").shape[:2] == (960, 2400)


def test_one_minute_of_a_long_recording_is_plotted(tmp_path):
    soundfile.write(tmp_path / "long.wav", np.zeros(8000 * 100), 8000)
    plotted = plot_recording(str(tmp_path / "long.wav"), [], tmp_path / "long.png", span_s=(30, None))
    assert (plotted.start_s, plotted.end_s) == (30, 90)


def test_a_truncated_recording_is_plotted_as_far_as_it_can_be_read(tmp_path):
    path = tmp_path / "cut.flac"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 8000 * 20), 8000)
    os.truncate(path, path.stat().st_size * 6 // 10)
    plotted = plot_recording(str(path), [], tmp_path / "cut.png")
    assert plotted.end_s == plotted.duration_s == pytest.approx(12, abs=1)


def test_only_boxes_within_the_span_count(recording, tmp_path):
    events = [Event("x", 0, 1), Event("x", 2.5, 2.8)]
    assert plot_recording(str(recording), events, tmp_path / "p.png", span_s=(2, 3)).boxes == 1


@pytest.mark.parametrize(
    ("span_s", "band_hz", "message"),
    [
        ((9, None), (0, None), "lasts 3.0 s; the span cannot start at 9 s"),
        ((2, 1), (0, None), "--to must be after --from"),
        ((0, None), (5000, 4000), "between 0 and 16000 Hz"),
        ((0, None), (-5, 4000), "between 0 and 16000 Hz"),
    ],
)
def test_an_invalid_span_or_band_is_refused_with_the_valid_range(
    recording, tmp_path, span_s, band_hz, message
):
    with pytest.raises(AudioError, match=message):
        plot_recording(str(recording), [], tmp_path / "p.png", span_s=span_s, band_hz=band_hz)


def test_the_clock_is_local_time_or_without_a_zone_that_of_the_recorder(recording, tmp_path):
    clock = start_clock(probe(str(recording.parent), "", recording.name, NamingScheme()))
    assert clock == datetime(2024, 5, 10, 0, 0, tzinfo=UTC)
    assert clock.strftime("%H:%M %z") == "05:30 +0530"
    soundfile.write(tmp_path / "SM4_20240510_053000.wav", np.ones(800) / 2, 8000)
    assert start_clock(probe(str(tmp_path), "", "SM4_20240510_053000.wav", NamingScheme())) == datetime(
        2024, 5, 10, 5, 30
    )


def test_only_the_boxes_of_the_recording_are_read_from_a_table(recording, tmp_path):
    table = tmp_path / "boxes.csv"
    table.write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        "B1/20240510_053000.WAV,0,1,100,200,other site\n"
        "A1/20240510_053000.WAV,1,2,100,200,this one\n"
        "A1/20240510_063000.WAV,1,2,100,200,other time\n"
    )
    assert [event.label for event in read_boxes(str(recording), str(table), None)] == ["this one"]


def test_a_table_about_other_recordings_is_refused_with_their_names(recording, tmp_path):
    table = tmp_path / "boxes.csv"
    table.write_text("recording,start_s,end_s,low_hz,high_hz,label\nowl.wav,0,1,100,200,owl\n")
    with pytest.raises(
        AnnotationError, match="has no annotations of .*20240510_053000.WAV. It has annotations of owl.wav"
    ):
        read_boxes(str(recording), str(table), "csv")
