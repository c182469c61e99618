"""A run over an archive: the same files however it is shared out, stopped, killed or resumed, and never a mix of two."""

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
from mast.detection import archive as archive_module
from mast.detection import leading, local, part, story
from mast.detection.archive import Shard, open_archive, preview
from mast.detection.inputs import look_at, table_of
from mast.detection.local import Compute, choose_compute, run_local
from mast.detection.running import Outcome, Pace, Progress
from mast.detection.tally import Tally, tally_of
from mast.errors import ConfigError, MastError, StorageError
from mast.recordings.children import Child, child_environment
from mast.recordings.clocks import length
from tests.detection.archives import card, contents, heard, opened, rows, save_detector
from tests.detection.commands import start

pytestmark = pytest.mark.usefixtures("short_parts")
ONE, TWO = (Compute("cpu", processes) for processes in (1, 2))


def faulty_card(folder: Path, files: int = 8) -> Path:
    card(folder, files)
    (folder / "empty.wav").touch()
    (folder / "notes.wav").write_text("Dear diary, the frogs were loud. " * 9)
    return folder


def test_a_run_over_an_empty_folder_ends_at_once(detector, tmp_path):
    (tmp_path / "card").mkdir()
    outcome = run_local(opened(tmp_path / "card", detector, tmp_path / "out"), TWO)
    assert (outcome.end, outcome.exit_code, outcome.missing) == ("finished", 0, 0)
    assert outcome.summary().startswith("0 recordings, 0.0 min heard: 0 sounds in 0 of them, none in 0\n")


@pytest.mark.parametrize("count", [2, 5])
def test_shards_make_the_files_of_a_whole_run(detector, tmp_path, count):
    root = faulty_card(tmp_path / "card")
    whole = heard(opened(root, detector, tmp_path / "whole"))
    assert len(whole.plan) == 5
    for number in range(1, count + 1):
        shared = opened(root, detector, tmp_path / "shared")
        assert shared.missing(Shard(number, count)).tolist() == [*range(number - 1, 5, count)]
        heard(shared, Shard(number, count))
    assert contents(shared.out) == contents(whole.out)
    assert not len(shared.missing())


def test_what_is_done_is_not_done_again_and_a_part_without_a_status_is(detector, tmp_path):
    archive = heard(opened(card(tmp_path / "card"), detector, tmp_path / "out"))
    before = contents(archive.out)
    (tmp_path / "out" / "status" / "part-000001.parquet").unlink()
    (tmp_path / "out" / "events" / "part-000001.parquet").write_bytes(b"half")
    again = opened(tmp_path / "card", detector, tmp_path / "out")
    assert again.missing().tolist() == [1]
    assert contents(heard(again).out) == before


def test_another_model_or_other_settings_or_recordings_never_mix_in(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 2).parent)
    Path("other").mkdir()
    opened("card", detector, "out")
    before = contents("out")
    other = save_detector(tmp_path / "model", spectrogram=Spectrogram(high_hz=7000.0))
    refused = "holds the events of another run, and the two must not mix: "
    for options, why in (
        ({"model": other}, "model was"),
        ({"min_score": 0.5}, "threshold was 0.3, is now 0.5"),
        ({"min_score": 0.01}, "threshold was 0.3, is now 0.01; detection.min_score was 0.05, is now 0.01"),
        ({"time_zone": "Asia/Tokyo"}, "collections.card.time_zone was None, is now Asia/Tokyo"),
        ({"site": "{site}/*"}, "collections.card.site was None, is now {site}/*"),
        ({"paths": "other"}, "it is about card, not other"),
        ({"paths": ["card/A/20230510_003000.WAV", "card/B/20230510_013000.WAV"]}, "files was None"),
    ):
        words = {"paths": "card", "model": detector, "out": "out"} | options
        with pytest.raises(ConfigError, match=refused) as error:
            opened(**words)
        assert why in str(error.value) and "--out" in str(error.value)
    monkeypatch.setattr(story, "FORMAT", later := story.FORMAT + 1)
    with pytest.raises(ConfigError, match=f"format was {later - 1}, is now {later}"):
        opened("card", detector, "out")
    assert contents("out") == before


