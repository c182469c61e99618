"""The page about a run: what it says, and that it opens anywhere without asking anyone."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.detection.report import report
from tests.detection.archives import swelling
from tests.detection.runs import START, event, heard, night, recording, write_run
from tests.recordings.made import wav


def page_of(run: str, **options) -> str:
    return Path(report(run, **options).page).read_text("utf-8")


@pytest.fixture(scope="module")
def night_page(tmp_path_factory) -> str:
    """Two of its three sounds can be read; the other lies beyond the end of its recording."""
    cards = tmp_path_factory.mktemp("cards")
    for name in ("ridge/1.WAV", "swamp/3.WAV"):
        (cards / name).parent.mkdir()
        (cards / name).write_bytes(wav(swelling(4.0).tobytes()))
    return page_of(write_run(tmp_path_factory.mktemp("found"), night(), root=cards))


def text_of(page: str) -> str:
    bare = re.sub(r"<style>.*?</style>|data:[^\"]+", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare)).replace("\xa0", " ").replace("&nbsp;", " ")


def test_a_run_without_recordings_is_a_page_that_says_so(tmp_path):
    text = text_of(page_of(write_run(tmp_path, [])))
    assert "There are none." in text
    assert "No recording has a clock that can be trusted" in text
    assert "Nothing: every recording was heard to its end" in text


def test_numbers_of_a_night_by_hand(night_page):
    text = text_of(night_page)
    assert "11 May 2024 to 12 May 2024" in text
    assert "2.2 min heard 4 recordings 2 sites 2 days 3 sounds 81.8 sounds an hour 2 quarantined" in text
    assert "ridge 60.0 2 2.0 min 2 2" in text
    assert "swamp 300 1 0.2 min 2 1" in text
    assert "2 of 4 recordings could not be heard, or not to their end" in text
    assert "it breaks off at … s" in text
    assert "The file has no content. Recorders leave these when the card is full" in text
    assert "not finished" not in text


def test_sounds_can_be_looked_at_and_listened_to(night_page):
    assert night_page.count("<audio") == night_page.count("data:audio/flac;base64,") == 2
    assert "2024-05-11 23:30:01" in night_page


def test_what_cannot_be_read_is_said_not_shown(night_page):
    assert "1 of the examples cannot be shown" in night_page
    assert "there is no sound at 20.0 s any more" in night_page


def test_a_slowed_down_bat_is_shown_at_its_own_pitch(tmp_path):
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "1.WAV").write_bytes(wav(swelling(2.0).tobytes()))
    bat = recording("1.WAV")
    rows = [(bat, heard(bat, 1), [event(bat, 0.2, high_hz=7000.0)])]
    run = write_run(tmp_path / "found", [rows], root=str(tmp_path / "cards"), expansion=10.0)
    assert page_of(run).count("<audio") == 1


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs(night_page):
    page = night_page
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert "<script" not in page and "http:" not in page and "https:" not in page
    assert all(address.startswith("data:") for address in re.findall(r'(?:src|srcset|href)="([^"]*)"', page))
    assert page.count("<source") == 3  # each map also fits a phone


def test_names_stay_text(tmp_path):
    item = recording("<b>$1$.WAV", site="<script>alert(1)</script>$x$", start=START)
    page = page_of(write_run(tmp_path, [[(item, heard(item, 1), [event(item, 1.0)])]]))
    assert "<script" not in page and "&lt;script&gt;" in page


def test_only_sounds_that_score_enough_are_told(tmp_path):
    run = write_run(tmp_path, night())
    told = report(run, min_score=0.6)
    assert told.sums.events == 1
    assert "1 sounds in 2.2 min heard at 2 sites" in told.summary()


def test_an_unfinished_run_says_so(tmp_path):
    first, _ = night()
    text = text_of(page_of(write_run(tmp_path, [first, None])))
    assert "1 of its 2 parts are still to do" in text


def test_sites_that_are_too_many_are_added_up(tmp_path, monkeypatch):
    monkeypatch.setattr("mast.detection.report.MAX_SITES", 2)
    rows = []
    for number in range(5):
        item = recording(f"{number}.WAV", site=f"site {number}", start=START + timedelta(days=300 * number))
        rows.append((item, heard(item, 1), [event(item, 1.0)]))
    text = text_of(page_of(write_run(tmp_path, [rows])))
    assert "3 more sites 60.0 3 3.0 min 3" in text and "5 sites" in text


def test_copies_and_clocks_are_told(tmp_path):
    copy = recording("1.WAV", duplicate_of="card/0.WAV", faults=("clock-reset",))
    text = text_of(page_of(write_run(tmp_path, [[(copy, heard(copy), [])]])))
    assert "1 recordings are copies of others" in text
    assert "1.0 min of sound has no clock that can be trusted" in text


def test_mast_report_writes_the_page_where_it_is_told(tmp_path):
    run = write_run(tmp_path / "found", night())
    done = CliRunner().invoke(app, ["report", run, "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert "3 sounds" in done.output and (tmp_path / "page.html").is_file()


def test_a_run_on_an_object_store_is_told_there(bucket):
    told = report(write_run(f"{bucket}/found", night()))
    assert told.page == f"{bucket}/found/report.html"
    assert told.sums.events == 3


def test_a_recording_of_no_length_is_drawn(tmp_path):
    item = recording("1.WAV", duration_s=0.0)
    assert page_of(write_run(tmp_path, [[(item, heard(item), [])]]))
