"""A run on a Ray cluster: the parts are rows of a Ray dataset, and as many actors as there are cores hear them.

Each actor leads a process of its own as a thread of the local engine does, so that a decoder that crashes takes no Ray
worker along, and what it does to a recording is the same under both engines. Ray itself moves nothing but numbers of
parts: sound is read, and events are written, where the actor is. What kills a Ray worker or takes a machine away costs
the parts that were under way there; Ray gives them to another, but not for ever: a part at which workers are killed
again and again is given up, and named once the others are done.

An actor imports this module, and it should stay as light as that needs: no torch.
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

from mast import __version__
from mast.detection.folder import RUN
from mast.detection.leading import MAX_KILLS, PROCESSES_PER_GPU, Leader
from mast.detection.plan import Part
from mast.detection.running import Outcome, Progress, carry_out
from mast.errors import ConfigError, MastError, MissingExtraError, StorageError
from mast.recordings.workers import cores
from mast.storage import is_folder, join, open_binary

if TYPE_CHECKING:
    from mast.detection.archive import Archive, Shard
    from mast.detection.plan import Integers

HERE = "local"
"""Ray's own word for a cluster of this machine alone, started for this run and ended with it."""

PARTS_AT_ONCE = 10_000
"""Parts of one dataset: Ray keeps something about each in memory, and a large archive has millions."""

MAX_GIVEN_UP = 10
"""More parts than so many that are given up are not the recordings' fault: the run ends at once."""

_STORE_BYTES = 100 * 2**20  # of Ray's object store, which holds nothing but numbers of parts


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster that this process has joined; `processes` are at work on it, `gpus` in all."""

    kind: str
    processes: int
    machines: int
    gpus: int = 0

    def told(self) -> str:
        """What it is, for a person to read."""
        machines = f"{self.machines} machine" + ("" if self.machines == 1 else "s")
        devices = f" on {self.gpus} GPUs" if self.kind == "cuda" else ""
        return f"Running on Ray: {machines}, {self.processes} process{'' if self.processes == 1 else 'es'}{devices}"


def join_cluster(address: str | None = None, device: str = "auto", processes: int | None = None) -> Cluster:
    """Join the cluster at an address, or that of RAY_ADDRESS, or start one on this machine."""
    if processes is not None and processes < 1:
        raise ConfigError(f"--workers {processes}: give 1 or more.")
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {device}: use auto, cpu or cuda.")
    address = address or os.environ.get("RAY_ADDRESS") or HERE
    _connect(address, processes)
    import ray

    try:
        return choose_cluster(ray.cluster_resources(), len(_machines()), device, processes)
    except ConfigError:
        ray.shutdown()
        raise


def choose_cluster(
    resources: Mapping[str, float], machines: int, device: str = "auto", processes: int | None = None
) -> Cluster:
    """What of a cluster's resources a run uses: one process a core, or several a GPU where there are any."""
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if device == "cuda" and not gpus:
        raise ConfigError("--device cuda: the Ray cluster has no GPU.")
    if device == "cpu" or not gpus:
        cluster = Cluster("cpu", processes or cpus, machines)
    else:
        cluster = Cluster("cuda", processes or min(cpus, gpus * PROCESSES_PER_GPU), machines, gpus)
    if not cluster.processes:
        raise ConfigError(
            "The Ray cluster has no cores just now. If it grows when it is asked to, say with --workers how many "
            "processes there should be."
        )
    return cluster


def _connect(address: str, processes: int | None) -> None:
    """`ray.init`, without Ray's own talk on the screen."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("--engine ray", "ray") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    own: dict[str, Any] = {}
    if address == HERE:
        own = {
            "num_cpus": processes or cores(),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except Exception as error:  # Ray throws plain ones, too
        why = " ".join(str(error).split())[:300] or type(error).__name__
        if address == HERE:
            raise MastError(
                f"Ray cannot be started on this machine: {why} Try again, or use --engine local."
            ) from None
        raise ConfigError(
            f"--ray-address {address}: no Ray cluster can be joined there ({why}). Start one with ray start --head, "
            "run this command on one of its machines, and give the address that it tells, or auto; its token, if it "
            "has one, goes into RAY_AUTH_TOKEN."
        ) from None


def run_ray(
    archive: Archive,
    cluster: Cluster,
    shard: Shard,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Do what is missing of a shard, and leave the cluster; Ctrl-C and SIGTERM end it, and the same command goes on."""
    import ray

    missing = archive.missing(shard)
    total_s = float(archive.plan.seconds[missing].sum())
    try:
        return carry_out(archive, shard, _hearing(archive, missing, cluster), total_s, on_progress)
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[:300]
        raise MastError(
            f"The Ray cluster has failed: {why}. What is done is kept: the same command goes on."
        ) from error
    finally:
        ray.shutdown()


