"""Prepare audio: every usable recording once, in order, despite damaged files, stops and crashes."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from mast.config import Chunking, Collection
from mast.errors import ConfigError, MastError, StorageError
from mast.recordings.scan import scan
from mast.storage import open_binary
from mast.store import prepare, writer
from mast.store.audio_store import AudioStore, StoreLayout, create_dataset, open_dataset, store_schema
from mast.store.writer import BlockSpan, Source, StorePart, batches_of, plan_parts, read_blocks, serve
from tests.recordings.builders import noise, wav
from tests.s3_server import ceph, missing

CHUNKING = Chunking(chunk_s=0.5, hop_s=0.25)
LAYOUT = StoreLayout(16_000, 8000)


def card(folder: Path, files: int = 6, seconds: float = 1.2) -> Path:
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"202305{10 + number}_073000.WAV").write_bytes(wav(noise(seconds, seed=number)))
    return folder


class Work:
    """A local or remote work folder with a scan of one collection."""

    def __init__(self, root: Path | str, folder: Path | str, **settings: Any) -> None:
        self.collections = {"card": Collection(root=str(root), **settings)}
        self.table, self.store = f"{folder}/recordings.parquet", f"{folder}/audio.lance"
        self.prepared = f"{folder}/prepared.parquet"
        scan(self.collections, self.table)

    def prepare(
        self, workers: int = 1, chunking: Chunking = CHUNKING, **options: Any
    ) -> prepare.PrepareResult:
        return prepare.prepare(self.table, self.collections, self.store, chunking, workers=workers, **options)

    def rows(self) -> list[dict[str, Any]]:
        return rows(self.store)

    def status(self) -> list[tuple[Any, ...]]:
        with open_binary(self.prepared) as file:
            table = pq.read_table(file)
        return [tuple(row.values()) for row in table.to_pylist()]


def rows(location: str) -> list[dict[str, Any]]:
    """Return all rows of a store with their audio, in order."""
    dataset = AudioStore(location).dataset
    names = [name for name in dataset.schema.names if name != "audio"]
    table = dataset.to_table(columns=names).to_pylist()
    blobs = dataset.read_blobs("audio", indices=list(range(len(table))), preserve_order=True) if table else []
    return [{**row, "audio": audio} for row, (_, audio) in zip(table, blobs, strict=True)]


def data_files(store: str) -> int:
    return len(list(Path(store, "data").iterdir()))


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_S", 2.0)


def test_no_recordings_give_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    work = Work(tmp_path / "card", tmp_path)
    assert work.prepare() == prepare.PrepareResult(work.store, 0, 0, 0, 0, 0.0)
    assert work.rows() == work.status() == []
    assert AudioStore(work.store).chunks(CHUNKING).shape == (0, 2)


def test_each_block_of_each_recording_becomes_a_row(tmp_path: Path) -> None:
    data = noise(0.9)
    (tmp_path / "card" / "pond").mkdir(parents=True)
    (tmp_path / "card" / "pond" / "20230510_073000.WAV").write_bytes(wav(data))
    work = Work(tmp_path / "card", tmp_path, time_zone="UTC", time_expansion=2)
    assert work.prepare() == prepare.PrepareResult(work.store, 1, 0, 0, 0, 1.8)
    stored = work.rows()
    start = datetime(2023, 5, 10, 7, 30, tzinfo=UTC)
    assert [row["block"] for row in stored] == [0, 1, 2, 3]
    assert [row["start_s"] for row in stored] == [0, 0.5, 1.0, 1.5]
    assert [row["start_utc"] for row in stored] == [start + timedelta(seconds=s / 4) for s in range(4)]
    assert [row["samples"] for row in stored] == [8000] * 3 + [4800]
    assert [len(row["audio"]) for row in stored] == [16_000] * 3 + [9600]
    fixed = {
        (row["recording_id"], row["collection"], row["site"], row["part"], row["fault"]) for row in stored
    }
    assert fixed == {("card/pond/20230510_073000.WAV", "card", "pond", 0, None)}
    assert work.status() == [("card/pond/20230510_073000.WAV", "ok", None, 4, 1.8)]


def test_at_its_own_rate_a_recording_is_stored_sample_for_sample(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    samples = np.frombuffer(noise(1.2), "<i2")
    (tmp_path / "card" / "a.wav").write_bytes(wav(samples.tobytes()))
    work = Work(tmp_path / "card", tmp_path)
    work.prepare()
    read = AudioStore(work.store).read([(0, 0)], 19_200)[0]
    assert np.abs(read.astype(int) - samples).max() <= 1


def test_quarantined_files_and_duplicates_are_excluded_and_counted(tmp_path: Path) -> None:
    root = card(tmp_path / "card", 3)
    (root / "copy.wav").write_bytes((root / "20230510_073000.WAV").read_bytes())
    (root / "empty.wav").touch()
    work = Work(root, tmp_path)
    result = work.prepare()
    assert (result.recordings, result.duplicates, result.quarantined, result.failed) == (3, 1, 1, 0)
    assert len({row["recording_id"] for row in work.rows()}) == 3


@pytest.mark.parametrize("seconds", [9.0, 60.0])
def test_a_recording_truncated_before_the_scan_is_stored_up_to_its_readable_length(
    tmp_path: Path, seconds: float
) -> None:
    root = tmp_path / "card"
    root.mkdir()
    rng = np.random.default_rng(0)
    soundfile.write(root / "truncated.flac", rng.normal(0, 0.1, round(seconds * 48_000)), 48_000)
    os.truncate(root / "truncated.flac", (root / "truncated.flac").stat().st_size * 6 // 10)
    work = Work(root, tmp_path)
    (scanned,) = pq.read_table(work.table).to_pylist()
    assert 0.5 < scanned["duration_s"] / seconds < 0.65 and "truncated" in scanned["faults"]
    result = work.prepare(chunking=Chunking(chunk_s=10.0, hop_s=5.0))
    assert result.failed == 0 and [row["fault"] for row in work.rows() if row["fault"]] == []
    assert sum(row["samples"] for row in work.rows()) == scanned["frames"] // 3


def test_parts_have_about_the_configured_length_and_long_recordings_have_their_own() -> None:
    def source(steps: float) -> Source:
        return Source(str(steps), "card", None, "a.wav", 1.0, None, round(steps * 8000), round(steps * 8000))

    plan = [*plan_parts(map(source, (1, 2, 2, 9.5, 1, 4, 0)), LAYOUT)]
    assert [part.number for part in plan] == [*range(8)]
    assert [[(span.first_block, span.stop_block) for span in part.spans] for part in plan] == [
        [(0, 1), (0, 2)],
        [(0, 2)],
        [(0, 4)],
        [(4, 8)],
        [(8, 10)],
        [(0, 1)],
        [(0, 4)],
        [(0, 1)],
    ]
    assert sum(part.samples(LAYOUT) for part in plan) == round(19.5 * 8000)


def test_rows_are_the_same_for_one_process_and_for_several(tmp_path: Path) -> None:
    root = card(tmp_path / "card", 9)
    works = [Work(root, tmp_path / str(count)) for count in (1, 3)]
    for count, work in zip((1, 3), works, strict=True):
        work.prepare(count)
    assert works[0].rows() == works[1].rows()
    assert len({row["part"] for row in works[0].rows()}) == 9


def test_preparing_again_changes_nothing_and_progress_reaches_its_total(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 5, 1.5), tmp_path)
    progress: list[tuple[float, float]] = []
    first = work.prepare(on_progress=lambda *step: progress.append(step))
    assert progress == [(1.5 * n, 7.5) for n in range(1, 6)]
    version, files = AudioStore(work.store).dataset.version, data_files(work.store)
    assert work.prepare() == first
    assert (AudioStore(work.store).dataset.version, data_files(work.store)) == (version, files)


def test_commits_grow_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "COMMIT_PARTS", 1)
    monkeypatch.setattr(prepare, "COMMIT_FRACTION", 1.0)
    work = Work(card(tmp_path / "card", 15, 1.5), tmp_path)
    work.prepare()
    assert AudioStore(work.store).dataset.version == 1 + 5  # 1 + 1 + 2 + 4 + 7 parts: doubling, and the rest


def test_a_store_with_another_fingerprint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, more, other = (card(tmp_path / name, 2) for name in ("card", "more", "other"))
    (more / "new.wav").write_bytes(wav(noise(1, seed=9)))
    (other / "20230510_073000.WAV").write_bytes(wav(noise(1.2, seed=9)))
    work = Work(root, tmp_path)
    work.prepare()
    before = work.rows()
    refused = pytest.raises(StorageError, match="cannot be continued. Delete it, or set another work_dir")
    for folder in (more, other):
        with refused:
            Work(folder, tmp_path).prepare()
    for settings in ({"time_zone": "Asia/Makassar"}, {"time_expansion": 10}, {"site": "{site}_*"}):
        with refused:
            Work(root, tmp_path, **settings).prepare()
    work = Work(root, tmp_path)
    with refused:
        work.prepare(chunking=Chunking(chunk_s=0.25, hop_s=0.25))
    work.prepare(chunking=Chunking(chunk_s=0.5, hop_s=0.1))
    monkeypatch.setattr("mast.store.audio_store.FORMAT", "2")
    with refused:
        work.prepare()
    assert work.rows() == before


def test_a_lance_table_of_another_program_is_refused(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 1), tmp_path)
    lance.write_dataset(pa.table({"a": [1]}), work.store)
    with pytest.raises(StorageError, match="another version of MAST"):
        work.prepare()


def test_a_missing_table_and_an_unknown_collection_are_named(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 1), tmp_path)
    with pytest.raises(StorageError, match="Create it with mast scan"):
        prepare.prepare(str(tmp_path / "no.parquet"), work.collections, work.store, CHUNKING)
    with pytest.raises(ConfigError, match="'card', which is not in the study"):
        prepare.prepare(work.table, {}, work.store, CHUNKING)


def test_a_store_that_cannot_be_written_raises_an_error(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 1), tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be"):
        prepare.prepare(work.table, work.collections, str(tmp_path / "file" / "audio.lance"), CHUNKING)


def test_a_recording_with_an_error_keeps_its_complete_blocks_before_the_error(tmp_path: Path) -> None:
    root = card(tmp_path / "card", 3, 1.9)
    work = Work(root, tmp_path)
    damaged = root / "20230511_073000.WAV"
    damaged.write_bytes(damaged.read_bytes()[: 44 + 2 * 20_000])  # 1.25 s remain
    result = work.prepare()
    assert (result.recordings, result.failed, result.seconds) == (3, 1, 1.9 + 1.0 + 1.9)
    name, status, reason, steps, seconds = work.status()[1]
    assert (name, status, steps, seconds) == ("card/20230511_073000.WAV", "failed", 2, 1.0)
    assert reason == "contains 1.2 s of audio, less than when it was scanned. Scan again."
    store = AudioStore(work.store)
    assert store.recordings["first_row"].to_pylist() == [0, 4, 7]
    spans = [(4, 7000), (7, 0)]
    assert store.valid_lengths(spans, 16_000).tolist() == [9000, 16_000]
    assert not store.read(spans, 16_000)[0, 9000:].any()


def test_a_flac_that_is_damaged_inside_fails_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    path = tmp_path / "card" / "a.flac"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 64_000), 16_000)
    work = Work(tmp_path / "card", tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\0" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    assert work.prepare().failed == 1
    _, status, reason, steps, _ = work.status()[0]
    assert status == "failed" and reason and 0 < steps < 8


def test_a_deleted_recording_is_reported_not_raised(tmp_path: Path) -> None:
    root = card(tmp_path / "card", 2)
    work = Work(root, tmp_path)
    (root / "20230510_073000.WAV").unlink()
    assert work.prepare().failed == 1
    assert work.status()[0][:4] == ("card/20230510_073000.WAV", "failed", "there is no such file.", 0)
    assert work.status()[1][1] == "ok"


def test_parts_after_an_error_in_a_long_recording_are_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later parts may be readable, but the rows of a recording are consecutive blocks without gaps."""
    (tmp_path / "card").mkdir()
    path = tmp_path / "card" / "a.wav"
    path.write_bytes(wav(noise(9)))
    (tmp_path / "card" / "b.wav").write_bytes(wav(noise(1, seed=1)))
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOLE)
    monkeypatch.syspath_prepend(str(hook))
    complete, interrupted = Work(tmp_path / "card", tmp_path / "1"), Work(tmp_path / "card", tmp_path / "2")
    assert complete.prepare(2).failed == 1
    expected = complete.rows()
    assert [(row["recording_id"][-5], row["block"]) for row in expected] == [
        *(("a", block) for block in range(7)),
        *(("b", block) for block in range(2)),
    ]
    assert expected[6]["fault"] == "a hole in the disk" and expected[6]["audio"] == b""
    monkeypatch.setattr(prepare, "COMMIT_PARTS", 1)
    with pytest.raises(KeyboardInterrupt):
        interrupted.prepare(on_progress=stop_after(3.0))
    interrupted.prepare()
    assert interrupted.rows() == expected


