"""Build small cards of noise and a detector that detects events in them, and process runs without worker processes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

from mast.config import Chunking, Spectrogram
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import build_detector
from mast.normalisation import Normalisation
from mast.runs.inputs import resolve_inputs
from mast.runs.run import ALL_SHARDS, DetectionRun, open_run
from mast.runs.worker import load_detector_for_run, process_part
from tests.recordings.builders import RATE_HZ, wav

SHAPE = EncoderShape(width=16, heads=2, depth=1)
DESCRIPTION = ModelInfo(
    kind="detector",
    architecture={
        "encoder": asdict(SHAPE), "adapter": "upsampling", "levels": 3, "channels": 256, "head_width": 16,
    },
    spectrogram=Spectrogram(),
    chunking=Chunking(chunk_s=1.28, hop_s=0.64),
    normalisation=Normalisation("dataset", -6.0, 3.0),
    licence="none",
    source="a test",
    thresholds={"score": 0.3, "nms_iou_threshold": 0.2},
)  # fmt: skip

NARROW = {**DESCRIPTION.architecture, "levels": 1, "channels": 32}
"""Architecture of a detector with few operations, for tests whose time grows with their number."""


def varying_noise(seconds: float, seed: int = 0) -> np.ndarray:
    """Return noise of varying amplitude, in which a random network detects events. → (N,)"""
    rng = np.random.default_rng(seed)
    samples = round(seconds * RATE_HZ)
    knots = np.arange(0, samples + 3200, 3200)
    amplitude = np.interp(np.arange(samples), knots, rng.random(len(knots)) ** 3)
    return (6000 * amplitude * rng.standard_normal(samples)).clip(-32767, 32767).astype("<i2")


def save_detector(folder: Path, **changes) -> str:
    """Save a detector of random weights, whose scores differ between locations; return its folder."""
    torch.manual_seed(0)
    description = replace(DESCRIPTION, **changes)
    network = build_detector(description.architecture, Encoder(SHAPE, 128))
    frontend = FrontEnd(DESCRIPTION.chunking, DESCRIPTION.spectrogram, DESCRIPTION.normalisation)
    audio = torch.from_numpy(varying_noise(5.12).astype(np.float32)).reshape(4, -1)
    with torch.no_grad():
        spec = frontend(audio, torch.full((4,), 20_480))
        network.head.logit.weight.mul_(100)
        for _ in range(20):  # update the running statistics of the norms
            logits = network(spec).logits
        network.head.logit.bias.sub_(logits.mean() + 1)
    save_model(str(folder), description, network.state_dict())
    return str(folder)


def card(folder: Path, files: int = 6, seconds: float = 2.0) -> Path:
    """Write recordings of two sites, one every hour; return the folder."""
    for number in range(files):
        path = folder / "AB"[number % 2] / f"202305{10 + number // 24}_{number % 24:02d}3000.WAV"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav(varying_noise(seconds, seed=number).tobytes()))
    return folder


def open_paths(paths, model: str, out, **options) -> DetectionRun:
    """Open a run over the paths of a command line."""
    arguments = [paths] if isinstance(paths, str | Path) else paths
    naming = {name: options.pop(name) for name in ("site", "time_zone") if name in options}
    return open_run(
        resolve_inputs([str(argument) for argument in arguments], **naming), model, str(out), **options
    )


def process_missing(run: DetectionRun, shard=ALL_SHARDS) -> DetectionRun:
    """Process the missing parts of a run in this process."""
    detector = load_detector_for_run(run.config, "cpu")
    for number in run.missing(shard):
        process_part(run.plan.part(int(number)), run.config, detector)
    return run


def contents(out) -> dict[str, bytes]:
    """Return every file of a run except the table of recordings, which contains its creation time."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}
    del files["recordings.parquet"]
    return files


def rows(out, kind: str) -> list[dict]:
    """Return all events, or the status of all recordings."""
    files = sorted((Path(out) / kind).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
