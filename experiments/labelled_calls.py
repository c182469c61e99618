"""Labelled calls from public sources, and vectors of them by several methods.

The `source` of a call identifies its recording as strictly as the data allow: a site, an individual, an original clip.
Calls of one source are never references of each other.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.soundscapes.calls import Clip, energy_box
from experiments.soundscapes.sources import CALLERS, ESC50, read_rows
from experiments.soundscapes.spectra import RATE_HZ
from mast.audio.reader import open_audio
from mast.embeddings.box_encoder import BoxEncoder, EncodedChunk, encode_chunks
from mast.models.encoder import Encoder, EncoderShape
from mast.models.loading import AnyEncoder, LoadedModel, load_encoder

Vectors = NDArray[np.float32]
"""(N, C)"""

Embedder = Callable[[Sequence[EncodedChunk]], Vectors]
"""Returns the vectors of all boxes of a batch of chunks."""

SOURCES: Mapping[str, tuple[str, ...]] = {
    "birdeep-am1": ("recording",),
    "naturesounds-est": ("site", "individual"),
    "pykanto-great-tit": ("site",),
    "qut-boobook": ("site",),
    "qut-noisypitta": ("hour",),
    "whombat-bats": ("recording",),
    "xc-green-hermit": ("recording",),
}
"""Sources with tables of boxes, and the columns that distinguish their recordings."""

TIME_EXPANSION: Mapping[str, float] = {"whombat-bats": 10.0}
AMBIGUOUS_LABELS = ("Thyroptera tricolor", "Curruca", "Sylvia", "bird")
"""Labels that are uncertain, or that are not one species."""

BIRDNET_HZ, BIRDNET_S = 48_000, 3.0
BATCH = 8


@dataclass(frozen=True)
class Call:
    """A labelled box of a recording; seconds and Hz are the recording's own."""

    label: str
    source: str
    path: Path
    bounds: tuple[float, float, float, float]
    time_expansion: float = 1.0


@dataclass(frozen=True)
class ChunkedCall:
    """A call and its chunk, the input of the encoder."""

    call: Call
    chunk: EncodedChunk


def make_parser(description: str | None, out: Path) -> argparse.ArgumentParser:
    """Create the command line of an experiment with labelled calls: the data folder and the models."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", nargs=2, action="append", required=True, metavar=("NAME", "FOLDER"))
    parser.add_argument("--birdnet", type=Path, help="TFLite file with the weights of BirdNET")
    parser.add_argument("--max-per-label", type=int, default=60, help="maximum number of calls per label")
    parser.add_argument("--out", type=Path, default=out)
    return parser


def read_calls(data: Path, max_per_label: int | None = None) -> list[Call]:
    """Return the calls of every source in a data folder, at most `max_per_label` of each label."""
    calls = [call for folder in SOURCES if (data / folder).is_dir() for call in _table_calls(data, folder)]
    if (data / ESC50).is_dir():
        calls += _clip_calls(data)
    counts: Counter[str] = Counter()
    selected = []
    for call in calls:
        counts[call.label] += 1
        if max_per_label is None or counts[call.label] <= max_per_label:
            selected.append(call)
    return selected


def _table_calls(data: Path, folder: str) -> Iterator[Call]:
    """Yield the labelled boxes of a source's table."""
    recordings = {row["recording"]: row for row in read_rows(data / folder / "recordings.csv")}
    for row in read_rows(data / folder / "annotations.csv"):
        if row["label"] in AMBIGUOUS_LABELS or not row["low_hz"]:
            continue
        columns = {**recordings[row["recording"]], "hour": row["recording"].split("__")[1:2]}
        source = "/".join([folder, *(str(columns[column]) for column in SOURCES[folder])])
        start_s, low_hz, end_s, high_hz = (
            float(row[name]) for name in ("start_s", "low_hz", "end_s", "high_hz")
        )
        path = data / folder / "audio" / row["recording"]
        yield Call(
            row["label"], source, path, (start_s, low_hz, end_s, high_hz), TIME_EXPANSION.get(folder, 1.0)
        )


def _clip_calls(data: Path) -> Iterator[Call]:
    """Yield the animal clips of ESC-50, each with one box around the audio that exceeds its noise level."""
    for row in read_rows(data / ESC50 / "recordings.csv"):
        if row["category"] in CALLERS:
            path = data / ESC50 / "audio" / row["recording"]
            with open_audio(str(path), RATE_HZ) as audio:
                clip = Clip.of(audio.read_samples(0, audio.samples))
            power = np.where(clip.is_call(None), clip.power - clip.noise, 0)
            if power.any():
                yield Call(row["category"], f"{ESC50}/{row['source_clip']}", path, energy_box(power))


