"""A run on a Ray cluster: the same files as on one machine, whatever is killed; what a machine lacks is told."""

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
from mast.detection.cluster import (
    Attempts,
    Cluster,
    Hearer,
    _check_few,
    choose_cluster,
    join_cluster,
    missed,
)
from mast.errors import ConfigError, MastError, MissingExtraError
from tests.detection.archives import card, contents, heard, opened

pytestmark = pytest.mark.usefixtures("short_parts")
LOOPBACK = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
"""Runs a command where there is no network but lo: Ray takes a network card's address otherwise."""

LONGEST_S = 500
STARTS = 4
"""So often Ray is started on a machine that is too busy: it gives up on itself after 30 s."""


@pytest.fixture(scope="module")
def loopback():
    """Words that run a command where Ray sees nothing but this machine; it has a token of its own."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    if not shutil.which("unshare") or subprocess.run([*LOOPBACK, "true"], check=False).returncode:
        pytest.skip("no right to a network namespace here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else a busy machine has hardly a moment for them
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield LOOPBACK


@dataclass(frozen=True)
class Head:
    """A Ray cluster of this machine; `inside` are words that run a command where it is."""

    pid: int
    inside: list[str]
    address: str = "127.0.0.1:6379"


@pytest.fixture(scope="module")
def head(loopback, tmp_path_factory):
    """A cluster for all tests here: it takes longer to start than to use."""
    said = tmp_path_factory.mktemp("ray") / "said"
    words = "--head --block --node-ip-address 127.0.0.1 --port 6379 --num-cpus 1 --include-dashboard false"
    words += " --object-store-memory 100000000 --disable-usage-stats"
    script = "from ray.scripts.scripts import main; main()"
    command = [*loopback, sys.executable, "-u", "-c", script, "start", *words.split()]
    for _ in range(STARTS):
        with said.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=without_coverage())
        while process.poll() is None and "Ray runtime started" not in said.read_text():
            time.sleep(0.05)
        if process.returncode is None:
            break
    assert process.returncode is None, said.read_text()
    yield Head(process.pid, ["nsenter", "-t", str(process.pid), "-n"])
    for pid in [process.pid, *processes_below(process.pid)]:  # asked to end, it would take half a minute
        os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def mast_on_ray(tmp_path):
    """Starts `mast` with words, after words that say where; what it says goes to a file."""
    said, started = tmp_path / "said", []

    def start(where, *words, environment=None):
        script = f"from tests.detection.commands import run; run({[*words]!r}, {str(said)!r}, 4.0)"
        for _ in range(STARTS):
            said.unlink(missing_ok=True)
            started.append(subprocess.Popen([*where, sys.executable, "-c", script], env=environment))
            while started[-1].poll() is None and not (said.exists() and "Running on Ray" in said.read_text()):
                time.sleep(0.05)
            if "Ray cannot be started on this machine" not in said.read_text():
                break
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(60)


def without_coverage() -> dict[str, str]:
    """The environment of processes that are slow enough as they are; of Ray's own there are a dozen."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


def wait_until(is_so, process) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not is_so():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def test_a_ray_run_with_a_killed_worker_that_is_interrupted_and_goes_on_in_shards_ends_as_one_on_one_machine(
    detector, tmp_path, mast_on_ray, head, loopback
):
    root, out = card(tmp_path / "card", 24), tmp_path / "out"
    (root / "empty.wav").touch()
    whole = heard(opened(root, detector, tmp_path / "whole"))
    assert len(whole.plan) == 13
    words = ["detect", str(root), "--model", detector, "--out", str(out), "--engine", "ray", "--workers", "1"]

    def parts() -> int:
        return len([*out.glob("status/part-*")])

    there = ["--ray-address", head.address, "--shard", "1/2"]
    process = mast_on_ray(head.inside, *words, *there, environment=without_coverage())
    wait_until(lambda: parts() >= 1 and ray_workers(head.pid), process)
    (worker,) = ray_workers(head.pid)
    os.kill(worker, signal.SIGKILL)
    before = parts()
    wait_until(lambda: parts() >= before + 2, process)  # another has taken its place
    assert ray_workers(head.pid) != [worker]
    process.send_signal(signal.SIGINT)
    assert process.wait(LONGEST_S) == 130, (tmp_path / "said").read_text()
    assert "The same command goes on" in (tmp_path / "said").read_text()
    done = {int(path.stem[-6:]) for path in out.glob("status/part-*")}
    assert done < {*range(0, 13, 2)}

    process = mast_on_ray(loopback, *words)  # all that is missing, on a Ray of its own
    assert process.wait(LONGEST_S) == 3, (tmp_path / "said").read_text()
    said = (tmp_path / "said").read_text()
    assert "Running on Ray: 1 machine, 1 process" in said and "25 recordings" in said
    assert contents(out) == contents(whole.out)


