"""Runs over archives: identical files for any sharding, stop, kill or resume, and never a mix of two runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Spectrogram
from mast.errors import ConfigError, MastError, StorageError
from mast.recordings.clocks import format_duration
from mast.runs import local, manifest, supervisor, worker
from mast.runs import run as run_module
from mast.runs.inputs import resolve_inputs, table_of
from mast.runs.local import ComputeResources, choose_compute, run_local
from mast.runs.outcome import Outcome, RunProgress, ThroughputMeter
from mast.runs.run import Shard, open_run, plan_run
from mast.runs.stats import RunStats, read_run_stats
from mast.workers.process import PROGRESS, WorkerProcess, child_environment
from tests.runs.archives import card, contents, open_paths, process_missing, rows, save_detector
from tests.runs.commands import start

pytestmark = pytest.mark.usefixtures("short_parts")
ONE, TWO = (ComputeResources("cpu", processes) for processes in (1, 2))


def faulty_card(folder: Path, files: int = 8) -> Path:
    card(folder, files)
    (folder / "empty.wav").touch()
    (folder / "notes.wav").write_text("Dear diary, the frogs were loud. " * 9)
    return folder


def test_a_run_over_an_empty_folder_ends_at_once(detector, tmp_path):
    (tmp_path / "card").mkdir()
    outcome = run_local(open_paths(tmp_path / "card", detector, tmp_path / "out"), TWO)
    assert (outcome.end, outcome.exit_code, outcome.missing) == ("finished", 0, 0)
    assert outcome.summary().startswith("0 recordings, 0.0 min processed: 0 events in 0 of them, none in 0\n")


@pytest.mark.parametrize("count", [2, 5])
def test_shards_write_the_files_of_an_unsharded_run(detector, tmp_path, count):
    root = faulty_card(tmp_path / "card")
    whole = process_missing(open_paths(root, detector, tmp_path / "whole"))
    assert len(whole.plan) == 5
    for number in range(1, count + 1):
        shared = open_paths(root, detector, tmp_path / "shared")
        assert shared.missing(Shard(number, count)).tolist() == [*range(number - 1, 5, count)]
        process_missing(shared, Shard(number, count))
    assert contents(shared.out) == contents(whole.out)
    assert not len(shared.missing())


def test_finished_parts_are_not_repeated_and_a_part_without_a_status_is(detector, tmp_path):
    run = process_missing(open_paths(card(tmp_path / "card"), detector, tmp_path / "out"))
    before = contents(run.out)
    (tmp_path / "out" / "status" / "part-000001.parquet").unlink()
    (tmp_path / "out" / "events" / "part-000001.parquet").write_bytes(b"half")
    resumed = open_paths(tmp_path / "card", detector, tmp_path / "out")
    assert resumed.missing().tolist() == [1]
    assert contents(process_missing(resumed).out) == before


def test_results_of_another_model_settings_or_recordings_are_never_mixed_in(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 2).parent)
    Path("other").mkdir()
    open_paths("card", detector, "out")
    before = contents("out")
    other = save_detector(tmp_path / "model", spectrogram=Spectrogram(high_hz=7000.0))
    refused = "contains another run, and results of two runs must not be mixed: "
    for options, reason in (
        ({"model": other}, "model was"),
        ({"min_score": 0.5}, "threshold was 0.3, is now 0.5"),
        (
            {"min_score": 0.01},
            "threshold was 0.3, is now 0.01; detection.score_threshold was 0.05, is now 0.01",
        ),
        ({"time_zone": "Asia/Tokyo"}, "collections.card.time_zone was None, is now Asia/Tokyo"),
        ({"site": "{site}/*"}, "collections.card.site was None, is now {site}/*"),
        ({"paths": "other"}, "it covers card, not other"),
        ({"paths": ["card/A/20230510_003000.WAV", "card/B/20230510_013000.WAV"]}, "files was None"),
    ):
        arguments = {"paths": "card", "model": detector, "out": "out"} | options
        with pytest.raises(ConfigError, match=refused) as error:
            open_paths(**arguments)
        assert reason in str(error.value) and "--out" in str(error.value)
    monkeypatch.setattr(manifest, "FORMAT", newer := manifest.FORMAT + 1)
    with pytest.raises(ConfigError, match=f"format was {newer - 1}, is now {newer}"):
        open_paths("card", detector, "out")
    assert contents("out") == before


def test_suppression_follows_the_settings_of_the_study_or_else_of_the_model(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 1).parent)
    Path("study.yaml").write_text('{"collections": {"card": {"root": "card"}}}')
    default = open_run(resolve_inputs(["study.yaml"]), detector, "default").config
    inputs = resolve_inputs(
        ["study.yaml"], overrides=["detection.nms_iou_threshold=0.7", "detection.max_detections=9"]
    )
    chosen = open_run(inputs, detector, "chosen").config
    assert default.detection == {"score_threshold": 0.05, "nms_iou_threshold": 0.2, "max_detections": 200}
    assert chosen.detection == {"score_threshold": 0.05, "nms_iou_threshold": 0.7, "max_detections": 9}
    assert default.threshold == chosen.threshold == 0.3


def test_notes_report_later_recordings_and_copies(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    assert open_paths(root, detector, tmp_path / "out").notes == ()
    (root / "copy.wav").write_bytes((root / "A" / "20230510_003000.WAV").read_bytes())
    (note,) = open_paths(root, detector, tmp_path / "out").notes
    assert "covers the 2 recordings that existed when it started; now there are 3" in note and "--out" in note
    (note,) = open_paths(root, detector, tmp_path / "new").notes
    assert note.startswith(
        "1 recording is a copy of another, and events in them count twice: see the column duplicate_of of "
    )


def test_a_drive_may_be_mounted_elsewhere_when_the_run_resumes(detector, tmp_path):
    root = card(tmp_path / "usb1" / "card", 4)
    whole = process_missing(open_paths(root, detector, tmp_path / "whole"))
    first = process_missing(open_paths(root, detector, tmp_path / "out"), Shard(1, 2))
    (tmp_path / "usb2").mkdir()
    root.rename(tmp_path / "usb2" / "card")
    process_missing(open_paths(tmp_path / "usb2" / "card", detector, tmp_path / "out"))
    assert contents(first.out) == contents(whole.out)


def test_a_folder_with_an_altered_run_is_refused(detector, tmp_path):
    root, out = card(tmp_path / "card", 3), tmp_path / "out"
    open_paths(root, detector, out)
    open_paths(root / "A", detector, tmp_path / "less")
    table = (out / "recordings.parquet").read_bytes()
    (out / "recordings.parquet").write_bytes((tmp_path / "less" / "recordings.parquet").read_bytes())
    with pytest.raises(ConfigError, match="a collection that its metadata does not describe"):
        open_paths(root, detector, out)
    process_missing(open_paths(card(tmp_path / "more" / "card", 4), detector, tmp_path / "more-out"))
    (out / "recordings.parquet").write_bytes((tmp_path / "more-out" / "recordings.parquet").read_bytes())
    with pytest.raises(StorageError, match="was changed since this run started"):
        open_paths(root, detector, out)
    (out / "recordings.parquet").unlink()
    with pytest.raises(StorageError, match="is missing, and the run cannot resume without it"):
        open_paths(root, detector, out)
    (out / "recordings.parquet").write_bytes(table)
    for text in ("half a", "[]", '{"settings": {}}'):
        (out / "run.json").write_text(text)
        with pytest.raises(StorageError, match="was not written by MAST"):
            open_paths(root, detector, out)


def test_a_shard_that_starts_while_another_does_uses_the_table_of_the_first(detector, tmp_path, monkeypatch):
    root, out = card(tmp_path / "card", 2), tmp_path / "out"
    first = open_paths(root, detector, tmp_path / "first")

    def faster(inputs, on_progress):
        shutil.copytree(first.out, out)  # while this shard still scans
        card(root, 3)
        return table_of(inputs, on_progress)

    monkeypatch.setattr(run_module, "table_of", faster)
    second = open_paths(root, detector, out)
    assert second.plan.recordings == 2
    assert second.config.fingerprint == first.config.fingerprint


def test_parts_of_another_run_in_the_folder_are_an_error(detector, tmp_path):
    run = process_missing(open_paths(card(tmp_path / "card", 4), detector, tmp_path / "out"))
    other = process_missing(
        open_paths(card(tmp_path / "other" / "card", 5), detector, tmp_path / "other-out")
    )
    Path(run.config.status(1)).write_bytes(Path(other.config.status(1)).read_bytes())
    with pytest.raises(StorageError, match="part-000001.parquet belongs to another run: .* --out"):
        run_local(run, ONE)


def test_a_dry_run_describes_the_work_and_writes_nothing(detector, tmp_path):
    root, out = card(tmp_path / "card"), tmp_path / "out"
    with plan_run(resolve_inputs([str(root)]), detector, str(out)) as planned:
        summary = planned.summary(Shard(2, 2))
    assert summary.splitlines() == [
        f"6 recordings, 0.2 min of audio, in 3 parts of about 0.1 min → {out}",
        f"Model {planned.config.identity}, score threshold 0.3",
        "Shard 2 of 2: 1 part",
        "Parts: 0 done, 1 to do (0.1 min of audio)",
    ]
    assert not out.exists()
    run = process_missing(open_paths(root, detector, out))
    for number in range(3):
        os.utime(run.config.status(number), (1e9 + 600 * number,) * 2)
    Path(run.config.status(1)).rename(out / "aside")
    with plan_run(resolve_inputs([str(root)]), detector, str(out)) as planned:
        assert "Parts: 2 done, 1 to do" in planned.summary()
        assert "Estimated time" not in planned.summary()
    for number in range(3, 20):
        Path(run.config.status(number)).touch()
        os.utime(run.config.status(number), (1e9 + 600 * number,) * 2)
    with plan_run(resolve_inputs([str(root)]), detector, str(out)) as planned:
        assert planned.summary().endswith("Estimated time at the current pace: 10 minutes")


@pytest.mark.parametrize(
    ("seconds", "text"), [(50, "50 seconds"), (600, "10 minutes"), (7200, "2 hours"), (1e6, "12 days")]
)
def test_durations_are_rounded(seconds, text):
    assert run_module._duration(seconds) == text


def test_an_impossible_score_is_refused(detector, tmp_path):
    with pytest.raises(ConfigError, match="--min-score 30: specify a number from 0 to 1"):
        open_paths(card(tmp_path / "card", 1), detector, tmp_path / "out", min_score=30.0)


def test_statistics_count_reasons_that_differ_only_in_numbers_together(detector, tmp_path, monkeypatch):
    run = open_paths(faulty_card(tmp_path / "card", 2), detector, tmp_path / "out")
    loaded = worker.load_detector_for_run(run.config, "cpu")
    crashes = {row: f"the audio ends at {row}.5 s." for row in (0, 1)}
    worker.process_part(worker.Part(0, 0, 4, 0.0), run.config, loaded, crashes)
    stats = read_run_stats([run.config.status(0)], run.config.fingerprint)
    assert (stats.recordings, stats.quarantined, stats.processed_s, stats.events) == (4, 4, 0.0, 0)
    assert stats.reasons.most_common(1) == [("the audio ends at … s.", 2)]
    assert "2 × the audio ends at … s." in stats.summary()
    monkeypatch.setattr("mast.runs.stats.MAX_REASONS", 1)
    monkeypatch.setattr("mast.runs.stats.SHOWN_REASONS", 1)
    limited = read_run_stats([run.config.status(0)], run.config.fingerprint)
    assert limited.reasons["other reasons"] == 2
    assert limited.summary().endswith("and 1 more reason")


def test_durations_are_in_hours_or_below_one_hour_in_minutes():
    assert [format_duration(seconds) for seconds in (0, 90, 3599, 3600, 1e7)] == [
        "0.0 min", "1.5 min", "60.0 min", "1.0 h", "2,778 h",
    ]  # fmt: skip


def test_speed_is_measured_from_the_first_processed_audio():
    meter = ThroughputMeter(100.0)
    assert meter.progress(0.0) == RunProgress(0.0, 100.0, 0.0)
    assert meter.progress(10.0).remaining_s is None
    time.sleep(0.05)
    later = meter.progress(20.0)
    assert 0 < later.speed <= 10 / 0.05
    assert later.remaining_s == pytest.approx(80 / later.speed)
    assert meter.progress(15.0).done_s == 20.0  # a part is repeated


def test_an_unusable_gpu_gives_a_warning(monkeypatch):
    monkeypatch.setattr(local.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(local, "_is_gpu_available", lambda: None)
    assert choose_compute("auto", 3) == ComputeResources("cpu", 3)
    monkeypatch.setattr(local, "_is_gpu_available", lambda: "an NVIDIA GPU")
    assert "There is an NVIDIA GPU, but it cannot be used" in choose_compute().warning
    assert choose_compute("cpu").warning is None
    monkeypatch.setattr(local.torch.version, "cuda", None)
    assert "this torch was installed without CUDA" in choose_compute().warning

    def warns():
        local.warnings.warn("The driver is too old", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(local.torch.cuda, "is_available", warns)
    assert "The driver is too old" in choose_compute().warning
    with pytest.raises(ConfigError, match="--workers 0: specify 1 or more"):
        choose_compute("cpu", 0)


def test_compute_resources_are_described(monkeypatch):
    assert ONE.describe() == "Running on 1 CPU core"
    assert TWO.describe() == "Running on 2 CPU cores"
    monkeypatch.setattr(local.torch.cuda, "get_device_name", lambda _: "RTX 5080")
    assert ComputeResources("cuda", 4, gpus=1).describe() == "Running on 1 × RTX 5080, 4 processes"
    monkeypatch.setattr(local, "resolve_device", lambda _: "cuda")
    monkeypatch.setattr(local, "available_cores", lambda: 64)
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 2)
    assert choose_compute() == ComputeResources("cuda", 8, gpus=2)


def test_a_gpu_is_detected_by_what_the_system_has(monkeypatch):
    monkeypatch.setattr(local.shutil, "which", lambda name: None)
    monkeypatch.setattr(local.Path, "exists", lambda self: False)
    assert local._is_gpu_available() is None
    monkeypatch.setattr(local.sys, "platform", "darwin")
    monkeypatch.setattr(local.torch.backends.mps, "is_available", lambda: True)
    assert local._is_gpu_available() == "an Apple GPU"
    monkeypatch.setattr(local.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    assert local._is_gpu_available() == "an NVIDIA GPU"


@pytest.mark.parametrize(
    ("end", "stats", "missing", "code", "message"),
    [
        ("finished", RunStats(ok=1), 0, 0, "Events: out/events; status of every recording: out/status"),
        ("finished", RunStats(quarantined=1), 0, 3, "Copy these files from their cards again"),
        ("finished", RunStats(ok=1), 4, 0, "4 parts of other shards still to process."),
        (
            "stopped",
            RunStats(quarantined=1),
            4,
            143,
            "Stopped. Finished parts are kept in out; run the same command again to resume.",
        ),
        (
            "interrupted",
            RunStats(),
            4,
            130,
            "Stopped. Finished parts are kept in out; run the same command again to resume.",
        ),
    ],
)
def test_every_outcome_has_its_exit_code_and_its_next_step(end, stats, missing, code, message):
    outcome = Outcome("out", end, stats, missing)
    assert outcome.exit_code == code
    assert message in outcome.summary()
    step = "Next: mast report out summarises the events, mast review out opens them for review."
    assert outcome.next_step() == (None if missing else step)


FAKE_WORKER = """
import json, os, signal, sys, time
from pathlib import Path
from mast.workers.process import PROGRESS, worker_main