def test_a_study_decides_how_boxes_are_suppressed_and_else_the_model_does(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 1).parent)
    Path("study.yaml").write_text('{"collections": {"card": {"root": "card"}}}')
    plain = open_archive(look_at(["study.yaml"]), detector, "plain").orders
    stated = look_at(["study.yaml"], overrides=["detection.nms_iou=0.7", "detection.max_boxes=9"])
    chosen = open_archive(stated, detector, "chosen").orders
    assert plain.detection == {"min_score": 0.05, "nms_iou": 0.2, "max_boxes": 200}
    assert chosen.detection == {"min_score": 0.05, "nms_iou": 0.7, "max_boxes": 9}
    assert plain.threshold == chosen.threshold == 0.3


def test_recordings_that_came_later_or_are_copies_are_told(detector, tmp_path):
    root = card(tmp_path / "card", 2)
    assert opened(root, detector, tmp_path / "out").notes == ()
    (root / "copy.wav").write_bytes((root / "A" / "20230510_003000.WAV").read_bytes())
    (note,) = opened(root, detector, tmp_path / "out").notes
    assert "about the 2 recordings that were there when it began; now there are 3" in note and "--out" in note
    (note,) = opened(root, detector, tmp_path / "new").notes
    assert note.startswith("1 recordings are copies of others, and their sounds count twice")


def test_a_drive_may_be_mounted_elsewhere_when_the_run_goes_on(detector, tmp_path):
    root = card(tmp_path / "usb1" / "card", 4)
    whole = heard(opened(root, detector, tmp_path / "whole"))
    first = heard(opened(root, detector, tmp_path / "out"), Shard(1, 2))
    (tmp_path / "usb2").mkdir()
    root.rename(tmp_path / "usb2" / "card")
    heard(opened(tmp_path / "usb2" / "card", detector, tmp_path / "out"))
    assert contents(first.out) == contents(whole.out)


def test_a_folder_whose_run_was_meddled_with_is_refused(detector, tmp_path):
    root, out = card(tmp_path / "card", 3), tmp_path / "out"
    opened(root, detector, out)
    opened(root / "A", detector, tmp_path / "less")
    table = (out / "recordings.parquet").read_bytes()
    (out / "recordings.parquet").write_bytes((tmp_path / "less" / "recordings.parquet").read_bytes())
    with pytest.raises(ConfigError, match="a collection that it does not describe"):
        opened(root, detector, out)
    heard(opened(card(tmp_path / "more" / "card", 4), detector, tmp_path / "more-out"))
    (out / "recordings.parquet").write_bytes((tmp_path / "more-out" / "recordings.parquet").read_bytes())
    with pytest.raises(StorageError, match="was changed since this run began"):
        opened(root, detector, out)
    (out / "recordings.parquet").unlink()
    with pytest.raises(StorageError, match="is gone, and the run cannot go on without it"):
        opened(root, detector, out)
    (out / "recordings.parquet").write_bytes(table)
    for text in ("half a", "[]", '{"settings": {}}'):
        (out / "run.json").write_text(text)
        with pytest.raises(StorageError, match="is no run that MAST has written"):
            opened(root, detector, out)


def test_who_begins_while_another_does_takes_the_table_of_the_first(detector, tmp_path, monkeypatch):
    root, out = card(tmp_path / "card", 2), tmp_path / "out"
    first = opened(root, detector, tmp_path / "first")

    def faster(given, on_progress):
        shutil.copytree(first.out, out)  # while this one still scans
        card(root, 3)
        return table_of(given, on_progress)

    monkeypatch.setattr(archive_module, "table_of", faster)
    second = opened(root, detector, out)
    assert second.plan.recordings == 2
    assert second.orders.fingerprint == first.orders.fingerprint


def test_parts_of_two_runs_that_met_in_one_folder_are_told_apart(detector, tmp_path):
    archive = heard(opened(card(tmp_path / "card", 4), detector, tmp_path / "out"))
    other = heard(opened(card(tmp_path / "other" / "card", 5), detector, tmp_path / "other-out"))
    Path(archive.orders.status(1)).write_bytes(Path(other.orders.status(1)).read_bytes())
    with pytest.raises(StorageError, match="part-000001.parquet is of another run: .* --out"):
        run_local(archive, ONE)