HOLE = """
import mast.audio.reader as reader
real = reader.Audio.read_samples
def read_samples(self, first, stop):
    if self.location.endswith("a.wav") and first < 50_000 < stop:
        raise reader.AudioError(f"{self.location}: a hole in the disk")
    return real(self, first, stop)
reader.Audio.read_samples = read_samples
"""

CRASH = """
import os, mast.audio.reader as reader
real = reader.Audio.read_samples
def read_samples(self, first, stop):
    if "11_" in self.location:
        os.abort()
    return real(self, first, stop)
reader.Audio.read_samples = read_samples
"""

ALWAYS_CRASH = """
import os, mast.store.audio_store as store
store.to_int16 = lambda *_: os.abort()
"""


def stop_after(seconds: float) -> Any:
    def on_progress(done_s: float, total_s: float) -> None:
        if done_s >= seconds:
            raise KeyboardInterrupt

    return on_progress


def hooked(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder / "hook"))


def test_a_decoder_that_crashes_costs_one_recording_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(card(tmp_path / "card", 4, 0.5), tmp_path)
    hooked(tmp_path, CRASH, monkeypatch)
    assert work.prepare().failed == 1
    assert [row[1:3] for row in work.status()] == [
        ("ok", None),
        ("failed", "reading it crashed the decoder"),
        ("ok", None),
        ("ok", None),
    ]


