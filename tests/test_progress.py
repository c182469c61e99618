"""Progress lines in a log: without a terminal there is no bar, but lines at intervals show the progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mast.cli import progress
from mast.cli.progress import detection_bar, progress_bars, training_bar
from mast.runs.outcome import RunProgress as Pace
from mast.training.loop import Progress

STEP = Progress(step=120, steps=480, epoch=4, loss=1.25, hours_per_hour=19.0, remaining_s=1500.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the clock in seconds; a test sets it."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_training_logs_its_progress_and_remaining_time(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with training_bar("Training") as on_progress:
        for clock[0] in (10.0, 70.0, 80.0, 360.0, 370.0, 380.0):
            on_progress(STEP)
    line = "Training: 25%, epoch 5, loss 1.250, 19 hours of audio per hour, 0:25:00 left"
    assert capfd.readouterr().err.splitlines() == [line, line]


def test_after_the_last_step_the_log_says_finishing_instead_of_a_remaining_time(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with training_bar("Training") as on_progress:
        clock[0] = 70.0
        on_progress(replace(STEP, step=480, remaining_s=0.0))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("hours of audio per hour, finishing")


def test_detection_logs_the_processed_hours(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    with detection_bar() as on_pace:
        clock[0] = 70.0
        on_pace(Pace(3600.0, 36_000.0, 60.0))
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "Detecting: 10%, 1.0 h of 10.0 h, 60 hours of audio per hour, 0:09:00 left"


@pytest.mark.parametrize(
    ("total", "expected"),
    [(None, "Finding files: 1,200"), (4800, "Finding files: 1,200 of 4,800")],
    ids=["unknown total", "known total"],
)
def test_stages_log_their_progress(
    clock: list[float], capfd: pytest.CaptureFixture[str], total: float | None, expected: str
) -> None:
    with progress_bars() as on_progress:
        clock[0] = 70.0
        on_progress("finding", 1200, total)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(expected)


def test_short_work_logs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with training_bar("Training") as on_progress:
        on_progress(STEP)
    with progress_bars() as on_stage:
        on_stage("finding", 1200, None)
    assert capfd.readouterr().err == ""


def test_in_a_narrow_terminal_long_text_wraps_and_the_remaining_time_stays(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    stage = "Round 1: training on pseudo-labels (precision on validation 59 %)"
    with progress_bars() as on_progress:
        on_progress(stage, 1200, 4800)
    stages = capfd.readouterr().err
    assert all(word in stages for word in (*stage.split(), "25%", "-:--:--"))
    with training_bar("Training") as on_training:
        on_training(replace(STEP, hours_per_hour=1900.0, remaining_s=15_000.0))
    training = capfd.readouterr().err
    assert all(word in training for word in ("Training", "━", "25%", "1,900", "4:10:00"))
