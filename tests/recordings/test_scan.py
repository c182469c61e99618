from __future__ import annotations

import json
import marshal
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mast.config import Collection
from mast.errors import MastError, StorageError
from mast.recordings import probe_pool
from mast.recordings.faults import FAULTS
from mast.recordings.scan import PROVENANCE, ScanResult, collections_from_folders, scan
from mast.records import Recording, from_table
from mast.workers.process import PAYLOAD
from tests.recordings.builders import info, noise, wav

REPOSITORY = Path(__file__).parents[2]
COMMENT = info("Recorded at 07:30:00 10/05/2023 (UTC) by AudioMoth 24E144036037EA46 at medium gain.")


def card(folder: Path, sites: int = 3, files: int = 4) -> Path:
    for site in range(sites):
        (folder / f"site{site}").mkdir(parents=True)
        for number in range(files):
            content = wav(noise(0.2, seed=site * files + number))
            (folder / f"site{site}" / f"20230510_07{number:02d}00.WAV").write_bytes(content)
    return folder


def scanned(root: Path | str, out: Path | str, **options: Any) -> list[Recording]:
    scan({"card": Collection(root=str(root))}, str(out), **options)
    return from_table(pq.read_table(out), Recording)


def test_an_empty_folder_gives_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    result = scan({"card": Collection(root=str(tmp_path / "card"))}, str(tmp_path / "out.parquet"))
    assert result == ScanResult(str(tmp_path / "out.parquet"), 0, {})
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_every_recording_becomes_a_row_in_the_order_of_paths(tmp_path: Path) -> None:
    rows = scanned(card(tmp_path / "card"), tmp_path / "out.parquet")
    paths = [row.path for row in rows]
    assert paths == sorted(paths)
    assert len(rows) == 12
    assert {row.recording_id for row in rows} == {f"card/{path}" for path in paths}
    assert {row.status for row in rows} == {"ok"}


def test_the_table_is_the_same_for_one_worker_and_for_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_pool, "BATCH_FILES", 3)
    root = card(tmp_path / "card", sites=4, files=5)
    (root / "empty.wav").touch()
    tables = [scanned(root, tmp_path / f"{count}.parquet", workers=count) for count in (1, 2, 3)]
    assert tables[0] == tables[1] == tables[2]


def test_the_table_records_its_provenance(tmp_path: Path) -> None:
    root = card(tmp_path / "card")
    (root / "notes.txt").write_text("frogs")
    collection = Collection(root=str(root), time_zone="Europe/Madrid", time_expansion=10)
    scan({"bats": collection}, str(tmp_path / "out.parquet"))
    provenance = json.loads(pq.read_schema(tmp_path / "out.parquet").metadata[PROVENANCE])
    assert provenance["collections"]["bats"] == collection.model_dump()
    assert provenance["ignored"] == {".txt": 1}
    assert {"mast_version", "created_utc"} < provenance.keys()


def test_progress_reports_its_total(tmp_path: Path) -> None:
    updates: list[tuple[str, int, int | None]] = []
    root = card(tmp_path / "card")
    (root / "copy.wav").write_bytes((root / "site0" / "20230510_070000.WAV").read_bytes())
    scanned(root, tmp_path / "out.parquet", on_progress=lambda *update: updates.append(update))
    assert updates == [("finding", 13, None), ("reading", 13, 13), ("comparing", 2, None)]


def test_the_first_of_equal_files_is_the_original(tmp_path: Path) -> None:
    root = card(tmp_path / "card", sites=2, files=2)
    content = (root / "site1" / "20230510_070000.WAV").read_bytes()
    for name in ("a.wav", "z.wav"):
        (root / name).write_bytes(content)
    rows = {row.path: row for row in scanned(root, tmp_path / "out.parquet")}
    duplicates = {path: row.duplicate_of for path, row in rows.items() if "duplicate" in row.faults}
    assert duplicates == {"site1/20230510_070000.WAV": "card/a.wav", "z.wav": "card/a.wav"}
    assert rows["z.wav"].status == "suspect"
    assert rows["a.wav"].duplicate_of is None


def test_duplicates_are_found_across_collections_and_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.recordings.scan.ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(probe_pool, "BATCH_FILES", 2)
    collections = {name: Collection(root=str(card(tmp_path / name, 1, 9))) for name in ("one", "two")}
    scan(collections, str(tmp_path / "out.parquet"))
    rows = from_table(pq.read_table(tmp_path / "out.parquet"), Recording)
    assert [row.duplicate_of for row in rows] == [None] * 9 + [f"one/{row.path}" for row in rows[:9]]


