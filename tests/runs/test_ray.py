"""Runs on a Ray cluster: the same files as on one machine, whatever is killed; missing requirements are reported."""

import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import pytest
from benchmarks.archive import processes_below, ray_workers
from typer.testing import CliRunner

from mast import __version__
from mast.cli import app
from mast.errors import ConfigError, MastError, MissingExtraError
from mast.runs.ray import (
    AttemptCounter,
    DetectionActor,
    RayCluster,
    _check_abandoned,
    choose_cluster,
    join_cluster,
    missing_requirements,
)
from tests.runs.archives import card, contents, open_paths, process_missing

pytestmark = pytest.mark.usefixtures("short_parts")
LOOPBACK = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
"""Command prefix that runs a command in a network namespace with only lo: else Ray uses a network card's address."""

LONGEST_S = 500
STARTS = 4
"""Attempts to start Ray on a busy machine: Ray exits if starting takes more than 30 s."""


@pytest.fixture(scope="module")
def loopback():
    """Return a command prefix for a network namespace in which Ray has only this machine, and set a token for it."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    if not shutil.which("unshare") or subprocess.run([*LOOPBACK, "true"], check=False).returncode:
        pytest.skip("no permission to create a network namespace here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else workers hardly run on a busy machine
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield LOOPBACK


@dataclass(frozen=True)
class Head:
    """Ray cluster of this machine; `inside` is a command prefix for its network namespace."""

    pid: int
    inside: list[str]
    address: str = "127.0.0.1:6379"


@pytest.fixture(scope="module")
def head(loopback, tmp_path_factory):
    """Start one cluster for all tests of this file: it takes longer to start than to use."""
    output = tmp_path_factory.mktemp("ray") / "output"
    options = "--head --block --node-ip-address 127.0.0.1 --port 6379 --num-cpus 1 --include-dashboard false"
    options += " --object-store-memory 100000000 --disable-usage-stats"
    script = "from ray.scripts.scripts import main; main()"
    command = [*loopback, sys.executable, "-u", "-c", script, "start", *options.split()]
    for _ in range(STARTS):
        with output.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=without_coverage())
        while process.poll() is None and "Ray runtime started" not in output.read_text():
            time.sleep(0.05)
        if process.returncode is None:
            break
    assert process.returncode is None, output.read_text()
    yield Head(process.pid, ["nsenter", "-t", str(process.pid), "-n"])
    for pid in [process.pid, *processes_below(process.pid)]:  # a graceful shutdown takes half a minute
        os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def mast_on_ray(tmp_path):
    """Return a function that starts `mast` with arguments after a command prefix; its output goes to a file."""
    output, started = tmp_path / "output", []

    def start(prefix, *arguments, environment=None):
        script = f"from tests.runs.commands import run; run({[*arguments]!r}, {str(output)!r}, 4.0)"
        for _ in range(STARTS):
            output.unlink(missing_ok=True)
            started.append(subprocess.Popen([*prefix, sys.executable, "-c", script], env=environment))
            while started[-1].poll() is None and not (
                output.exists() and "Running on Ray" in output.read_text()
            ):
                time.sleep(0.05)
            if "Ray cannot be started on this machine" not in output.read_text():
                break
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(60)


def without_coverage() -> dict[str, str]:
    """Return the environment without coverage, which would slow down a dozen processes of Ray."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


def wait_until(condition, process) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert process.poll() is None, "the process ended too early"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def test_a_ray_run_with_a_killed_worker_that_is_interrupted_and_resumed_in_shards_equals_a_local_run(
    detector, tmp_path, mast_on_ray, head, loopback
):
    root, out = card(tmp_path / "card", 24), tmp_path / "out"
    (root / "empty.wav").touch()
    whole = process_missing(open_paths(root, detector, tmp_path / "whole"))
    assert len(whole.plan) == 13
    arguments = [
        "detect",
        str(root),
        "--model",
        detector,
        "--out",
        str(out),
        "--engine",
        "ray",
        "--workers",
        "1",
    ]

    def parts() -> int:
        return len([*out.glob("status/part-*")])

    options = ["--ray-address", head.address, "--shard", "1/2"]
    process = mast_on_ray(head.inside, *arguments, *options, environment=without_coverage())
    wait_until(lambda: parts() >= 1 and ray_workers(head.pid), process)
    (worker,) = ray_workers(head.pid)
    os.kill(worker, signal.SIGKILL)
    before = parts()
    wait_until(lambda: parts() >= before + 2, process)  # another worker has taken its place
    assert ray_workers(head.pid) != [worker]
    process.send_signal(signal.SIGINT)
    assert process.wait(LONGEST_S) == 130, (tmp_path / "output").read_text()
    assert "run the same command again to resume" in (tmp_path / "output").read_text()
    done = {int(path.stem[-6:]) for path in out.glob("status/part-*")}
    assert done < {*range(0, 13, 2)}

    process = mast_on_ray(loopback, *arguments)  # all missing parts, on a separate Ray
    assert process.wait(LONGEST_S) == 3, (tmp_path / "output").read_text()
    output = (tmp_path / "output").read_text()
    assert "Running on Ray: 1 machine, 1 process" in output and "25 recordings" in output
    assert contents(out) == contents(whole.out)


