"""Test sets made by hand, a small prepared study with a set under shift, and a detector with random weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.preparing import read_normalisation
from mast.detection.evaluate import with_predictions
from mast.evaluation.figures import set_results
from mast.evaluation.matching import Boxes
from mast.evaluation.results import Results, fingerprint_truths
from mast.evaluation.trial import Trial, Truths
from mast.evaluation.truths import grid_of, read_truths
from mast.models.checkpoint import Description, save_model
from mast.models.decoding import Detections
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import detector_of
from mast.recordings.store import AudioStore
from mast.spectrogram import frames_of
from mast.storage import join
from tests.training.studies import prepare_example

SHIFTED = "<b>new</b> $place$"
"""A held-out set whose name would break a page or a picture that takes it for more than text."""

SHAPE = EncoderShape(width=16, heads=2, depth=1)
ARCHITECTURE = {
    "encoder": asdict(SHAPE),
    "adapter": "upsampling",
    "levels": 4,
    "channels": 256,
    "head_width": 16,
}


def boxes(rows, *, scored=False):
    """Boxes from rows of (group, start, low, end, high) and, of predictions, a score."""
    values = np.array(rows, dtype=float).reshape(-1, 6 if scored else 5)
    return Boxes(values[:, 0].astype(np.int64), values[:, 1:5], values[:, 5] if scored else None)


def made_truths(
    chunks, truths, *, events=None, box_event=None, labels=None, snr_db=None, **changed
) -> Truths:
    """Truths in chunks (recording, start_s); without `events`, every box is an event of its own, at its chunk's start."""
    recording, start_s = np.array(chunks, dtype=float).reshape(-1, 2).T
    parts = boxes(truths)
    if events is None:
        shifted = parts.bounds.copy()
        shifted[:, 0::2] += start_s[parts.group, None]
        whole = Boxes(recording[parts.group].astype(np.int64), shifted)
    else:
        whole = boxes(events)
    names = tuple(f"card/{number}.wav" for number in range(1 + int(recording.max(initial=-1))))
    given = {
        "name": "test",
        "recordings": names,
        "sites": tuple("AB"[number % 2] for number in range(len(names))),
        "chunk_recording": recording.astype(np.int64),
        "chunk_start_s": start_s,
        "chunk_expansion": np.ones(len(start_s)),
        "chunk_hour": np.full(len(start_s), 5),
        "boxes": parts,
        "box_event": np.arange(len(parts)) if box_event is None else np.array(box_event, dtype=np.int64),
        "events": whole,
        "event_labels": tuple(labels or [""] * len(whole)),
        "event_snr_db": np.array(snr_db if snr_db is not None else [np.nan] * len(whole), dtype=float),
    }
    return Truths(**given | changed)


def made_trial(truths: Truths, predictions, *, sounds=None) -> Trial:
    """Predictions by chunk, which stand in their recordings as far on as their chunk starts.

    Without `sounds`, of rows by recording, each prediction is a sound of its own.
    """
    found = boxes(predictions, scored=True)
    events = found.bounds.copy()
    events[:, 0::2] += truths.chunk_start_s[found.group, None]
    alone = Boxes(truths.chunk_recording[found.group], events, found.score)
    return Trial(truths, found, events, alone if sounds is None else boxes(sounds, scored=True))


def oracle(truths: Truths, study: Study, score: float = 1.0) -> Trial:
    """Predictions that are the truths."""
    own = [truths.boxes.bounds[truths.boxes.group == chunk] for chunk in range(len(truths.chunk_recording))]
    detections = [Detections(torch.from_numpy(item).float(), torch.full((len(item),), score)) for item in own]
    return with_predictions(truths, iter(detections), grid_of(study))


def made_results(sets, threshold=0.5, resamples=20) -> Results:
    return Results(
        model={"identity": "0123456789abcdef", "location": "model", "source": "made", "licence": "none"},
        made_from={"splits.parquet": "abc"},
        truths=fingerprint_truths([item.truths for item in sets]),
        threshold=threshold,
        threshold_source="made up",
        settings={},
        sets=[set_results(item, threshold, resamples) for item in sets],
        version="0",
        created_utc="2026-01-02T03:04:05+00:00",
    )


def study_under_shift(folder: Path) -> Path:
    """The example as a prepared study in which a morning at B1 is held out. → its file"""
    file = prepare_example(folder)
    values = json.loads(file.read_text())
    values["splits"] |= {"train": 0.8, "val": 0.1, "test": 0.1}
    values["splits"]["held_out"] = {SHIFTED: {"paths": ["B1/*_073000.WAV"]}}
    file.write_text(json.dumps(values))
    done = CliRunner().invoke(app, ["splits", str(file)])
    assert done.exit_code == 0, done.output
    return file


def opened(file: Path) -> tuple[Study, AudioStore, FrontEnd]:
    study = load_study(file)
    frontend = FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))
    return study, AudioStore(join(study.work, "audio.lance")), frontend


def truths_of(file: Path, split: str) -> tuple[Study, AudioStore, Truths]:
    study, store, frontend = opened(file)
    return study, store, read_truths(study, store, split, frontend)[0]


def random_detector(file: Path, folder: Path, **changed) -> str:
    """A detector that has learned nothing, for the study or for changed settings."""
    study = load_study(file)
    description = Description(
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
    frames = frames_of(description.chunking.chunk_s, description.spectrogram)
    network = detector_of(ARCHITECTURE, Encoder(SHAPE, frames))
    for _ in range(20):  # norms that have heard sound, so that scores differ by more than rounding
        network.train()(torch.randn(2, SHAPE.bins, frames))
    save_model(str(folder), description, network.state_dict())
    return str(folder)
