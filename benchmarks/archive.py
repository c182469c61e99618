"""Shared parts of detection benchmarks: archives of short recordings, a very small detector, `mast detect` processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.corrupt_card import Sounds, wav
from mast.config import Chunking, Spectrogram
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import build_detector
from mast.normalisation import Normalisation

SITES = 10
SECOND_BYTES = 32_000
DETECTION_FRACTION = 0.003
"""Fraction of locations with a detection: a few events per recording."""

SHAPE = EncoderShape(width=16, heads=2, depth=1)
DESCRIPTION = ModelInfo(
    kind="detector",
    architecture={
        "encoder": asdict(SHAPE),
        "adapter": "upsampling",
        "levels": 3,
        "channels": 32,
        "head_width": 16,
    },
    spectrogram=Spectrogram(),
    chunking=Chunking(chunk_s=1.28, hop_s=0.64),
    normalisation=Normalisation("dataset", -6.0, 3.0),
    licence="none",
    source="a benchmark",
    thresholds={"score": 0.3},
)


def save_detector(folder: Path) -> Path:
    """Save a detector of random weights with chunks of 1.28 s and a wide range of scores."""
    torch.manual_seed(0)
    network = build_detector(DESCRIPTION.architecture, Encoder(SHAPE, 128))
    frontend = FrontEnd(DESCRIPTION.chunking, DESCRIPTION.spectrogram, Normalisation("dataset", -6.0, 3.0))
    seconds = torch.stack([torch.from_numpy(Sounds(0).second(number)) for number in range(4)])  # (4, 16000)
    audio = torch.nn.functional.pad(seconds, (0, 4480))  # (4, 20480)
    with torch.no_grad():
        spec = frontend(audio, torch.full((4,), 16_000))
        network.head.logit.weight.mul_(100)
        for _ in range(20):  # batch norms adapt to the scale of their inputs
            network(spec)
        logits = network.eval()(spec).logits
        network.head.logit.get_parameter("bias").sub_(logits.quantile(1 - DETECTION_FRACTION) - 1)
    save_model(str(folder), DESCRIPTION, network.state_dict())
    return folder


def write_archive(folder: Path, recordings: int, corrupt_every: int = 0, seconds: float = 0.0) -> int:
    """Write recordings of 1 to 2 s, or of `seconds`; every `corrupt_every`-th is corrupt. Return their number."""
    sounds, corrupt = Sounds(0), 0
    for number in range(recordings):
        path = folder / f"site{number % SITES:02d}" / f"{number // 2000:03d}" / f"{number:07d}.wav"
        if number % 2000 < SITES:
            path.parent.mkdir(parents=True, exist_ok=True)
        data = sounds.second(number).tobytes() + sounds.second(number + 1).tobytes()
        length = round((seconds or 1 + (number % 97) / 97) * SECOND_BYTES) // 2 * 2
        content = wav(data[:length])
        if corrupt_every and number % corrupt_every == corrupt_every - 1:
            content = (b"", b"Dear diary, the frogs were loud. " * 40, content[:20])[corrupt % 3]
            corrupt += 1
        path.write_bytes(content)
    return corrupt


def start_detect(
    paths: Sequence[Path], model: Path, out: Path, workers: int, *options: str
) -> subprocess.Popen[str]:
    """Start `mast detect` of the same installation."""
    mast = str(Path(sys.executable).with_name("mast"))
    arguments = [*map(str, paths), "--model", str(model), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(
        [mast, "detect", *arguments, "--device", "cpu", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_below(pid: int) -> list[int]:
    """Return all descendants of a process, started from any of its threads."""
    descendants: list[int] = []
    with suppress(OSError):  # the process may end meanwhile
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                descendants += [child, *processes_below(child)]
    return descendants


def ray_workers(pid: int) -> list[int]:
    """Return Ray's workers below a process that are processing a part: each has a detection subprocess."""
    return [
        worker
        for worker in processes_below(pid)
        if _title(worker).startswith("ray::") and processes_below(worker)
    ]


def _title(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    return ""


def finish(process: subprocess.Popen[str], codes: Sequence[int] = (0,)) -> str:
    """Wait for a command; return its output, or exit if its exit code is not in `codes`."""
    output, errors = process.communicate()
    if process.returncode not in codes:
        sys.exit(f"mast detect ended with {process.returncode}: {output}{errors}")
    return output
