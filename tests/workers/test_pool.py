"""Jobs run in parallel worker processes: each job once, errors are raised, and no process keeps running."""

import signal
from itertools import count

import pytest

from mast.workers.pool import Supervisor, WorkerPool
from mast.workers.process import PAYLOAD

ECHO_WORKER = """
import json, os, threading, time
from mast.workers.process import PAYLOAD, PROGRESS, worker_main

def serve(jobs, answer):
    for line in jobs:
        job, behaviour = json.loads(line)["job"]
        answer({PROGRESS: 0.5})
        extra = {}
        exec(behaviour)
        answer({"job": job, "process": os.getpid(), **extra})

if __name__ == "__main__":
    worker_main(lambda: serve)
"""


class EchoSupervisor(Supervisor):
    """Supervisor of a process that runs the code of each job and answers with its number; a crash is an error."""

    module, purpose = "echo_worker", "echoing"

    def run(self, job):
        before = self.progress

        def on_progress(fraction):
            self.progress = before + fraction

        answer = self.process.call({"job": job}, on_progress)
        if answer is None:
            raise ValueError(f"job {job[0]}: {self.process.ending}")
        self.progress = before + 1
        return answer


@pytest.fixture
def pool(tmp_path, monkeypatch):
    (tmp_path / "echo_worker.py").write_text(ECHO_WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda workers: WorkerPool([EchoSupervisor() for _ in range(workers)])


def jobs(number, behaviour="pass"):
    return [(job, behaviour) for job in range(number)]


def processes_of(pool):
    return [supervisor.process._process for supervisor in pool._supervisors]


def test_without_jobs_there_are_no_results_and_no_process_starts(pool):
    for workers in (0, 2):
        unused = pool(workers)
        assert [*unused.run([])] == []
        assert processes_of(unused) == [None] * workers


def test_every_job_runs_once_on_any_worker(pool):
    workers = pool(3)
    results = [result for result in workers.run(jobs(50)) if result]
    assert sorted(result["job"] for result in results) == [*range(50)]
    assert len({result["process"] for result in results}) <= 3
    assert workers.progress == 50


def test_results_in_order_wait_for_slow_jobs_while_a_bounded_number_runs_ahead(pool):
    taken = []

    def endless():
        for job in count():
            taken.append(job)
            yield job, "time.sleep(1)" if job == 0 else "pass"

    results = (result for result in pool(2).run(endless(), in_order=True) if result)
    assert next(results)["job"] == 0
    assert len(taken) == 8  # four per worker
    assert [next(results)["job"] for _ in range(30)] == [*range(1, 31)]
    assert len(taken) == 8 + 30
    results.close()


def test_a_crash_that_the_supervisor_does_not_handle_stops_all_processes(pool):
    workers = pool(2)
    workers.start()
    processes = processes_of(workers)
    with pytest.raises(ValueError, match="job 1: SIGABRT"):
        [*workers.run([(0, "time.sleep(60)"), (1, "os.abort()"), *jobs(9)])]
    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, -signal.SIGABRT]


def test_an_error_in_the_jobs_stops_all_processes(pool):
    workers = pool(1)

    def broken():
        yield 0, "time.sleep(60)"
        raise OSError("the list of jobs is not readable")

    with pytest.raises(OSError, match="not readable"):
        [*workers.run(broken())]
    assert processes_of(workers) == [None]


def test_closing_the_generator_kills_the_processes_and_it_yields_none_while_waiting(pool):
    workers = pool(2)
    results = workers.run(jobs(9, "time.sleep(60)"))
    assert next(results) is None
    while workers.progress < 1:
        assert next(results) is None  # each worker is in the middle of a job
    processes = processes_of(workers)
    results.close()
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_a_process_that_is_started_early_runs_the_first_job(pool):
    workers = pool(1)
    workers.start()
    process = processes_of(workers)[0]
    assert [result["process"] for result in workers.run(jobs(2)) if result] == [process.pid] * 2
    assert process.returncode is not None


def test_an_answer_may_have_a_payload_that_is_not_text(pool):
    payload = bytes(range(256)) * 4000
    results = pool(1).run([(0, "extra[PAYLOAD] = bytes(range(256)) * 4000"), (1, "pass")])
    assert [result.get(PAYLOAD) for result in results if result] == [payload, None]


def test_a_process_that_crashes_in_the_middle_of_a_payload_has_not_answered(pool):
    half = (
        "extra[PAYLOAD] = b'12345';"
        "json.dumps = lambda line, real=json.dumps: real({**line, PAYLOAD: 10});"
        "threading.Timer(0.2, os.abort).start()"
    )
    with pytest.raises(ValueError, match="job 0: SIGABRT"):
        [*pool(1).run([(0, half)])]
