"""Eight real chunks, learned by heart from random weights: if a detector cannot do this, it can do nothing.

    python -m experiments.overfit DATA          writes experiments/results/overfit.json

DATA holds `audio/` and `annotations.csv` (MAST's plain CSV), such as twenty minutes of the BIRDeep recorder AM1. A tiny
detector with the paper's adapter sees the same chunks again and again, without augmentation; then the saved model is
loaded and asked for their boxes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import yaml
from benchmarks.results import write_result

from mast.cli import app
from mast.config import load_study
from mast.datasets.loading import FixedChunks
from mast.datasets.order import spread
from mast.detection.chunks import BoxFinder
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.study.products import STORE
from mast.training.devices import start_fabric
from mast.training.finetune import FinetuneRecipe
from mast.training.hearing import hear
from mast.training.loop import Progress, Sound, train
from mast.training.run import Run
from mast.training.thresholds import choose_threshold

RESULT = Path(__file__).parent / "results" / "overfit.json"


def main() -> None:
    """Prepare, learn, ask, write down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, default=Path("overfit"), help="a new folder")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True)
    study_file = write_study(options.work, options.data, options.steps, options.lr)
    for verb in ("scan", "splits", "prepare"):
        app([verb, str(study_file)], standalone_mode=False)
    figures = overfit(study_file, options.chunks)
    write_result(options.out, {**figures, "steps": options.steps, "lr": options.lr}, ("torch",))
    print(options.out.read_text())


def write_study(folder: Path, data: Path, steps: int, lr: float) -> Path:
    """A study of the data whose every epoch is one step."""
    settings = {
        "preset": "laptop",
        "collections": {"data": {"root": str((data / "audio").absolute()), "time_zone": "UTC"}},
        "annotations": [{"path": str((data / "annotations.csv").absolute()), "format": "csv"}],
        "splits": {"block_s": 60},
        "augmentation": {"probability": 0},
        "normalisation": "band-median",
        "model": {"adapter": "upsampling"},
        "train": {
            "rehearsed_share": 0,
            "min_steps": 0,
            "epochs": steps,
            "warmup_epochs": 5,
            "lr": lr,
            "ema_decay": 0,
            "contrastive_weight": 0,
            "checkpoint_minutes": 60,
        },
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def overfit(study_file: Path, count: int) -> dict[str, float]:
    """Learn some chunks by heart, and measure what the saved model says of them."""
    study = load_study(study_file)
    store, run = AudioStore(join(study.work, STORE)), Run(study_file.parent / "run")
    recipe = FinetuneRecipe(study, store)
    every = recipe.sound.examples
    has_boxes = np.flatnonzero([len(own) > 0 for own in every.boxes(np.arange(len(every)))])
    chosen = has_boxes[spread(len(has_boxes), count)]
    few = FixedChunks(every.places(0, chosen), every.boxes(chosen))
    recipe.held = FixedChunks(np.zeros((0, 2), np.int64))
    start_s = time.perf_counter()
    fabric = start_fabric(study.train.precision, run)
    train(recipe, Sound(store, few), study.train, run, fabric, show)
    seconds = time.perf_counter() - start_s
    heard = hear(BoxFinder(load_detector(str(run.model)), study.detection), store, few)
    threshold = choose_threshold(heard, study.detection.min_score)
    loss = [line["loss"] for line in run.read() if "loss" in line][-1]
    return {
        "f1": float(str(threshold.results.get("validation_f1", 0.0))),
        "score_threshold": threshold.score,
        "boxes": heard.boxes,
        "chunks": count,
        "last_loss": loss,
        "train_s": round(seconds, 1),
    }


def show(progress: Progress) -> None:
    """A line now and then."""
    if progress.step % 20 == 0:
        print(
            f"step {progress.step}: loss {progress.loss:.3f}, {progress.remaining_s:.0f} s left", flush=True
        )


if __name__ == "__main__":
    main()
