"""Command line: messages instead of stack traces, exit codes, and fast help."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast import __version__
from mast.cli import app, main
from mast.example_data import write_example

MAST = [sys.executable, "-c", "from mast.cli import main; main()"]
GROUPS = {
    "Data": ["scan", "init", "status", "split", "sample", "prepare"],
    "Training": [
        "import-checkpoint",
        "pretrain",
        "train-synthetic",
        "train",
        "self-train",
        "evaluate",
        "compare",
    ],
    "Detection": ["detect", "models", "report", "export", "export-model"],
    "Review": ["review", "estimate-precision", "agreement", "apply-review", "users"],
    "Embeddings": ["embed", "search", "label-events", "cluster", "plot-embeddings"],
    "Tools": ["plot", "convert", "show-config", "example-data"],
}


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
    """Run `mast`, check that it exits with 1, and return its error message."""
    monkeypatch.setattr(sys, "argv", ["mast", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    return capsys.readouterr().err


def test_help_takes_less_than_half_a_second_and_imports_no_heavy_module():
    times_s = []
    for _ in range(3):
        before = os.times()
        subprocess.run([*MAST, "--help"], check=True, capture_output=True)
        after = os.times()  # CPU time, because other processes may be running
        times_s.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert 0 < min(times_s) < 0.5
    heavy = "torch", "pyarrow", "numpy", "matplotlib", "duckdb", "pydantic", "soundfile"
    check = f"import sys, mast.cli; sys.exit(', '.join(m for m in {heavy} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False).stderr
    assert loaded.strip() == ""


def test_the_version_is_printed():
    assert mast("--version").strip() == __version__


def test_a_scan_prints_a_summary_and_writes_a_table(desk):
    output = mast("scan", "demo/card", "--out", "table.parquet")
    assert "16 recordings" in output
    assert "2 quarantined" in output
    assert Path("table.parquet").is_file()


def test_a_study_is_scanned_into_its_work_folder_with_its_annotations(desk):
    Path("study.yaml").write_text(
        "collections: {card: {root: demo/card}}\nannotations: [{path: demo/boxes, format: raven}]\n"
    )
    output = mast("scan", "study.yaml", "--set", "labels.noise=[insect]")
    assert "42 animal, 6 noise; 9 recordings reviewed" in output
    assert sorted(path.name for path in Path("work").iterdir()) == [
        "annotations.parquet",
        "artifacts.json",
        "recordings.parquet",
        "reviewed.parquet",
    ]


def test_help_lists_all_commands_by_group_within_80_columns():
    environment = {**os.environ, "COLUMNS": "80"}
    output = subprocess.run(
        [*MAST, "--help"], check=True, capture_output=True, text=True, env=environment
    ).stdout
    sections = {}
    for line in output.splitlines():
        assert len(line) <= 80
        if line and not line.startswith(" "):
            commands = sections.setdefault(line.rstrip(":"), [])
        elif line.startswith("  ") and line[2] not in " -":
            commands.append(line.split()[0])
    assert {name: commands for name, commands in sections.items() if name in GROUPS} == GROUPS
    assert [name for name in sections if name in GROUPS] == list(GROUPS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scan", "nowhere"], "there is no such folder"),
        (["scan", "demo/card", "--set", "a=b"], "--set changes the settings of a study file"),
        (["scan", "study.yaml", "demo/card"], "With a study file"),
        (["scan", "study.yaml"], "no collections"),
        (["scan", "labels.yaml"], "'hoot': 8"),
        (["scan", "demo/card", "--time-zone", "Mars/Base"], "not a time zone"),
        (["plot", "nowhere.wav"], "there is no such file"),
        (["plot", "demo/card/B1/notes.wav"], "not a readable audio file"),
        (["plot", "demo/card/A1/20240511_073000.WAV", "--from", "soon"], "write seconds, such as 90"),
        (["plot", "demo/card/A1/20240511_073000.WAV", "--to", "1:2:3:4"], "write seconds, such as 90"),
        (["plot", "demo/card/A1/20240511_073000.WAV", "--annotations", "nowhere.txt"], "nowhere.txt"),
        (["convert", "demo/boxes", "x", "--to", "raben"], "--to raben: no such format. Use raven"),
        (["convert", "nowhere", "x", "--to", "csv"], "no such file"),
        (["show-config", "nowhere.yaml"], "no such study file"),
        (["show-config", "--set", "spectogram.n_mels=3"], "Did you mean spectrogram?"),
        (["example-data", "demo"], "is not empty"),
    ],
)
def test_a_user_error_is_one_message_with_a_remedy_and_exit_code_1(desk, capsys, monkeypatch, words, message):
    Path("study.yaml").write_text("work_dir: w\n")
    Path("labels.yaml").write_text(
        "collections: {card: {root: demo/card}}\nannotations: [{path: demo/boxes, format: raven}]\n"
        "labels: {animal: [trill, whistle, frog, insect, two-note song]}\n"
    )
    output = failing(capsys, monkeypatch, *words)
    assert message in output
    assert "Traceback" not in output


def test_a_full_disk_is_reported_and_other_errors_are_not_hidden(capsys, monkeypatch):
    import errno

    def fails_with(number: int):
        def write(folder):
            raise OSError(number, "reported by the system")

        return write

    monkeypatch.setattr("mast.example_data.write_example", fails_with(errno.ENOSPC))
    assert "The disk is full. Free some space" in failing(capsys, monkeypatch, "example-data", "new")
    monkeypatch.setattr("mast.example_data.write_example", fails_with(errno.EIO))
    with pytest.raises(OSError, match="reported by the system"):
        main()


def test_times_may_be_seconds_minutes_or_hours(desk):
    recording = "demo/card/A1/20240511_073000.WAV"
    assert "7.5 s to 30 s" in mast("plot", recording, "--from", "0:00:07.5", "--out", "a.png")
    assert "7 s to 14 s" in mast("plot", recording, "--from", "7", "--to", "0:14", "--out", "a.png")


def test_a_plot_is_named_after_its_recording(desk):
    mast("plot", "demo/card/A1/20240511_073000.WAV")
    assert Path("20240511_073000.png").is_file()


def test_conversions_print_a_summary(desk):
    assert "48 events in 9 recordings" in mast("convert", "demo/boxes", "boxes.csv", "--to", "csv")
    assert "boxes.csv (csv)" in mast("convert", "boxes.csv", "again", "--to", "raven", "--from", "csv")


def test_a_study_goes_from_init_to_prepare_and_status_prints_every_next_step(desk):
    assert "sites: A1, A2, B1" in mast(
        "init", "demo/card", "--annotations", "demo/boxes", "--site", "{site}/*"
    )
    assert "Next: mast scan study.yaml" in mast("status", "study.yaml")
    mast("scan", "study.yaml")
    assert "Next: mast split study.yaml" in mast("status", "study.yaml")
    assert "train" in mast("split", "study.yaml")
    assert "Next: mast prepare study.yaml" in mast("status", "study.yaml")
    assert "Normalisation band-median" in mast("prepare", "study.yaml")
    assert "Next: mast train study.yaml" in mast("status", "study.yaml")
    assert "out of date" in mast("status", "study.yaml", "--set", "chunking.hop_s=2.56")
    assert "13 recordings" in mast("prepare", "study.yaml")
    assert "audiomae" not in mast("prepare", "study.yaml", "--set", "normalisation=audiomae")


def test_a_sample_is_written_and_its_annotations_are_imported(desk):
    mast("init", "demo/card", "--site", "{site}/*")
    mast("scan", "study.yaml")
    mast("split", "study.yaml")
    assert "min → round" in mast("sample", "study.yaml", "--hours", "0.03", "--out", "round")
    assert "0 boxes" in mast("sample", "study.yaml", "--import", "round")


def test_init_prompts_for_missing_information(desk, monkeypatch):
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
        (["init", "demo/card", "--out", "there.yaml"], "already exists"),
        (["init", "nowhere"], "no such folder"),
        (["init", "demo/boxes"], "no recordings in this folder or its subfolders. Check the path."),
        (
            ["init", "demo/card", "--preset", "phone"],
            "there is no preset 'phone'. Available: laptop, paper, starter, trial.",
        ),
        (["split", "there.yaml"], "mast scan"),
        (["sample", "there.yaml"], "mast split"),
        (["sample", "there.yaml", "--strategy", "lucky"], "time-balanced"),
        (["prepare", "there.yaml"], "mast scan"),
    ],
)
def test_a_command_that_comes_too_early_prints_the_command_to_run_first(
    desk, capsys, monkeypatch, words, message
):
    Path("there.yaml").write_text("collections: {card: {root: demo/card}}\n")
    assert message in failing(capsys, monkeypatch, *words)


WRONG_PATHS = (
    "detect nowhere --model here",
    "detect here --model nowhere",
    *(
        f"{name} no.yaml"
        for name in ("pretrain", "train-synthetic", "train", "self-train", "split", "prepare")
    ),
    "sample no.yaml --hours 1",
    "evaluate no.yaml --model here",
    "plot-embeddings no.yaml --model here",
    "import-checkpoint no.pth --out x",
    "export-model nowhere --to onnx --out x",
    *(f"{name} nowhere" for name in ("report", "review", "estimate-precision", "agreement", "cluster")),
    "embed nowhere --model here",
    "search nowhere --query-event x",
    "label-events nowhere --examples no.yaml",
    "apply-review no.yaml",
)


def test_a_wrong_path_is_reported_before_torch_is_imported(tmp_path):
    (tmp_path / "here").mkdir()
    for name in ("weights.safetensors", "model.json"):
        (tmp_path / "here" / name).touch()
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom mast.cli import app\nfrom mast.errors import MastError\n"
        f"for line in {WRONG_PATHS!r}:\n"
        "    done = CliRunner().invoke(app, line.split())\n"
        "    assert isinstance(done.exception, MastError), (line, done.output, done.exception)\n"
        "    assert 'torch' not in sys.modules, line\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
