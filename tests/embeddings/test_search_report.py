"""The output of `mast search`: a page with spectrograms and audio, a table, and messages."""

import csv
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app, main
from mast.embeddings import search_report
from mast.embeddings.search_report import COLUMNS, search_page, write_search_report
from mast.embeddings.vector_search import ALL, Query, SearchFilter, event_query, nearest_events
from mast.records import Event
from mast.runs.results import open_results
from tests.embeddings.runs import build_table, clustered_vectors, embed_in_process, rows_of
from tests.recordings.builders import wav
from tests.runs.archives import varying_noise
from tests.runs.finished import event, recording, status_of, write_run

NAUGHTY = "<script>alert(1)</script> & 'co'"


@pytest.fixture(scope="module")
def results_and_query(run, embedded):
    results = open_results(run)
    return results, event_query(results, embedded[0].table, rows_of(embedded[0].table)[0]["event_id"])


def test_a_page_without_results_reports_it(results_and_query):
    page = search_page(*results_and_query, [], SearchFilter(sites=("nowhere",)))
    assert (
        "No event matches the query and its filters." in page
        and ", at nowhere, by decreasing similarity." in page
    )
    assert page.count("<audio") == 1  # of the query


def test_the_page_has_a_spectrogram_and_audio_of_each_result(results_and_query, embedded, tmp_path):
    results, query = results_and_query
    neighbours = nearest_events(embedded[0].table, query, top=4)
    written = write_search_report(results, query, neighbours, ALL, str(tmp_path / "page.html"))
    page = Path(written.page).read_text("utf-8")
    assert page.count("<audio") == page.count("data:audio/flac;base64,") == 5
    assert page.count("data:image/png;base64,") == 5
    assert all(item.event.event_id in page for item in neighbours) and "2023-05-10" in page
    assert "<script" not in page and "http" not in re.sub('http-equiv="[^"]*"', "", page)
    assert "4 events" in written.summary() and f"Table: {tmp_path / 'page.csv'}" in written.summary()


def test_the_table_has_all_results_if_the_page_is_full(results_and_query, embedded, tmp_path, monkeypatch):
    monkeypatch.setattr(search_report, "MAX_TILES", 2)
    results, query = results_and_query
    neighbours = nearest_events(embedded[0].table, query, top=6)
    written = write_search_report(results, query, neighbours, ALL, str(tmp_path / "page.html"))
    page = Path(written.page).read_text("utf-8")
    assert (
        page.count("<audio") == 3 and "This page shows the first 2; the table next to it has all 6." in page
    )
    with Path(written.table).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == [*COLUMNS] and len(rows) == 6
    assert [row["event_id"] for row in rows] == [item.event.event_id for item in neighbours]
    assert rows[0]["start_utc"].startswith("2023-05-10T") and rows[0]["start_utc"].endswith("Z")
    assert float(rows[0]["start_s"]) == pytest.approx(neighbours[0].event.start_s, abs=1e-6)


def test_names_are_escaped_and_unreadable_recordings_are_reported(tmp_path):
    run = write_run(tmp_path, [], root=f"/nowhere/{NAUGHTY}")
    build_table(
        f"{run}/t.lance", clustered_vectors(3), site=[NAUGHTY] * 3, recording_id=[f"card/{NAUGHTY}.WAV"] * 3
    )
    query = Query("name", Event(NAUGHTY, 0.0, 1.0, 1.0, 2.0), NAUGHTY, 1.0, None, clustered_vectors(3)[0])
    neighbours = nearest_events(f"{run}/t.lance", query, top=2)
    page = search_page(open_results(run), query, neighbours, SearchFilter(sites=(NAUGHTY,)))
    assert "<script" not in page and "&lt;script&gt;" in page and "<audio" not in page
    assert page.count("Not available: ") == 3


def test_the_page_describes_the_filter(results_and_query):
    day = datetime(2024, 5, 1, tzinfo=UTC)
    page = search_page(*results_and_query, [], SearchFilter(("a", "b"), day, day, 1000.0, 2000.0, 0.5))
    line = "at a or b, from 2024-05-01 00:00 UTC, before 2024-05-01 00:00 UTC, above 1000 Hz, below 2000 Hz, "
    assert line + "score at least 0.5, by decreasing similarity." in page