def _hearing(archive: Archive, missing: Integers, cluster: Cluster) -> Generator[float]:
    """Have the missing parts done; gives the seconds heard so far, whenever one is."""
    import ray
    from ray.data import ActorPoolStrategy, from_items

    orders, heard_s, given_up = asdict(archive.orders), 0.0, list[int]()
    hearer: Any = Hearer  # Ray's own types do not know that a class may be given
    if len(missing):
        check_machines(orders)
        attempts: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Attempts).remote()
    for first in range(0, len(missing), PARTS_AT_ONCE):
        rows = [archive.plan.part(int(number))._asdict() for number in missing[first:][:PARTS_AT_ONCE]]
        blocks = from_items(rows, override_num_blocks=len(rows))  # a part is a block: what is retried alone
        heard = blocks.map(
            hearer,
            fn_constructor_args=(
                json.dumps(orders),
                cluster.kind,
                lambda number: ray.get(attempts.begin.remote(number)),
            ),
            num_cpus=1,
            num_gpus=1 / PROCESSES_PER_GPU if cluster.kind == "cuda" else None,
            compute=ActorPoolStrategy(
                size=min(cluster.processes, len(rows)),
                max_tasks_in_flight_per_actor=1,  # nobody waits behind another while a third is free
            ),
        )  # Ray Data restarts its actors, and retries what they were at, without end
        for row in heard.iter_rows():
            if row["error"] is not None:
                raise MastError(row["error"])
            if row["given_up"]:
                given_up.append(row["number"])
                _check_few(given_up, MAX_GIVEN_UP)
            else:
                heard_s += row["seconds"]
                yield heard_s
    _check_few(given_up, 0)


def _check_few(given_up: list[int], most: int) -> None:
    """Tell of parts that were given up."""
    if len(given_up) > most:
        numbers = ", ".join(map(str, sorted(given_up)))
        raise MastError(
            f"Ray's workers were killed {MAX_KILLS} times at each of these parts: {numbers}. If machines are short of "
            "memory, have fewer workers with --workers. What is done is kept: the same command goes on, and with "
            "--engine local a recording that ends its process again and again is passed over."
        )


class Attempts:
    """An actor that outlives the others, and knows how often each part was begun."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        """How often a part was begun, with this time."""
        self._begun[number] += 1
        return self._begun[number]


class Hearer:
    """What an actor does: lead a process that hears one part after the other; `begin` tells how often one was begun."""

    def __init__(self, orders: str, device: str, begin: Callable[[int], int]) -> None:
        self._leader = Leader(orders, device)  # of the GPUs, Ray lets it see its own alone
        self._begin = begin

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Have a part done, unless too many were killed at it; an error is told, for Ray would wrap it in its own."""
        part, error = Part(**row), None
        given_up = self._begin(part.number) > MAX_KILLS
        try:
            if not given_up:
                self._leader.hear(part)
        except MastError as trouble:
            error = f"{socket.gethostname()}: {trouble}"
        return {"number": part.number, "seconds": part.seconds, "given_up": given_up, "error": error}


def check_machines(orders: dict[str, Any]) -> None:
    """Refuse to begin where a machine of the cluster does not see what the run needs."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(missed)
    machines = _machines()
    looks = [
        look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
        ).remote(orders, __version__)
        for machine in machines
    ]
    for machine, looked in zip(machines, looks, strict=True):
        name = machine["NodeManagerHostname"]
        try:
            trouble = ray.get(looked)
        except ray.exceptions.RayError as error:
            why = " ".join(str(error).split())[-300:]
            raise MastError(
                f"{name}: MAST does not run on this machine of the cluster. Install mast-bioacoustics[ray] "
                f"{__version__} there, in the Python that Ray runs in. ({why})"
            ) from None
        if trouble:
            raise StorageError(
                f"{name}, a machine of the cluster: {trouble} All of its machines must see the recordings, the model "
                "and the output under the same names: a shared disk or s3://…"
            )


def missed(orders: dict[str, Any], version: str) -> str | None:
    """What this machine lacks that a run needs."""
    if version != __version__:
        return f"it has MAST {__version__}, and the run was begun with {version}."
    if orders["engine"].startswith("int8") and find_spec("openvino") is None:
        return 'it has no OpenVINO, which this run needs: pip install "mast-bioacoustics[fast]".'
    folders = [*orders["roots"].values(), orders["model"]]
    try:
        with open_binary(join(orders["out"], RUN)) as file:
            if json.load(file)["fingerprint"] != orders["fingerprint"]:
                return f"{orders['out']} is another folder here than where the run was begun."
        unseen = [folder for folder in folders if not folder.startswith("hf://") and not is_folder(folder)]
    except (OSError, ValueError, KeyError, StorageError) as error:
        return f"not all can be read: {error}."
    return f"it does not see {', '.join(unseen)}." if unseen else None


def _machines() -> list[dict[str, Any]]:
    """Those of the cluster that are up."""
    import ray

    return [machine for machine in ray.nodes() if machine["Alive"]]
