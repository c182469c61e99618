"""What benchmarks of detection share: archives of short recordings, a very small detector, `mast detect` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.card import Sounds, wav
from mast.config import Chunking, Spectrogram
from mast.models.checkpoint import Description, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.loading import detector_of
from mast.normalisation import Normalisation

SITES = 10
SECOND_BYTES = 32_000
LOUD_SHARE = 0.003
"""Share of places where the detector hears something: a few sounds a recording."""

SHAPE = EncoderShape(width=16, heads=2, depth=1)
DESCRIPTION = Description(
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
    """A detector of random weights that hears 1.28 s at a time, and is surer of some places than of others."""
    torch.manual_seed(0)
    network = detector_of(DESCRIPTION.architecture, Encoder(SHAPE, 128))
    frontend = FrontEnd(DESCRIPTION.chunking, DESCRIPTION.spectrogram, Normalisation("dataset", -6.0, 3.0))
    seconds = torch.stack([torch.from_numpy(Sounds(0).second(number)) for number in range(4)])  # (4, 16000)
    sound = torch.nn.functional.pad(seconds, (0, 4480))  # (4, 20480)
    with torch.no_grad():
        spec = frontend(sound, torch.full((4,), 16_000))
        network.head.logit.weight.mul_(100)
        for _ in range(20):  # norms learn the scale of their maps
            network(spec)
        logits = network.eval()(spec).logits
        network.head.logit.get_parameter("bias").sub_(logits.quantile(1 - LOUD_SHARE) - 1)
    save_model(str(folder), DESCRIPTION, network.state_dict())
    return folder


def write_archive(folder: Path, recordings: int, corrupt_every: int = 0, seconds: float = 0.0) -> int:
    """Recordings of 1 to 2 s, or of `seconds`, of which every so many cannot be read. → how many those are"""
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
    """`mast detect` of the same installation, on its way."""
    mast = str(Path(sys.executable).with_name("mast"))
    words = [*map(str, paths), "--model", str(model), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(
        [mast, "detect", *words, "--device", "cpu", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_below(pid: int) -> list[int]:
    """All processes that a process has started, from whichever of its threads, and those that these have."""
    found: list[int] = []
    with suppress(OSError):  # it may end while we look
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, listed.read_text().split()):
                found += [child, *processes_below(child)]
    return found


def ray_workers(pid: int) -> list[int]:
    """Ray's workers below a process that have a part under way: each has a detecting process of its own."""
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
    """What a command says that has to end well."""
    output, errors = process.communicate()
    if process.returncode not in codes:
        sys.exit(f"mast detect ended with {process.returncode}: {output}{errors}")
    return output
