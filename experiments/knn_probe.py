"""Does pretraining help, on real sound? Nearest neighbours of frozen features on the animal classes of ESC-50.

The encoder is pretrained through the product's own path (scan, prepare, pretrain) on all recordings of a data folder
except the clips of the probe, then frozen. Calls are short, so a clip's vector is the highest value over time of its
tokens' features, band by band, whitened. It stands against the same reading of an untrained encoder, and against that
reading of the log-mel which serves it best, mean or other. A clip is named by its five nearest neighbours, by cosine,
among the other folds' clips that come from other recordings. All readings that were looked at are written beside.

    python -m experiments.knn_probe DATA
    OMP_NUM_THREADS=1 python -m experiments.knn_probe DATA --pretrain-only 1    one seed, to run several at once
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.results import write_result
from numpy.typing import NDArray

from mast.config import Study, checked
from mast.datasets.preparing import prepare_study, read_normalisation
from mast.models.devices import autocast
from mast.models.encoder import SIZES, Encoder
from mast.models.frontend import FrontEnd
from mast.models.loading import load_encoder
from mast.normalisation import mean_centred
from mast.recordings.prepare import prepare
from mast.recordings.scan import scan
from mast.recordings.store import AudioStore, to_float
from mast.spectrogram import LogMel
from mast.study.products import STORE
from mast.training.pretrain import pretrain_study
from mast.training.run import Run

PROBE = "esc50-animals-and-weather"
NEIGHBOURS = 5
SLOWED = {"whombat-bats": 10, "batdetect2-example": 10}
"""Bats, heard at a tenth of their speed."""

HEADLINE = "max, whitened"
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Clips:
    """The clips of the probe: what each is, which fold it is in, and which recording it was cut from."""

    names: list[str]
    labels: NDArray[np.str_]
    folds: NDArray[np.int64]
    sources: NDArray[np.str_]


def main() -> None:
    """Pretrain with each seed, probe, and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--work", type=Path, default=Path("knn_probe"), help="where runs are kept and resumed"
    )
    parser.add_argument("--out", type=Path, default=Path("experiments/results/knn_probe.json"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretrain-only", type=int, metavar="SEED", help="pretrain with one seed and stop")
    parser.add_argument("--files", type=int, help="use only so many files of each source, for a quick look")
    options = parser.parse_args()
    clips = read_clips(options.data / PROBE / "recordings.csv")
    study = study_of(options.data, options.work, clips, options.files, options.epochs)
    if not (options.work / "study" / "normalisation.json").exists():
        scan(study.collections, str(Path(study.work) / "recordings.parquet"))
        prepare_study(study)
    if options.pretrain_only is not None:
        pretrained(study, options.work, options.pretrain_only)
        return
    probe = probe_store(options.data, options.work, clips, study)
    readings: dict[str, dict[str, list[float]]] = {}
    losses = []
    for seed in range(options.seeds):
        run = pretrained(study, options.work, seed)
        losses.append([item["loss"] for item in run.read() if "loss" in item][-1])
        loaded = load_encoder(str(run.model))
        torch.manual_seed(seed)
        untrained = Encoder(SIZES[study.model.size], loaded.frontend.frames).eval()
        maps = {
            "random": token_maps(untrained, loaded.frontend, probe, clips),
            "logmel": level_maps(study, probe, clips),
            "pretrained": token_maps(loaded.network, loaded.frontend, probe, clips),
        }
        for name, clip_map in maps.items():
            for reading, value in read(clip_map, clips).items():
                readings.setdefault(reading, {}).setdefault(name, []).append(value)
        print(seed, {name: values[-1] for name, values in readings[HEADLINE].items()}, flush=True)
    figures = {
        **readings[HEADLINE],
        "logmel": max((item["logmel"] for item in readings.values()), key=np.mean),
    }
    provenance = read_normalisation(study).provenance
    means = {name: round(float(np.mean(values)), 4) for name, values in figures.items()}
    write_result(
        options.out,
        {
            **figures,
            "mean": means,
            "gain_over_random": round(means["pretrained"] - means["random"], 4),
            "gain_over_logmel": round(means["pretrained"] - means["logmel"], 4),
            "reading": HEADLINE,
            "readings": readings,
            "last_losses": losses,
            "neighbours": NEIGHBOURS,
            "clips": len(clips.names),
            "classes": len(set(clips.labels)),
            "pretraining_hours": round(provenance.seconds / 3600, 2) if provenance else None,
            "pretraining_minutes": [
                float((options.work / f"seed_{seed}" / "minutes.txt").read_text())
                for seed in range(options.seeds)
            ],
            "model": study.model.size,
            "normalisation": study.normalisation,
            "settings": study.pretrain.model_dump(mode="json"),
        },
        ("torch", "timm", "numpy"),
    )


def read_clips(table: Path) -> Clips:
    """Animal clips of ESC-50 and what is known about them."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["role"] == "animal"]
    return Clips(
        [row["recording"] for row in rows],
        np.array([row["category"] for row in rows]),
        np.array([int(row["fold"]) for row in rows]),
        np.array([row["source_clip"] for row in rows]),
    )


def study_of(data: Path, work: Path, clips: Clips, files: int | None, epochs: int) -> Study:
    """A study of every source in the data folder, without the clips of the probe."""
    held = set(clips.names)
    collections: dict[str, Mapping[str, Any]] = {}
    for folder in sorted(path for path in data.iterdir() if (path / "audio").is_dir()):
        sound = [path for path in sorted((folder / "audio").rglob("*")) if path.is_file()]
        link_all(
            [path for path in sound if path.name not in held][:files], folder / "audio", work / folder.name
        )
        collections[folder.name] = {
            "root": str((work / folder.name).absolute()),
            "time_zone": "UTC",
            "time_expansion": SLOWED.get(folder.name, 1),
        }
    settings = {
        "work": str((work / "study").absolute()),
        "collections": collections,
        "chunking": {"chunk_s": 5.12, "hop_s": 2.56, "min_filled": 0.4},
        "normalisation": "dataset",
        "model": {"size": "tiny"},
        "pretrain": {
            "epochs": epochs,
            "warmup_epochs": epochs / 10,
            "batch": 16,
            "lr": 1e-3,
            "min_lr": 1e-5,
            "masking": "random",
            "decoder": "plain",
            "normalised_patches": False,
        },
    }
    return checked(Study, settings, "knn_probe")


def link_all(files: Sequence[Path], root: Path, folder: Path) -> None:
    """Files below another folder, without copying them."""
    for path in files:
        link = folder / path.relative_to(root)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(path.resolve())


def probe_store(data: Path, work: Path, clips: Clips, study: Study) -> AudioStore:
    """The clips of the probe, prepared as the study's sound is."""
    audio = data / PROBE / "audio"
    link_all([audio / name for name in clips.names], audio, work / "probe")
    collection = {
        "probe": next(iter(study.collections.values())).model_copy(
            update={"root": str((work / "probe").absolute()), "time_expansion": 1.0}
        )
    }
    table = str(work / "probe.parquet")
    scan(collection, table)
    prepare(table, collection, str(work / f"probe-{STORE}"), study.chunking)
    return AudioStore(str(work / f"probe-{STORE}"))


def places_of(store: AudioStore, clips: Clips) -> NDArray[np.int64]:
    """Where each clip begins in the store. → (N, 2)"""
    rows = dict(
        zip(
            store.recordings["recording_id"].to_pylist(),
            store.recordings["first_row"].to_pylist(),
            strict=True,
        )
    )
    return np.array([(rows[f"probe/{name}"], 0) for name in clips.names], np.int64)


def pretrained(study: Study, work: Path, seed: int) -> Run:
    """The study's encoder after pretraining with a seed; the minutes it took are kept beside it."""
    seeded = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"seed": seed})})
    run, started = Run(work / f"seed_{seed}"), time.monotonic()
    if not run.is_finished:
        pretrain_study(seeded, run)
        (run.folder / "minutes.txt").write_text(f"{(time.monotonic() - started) / 60:.1f}")
    return run


