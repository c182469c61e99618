"""What a command line points at: files, folders, a table of a scan, a study, each once and with its site and clock."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from typer.testing import CliRunner

from mast.cli import app
from mast.detection import inputs
from mast.detection.inputs import count_recordings, look_at, table_of
from mast.errors import ConfigError, StorageError
from mast.events import Recording, from_table
from tests.detection.archives import card


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    return card(tmp_path_factory.mktemp("cards") / "may", 4, 0.5)


def table(given, folder) -> list[Recording]:
    with table_of(given) as made:
        shutil.copy(made, folder / "table.parquet")
    found = from_table(pq.read_table(folder / "table.parquet"), Recording)
    assert count_recordings(given) == len(found)
    return found


def ids(found):
    return [item.recording_id for item in found]


def test_an_empty_folder_has_no_recordings(tmp_path):
    (tmp_path / "card").mkdir()
    assert table(look_at([str(tmp_path / "card")]), tmp_path) == []


def test_a_folder_is_scanned_with_the_sites_and_zone_that_are_stated(cards, tmp_path):
    found = table(look_at([str(cards)], site="{site}/*", time_zone="Europe/Madrid"), tmp_path)
    assert ids(found) == [
        "may/A/20230510_003000.WAV", "may/A/20230510_023000.WAV",
        "may/B/20230510_013000.WAV", "may/B/20230510_033000.WAV",
    ]  # fmt: skip
    assert [(item.site, item.utc_offset_min) for item in found] == [*[("A", 120)] * 2, *[("B", 120)] * 2]


def test_files_are_known_by_their_path_below_the_folder_that_holds_them_all(cards, tmp_path, monkeypatch):
    monkeypatch.chdir(cards)
    one = table(look_at(["A/20230510_003000.WAV"]), tmp_path)
    assert ids(one) == ["A/20230510_003000.WAV"]
    two = table(look_at(["B/20230510_013000.WAV", "A/../A/20230510_003000.WAV"], site="{site}/*"), tmp_path)
    assert ids(two) == ["may/A/20230510_003000.WAV", "may/B/20230510_013000.WAV"]
    assert [item.site for item in two] == ["A", "B"]


def test_files_stand_behind_the_folders_they_are_given_with(cards, tmp_path):
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "notes.txt").write_text("Dear diary, the frogs were loud.")
    given = look_at([str(cards / "A"), str(tmp_path / "A" / "notes.txt")])
    found = table(given, tmp_path)
    assert ids(found) == ["A/20230510_003000.WAV", "A/20230510_023000.WAV", "A-files/notes.txt"]
    assert [item.status for item in found] == ["ok", "ok", "quarantined"]
    story = json.loads(pq.read_schema(tmp_path / "table.parquet").metadata[b"mast"])
    assert set(story["collections"]) == {"A", "A-files"}


def test_a_file_whose_name_is_no_text_is_quarantined(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.wav")
    path.write_bytes(b"RIFF")
    (found,) = table(look_at([str(path)]), tmp_path)
    assert (found.status, found.faults) == ("quarantined", ("odd-name",))


def test_the_table_of_a_scan_is_taken_as_it_is_and_knows_where_its_recordings_are(
    cards, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["scan", str(cards), "--site", "{site}/*"])
    assert done.exit_code == 0
    given = look_at(["recordings.parquet"])
    assert given.collections["may"].root == str(cards)
    table(given, tmp_path)
    assert (tmp_path / "table.parquet").read_bytes() == Path("recordings.parquet").read_bytes()


def test_a_study_gives_its_collections_and_its_own_table_while_that_is_up_to_date(
    cards, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    settings = {"collections": {"may": {"root": str(cards), "site": "{site}/*", "time_expansion": 10}}}
    Path("study.yaml").write_text(json.dumps(settings))
    given = look_at(["study.yaml"], overrides=["detection.max_boxes=7"])
    assert given.table is None
    assert (given.detection.max_boxes, given.out) == (7, str(tmp_path / "work" / "events"))
    assert given.collections["may"].time_expansion == 10
    assert [item.site for item in table(given, tmp_path)] == ["A", "A", "B", "B"]
    assert CliRunner().invoke(app, ["scan", "study.yaml"]).exit_code == 0
    assert look_at(["study.yaml"]).table == str(tmp_path / "work" / "recordings.parquet")
    assert look_at(["study.yaml"], overrides=["collections.may.time_zone=Asia/Tokyo"]).table is None


def test_a_card_that_was_copied_in_after_the_scan_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *_ = card(tmp_path / "may", 1, 0.2).rglob("*.WAV")
    Path("study.yaml").write_text(json.dumps({"collections": {"may": {"root": "may"}}}))
    assert look_at(["study.yaml"]).note is None
    assert CliRunner().invoke(app, ["scan", "study.yaml"]).exit_code == 0
    assert look_at(["study.yaml"]).note is None
    shutil.copy(first, first.with_name("20230511_003000.WAV"))
    told = "1 recording is not in the study's table: run mast scan study.yaml."
    assert look_at(["study.yaml"]).note == told
    assert told in CliRunner().invoke(app, ["status", "study.yaml"]).output
    asked = CliRunner().invoke(app, ["detect", "study.yaml", "--model", "nowhere", "--dry-run"])
    assert told in asked.output and asked.exit_code != 0


def test_what_decides_the_rows_does_not_depend_on_where_a_drive_is_mounted(cards, tmp_path):
    (tmp_path / "may").symlink_to(cards)
    here, there = (look_at([str(root)]) for root in (cards, tmp_path / "may"))
    assert here.story() == there.story() != look_at([str(cards)], time_zone="UTC").story()
    one, other = (look_at([str(cards / "A" / f"20230510_0{hour}3000.WAV")]) for hour in (0, 2))
    assert one.story() != other.story()


@pytest.mark.parametrize(
    ("words", "options", "error", "message"),
    [
        (["nowhere"], {}, StorageError, "there is no such file or folder"),
        (["nowhere.parquet"], {}, StorageError, "there is no such table. Make it with mast scan"),
        (["A/20230510_003000.WAV"] * 2, {}, StorageError, "is given twice"),
        (["A", "A/20230510_003000.WAV"], {}, StorageError, "is given twice"),
        (["A", "."], {}, StorageError, "hold the same recordings"),
        (["A", "study.yaml"], {}, ConfigError, "one study file or one table of a scan alone"),
        (["other.parquet"], {"time_zone": "UTC"}, ConfigError, "one study file or one table of a scan alone"),
        (["other.parquet"], {}, StorageError, "does not say where its recordings are"),
        (["text.parquet"], {}, StorageError, "not a table of recordings"),
        (["odd.parquet"], {}, StorageError, "does not say where its recordings are"),
        (["narrow.parquet"], {}, StorageError, "lacks channels, .*, utc_offset_min, zone_source. Give a table with all"),
        (["empty.yaml"], {}, ConfigError, "no collections"),
        (["A"], {"overrides": ["detection.max_boxes=7"]}, ConfigError, "--set changes the settings of a study"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_up_is_refused_with_the_remedy(
    cards, tmp_path, monkeypatch, words, options, error, message
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(cards / "A", "A")
    Path("empty.yaml").write_text("work: w\n")
    Path("text.parquet").write_text("text")
    pq.write_table(pa.table({"a": [1]}), "other.parquet")
    odd = pa.schema([("a", pa.int64())]).with_metadata({b"mast": b'{"collections": 3}'})
    pq.write_table(pa.table({"a": [1]}, schema=odd), "odd.parquet")
    narrow = pa.schema([("path", pa.string())]).with_metadata({b"mast": b'{"collections": {}}'})
    pq.write_table(pa.table({"path": ["a.wav"]}, schema=narrow), "narrow.parquet")
    with pytest.raises(error, match=message):
        look_at(words, **options)


def test_who_counts_for_long_tells_how_far_it_is(cards, monkeypatch):
    monkeypatch.setattr(inputs, "_TOLD_FILES", 2)
    told = []
    assert count_recordings(look_at([str(cards)]), lambda *news: told.append(news)) == 4
    assert told == [("finding", 2, None), ("finding", 4, None)]


def test_all_formats_that_a_scan_knows_are_found(tmp_path):
    for ending in ("flac", "ogg", "mp3", "aiff"):
        soundfile.write(tmp_path / f"a.{ending}", np.random.default_rng(0).normal(0, 0.1, 16_000), 16_000)
    assert [item.status for item in table(look_at([str(tmp_path)]), tmp_path)] == ["suspect"] * 4
