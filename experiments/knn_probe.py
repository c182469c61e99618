"""Evaluate pretraining on real audio: nearest neighbours of frozen features on the animal classes of ESC-50.

The encoder is pretrained with the commands of MAST (scan, prepare, pretrain) on all recordings of a data folder except
the clips of the probe, then frozen. Calls are short, so the vector of a clip is the maximum over time of its token
features in each band, whitened. It is compared with the same pooling of an untrained encoder, and with the pooling of
the log-mel that has the highest accuracy. A clip is labelled by its five nearest neighbours, by cosine, among the clips
of other folds and other recordings. The result has the accuracy of all poolings.

    python -m experiments.knn_probe DATA
    OMP_NUM_THREADS=1 python -m experiments.knn_probe DATA --pretrain-only 1    one seed, to run several in parallel
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from benchmarks.results import write_result
from numpy.typing import NDArray

from mast.audio.spectrogram import LogMel
from mast.config import Study, validate
from mast.datasets.prepare import prepare_study, read_normalisation
from mast.models.devices import autocast
from mast.models.encoder import SIZES, Encoder
from mast.models.frontend import FrontEnd
from mast.models.loading import load_encoder
from mast.normalisation import remove_dc_offset
from mast.recordings.scan import scan
from mast.store.audio_store import AudioStore, to_float
from mast.store.prepare import prepare
from mast.study.artifacts import STORE
from mast.training.pretrain import pretrain_study
from mast.training.run_dir import TrainingRun

PROBE = "esc50-animals-and-weather"
NEIGHBOURS = 5
TIME_EXPANSION = {"whombat-bats": 10, "batdetect2-example": 10}
"""Time expansion of the sources with bats."""

HEADLINE = "max, whitened"
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Clips:
    """The clips of the probe with their labels, folds and source recordings."""

    names: list[str]
    labels: NDArray[np.str_]
    folds: NDArray[np.int64]
    sources: NDArray[np.str_]


def main() -> None:
    """Pretrain with each seed, evaluate, and write the metrics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--work", type=Path, default=Path("knn_probe"), help="folder for runs, which are resumed"
    )
    parser.add_argument("--out", type=Path, default=Path("experiments/results/knn_probe.json"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretrain-only", type=int, metavar="SEED", help="pretrain with one seed and stop")
    parser.add_argument("--files", type=int, help="maximum number of files per source, for a quick test")
    options = parser.parse_args()
    clips = read_clips(options.data / PROBE / "recordings.csv")
    study = study_of(options.data, options.work, clips, options.files, options.epochs)
    if not (options.work / "study" / "normalisation.json").exists():
        scan(study.collections, str(Path(study.work_dir) / "recordings.parquet"))
        prepare_study(study)
    if options.pretrain_only is not None:
        pretrain(study, options.work, options.pretrain_only)
        return
    probe = probe_store(options.data, options.work, clips, study)
    poolings: dict[str, dict[str, list[float]]] = {}
    losses = []
    for seed in range(options.seeds):
        run = pretrain(study, options.work, seed)
        losses.append([item["loss"] for item in run.read() if "loss" in item][-1])
        loaded = load_encoder(str(run.model))
        torch.manual_seed(seed)
        untrained = Encoder(SIZES[study.model.size], loaded.frontend.frames).eval()
        maps = {
            "random": token_maps(untrained, loaded.frontend, probe, clips),
            "logmel": level_maps(study, probe, clips),
            "pretrained": token_maps(cast(Encoder, loaded.network), loaded.frontend, probe, clips),
        }
        for name, clip_map in maps.items():
            for pooling, value in evaluate_poolings(clip_map, clips).items():
                poolings.setdefault(pooling, {}).setdefault(name, []).append(value)
        print(seed, {name: values[-1] for name, values in poolings[HEADLINE].items()}, flush=True)
    accuracies = {
        **poolings[HEADLINE],
        "logmel": max((item["logmel"] for item in poolings.values()), key=np.mean),
    }
    provenance = read_normalisation(study).provenance
    means = {name: round(float(np.mean(values)), 4) for name, values in accuracies.items()}
    write_result(
        options.out,
        {
            **accuracies,
            "mean": means,
            "gain_over_random": round(means["pretrained"] - means["random"], 4),
            "gain_over_logmel": round(means["pretrained"] - means["logmel"], 4),
            "pooling": HEADLINE,
            "poolings": poolings,
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
    """Read the animal clips of ESC-50 with their metadata."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["role"] == "animal"]
    return Clips(
        [row["recording"] for row in rows],
        np.array([row["category"] for row in rows]),
        np.array([int(row["fold"]) for row in rows]),
        np.array([row["source_clip"] for row in rows]),
    )


def study_of(data: Path, work: Path, clips: Clips, files: int | None, epochs: int) -> Study:
    """Create a study of every source in the data folder, without the clips of the probe."""
    excluded = set(clips.names)
    collections: dict[str, Mapping[str, Any]] = {}
    for folder in sorted(path for path in data.iterdir() if (path / "audio").is_dir()):
        files_in_source = [path for path in sorted((folder / "audio").rglob("*")) if path.is_file()]
        link_all(
            [path for path in files_in_source if path.name not in excluded][:files],
            folder / "audio",
            work / folder.name,
        )
        collections[folder.name] = {
            "root": str((work / folder.name).absolute()),
            "time_zone": "UTC",
            "time_expansion": TIME_EXPANSION.get(folder.name, 1),
        }
    settings = {
        "work_dir": str((work / "study").absolute()),
        "collections": collections,
        "chunking": {"chunk_s": 5.12, "hop_s": 2.56, "min_audio_fraction": 0.4},
        "normalisation": "dataset",
        "model": {"size": "tiny"},
        "pretrain": {
            "epochs": epochs,
            "warmup_epochs": epochs / 10,
            "batch_size": 16,
            "lr": 1e-3,
            "min_lr": 1e-5,
            "masking": "random",
            "decoder": "plain",
            "norm_pix_loss": False,
        },
    }
    return validate(Study, settings, "knn_probe")


def link_all(files: Sequence[Path], root: Path, folder: Path) -> None:
    """Create symbolic links to files, with the same relative paths in another folder."""
    for path in files:
        link = folder / path.relative_to(root)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(path.resolve())


def probe_store(data: Path, work: Path, clips: Clips, study: Study) -> AudioStore:
    """Prepare the clips of the probe like the audio of the study."""
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


def locations_of(store: AudioStore, clips: Clips) -> NDArray[np.int64]:
    """Return the location of each clip in the store. → (N, 2)"""
    rows = dict(
        zip(
            store.recordings["recording_id"].to_pylist(),
            store.recordings["first_row"].to_pylist(),
            strict=True,
        )
    )
    return np.array([(rows[f"probe/{name}"], 0) for name in clips.names], np.int64)


def pretrain(study: Study, work: Path, seed: int) -> TrainingRun:
    """Pretrain the encoder of the study with a seed, and write the duration in minutes beside it."""
    seeded = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"seed": seed})})
    run, started = TrainingRun(work / f"seed_{seed}"), time.monotonic()
    if not run.is_finished:
        pretrain_study(seeded, run)
        (run.folder / "minutes.txt").write_text(f"{(time.monotonic() - started) / 60:.1f}")
    return run


def token_maps(encoder: Encoder, frontend: FrontEnd, store: AudioStore, clips: Clips) -> Vectors:
    """Compute the token features of each clip. → (N, T/16, F/16 · C)"""
    locations, samples = locations_of(store, clips), store.layout.block_samples
    maps = []
    for first in range(0, len(locations), 16):
        chosen = locations[first : first + 16]
        samples_read = torch.from_numpy(store.read(chosen, samples))
        valid_samples = torch.from_numpy(store.valid_lengths(chosen, samples))
        with torch.inference_mode(), autocast("cpu"):
            maps.append(
                encoder(frontend(samples_read, valid_samples)).float().permute(0, 3, 2, 1).flatten(2).numpy()
            )
    return np.concatenate(maps)


def level_maps(study: Study, store: AudioStore, clips: Clips) -> Vectors:
    """Compute the log-mel of each clip, the simplest baseline; all clips have equal lengths. → (N, T, F)"""
    locations, samples = locations_of(store, clips), store.layout.block_samples
    valid_samples = torch.from_numpy(store.valid_lengths(locations, samples))
    waves = remove_dc_offset(torch.from_numpy(to_float(store.read(locations, samples))), valid_samples)
    logmel = LogMel(study.spectrogram, store.layout.sample_rate_hz)
    levels: Vectors = (
        logmel(waves)[:, :, : logmel.num_frames(int(valid_samples.min()))].transpose(1, 2).numpy()
    )
    return levels


def evaluate_poolings(clip_map: Vectors, clips: Clips) -> dict[str, float]:
    """Return the accuracy of each pooling of the features over time."""
    pooled = {"mean": clip_map.mean(axis=1), "max": clip_map.max(axis=1)}
    pooled["mean and deviation"] = np.concatenate([pooled["mean"], clip_map.std(axis=1)], axis=1)
    return {
        **{name: accuracy(vectors, clips) for name, vectors in pooled.items()},
        **{f"{name}, whitened": accuracy(vectors, clips, whitened=64) for name, vectors in pooled.items()},
    }


def accuracy(features: Vectors, clips: Clips, whitened: int = 0) -> float:
    """Return the fraction of clips labelled correctly by the majority of their nearest neighbours.

    A tie goes to the nearest of the tied labels. Neighbours are from other folds and other source recordings. Similarity
    is the cosine of centred vectors, projected to `whitened` principal components of equal variance if that is not 0.
    """
    correct = 0
    for fold in np.unique(clips.folds):
        is_query = clips.folds == fold
        is_reference = ~is_query & ~np.isin(clips.sources, clips.sources[is_query])
        centre = features[is_reference].mean(axis=0)
        references, queries = features[is_reference] - centre, features[is_query] - centre
        if whitened:
            _, lengths, axes = np.linalg.svd(references.astype(np.float64), full_matrices=False)
            rank = min(whitened, int((lengths > 1e-6 * lengths[0]).sum()))
            projection = axes[:rank].T / (lengths[:rank] + 1e-3 * lengths[0])
            references, queries = references @ projection, queries @ projection
        similarity = _unit(queries) @ _unit(references).T
        for row, label in zip(
            np.argsort(-similarity, axis=1)[:, :NEIGHBOURS], clips.labels[is_query], strict=True
        ):
            labels = list(clips.labels[is_reference][row])
            correct += max(labels, key=lambda name: (labels.count(name), -labels.index(name))) == label
    return round(correct / len(clips.names), 4)


def _unit(values: Vectors) -> Vectors:
    lengths = np.linalg.norm(values, axis=1, keepdims=True).astype(np.float32)
    unit: Vectors = values / np.maximum(lengths, 1e-12)
    return unit


if __name__ == "__main__":
    main()
