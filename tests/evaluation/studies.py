"""Build test sets by hand, a small prepared study with a held-out set, and a detector with random weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from typer.testing import CliRunner

from mast.audio.spectrogram import chunk_frames
from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.prepare import read_normalisation
from mast.evaluation.evaluate import attach_predictions
from mast.evaluation.evaluation_set import EvaluationSet, GroundTruth
from mast.evaluation.ground_truth import grid_of, read_ground_truth
from mast.evaluation.matching import GroupedBoxes
from mast.evaluation.results import Results, fingerprint_ground_truth
from mast.evaluation.set_metrics import evaluate_set
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import build_detector
from mast.models.postprocess import ChunkDetections
from mast.storage import join
from mast.store.audio_store import AudioStore
from tests.training.studies import prepare_example

SHIFTED = "<b>new</b> $place$"
"""Name of a held-out set that would break a page or a figure that does not escape it."""

SHAPE = EncoderShape(width=16, heads=2, depth=1)
ARCHITECTURE = {
    "encoder": asdict(SHAPE),
    "adapter": "upsampling",
    "levels": 4,
    "channels": 256,
    "head_width": 16,
}


def boxes(rows, *, scored=False):
    """Build boxes from rows of (group, start, low, end, high) and, for predictions, a score."""
    values = np.array(rows, dtype=float).reshape(-1, 6 if scored else 5)
    return GroupedBoxes(values[:, 0].astype(np.int64), values[:, 1:5], values[:, 5] if scored else None)


def make_ground_truth(
    chunks, boxes_in_chunks, *, events=None, box_event=None, labels=None, snr_db=None, **overrides
) -> GroundTruth:
    """Build ground truth in chunks (recording, start_s).

    Without `events`, every box is a separate event at the start of its chunk.
    """
    recording, start_s = np.array(chunks, dtype=float).reshape(-1, 2).T
    parts = boxes(boxes_in_chunks)
    if events is None:
        shifted = parts.bounds.copy()
        shifted[:, 0::2] += start_s[parts.group, None]
        complete = GroupedBoxes(recording[parts.group].astype(np.int64), shifted)
    else:
        complete = boxes(events)
    names = tuple(f"card/{number}.wav" for number in range(1 + int(recording.max(initial=-1))))
    fields = {
        "name": "test",
        "recordings": names,
        "sites": tuple("AB"[number % 2] for number in range(len(names))),
        "chunk_recording": recording.astype(np.int64),
        "chunk_start_s": start_s,
        "chunk_expansion": np.ones(len(start_s)),
        "chunk_hour": np.full(len(start_s), 5),
        "boxes": parts,
        "box_event": np.arange(len(parts)) if box_event is None else np.array(box_event, dtype=np.int64),
        "events": complete,
        "event_labels": tuple(labels or [""] * len(complete)),
        "event_snr_db": np.array(snr_db if snr_db is not None else [np.nan] * len(complete), dtype=float),
    }
    return GroundTruth(**fields | overrides)


def make_evaluation_set(ground_truth: GroundTruth, predictions, *, stitched=None) -> EvaluationSet:
    """Build an evaluation set from predictions by chunk, shifted in their recordings by the start of the chunk.

    Without `stitched`, rows by recording, each prediction is a separate event.
    """
    in_chunks = boxes(predictions, scored=True)
    events = in_chunks.bounds.copy()
    events[:, 0::2] += ground_truth.chunk_start_s[in_chunks.group, None]
    unstitched = GroupedBoxes(ground_truth.chunk_recording[in_chunks.group], events, in_chunks.score)
    return EvaluationSet(
        ground_truth, in_chunks, events, unstitched if stitched is None else boxes(stitched, scored=True)
    )


def oracle(ground_truth: GroundTruth, study: Study, score: float = 1.0) -> EvaluationSet:
    """Return predictions equal to the ground truth."""
    bounds = [
        ground_truth.boxes.bounds[ground_truth.boxes.group == chunk]
        for chunk in range(len(ground_truth.chunk_recording))
    ]
    detections = [
        ChunkDetections(torch.from_numpy(item).float(), torch.full((len(item),), score)) for item in bounds
    ]
    return attach_predictions(ground_truth, iter(detections), grid_of(study))


def make_results(sets, threshold=0.5, resamples=20) -> Results:
    """Compute results of evaluation sets with fixed provenance."""
    return Results(
        model={"identity": "0123456789abcdef", "location": "model", "source": "a test", "licence": "none"},
        provenance={"splits.parquet": "abc"},
        ground_truth=fingerprint_ground_truth([item.ground_truth for item in sets]),
        threshold=threshold,
        threshold_source="a test",
        settings={},
        sets=[evaluate_set(item, threshold, resamples) for item in sets],
        version="0",
        created_utc="2026-01-02T03:04:05+00:00",
    )


def study_under_shift(folder: Path) -> Path:
    """Prepare the example study with a morning at B1 held out. → its file"""
    file = prepare_example(folder)
    values = json.loads(file.read_text())
    values["splits"] |= {"train": 0.8, "val": 0.1, "test": 0.1}
    values["splits"]["held_out"] = {SHIFTED: {"paths": ["B1/*_073000.WAV"]}}
    file.write_text(json.dumps(values))
    done = CliRunner().invoke(app, ["split", str(file)])
    assert done.exit_code == 0, done.output
    return file


def open_study(file: Path) -> tuple[Study, AudioStore, FrontEnd]:
    study = load_study(file)
    frontend = FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))
    return study, AudioStore(join(study.work_dir, "audio.lance")), frontend


def load_ground_truth(file: Path, split: str) -> tuple[Study, AudioStore, GroundTruth]:
    study, store, frontend = open_study(file)
    return study, store, read_ground_truth(study, store, split, frontend)[0]


def random_detector(file: Path, folder: Path, **changed) -> str:
    """Save a detector with random weights, for the study or for changed settings. → its folder"""
    study = load_study(file)
    description = ModelInfo(
        **{
            "kind": "detector",
            "architecture": ARCHITECTURE,
            "spectrogram": study.spectrogram,
            "chunking": study.chunking,
            "normalisation": read_normalisation(study),
            "licence": "none",
            "source": "a test",
        }
        | changed
    )
    torch.manual_seed(0)
    frames = chunk_frames(description.chunking.chunk_s, description.spectrogram)
    network = build_detector(ARCHITECTURE, Encoder(SHAPE, frames))
    for _ in range(20):  # update the norms, so that scores differ by more than rounding
        network.train()(torch.randn(2, SHAPE.bins, frames))
    save_model(str(folder), description, network.state_dict())
    return str(folder)
