"""One part: its events and a row about every recording, whatever is wrong with it, and the same bytes every time."""

import errno
import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from mast import __version__
from mast.config import Detection
from mast.detection import part as part_module
from mast.detection import part_tables
from mast.detection.archive import Asked, open_archive
from mast.detection.chunks import BoxFinder
from mast.detection.inputs import look_at
from mast.detection.part import Ear, hear_part, open_ear, serve
from mast.detection.part_tables import read_rows
from mast.detection.plan import Part
from mast.detection.recording import detect_recording
from mast.embeddings.boxes import BoxEncoder, embed_boxes
from mast.errors import AudioError, ModelError, StorageError
from mast.models.loading import load_detector, load_encoder
from mast.recordings import decode
from tests.detection.archives import card, contents, heard, opened, rows, swelling
from tests.recordings.made import RATE_HZ, wav

pytestmark = pytest.mark.usefixtures("short_parts")


def test_a_run_over_nothing_has_no_parts(detector, tmp_path):
    (tmp_path / "card").mkdir()
    archive = heard(opened(tmp_path / "card", detector, tmp_path / "out"))
    assert [*contents(archive.out)] == ["run.json"]


def test_the_events_of_a_recording_are_those_that_detect_finds_with_clock_site_and_model(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    archive = heard(opened(root, detector, tmp_path / "out", site="{site}/*", time_zone="Europe/Madrid"))
    found = rows(archive.out, "events")
    finder = BoxFinder(load_detector(detector), Detection(nms_iou=0.2), "cpu")
    expected = [*detect_recording(str(root / "A" / "20230510_003000.WAV"), finder)]
    own = [row for row in found if row["recording_id"] == "card/A/20230510_003000.WAV"]
    assert len(expected) > 5
    for row, event in zip(own, expected, strict=True):
        for name in ("start_s", "end_s", "low_hz", "high_hz", "score"):
            assert row[name] == getattr(event, name)
        since = timedelta(microseconds=round(event.start_s * 1e6))
        assert row["start_local"] == datetime(2023, 5, 10, 0, 30) + since
        assert row["start_utc"] == datetime(2023, 5, 9, 22, 30, tzinfo=UTC) + since
        assert (row["utc_offset_min"], row["site"], row["model"]) == (120, "A", archive.orders.identity)
    assert rows(archive.out, "status")[0] == {
        "recording_id": "card/A/20230510_003000.WAV",
        "status": "ok",
        "reason": None,
        "effort_s": 2.0,
        "events": len(own),
        "site": "A",
        "start_utc": datetime(2023, 5, 9, 22, 30, tzinfo=UTC),
    }


def test_a_run_that_embeds_finds_the_same_and_keeps_a_vector_for_each_sound(detector, tmp_path):
    root = card(tmp_path / "card", 3)
    (root / "A" / "20230510_023000.WAV").write_bytes(b"no sound")
    plain = heard(opened(root, detector, tmp_path / "plain"))
    embedding = heard(opened(root, detector, tmp_path / "out", asked=Asked(embeds=True)))
    vectors = [row["vector"] for row in rows(embedding.out, "vectors")]
    files = {name: data for name, data in contents(embedding.out).items() if "vectors" not in name}
    assert files == contents(plain.out) and not Path(plain.out, "vectors").exists()
    assert len(vectors) == len(rows(plain.out, "events")) > 10
    assert np.linalg.norm(np.array(vectors, np.float32), axis=1) == pytest.approx(1, abs=2e-3)
    assert len({tuple(vector) for vector in vectors}) > len(vectors) / 2
    schema = pq.read_schema(Path(embedding.out, "vectors", "part-000000.parquet"))
    assert json.loads(schema.metadata[b"mast"])["model"] == embedding.orders.identity


def test_vectors_are_those_of_the_encoder_under_the_boxes_that_it_hears_whole(detector, tmp_path):
    root = card(tmp_path / "card", 1, 1.28)  # a single chunk
    heard(opened(root, detector, tmp_path / "out", asked=Asked(embeds=True)))
    found = rows(tmp_path / "out", "events")
    bounds = np.array([[row[name] for name in ("start_s", "low_hz", "end_s", "high_hz")] for row in found])
    (path,) = root.rglob("*.WAV")
    with decode.open_audio(str(path), RATE_HZ, 1.0) as audio:
        expected, kept = embed_boxes(audio, bounds, BoxEncoder(load_encoder(detector), device="cpu"))
    vectors = np.array([row["vector"] for row in rows(tmp_path / "out", "vectors")], np.float32)
    assert len(kept) == len(vectors) > 2
    cosines = (vectors * expected[np.argsort(kept)].astype(np.float32)).sum(axis=1)
    assert cosines == pytest.approx(1, abs=0.01)


def test_every_part_says_who_made_it_with_what(detector, tmp_path):
    archive = heard(opened(card(tmp_path / "card", 1), detector, tmp_path / "out"))
    for kind in ("events", "status"):
        schema = pq.read_schema(Path(archive.out, kind, "part-000000.parquet"))
        assert json.loads(schema.metadata[b"mast"]) == {
            "model": archive.orders.identity,
            "mast_version": __version__,
            "fingerprint": archive.orders.fingerprint,
        }
    run = json.loads(Path(archive.out, "run.json").read_text())
    assert run["fingerprint"] == archive.orders.fingerprint
    assert run["settings"]["model"] == archive.orders.identity
    events = pq.ParquetFile(Path(archive.out, "events", "part-000000.parquet"))
    model = events.schema_arrow.get_field_index("model")
    assert "RLE_DICTIONARY" in events.metadata.row_group(0).column(model).encodings


@pytest.mark.parametrize("seconds", [0.006, 0.9, 1.28, 1.3, 2.43, 2.44, 3.77])
def test_effort_is_the_length_of_what_was_heard(detector, tmp_path, seconds):
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "a.wav").write_bytes(wav(swelling(seconds).tobytes()))
    archive = heard(opened(tmp_path / "card", detector, tmp_path / "out"))
    assert rows(archive.out, "status")[0]["effort_s"] == pytest.approx(seconds, abs=1e-4)