def test_a_process_that_crashes_repeatedly_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(card(tmp_path / "card", 1, 0.5), tmp_path)
    hooked(tmp_path, ALWAYS_CRASH, monkeypatch)
    with pytest.raises(MastError, match="ended unexpectedly"):
        work.prepare()


def test_processes_that_cannot_start_report_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(card(tmp_path / "card", 1), tmp_path)
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "soxr.py").write_text("raise ImportError('soxr is broken')")
    monkeypatch.syspath_prepend(str(tmp_path / "hook"))
    with pytest.raises(MastError, match="soxr is broken"):
        work.prepare()


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 2, 1.5), tmp_path)

    def again(done_s: float, total_s: float) -> None:
        with pytest.raises(StorageError, match="another mast prepare is using this folder"):
            work.prepare()

    work.prepare(on_progress=again)
    assert len(work.rows()) == 6


def test_another_writer_at_the_same_time_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "COMMIT_PARTS", 3)
    work = Work(card(tmp_path / "card", 3, 1.5), tmp_path)

    def meddle(done_s: float, total_s: float) -> None:
        if done_s < 2:
            dataset = AudioStore(work.store).dataset
            lance.write_dataset(dataset.schema.empty_table(), work.store, mode="append")

    with pytest.raises(StorageError, match="another process wrote to it"):
        work.prepare(on_progress=meddle)


