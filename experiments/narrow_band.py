"""Compare the recall of narrow-band calls with the upsampling adapter and with the coarse grid of the encoder.

Synthetic recordings are noise with tones of 100 to 500 Hz bandwidth, with annotation tables. They are processed with the
commands of MAST: scan, split, prepare, training from scratch, then detection on the test split. The two detectors differ
only in their adapter: `upsampling` predicts every 8 frames and 4 bins, `none` on the encoder's grid of 16 × 16 (paper,
Corollary on narrow-band events).

    python -m experiments.narrow_band
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import yaml
from benchmarks.results import write_result
from numpy.typing import NDArray
from typer.testing import CliRunner

from mast.audio.spectrogram import MelGrid, chunk_frames
from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.sampler import make_rng
from mast.datasets.study_datasets import detection_dataset
from mast.detection.chunk_detector import ModelChunkDetector
from mast.evaluation.matching import GroupedBoxes, match
from mast.models.loading import load_detector
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.run_dir import TrainingRun
from mast.training.supervised import train_study
from mast.training.validation import predict

RATE_HZ, MINUTE_S = 16_000, 60
BANDWIDTHS_HZ = (100, 200, 300, 400, 500)


def main() -> None:
    """Generate the recordings, train both detectors, and write their recall by bandwidth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("narrow_band"))
    parser.add_argument("--out", type=Path, default=Path("experiments/results/narrow_band.json"))
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--size", default="tiny")
    options = parser.parse_args()
    file = write_study(options.work, options.minutes)
    metrics: dict[str, Any] = {"recall": {}, "precision": {}, "threshold": {}, "mean_iou": {}}
    for adapter in ("upsampling", "none"):
        study = load_study(
            file,
            [f"model.adapter={adapter}", f"model.size={options.size}", f"train.epochs={options.epochs}"],
        )
        run = TrainingRun(options.work / "runs" / adapter)
        train_study(study, run)
        values = recall_by_width(study, run)
        for name, value in values.items():
            metrics[name][adapter] = value
        print(adapter, values, flush=True)
    settings = {"minutes": options.minutes, "epochs": options.epochs, "size": options.size, "min_iou": 0.5}
    write_result(options.out, {**metrics, **settings}, ("torch", "timm", "numpy"))


def write_study(work: Path, minutes: int) -> Path:
    """Write one-minute recordings, a table of their calls, and a prepared study; return the study file."""
    card, file = work / "card", work / "study.yaml"
    if not file.exists():
        card.mkdir(parents=True, exist_ok=True)
        with (work / "calls.csv").open("w", encoding="utf-8", newline="") as table:
            writer = csv.writer(table)
            writer.writerow(["recording", "start_s", "end_s", "low_hz", "high_hz", "label"])
            for minute in range(minutes):
                name = f"20240101_{minute // 60:02}{minute % 60:02}00.wav"
                samples, calls = recording(minute)
                soundfile.write(card / name, samples, RATE_HZ, subtype="PCM_16")
                writer.writerows([name, *call, "call"] for call in calls)
        settings: Mapping[str, Any] = {
            "work_dir": "work",
            "collections": {"card": {"root": "card", "time_zone": "UTC"}},
            "annotations": [{"path": "calls.csv", "format": "csv"}],
            "splits": {"block_s": 60, "guard_s": 0},
            "chunking": {"chunk_s": 2.56, "hop_s": 2.56},
            "normalisation": "band-median",
            "train": {
                "batch_size": 16,
                "lr": 1e-3,
                "warmup_epochs": 1,
                "ema_decay": 0.99,
                "contrastive_weight": 0,
            },
        }
        file.write_text(yaml.safe_dump(dict(settings)), "utf-8")
    for command in ("scan", "split", "prepare"):
        result = CliRunner().invoke(app, [command, str(file)])
        if result.exit_code:
            raise SystemExit(result.output)
    return file


