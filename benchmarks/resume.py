"""`mast pretrain` killed again and again against the same run left alone, and one process against two.

    python -m benchmarks.resume              writes benchmarks/results/resume.json
    python -m benchmarks.resume --small      a small version

Every run is a real process. One is never disturbed. Another is told to stop with SIGTERM, then meets SIGKILL at random
moments, also while it starts or writes its checkpoint, and goes on with the same command each time: its weights must
be the same bytes and its metrics the same lines. Two processes over gloo learn in float32 what one does; one of two is
killed as well, and the pair goes on.
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
STARTING_SHARE, STARTING_S = 0.2, 8.0
"""So many kills come while a process may still be starting."""

HANGING_S = 900.0
"""Longest that anything here may take."""

CLOSE = 1e-4
"""Largest difference of a loss between one process and two: the order of sums differs, nothing else."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    epochs: int
    precision: str
    kills: int
    life_s: float  # a process is killed at most so long after its first checkpoint
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
    parser.add_argument("--out", type=Path, default=FOLDER / "resume.json")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mast-resume-") as temporary:
        figures = measure(prepared_study(Path(temporary)), SMALL if options.small else FULL)
    figures["seconds"] = round(time.perf_counter() - start)
    write_result(options.out, figures, PACKAGES)
    print(json.dumps(figures, indent=2))
    complain(figures)


def complain(figures: dict[str, Any]) -> None:
    """Fail where a claim does not hold."""
    wrong = [name for name, value in figures.items() if name.endswith("_equal") and value is False]
    if figures["ddp_max_loss_difference"] > CLOSE:
        wrong.append("ddp_max_loss_difference")
    if figures["sigterm_exit_code"]:
        wrong.append("sigterm_exit_code")
    if wrong:
        sys.exit(f"does not hold: {', '.join(wrong)}")


