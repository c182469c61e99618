"""Overfit a detector with random weights on eight real chunks, as a basic test of training.

    python -m experiments.overfit DATA          writes experiments/results/overfit.json

DATA holds `audio/` and `annotations.csv` (MAST's plain CSV), such as twenty minutes of the BIRDeep recorder AM1. A tiny
detector with the paper's adapter is trained on the same chunks in every step, without augmentation; then the saved
model is loaded and predicts their boxes.
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
from mast.datasets.loader import FixedChunkDataset
from mast.datasets.sampler import evenly_spaced
from mast.detection.chunk_detector import ModelChunkDetector
from mast.models.loading import load_detector
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.fabric import start_fabric
from mast.training.loop import Progress, TrainingSet, train
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask
from mast.training.thresholds import choose_threshold
from mast.training.validation import predict

RESULT = Path(__file__).parent / "results" / "overfit.json"


def main() -> None:
    """Prepare the data, train, predict, and write the metrics."""
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
    for command in ("scan", "split", "prepare"):
        app([command, str(study_file)], standalone_mode=False)
    metrics = overfit(study_file, options.chunks)
    write_result(options.out, {**metrics, "steps": options.steps, "lr": options.lr}, ("torch",))
    print(options.out.read_text())


def write_study(folder: Path, data: Path, steps: int, lr: float) -> Path:
    """Write a study of the data in which each epoch is one step."""
    settings = {
        "preset": "laptop",
        "collections": {"data": {"root": str((data / "audio").absolute()), "time_zone": "UTC"}},
        "annotations": [{"path": str((data / "annotations.csv").absolute()), "format": "csv"}],
        "splits": {"block_s": 60},
        "augmentation": {"probability": 0},
        "normalisation": "band-median",
        "model": {"adapter": "upsampling"},
        "train": {
            "synthetic_fraction": 0,
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
    """Train on `count` chunks, and evaluate the saved model on them."""
    study = load_study(study_file)
    store, run = AudioStore(join(study.work_dir, STORE)), TrainingRun(study_file.parent / "run")
    task = DetectorTask(study, store)
    examples = task.training_set.examples
    has_boxes = np.flatnonzero([len(boxes) > 0 for boxes in examples.boxes(np.arange(len(examples)))])
    chosen = has_boxes[evenly_spaced(len(has_boxes), count)]
    subset = FixedChunkDataset(examples.locations(0, chosen), examples.boxes(chosen))
    task.validation_set = FixedChunkDataset(np.zeros((0, 2), np.int64))
    start_s = time.perf_counter()
    fabric = start_fabric(study.train.precision, run)
    train(task, TrainingSet(store, subset), study.train, run, fabric, show)
    seconds = time.perf_counter() - start_s
    validated = predict(ModelChunkDetector(load_detector(str(run.model)), study.detection), store, subset)
    threshold = choose_threshold(validated, study.detection.score_threshold)
    loss = [line["loss"] for line in run.read() if "loss" in line][-1]
    return {
        "f1": float(str(threshold.results.get("validation_f1", 0.0))),
        "score_threshold": threshold.score,
        "boxes": validated.boxes,
        "chunks": count,
        "last_loss": loss,
        "train_s": round(seconds, 1),
    }


def show(progress: Progress) -> None:
    """Print the progress every 20 steps."""
    if progress.step % 20 == 0:
        print(
            f"step {progress.step}: loss {progress.loss:.3f}, {progress.remaining_s:.0f} s left", flush=True
        )


if __name__ == "__main__":
    main()