def test_slowed_down_sound_counts_by_its_own_clock(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 1, 3.0).parent)
    soundfile.write("card/A/20230510_003000.WAV", swelling(3.0), 10 * RATE_HZ)
    Path("study.yaml").write_text('{"collections": {"bats": {"root": "card", "time_expansion": 10}}}')
    archive = heard(open_archive(look_at(["study.yaml"]), detector, "out"))
    assert rows("out", "status")[0]["effort_s"] == pytest.approx(0.3)
    ends_s = [row["end_s"] for row in rows("out", "events")]
    assert archive.plan.seconds.sum() == pytest.approx(0.3)
    assert ends_s and max(ends_s) <= 0.3 and max(row["high_hz"] for row in rows("out", "events")) > 8000


def test_a_recording_in_which_nothing_is_found_is_empty_and_one_that_cannot_be_read_is_quarantined(
    detector, tmp_path
):
    root = card(tmp_path / "card", 2)
    (root / "A" / "20230510_003000.WAV").write_bytes(wav(bytes(64_000)))
    (root / "empty.wav").touch()
    (root / "notes.wav").write_text("Dear diary, the frogs were loud. " * 9)
    archive = heard(opened(root, detector, tmp_path / "out", min_score=0.9999))
    found = [(row["status"], row["reason"], row["effort_s"]) for row in rows(archive.out, "status")]
    assert found == [
        ("empty", None, 2.0),
        ("empty", None, 2.0),
        ("quarantined", "the file has no content", 0.0),
        ("quarantined", "not a sound file, whatever its name says", 0.0),
    ]
    assert rows(archive.out, "events") == []


