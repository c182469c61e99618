"""The command line as people meet it: messages instead of stack traces, exit codes, and an answer at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast import __version__
from mast.cli import app, main
from mast.example import write_example

MAST = [sys.executable, "-c", "from mast.cli import main; main()"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example") / "demo"
    write_example(folder)
    return folder


@pytest.fixture
def desk(tmp_path, monkeypatch, demo):
    (tmp_path / "demo").symlink_to(demo)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mast(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def failing(capsys, monkeypatch, *words: str) -> str:
    """What `mast` says as it exits with 1."""
    monkeypatch.setattr(sys, "argv", ["mast", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    return capsys.readouterr().err


def test_help_answers_in_under_half_a_second_and_loads_nothing_heavy():
    times_s = []
    for _ in range(3):
        before = os.times()
        subprocess.run([*MAST, "--help"], check=True, capture_output=True)
        after = os.times()  # of the processor: others may be at work, too
        times_s.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert 0 < min(times_s) < 0.5
    heavy = "torch", "pyarrow", "numpy", "matplotlib", "duckdb", "pydantic", "soundfile"
    check = f"import sys, mast.cli; sys.exit(', '.join(m for m in {heavy} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False).stderr
    assert loaded.strip() == ""


def test_the_version_is_told():
    assert mast("--version").strip() == __version__


def test_a_scan_tells_and_writes_what_it_found(desk):
    output = mast("scan", "demo/card", "--out", "table.parquet")
    assert "16 recordings" in output
    assert "2 quarantined" in output
    assert Path("table.parquet").is_file()


def test_a_study_is_scanned_into_its_work_folder_with_its_expert_boxes(desk):
    Path("study.yaml").write_text(
        "collections: {card: {root: demo/card}}\nannotations: [{path: demo/boxes, format: raven}]\n"
    )
    output = mast("scan", "study.yaml", "--set", "labels.noise=[insect]")
    assert "42 animal, 6 noise; 9 recordings reviewed" in output
    assert sorted(path.name for path in Path("work").iterdir()) == [
        "annotations.parquet",
        "made.json",
        "recordings.parquet",
        "reviewed.parquet",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scan", "nowhere"], "there is no such folder"),
        (["scan", "demo/card", "--set", "a=b"], "--set changes the settings of a study file"),
        (["scan", "study.yaml", "demo/card"], "With a study file"),
        (["scan", "study.yaml"], "no collections"),
        (["scan", "labels.yaml"], "'hoot': 8"),
        (["scan", "demo/card", "--time-zone", "Mars/Base"], "not a time zone"),
        (["show", "nowhere.wav"], "there is no such file"),
        (["show", "demo/card/B1/notes.wav"], "not a sound file"),
        (["show", "demo/card/A1/20240511_073000.WAV", "--from", "soon"], "write seconds, such as 90"),
        (["show", "demo/card/A1/20240511_073000.WAV", "--to", "1:2:3:4"], "write seconds, such as 90"),
        (["show", "demo/card/A1/20240511_073000.WAV", "--boxes", "nowhere.txt"], "nowhere.txt"),
        (["convert", "demo/boxes", "x", "--to", "raben"], "--to raben: no such format. Use raven"),
        (["convert", "nowhere", "x", "--to", "csv"], "no such file"),
        (["config", "nowhere.yaml"], "no such study file"),
        (["config", "--set", "spectogram.bins=3"], "Did you mean spectrogram?"),
        (["example", "demo"], "is not empty"),
    ],
)
def test_a_mistake_is_one_message_that_says_what_to_do_and_exit_code_1(
    desk, capsys, monkeypatch, words, message
):
    Path("study.yaml").write_text("work: w\n")
    Path("labels.yaml").write_text(
        "collections: {card: {root: demo/card}}\nannotations: [{path: demo/boxes, format: raven}]\n"
        "labels: {animal: [trill, whistle, frog, insect, two-note song]}\n"
    )
    said = failing(capsys, monkeypatch, *words)
    assert message in said
    assert "Traceback" not in said


def test_a_full_disk_is_told_and_other_defects_are_not_hidden(capsys, monkeypatch):
    import errno

    def fails_with(number: int):
        def write(folder):
            raise OSError(number, "told by the system")

        return write

    monkeypatch.setattr("mast.example.write_example", fails_with(errno.ENOSPC))
    assert "The disk is full. Make room" in failing(capsys, monkeypatch, "example", "new")
    monkeypatch.setattr("mast.example.write_example", fails_with(errno.EIO))
    with pytest.raises(OSError, match="told by the system"):
        main()


def test_times_may_be_seconds_minutes_or_hours(desk):
    recording = "demo/card/A1/20240511_073000.WAV"
    assert "7.5 s to 30 s" in mast("show", recording, "--from", "0:00:07.5", "--out", "a.png")
    assert "7 s to 14 s" in mast("show", recording, "--from", "7", "--to", "0:14", "--out", "a.png")


def test_a_picture_is_named_after_its_recording(desk):
    mast("show", "demo/card/A1/20240511_073000.WAV")
    assert Path("20240511_073000.png").is_file()


def test_conversions_tell_what_they_did(desk):
    assert "48 events in 9 recordings" in mast("convert", "demo/boxes", "boxes.csv", "--to", "csv")
    assert "boxes.csv (csv)" in mast("convert", "boxes.csv", "again", "--to", "raven", "--from", "csv")


def test_a_study_goes_from_init_to_prepared_and_status_knows_at_every_step(desk):
    assert "sites: A1, A2, B1" in mast("init", "demo/card", "--boxes", "demo/boxes", "--site", "{site}/*")
    assert "Next: mast scan study.yaml" in mast("status", "study.yaml")
    mast("scan", "study.yaml")
    assert "Next: mast splits study.yaml" in mast("status", "study.yaml")
    assert "train" in mast("splits", "study.yaml")
    assert "Next: mast prepare study.yaml" in mast("status", "study.yaml")
    assert "Normalisation band-median" in mast("prepare", "study.yaml")
    assert "Next: mast train study.yaml" in mast("status", "study.yaml")
    assert "out of date" in mast("status", "study.yaml", "--set", "chunking.hop_s=2.56")
    assert "13 recordings" in mast("prepare", "study.yaml")
    assert "audiomae" not in mast("prepare", "study.yaml", "--set", "normalisation=audiomae")


def test_a_budget_is_cut_out_and_collected(desk):
    mast("init", "demo/card", "--site", "{site}/*")
    mast("scan", "study.yaml")
    mast("splits", "study.yaml")
    assert "min → round" in mast("budget", "study.yaml", "--hours", "0.03", "--out", "round")
    assert "0 boxes" in mast("budget", "study.yaml", "--collect", "round")


def test_init_asks_a_person_for_what_the_recordings_do_not_tell(desk, monkeypatch):
    import numpy as np
    import soundfile

    Path("sm").mkdir()
    soundfile.write("sm/SM4_20240510_070000.wav", np.ones(800) / 9, 8000)
    soundfile.write("sm/nothing.wav", np.ones(800) / 9, 8000)
    answers = iter(["Asia/Kathmandu", "{site}_*", ""])
    monkeypatch.setattr("typer.prompt", lambda *args, **kwargs: next(answers))
    from mast.cli.study import init

    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": staticmethod(lambda: True)})())
    init("sm", out=Path("sm.yaml"))
    text = Path("sm.yaml").read_text()
    assert "time_zone: Asia/Kathmandu" in text
    assert "site: '{site}_*'" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init", "demo/card", "--out", "there.yaml"], "already there"),
        (["init", "nowhere"], "no such folder"),
        (["init", "demo/boxes"], "no recordings in this folder, nor below it. Is it the right one?"),
        (["init", "demo/card", "--preset", "phone"], "there is no 'phone'. Known: laptop, paper, trial."),
        (["splits", "there.yaml"], "mast scan"),
        (["budget", "there.yaml"], "mast splits"),
        (["budget", "there.yaml", "--strategy", "lucky"], "time-balanced"),
        (["prepare", "there.yaml"], "mast scan"),
    ],
)
def test_what_comes_too_early_is_told_what_to_do_first(desk, capsys, monkeypatch, words, message):
    Path("there.yaml").write_text("collections: {card: {root: demo/card}}\n")
    assert message in failing(capsys, monkeypatch, *words)