def test_an_actor_hears_parts_and_tells_what_it_cannot_hear(detector, tmp_path):
    archive = opened(card(tmp_path / "card", 2), detector, tmp_path / "out")
    whole = heard(opened(tmp_path / "card", detector, tmp_path / "whole"))
    attempts = Attempts()
    hearer = Hearer(json.dumps(asdict(archive.orders)), "cpu", attempts.begin)
    row = archive.plan.part(0)._asdict()
    assert hearer(row) == {"number": 0, "seconds": 4.0, "given_up": False, "error": None}
    assert contents(archive.out) == contents(whole.out)
    (tmp_path / "card").rename(tmp_path / "elsewhere")
    told = hearer(row)["error"]
    assert "the recordings cannot be reached any more" in told and "the same command goes on" in told
    assert [attempts.begin(0), attempts.begin(1), attempts.begin(0)] == [3, 1, 4]
    assert hearer(row) == {"number": 0, "seconds": 4.0, "given_up": True, "error": None}
    hearer._leader.end()


def test_a_few_parts_that_were_given_up_are_told_at_the_end_and_many_at_once():
    _check_few([], 0)
    _check_few([7], 1)
    with pytest.raises(
        MastError, match=r"killed 4 times at each of these parts: 3, 7\. .*--workers.*--engine local"
    ):
        _check_few([7, 3], 1)


def test_what_a_machine_lacks_is_told(detector, tmp_path):
    archive = opened(card(tmp_path / "card", 1), detector, tmp_path / "out")
    orders = asdict(archive.orders)
    assert missed(orders, __version__) is None
    assert missed(orders | {"model": "hf://owner/name"}, __version__) is None
    assert missed(orders, "0.0") == f"it has MAST {__version__}, and the run was begun with 0.0."
    assert missed(orders | {"model": "/no/model"}, __version__) == "it does not see /no/model."
    assert missed(orders | {"roots": {"card": "/no/card"}}, __version__) == "it does not see /no/card."
    assert "is another folder here" in missed(orders | {"fingerprint": "other"}, __version__)
    assert "/no/out/run.json" in missed(orders | {"out": "/no/out"}, __version__)


TROUBLES = """
import dataclasses, os, sys
import ray
from mast.detection import cluster, plan
from mast.detection.archive import WHOLE
from tests.detection.archives import opened

*words, address = sys.argv[1:]
plan.MIN_PART_S = 4.0
archive = opened(*words)
elsewhere = dataclasses.replace(archive, orders=dataclasses.replace(archive.orders, model="/no/model"))

def without_mast(orders, version):
    raise ImportError("no mast")

class Poisoned(cluster.Hearer):
    def __init__(self, orders, device, begin):
        self._leader, self._begin, cluster.MAX_KILLS = self, begin, 2  # in the worker

    def hear(self, part):
        if part.number == 1:
            os.kill(os.getpid(), 9)

class Broken(Poisoned):
    def hear(self, part):
        raise RuntimeError("cheese")

def tell(do):
    heard_s = []
    try:
        do(lambda pace: heard_s.append(pace.done_s))
    except Exception as error:
        print(type(error).__name__, heard_s, error)

tell(lambda on_progress: cluster.join_cluster("nowhere"))
tell(lambda on_progress: cluster.join_cluster(address, "cuda"))
joined = cluster.join_cluster(address)
ray.shutdown = lambda: None  # once is enough for all
missed, cluster.missed = cluster.missed, without_mast
tell(lambda on_progress: cluster.run_ray(archive, joined, WHOLE, on_progress))
cluster.missed = missed
tell(lambda on_progress: cluster.run_ray(elsewhere, joined, WHOLE, on_progress))
cluster.check_machines = lambda orders: None
tell(lambda on_progress: cluster.run_ray(elsewhere, joined, WHOLE, on_progress))
cluster.Hearer, cluster.MAX_KILLS = Poisoned, 2
tell(lambda on_progress: cluster.run_ray(archive, joined, WHOLE, on_progress))
cluster.Hearer = Broken
tell(lambda on_progress: cluster.run_ray(archive, joined, WHOLE, on_progress))
"""