def chunk_calls(calls: Sequence[Call], encoder: BoxEncoder) -> list[ChunkedCall]:
    """Return each call with its chunk, as `mast embed` extracts it; calls outside the model's band are excluded."""
    chunked = []
    for path in dict.fromkeys(call.path for call in calls):
        recording_calls = [call for call in calls if call.path == path]
        expansion = recording_calls[0].time_expansion
        with open_audio(str(path), encoder.rate_hz, expansion) as audio:
            bounds = np.array([call.bounds for call in recording_calls])
            for chunk in encode_chunks(audio, bounds, encoder, expansion):
                chunked += [
                    ChunkedCall(
                        recording_calls[row], chunk._replace(boxes=chunk.boxes[i : i + 1], rows=[row])
                    )
                    for i, row in enumerate(chunk.rows)
                ]
    return chunked


def embed_calls(calls: Sequence[ChunkedCall], embedder: Embedder) -> Vectors:
    """Return one vector per call. → (N, C)"""
    chunks = [item.chunk for item in calls]
    return np.concatenate([embedder(chunks[first : first + BATCH]) for first in range(0, len(chunks), BATCH)])


def make_embedders(models: Mapping[str, str]) -> tuple[BoxEncoder, dict[str, Embedder]]:
    """Return an encoder that extracts chunks, and all embedders by name.

    The random encoder and the log-mel embedder use the front end of the first model.
    """
    loaded = {name: load_encoder(location) for name, location in models.items()}
    first = next(iter(loaded.values()))
    embedders: dict[str, Embedder] = {}
    for name, item in loaded.items():
        embedders[name] = _box_embedder(BoxEncoder(item, "last", "cpu"))
        embedders[f"{name}, last blocks"] = _box_embedder(BoxEncoder(item, "blocks", "cpu"))
    torch.manual_seed(0)
    shape = cast(EncoderShape, first.network.shape)
    untrained = Encoder(shape, first.frontend.frames).eval()
    random = LoadedModel(first.description, untrained, first.frontend)
    embedders["random encoder"] = _box_embedder(BoxEncoder(random, "last", "cpu"))
    embedders["log-mel"] = lambda chunks: _log_mel_vectors(chunks, first)
    return BoxEncoder(first, "last", "cpu"), embedders


def _box_embedder(encoder: BoxEncoder) -> Embedder:
    return lambda chunks: encoder(chunks).astype(np.float32)


def chunk_embedder(encoder: BoxEncoder) -> Embedder:
    """Return an embedder that averages over all audio of a chunk instead of the box."""

    def embedder(chunks: Sequence[EncodedChunk]) -> Vectors:
        with_chunk_box = [
            chunk._replace(boxes=torch.tensor([[0.0, 0.0, frames, encoder.grid.settings.n_mels]]))
            for chunk in chunks
            if (frames := chunk.valid_samples / encoder.rate_hz / encoder.grid.settings.frame_shift_s)
        ]
        return encoder(with_chunk_box).astype(np.float32)

    return embedder


def _log_mel_vectors(chunks: Sequence[EncodedChunk], loaded: LoadedModel[AnyEncoder]) -> Vectors:
    """Return the mean log-mel of each band over the time of the box, relative to its median; 0 outside the box."""
    samples = torch.from_numpy(np.stack([chunk.samples for chunk in chunks]))
    valid_samples = torch.tensor([chunk.valid_samples for chunk in chunks])
    levels = loaded.frontend.log_mel(samples, valid_samples)  # (B, F, T)
    rows = []
    for level, chunk in zip(levels, chunks, strict=True):
        background = level[:, : max(1, int(chunk.valid_samples / 160))].median(dim=1).values  # (F,)
        start, low, end, high = chunk.boxes[0].tolist()
        mean = level[:, int(start) : max(int(start) + 1, round(end))].mean(dim=1) - background
        inside = (torch.arange(len(mean)) >= int(low)) & (torch.arange(len(mean)) < max(high, int(low) + 1))
        rows.append(torch.where(inside, mean, torch.zeros(())))
    vectors: Vectors = torch.nn.functional.normalize(torch.stack(rows), dim=1).numpy()
    return vectors


def birdnet_vectors(calls: Sequence[Call], weights: Path) -> Vectors:
    """Return BirdNET's embedding of the three seconds around the middle of each call. → (N, 1024)"""
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
    embeddings = np.stack(rows)
    vectors: Vectors = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return vectors
