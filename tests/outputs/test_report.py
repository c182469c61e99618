"""Report of a run: the content of the page, and its independence from external resources."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.outputs.report import report
from tests.recordings.builders import wav
from tests.runs.archives import varying_noise
from tests.runs.finished import START, event, night, recording, status_of, write_run


def page_of(run: str, **options) -> str:
    return Path(report(run, **options).page).read_text("utf-8")


@pytest.fixture(scope="module")
def night_page(tmp_path_factory) -> str:
    """Return a report page; two of its three events are readable, the other is beyond the end of its recording."""
    cards = tmp_path_factory.mktemp("cards")
    for name in ("ridge/1.WAV", "swamp/3.WAV"):
        (cards / name).parent.mkdir()
        (cards / name).write_bytes(wav(varying_noise(4.0).tobytes()))
    return page_of(write_run(tmp_path_factory.mktemp("found"), night(), root=cards))


def text_of(page: str) -> str:
    bare = re.sub(r"<style>.*?</style>|data:[^\"]+", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare)).replace("\xa0", " ").replace("&nbsp;", " ")


def test_the_report_of_a_run_without_recordings_says_so(tmp_path):
    text = text_of(page_of(write_run(tmp_path, [])))
    assert "There are no events." in text
    assert "No recording has a reliable clock" in text
    assert "None: every recording was processed completely" in text


def test_numbers_of_a_night_by_hand(night_page):
    text = text_of(night_page)
    assert "11 May 2024 to 12 May 2024" in text
    assert "2.2 min of audio 4 recordings 2 sites 2 days 3 events 81.8 events per hour 2 quarantined" in text
    assert "ridge 60.0 2 2.0 min 2 2" in text
    assert "swamp 300 1 0.2 min 2 1" in text
    assert "2 of 4 recordings could not be processed, or not completely" in text
    assert "it breaks off at … s" in text
    assert "The file has no content. Recorders leave these when the card is full" in text
    assert "not finished" not in text


def test_examples_have_a_spectrogram_and_audio(night_page):
    assert night_page.count("<audio") == night_page.count("data:audio/flac;base64,") == 2
    assert "2024-05-11 23:30:01" in night_page


def test_unreadable_examples_are_reported(night_page):
    assert "1 of the examples cannot be shown" in night_page
    assert "the recording no longer has audio at 20.0 s" in night_page


def test_a_time_expanded_bat_call_is_shown_at_its_original_frequency(tmp_path):
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "1.WAV").write_bytes(wav(varying_noise(2.0).tobytes()))
    bat = recording("1.WAV")
    rows = [(bat, status_of(bat, 1), [event(bat, 0.2, high_hz=7000.0)])]
    run = write_run(tmp_path / "found", [rows], root=str(tmp_path / "cards"), expansion=10.0)
    assert page_of(run).count("<audio") == 1


def test_the_page_has_no_external_resources_and_no_scripts(night_page):
    page = night_page
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert "<script" not in page and "http:" not in page and "https:" not in page
    assert all(address.startswith("data:") for address in re.findall(r'(?:src|srcset|href)="([^"]*)"', page))
    assert page.count("<source") == 3  # a narrow version of each map


def test_names_are_escaped(tmp_path):
    item = recording("<b>$1$.WAV", site="<script>alert(1)</script>$x$", start=START)
    page = page_of(write_run(tmp_path, [[(item, status_of(item, 1), [event(item, 1.0)])]]))
    assert "<script" not in page and "&lt;script&gt;" in page


def test_only_events_above_the_minimum_score_are_reported(tmp_path):
    run = write_run(tmp_path, night())
    result = report(run, min_score=0.6)
    assert result.counts.events == 1
    assert "1 event in 2.2 min of audio at 2 sites" in result.summary()


def test_the_report_of_an_unfinished_run_says_so(tmp_path):
    first, _ = night()
    text = text_of(page_of(write_run(tmp_path, [first, None])))
    assert "1 of its 2 parts is not processed yet" in text


def test_sites_beyond_the_maximum_are_summed_up(tmp_path, monkeypatch):
    monkeypatch.setattr("mast.outputs.report.MAX_SITES", 2)
    rows = []
    for number in range(5):
        item = recording(f"{number}.WAV", site=f"site {number}", start=START + timedelta(days=300 * number))
        rows.append((item, status_of(item, 1), [event(item, 1.0)]))
    text = text_of(page_of(write_run(tmp_path, [rows])))
    assert "3 more sites 60.0 3 3.0 min 3" in text and "5 sites" in text


def test_copies_and_unreliable_clocks_are_reported(tmp_path):
    copy = recording("1.WAV", duplicate_of="card/0.WAV", faults=("clock-reset",))
    text = text_of(page_of(write_run(tmp_path, [[(copy, status_of(copy), [])]])))
    assert "1 recording is a copy of another" in text
    assert "1.0 min of audio has no reliable clock" in text


def test_mast_report_writes_the_page_to_the_specified_file(tmp_path):
    run = write_run(tmp_path / "found", night())
    done = CliRunner().invoke(app, ["report", run, "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert "3 events" in done.output and (tmp_path / "page.html").is_file()


def test_the_report_of_a_run_on_an_object_store_is_written_there(bucket):
    result = report(write_run(f"{bucket}/found", night()))
    assert result.page == f"{bucket}/found/report.html"
    assert result.counts.events == 3


def test_a_recording_of_zero_length_is_plotted(tmp_path):
    item = recording("1.WAV", duration_s=0.0)
    assert page_of(write_run(tmp_path, [[(item, status_of(item), [])]]))