def test_an_actor_processes_parts_and_returns_errors(detector, tmp_path):
    run = open_paths(card(tmp_path / "card", 2), detector, tmp_path / "out")
    whole = process_missing(open_paths(tmp_path / "card", detector, tmp_path / "whole"))
    attempts = AttemptCounter()
    actor = DetectionActor(json.dumps(asdict(run.config)), "cpu", attempts.begin)
    row = run.plan.part(0)._asdict()
    assert actor(row) == {"number": 0, "seconds": 4.0, "abandoned": False, "error": None}
    assert contents(run.out) == contents(whole.out)
    (tmp_path / "card").rename(tmp_path / "elsewhere")
    error = actor(row)["error"]
    assert "the recordings are no longer reachable" in error
    assert "run the same command again to resume" in error
    assert [attempts.begin(0), attempts.begin(1), attempts.begin(0)] == [3, 1, 4]
    assert actor(row) == {"number": 0, "seconds": 4.0, "abandoned": True, "error": None}
    actor._supervisor.process.stop()


def test_a_few_abandoned_parts_are_reported_at_the_end_and_many_immediately():
    _check_abandoned([], 0)
    _check_abandoned([7], 1)
    with pytest.raises(
        MastError, match=r"killed 4 times at each of these parts: 3, 7\. .*--workers.*--engine local"
    ):
        _check_abandoned([7, 3], 1)


def test_missing_requirements_of_a_machine_are_described(detector, tmp_path):
    run = open_paths(card(tmp_path / "card", 1), detector, tmp_path / "out")
    config = asdict(run.config)
    assert missing_requirements(config, __version__) is None
    assert missing_requirements(config | {"model": "hf://owner/name"}, __version__) is None
    assert (
        missing_requirements(config, "0.0") == f"it has MAST {__version__}, but the run was started with 0.0."
    )
    assert (
        missing_requirements(config | {"model": "/no/model"}, __version__) == "it has no access to /no/model."
    )
    assert (
        missing_requirements(config | {"roots": {"card": "/no/card"}}, __version__)
        == "it has no access to /no/card."
    )
    assert "is another folder here" in missing_requirements(config | {"fingerprint": "other"}, __version__)
    assert "/no/out/run.json" in missing_requirements(config | {"out": "/no/out"}, __version__)


FAILURES = """
import dataclasses, os, sys
import ray
from mast.runs import plan
from mast.runs import ray as cluster
from mast.runs.run import ALL_SHARDS
from tests.runs.archives import open_paths

*arguments, address = sys.argv[1:]
plan.MIN_PART_S = 4.0
run = open_paths(*arguments)
without_model = dataclasses.replace(run, config=dataclasses.replace(run.config, model="/no/model"))

def without_mast(config, version):
    raise ImportError("no mast")

class Killed(cluster.DetectionActor):
    def __init__(self, config, device, begin):
        self._supervisor, self._begin, cluster.MAX_KILLS = self, begin, 2  # in the worker

    def run(self, part):
        if part.number == 1:
            os.kill(os.getpid(), 9)

class Broken(Killed):
    def run(self, part):
        raise RuntimeError("broken")

def print_error(call):
    processed_s = []
    try:
        call(lambda progress: processed_s.append(progress.done_s))
    except Exception as error:
        print(type(error).__name__, processed_s, error)

print_error(lambda on_progress: cluster.join_cluster("nowhere"))
print_error(lambda on_progress: cluster.join_cluster(address, "cuda"))
joined = cluster.join_cluster(address)
ray.shutdown = lambda: None  # all calls share one connection
missing_requirements, cluster.missing_requirements = cluster.missing_requirements, without_mast
print_error(lambda on_progress: cluster.run_ray(run, joined, ALL_SHARDS, on_progress))
cluster.missing_requirements = missing_requirements
print_error(lambda on_progress: cluster.run_ray(without_model, joined, ALL_SHARDS, on_progress))
cluster.check_machines = lambda config: None
print_error(lambda on_progress: cluster.run_ray(without_model, joined, ALL_SHARDS, on_progress))
cluster.DetectionActor, cluster.MAX_KILLS = Killed, 2
print_error(lambda on_progress: cluster.run_ray(run, joined, ALL_SHARDS, on_progress))
cluster.DetectionActor = Broken
print_error(lambda on_progress: cluster.run_ray(run, joined, ALL_SHARDS, on_progress))
"""


