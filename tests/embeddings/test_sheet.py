"""`mast search` as people meet it: a page with pictures and sounds, a table, and messages."""

import csv
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app, main
from mast.detection.found import open_found
from mast.embeddings import sheet
from mast.embeddings.neighbours import ALL, Query, Wanted, event_query, neighbours
from mast.embeddings.sheet import COLUMNS, sheet_page, write_sheet
from mast.events import Event
from tests.detection.archives import swelling
from tests.detection.runs import event, heard, recording, write_run
from tests.embeddings.runs import clustered, embedded_here, made_table, rows_of
from tests.recordings.made import wav

NAUGHTY = "<script>alert(1)</script> & 'co'"


@pytest.fixture(scope="module")
def asked(run, embedded):
    found = open_found(run)
    return found, event_query(found, embedded[0].table, rows_of(embedded[0].table)[0]["event_id"])


def test_a_page_of_nothing_says_so(asked):
    page = sheet_page(*asked, [], Wanted(sites=("nowhere",)))
    assert "There are none." in page and ", at nowhere." in page
    assert page.count("<audio") == 1  # of the sound asked for


def test_sounds_can_be_looked_at_and_listened_to(asked, embedded, tmp_path):
    found, query = asked
    alike = neighbours(embedded[0].table, query, top=4)
    told = write_sheet(found, query, alike, ALL, str(tmp_path / "page.html"))
    page = Path(told.page).read_text("utf-8")
    assert page.count("<audio") == page.count("data:audio/flac;base64,") == 5
    assert page.count("data:image/png;base64,") == 5
    assert all(item.event.event_id in page for item in alike) and "2023-05-10" in page
    assert "<script" not in page and "http" not in re.sub('http-equiv="[^"]*"', "", page)
    assert "4 sounds" in told.summary() and f"As a table: {tmp_path / 'page.csv'}" in told.summary()


def test_the_table_has_all_that_the_page_has_no_room_for(asked, embedded, tmp_path, monkeypatch):
    monkeypatch.setattr(sheet, "SHOWN", 2)
    found, query = asked
    alike = neighbours(embedded[0].table, query, top=6)
    told = write_sheet(found, query, alike, ALL, str(tmp_path / "page.html"))
    page = Path(told.page).read_text("utf-8")
    assert page.count("<audio") == 3 and "The first 2; the table beside this page has all 6." in page
    with Path(told.table).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == [*COLUMNS] and len(rows) == 6
    assert [row["event_id"] for row in rows] == [item.event.event_id for item in alike]
    assert rows[0]["start_utc"].startswith("2023-05-10T") and rows[0]["start_utc"].endswith("Z")
    assert float(rows[0]["start_s"]) == pytest.approx(alike[0].event.start_s, abs=1e-6)


def test_names_stay_text_and_what_cannot_be_read_is_said(tmp_path):
    run = write_run(tmp_path, [], root=f"/nowhere/{NAUGHTY}")
    made_table(f"{run}/t.lance", clustered(3), site=[NAUGHTY] * 3, recording_id=[f"card/{NAUGHTY}.WAV"] * 3)
    query = Query("name", Event(NAUGHTY, 0.0, 1.0, 1.0, 2.0), NAUGHTY, 1.0, None, clustered(3)[0])
    alike = neighbours(f"{run}/t.lance", query, top=2)
    page = sheet_page(open_found(run), query, alike, Wanted(sites=(NAUGHTY,)))
    assert "<script" not in page and "&lt;script&gt;" in page and "<audio" not in page
    assert page.count("It cannot be shown: ") == 3


def test_what_was_asked_for_is_told(asked):
    day = datetime(2024, 5, 1, tzinfo=UTC)
    page = sheet_page(*asked, [], Wanted(("a", "b"), day, day, 1000.0, 2000.0, 0.5))
    line = "at a or b, from 2024-05-01 00:00 UTC, before 2024-05-01 00:00 UTC, above 1000 Hz, below 2000 Hz, "
    assert line + "scored at least 0.5." in page


def mast(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_sound_is_searched_for_by_its_box_and_then_by_its_name(run, embedded, encoder, tmp_path):
    row = rows_of(embedded[0].table)[3]
    box = [
        row["recording_id"],
        f"0:{row['start_s']:.6f}",
        *(str(row[name]) for name in ("end_s", "low_hz", "high_hz")),
    ]
    out = str(tmp_path / "alike.html")
    said = mast("search", run, "--like", *box, "--model", encoder, "--top", "3", "--site", "A", "--out", out)
    assert "3 sounds, similarity" in said and f"Look and listen: {out}" in said
    words = ["--from", "2023-05-10", "--to", "2023-05-11T12:00:00", "--low", "1", "--high", "9000", "--exact"]
    said = mast("search", run, "--like-event", row["event_id"], *words, "--top", "2")
    assert f"{run}/alike-{row['event_id']}.html" in said and "2 sounds" in said
    said = mast("search", run, "--like-event", row["event_id"], "--site", "nowhere", "--out", out)
    assert "No sound fits what was asked for." in said


def test_mast_embed_tells_what_it_runs_on_and_what_is_there(run, embedded, encoder):
    said = mast("embed", run, "--model", encoder, "--device", "cpu", "--workers", "1")
    assert "0 of them new" in said and "Running on 1 CPU core" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["embed", "nowhere", "--model", "MODEL"], "no run of mast detect is here"),
        (["embed", "RUN", "--model", "nowhere"], "there is no such folder"),
        (["embed", "RUN", "--model", "MODEL", "--pool", "all"], "--pool all: use last or blocks"),
        (["embed", "RUN", "--model", "MODEL", "--workers", "0"], "--workers 0: give 1 or more"),
        (["search", "RUN"], "either a box with --like or the name of a sound with --like-event"),
        (["search", "RUN", "--like-event", "x"], "has no sound x"),
        (
            ["search", "RUN", "--like-event", "x", "--min-score", "0.1"],
            "this run has kept sounds from 0.3 on",
        ),
        (
            ["search", "RUN", "--like-event", "x", "--embeddings", "no.lance"],
            "there are no vectors. Make them with",
        ),
        (
            ["search", "RUN", "--like", "card/x.WAV", "0", "1", "1", "2"],
            "no recording of this run is at this place",
        ),
        (["search", "RUN", "--like", "card/x.WAV", "2", "1", "1", "2"], "cannot last from 2.0 s to 1.0 s"),
        (
            ["search", "RUN", "--like", "card/x.WAV", "soon", "1", "1", "2"],
            "--like soon: write seconds, such as 90",
        ),
    ],
)
def test_a_mistake_is_one_message_that_says_what_to_do(
    run, embedded, encoder, capsys, monkeypatch, words, message
):
    known = {"RUN": run, "MODEL": encoder}
    monkeypatch.setattr(sys, "argv", ["mast", *(known.get(word, word) for word in words)])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 1 and message in said and "Traceback" not in said


def test_a_slowed_down_bat_is_shown_at_its_own_pitch(tmp_path, encoder):
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "1.WAV").write_bytes(wav(swelling(2.0).tobytes()))
    bat = recording("1.WAV")
    events = [event(bat, start_s, high_hz=7000.0) for start_s in (0.2, 1.0)]
    run = write_run(
        tmp_path / "found", [[(bat, heard(bat, 2), events)]], root=tmp_path / "cards", expansion=10.0
    )
    found, place = open_found(run), embedded_here(run, encoder)
    query = event_query(found, place, rows_of(place)[0]["event_id"])
    assert sheet_page(found, query, neighbours(place, query), ALL).count("<audio") == 2
    assert np.isfinite(query.vector.astype(np.float32)).all()