def token_maps(encoder: Encoder, frontend: FrontEnd, store: AudioStore, clips: Clips) -> Vectors:
    """Features of each clip's tokens. → (N, T/16, F/16 · C)"""
    places, samples = places_of(store, clips), store.layout.step_samples
    maps = []
    for first in range(0, len(places), 16):
        chosen = places[first : first + 16]
        sound = torch.from_numpy(store.read(chosen, samples))
        filled = torch.from_numpy(store.filled(chosen, samples))
        with torch.inference_mode(), autocast("cpu"):
            maps.append(encoder(frontend(sound, filled)).float().permute(0, 3, 2, 1).flatten(2).numpy())
    return np.concatenate(maps)


def level_maps(study: Study, store: AudioStore, clips: Clips) -> Vectors:
    """Log-mel of each clip, the simplest thing one could compare; all clips are equally long. → (N, T, F)"""
    places, samples = places_of(store, clips), store.layout.step_samples
    filled = torch.from_numpy(store.filled(places, samples))
    waves = mean_centred(torch.from_numpy(to_float(store.read(places, samples))), filled)
    logmel = LogMel(study.spectrogram, store.layout.sample_rate_hz)
    levels: Vectors = logmel(waves)[:, :, : logmel.frames_in(int(filled.min()))].transpose(1, 2).numpy()
    return levels


def read(clip_map: Vectors, clips: Clips) -> dict[str, float]:
    """Accuracy of vectors made in several ways from what a clip has at every moment."""
    ways = {"mean": clip_map.mean(axis=1), "max": clip_map.max(axis=1)}
    ways["mean and deviation"] = np.concatenate([ways["mean"], clip_map.std(axis=1)], axis=1)
    return {
        **{name: accuracy(vectors, clips) for name, vectors in ways.items()},
        **{f"{name}, whitened": accuracy(vectors, clips, whitened=64) for name, vectors in ways.items()},
    }


def accuracy(features: Vectors, clips: Clips, whitened: int = 0) -> float:
    """Share of clips that most of their nearest neighbours name rightly; a tie goes to the nearest of the tied.

    Neighbours are of other folds and of other source recordings; nearness is the cosine of centred vectors, of their
    first so many principal components with equal weight where they are `whitened`.
    """
    right = 0
    for fold in np.unique(clips.folds):
        asked = clips.folds == fold
        known = ~asked & ~np.isin(clips.sources, clips.sources[asked])
        centre = features[known].mean(axis=0)
        there, here = features[known] - centre, features[asked] - centre
        if whitened:
            _, lengths, axes = np.linalg.svd(there.astype(np.float64), full_matrices=False)
            kept = min(whitened, int((lengths > 1e-6 * lengths[0]).sum()))
            turn = axes[:kept].T / (lengths[:kept] + 1e-3 * lengths[0])
            there, here = there @ turn, here @ turn
        near = _unit(here) @ _unit(there).T
        for row, label in zip(np.argsort(-near, axis=1)[:, :NEIGHBOURS], clips.labels[asked], strict=True):
            names = list(clips.labels[known][row])
            right += max(names, key=lambda name: (names.count(name), -names.index(name))) == label
    return round(right / len(clips.names), 4)


def _unit(values: Vectors) -> Vectors:
    lengths = np.linalg.norm(values, axis=1, keepdims=True).astype(np.float32)
    unit: Vectors = values / np.maximum(lengths, 1e-12)
    return unit


if __name__ == "__main__":
    main()