def test_failures_on_a_cluster_are_reported(detector, tmp_path, head):
    arguments = [str(card(tmp_path / "card", 6)), detector, str(tmp_path / "out"), head.address]
    command = [*head.inside, sys.executable, "-c", FAILURES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    errors = [
        line for line in done.stdout.splitlines() if "Error [" in line
    ]  # Ray prints other lines as well
    nowhere, no_gpu, no_mast, early, late, killed, broken = errors
    name = socket.gethostname()
    assert nowhere.startswith("ConfigError [] --ray-address nowhere: cannot join a Ray cluster there")
    assert "ray start --head" in nowhere
    assert no_gpu == "ConfigError [] --device cuda: the Ray cluster has no GPU."
    assert no_mast.startswith(
        f"MastError [] {name}: MAST does not run on this machine of the cluster. Install mast"
    )
    assert no_mast.endswith("ImportError: no mast)")
    assert early.startswith(
        f"StorageError [] {name}, a machine of the cluster: it has no access to /no/model. All"
    )
    assert late.startswith(
        f"MastError [] {name}: a detecting process could not start: "
    )  # a machine that joined later
    assert "/no/model: there is no such folder" in late
    assert killed.startswith(
        "MastError [4.0, 8.0] Ray's workers were killed 2 times at each of these parts: 1. If machines are short of"
    )  # and the other parts were processed
    assert broken.startswith("MastError [] The Ray cluster has failed: ") and "Map(Broken)" in broken
    assert not (tmp_path / "out" / "status").exists()


def test_without_ray_the_error_explains_how_to_install_it(detector, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = [
        "detect",
        str(card(tmp_path / "card", 1)),
        "--model",
        detector,
        "--out",
        str(tmp_path / "out"),
    ]
    refused = CliRunner().invoke(app, [*arguments, "--engine", "ray"]).exception
    assert isinstance(refused, MissingExtraError)
    assert str(refused) == '--engine ray needs an optional dependency: pip install "mast-bioacoustics[ray]"'
    assert not (tmp_path / "out").exists()


def test_invalid_options_are_refused_before_anything_starts(detector, tmp_path):
    arguments = ["detect", str(card(tmp_path / "card", 1)), "--model", detector, "--ray-address", "auto"]
    assert "needs --engine ray: specify both" in str(CliRunner().invoke(app, arguments).exception)
    with pytest.raises(ConfigError, match="--workers 0: specify 1 or more"):
        join_cluster(processes=0)
    with pytest.raises(ConfigError, match="--device tpu: use auto, cpu or cuda"):
        join_cluster(device="tpu")


def test_a_run_uses_the_gpus_of_a_cluster_or_else_its_cores():
    both = {"CPU": 64.0, "GPU": 8.0}
    assert choose_cluster({"CPU": 12.0}, 3) == RayCluster("cpu", 12, 3)
    assert choose_cluster(both, 2) == RayCluster("cuda", 32, 2, gpus=8)
    assert choose_cluster(both, 2, "cpu") == RayCluster("cpu", 64, 2)
    assert choose_cluster({"CPU": 4.0, "GPU": 8.0}, 1) == RayCluster("cuda", 4, 1, gpus=8)
    assert choose_cluster({}, 1, processes=200) == RayCluster("cpu", 200, 1)  # it may scale up
    with pytest.raises(ConfigError, match="has no GPU"):
        choose_cluster({"CPU": 4.0}, 1, "cuda")
    with pytest.raises(ConfigError, match="has no cores now.*--workers"):
        choose_cluster({}, 1)


def test_the_cluster_is_described():
    assert RayCluster("cpu", 1, 1).describe() == "Running on Ray: 1 machine, 1 process"
    assert (
        RayCluster("cuda", 32, 2, gpus=8).describe() == "Running on Ray: 2 machines, 32 processes on 8 GPUs"
    )
