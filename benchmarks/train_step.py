"""Compare a step of `mast train` with a minimal loop of the same modules on tensors in memory; time a paper-size step.

    python -m benchmarks.train_step             writes benchmarks/results/train_step.json
    python -m benchmarks.train_step --small     a small version, without the paper's step

The minimal loop runs only forward, losses, backward, gradient clipping, AdamW and the moving average of the weights, on
batches in memory. `mast train` adds reading, log-mel, augmentation, targets and the checks of its loop. Both alternate in
one process, in the fastest precision of this machine; each time is that of the best round. On a CPU it is processor time,
including loader threads, which does not depend on other programs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results import FOLDER, peak_mb, write_result
from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.loader import FixedChunkDataset, iter_batches
from mast.datasets.sampler import BatchSampler
from mast.example_data import write_example
from mast.models.devices import autocast, best_precision, resolve_device
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.checkpointing import Checkpointed
from mast.training.fabric import start_fabric
from mast.training.loop import LOADER_THREADS, TrainingSet, _Loop, catch_stop_signals
from mast.training.optimiser import Schedule, adamw, make_ema
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask

STEPS, ROUNDS = 2, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a batch of 2, one round, no paper-size step")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=FOLDER / "train_step.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batch, rounds = (2, 1) if options.small else (4, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="mast-train-step-") as temporary:
        study_file = make_study(Path(temporary))
        sets = ["model.size=small", f"train.batch_size={batch}", "train.ema_decay=0.999"]
        metrics: dict[str, Any] = compare(load_study(study_file, sets), Path(temporary) / "run", rounds)
        metrics |= dict.fromkeys(("paper_step_s", "paper_batch", "paper_micro_batch_size", "paper_loss"))
        if not options.small:
            metrics |= paper_step(load_study(study_file, ["preset=paper"]), Path(temporary) / "paper")
    metrics |= {
        "batch": batch,
        "threads": options.threads,
        "precision": best_precision(resolve_device("auto")),
    }
    write_result(options.out, {**metrics, "peak_mb": round(peak_mb())}, ("torch", "timm", "lightning-fabric"))
    print(options.out.read_text())


def make_study(folder: Path) -> Path:
    """Prepare the example as a study with the paper's chunks."""
    write_example(folder / "example")
    path = folder / "study.yaml"
    settings = {
        "collections": {"card": {"root": "example/card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "example/boxes", "format": "raven"}],
        "splits": {"block_s": 20, "guard_s": 0},
    }
    path.write_text(json.dumps(settings), encoding="utf-8")
    for command in ("scan", "split", "prepare"):
        app([command, str(path)], standalone_mode=False)
    return path


def compare(study: Study, folder: Path, rounds: int) -> dict[str, float]:
    """Return the seconds per step of both, best of alternating rounds."""
    loop = loop_of(study, folder)
    loader = iter_batches(loop.data.store, loop.data.examples, loop.sampler, workers=LOADER_THREADS)
    loop._begin_epoch()
    best = {"mast": float("inf"), "bare": float("inf")}
    clock = time.process_time if loop.device.type == "cpu" else synchronised
    with catch_stop_signals() as stop_signal:
        for number in range(rounds + 1):  # the first round is the warm-up
            batches = []
            start_s = clock()
            for batch in islice(loader, STEPS):
                losses, *_ = loop._synchronise(loop._step(batch, 0), stop_signal, is_due=False)
                loop._check(losses, batch, 0)
                batches.append(batch)
            mast_s = clock() - start_s
            prepared = [loop.task.prepare_batch(batch, 0, loop.device) for batch in batches]
            start_s = clock()
            for inputs in prepared:
                bare_step(loop, inputs)
            bare_s = clock() - start_s
            if number:
                best["mast"] = min(best["mast"], mast_s / STEPS)
                best["bare"] = min(best["bare"], bare_s / STEPS)
    return {
        "ratio_to_bare": round(best["mast"] / best["bare"], 3),
        "mast_step_s": round(best["mast"], 3),
        "bare_step_s": round(best["bare"], 3),
    }


def synchronised() -> float:
    """Return the wall-clock time after all GPU work is finished."""
    torch.cuda.synchronize()
    return time.perf_counter()


def loop_of(study: Study, folder: Path) -> _Loop:
    """Return the loop of `mast train` before its first step; examples are repeated if there are fewer than a batch."""
    run = TrainingRun(folder)
    store = AudioStore(join(study.work_dir, STORE))
    task, fabric = DetectorTask(study, store), start_fabric("auto", run)
    labelled, batch = task.training_set.examples, study.train.batch_size
    rows = np.arange(max(len(labelled), batch)) % len(labelled)
    examples = FixedChunkDataset(labelled.locations(0, rows), labelled.boxes(rows))
    sampler = BatchSampler(len(examples), batch, study.train.seed, drop_last=True)
    module, optimiser = fabric.setup(task.module, adamw(task.param_groups(), study.train))
    ema = make_ema(task.module, study.train.ema_decay)
    checkpointed = Checkpointed(fabric, module, optimiser, ema)
    schedule = Schedule.of(study.train, sampler.steps_per_epoch)
    return _Loop(
        task,
        TrainingSet(store, examples),
        study.train,
        run,
        checkpointed,
        sampler,
        schedule,
        lambda progress: None,
    )


def bare_step(loop: _Loop, inputs: tuple[Any, ...]) -> None:
    """Run one step of a minimal loop with the same module, optimiser and moving average."""
    module, optimiser = loop.task.module, loop.checkpointed.optimiser.optimizer
    with autocast(loop.device.type):
        loss = module(*inputs)["loss"]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), loop.settings.grad_clip_norm)
    optimiser.step()
    optimiser.zero_grad()
    if loop.checkpointed.ema is not None:
        loop.checkpointed.ema.update_parameters(module)


def paper_step(study: Study, folder: Path) -> dict[str, float]:
    """Return the wall-clock time of one step of the paper's detector, ViT-B with 64 chunks, in micro-batches of 4."""
    micro_batch = 4
    changed = study.train.model_copy(update={"micro_batch_size": micro_batch})
    loop = loop_of(study.model_copy(update={"train": changed}), folder)
    loop.micro_batch_size = micro_batch
    loop._begin_epoch()
    batch = next(iter_batches(loop.data.store, loop.data.examples, loop.sampler))
    start_s = time.perf_counter()
    losses = loop._step(batch, 0)
    return {
        "paper_step_s": round(time.perf_counter() - start_s, 1),
        "paper_batch": len(batch.examples),
        "paper_micro_batch_size": micro_batch,
        "paper_loss": round(float(losses["loss"]), 3),
    }


if __name__ == "__main__":
    main()
