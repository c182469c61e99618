"""Process a run on a Ray cluster: the parts are rows of a Ray dataset, which one actor per core processes.

Each actor supervises its own worker process, as a thread of the local backend does, so that a crashing decoder does not
kill the Ray worker, and both backends handle recordings in the same way. Ray transfers only part numbers: the machine of
the actor reads the audio and writes the events. If a Ray worker is killed or a machine is taken away, the parts in
progress there are lost; Ray reassigns them to another actor. A part at which workers are killed repeatedly is abandoned,
and reported after the others are finished.

Actors import this module, so it must stay light: no torch.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mast.errors import ConfigError, MastError, MissingExtraError, StorageError
from mast.runs.layout import RUN
from mast.runs.outcome import Outcome, RunProgress, execute
from mast.runs.plan import Part
from mast.runs.supervisor import MAX_KILLS, PROCESSES_PER_GPU, WorkerSupervisor
from mast.storage import is_folder, join, open_binary
from mast.version import __version__
from mast.wording import counted
from mast.workers.pool import available_cores

if TYPE_CHECKING:
    from mast.runs.run import DetectionRun, Shard
    from mast.types import Integers

LOCAL_ADDRESS = "local"
"""Address in Ray of a cluster of only this machine, which is started for the run and stopped with it."""

MAX_CONCURRENT_PARTS = 10_000
"""Maximum number of parts in one dataset: Ray keeps state for each in memory, and a large archive has millions."""

MAX_ABANDONED_PARTS = 10
"""Abandoned parts above which the run stops immediately: recordings are not the cause."""

_STORE_BYTES = 100 * 2**20  # size of Ray's object store, which contains only part numbers


@dataclass(frozen=True, slots=True)
class RayCluster:
    """Ray cluster that this process has joined, with the number of worker processes of the run and the total of GPUs."""

    kind: str
    processes: int
    machines: int
    gpus: int = 0

    def describe(self) -> str:
        """Return a text description for the user."""
        devices = f" on {counted(self.gpus, 'GPU')}" if self.kind == "cuda" else ""
        processes = counted(self.processes, "process", "processes")
        return f"Running on Ray: {counted(self.machines, 'machine')}, {processes}{devices}"


def join_cluster(
    address: str | None = None, device: str = "auto", processes: int | None = None
) -> RayCluster:
    """Join the cluster at `address` or at RAY_ADDRESS, or start one on this machine."""
    if processes is not None and processes < 1:
        raise ConfigError(f"--workers {processes}: specify 1 or more.")
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {device}: use auto, cpu or cuda.")
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL_ADDRESS
    _connect(address, processes)
    import ray

    try:
        return choose_cluster(ray.cluster_resources(), len(_machines()), device, processes)
    except ConfigError:
        ray.shutdown()
        raise


def choose_cluster(
    resources: Mapping[str, float], machines: int, device: str = "auto", processes: int | None = None
) -> RayCluster:
    """Choose the resources of a cluster that a run uses: one process per core, or several per GPU if there are any."""
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if device == "cuda" and not gpus:
        raise ConfigError("--device cuda: the Ray cluster has no GPU.")
    if device == "cpu" or not gpus:
        cluster = RayCluster("cpu", processes or cpus, machines)
    else:
        cluster = RayCluster("cuda", processes or min(cpus, gpus * PROCESSES_PER_GPU), machines, gpus)
    if not cluster.processes:
        raise ConfigError(
            "The Ray cluster has no cores now. If it scales up on demand, specify the number of processes with "
            "--workers."
        )
    return cluster


def _connect(address: str, processes: int | None) -> None:
    """Connect to a cluster with `ray.init`, and suppress Ray's own log output."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("--engine ray", "ray") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    options: dict[str, Any] = {}
    if address == LOCAL_ADDRESS:
        options = {
            "num_cpus": processes or available_cores(),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray also raises plain exceptions
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if address == LOCAL_ADDRESS:
            raise MastError(
                f"Ray cannot be started on this machine: {reason} Try again, or use --engine local."
            ) from None
        raise ConfigError(
            f"--ray-address {address}: cannot join a Ray cluster there ({reason}). Start one with ray start --head, run "
            "this command on one of its machines, and specify the address that it prints, or auto. If the cluster has "
            "a token, set RAY_AUTH_TOKEN."
        ) from None


def run_ray(
    run: DetectionRun,
    cluster: RayCluster,
    shard: Shard,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
) -> Outcome:
    """Process the missing parts of a shard, then leave the cluster; the run resumes after Ctrl-C and SIGTERM."""
    import ray

    missing = run.missing(shard)
    total_s = float(run.plan.seconds[missing].sum())
    try:
        return execute(run, shard, _process_parts(run, missing, cluster), total_s, on_progress)
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:300]
        raise MastError(
            f"The Ray cluster has failed: {reason}. Finished parts are kept; run the same command again to resume."
        ) from error
    finally:
        ray.shutdown()