def test_a_look_ahead_tells_what_there_is_to_do_and_writes_nothing(detector, tmp_path):
    root, out = card(tmp_path / "card"), tmp_path / "out"
    with preview(look_at([str(root)]), detector, str(out)) as planned:
        told = planned.summary(Shard(2, 2))
    assert told.splitlines() == [
        f"6 recordings, 0.2 min of sound, in 3 parts of about 0.1 min → {out}",
        f"Model {planned.orders.identity}, sounds from a score of 0.3",
        "Shard 2 of 2: 1 parts",
        "0 parts done, 1 to do (0.1 min of sound)",
    ]
    assert not out.exists()
    archive = heard(opened(root, detector, out))
    for number in range(3):
        os.utime(archive.orders.status(number), (1e9 + 600 * number,) * 2)
    Path(archive.orders.status(1)).rename(out / "aside")
    with preview(look_at([str(root)]), detector, str(out)) as planned:
        assert "2 parts done, 1 to do" in planned.summary()
        assert "At the pace so far that takes about" not in planned.summary()
    for number in range(3, 20):
        Path(archive.orders.status(number)).touch()
        os.utime(archive.orders.status(number), (1e9 + 600 * number,) * 2)
    with preview(look_at([str(root)]), detector, str(out)) as planned:
        assert planned.summary().endswith("At the pace so far that takes about 10 minutes")


@pytest.mark.parametrize(
    ("seconds", "told"), [(50, "50 seconds"), (600, "10 minutes"), (7200, "2 hours"), (1e6, "12 days")]
)
def test_times_are_told_roughly(seconds, told):
    assert archive_module._duration(seconds) == told


def test_a_score_that_cannot_be_is_refused(detector, tmp_path):
    with pytest.raises(ConfigError, match="--min-score 30: give a number from 0 to 1"):
        opened(card(tmp_path / "card", 1), detector, tmp_path / "out", min_score=30.0)


def test_a_tally_counts_reasons_that_differ_only_in_numbers_as_one(detector, tmp_path, monkeypatch):
    archive = opened(faulty_card(tmp_path / "card", 2), detector, tmp_path / "out")
    ear = part.open_ear(archive.orders, "cpu")
    crashes = {row: f"the sound breaks off at {row}.5 s." for row in (0, 1)}
    part.hear_part(part.Part(0, 0, 4, 0.0), archive.orders, ear, crashes)
    tally = tally_of([archive.orders.status(0)], archive.orders.fingerprint)
    assert (tally.recordings, tally.quarantined, tally.heard_s, tally.events) == (4, 4, 0.0, 0)
    assert tally.reasons.most_common(1) == [("the sound breaks off at … s.", 2)]
    assert "2 × the sound breaks off at … s." in tally.summary()
    monkeypatch.setattr("mast.detection.tally.MAX_REASONS", 1)
    monkeypatch.setattr("mast.detection.tally.SHOWN_REASONS", 1)
    few = tally_of([archive.orders.status(0)], archive.orders.fingerprint)
    assert few.reasons["other reasons"] == 2
    assert few.summary().endswith("and 1 more reasons")


def test_sound_is_told_in_hours_or_in_minutes_where_it_is_less():
    assert [length(seconds) for seconds in (0, 90, 3599, 3600, 1e7)] == [
        "0.0 min", "1.5 min", "60.0 min", "1.0 h", "2,778 h",
    ]  # fmt: skip


def test_progress_is_measured_from_the_first_sound_on():
    pace = Pace(100.0)
    assert pace.progress(0.0) == Progress(0.0, 100.0, 0.0)
    assert pace.progress(10.0).remaining_s is None
    time.sleep(0.05)
    later = pace.progress(20.0)
    assert 0 < later.speed <= 10 / 0.05
    assert later.remaining_s == pytest.approx(80 / later.speed)
    assert pace.progress(15.0).done_s == 20.0  # a part is done again