def recording(seed: int) -> tuple[NDArray[np.float64], list[tuple[float, float, float, float]]]:
    """Generate one minute of noise with 45 tones of random bandwidth that do not overlap; return samples and calls."""
    rng = make_rng(1, seed)
    samples = rng.normal(0, 0.01, MINUTE_S * RATE_HZ)
    calls = []
    for slot in range(MINUTE_S // 2 * 3 // 2):
        start_s = slot * 4 / 3 + rng.uniform(0.05, 0.4)
        length_s, width_hz = rng.uniform(0.25, 0.8), float(rng.choice(BANDWIDTHS_HZ))
        low_hz = rng.uniform(500, 7000 - width_hz)
        time_s = np.arange(round(length_s * RATE_HZ)) / RATE_HZ
        sweep = low_hz + width_hz * time_s / length_s
        tone = np.sin(2 * np.pi * np.cumsum(sweep) / RATE_HZ) * rng.uniform(0.01, 0.04)
        first = round(start_s * RATE_HZ)
        samples[first : first + len(tone)] += tone
        calls.append((start_s, start_s + length_s, low_hz, low_hz + width_hz))
    return samples, calls


def recall_by_width(study: Study, run: TrainingRun) -> dict[str, Any]:
    """Return recall at IoU 0.5 on the test split by bandwidth, precision, threshold and mean IoU."""
    store, loaded = AudioStore(join(study.work_dir, STORE)), load_detector(str(run.model))
    test_set = detection_dataset(study, store, "test").chunks
    predicted = predict(ModelChunkDetector(loaded, study.detection, "cpu"), store, test_set)
    chunks, predictions = np.arange(len(test_set)), predicted.predictions
    ground_truth = [boxes.double().numpy() for boxes in predicted.ground_truth]
    threshold = loaded.description.thresholds["score"]
    boxes = GroupedBoxes(
        np.repeat(chunks, [len(item.boxes) for item in predictions]),
        np.concatenate([item.boxes.double().numpy() for item in predictions]),
        np.concatenate([item.scores.double().numpy() for item in predictions]),
    )
    is_above = boxes.score >= threshold  # type: ignore[operator]
    boxes = GroupedBoxes(boxes.group[is_above], boxes.bounds[is_above], boxes.score[is_above])  # type: ignore[index]
    annotations = GroupedBoxes(
        np.repeat(chunks, [len(item) for item in ground_truth]), np.concatenate(ground_truth), None
    )
    matches = match(boxes, annotations)
    is_recalled = matches.is_recalled(len(annotations.bounds))
    width_hz = widths_hz(study, annotations.bounds)
    edges = (0, *(width + 50 for width in BANDWIDTHS_HZ))
    recall = {
        str(width): round(float(is_recalled[(width_hz > low) & (width_hz <= high)].mean()), 4)
        for width, low, high in zip(BANDWIDTHS_HZ, edges[:-1], edges[1:], strict=True)
    }
    hits = matches.is_hit
    return {
        "recall": {**recall, "all": round(float(is_recalled.mean()), 4)},
        "precision": round(float(hits.mean()), 4) if len(hits) else None,
        "threshold": round(threshold, 4),
        "mean_iou": round(float(matches.overlap[hits].mean()), 4) if hits.any() else None,
    }


def widths_hz(study: Study, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the width in Hz of boxes in frames and bins, rounded to one of the bandwidths. (N, 4) → (N,)"""
    grid = MelGrid(study.spectrogram, chunk_frames(study.chunking.chunk_s, study.spectrogram))
    events = grid.boxes_to_events(torch.from_numpy(bounds)).numpy()
    width_hz = events[:, 3] - events[:, 1]
    bandwidths = np.array(BANDWIDTHS_HZ, float)
    nearest: NDArray[np.float64] = bandwidths[np.abs(width_hz[:, None] - bandwidths).argmin(axis=1)]
    return nearest


if __name__ == "__main__":
    main()