def _process_parts(run: DetectionRun, missing: Integers, cluster: RayCluster) -> Generator[float]:
    """Process the missing parts; yield the seconds processed so far after each part."""
    import ray
    from ray.data import ActorPoolStrategy, from_items

    config, processed_s, abandoned = asdict(run.config), 0.0, list[int]()
    actor: Any = DetectionActor  # Ray's type hints do not allow a class here
    if len(missing):
        check_machines(config)
        attempts: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(AttemptCounter).remote()
    for first in range(0, len(missing), MAX_CONCURRENT_PARTS):
        rows = [run.plan.part(int(number))._asdict() for number in missing[first:][:MAX_CONCURRENT_PARTS]]
        blocks = from_items(
            rows, override_num_blocks=len(rows)
        )  # one part per block: Ray retries single blocks
        results = blocks.map(
            actor,
            fn_constructor_args=(
                json.dumps(config),
                cluster.kind,
                lambda number: ray.get(attempts.begin.remote(number)),
            ),
            num_cpus=1,
            num_gpus=1 / PROCESSES_PER_GPU if cluster.kind == "cuda" else None,
            compute=ActorPoolStrategy(
                size=min(cluster.processes, len(rows)),
                max_tasks_in_flight_per_actor=1,  # no part waits for a busy actor while another actor is free
            ),
        )  # Ray Data restarts its actors, and retries their parts without limit
        for row in results.iter_rows():
            if row["error"] is not None:
                raise MastError(row["error"])
            if row["abandoned"]:
                abandoned.append(row["number"])
                _check_abandoned(abandoned, MAX_ABANDONED_PARTS)
            else:
                processed_s += row["seconds"]
                yield processed_s
    _check_abandoned(abandoned, 0)


def _check_abandoned(abandoned: list[int], maximum: int) -> None:
    """Raise MastError if more than `maximum` parts were abandoned."""
    if len(abandoned) > maximum:
        numbers = ", ".join(map(str, sorted(abandoned)))
        raise MastError(
            f"Ray's workers were killed {MAX_KILLS} times at each of these parts: {numbers}. If machines are short of "
            "memory, use fewer processes with --workers. Finished parts are kept; run the same command again to resume. "
            "With --engine local, a recording that repeatedly crashes its process is quarantined."
        )


class AttemptCounter:
    """Actor that outlives the detection actors, and counts the attempts at each part."""

    def __init__(self) -> None:
        self._attempts: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        """Count a new attempt at a part, and return the number of attempts."""
        self._attempts[number] += 1
        return self._attempts[number]


class DetectionActor:
    """Actor that supervises a worker process; `begin(number)` counts an attempt at a part and returns their number."""

    def __init__(self, config: str, device: str, begin: Callable[[int], int]) -> None:
        self._supervisor = WorkerSupervisor(config, device, "0")  # Ray makes only the actor's GPU visible
        self._begin = begin

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Process a part, or abandon it after more than MAX_KILLS attempts.

        Errors are returned as text, because Ray would wrap an exception in its own type.
        """
        part, error = Part(**row), None
        abandoned = self._begin(part.number) > MAX_KILLS
        try:
            if not abandoned:
                self._supervisor.run(part)
        except MastError as failure:
            error = f"{socket.gethostname()}: {failure}"
        return {"number": part.number, "seconds": part.seconds, "abandoned": abandoned, "error": error}


def check_machines(config: dict[str, Any]) -> None:
    """Raise an error if a machine of the cluster lacks anything that the run needs."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    check = ray.remote(num_cpus=0, max_retries=0)(missing_requirements)
    machines = _machines()
    checks = [
        check.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
        ).remote(config, __version__)
        for machine in machines
    ]
    for machine, result in zip(machines, checks, strict=True):
        name = machine["NodeManagerHostname"]
        try:
            problem = ray.get(result)
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[-300:]
            raise MastError(
                f"{name}: MAST does not run on this machine of the cluster. Install mast-bioacoustics[ray] "
                f"{__version__} there, in the Python environment of Ray. ({reason})"
            ) from None
        if problem:
            raise StorageError(
                f"{name}, a machine of the cluster: {problem} All machines need access to the recordings, the model "
                "and the output under the same paths: a shared disk or s3://…"
            )


def missing_requirements(config: dict[str, Any], version: str) -> str | None:
    """Return a description of what this machine lacks for a run, or None if it has everything."""
    if version != __version__:
        return f"it has MAST {__version__}, but the run was started with {version}."
    if config["engine"].startswith("int8") and find_spec("openvino") is None:
        return 'it lacks OpenVINO, which this run needs: pip install "mast-bioacoustics[fast]".'
    folders = [*config["roots"].values(), config["model"]]
    try:
        with open_binary(join(config["out"], RUN)) as file:
            if json.load(file)["fingerprint"] != config["fingerprint"]:
                return f"{config['out']} is another folder here than on the machine that started the run."
        inaccessible = [
            folder for folder in folders if not folder.startswith("hf://") and not is_folder(folder)
        ]
    except (OSError, ValueError, KeyError, StorageError) as error:
        return f"it cannot read everything: {error}."
    return f"it has no access to {', '.join(inaccessible)}." if inaccessible else None


def _machines() -> list[dict[str, Any]]:
    """Return the machines of the cluster that are running."""
    import ray

    return [machine for machine in ray.nodes() if machine["Alive"]]