def test_what_goes_wrong_on_a_cluster_is_told(detector, tmp_path, head):
    words = [str(card(tmp_path / "card", 6)), detector, str(tmp_path / "out"), head.address]
    command = [*head.inside, sys.executable, "-c", TROUBLES, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if "Error [" in line]  # Ray has its say as well
    nowhere, no_gpu, no_mast, early, late, poisoned, broken = told
    name = socket.gethostname()
    assert nowhere.startswith("ConfigError [] --ray-address nowhere: no Ray cluster can be joined there")
    assert "ray start --head" in nowhere
    assert no_gpu == "ConfigError [] --device cuda: the Ray cluster has no GPU."
    assert no_mast.startswith(
        f"MastError [] {name}: MAST does not run on this machine of the cluster. Install mast"
    )
    assert no_mast.endswith("ImportError: no mast)")
    assert early.startswith(
        f"StorageError [] {name}, a machine of the cluster: it does not see /no/model. All"
    )
    assert late.startswith(
        f"MastError [] {name}: a detecting process could not start: "
    )  # one that came later
    assert "/no/model: there is no such folder" in late
    assert poisoned.startswith(
        "MastError [4.0, 8.0] Ray's workers were killed 2 times at each of these parts: 1. If machines are short of"
    )  # and the others were heard
    assert broken.startswith("MastError [] The Ray cluster has failed: ") and "Map(Broken)" in broken
    assert not (tmp_path / "out" / "status").exists()


def test_without_ray_the_way_to_install_it_is_told(detector, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["detect", str(card(tmp_path / "card", 1)), "--model", detector, "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, [*words, "--engine", "ray"]).exception
    assert isinstance(refused, MissingExtraError)
    assert str(refused) == '--engine ray needs an optional part: pip install "mast-bioacoustics[ray]"'
    assert not (tmp_path / "out").exists()


def test_options_that_make_no_sense_are_refused_before_anything_starts(detector, tmp_path):
    words = ["detect", str(card(tmp_path / "card", 1)), "--model", detector, "--ray-address", "auto"]
    assert "is for --engine ray: give both" in str(CliRunner().invoke(app, words).exception)
    with pytest.raises(ConfigError, match="--workers 0: give 1 or more"):
        join_cluster(processes=0)
    with pytest.raises(ConfigError, match="--device tpu: use auto, cpu or cuda"):
        join_cluster(device="tpu")


def test_a_run_uses_the_gpus_of_a_cluster_or_else_its_cores():
    both = {"CPU": 64.0, "GPU": 8.0}
    assert choose_cluster({"CPU": 12.0}, 3) == Cluster("cpu", 12, 3)
    assert choose_cluster(both, 2) == Cluster("cuda", 32, 2, gpus=8)
    assert choose_cluster(both, 2, "cpu") == Cluster("cpu", 64, 2)
    assert choose_cluster({"CPU": 4.0, "GPU": 8.0}, 1) == Cluster("cuda", 4, 1, gpus=8)
    assert choose_cluster({}, 1, processes=200) == Cluster("cpu", 200, 1)  # it may grow
    with pytest.raises(ConfigError, match="has no GPU"):
        choose_cluster({"CPU": 4.0}, 1, "cuda")
    with pytest.raises(ConfigError, match="has no cores just now.*--workers"):
        choose_cluster({}, 1)


def test_what_a_run_computes_on_is_told():
    assert Cluster("cpu", 1, 1).told() == "Running on Ray: 1 machine, 1 process"
    assert Cluster("cuda", 32, 2, gpus=8).told() == "Running on Ray: 2 machines, 32 processes on 8 GPUs"
