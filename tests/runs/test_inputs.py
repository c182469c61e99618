"""Inputs of a command line: files, folders, the table of a scan, a study, each once and with its site and clock."""

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
from mast.errors import ConfigError, StorageError
from mast.records import Recording, from_table
from mast.runs import inputs
from mast.runs.inputs import count_recordings, resolve_inputs, table_of
from tests.runs.archives import card


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    return card(tmp_path_factory.mktemp("cards") / "may", 4, 0.5)


def table(spec, folder) -> list[Recording]:
    with table_of(spec) as path:
        shutil.copy(path, folder / "table.parquet")
    recordings = from_table(pq.read_table(folder / "table.parquet"), Recording)
    assert count_recordings(spec) == len(recordings)
    return recordings


def ids(recordings):
    return [recording.recording_id for recording in recordings]


def test_an_empty_folder_has_no_recordings(tmp_path):
    (tmp_path / "card").mkdir()
    assert table(resolve_inputs([str(tmp_path / "card")]), tmp_path) == []


def test_a_folder_is_scanned_with_the_specified_sites_and_time_zone(cards, tmp_path):
    recordings = table(resolve_inputs([str(cards)], site="{site}/*", time_zone="Europe/Madrid"), tmp_path)
    assert ids(recordings) == [
        "may/A/20230510_003000.WAV", "may/A/20230510_023000.WAV",
        "may/B/20230510_013000.WAV", "may/B/20230510_033000.WAV",
    ]  # fmt: skip
    assert [(item.site, item.utc_offset_min) for item in recordings] == [*[("A", 120)] * 2, *[("B", 120)] * 2]


def test_files_are_identified_by_their_path_below_their_common_folder(cards, tmp_path, monkeypatch):
    monkeypatch.chdir(cards)
    one = table(resolve_inputs(["A/20230510_003000.WAV"]), tmp_path)
    assert ids(one) == ["A/20230510_003000.WAV"]
    two = table(
        resolve_inputs(["B/20230510_013000.WAV", "A/../A/20230510_003000.WAV"], site="{site}/*"), tmp_path
    )
    assert ids(two) == ["may/A/20230510_003000.WAV", "may/B/20230510_013000.WAV"]
    assert [item.site for item in two] == ["A", "B"]


def test_files_follow_the_folders_specified_with_them(cards, tmp_path):
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "notes.txt").write_text("Dear diary, the frogs were loud.")
    spec = resolve_inputs([str(cards / "A"), str(tmp_path / "A" / "notes.txt")])
    recordings = table(spec, tmp_path)
    assert ids(recordings) == ["A/20230510_003000.WAV", "A/20230510_023000.WAV", "A-files/notes.txt"]
    assert [item.status for item in recordings] == ["ok", "ok", "quarantined"]
    metadata = json.loads(pq.read_schema(tmp_path / "table.parquet").metadata[b"mast"])
    assert set(metadata["collections"]) == {"A", "A-files"}


