"""Parts: events and a status row for every recording, whatever its faults, and identical files every time."""

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
from mast.audio import reader
from mast.config import Detection
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.detect import detect_recording
from mast.embeddings.box_encoder import BoxEncoder, embed_boxes
from mast.errors import AudioError, ModelError, StorageError
from mast.models.loading import load_detector, load_encoder
from mast.runs import tables, worker
from mast.runs.inputs import resolve_inputs
from mast.runs.plan import Part
from mast.runs.run import PrecisionRequest, open_run
from mast.runs.tables import read_rows
from mast.runs.worker import ProgressDetector, load_detector_for_run, process_part, serve
from mast.workers.process import PROGRESS
from tests.recordings.builders import RATE_HZ, wav
from tests.runs.archives import card, contents, open_paths, process_missing, rows, varying_noise

pytestmark = pytest.mark.usefixtures("short_parts")


def test_a_run_over_nothing_has_no_parts(detector, tmp_path):
    (tmp_path / "card").mkdir()
    run = process_missing(open_paths(tmp_path / "card", detector, tmp_path / "out"))
    assert [*contents(run.out)] == ["run.json"]


def test_the_events_of_a_recording_equal_those_of_detect_with_clock_site_and_model(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    run = process_missing(
        open_paths(root, detector, tmp_path / "out", site="{site}/*", time_zone="Europe/Madrid")
    )
    events = rows(run.out, "events")
    chunk_detector = ModelChunkDetector(load_detector(detector), Detection(nms_iou_threshold=0.2), "cpu")
    expected = [*detect_recording(str(root / "A" / "20230510_003000.WAV"), chunk_detector)]
    recording_events = [row for row in events if row["recording_id"] == "card/A/20230510_003000.WAV"]
    assert len(expected) > 5
    for row, event in zip(recording_events, expected, strict=True):
        for name in ("start_s", "end_s", "low_hz", "high_hz", "score"):
            assert row[name] == getattr(event, name)
        offset = timedelta(microseconds=round(event.start_s * 1e6))
        assert row["start_local"] == datetime(2023, 5, 10, 0, 30) + offset
        assert row["start_utc"] == datetime(2023, 5, 9, 22, 30, tzinfo=UTC) + offset
        assert (row["utc_offset_min"], row["site"], row["model"]) == (120, "A", run.config.identity)
    assert rows(run.out, "status")[0] == {
        "recording_id": "card/A/20230510_003000.WAV",
        "status": "ok",
        "reason": None,
        "effort_s": 2.0,
        "events": len(recording_events),
        "site": "A",
        "start_utc": datetime(2023, 5, 9, 22, 30, tzinfo=UTC),
    }


def test_a_run_that_embeds_detects_the_same_events_and_stores_a_vector_for_each(detector, tmp_path):
    root = card(tmp_path / "card", 3)
    (root / "A" / "20230510_023000.WAV").write_bytes(b"no audio")
    plain = process_missing(open_paths(root, detector, tmp_path / "plain"))
    embedding = process_missing(
        open_paths(root, detector, tmp_path / "out", request=PrecisionRequest(embeds=True))
    )
    vectors = [row["vector"] for row in rows(embedding.out, "vectors")]
    files = {name: data for name, data in contents(embedding.out).items() if "vectors" not in name}
    assert files == contents(plain.out) and not Path(plain.out, "vectors").exists()
    assert len(vectors) == len(rows(plain.out, "events")) > 10
    assert np.linalg.norm(np.array(vectors, np.float32), axis=1) == pytest.approx(1, abs=2e-3)
    assert len({tuple(vector) for vector in vectors}) > len(vectors) / 2
    schema = pq.read_schema(Path(embedding.out, "vectors", "part-000000.parquet"))
    assert json.loads(schema.metadata[b"mast"])["model"] == embedding.config.identity


def test_vectors_equal_those_of_the_encoder_for_boxes_within_one_chunk(detector, tmp_path):
    root = card(tmp_path / "card", 1, 1.28)  # a single chunk
    process_missing(open_paths(root, detector, tmp_path / "out", request=PrecisionRequest(embeds=True)))
    events = rows(tmp_path / "out", "events")
    bounds = np.array([[row[name] for name in ("start_s", "low_hz", "end_s", "high_hz")] for row in events])
    (path,) = root.rglob("*.WAV")
    with reader.open_audio(str(path), RATE_HZ, 1.0) as audio:
        expected, kept = embed_boxes(audio, bounds, BoxEncoder(load_encoder(detector), device="cpu"))
    vectors = np.array([row["vector"] for row in rows(tmp_path / "out", "vectors")], np.float32)
    assert len(kept) == len(vectors) > 2
    cosines = (vectors * expected[np.argsort(kept)].astype(np.float32)).sum(axis=1)
    assert cosines == pytest.approx(1, abs=0.01)


def test_every_part_records_its_model_version_and_fingerprint(detector, tmp_path):
    run = process_missing(open_paths(card(tmp_path / "card", 1), detector, tmp_path / "out"))
    for kind in ("events", "status"):
        schema = pq.read_schema(Path(run.out, kind, "part-000000.parquet"))
        assert json.loads(schema.metadata[b"mast"]) == {
            "model": run.config.identity,
            "mast_version": __version__,
            "fingerprint": run.config.fingerprint,
        }
    manifest = json.loads(Path(run.out, "run.json").read_text())
    assert manifest["fingerprint"] == run.config.fingerprint
    assert manifest["settings"]["model"] == run.config.identity
    events = pq.ParquetFile(Path(run.out, "events", "part-000000.parquet"))
    model = events.schema_arrow.get_field_index("model")
    assert "RLE_DICTIONARY" in events.metadata.row_group(0).column(model).encodings


@pytest.mark.parametrize("seconds", [0.006, 0.9, 1.28, 1.3, 2.43, 2.44, 3.77])
def test_effort_is_the_length_of_the_processed_audio(detector, tmp_path, seconds):
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "a.wav").write_bytes(wav(varying_noise(seconds).tobytes()))
    run = process_missing(open_paths(tmp_path / "card", detector, tmp_path / "out"))
    assert rows(run.out, "status")[0]["effort_s"] == pytest.approx(seconds, abs=1e-4)