def mast(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_searches_by_a_box_and_by_an_event_id(run, embedded, encoder, tmp_path):
    row = rows_of(embedded[0].table)[3]
    box = [
        row["recording_id"],
        f"0:{row['start_s']:.6f}",
        *(str(row[name]) for name in ("end_s", "low_hz", "high_hz")),
    ]
    out = str(tmp_path / "similar.html")
    output = mast(
        "search", run, "--query", *box, "--model", encoder, "--top", "3", "--site", "A", "--out", out
    )
    assert "3 events, similarity" in output and f"Report: {out}" in output
    words = ["--from", "2023-05-10", "--to", "2023-05-11T12:00:00", "--low", "1", "--high", "9000", "--exact"]
    output = mast("search", run, "--query-event", row["event_id"], *words, "--top", "2")
    assert f"{run}/search-{row['event_id']}.html" in output and "2 events" in output
    output = mast("search", run, "--query-event", row["event_id"], "--site", "nowhere", "--out", out)
    assert "No event matches the query and its filter." in output


def test_mast_embed_prints_its_device_and_the_contents_of_the_table(run, embedded, encoder):
    output = mast("embed", run, "--model", encoder, "--device", "cpu", "--workers", "1")
    assert "0 new" in output and "Running on 1 CPU core" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["embed", "nowhere", "--model", "MODEL"], "contains no run of mast detect"),
        (["embed", "RUN", "--model", "nowhere"], "there is no such folder"),
        (["embed", "RUN", "--model", "MODEL", "--layers", "all"], "--layers all: use last or blocks"),
        (["embed", "RUN", "--model", "MODEL", "--workers", "0"], "--workers 0: specify 1 or more"),
        (["search", "RUN"], "either a box with --query or an event id with --query-event"),
        (["search", "RUN", "--query-event", "x"], "has no event x"),
        (
            ["search", "RUN", "--query-event", "x", "--min-score", "0.1"],
            "this run contains only events of score >= 0.3",
        ),
        (
            ["search", "RUN", "--query-event", "x", "--embeddings", "no.lance"],
            "there are no vectors. Create them with",
        ),
        (
            ["search", "RUN", "--query", "card/x.WAV", "0", "1", "1", "2"],
            "this run has no such recording",
        ),
        (["search", "RUN", "--query", "card/x.WAV", "2", "1", "1", "2"], "cannot last from 2.0 s to 1.0 s"),
        (
            ["search", "RUN", "--query", "card/x.WAV", "soon", "1", "1", "2"],
            "--query soon: write seconds, such as 90",
        ),
    ],
)
def test_a_mistake_gives_one_message_with_a_remedy(
    run, embedded, encoder, capsys, monkeypatch, words, message
):
    values = {"RUN": run, "MODEL": encoder}
    monkeypatch.setattr(sys, "argv", ["mast", *(values.get(word, word) for word in words)])
    with pytest.raises(SystemExit) as stop:
        main()
    errors = capsys.readouterr().err
    assert stop.value.code == 1 and message in errors and "Traceback" not in errors


def test_a_time_expanded_recording_is_shown_at_its_own_frequencies(tmp_path, encoder):
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "1.WAV").write_bytes(wav(varying_noise(2.0).tobytes()))
    bat = recording("1.WAV")
    events = [event(bat, start_s, high_hz=7000.0) for start_s in (0.2, 1.0)]
    run = write_run(
        tmp_path / "found", [[(bat, status_of(bat, 2), events)]], root=tmp_path / "cards", expansion=10.0
    )
    results, table = open_results(run), embed_in_process(run, encoder)
    query = event_query(results, table, rows_of(table)[0]["event_id"])
    assert search_page(results, query, nearest_events(table, query), ALL).count("<audio") == 2
    assert np.isfinite(query.vector.astype(np.float32)).all()