def test_a_file_with_an_invalid_name_is_quarantined(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.wav")
    path.write_bytes(b"RIFF")
    (recording,) = table(resolve_inputs([str(path)]), tmp_path)
    assert (recording.status, recording.faults) == ("quarantined", ("invalid-filename",))


def test_the_table_of_a_scan_is_used_unchanged_and_contains_the_roots_of_its_collections(
    cards, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["scan", str(cards), "--site", "{site}/*"])
    assert done.exit_code == 0
    spec = resolve_inputs(["recordings.parquet"])
    assert spec.collections["may"].root == str(cards)
    table(spec, tmp_path)
    assert (tmp_path / "table.parquet").read_bytes() == Path("recordings.parquet").read_bytes()


def test_a_study_supplies_its_collections_and_its_table_if_that_is_up_to_date(cards, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"collections": {"may": {"root": str(cards), "site": "{site}/*", "time_expansion": 10}}}
    Path("study.yaml").write_text(json.dumps(settings))
    spec = resolve_inputs(["study.yaml"], overrides=["detection.max_detections=7"])
    assert spec.table is None
    assert (spec.detection.max_detections, spec.out) == (7, str(tmp_path / "work" / "events"))
    assert spec.collections["may"].time_expansion == 10
    assert [item.site for item in table(spec, tmp_path)] == ["A", "A", "B", "B"]
    assert CliRunner().invoke(app, ["scan", "study.yaml"]).exit_code == 0
    assert resolve_inputs(["study.yaml"]).table == str(tmp_path / "work" / "recordings.parquet")
    assert resolve_inputs(["study.yaml"], overrides=["collections.may.time_zone=Asia/Tokyo"]).table is None


def test_a_recording_added_after_the_scan_gives_a_note(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *_ = card(tmp_path / "may", 1, 0.2).rglob("*.WAV")
    Path("study.yaml").write_text(json.dumps({"collections": {"may": {"root": "may"}}}))
    assert resolve_inputs(["study.yaml"]).note is None
    assert CliRunner().invoke(app, ["scan", "study.yaml"]).exit_code == 0
    assert resolve_inputs(["study.yaml"]).note is None
    shutil.copy(first, first.with_name("20230511_003000.WAV"))
    note = "1 recording is not in the study's table: run mast scan study.yaml."
    assert resolve_inputs(["study.yaml"]).note == note
    assert note in CliRunner().invoke(app, ["status", "study.yaml"]).output
    planned = CliRunner().invoke(app, ["detect", "study.yaml", "--model", detector, "--dry-run"])
    assert note in planned.output and planned.exit_code == 0


def test_the_manifest_does_not_depend_on_the_mount_point_of_a_drive(cards, tmp_path):
    (tmp_path / "may").symlink_to(cards)
    here, there = (resolve_inputs([str(root)]) for root in (cards, tmp_path / "may"))
    assert here.manifest() == there.manifest() != resolve_inputs([str(cards)], time_zone="UTC").manifest()
    one, other = (resolve_inputs([str(cards / "A" / f"20230510_0{hour}3000.WAV")]) for hour in (0, 2))
    assert one.manifest() != other.manifest()


@pytest.mark.parametrize(
    ("paths", "options", "error", "message"),
    [
        (["nowhere"], {}, StorageError, "there is no such file or folder"),
        (["nowhere.parquet"], {}, StorageError, "there is no such table. Create it with mast scan"),
        (["A/20230510_003000.WAV"] * 2, {}, StorageError, "is specified twice"),
        (["A", "A/20230510_003000.WAV"], {}, StorageError, "is specified twice"),
        (["A", "."], {}, StorageError, "contain the same recordings"),
        (["A", "study.yaml"], {}, ConfigError, "one study file or one table of a scan alone"),
        (["other.parquet"], {"time_zone": "UTC"}, ConfigError, "one study file or one table of a scan alone"),
        (["other.parquet"], {}, StorageError, "the metadata has no collections"),
        (["text.parquet"], {}, StorageError, "not a table of recordings"),
        (["odd.parquet"], {}, StorageError, "the metadata has no collections"),
        (["narrow.parquet"], {}, StorageError, "missing columns channels, .*, zone_source. Specify a table with all"),
        (["empty.yaml"], {}, ConfigError, "no collections"),
        (["A"], {"overrides": ["detection.max_detections=7"]}, ConfigError, "--set changes the settings of a study"),
    ],
)  # fmt: skip
def test_invalid_inputs_are_refused_with_a_remedy(
    cards, tmp_path, monkeypatch, paths, options, error, message
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(cards / "A", "A")
    Path("empty.yaml").write_text("work_dir: w\n")
    Path("text.parquet").write_text("text")
    pq.write_table(pa.table({"a": [1]}), "other.parquet")
    odd = pa.schema([("a", pa.int64())]).with_metadata({b"mast": b'{"collections": 3}'})
    pq.write_table(pa.table({"a": [1]}, schema=odd), "odd.parquet")
    narrow = pa.schema([("path", pa.string())]).with_metadata({b"mast": b'{"collections": {}}'})
    pq.write_table(pa.table({"path": ["a.wav"]}, schema=narrow), "narrow.parquet")
    with pytest.raises(error, match=message):
        resolve_inputs(paths, **options)


def test_counting_many_recordings_reports_progress(cards, monkeypatch):
    monkeypatch.setattr(inputs, "_PROGRESS_EVERY_FILES", 2)
    reported = []
    assert count_recordings(resolve_inputs([str(cards)]), lambda *progress: reported.append(progress)) == 4
    assert reported == [("finding", 2, None), ("finding", 4, None)]


def test_recordings_of_all_supported_formats_are_found(tmp_path):
    for ending in ("flac", "ogg", "mp3", "aiff"):
        soundfile.write(tmp_path / f"a.{ending}", np.random.default_rng(0).normal(0, 0.1, 16_000), 16_000)
    assert [item.status for item in table(resolve_inputs([str(tmp_path)]), tmp_path)] == ["suspect"] * 4