@pytest.mark.parametrize("rate_hz", [RATE_HZ, 22_050])
@pytest.mark.parametrize("suffix", ["flac", "mp3"])
def test_what_was_cut_short_before_the_scan_is_heard_as_far_as_it_can_be_read(
    detector, tmp_path, suffix, rate_hz
):
    root = tmp_path / "card"
    root.mkdir()
    soundfile.write(root / f"cut.{suffix}", swelling(6.0), rate_hz)
    content = (root / f"cut.{suffix}").read_bytes()
    (root / f"cut.{suffix}").write_bytes(content[: len(content) * 6 // 10])
    archive = heard(opened(root, detector, tmp_path / "out"))
    (told,) = rows(archive.out, "status")
    (scanned,) = pq.read_table(Path(archive.out, "recordings.parquet")).to_pylist()
    assert (told["status"], told["reason"]) == ("ok", None)
    assert told["effort_s"] == pytest.approx(scanned["duration_s"], abs=1e-3)
    assert 0.4 < scanned["duration_s"] * rate_hz / RATE_HZ / 6.0 < 0.7 and "truncated" in scanned["faults"]


def test_what_breaks_after_the_scan_is_quarantined_with_what_was_heard_before(detector, tmp_path):
    root = card(tmp_path / "card", 3, 1.5)
    soundfile.write(root / "long.flac", swelling(120.0), RATE_HZ)
    archive = opened(root, detector, tmp_path / "out")
    content = bytearray((root / "long.flac").read_bytes())
    content[len(content) // 2 : -9000] = bytes(len(content) - 9000 - len(content) // 2)
    (root / "long.flac").write_bytes(content)
    (root / "A" / "20230510_003000.WAV").unlink()
    heard(archive)
    gone, *_, broken = rows(archive.out, "status")
    assert (gone["status"], gone["reason"]) == ("quarantined", "there is no such file.")
    assert broken["status"] == "quarantined" and broken["reason"]
    assert 30 < broken["effort_s"] < 60 and broken["events"] > 10
    kept = [row for row in rows(archive.out, "events") if row["recording_id"] == "card/long.flac"]
    assert len(kept) == broken["events"]


def test_a_drive_that_is_gone_is_not_the_recordings_fault(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    archive = opened(root, detector, tmp_path / "out")
    shutil.rmtree(root)
    for _ in range(2):
        with pytest.raises(StorageError, match="the recordings cannot be reached any more"):
            heard(archive)
        root.mkdir(exist_ok=True)  # what is left where a drive was mounted
    assert archive.missing().tolist() == [0]
    card(root, 2)
    assert [row["status"] for row in rows(heard(archive).out, "status")] == ["ok", "ok"]


def test_a_detector_that_fails_is_not_the_recordings_fault(detector, tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("out of\n memory")

    archive = opened(card(tmp_path / "card", 1), detector, tmp_path / "out")
    ear = open_ear(archive.orders, "cpu")
    monkeypatch.setattr(BoxFinder, "__call__", fails)
    with pytest.raises(ModelError, match="cannot compute: RuntimeError: out of memory. If memory is short"):
        hear_part(archive.plan.part(0), archive.orders, ear)
    assert archive.missing().tolist() == [0]


def test_a_recording_that_can_be_read_the_next_time_is_not_quarantined(detector, tmp_path, monkeypatch):
    archive = opened(card(tmp_path / "card", 2), detector, tmp_path / "out")
    real, failures = decode.Audio.read_samples, iter([False, True])

    def fails_once(self, first, stop):
        if next(failures, False):
            raise AudioError(f"{self.location}: the sound breaks off at 0.5 s.")
        return real(self, first, stop)

    monkeypatch.setattr(decode.Audio, "read_samples", fails_once)
    answers = []
    job = json.dumps({"part": archive.plan.part(0), "crashed": []}).encode()
    serve(archive.orders, open_ear(archive.orders, "cpu"), iter([job, job]), answers.append)
    failed, done = (answer for answer in answers if "news" not in answer)
    assert (
        failed["may_pass"] and "breaks off at 0.5 s. When it was read again, nothing was" in failed["error"]
    )
    assert done == {} and [row["status"] for row in rows(archive.out, "status")] == ["ok", "ok"]


def test_a_network_may_recover_but_a_full_disk_does_not_by_itself(detector, tmp_path, monkeypatch):
    troubles = iter([OSError("AWS Error SLOW_DOWN"), OSError(errno.ENOSPC, "No space left on device")])

    def fails(*_):
        raise next(troubles)

    archive = opened(card(tmp_path / "card", 1), detector, tmp_path / "out")
    monkeypatch.setattr(part_module, "hear_part", fails)
    answers = []
    job = json.dumps({"part": archive.plan.part(0), "crashed": []}).encode()
    serve(archive.orders, open_ear(archive.orders, "cpu"), iter([job, job]), answers.append)
    assert answers == [
        {"error": "AWS Error SLOW_DOWN.", "may_pass": True},
        {"error": "[Errno 28] No space left on device.", "may_pass": False},
    ]


def test_many_events_go_to_the_file_as_they_come(detector, tmp_path, monkeypatch):
    archive = heard(opened(card(tmp_path / "card", 2), detector, tmp_path / "out"))
    monkeypatch.setattr(part_tables, "_ROW_GROUP_EVENTS", 10)
    again = heard(opened(tmp_path / "card", detector, tmp_path / "again"))
    table = pq.ParquetFile(Path(again.out, "events", "part-000000.parquet"))
    assert table.num_row_groups == -(-table.metadata.num_rows // 10) > 1
    assert rows(again.out, "events") == rows(archive.out, "events")


def test_the_rows_of_a_part_are_found_across_row_groups(detector, tmp_path, monkeypatch):
    monkeypatch.setattr("mast.recordings.scan.ROW_GROUP_ROWS", 1)
    monkeypatch.setattr("mast.recordings.workers.BATCH_FILES", 4)
    archive = opened(card(tmp_path / "card", 10, 0.2), detector, tmp_path / "out")
    table = f"{archive.out}/recordings.parquet"
    assert pq.ParquetFile(table).num_row_groups == 3
    ids = pq.read_table(table)["recording_id"].to_pylist()
    for first, stop in ((0, 10), (0, 4), (3, 5), (2, 9), (9, 10)):
        assert [row.recording_id for row in read_rows(table, Part(0, first, stop, 0.0))] == ids[first:stop]


def test_a_model_that_was_replaced_meanwhile_is_refused(detector, tmp_path):
    model = shutil.copytree(detector, tmp_path / "model")
    archive = opened(card(tmp_path / "card", 1), str(model), tmp_path / "out")
    other = json.loads((model / "model.json").read_text())
    other["normalisation"]["mean"] += 1
    (model / "model.json").write_text(json.dumps(other))
    with pytest.raises(ModelError, match="no longer the model"):
        open_ear(archive.orders, "cpu")


def test_a_child_hears_parts_tells_where_it_is_and_what_it_cannot_write(detector, tmp_path, monkeypatch):
    monkeypatch.setattr(part_module, "NEWS_S", 0.0)
    archive = opened(card(tmp_path / "card", 4), detector, tmp_path / "out")
    expected = contents(heard(opened(tmp_path / "card", detector, tmp_path / "whole")).out)
    jobs = [
        {"part": archive.plan.part(0), "crashed": []},
        {"part": archive.plan.part(1), "crashed": [[3, "hearing it ended the process"]]},
    ]
    answers = []
    ear = open_ear(archive.orders, "cpu")
    serve(archive.orders, ear, io.BytesIO("\n".join(map(json.dumps, jobs)).encode()), answers.append)
    assert [answer["news"][0] for answer in answers if answer][::2] == [0, 1, 2]
    assert [answer["news"][1] for answer in answers if answer] == pytest.approx([0, 2.0, 2.0, 4.0, 0, 2.0])
    assert answers.count({}) == 2
    assert contents(archive.out)["events/part-000000.parquet"] == expected["events/part-000000.parquet"]
    last = rows(archive.out, "status")[3]
    assert (last["status"], last["reason"]) == ("quarantined", "hearing it ended the process")
    shutil.rmtree(Path(archive.out, "events"))
    Path(archive.out, "events").write_text("in the way")
    serve(archive.orders, ear, iter([json.dumps(jobs[0]).encode()]), answers.append)
    assert "cannot be written" in answers[-1]["error"]


def test_odd_words_of_a_decoder_become_one_line(detector, tmp_path, monkeypatch):
    def throws(*_, **__):
        raise ValueError("what\nis \udce9 this?")

    archive = opened(card(tmp_path / "card", 1), detector, tmp_path / "out")
    monkeypatch.setattr(part_module, "READINGS", 1)
    monkeypatch.setattr(part_module, "hear_recording", lambda *_, **__: (throws() for _ in range(1)))
    assert rows(heard(archive).out, "status")[0]["reason"] == "ValueError: what is \\udce9 this?"


def test_an_ear_is_a_finder_that_counts(detector):
    loaded = load_detector(detector)
    ear = Ear(loaded, Detection(), "cpu", hop_s=1.0)
    told = []
    ear.begin(2.0, told.append)
    sound = np.zeros((2, 20_480), np.int16)
    ear(sound, np.array([20_480, 20_480]))
    ear(sound[:1], np.array([8000]))
    assert told == [(16_000 + 20_480) / 16_000 / 2, (32_000 + 8000) / 16_000 / 2]
    assert ear.heard_s == told[-1]
