"""Jobs done side by side: each once, errors told, and nobody left at work."""

import threading

import pytest

from mast.recordings.crew import work_off


def test_without_jobs_or_without_hands_there_is_nothing_to_wait_for():
    ends = []
    assert [*work_off(iter([]), [str, str], lambda: ends.append("jobs"))] == []
    assert [*work_off(iter([1, 2]), [], lambda: ends.append("hands"))] == []
    assert ends == ["jobs", "hands"]


def test_every_job_is_done_once_whoever_does_it():
    hands = [lambda job, own=own: (job, own) for own in range(3)]
    done = [item for item in work_off(iter(range(50)), hands, lambda: None) if item]
    assert sorted(job for job, _ in done) == [*range(50)]


def test_an_error_of_one_ends_the_work_of_all():
    over = threading.Event()

    def waits(job):
        assert over.wait(10)

    def fails(job):
        raise ValueError(f"not {job}")

    with pytest.raises(ValueError, match="not"):
        [*work_off(iter(range(9)), [waits, fails], over.set)]
    assert over.is_set()


def test_whoever_stops_waiting_ends_the_work_and_may_look_in_between():
    over, left = threading.Event(), []

    def waits(job):
        assert over.wait(10)
        left.append(job)
        raise ValueError("stopped")

    working = work_off(iter(range(3)), [waits], over.set)
    assert next(working) is None
    working.close()
    assert left == [0]  # and it has let go of that