def prepared_study(folder: Path) -> Path:
    """The example's card, prepared in chunks of 2.56 s. → the study's file"""
    from mast.cli import app
    from mast.example import write_example

    write_example(folder / "example")
    study = folder / "study.yaml"
    settings = {
        "work": "work",
        "collections": {"card": {"root": "example/card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "example/boxes", "format": "raven"}],
        "splits": {"block_s": 10, "guard_s": 0},
        "chunking": {"chunk_s": CHUNK_S, "hop_s": CHUNK_S / 2},
        "model": {"size": "tiny"},
        "pretrain": {
            "batch": BATCH,
            "warmup_epochs": 1,
            "lr": 1e-3,
            "ema_decay": EMA_DECAY,
            "checkpoint_minutes": 0,
            "picture_epochs": 1000,
        },
    }
    study.write_text(json.dumps(settings))  # JSON is YAML
    for verb in ("scan", "splits", "prepare"):
        with redirect_stdout(io.StringIO()):
            app([verb, str(study)], standalone_mode=False)
    return study


def measure(study: Path, size: Size) -> dict[str, Any]:
    """Run, kill and compare; two things at a time, for each learns on one thread."""
    settings = learned(size.epochs, "swin", size.precision)
    whole, disturbed = (Learning(study, name, settings) for name in ("whole", "disturbed"))
    with ThreadPoolExecutor(1) as beside:
        disturbances = beside.submit(disturb, disturbed, size)
        whole.finish()
        pairs = compare_pairs(study, size, whole)
        code, deaths = disturbances.result()
    return {
        "kills": len(deaths),
        "kills_by_moment": {moment: deaths.count(moment) for moment in ("starting", "learning", "saving")},
        "sigterm_exit_code": code,
        "weights_equal": whole.weights == disturbed.weights,
        "metrics_equal": whole.metrics == disturbed.metrics,
        "steps": whole.metrics[-1]["step"],
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


def learned(epochs: int, decoder: str, precision: str) -> tuple[str, ...]:
    """Settings of a run."""
    return (f"pretrain.epochs={epochs}", f"pretrain.decoder={decoder}", f"pretrain.precision={precision}")


def disturb(run: Learning, size: Size) -> tuple[int, list[str]]:
    """Tell a run to stop, kill it at moments that a seed decides, let it finish. → exit code, what each kill met"""
    code = tell_to_stop(run)
    rng, deaths = random.Random(1), list[str]()
    while len(deaths) < size.kills and not run.is_finished:
        process, saved_ns = run.start(), run.saved_ns()
        if rng.random() < STARTING_SHARE:
            time.sleep(rng.uniform(0, STARTING_S))
        else:
            wait_for_checkpoint(run, process, saved_ns)
            time.sleep(rng.uniform(0, size.life_s))
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            has_learned = run.saved_ns() > saved_ns
            deaths.append("saving" if run.is_saving else "learning" if has_learned else "starting")
    run.finish()
    return code, deaths


def tell_to_stop(run: Learning) -> int:
    """Send SIGTERM to a run that has begun to learn. → its exit code, 0 where it has kept its state"""
    process = run.start()
    wait_for_checkpoint(run, process)
    process.terminate()
    output, errors = process.communicate(timeout=HANGING_S)
    if "The same command goes on" not in output or run.is_finished:
        sys.exit(f"SIGTERM was not heeded: {output} {errors}")
    return process.returncode


def compare_pairs(study: Path, size: Size, whole: Learning) -> dict[str, Any]:
    """One process against two with the same batch in float32, for each decoder; then a pair that loses one of two."""
    differences: dict[str, float] = {}
    for decoder in size.decoders:
        settings = learned(size.pair_epochs, decoder, "fp32")
        two = Learning(study, f"two-{decoder}", settings, PROCESSES)
        two.finish()
        one = whole
        if settings != whole.settings:
            one = Learning(study, f"one-{decoder}", settings)
            one.finish()
        pairs = zip(one.losses(), two.losses(), strict=True)
        differences[decoder] = max(abs(alone - together) for alone, together in pairs)
    killed_equal = None
    if size.pair_kill:
        again = Learning(study, "two-killed", two.settings, PROCESSES)
        kill_one_of_two(again)
        again.finish()
        killed_equal = again.weights == two.weights and again.metrics == two.metrics
    return {
        "ddp_world_size": PROCESSES,
        "ddp_steps": two.metrics[-1]["step"],
        "ddp_max_loss_difference": max(differences.values()),
        "ddp_loss_difference_by_decoder": differences,
        "ddp_killed_weights_equal": killed_equal,
    }


def kill_one_of_two(run: Learning) -> None:
    """Kill the second process of a pair once it learns; torchrun then ends the first."""
    process = run.start()
    wait_for_checkpoint(run, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    process.communicate(timeout=HANGING_S)
    if not process.returncode or run.is_finished:
        sys.exit("a pair that has lost one of two did not notice")


def wait_for_checkpoint(run: Learning, process: subprocess.Popen[str], before_ns: int = 0) -> None:
    """Wait until a run has written a checkpoint of its own, or has ended."""
    start = time.monotonic()
    while run.saved_ns() <= before_ns and process.poll() is None:
        if time.monotonic() - start > HANGING_S:
            process.kill()
            sys.exit(f"nothing happened: {process.communicate()[1]}")
        time.sleep(0.01)


class Learning:
    """A run of `mast pretrain` that can be started any number of times."""

    def __init__(self, study: Path, name: str, settings: tuple[str, ...], processes: int = 1) -> None:
        self.settings, self.processes = settings, processes
        self.folder = study.parent / "work" / "runs" / "pretrain" / name
        words = [mast(), "pretrain", str(study), "--name", name, "--device", "cpu"]
        self.command = [*words, *(word for item in settings for word in ("--set", item))]
        if processes > 1:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
            self.command = [*torchrun, "--nproc-per-node", str(processes), *self.command]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self) -> float:
        """Run to the end. → seconds"""
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
        """Every line that the run has kept, but for its speed."""
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text("utf-8").splitlines())
        return [{name: value for name, value in line.items() if name != "hours_per_hour"} for line in lines]

    def losses(self) -> list[float]:
        return [value for line in self.metrics for name, value in line.items() if name.endswith("loss")]

    @property
    def is_finished(self) -> bool:
        return (self.folder / "model" / "model.json").exists()

    def saved_ns(self) -> int:
        """When the last checkpoint was written, 0 before the first."""
        last = self.folder / "last.ckpt"
        return last.stat().st_mtime_ns if last.exists() else 0

    @property
    def is_saving(self) -> bool:
        return (self.folder / "last.partial").exists()


def mast() -> str:
    """The command, of the same installation."""
    return str(Path(sys.executable).with_name("mast"))


def environment() -> dict[str, str]:
    """One thread a process, and nothing but loopback between them."""
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    return {**os.environ, "OMP_NUM_THREADS": "1", **loopback}


if __name__ == "__main__":
    main()