def test_files_that_are_equal_only_in_the_sampled_blocks_are_not_duplicates(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    data = bytearray(noise(3))
    (tmp_path / "card" / "a.wav").write_bytes(wav(bytes(data)))
    data[10_000] ^= 1
    (tmp_path / "card" / "b.wav").write_bytes(wav(bytes(data)))
    rows = scanned(tmp_path / "card", tmp_path / "out.parquet")
    assert rows[0].content_hash == rows[1].content_hash
    assert [row.duplicate_of for row in rows] == [None, None]


def test_a_deleted_candidate_is_not_a_duplicate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise FileNotFoundError(2, "No such file")

    root = card(tmp_path / "card", 1, 1)
    (root / "z.wav").write_bytes((root / "site0" / "20230510_070000.WAV").read_bytes())
    monkeypatch.setattr("mast.recordings.duplicates.open_binary", gone)
    assert [row.duplicate_of for row in scanned(root, tmp_path / "out.parquet")] == [None, None]


def test_a_scan_of_a_bucket_equals_a_scan_of_a_folder(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3
    import numpy as np
    import soundfile

    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    root = card(tmp_path / "card", 2, 3)
    (root / "sp ace #1 %20?.wav").write_bytes(wav(noise(0.3)))
    (root / "text.wav").write_text("no audio")
    (root / "empty.wav").touch()
    (root / "z.wav").write_bytes(wav(noise(0.3)))
    (root / "notes.txt").touch()
    soundfile.write(root / "a.flac", np.random.default_rng(0).normal(0, 0.1, 30_000), 16_000)
    client = boto3.client("s3")
    for path in sorted(root.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), bucket.removeprefix("s3://"), f"some/{path.relative_to(root)}")
    local = scanned(root, tmp_path / "out.parquet")
    result = scan({"card": Collection(root=f"{bucket}/some")}, f"{bucket}/out/recordings.parquet")
    client.download_file(
        bucket.removeprefix("s3://"), "out/recordings.parquet", str(tmp_path / "remote.parquet")
    )
    remote = from_table(pq.read_table(tmp_path / "remote.parquet"), Recording)
    assert result.ignored == {".txt": 1}

    def timeless(rows: list[Recording]) -> list[tuple[Any, ...]]:
        fields = [name for name in Recording.__slots__ if name != "modified_utc"]
        return [tuple(getattr(row, name) for name in fields) for row in rows]

    assert timeless(remote) == timeless(local)
    assert all(row.modified_utc for row in remote)


def test_a_bucket_or_folder_that_is_missing_is_named(tmp_path: Path, bucket: str) -> None:
    for root in (f"{bucket}/nothing", str(tmp_path / "nothing")):
        with pytest.raises(StorageError, match="nothing: there is no such folder"):
            scan({"card": Collection(root=root)}, str(tmp_path / "out.parquet"))
    assert not (tmp_path / "out.parquet").exists()


def test_folders_become_collections_named_after_them(tmp_path: Path) -> None:
    for name in ("north/card", "south/card", "lake"):
        (tmp_path / name).mkdir(parents=True)
    folders = [str(tmp_path / name) for name in ("north/card", "south/card", "lake")]
    collections = collections_from_folders([*folders, "s3://bucket/lake/"], "{site}/*", "UTC")
    assert [*collections] == ["north-card", "south-card", f"{tmp_path.name}-lake", "bucket-lake"]
    assert collections["north-card"] == Collection(root=folders[0], site="{site}/*", time_zone="UTC")
    assert collections["bucket-lake"].root == "s3://bucket/lake"


def test_folders_whose_paths_give_equal_names_are_numbered(tmp_path: Path) -> None:
    for name in ("a/b-c", "a-b/c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "x" / "c").mkdir(parents=True)
    names = [*collections_from_folders([str(tmp_path / name) for name in ("a/b-c", "a-b/c", "x/c")])]
    assert len(set(names)) == 3


def test_a_missing_folder_or_a_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no such folder"):
        collections_from_folders([str(tmp_path / "gone")])
    (tmp_path / "a.wav").touch()
    with pytest.raises(StorageError, match="is a file"):
        collections_from_folders([str(tmp_path / "a.wav")])


@pytest.mark.parametrize("pair", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "link")])
def test_folders_inside_each_other_are_refused(tmp_path: Path, pair: tuple[str, str]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    with pytest.raises(StorageError, match="Specify only one"):
        collections_from_folders([str(tmp_path / name) for name in pair])


def test_buckets_inside_each_other_are_refused() -> None:
    with pytest.raises(StorageError, match="Specify only one"):
        collections_from_folders(["s3://bucket/a", "s3://bucket/a/b/"])
    assert len(collections_from_folders(["s3://bucket/a", "s3://bucket/ab"])) == 2


WORKER_MODULES = """
import json, sys
from pathlib import Path
from mast.recordings.probe_pool import serve
serve(Path(sys.argv[1]), iter([b'{"batch": 0}']), lambda answer: None)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_workers_import_no_heavy_modules(tmp_path: Path) -> None:
    spool = spooled(card(tmp_path / "card"), tmp_path)
    output = subprocess.run(
        [sys.executable, "-c", WORKER_MODULES, str(spool.path)],
        capture_output=True,
        check=True,
    )
    assert not {"pyarrow", "duckdb", "torch", "pydantic", "rich", "soundfile"} & set(
        json.loads(output.stdout)
    )


def spooled(root: Path, folder: Path) -> probe_pool.Spool:
    from datetime import UTC, datetime

    from mast.recordings.metadata import NamingScheme
    from mast.recordings.probe import CollectionContext

    context = CollectionContext("card", str(root), NamingScheme(), datetime.now(UTC))
    return probe_pool.write_spool(folder / "spool", [context], lambda files: None)


CRASHING_PROBE = """
import os, mast.recordings.probe as probe
real = probe.probe_row
def probe_row(context, found_file):
    if "crash" in found_file.path:
        os.abort()
    return real(context, found_file)
probe.probe_row = probe_row
"""


def test_a_decoder_that_crashes_costs_one_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = card(tmp_path / "card", sites=2, files=4)
    for name in ("site0/crash1.wav", "site0/crash2.wav"):
        (root / name).write_bytes(wav(noise(0.1)))
    monkeypatch.setattr(probe_pool, "BATCH_FILES", 3)
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(CRASHING_PROBE)
    monkeypatch.syspath_prepend(str(tmp_path / "hook"))
    rows = scanned(root, tmp_path / "out.parquet", workers=2)
    assert len(rows) == 10
    crashes = {row.path: row.detail for row in rows if row.status != "ok"}
    assert [*crashes] == ["site0/crash1.wav", "site0/crash2.wav"]
    assert set(crashes.values()) == {"reading it crashed the decoder"}


def test_workers_that_cannot_start_report_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = spooled(card(tmp_path / "card"), tmp_path)
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "numpy.py").write_text("raise ImportError('numpy is broken')")
    monkeypatch.syspath_prepend(str(tmp_path / "hook"))
    with pytest.raises(MastError, match="numpy is broken"), probe_pool.ProbePool(spool.path, 2) as pool:
        list(pool.rows(spool))


def test_a_worker_answers_with_the_rows_of_a_batch_or_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_pool, "BATCH_FILES", 5)
    spool = spooled(card(tmp_path / "card"), tmp_path)
    jobs = [{"batch": batch} for batch in spool.batches] + [{"batch": spool.batches[1], "file": 2}]
    answers: list[dict[str, Any]] = []
    probe_pool.serve(spool.path, iter([json.dumps(job).encode() for job in jobs]), answers.append)
    rows = [marshal.loads(answer[PAYLOAD]) for answer in answers]
    assert [*map(len, rows)] == [5, 5, 2, 1]
    assert rows[0][0][2] == "site0/20230510_070000.WAV"
    assert rows[3] == [rows[1][2]]


SLOW_SCAN = """
import sys, time
import mast.recordings.probe_pool as probe_pool
from mast.config import Collection
from mast.recordings.scan import scan
probe_pool.BATCH_FILES = 2
def slow(stage, done, total):
    print(stage, done, flush=True)
    time.sleep(30 if stage == "reading" else 0)
try:
    scan({"card": Collection(root=sys.argv[1])}, sys.argv[2], slow, workers=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_scan_leaves_no_files_and_the_next_scan_works(
    tmp_path: Path, stop_signal: signal.Signals
) -> None:
    root, out = card(tmp_path / "card", 4, 10), tmp_path / "out" / "recordings.parquet"
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_SCAN, str(root), str(out)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert any("reading" in line for line in process.stdout)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.send_signal(stop_signal)
    process.communicate()
    assert process.returncode in (130, -signal.SIGKILL)
    deadline = time.monotonic() + 5
    while any(_alive(int(child)) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(int(child)) for child in children)
    assert not out.exists()
    if stop_signal == signal.SIGINT:
        assert not list((tmp_path / "temporary").iterdir())
    assert len(scanned(root, out)) == 40
    assert [path.name for path in out.parent.iterdir()] == ["recordings.parquet"]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_the_table_page_lists_every_column_and_fault() -> None:
    page = (REPOSITORY / "docs" / "reference" / "recordings-table.md").read_text(encoding="utf-8")
    for field in Recording.__slots__:
        assert f"| `{field}` |" in page
    for code, fault in FAULTS.items():
        assert f"| `{code}` | {fault.meaning} | {fault.advice} |" in page
