"""Calls whose names are known, out of public sources, and vectors for them made in several ways.

A call's `source` is the recording it is of, as strictly as the source tells: a site, an individual, an original clip.
Calls of one source never name each other.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.soundscapes.calls import Clip, measured
from experiments.soundscapes.material import CALLERS, ESC50, read_rows
from experiments.soundscapes.spectra import RATE_HZ
from mast.embeddings.boxes import BoxEncoder, Cut, cut_chunks
from mast.models.encoder import Encoder
from mast.models.loading import Loaded, load_encoder
from mast.recordings.decode import open_audio

Vectors = NDArray[np.float32]
"""(N, C)"""

Hear = Callable[[Sequence[Cut]], Vectors]
"""Vectors of all boxes of some chunks."""

SOURCES: Mapping[str, tuple[str, ...]] = {
    "birdeep-am1": ("recording",),
    "naturesounds-est": ("site", "individual"),
    "pykanto-great-tit": ("site",),
    "qut-boobook": ("site",),
    "qut-noisypitta": ("hour",),
    "whombat-bats": ("recording",),
    "xc-green-hermit": ("recording",),
}
"""Sources with tables of boxes, and the columns that tell their recordings apart."""

SLOWED: Mapping[str, float] = {"whombat-bats": 10.0}
UNSURE = ("Thyroptera tricolor", "Curruca", "Sylvia", "bird")
"""Names that are not sure, or not those of one species."""

BIRDNET_HZ, BIRDNET_S = 48_000, 3.0
BATCH = 8


@dataclass(frozen=True)
class Call:
    """A box of a recording, and who is heard in it. Seconds and Hz are the recording's own."""

    label: str
    source: str
    path: Path
    bounds: tuple[float, float, float, float]
    time_expansion: float = 1.0


@dataclass(frozen=True)
class Heard:
    """A call in its chunk, as the encoder is given it."""

    call: Call
    cut: Cut


def parser_of(about: str | None, out: Path) -> argparse.ArgumentParser:
    """What an experiment with known calls is told: where they are, and which models hear them."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", nargs=2, action="append", required=True, metavar=("NAME", "FOLDER"))
    parser.add_argument("--birdnet", type=Path, help="BirdNET's weights, as a TFLite file")
    parser.add_argument("--most", type=int, default=60, help="calls of a label")
    parser.add_argument("--out", type=Path, default=out)
    return parser


def read_calls(data: Path, most: int | None = None) -> list[Call]:
    """Calls of every source that is in a data folder, at most so many of a label."""
    calls = [call for folder in SOURCES if (data / folder).is_dir() for call in _table_calls(data, folder)]
    if (data / ESC50).is_dir():
        calls += _clip_calls(data)
    counts: Counter[str] = Counter()
    kept = []
    for call in calls:
        counts[call.label] += 1
        if most is None or counts[call.label] <= most:
            kept.append(call)
    return kept


def _table_calls(data: Path, folder: str) -> Iterator[Call]:
    """Boxes of a source's table."""
    facts = {row["recording"]: row for row in read_rows(data / folder / "recordings.csv")}
    for row in read_rows(data / folder / "annotations.csv"):
        if row["label"] in UNSURE or not row["low_hz"]:
            continue
        known = {**facts[row["recording"]], "hour": row["recording"].split("__")[1:2]}
        source = "/".join([folder, *(str(known[column]) for column in SOURCES[folder])])
        start_s, low_hz, end_s, high_hz = (
            float(row[name]) for name in ("start_s", "low_hz", "end_s", "high_hz")
        )
        place = data / folder / "audio" / row["recording"]
        yield Call(row["label"], source, place, (start_s, low_hz, end_s, high_hz), SLOWED.get(folder, 1.0))


def _clip_calls(data: Path) -> Iterator[Call]:
    """Animal clips, each with one box that holds what stands out of its noise."""
    for row in read_rows(data / ESC50 / "recordings.csv"):
        if row["category"] in CALLERS:
            place = data / ESC50 / "audio" / row["recording"]
            with open_audio(str(place), RATE_HZ) as audio:
                clip = Clip.of(audio.read_samples(0, audio.samples))
            power = np.where(clip.is_sound(None), clip.power - clip.noise, 0)
            if power.any():
                yield Call(row["category"], f"{ESC50}/{row['source_clip']}", place, measured(power))


