"""The resolution bottleneck: narrow calls found with the upsampling adapter, and with the encoder's own coarse grid.

Noise with tones 100 to 500 Hz wide at known places becomes recordings with tables, which pass through the product's own
path: scan, splits, prepare, train from scratch, then detection on the test split. The two detectors differ in their
adapter alone: `upsampling` looks every 8 frames and 4 bins, `none` on the encoder's grid of 16 × 16 (paper, Corollary on
narrow-band events).

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

from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.order import randomness
from mast.detection.chunks import BoxFinder
from mast.evaluation.matching import Boxes, match
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.spectrogram import MelGrid, frames_of
from mast.storage import join
from mast.study.products import STORE
from mast.training.finetune import train_study
from mast.training.hearing import hear
from mast.training.run import Run

RATE_HZ, MINUTE_S = 16_000, 60
BANDWIDTHS_HZ = (100, 200, 300, 400, 500)


def main() -> None:
    """Make the sound, train both detectors, and write how many calls of each width they find."""
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
    figures: dict[str, Any] = {"recall": {}, "precision": {}, "threshold": {}, "mean_iou": {}}
    for adapter in ("upsampling", "none"):
        study = load_study(
            file,
            [f"model.adapter={adapter}", f"model.size={options.size}", f"train.epochs={options.epochs}"],
        )
        run = Run(options.work / "runs" / adapter)
        train_study(study, run)
        found = recall_by_width(study, run)
        for name, value in found.items():
            figures[name][adapter] = value
        print(adapter, found, flush=True)
    settings = {"minutes": options.minutes, "epochs": options.epochs, "size": options.size, "min_iou": 0.5}
    write_result(options.out, {**figures, **settings}, ("torch", "timm", "numpy"))


def write_study(work: Path, minutes: int) -> Path:
    """Recordings of a minute, a table of their calls, and a study of them, prepared. → its file"""
    card, file = work / "card", work / "study.yaml"
    if not file.exists():
        card.mkdir(parents=True, exist_ok=True)
        with (work / "calls.csv").open("w", encoding="utf-8", newline="") as table:
            writer = csv.writer(table)
            writer.writerow(["recording", "start_s", "end_s", "low_hz", "high_hz", "label"])
            for minute in range(minutes):
                name = f"20240101_{minute // 60:02}{minute % 60:02}00.wav"
                sound, calls = recording(minute)
                soundfile.write(card / name, sound, RATE_HZ, subtype="PCM_16")
                writer.writerows([name, *call, "call"] for call in calls)
        settings: Mapping[str, Any] = {
            "work": "work",
            "collections": {"card": {"root": "card", "time_zone": "UTC"}},
            "annotations": [{"path": "calls.csv", "format": "csv"}],
            "splits": {"block_s": 60, "guard_s": 0},
            "chunking": {"chunk_s": 2.56, "hop_s": 2.56},
            "normalisation": "band-median",
            "train": {
                "batch": 16,
                "lr": 1e-3,
                "warmup_epochs": 1,
                "ema_decay": 0.99,
                "contrastive_weight": 0,
            },
        }
        file.write_text(yaml.safe_dump(dict(settings)), "utf-8")
    for verb in ("scan", "splits", "prepare"):
        done = CliRunner().invoke(app, [verb, str(file)])
        if done.exit_code:
            raise SystemExit(done.output)
    return file


def recording(seed: int) -> tuple[NDArray[np.float64], list[tuple[float, float, float, float]]]:
    """A minute of noise with about forty tones, each of one of the widths, none over another. → sound, calls"""
    rng = randomness(1, seed)
    sound = rng.normal(0, 0.01, MINUTE_S * RATE_HZ)
    calls = []
    for slot in range(MINUTE_S // 2 * 3 // 2):
        start_s = slot * 4 / 3 + rng.uniform(0.05, 0.4)
        length_s, width_hz = rng.uniform(0.25, 0.8), float(rng.choice(BANDWIDTHS_HZ))
        low_hz = rng.uniform(500, 7000 - width_hz)
        time_s = np.arange(round(length_s * RATE_HZ)) / RATE_HZ
        sweep = low_hz + width_hz * time_s / length_s
        tone = np.sin(2 * np.pi * np.cumsum(sweep) / RATE_HZ) * rng.uniform(0.01, 0.04)
        first = round(start_s * RATE_HZ)
        sound[first : first + len(tone)] += tone
        calls.append((start_s, start_s + length_s, low_hz, low_hz + width_hz))
    return sound, calls


def recall_by_width(study: Study, run: Run) -> dict[str, Any]:
    """Share of the test split's calls found at IoU 0.5, by width, and how many boxes are right."""
    store, loaded = AudioStore(join(study.work, STORE)), load_detector(str(run.model))
    held = detection_examples(study, store, "test").chunks
    heard = hear(BoxFinder(loaded, study.detection, "cpu"), store, held)
    every, found = np.arange(len(held)), heard.found
    truths = [own.double().numpy() for own in heard.truths]
    threshold = loaded.description.thresholds["score"]
    boxes = Boxes(
        np.repeat(every, [len(item.boxes) for item in found]),
        np.concatenate([item.boxes.double().numpy() for item in found]),
        np.concatenate([item.scores.double().numpy() for item in found]),
    )
    kept = boxes.score >= threshold  # type: ignore[operator]
    boxes = Boxes(boxes.group[kept], boxes.bounds[kept], boxes.score[kept])  # type: ignore[index]
    known = Boxes(np.repeat(every, [len(own) for own in truths]), np.concatenate(truths), None)
    matches = match(boxes, known)
    is_found = matches.is_found(len(known.bounds))
    width_hz = widths_hz(study, known.bounds)
    edges = (0, *(width + 50 for width in BANDWIDTHS_HZ))
    recall = {
        str(width): round(float(is_found[(width_hz > low) & (width_hz <= high)].mean()), 4)
        for width, low, high in zip(BANDWIDTHS_HZ, edges[:-1], edges[1:], strict=True)
    }
    hits = matches.is_hit
    return {
        "recall": {**recall, "all": round(float(is_found.mean()), 4)},
        "precision": round(float(hits.mean()), 4) if len(hits) else None,
        "threshold": round(threshold, 4),
        "mean_iou": round(float(matches.overlap[hits].mean()), 4) if hits.any() else None,
    }


def widths_hz(study: Study, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Width in Hz of boxes in frames and bins, to the nearest of the widths that were made. (N, 4) → (N,)"""
    grid = MelGrid(study.spectrogram, frames_of(study.chunking.chunk_s, study.spectrogram))
    events = grid.to_events(torch.from_numpy(bounds)).numpy()
    measured = events[:, 3] - events[:, 1]
    made = np.array(BANDWIDTHS_HZ, float)
    nearest: NDArray[np.float64] = made[np.abs(measured[:, None] - made).argmin(axis=1)]
    return nearest


if __name__ == "__main__":
    main()
