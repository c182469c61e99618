"""A step of `mast train` against a bare loop of the same modules on tensors in memory, and a step of the paper's size.

    python -m benchmarks.train_step             writes benchmarks/results/train_step.json
    python -m benchmarks.train_step --small     a small version, without the paper's step

The bare loop does what no training can do without: forward, losses, backward, clipping, AdamW and the running mean, on
batches that lie ready. `mast train` adds reading, log-mel, augmentation, targets and all that the loop looks after.
Both take turns in one process, in the arithmetic that this machine does best; each figure is the best round. On a CPU
it is processor time, readers' threads included, which other programs do not disturb.
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
from mast.datasets.loading import FixedChunks, batches
from mast.datasets.order import Order
from mast.example import write_example
from mast.models.devices import accelerator, autocast, best_precision
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.study.products import STORE
from mast.training.devices import start_fabric
from mast.training.finetune import FinetuneRecipe
from mast.training.loop import READERS, Sound, _Loop, told_to_stop
from mast.training.optimiser import Schedule, adamw, running_mean
from mast.training.run import Run
from mast.training.state import Parts

STEPS, ROUNDS = 2, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--small", action="store_true", help="a batch of 2, one round, no step of the paper's size"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=FOLDER / "train_step.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batch, rounds = (2, 1) if options.small else (4, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="mast-train-step-") as temporary:
        study_file = make_study(Path(temporary))
        sets = ["model.size=small", f"train.batch={batch}", "train.ema_decay=0.999"]
        figures: dict[str, Any] = compare(load_study(study_file, sets), Path(temporary) / "run", rounds)
        figures |= dict.fromkeys(("paper_step_s", "paper_batch", "paper_device_batch", "paper_loss"))
        if not options.small:
            figures |= paper_step(load_study(study_file, ["preset=paper"]), Path(temporary) / "paper")
    figures |= {"batch": batch, "threads": options.threads, "precision": best_precision(accelerator("auto"))}
    write_result(options.out, {**figures, "peak_mb": round(peak_mb())}, ("torch", "timm", "lightning-fabric"))
    print(options.out.read_text())


def make_study(folder: Path) -> Path:
    """The example as a prepared study of the paper's chunks."""
    write_example(folder / "example")
    path = folder / "study.yaml"
    settings = {
        "collections": {"card": {"root": "example/card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "example/boxes", "format": "raven"}],
        "splits": {"block_s": 20, "guard_s": 0},
    }
    path.write_text(json.dumps(settings), encoding="utf-8")
    for verb in ("scan", "splits", "prepare"):
        app([verb, str(path)], standalone_mode=False)
    return path


def compare(study: Study, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds a step of both, best of alternating rounds."""
    loop = loop_of(study, folder)
    loader = batches(loop.sound.store, loop.sound.examples, loop.order, workers=READERS)
    loop._begin_epoch()
    best = {"mast": float("inf"), "bare": float("inf")}
    clock = time.process_time if loop.device.type == "cpu" else synchronised
    with told_to_stop() as told:
        for number in range(rounds + 1):  # the first warms up
            taken = []
            start_s = clock()
            for batch in islice(loader, STEPS):
                losses, *_ = loop._agreed(loop._step(batch, 0), told, is_due=False)
                loop._check(losses, batch, 0)
                taken.append(batch)
            mast_s = clock() - start_s
            ready = [loop.recipe.inputs(batch, 0, loop.device) for batch in taken]
            start_s = clock()
            for inputs in ready:
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
    """Clock time once a GPU has done all it was told."""
    torch.cuda.synchronize()
    return time.perf_counter()


def loop_of(study: Study, folder: Path) -> _Loop:
    """The loop of `mast train`, ready for its first step; examples repeat where there are fewer than a batch."""
    run = Run(folder)
    store = AudioStore(join(study.work, STORE))
    recipe, fabric = FinetuneRecipe(study, store), start_fabric("auto", run)
    own, batch = recipe.sound.examples, study.train.batch
    rows = np.arange(max(len(own), batch)) % len(own)
    examples = FixedChunks(own.places(0, rows), own.boxes(rows))
    order = Order(len(examples), batch, study.train.seed, whole_batches=True)
    module, optimiser = fabric.setup(recipe.module, adamw(recipe.groups(), study.train))
    mean = running_mean(recipe.module, study.train.ema_decay)
    parts = Parts(fabric, module, optimiser, mean)
    schedule = Schedule.of(study.train, order.steps_per_epoch)
    return _Loop(
        recipe, Sound(store, examples), study.train, run, parts, order, schedule, lambda progress: None
    )


def bare_step(loop: _Loop, inputs: tuple[Any, ...]) -> None:
    """What a loop of a dozen lines would do with the same module, optimiser and running mean."""
    module, optimiser = loop.recipe.module, loop.parts.optimiser.optimizer
    with autocast(loop.device.type):
        loss = module(*inputs)["loss"]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), loop.settings.clip)
    optimiser.step()
    optimiser.zero_grad()
    if loop.parts.mean is not None:
        loop.parts.mean.update_parameters(module)


def paper_step(study: Study, folder: Path) -> dict[str, float]:
    """Clock time of one step of the paper's detector, ViT-B with 64 chunks, in portions of 4."""
    portion = 4
    changed = study.train.model_copy(update={"device_batch": portion})
    loop = loop_of(study.model_copy(update={"train": changed}), folder)
    loop.portion = portion
    loop._begin_epoch()
    batch = next(batches(loop.sound.store, loop.sound.examples, loop.order))
    start_s = time.perf_counter()
    losses = loop._step(batch, 0)
    return {
        "paper_step_s": round(time.perf_counter() - start_s, 1),
        "paper_batch": len(batch.examples),
        "paper_device_batch": portion,
        "paper_loss": round(float(losses["loss"]), 3),
    }


if __name__ == "__main__":
    main()