def hear_calls(calls: Sequence[Call], encoder: BoxEncoder) -> list[Heard]:
    """Each call in a chunk, cut as `mast embed` cuts it; those beyond the encoder's band are left out."""
    heard = []
    for path in dict.fromkeys(call.path for call in calls):
        own = [call for call in calls if call.path == path]
        with open_audio(str(path), encoder.rate_hz, own[0].time_expansion) as audio:
            bounds = np.array([call.bounds for call in own])
            for cut in cut_chunks(audio, bounds, encoder, own[0].time_expansion):
                heard += [
                    Heard(own[row], cut._replace(boxes=cut.boxes[place : place + 1], rows=[row]))
                    for place, row in enumerate(cut.rows)
                ]
    return heard


def embedded(heard: Sequence[Heard], hear: Hear) -> Vectors:
    """Vectors of calls, one a call. → (N, C)"""
    cuts = [item.cut for item in heard]
    return np.concatenate([hear(cuts[first : first + BATCH]) for first in range(0, len(cuts), BATCH)])


def ways_of(models: Mapping[str, str]) -> tuple[BoxEncoder, dict[str, Hear]]:
    """What cuts chunks, and every way to make vectors of them; the front end is the first model's for all others."""
    loaded = {name: load_encoder(location) for name, location in models.items()}
    first = next(iter(loaded.values()))
    ways: dict[str, Hear] = {}
    for name, item in loaded.items():
        ways[name] = _boxes(BoxEncoder(item, "last", "cpu"))
        ways[f"{name}, last blocks"] = _boxes(BoxEncoder(item, "blocks", "cpu"))
    torch.manual_seed(0)
    untrained = Encoder(first.network.shape, first.frontend.frames).eval()
    random = Loaded(first.description, untrained, first.frontend)
    ways["random encoder"] = _boxes(BoxEncoder(random, "last", "cpu"))
    ways["log-mel"] = lambda cuts: _levels(cuts, first)
    return BoxEncoder(first, "last", "cpu"), ways


def _boxes(encoder: BoxEncoder) -> Hear:
    return lambda cuts: encoder(cuts).astype(np.float32)


def whole_chunks(encoder: BoxEncoder) -> Hear:
    """The mean over a whole chunk, as far as it is sound, whatever the box."""

    def hear(cuts: Sequence[Cut]) -> Vectors:
        whole = [
            cut._replace(boxes=torch.tensor([[0.0, 0.0, frames, encoder.grid.settings.bins]]))
            for cut in cuts
            if (frames := cut.filled / encoder.rate_hz / encoder.grid.settings.shift_s)
        ]
        return encoder(whole).astype(np.float32)

    return hear


def _levels(cuts: Sequence[Cut], loaded: Loaded[Encoder]) -> Vectors:
    """Mean log-mel over the time of a box, band by band; bands outside of the box are as loud as they always are."""
    sound = torch.from_numpy(np.stack([cut.sound for cut in cuts]))
    filled = torch.tensor([cut.filled for cut in cuts])
    levels = loaded.frontend.levels(sound, filled)  # (B, F, T)
    rows = []
    for own, cut in zip(levels, cuts, strict=True):
        usual = own[:, : max(1, int(cut.filled / 160))].median(dim=1).values  # (F,)
        start, low, end, high = cut.boxes[0].tolist()
        span = own[:, int(start) : max(int(start) + 1, round(end))].mean(dim=1) - usual
        inside = (torch.arange(len(span)) >= int(low)) & (torch.arange(len(span)) < max(high, int(low) + 1))
        rows.append(torch.where(inside, span, torch.zeros(())))
    made: Vectors = torch.nn.functional.normalize(torch.stack(rows), dim=1).numpy()
    return made


def birdnet_vectors(calls: Sequence[Call], weights: Path) -> Vectors:
    """BirdNET's own embedding of the three seconds around the middle of each call. → (N, 1024)"""
    from ai_edge_litert.interpreter import Interpreter

    network = Interpreter(str(weights), num_threads=1, experimental_preserve_all_tensors=True)
    network.allocate_tensors()
    source, scores = network.get_input_details()[0]["index"], network.get_output_details()[0]["index"]
    rows = []
    for call in calls:
        with open_audio(str(call.path), BIRDNET_HZ, call.time_expansion) as audio:
            middle_s = (call.bounds[0] + call.bounds[2]) / 2 * call.time_expansion
            wave = audio.read(max(0.0, middle_s - BIRDNET_S / 2), BIRDNET_S)
        window = np.zeros((1, round(BIRDNET_HZ * BIRDNET_S)), np.float32)
        window[0, : len(wave)] = wave[: window.shape[1]]
        network.set_tensor(source, window)
        network.invoke()
        rows.append(network.get_tensor(scores - 1)[0].copy())
    every = np.stack(rows)
    made: Vectors = every / np.linalg.norm(every, axis=1, keepdims=True)
    return made