def test_a_child_writes_and_tries_parts_and_reports_write_errors(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 2, 0.7), tmp_path)
    spans = [
        span
        for part in plan_parts(prepare._usable(work.table, work.collections, LAYOUT), LAYOUT)
        for span in part.spans
    ]
    create_dataset(work.store, store_schema({"format": "test"}))
    job = {"store": work.store, "layout": [16_000, 8000]}
    jobs = [
        {**job, "try": spans[0]},
        {**job, "part": StorePart(0, tuple(spans)), "crashing": [spans[1].source.recording_id]},
        {**job, "store": str(tmp_path / "nowhere.lance"), "part": StorePart(0, tuple(spans))},
    ]
    answers: list[dict[str, Any]] = []
    serve(io.BytesIO("\n".join(map(json.dumps, jobs)).encode()), answers.append)
    assert answers[0] == {}
    assert (len(answers[1]["fragments"]), answers[1]["broken"]) == (1, (spans[1].source.recording_id,))
    assert "the store no longer exists" in answers[2]["error"]


def test_a_child_answers_in_lines_and_ends_with_its_parent(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 1), tmp_path)
    span = next(plan_parts(prepare._usable(work.table, work.collections, LAYOUT), LAYOUT)).spans[0]
    child = subprocess.Popen(
        [sys.executable, "-m", "mast.store.writer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    job = {"store": work.store, "layout": [16_000, 8000], "try": span}
    out, _ = child.communicate(json.dumps(job).encode() + b"\n", timeout=20)
    assert [json.loads(line) for line in out.splitlines()] == [{"ready": True}, {}]
    assert child.returncode == 0


def test_rows_are_passed_to_lance_in_batches(tmp_path: Path) -> None:
    work = Work(card(tmp_path / "card", 4, 1.2), tmp_path)
    spans = tuple(
        part.spans[0] for part in plan_parts(prepare._usable(work.table, work.collections, LAYOUT), LAYOUT)
    )
    batches = [*batches_of(StorePart(7, spans), LAYOUT, ["card/20230511_073000.WAV"])]
    assert [batch.num_rows for batch in batches] == [8, 2]
    table = pa.Table.from_batches(batches)
    assert table["block"].to_pylist() == [0, 1, 2, 0, 0, 1, 2, 0, 1, 2]
    assert set(table["part"].to_pylist()) == {7}
    assert [row for row, fault in enumerate(table["fault"].to_pylist()) if fault] == [3]
    lengths = [len(audio) for audio in table["audio"].to_pylist()]
    assert lengths == [16_000, 16_000, 6400, 0, *[16_000, 16_000, 6400] * 2]


def test_a_recording_too_short_for_one_sample_is_reported() -> None:
    span = BlockSpan(Source("a", "card", None, "a.wav", 1.0, None, 0, 0), 0, 1)
    ((block, wave, fault),) = read_blocks(span, LAYOUT)
    assert (block, len(wave), fault) == (0, 0, "contains no audio at 16000 Hz.")


PREPARE = """
import sys
from mast.config import Chunking, Collection
from mast.store import writer
from mast.store.prepare import prepare
writer.PART_S = 2.0
root, table, store = sys.argv[1:]
def print_progress(done_s, total_s):
    print(done_s, flush=True)
prepare(table, {"card": Collection(root=root)}, store, Chunking(chunk_s=0.5, hop_s=0.25), print_progress, workers=2)
"""


def test_a_run_killed_repeatedly_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    root, rng = card(tmp_path / "card", 60, 1.5), random.Random(0)
    complete, killed = Work(root, tmp_path / "complete"), Work(root, tmp_path / "killed")
    complete.prepare(2)
    command = [sys.executable, "-c", PREPARE, str(root), killed.table, killed.store]
    for _ in range(3):
        kill_after(command, lines=rng.randrange(1, 14), pause_s=rng.uniform(0, 0.02))
    committed = len(rows(killed.store))
    assert 0 < committed < len(complete.rows())
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert killed.rows() == complete.rows()
    assert killed.status() == complete.status()
    assert data_files(killed.store) == data_files(complete.store) == 60


def kill_after(command: list[str], lines: int, pause_s: float) -> None:
    """Kill a run after `lines` lines and a pause, and check that its children end too."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    time.sleep(pause_s)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{child}/cmdline").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{child}/cmdline").exists() for child in children)


def test_an_interrupted_run_stops_its_children_and_resumes_later(tmp_path: Path) -> None:
    root = card(tmp_path / "card", 12, 1.5)
    work, complete = Work(root, tmp_path / "work"), Work(root, tmp_path / "complete")
    with pytest.raises(KeyboardInterrupt):
        work.prepare(2, on_progress=stop_after(6.0))
    progress: list[float] = []
    work.prepare(on_progress=lambda done_s, total_s: progress.append(done_s))
    assert progress[0] == 7.5
    complete.prepare()
    assert work.rows() == complete.rows()


@pytest.fixture(scope="module")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := missing():
        pytest.skip(reason)
    with ceph(tmp_path_factory.mktemp("ceph")) as variables:
        yield variables


@pytest.fixture
def ceph_bucket(ceph_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    import boto3

    for name, value in ceph_server.items():
        monkeypatch.setenv(name, value)
    name = f"test-{os.urandom(4).hex()}"
    boto3.Session().client("s3").create_bucket(
        Bucket=name
    )  # a new session, without the keys of another server
    return f"s3://{name}"


@pytest.mark.parametrize("server", ["bucket", "ceph_bucket"])
def test_a_store_from_bucket_to_bucket_equals_a_local_store(
    tmp_path: Path, server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    bucket = request.getfixturevalue(server)
    root = card(tmp_path / "card", 5)
    (root / "b r.wav").write_bytes(wav(noise(0.7, seed=70)))
    for path in sorted(root.iterdir()):
        boto3.Session().client("s3").upload_file(str(path), bucket.removeprefix("s3://"), f"card/{path.name}")
    local, remote = Work(root, tmp_path / "work"), Work(f"{bucket}/card", f"{bucket}/work")
    local.prepare()
    with pytest.raises(KeyboardInterrupt):
        remote.prepare(on_progress=stop_after(5.0))
    remote.prepare(2)
    assert remote.rows() == local.rows()
    assert remote.status() == local.status()
    dataset = open_dataset(remote.store)
    assert dataset is not None
    paths = dataset.all_files().read_all()["path"].to_pylist()
    assert len([path for path in paths if path.startswith("data/")]) == data_files(local.store)
