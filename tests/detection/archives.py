"""Small cards of noise, a detector that finds something in it, and runs over them without child processes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

from mast.config import Chunking, Spectrogram
from mast.detection.archive import WHOLE, Archive, open_archive
from mast.detection.inputs import look_at
from mast.detection.part import hear_part, open_ear
from mast.models.checkpoint import Description, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import detector_of
from mast.normalisation import Normalisation
from tests.recordings.made import RATE_HZ, wav

SHAPE = EncoderShape(width=16, heads=2, depth=1)
DESCRIPTION = Description(
    kind="detector",
    architecture={
        "encoder": asdict(SHAPE), "adapter": "upsampling", "levels": 3, "channels": 256, "head_width": 16,
    },
    spectrogram=Spectrogram(),
    chunking=Chunking(chunk_s=1.28, hop_s=0.64),
    normalisation=Normalisation("dataset", -6.0, 3.0),
    licence="none",
    source="a test",
    thresholds={"score": 0.3, "nms_iou": 0.2},
)  # fmt: skip

NARROW = {**DESCRIPTION.architecture, "levels": 1, "channels": 32}
"""Of a detector with few operations, for what takes a while with each."""


def swelling(seconds: float, seed: int = 0) -> np.ndarray:
    """Noise that swells and ebbs, for a random network to find shapes in."""
    rng = np.random.default_rng(seed)
    samples = round(seconds * RATE_HZ)
    knots = np.arange(0, samples + 3200, 3200)
    swell = np.interp(np.arange(samples), knots, rng.random(len(knots)) ** 3)
    return (6000 * swell * rng.standard_normal(samples)).clip(-32767, 32767).astype("<i2")


def save_detector(folder: Path, **changed) -> str:
    """A detector of random weights that is surer of some places than of others."""
    torch.manual_seed(0)
    description = replace(DESCRIPTION, **changed)
    network = detector_of(description.architecture, Encoder(SHAPE, 128))
    frontend = FrontEnd(DESCRIPTION.chunking, DESCRIPTION.spectrogram, DESCRIPTION.normalisation)
    sound = torch.from_numpy(swelling(5.12).astype(np.float32)).reshape(4, -1)
    with torch.no_grad():
        spec = frontend(sound, torch.full((4,), 20_480))
        network.head.logit.weight.mul_(100)
        for _ in range(20):  # norms learn the scale of their maps
            logits = network(spec).logits
        network.head.logit.bias.sub_(logits.mean() + 1)
    save_model(str(folder), description, network.state_dict())
    return str(folder)


def card(folder: Path, files: int = 6, seconds: float = 2.0) -> Path:
    """Recordings of two sites, one an hour."""
    for number in range(files):
        path = folder / "AB"[number % 2] / f"202305{10 + number // 24}_{number % 24:02d}3000.WAV"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav(swelling(seconds, seed=number).tobytes()))
    return folder


def opened(paths, model: str, out, **options) -> Archive:
    """A run over what a command line points at."""
    words = [paths] if isinstance(paths, str | Path) else paths
    naming = {name: options.pop(name) for name in ("site", "time_zone") if name in options}
    return open_archive(look_at([str(word) for word in words], **naming), model, str(out), **options)


def heard(archive: Archive, shard=WHOLE) -> Archive:
    """Do what is missing, here."""
    ear = open_ear(archive.orders, "cpu")
    for number in archive.missing(shard):
        hear_part(archive.plan.part(int(number)), archive.orders, ear)
    return archive


def contents(out) -> dict[str, bytes]:
    """Every file of a run but the table of recordings, which tells when it was made."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}
    del files["recordings.parquet"]
    return files


def rows(out, kind: str) -> list[dict]:
    """All events, or the status of all recordings."""
    files = sorted((Path(out) / kind).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