def test_a_gpu_that_is_there_but_cannot_be_used_is_told(monkeypatch):
    monkeypatch.setattr(local.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(local, "_gpu_here", lambda: None)
    assert choose_compute("auto", 3) == Compute("cpu", 3)
    monkeypatch.setattr(local, "_gpu_here", lambda: "an NVIDIA GPU")
    assert "There is an NVIDIA GPU, but it cannot be used" in choose_compute().warning
    assert choose_compute("cpu").warning is None
    monkeypatch.setattr(local.torch.version, "cuda", None)
    assert "this torch was installed without CUDA" in choose_compute().warning

    def warns():
        local.warnings.warn("The driver is too old", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(local.torch.cuda, "is_available", warns)
    assert "The driver is too old" in choose_compute().warning
    with pytest.raises(ConfigError, match="--workers 0: give 1 or more"):
        choose_compute("cpu", 0)


def test_what_a_run_computes_on_is_told(monkeypatch):
    assert ONE.told() == "Running on 1 CPU core"
    assert TWO.told() == "Running on 2 CPU cores"
    monkeypatch.setattr(local.torch.cuda, "get_device_name", lambda _: "RTX 5080")
    assert Compute("cuda", 4, gpus=1).told() == "Running on 1 × RTX 5080, 4 processes"
    monkeypatch.setattr(local, "accelerator", lambda _: "cuda")
    monkeypatch.setattr(local, "cores", lambda: 64)
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 2)
    assert choose_compute() == Compute("cuda", 8, gpus=2)


def test_a_gpu_is_seen_by_what_the_system_has(monkeypatch):
    monkeypatch.setattr(local.shutil, "which", lambda name: None)
    monkeypatch.setattr(local.Path, "exists", lambda self: False)
    assert local._gpu_here() is None
    monkeypatch.setattr(local.sys, "platform", "darwin")
    monkeypatch.setattr(local.torch.backends.mps, "is_available", lambda: True)
    assert local._gpu_here() == "an Apple GPU"
    monkeypatch.setattr(local.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    assert local._gpu_here() == "an NVIDIA GPU"


@pytest.mark.parametrize(
    ("end", "tally", "missing", "code", "words"),
    [
        ("finished", Tally(ok=1), 0, 0, "Sounds: out/events, every recording: out/status"),
        ("finished", Tally(quarantined=1), 0, 3, "Copy such files from their cards once more"),
        ("finished", Tally(ok=1), 4, 0, "4 parts are still to do by other shards"),
        ("stopped", Tally(quarantined=1), 4, 143, "Stopped, and kept in out. The same command goes on"),
        ("interrupted", Tally(), 4, 130, "Stopped, and kept in out. The same command goes on"),
    ],
)
def test_every_end_has_its_code_and_its_next_step(end, tally, missing, code, words):
    outcome = Outcome("out", end, tally, missing)
    assert outcome.exit_code == code
    assert words in outcome.summary()
    step = "Next: mast report out tells what was heard, mast review out lets you check it."
    assert outcome.next_step() == (None if missing else step)


LIGHT = """
import json, os, signal, sys, time
from pathlib import Path
from mast.recordings.children import serve_parent

orders = json.loads(sys.argv[1])

def serve(jobs, answer):
    for line in jobs:
        (number, first, stop, _), crashed = json.loads(line)["part"], dict(json.loads(line)["crashed"])
        for row in range(first, stop):
            if row not in crashed:
                answer({"news": [row, float(row - first)]})
                with open(orders["out"] + "/heard", "a") as file:
                    file.write(f"{row} ")
                behave(row)
        answer(end())

def times(row):
    return Path(orders["out"], "heard").read_text().split().count(str(row))

def behave(row):
    BEHAVIOUR

def end():
    return ANSWER

if __name__ == "__main__":
    serve_parent(lambda: serve)
"""


class Light:
    """Children that do no more than tell where they are, and end as they are told."""

    def __init__(self, folder, monkeypatch, behaviour="pass", answer="{}"):
        (folder / "light_part.py").write_text(LIGHT.replace("BEHAVIOUR", behaviour).replace("ANSWER", answer))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(leading, "Child", lambda _, *rest: Child("light_part", *rest))
        self.folder = folder

    def crew(self, parts, count=1):
        orders = part.Orders(str(self.folder), "", "", "", {}, {}, {}, 0.3, 1.0)
        return local._Crew(orders, Compute("cpu", count), iter(parts), count)

    def heard(self):
        return (self.folder / "heard").read_text().split()


PARTS = [part.Part(number, 5 * number, 5 * number + 5, 5.0) for number in range(4)]


def test_a_recording_at_which_processes_end_twice_is_left_out_and_others_are_heard(tmp_path, monkeypatch):
    light = Light(tmp_path, monkeypatch, "row == 7 and os.abort()")
    asked = []
    real = Child.ask
    monkeypatch.setattr(Child, "ask", lambda self, job, on: asked.append(job) or real(self, job, on))
    crew = light.crew(PARTS)
    assert [item.number for item in crew.finished() if item] == [0, 1, 2, 3]
    assert [job["crashed"] for job in asked if job["part"].number == 1] == [
        [], [], [(7, "hearing it ended the process 2 times: SIGABRT")],
    ]  # fmt: skip
    assert light.heard() == [*map(str, [*range(5), 5, 6, 7, 5, 6, 7, 5, 6, 8, 9, *range(10, 20)])]
    assert crew.heard_s == 20.0


def test_a_recording_at_which_processes_are_killed_has_more_chances(tmp_path, monkeypatch):
    light = Light(tmp_path, monkeypatch, "row == 7 and os.kill(os.getpid(), 9)")
    assert [item.number for item in light.crew(PARTS[1:2]).finished() if item] == [1]
    assert light.heard().count("7") == leading.MAX_KILLS == 4


def test_a_part_is_begun_again_while_a_network_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(leading, "PAUSE_S", 0.01)
    failing = '{"error": "no route.", "may_pass": True}'
    light = Light(tmp_path, monkeypatch, answer=f"{failing} if times(0) < 3 else {{}}")
    assert [item.number for item in light.crew(PARTS[:1]).finished() if item] == [0]
    assert light.heard().count("0") == 3
    light = Light(tmp_path, monkeypatch, answer=failing)
    with pytest.raises(StorageError, match="no route. What is done is kept: the same command goes on"):
        [*light.crew(PARTS[:1]).finished()]
    assert light.heard().count("0") == 3 + leading.TRIES


def test_a_process_that_is_killed_once_does_its_part_again(tmp_path, monkeypatch):
    light = Light(tmp_path, monkeypatch, "row == 6 and times(row) == 1 and os.kill(os.getpid(), 9)")
    assert sorted(item.number for item in light.crew(PARTS, 2).finished() if item) == [0, 1, 2, 3]
    assert light.heard().count("6") == 2


def test_processes_that_end_again_and_again_end_the_run_with_their_last_words(tmp_path, monkeypatch):
    monkeypatch.setattr(leading, "FRUITLESS_DEATHS", 3)
    light = Light(tmp_path, monkeypatch, "raise RuntimeError('the network is made of cheese')")
    with pytest.raises(
        MastError, match=r"again and again \(RuntimeError: the network is made of cheese\).*--workers"
    ):
        [*light.crew(PARTS).finished()]
    assert light.heard() == ["0", "0", "1"]


def test_processes_that_cannot_start_say_why(tmp_path, monkeypatch):
    light = Light(tmp_path, monkeypatch, "pass")
    (tmp_path / "light_part.py").write_text("raise ImportError('no such thing')")
    with pytest.raises(MastError, match="a detecting process could not start: ImportError: no such thing"):
        [*light.crew(PARTS).finished()]


def test_whoever_stops_waiting_ends_all_processes(tmp_path, monkeypatch):
    light = Light(tmp_path, monkeypatch, "row > 5 and time.sleep(60)")
    crew = light.crew(PARTS, 2)
    finished = crew.finished()
    assert next(item for item in finished if item).number == 0
    assert next(finished) is None  # nothing new, but time to tell how far it is
    processes = [leader._child._process for leader in crew._leaders]
    finished.close()
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
    assert all(leader._child.ending == "SIGKILL, as when memory runs out" for leader in crew._leaders)


def test_a_child_answers_until_its_parent_is_gone_whatever_it_prints_in_between(tmp_path, monkeypatch):
    Light(tmp_path, monkeypatch, behaviour="print('decoders talk')")
    orders = json.dumps({"out": str(tmp_path)})
    jobs = "".join(json.dumps({"part": item, "crashed": []}) + "\n" for item in PARTS[:2])
    words = [sys.executable, "-P", "-m", "light_part", orders]
    child = subprocess.run(
        words, input=jobs, capture_output=True, text=True, env=child_environment(), check=False
    )
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    assert answers[0] == {"ready": True} and answers.count({}) == 2
    assert [answer["news"][0] for answer in answers if "news" in answer] == [*range(10)]
    assert "decoders talk" in child.stderr and child.returncode == 0


CRASH = """
import os, mast.recordings.decode as decode
real = decode.Audio.read_samples
def read_samples(self, first, stop):
    if "B/" in self.location:
        os.abort()
    return real(self, first, stop)
decode.Audio.read_samples = read_samples
"""


def test_a_decoder_that_crashes_costs_one_recording_only(detector, tmp_path, monkeypatch):
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(CRASH)
    monkeypatch.syspath_prepend(str(tmp_path / "hook"))
    monkeypatch.setattr(leading, "MAX_DEATHS", 1)
    archive = opened(card(tmp_path / "card", 3), detector, tmp_path / "out")
    outcome = run_local(archive, ONE)
    assert (outcome.end, outcome.exit_code) == ("finished", 3)
    assert [(row["status"], row["reason"]) for row in rows(archive.out, "status")] == [
        ("ok", None),
        ("ok", None),
        ("quarantined", "hearing it ended the process 1 times: SIGABRT"),
    ]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few kilobytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no right to mount a small disk here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(detector, tmp_path, small_disk):
    root = card(tmp_path / "card", 12)
    whole = heard(opened(root, detector, tmp_path / "whole"))
    archive = opened(root, detector, small_disk / "out")
    with pytest.raises(
        StorageError, match="No space left on device. What is done is kept: the same command goes on"
    ):
        run_local(archive, ONE)
    assert 0 < len(archive.missing()) < len(archive.plan)
    assert not [*small_disk.rglob(".*.partial")]
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    assert contents(heard(archive).out) == contents(whole.out)


def test_a_disk_that_fills_up_while_a_part_is_written_leaves_it_to_do(detector, tmp_path, monkeypatch):
    archive = opened(card(tmp_path / "card", 2), detector, tmp_path / "out")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mast.storage.os.fsync", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        heard(archive)
    assert archive.missing().tolist() == [0]
    assert [path.name for path in Path(archive.out).rglob("*.partial")] == []


def test_leftovers_of_killed_processes_go_when_all_is_done(detector, tmp_path):
    archive = heard(opened(card(tmp_path / "card", 4), detector, tmp_path / "out"), Shard(1, 2))
    left = tmp_path / "out" / "events" / ".part-000001.parquet.77.partial"
    left.write_bytes(b"half")
    archive.tidy()
    assert left.exists()
    assert run_local(heard(archive), ONE).missing == 0
    assert not left.exists()


def wait_for_parts(process, out: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    while len([*out.glob("status/part-*")]) < count and time.monotonic() < deadline:
        assert process.is_alive(), "it ended too early"
        time.sleep(0.002)


def test_a_run_that_is_killed_told_to_stop_and_interrupted_ends_as_one_that_was_left_alone(
    detector, tmp_path
):
    root, out = faulty_card(tmp_path / "card", 48), tmp_path / "out"
    whole = heard(opened(root, detector, tmp_path / "whole"))
    words = ["detect", str(root), "--model", detector, "--out", str(out), "--device", "cpu", "--workers"]
    rng, codes = np.random.default_rng(0), []
    for parts, number in ((1, signal.SIGKILL), (6, signal.SIGTERM), (11, signal.SIGINT)):
        process = start([*words, "1"], tmp_path / "said", part_s=4.0)
        wait_for_parts(process, out, parts)
        time.sleep(rng.uniform(0, 0.02))
        os.kill(process.pid, number)
        process.join(60)
        codes.append(process.exitcode)
        assert (number == signal.SIGKILL) or "The same command goes on" in (tmp_path / "said").read_text()
    assert codes == [-signal.SIGKILL, 143, 130]
    assert 11 <= len([*out.glob("status/part-*")]) < len(whole.plan)
    process = start([*words, "2"], tmp_path / "said", part_s=4.0)
    process.join(300)
    said = (tmp_path / "said").read_text()
    assert process.exitcode == 3
    assert "Running on 2 CPU cores" in said and "50 recordings" in said and "2 quarantined" in said
    assert contents(out) == contents(whole.out)


def test_the_command_tells_its_plan_and_refuses_what_makes_no_sense(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(card(tmp_path / "card", 2).parent)

    def mast(*words):
        return CliRunner().invoke(app, ["detect", "card", "--model", detector, *words])

    looked = mast("--dry-run", "--shard", "1/2")
    assert looked.exit_code == 0
    assert "2 recordings" in looked.output and "Shard 1 of 2: 1 parts" in looked.output
    assert not Path("events").exists()
    assert "write it as 3/10" in str(mast("--shard", "3").exception)
    heard(opened("card", detector, "events"))
    done = mast("--workers", "1")
    assert done.exit_code == 0, done.output
    assert "2 recordings" in done.output and "Sounds: " in done.output
    assert json.loads(Path("events/run.json").read_text())["recordings"] == 2