def test_effort_and_times_of_slowed_down_audio_are_before_time_expansion(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 1, 3.0).parent)
    soundfile.write("card/A/20230510_003000.WAV", varying_noise(3.0), 10 * RATE_HZ)
    Path("study.yaml").write_text('{"collections": {"bats": {"root": "card", "time_expansion": 10}}}')
    run = process_missing(open_run(resolve_inputs(["study.yaml"]), detector, "out"))
    assert rows("out", "status")[0]["effort_s"] == pytest.approx(0.3)
    ends_s = [row["end_s"] for row in rows("out", "events")]
    assert run.plan.seconds.sum() == pytest.approx(0.3)
    assert ends_s and max(ends_s) <= 0.3 and max(row["high_hz"] for row in rows("out", "events")) > 8000


def test_a_recording_without_events_is_empty_and_an_unreadable_one_is_quarantined(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    (root / "A" / "20230510_003000.WAV").write_bytes(wav(bytes(64_000)))
    (root / "empty.wav").touch()
    (root / "notes.wav").write_text("Dear diary, the frogs were loud. " * 9)
    run = process_missing(open_paths(root, detector, tmp_path / "out", min_score=0.9999))
    statuses = [(row["status"], row["reason"], row["effort_s"]) for row in rows(run.out, "status")]
    assert statuses == [
        ("empty", None, 2.0),
        ("empty", None, 2.0),
        ("quarantined", "the file has no content", 0.0),
        ("quarantined", "not an audio file, despite its extension", 0.0),
    ]
    assert rows(run.out, "events") == []


@pytest.mark.parametrize("rate_hz", [RATE_HZ, 22_050])
@pytest.mark.parametrize("suffix", ["flac", "mp3"])
def test_a_recording_truncated_before_the_scan_is_processed_up_to_its_readable_end(
    detector, tmp_path, suffix, rate_hz
):
    root = tmp_path / "card"
    root.mkdir()
    soundfile.write(root / f"cut.{suffix}", varying_noise(6.0), rate_hz)
    content = (root / f"cut.{suffix}").read_bytes()
    (root / f"cut.{suffix}").write_bytes(content[: len(content) * 6 // 10])
    run = process_missing(open_paths(root, detector, tmp_path / "out"))
    (status,) = rows(run.out, "status")
    (scanned,) = pq.read_table(Path(run.out, "recordings.parquet")).to_pylist()
    assert (status["status"], status["reason"]) == ("ok", None)
    assert status["effort_s"] == pytest.approx(scanned["duration_s"], abs=1e-3)
    assert 0.4 < scanned["duration_s"] * rate_hz / RATE_HZ / 6.0 < 0.7 and "truncated" in scanned["faults"]


def test_a_recording_corrupted_after_the_scan_is_quarantined_and_keeps_its_earlier_events(detector, tmp_path):
    root = card(tmp_path / "card", 3, 1.5)
    soundfile.write(root / "long.flac", varying_noise(120.0), RATE_HZ)
    run = open_paths(root, detector, tmp_path / "out")
    content = bytearray((root / "long.flac").read_bytes())
    content[len(content) // 2 : -9000] = bytes(len(content) - 9000 - len(content) // 2)
    (root / "long.flac").write_bytes(content)
    (root / "A" / "20230510_003000.WAV").unlink()
    process_missing(run)
    missing, *_, broken = rows(run.out, "status")
    assert (missing["status"], missing["reason"]) == ("quarantined", "there is no such file.")
    assert broken["status"] == "quarantined" and broken["reason"]
    assert 30 < broken["effort_s"] < 60 and broken["events"] > 10
    kept = [row for row in rows(run.out, "events") if row["recording_id"] == "card/long.flac"]
    assert len(kept) == broken["events"]


def test_a_missing_drive_does_not_quarantine_recordings(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    run = open_paths(root, detector, tmp_path / "out")
    shutil.rmtree(root)
    for _ in range(2):
        with pytest.raises(StorageError, match="the recordings are no longer reachable"):
            process_missing(run)
        root.mkdir(exist_ok=True)  # the empty mount point of a drive
    assert run.missing().tolist() == [0]
    card(root, 2)
    assert [row["status"] for row in rows(process_missing(run).out, "status")] == ["ok", "ok"]


def test_a_failing_detector_does_not_quarantine_recordings(detector, tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("out of\n memory")

    run = open_paths(card(tmp_path / "card", 1), detector, tmp_path / "out")
    loaded = load_detector_for_run(run.config, "cpu")
    monkeypatch.setattr(ModelChunkDetector, "__call__", fails)
    with pytest.raises(ModelError, match="The model failed: RuntimeError: out of memory. If memory is short"):
        process_part(run.plan.part(0), run.config, loaded)
    assert run.missing().tolist() == [0]


def test_a_recording_that_is_readable_on_a_second_attempt_is_not_quarantined(detector, tmp_path, monkeypatch):
    run = open_paths(card(tmp_path / "card", 2), detector, tmp_path / "out")
    real, failures = reader.Audio.read_samples, iter([False, True])

    def fails_once(self, first, stop):
        if next(failures, False):
            raise AudioError(f"{self.location}: the audio ends at 0.5 s.")
        return real(self, first, stop)

    monkeypatch.setattr(reader.Audio, "read_samples", fails_once)
    answers = []
    job = json.dumps({"part": run.plan.part(0), "crashed": []}).encode()
    serve(run.config, load_detector_for_run(run.config, "cpu"), iter([job, job]), answers.append)
    failed, done = (answer for answer in answers if PROGRESS not in answer)
    assert (
        failed["is_transient"]
        and "ends at 0.5 s. The file was readable on a second attempt" in failed["error"]
    )
    assert done == {} and [row["status"] for row in rows(run.out, "status")] == ["ok", "ok"]


def test_a_network_error_is_transient_but_a_full_disk_is_not(detector, tmp_path, monkeypatch):
    errors = iter([OSError("AWS Error SLOW_DOWN"), OSError(errno.ENOSPC, "No space left on device")])

    def fails(*_):
        raise next(errors)

    run = open_paths(card(tmp_path / "card", 1), detector, tmp_path / "out")
    monkeypatch.setattr(worker, "process_part", fails)
    answers = []
    job = json.dumps({"part": run.plan.part(0), "crashed": []}).encode()
    serve(run.config, load_detector_for_run(run.config, "cpu"), iter([job, job]), answers.append)
    assert answers == [
        {"error": "AWS Error SLOW_DOWN.", "is_transient": True},
        {"error": "[Errno 28] No space left on device.", "is_transient": False},
    ]


def test_many_events_are_written_in_row_groups(detector, tmp_path, monkeypatch):
    run = process_missing(open_paths(card(tmp_path / "card", 2), detector, tmp_path / "out"))
    monkeypatch.setattr(tables, "_ROW_GROUP_EVENTS", 10)
    grouped = process_missing(open_paths(tmp_path / "card", detector, tmp_path / "again"))
    table = pq.ParquetFile(Path(grouped.out, "events", "part-000000.parquet"))
    assert table.num_row_groups == -(-table.metadata.num_rows // 10) > 1
    assert rows(grouped.out, "events") == rows(run.out, "events")


def test_the_rows_of_a_part_are_read_across_row_groups(detector, tmp_path, monkeypatch):
    monkeypatch.setattr("mast.recordings.scan.ROW_GROUP_ROWS", 1)
    monkeypatch.setattr("mast.recordings.probe_pool.BATCH_FILES", 4)
    run = open_paths(card(tmp_path / "card", 10, 0.2), detector, tmp_path / "out")
    table = f"{run.out}/recordings.parquet"
    assert pq.ParquetFile(table).num_row_groups == 3
    ids = pq.read_table(table)["recording_id"].to_pylist()
    for first, stop in ((0, 10), (0, 4), (3, 5), (2, 9), (9, 10)):
        assert [row.recording_id for row in read_rows(table, Part(0, first, stop, 0.0))] == ids[first:stop]


def test_a_model_replaced_during_the_run_is_refused(detector, tmp_path):
    model = shutil.copytree(detector, tmp_path / "model")
    run = open_paths(card(tmp_path / "card", 1), str(model), tmp_path / "out")
    other = json.loads((model / "model.json").read_text())
    other["normalisation"]["mean"] += 1
    (model / "model.json").write_text(json.dumps(other))
    with pytest.raises(ModelError, match="no longer the model"):
        load_detector_for_run(run.config, "cpu")


def test_a_worker_processes_parts_and_reports_progress_and_write_errors(detector, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "PROGRESS_INTERVAL_S", 0.0)
    run = open_paths(card(tmp_path / "card", 4), detector, tmp_path / "out")
    expected = contents(process_missing(open_paths(tmp_path / "card", detector, tmp_path / "whole")).out)
    jobs = [
        {"part": run.plan.part(0), "crashed": []},
        {"part": run.plan.part(1), "crashed": [[3, "crashed the worker process 2×: SIGABRT"]]},
    ]
    answers = []
    loaded = load_detector_for_run(run.config, "cpu")
    serve(run.config, loaded, io.BytesIO("\n".join(map(json.dumps, jobs)).encode()), answers.append)
    assert [answer[PROGRESS][0] for answer in answers if answer][::2] == [0, 1, 2]
    assert [answer[PROGRESS][1] for answer in answers if answer] == pytest.approx([0, 2.0, 2.0, 4.0, 0, 2.0])
    assert answers.count({}) == 2
    assert contents(run.out)["events/part-000000.parquet"] == expected["events/part-000000.parquet"]
    last = rows(run.out, "status")[3]
    assert (last["status"], last["reason"]) == ("quarantined", "crashed the worker process 2×: SIGABRT")
    shutil.rmtree(Path(run.out, "events"))
    Path(run.out, "events").write_text("not a folder")
    serve(run.config, loaded, iter([json.dumps(jobs[0]).encode()]), answers.append)
    assert "cannot be written" in answers[-1]["error"]


def test_an_error_message_of_a_decoder_becomes_one_line(detector, tmp_path, monkeypatch):
    def throws(*_, **__):
        raise ValueError("what\nis \udce9 this?")

    run = open_paths(card(tmp_path / "card", 1), detector, tmp_path / "out")
    monkeypatch.setattr(worker, "MAX_READ_ATTEMPTS", 1)
    monkeypatch.setattr(worker, "detect_with_vectors", lambda *_, **__: (throws() for _ in range(1)))
    assert rows(process_missing(run).out, "status")[0]["reason"] == "ValueError: what is \\udce9 this?"


def test_a_progress_detector_counts_processed_seconds(detector):
    loaded = load_detector(detector)
    counting_detector = ProgressDetector(loaded, Detection(), "cpu", hop_s=1.0)
    reported_s = []
    counting_detector.begin(2.0, reported_s.append)
    audio = np.zeros((2, 20_480), np.int16)
    counting_detector(audio, np.array([20_480, 20_480]))
    counting_detector(audio[:1], np.array([8000]))
    assert reported_s == [(16_000 + 20_480) / 16_000 / 2, (32_000 + 8000) / 16_000 / 2]
    assert counting_detector.processed_s == reported_s[-1]
