"""What long work tells a log: without a terminal there is no bar, and silence for hours is no answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mast.cli import progress
from mast.cli.progress import detecting_bar, progress_bars, training_bar
from mast.detection.running import Progress as Pace
from mast.training.loop import Progress

STEP = Progress(step=120, steps=480, epoch=4, loss=1.25, hours_per_hour=19.0, remaining_s=1500.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, to be set by a test."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_training_tells_a_log_how_far_it_is_and_how_long_it_will_take(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with training_bar("Training") as on_progress:
        for clock[0] in (10.0, 70.0, 80.0, 360.0, 370.0, 380.0):
            on_progress(STEP)
    line = "Training: 25%, epoch 5, loss 1.250, 19 hours of sound an hour, 0:25:00 left"
    assert capfd.readouterr().err.splitlines() == [line, line]


def test_after_the_last_step_there_is_no_time_left_to_tell_but_work(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with training_bar("Training") as on_progress:
        clock[0] = 70.0
        on_progress(replace(STEP, step=480, remaining_s=0.0))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("hours of sound an hour, finishing")


def test_detecting_tells_a_log_how_much_it_has_heard(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with detecting_bar() as on_pace:
        clock[0] = 70.0
        on_pace(Pace(3600.0, 36_000.0, 60.0))
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "Detecting: 10%, 1.0 h of 10.0 h, 60 hours of sound an hour, 0:09:00 left"


@pytest.mark.parametrize(
    ("total", "told"),
    [(None, "Finding files: 1,200"), (4800, "Finding files: 1,200 of 4,800")],
    ids=["nobody knows of how many", "of so many"],
)
def test_stages_tell_a_log_what_is_done(
    clock: list[float], capfd: pytest.CaptureFixture[str], total: float | None, told: str
) -> None:
    with progress_bars() as on_progress:
        clock[0] = 70.0
        on_progress("finding", 1200, total)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(told)


def test_short_work_tells_a_log_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with training_bar("Training") as on_progress:
        on_progress(STEP)
    with progress_bars() as on_stage:
        on_stage("finding", 1200, None)
    assert capfd.readouterr().err == ""


def test_in_a_narrow_terminal_long_words_take_two_lines_and_the_time_left_stays(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    told = "Round 1: learning from the teacher's boxes (on validation 59% right)"
    with progress_bars() as on_progress:
        on_progress(told, 1200, 4800)
    stages = capfd.readouterr().err
    assert all(word in stages for word in (*told.split(), "25%", "-:--:--"))
    with training_bar("Training") as on_training:
        on_training(replace(STEP, hours_per_hour=1900.0, remaining_s=15_000.0))
    training = capfd.readouterr().err
    assert all(word in training for word in ("Training", "━", "25%", "1,900", "4:10:00"))