config = json.loads(sys.argv[1])

def serve(jobs, answer):
    for line in jobs:
        (number, first, stop, _), crashed = json.loads(line)["part"], dict(json.loads(line)["crashed"])
        for row in range(first, stop):
            if row not in crashed:
                answer({PROGRESS: [row, float(row - first)]})
                with open(config["out"] + "/processed", "a") as file:
                    file.write(f"{row} ")
                run_behaviour(row)
        answer(final_answer())

def count(row):
    return Path(config["out"], "processed").read_text().split().count(str(row))

def run_behaviour(row):
    BEHAVIOUR

def final_answer():
    return ANSWER

if __name__ == "__main__":
    worker_main(lambda: serve)
"""


class FakeWorkers:
    """Worker processes that only report progress, and behave and answer as specified."""

    def __init__(self, folder, monkeypatch, behaviour="pass", answer="{}"):
        (folder / "fake_worker.py").write_text(
            FAKE_WORKER.replace("BEHAVIOUR", behaviour).replace("ANSWER", answer)
        )
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(supervisor.WorkerSupervisor, "module", "fake_worker")
        self.folder = folder

    def pool(self, count=1):
        config = {"out": str(self.folder)}
        return local.worker_pool(supervisor.WorkerSupervisor, config, ComputeResources("cpu", count), count)

    def finished(self, parts, count=1):
        return sorted(part.number for part in self.pool(count).run(parts) if part)

    def processed(self):
        return (self.folder / "processed").read_text().split()


PARTS = [worker.Part(number, 5 * number, 5 * number + 5, 5.0) for number in range(4)]


def test_a_recording_that_crashes_processes_twice_is_quarantined_and_others_are_processed(
    tmp_path, monkeypatch
):
    workers = FakeWorkers(tmp_path, monkeypatch, "row == 7 and os.abort()")
    jobs = []
    real = WorkerProcess.call
    monkeypatch.setattr(WorkerProcess, "call", lambda self, job, on: jobs.append(job) or real(self, job, on))
    pool = workers.pool()
    assert [part.number for part in pool.run(PARTS) if part] == [0, 1, 2, 3]
    assert [job["crashed"] for job in jobs if job["part"].number == 1] == [
        [], [], [(7, "crashed the worker process 2×: SIGABRT")],
    ]  # fmt: skip
    assert workers.processed() == [*map(str, [*range(5), 5, 6, 7, 5, 6, 7, 5, 6, 8, 9, *range(10, 20)])]
    assert pool.progress == 20.0


def test_a_recording_at_which_processes_are_killed_gets_more_attempts(tmp_path, monkeypatch):
    workers = FakeWorkers(tmp_path, monkeypatch, "row == 7 and os.kill(os.getpid(), 9)")
    assert workers.finished(PARTS[1:2]) == [1]
    assert workers.processed().count("7") == supervisor.MAX_KILLS == 4


def test_a_part_is_tried_again_while_a_network_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    failing = '{"error": "no route.", "is_transient": True}'
    workers = FakeWorkers(tmp_path, monkeypatch, answer=f"{failing} if count(0) < 3 else {{}}")
    assert workers.finished(PARTS[:1]) == [0]
    assert workers.processed().count("0") == 3
    workers = FakeWorkers(tmp_path, monkeypatch, answer=failing)
    with pytest.raises(
        StorageError, match="no route. Finished parts are kept; run the same command again to resume"
    ):
        workers.finished(PARTS[:1])
    assert workers.processed().count("0") == 3 + supervisor.MAX_ATTEMPTS


def test_a_process_that_is_killed_once_repeats_its_part(tmp_path, monkeypatch):
    workers = FakeWorkers(tmp_path, monkeypatch, "row == 6 and count(row) == 1 and os.kill(os.getpid(), 9)")
    assert workers.finished(PARTS, 2) == [0, 1, 2, 3]
    assert workers.processed().count("6") == 2


def test_repeated_crashes_stop_the_run_with_the_last_line_of_stderr(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "MAX_IDLE_CRASHES", 3)
    workers = FakeWorkers(tmp_path, monkeypatch, "raise RuntimeError('layer 3 is broken')")
    with pytest.raises(MastError, match=r"crash repeatedly \(RuntimeError: layer 3 is broken\).*--workers"):
        workers.finished(PARTS)
    assert workers.processed() == ["0", "0", "1"]


def test_processes_that_cannot_start_report_the_reason(tmp_path, monkeypatch):
    workers = FakeWorkers(tmp_path, monkeypatch, "pass")
    (tmp_path / "fake_worker.py").write_text("raise ImportError('no such thing')")
    with pytest.raises(MastError, match="a detecting process could not start: ImportError: no such thing"):
        workers.finished(PARTS)


def test_closing_the_generator_stops_all_processes(tmp_path, monkeypatch):
    workers = FakeWorkers(tmp_path, monkeypatch, "row > 5 and time.sleep(60)")
    pool = workers.pool(2)
    finished = pool.run(PARTS)
    assert next(item for item in finished if item).number == 0
    assert next(finished) is None  # no part finished, but time to report progress
    workers = [supervisor.process for supervisor in pool._supervisors]
    processes = [worker._process for worker in workers]
    finished.close()
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
    assert {worker.ending for worker in workers} == {"SIGKILL, as when memory runs out"}


def test_a_worker_answers_until_its_parent_exits_even_if_it_prints_in_between(tmp_path, monkeypatch):
    FakeWorkers(tmp_path, monkeypatch, behaviour="print('decoder output')")
    config = json.dumps({"out": str(tmp_path)})
    jobs = "".join(json.dumps({"part": item, "crashed": []}) + "\n" for item in PARTS[:2])
    command = [sys.executable, "-P", "-m", "fake_worker", config]
    child = subprocess.run(
        command, input=jobs, capture_output=True, text=True, env=child_environment(), check=False
    )
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    assert answers[0] == {"ready": True} and answers.count({}) == 2
    assert [answer[PROGRESS][0] for answer in answers if PROGRESS in answer] == [*range(10)]
    assert "decoder output" in child.stderr and child.returncode == 0


CRASH = """
import os, mast.audio.reader as reader
real = reader.Audio.read_samples
def read_samples(self, first, stop):
    if "B/" in self.location:
        os.abort()
    return real(self, first, stop)
