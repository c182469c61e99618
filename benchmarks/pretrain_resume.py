"""Compare `mast pretrain` killed repeatedly with an uninterrupted run, and one process with two.

    python -m benchmarks.pretrain_resume              writes benchmarks/results/pretrain_resume.json
    python -m benchmarks.pretrain_resume --small      a small version

Every run is a separate process. One is never interrupted. Another is stopped with SIGTERM, then killed with SIGKILL at
random moments, also while it starts or writes its checkpoint, and resumes with the same command each time: its weights
and its metrics must be identical. Two processes over gloo must have the same losses in float32 as one process; one of the
two is also killed, and the pair resumes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import FOLDER, write_result

PACKAGES = ("mast-bioacoustics", "torch", "timm", "lightning-fabric", "pylance")
PROCESSES = 2
CHUNK_S, BATCH, EMA_DECAY = 2.56, 8, 0.99
STARTING_FRACTION, STARTING_S = 0.2, 8.0
"""Fraction of kills in the first seconds, while a process may still be starting."""

HANGING_S = 900.0
"""Timeout of every step."""

MAX_LOSS_DIFFERENCE = 1e-4
"""Maximum difference of a loss between one process and two; only the order of summation differs."""


@dataclass(frozen=True)
class Size:
    """Extent of the benchmark."""

    epochs: int
    precision: str
    kills: int
    life_s: float  # maximum delay of a kill after the first checkpoint
    pair_epochs: int
    decoders: tuple[str, ...]
    pair_kill: bool


FULL = Size(10, "auto", 24, 2.0, pair_epochs=2, decoders=("swin", "plain"), pair_kill=True)
SMALL = Size(1, "fp32", 2, 0.5, pair_epochs=1, decoders=("swin",), pair_kill=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="2 kills and one pair")
    parser.add_argument("--out", type=Path, default=FOLDER / "pretrain_resume.json")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mast-resume-") as temporary:
        metrics = measure(prepared_study(Path(temporary)), SMALL if options.small else FULL)
    metrics["seconds"] = round(time.perf_counter() - start)
    write_result(options.out, metrics, PACKAGES)
    print(json.dumps(metrics, indent=2))
    check(metrics)


def check(metrics: dict[str, Any]) -> None:
    """Exit if a claim does not hold."""
    wrong = [name for name, value in metrics.items() if name.endswith("_equal") and value is False]
    if metrics["ddp_max_loss_difference"] > MAX_LOSS_DIFFERENCE:
        wrong.append("ddp_max_loss_difference")
    if metrics["sigterm_exit_code"]:
        wrong.append("sigterm_exit_code")
    if wrong:
        sys.exit(f"does not hold: {', '.join(wrong)}")


def prepared_study(folder: Path) -> Path:
    """Prepare the example card in chunks of 2.56 s; return the study file."""
    from mast.cli import app
    from mast.example_data import write_example

    write_example(folder / "example")
    study = folder / "study.yaml"
    settings = {
        "work_dir": "work",
        "collections": {"card": {"root": "example/card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "example/boxes", "format": "raven"}],
        "splits": {"block_s": 10, "guard_s": 0},
        "chunking": {"chunk_s": CHUNK_S, "hop_s": CHUNK_S / 2},
        "model": {"size": "tiny"},
        "pretrain": {
            "batch_size": BATCH,
            "warmup_epochs": 1,
            "lr": 1e-3,
            "ema_decay": EMA_DECAY,
            "checkpoint_minutes": 0,
            "plot_every_epochs": 1000,
        },
    }
    study.write_text(json.dumps(settings))  # JSON is YAML
    for command in ("scan", "split", "prepare"):
        with redirect_stdout(io.StringIO()):
            app([command, str(study)], standalone_mode=False)
    return study


def measure(study: Path, size: Size) -> dict[str, Any]:
    """Run, kill and compare; two runs at a time, each with one thread."""
    settings = run_settings(size.epochs, "swin", size.precision)
    uninterrupted, killed = (PretrainRun(study, name, settings) for name in ("uninterrupted", "killed"))
    with ThreadPoolExecutor(1) as background:
        kill_result = background.submit(interrupt, killed, size)
        uninterrupted.finish()
        pairs = compare_pairs(study, size, uninterrupted)
        code, moments = kill_result.result()
    return {
        "kills": len(moments),
        "kills_by_moment": {name: moments.count(name) for name in ("starting", "training", "saving")},
        "sigterm_exit_code": code,
        "weights_equal": uninterrupted.weights == killed.weights,
        "metrics_equal": uninterrupted.metrics == killed.metrics,
        "steps": uninterrupted.metrics[-1]["step"],
        **pairs,
        "settings": {
            "model": "tiny",
            "chunk_s": CHUNK_S,
            "batch": BATCH,
            "precision": size.precision,
            "ema_decay": EMA_DECAY,
            "checkpoint": "every step",
        },
    }


def run_settings(epochs: int, decoder: str, precision: str) -> tuple[str, ...]:
    """Return the settings of a run."""
    return (f"pretrain.epochs={epochs}", f"pretrain.decoder={decoder}", f"pretrain.precision={precision}")


def interrupt(run: PretrainRun, size: Size) -> tuple[int, list[str]]:
    """Stop a run, kill it at seeded random moments, and let it finish; return the exit code and the moments of kills."""
    code = stop(run)
    rng, moments = random.Random(1), list[str]()
    while len(moments) < size.kills and not run.is_finished:
        process, saved_ns = run.start(), run.saved_ns()
        if rng.random() < STARTING_FRACTION:
            time.sleep(rng.uniform(0, STARTING_S))
        else:
            wait_for_checkpoint(run, process, saved_ns)
            time.sleep(rng.uniform(0, size.life_s))
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            has_trained = run.saved_ns() > saved_ns
            moments.append("saving" if run.is_saving else "training" if has_trained else "starting")
    run.finish()
    return code, moments


def stop(run: PretrainRun) -> int:
    """Send SIGTERM to a run that is training; return its exit code, 0 if it saved its state."""
    process = run.start()
    wait_for_checkpoint(run, process)
    process.terminate()
    output, errors = process.communicate(timeout=HANGING_S)
    if "run the same command again to resume" not in output or run.is_finished:
        sys.exit(f"the run did not stop after SIGTERM: {output} {errors}")
    return process.returncode


def compare_pairs(study: Path, size: Size, uninterrupted: PretrainRun) -> dict[str, Any]:
    """Compare one process with two at the same batch size in float32, for each decoder; then kill one of a pair."""
    differences: dict[str, float] = {}
    for decoder in size.decoders:
        settings = run_settings(size.pair_epochs, decoder, "fp32")
        two = PretrainRun(study, f"two-{decoder}", settings, PROCESSES)
        two.finish()
        one = uninterrupted
        if settings != uninterrupted.settings:
            one = PretrainRun(study, f"one-{decoder}", settings)
            one.finish()
        pairs = zip(one.losses(), two.losses(), strict=True)
        differences[decoder] = max(abs(alone - together) for alone, together in pairs)
    killed_equal = None
    if size.pair_kill:
        killed = PretrainRun(study, "two-killed", two.settings, PROCESSES)
        kill_one_of_two(killed)
        killed.finish()
        killed_equal = killed.weights == two.weights and killed.metrics == two.metrics
    return {
        "ddp_world_size": PROCESSES,
        "ddp_steps": two.metrics[-1]["step"],
        "ddp_max_loss_difference": max(differences.values()),
        "ddp_loss_difference_by_decoder": differences,
        "ddp_killed_weights_equal": killed_equal,
    }


def kill_one_of_two(run: PretrainRun) -> None:
    """Kill the second process of a pair during training; torchrun then ends the first."""
    process = run.start()
    wait_for_checkpoint(run, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    process.communicate(timeout=HANGING_S)
    if not process.returncode or run.is_finished:
        sys.exit("the pair did not stop after one of its processes was killed")


def wait_for_checkpoint(run: PretrainRun, process: subprocess.Popen[str], before_ns: int = 0) -> None:
    """Wait until a run has written a new checkpoint, or has ended."""
    start = time.monotonic()
    while run.saved_ns() <= before_ns and process.poll() is None:
        if time.monotonic() - start > HANGING_S:
            process.kill()
            sys.exit(f"no checkpoint in {HANGING_S:.0f} s: {process.communicate()[1]}")
        time.sleep(0.01)


class PretrainRun:
    """A run of `mast pretrain` that can be started any number of times."""

    def __init__(self, study: Path, name: str, settings: tuple[str, ...], processes: int = 1) -> None:
        self.settings, self.processes = settings, processes
        self.folder = study.parent / "work" / "runs" / "pretrain" / name
        arguments = [mast(), "pretrain", str(study), "--run-name", name, "--device", "cpu"]
        self.command = [*arguments, *(word for setting in settings for word in ("--set", setting))]
        if processes > 1:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
            self.command = [*torchrun, "--nproc-per-node", str(processes), *self.command]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self) -> float:
        """Run to the end; return the seconds."""
        start = time.perf_counter()
        process = self.start()
        output, errors = process.communicate(timeout=HANGING_S)
        if process.returncode or "Finished" not in output:
            sys.exit(f"{' '.join(self.command)} ended with {process.returncode}: {errors}")
        return time.perf_counter() - start

    @property
    def weights(self) -> bytes:
        return (self.folder / "model" / "weights.safetensors").read_bytes()

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Lines of the metrics file, without the speed."""
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text("utf-8").splitlines())
        return [{name: value for name, value in line.items() if name != "hours_per_hour"} for line in lines]

    def losses(self) -> list[float]:
        return [value for line in self.metrics for name, value in line.items() if name.endswith("loss")]

    @property
    def is_finished(self) -> bool:
        return (self.folder / "model" / "model.json").exists()

    def saved_ns(self) -> int:
        """Return the time of the last checkpoint in nanoseconds, 0 before the first."""
        last = self.folder / "last.ckpt"
        return last.stat().st_mtime_ns if last.exists() else 0

    @property
    def is_saving(self) -> bool:
        return (self.folder / "last.partial").exists()


def mast() -> str:
    """Return the path of the `mast` command of the same installation."""
    return str(Path(sys.executable).with_name("mast"))


def environment() -> dict[str, str]:
    """Return an environment with one thread per process and communication over loopback."""
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    return {**os.environ, "OMP_NUM_THREADS": "1", **loopback}


if __name__ == "__main__":
    main()
