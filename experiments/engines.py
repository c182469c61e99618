"""What speed costs: average precision by engine and hop, against float32 in chunks that overlap by half.

    python -m experiments.engines STUDY.yaml MODEL

Every recording of the test sets is heard as `mast detect` hears it, with each engine that is installed, and its events
are matched with the experts' boxes in the recording. The reference hears every moment twice, as in the paper; all
others take the product's own hop. An int8 engine is prepared on unlabelled sound of the study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.results import write_result

from experiments.agreement import ranked
from experiments.phase import location_of, parser_of, tested
from mast.config import Study, load_study
from mast.datasets.examples import UNLABELLED, prepared_chunks
from mast.datasets.order import spread
from mast.datasets.split_table import boxes_by_recording
from mast.detection.calibration import CHUNKS
from mast.detection.chunks import BoxFinder
from mast.detection.recording import HOP, detect_recording
from mast.evaluation.metrics import ap_area, f1
from mast.models.engines import QUANTISED, TOLD, EngineName, prepare_engine
from mast.models.loading import load_detector
from mast.models.programs import is_here
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.study.products import STORE

HALF = 0.5
PAIRS: tuple[tuple[EngineName, float], ...] = (
    ("float32", HALF),
    ("float32", HOP),
    ("bf16", HOP),
    ("int8", HOP),
    ("int8-compiled", HOP),
)
"""Engine and hop, in chunks; the first is what the others are compared with."""


def main() -> None:
    """Hear every recording with every engine, and write what each finds."""
    options = parser_of(__doc__, Path("experiments/results/engines.json")).parse_args()
    study = load_study(options.study)
    names, recordings = tested(study, options)
    rows: list[dict[str, Any]] = []
    for engine, hop in PAIRS:
        if engine in QUANTISED and not is_here(quantising=True):
            continue
        rows.append(
            {"engine": TOLD[engine], "hop": hop, **heard(study, options.model, recordings, engine, hop)}
        )
        print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        row["ap_loss"] = round(rows[0]["ap"] - row["ap"], 4)
    figures = {"splits": names, "recordings": len(recordings), "engines": rows}
    write_result(options.out, figures, ("torch", "openvino", "nncf", "numpy"))


def heard(
    study: Study, model: str, recordings: Sequence[str], engine: EngineName, hop: float
) -> dict[str, float]:
    """Average precision, and F1 at the model's threshold, of the events of all recordings."""
    loaded = load_detector(model)
    program = prepare_engine(engine, loaded, *calibration(study)) if engine in QUANTISED else None
    finder = BoxFinder(loaded, study.detection, "cpu", engine, program)
    hop_s = round(hop * finder.frames) * loaded.description.spectrogram.shift_s
    experts = boxes_by_recording(study, "animal")
    found, calls = [], []
    for name in recordings:
        events = detect_recording(
            location_of(study, name), finder, min_score=study.detection.min_score, hop_s=hop_s
        )
        rows = [(item.start_s, item.low_hz, item.end_s, item.high_hz, item.score) for item in events]
        found.append(np.array(rows, np.float64).reshape(-1, 5))
        calls.append(experts.get(name, np.zeros((0, 4))))
    ranking = ranked(found, calls)
    counted = ranking.above(loaded.description.thresholds["score"])
    return {
        "ap": round(ap_area(ranking, None), 4),
        "f1": round(f1(counted, None), 4),
        "events": len(counted.score),
        "calls": sum(map(len, calls)),
    }


def calibration(study: Study) -> tuple[torch.Tensor, torch.Tensor]:
    """Unlabelled chunks, and how much of each is sound. → (B, N), (B,)"""
    store = AudioStore(join(study.work, STORE))
    _, places = prepared_chunks(study, store, [UNLABELLED])
    chosen, samples = places[spread(len(places), CHUNKS)], store.layout.step_samples
    return torch.from_numpy(store.read(chosen, samples)), torch.from_numpy(store.filled(chosen, samples))


if __name__ == "__main__":
    main()