reader.Audio.read_samples = read_samples
"""


def test_a_decoder_that_crashes_costs_one_recording_only(detector, tmp_path, monkeypatch):
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(CRASH)
    monkeypatch.syspath_prepend(str(tmp_path / "hook"))
    monkeypatch.setattr(supervisor, "MAX_CRASHES", 1)
    run = open_paths(card(tmp_path / "card", 3), detector, tmp_path / "out")
    outcome = run_local(run, ONE)
    assert (outcome.end, outcome.exit_code) == ("finished", 3)
    assert [(row["status"], row["reason"]) for row in rows(run.out, "status")] == [
        ("ok", None),
        ("ok", None),
        ("quarantined", "crashed the worker process 1×: SIGABRT"),
    ]


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of a few kilobytes, and return its folder."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no permission to mount a small disk here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_an_error_and_the_run_resumes_when_there_is_space(detector, tmp_path, small_disk):
    root = card(tmp_path / "card", 12)
    whole = process_missing(open_paths(root, detector, tmp_path / "whole"))
    run = open_paths(root, detector, small_disk / "out")
    with pytest.raises(
        StorageError,
        match="No space left on device. Finished parts are kept; run the same command again to resume",
    ):
        run_local(run, ONE)
    assert 0 < len(run.missing()) < len(run.plan)
    assert not [*small_disk.rglob(".*.partial")]
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    assert contents(process_missing(run).out) == contents(whole.out)


def test_a_part_whose_write_fills_the_disk_is_still_missing(detector, tmp_path, monkeypatch):
    run = open_paths(card(tmp_path / "card", 2), detector, tmp_path / "out")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mast.storage.os.fsync", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        process_missing(run)
    assert run.missing().tolist() == [0]
    assert [path.name for path in Path(run.out).rglob("*.partial")] == []


def test_partial_files_of_killed_processes_are_deleted_when_all_parts_are_done(detector, tmp_path):
    run = process_missing(open_paths(card(tmp_path / "card", 4), detector, tmp_path / "out"), Shard(1, 2))
    partial = tmp_path / "out" / "events" / ".part-000001.parquet.77.partial"
    partial.write_bytes(b"half")
    run.clean_up()
    assert partial.exists()
    assert run_local(process_missing(run), ONE).missing == 0
    assert not partial.exists()


def wait_for_parts(process, out: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    while len([*out.glob("status/part-*")]) < count and time.monotonic() < deadline:
        assert process.is_alive(), "the process ended too early"
        time.sleep(0.002)


def test_a_run_that_is_killed_terminated_and_interrupted_equals_an_uninterrupted_run(detector, tmp_path):
    root, out = faulty_card(tmp_path / "card", 48), tmp_path / "out"
    whole = process_missing(open_paths(root, detector, tmp_path / "whole"))
    arguments = ["detect", str(root), "--model", detector, "--out", str(out), "--device", "cpu", "--workers"]
    rng, codes = np.random.default_rng(0), []
    for parts, number in ((1, signal.SIGKILL), (6, signal.SIGTERM), (11, signal.SIGINT)):
        process = start([*arguments, "1"], tmp_path / "output", part_s=4.0)
        wait_for_parts(process, out, parts)
        time.sleep(rng.uniform(0, 0.02))
        os.kill(process.pid, number)
        process.join(60)
        codes.append(process.exitcode)
        assert (number == signal.SIGKILL) or "run the same command again to resume" in (
            tmp_path / "output"
        ).read_text()
    assert codes == [-signal.SIGKILL, 143, 130]
    assert 11 <= len([*out.glob("status/part-*")]) < len(whole.plan)
    process = start([*arguments, "2"], tmp_path / "output", part_s=4.0)
    process.join(300)
    output = (tmp_path / "output").read_text()
    assert process.exitcode == 3
    assert "Running on 2 CPU cores" in output and "50 recordings" in output and "2 quarantined" in output
    assert contents(out) == contents(whole.out)


def test_the_command_prints_its_plan_and_refuses_invalid_options(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 2).parent)

    def mast(*arguments):
        return CliRunner().invoke(app, ["detect", "card", "--model", detector, *arguments])

    planned = mast("--dry-run", "--shard", "1/2")
    assert planned.exit_code == 0
    assert "2 recordings" in planned.output and "Shard 1 of 2: 1 part" in planned.output
    assert not Path("events").exists()
    assert "write it as 3/10" in str(mast("--shard", "3").exception)
    process_missing(open_paths("card", detector, "events"))
    done = mast("--workers", "1")
    assert done.exit_code == 0, done.output
    assert "2 recordings" in done.output and "Events: " in done.output
    assert json.loads(Path("events/run.json").read_text())["recordings"] == 2
