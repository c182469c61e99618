"""Measure the average precision of each engine and hop, relative to float32 with half-overlapping chunks.

    python -m experiments.engine_accuracy STUDY.yaml MODEL

Each installed engine runs on every recording of the test sets as in `mast detect`, and its events are matched with the
annotations of the recording. The reference processes all audio twice, as in the paper; the others use the hop of
`mast detect`. An int8 engine is calibrated on unlabelled audio of the study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.results import write_result

from experiments.chunk_offset.measure import location_of, make_parser, select_recordings
from experiments.event_agreement import rank_predictions
from mast.config import Study, load_study
from mast.datasets.sampler import evenly_spaced
from mast.datasets.split_table import boxes_by_recording
from mast.datasets.study_datasets import UNLABELLED, split_chunks
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.detect import CHUNK_HOP_FRACTION, detect_recording
from mast.evaluation.metrics import average_precision, f1
from mast.models.inference_engines import ENGINE_LABELS, QUANTISED, EngineName, prepare_engine
from mast.models.loading import load_detector
from mast.models.openvino import is_available
from mast.runs.quantisation import CHUNKS
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE

HALF = 0.5
PAIRS: tuple[tuple[EngineName, float], ...] = (
    ("float32", HALF),
    ("float32", CHUNK_HOP_FRACTION),
    ("bf16", CHUNK_HOP_FRACTION),
    ("int8", CHUNK_HOP_FRACTION),
    ("int8-compiled", CHUNK_HOP_FRACTION),
)
"""Engine and hop in chunks; the first is the reference."""


def main() -> None:
    """Run every engine on every recording, and write the metrics."""
    options = make_parser(__doc__, Path("experiments/results/engine_accuracy.json")).parse_args()
    study = load_study(options.study)
    splits, recordings = select_recordings(study, options)
    rows: list[dict[str, Any]] = []
    for engine, hop in PAIRS:
        if engine in QUANTISED and not is_available(quantising=True):
            continue
        rows.append(
            {
                "engine": ENGINE_LABELS[engine],
                "hop": hop,
                **evaluate_engine(study, options.model, recordings, engine, hop),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        row["ap_loss"] = round(rows[0]["ap"] - row["ap"], 4)
    metrics = {"splits": splits, "recordings": len(recordings), "engines": rows}
    write_result(options.out, metrics, ("torch", "openvino", "nncf", "numpy"))


def evaluate_engine(
    study: Study, model: str, recordings: Sequence[str], engine: EngineName, hop: float
) -> dict[str, float]:
    """Return the average precision, and F1 at the model's threshold, over all recordings."""
    loaded = load_detector(model)
    program = prepare_engine(engine, loaded, *calibration(study)) if engine in QUANTISED else None
    detector = ModelChunkDetector(loaded, study.detection, "cpu", engine, program)
    hop_s = round(hop * detector.frames) * loaded.description.spectrogram.frame_shift_s
    annotations = boxes_by_recording(study, "animal")
    events, calls = [], []
    for name in recordings:
        detections = detect_recording(
            location_of(study, name), detector, min_score=study.detection.score_threshold, hop_s=hop_s
        )
        rows = [(item.start_s, item.low_hz, item.end_s, item.high_hz, item.score) for item in detections]
        events.append(np.array(rows, np.float64).reshape(-1, 5))
        calls.append(annotations.get(name, np.zeros((0, 4))))
    ranking = rank_predictions(events, calls)
    counted = ranking.with_min_score(loaded.description.thresholds["score"])
    return {
        "ap": round(average_precision(ranking, None), 4),
        "f1": round(f1(counted, None), 4),
        "events": len(counted.score),
        "calls": sum(map(len, calls)),
    }


def calibration(study: Study) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unlabelled chunks and the number of valid samples in each. → (B, N), (B,)"""
    store = AudioStore(join(study.work_dir, STORE))
    _, locations = split_chunks(study, store, [UNLABELLED])
    chosen, samples = locations[evenly_spaced(len(locations), CHUNKS)], store.layout.block_samples
    return torch.from_numpy(store.read(chosen, samples)), torch.from_numpy(
        store.valid_lengths(chosen, samples)
    )


if __name__ == "__main__":
    main()
