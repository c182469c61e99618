"""Jobs run in parallel: each job once, errors are raised, and no worker keeps running."""

import threading

import pytest

from mast.workers.pool import map_unordered


def test_without_jobs_or_workers_there_are_no_results():
    ends = []
    assert [*map_unordered(iter([]), [str, str], lambda: ends.append("jobs"))] == []
    assert [*map_unordered(iter([1, 2]), [], lambda: ends.append("workers"))] == []
    assert ends == ["jobs", "workers"]


def test_every_job_runs_once_on_any_worker():
    workers = [lambda job, worker=worker: (job, worker) for worker in range(3)]
    done = [result for result in map_unordered(iter(range(50)), workers, lambda: None) if result]
    assert sorted(job for job, _ in done) == [*range(50)]


def test_an_error_of_one_worker_stops_all():
    is_stopped = threading.Event()

    def waits(job):
        assert is_stopped.wait(10)

    def fails(job):
        raise ValueError(f"not {job}")

    with pytest.raises(ValueError, match="not"):
        [*map_unordered(iter(range(9)), [waits, fails], is_stopped.set)]
    assert is_stopped.is_set()


def test_closing_the_generator_stops_the_work_and_it_yields_none_while_waiting():
    is_stopped, finished = threading.Event(), []

    def waits(job):
        assert is_stopped.wait(10)
        finished.append(job)
        raise ValueError("stopped")

    results = map_unordered(iter(range(3)), [waits], is_stopped.set)
    assert next(results) is None
    results.close()
    assert finished == [0]  # the worker stopped this job
