"""Label boxes of public sources by the nearest boxes of other recordings, for several kinds of vectors.

    python -m experiments.retrieval DATA --model pretrained FOLDER --model detector FOLDER --birdnet FILE

The vectors are the mean of an encoder's feature map under the box, as computed by `mast embed`, for trained encoders
and one with random weights; the mean log-mel of the box; and BirdNET's embedding of the three seconds around it. Each
kind is compared unchanged (raw), minus its mean (centred), half whitened as in `mast embed`, and whitened. In a second
experiment, other calls are mixed into the chunk of a call at the same level, and the mean under the box is compared
with the mean over the chunk.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import write_result

from experiments.labelled_calls import (
    ChunkedCall,
    Vectors,
    birdnet_vectors,
    chunk_calls,
    chunk_embedder,
    embed_calls,
    make_embedders,
    make_parser,
    read_calls,
)
from mast.embeddings.box_encoder import BoxEncoder, EncodedChunk
from mast.embeddings.whitening import SHRINK, STRENGTH, fit_whitening
from mast.evaluation.retrieval_metrics import LabelledVectors, retrieval_metrics
from mast.models.loading import load_encoder

MIXTURES, ADDED_CALLS = 200, (1, 2)
"""Number of calls in mixtures, and the numbers of other calls mixed into each."""

MAX_LEVEL = 0.9 * 32767


def main() -> None:
    """Compute the metrics and write them."""
    parser = make_parser(__doc__, Path("experiments/results/retrieval.json"))
    parser.add_argument("--picture", type=Path, help="file for a plot of the metrics")
    options = parser.parse_args()
    metrics = measure(options.data, dict(options.model), options.birdnet, options.max_per_label)
    write_result(options.out, metrics, ("torch", "timm", "numpy", "ai-edge-litert"))
    if options.picture:
        plot(metrics, options.picture)


def measure(
    data: Path, models: Mapping[str, str], birdnet: Path | None, max_per_label: int
) -> dict[str, Any]:
    """Compute all metrics."""
    started_s = time.monotonic()
    encoder, embedders = make_embedders(models)
    calls = chunk_calls(read_calls(data, max_per_label), encoder)
    vectors = {name: embed_calls(calls, embedder) for name, embedder in embedders.items()}
    if birdnet:
        vectors["BirdNET"] = birdnet_vectors([item.call for item in calls], birdnet)
    metrics = {
        name: {
            title: retrieval_values(calls, calls, transform(values), transform(values))
            for title, transform in TRANSFORMS.items()
        }
        for name, values in vectors.items()
    }
    for name, by_transform in metrics.items():
        print(name, {title: item["top_1"] for title, item in by_transform.items()}, flush=True)
    return {
        "calls": len(calls),
        "labels": dict(Counter(item.call.label for item in calls).most_common()),
        "recordings": len({item.call.source for item in calls}),
        "shrink": SHRINK,
        "strength": STRENGTH,
        "vectors": metrics,
        "mixtures": mixtures(calls, BoxEncoder(load_encoder(next(iter(models.values()))), "last", "cpu")),
        "models": list(models),
        "seconds": round(time.monotonic() - started_s),
    }


def retrieval_values(
    queries: Sequence[ChunkedCall],
    references: Sequence[ChunkedCall],
    query_vectors: Vectors,
    reference_vectors: Vectors,
) -> dict[str, Any]:
    """Return Top-1, Top-5 and mean rank with intervals over recordings."""
    return retrieval_metrics(
        labelled(queries, query_vectors), labelled(references, reference_vectors), np.random.default_rng(0)
    ).as_json()


def labelled(calls: Sequence[ChunkedCall], vectors: Vectors) -> LabelledVectors:
    """Combine calls with their vectors."""
    return LabelledVectors(
        vectors,
        np.array([item.call.label for item in calls]),
        np.array([item.call.source for item in calls]),
    )


def unit(vectors: Vectors) -> Vectors:
    """Scale vectors to unit length."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = vectors / np.maximum(lengths, 1e-12)
    return scaled


TRANSFORMS: dict[str, Callable[[Vectors], Vectors]] = {
    "raw": unit,
    "centred": lambda vectors: unit(vectors - vectors.mean(axis=0)),
    "half whitened": lambda vectors: fit_whitening(vectors)(vectors).astype(np.float32),
    "whitened": lambda vectors: fit_whitening(vectors, strength=1.0)(vectors).astype(np.float32),
}
"""Transforms of vectors before the comparison; `mast embed` writes half whitened vectors."""


def mixtures(calls: Sequence[ChunkedCall], encoder: BoxEncoder) -> dict[str, Any]:
    """Label calls in mixtures by the mean under their box, and by the mean over the chunk.

    A quarter of the recordings provides the other calls of the mixtures, and no references.
    """
    embedders = {"box": lambda chunks: encoder(chunks).astype(np.float32), "chunk": chunk_embedder(encoder)}
    rng = np.random.default_rng(0)
    sources = sorted({item.call.source for item in calls})
    held_out = {
        source for source, rank in zip(sources, rng.permutation(len(sources)), strict=True) if rank % 4 == 0
    }
    references = [item for item in calls if item.call.source not in held_out]
    others = [item for item in calls if item.call.source in held_out]
    sources_per_label = Counter(
        label for label, _ in {(item.call.label, item.call.source) for item in references}
    )
    candidates = [item for item in references if sources_per_label[item.call.label] > 1]
    chosen = [candidates[row] for row in np.sort(rng.permutation(len(candidates))[:MIXTURES])]
    reference_vectors = {name: embed_calls(references, embedder) for name, embedder in embedders.items()}
    metrics: dict[str, Any] = {}
    for added in (0, *ADDED_CALLS):
        mixed = [_mixed(item, others, added, rng) for item in chosen]
        values = metrics[str(1 + added)] = {}
        for name, embedder in embedders.items():
            whiten = fit_whitening(reference_vectors[name])
            query_white, reference_white = (
                whiten(vectors).astype(np.float32)
                for vectors in (embed_calls(mixed, embedder), reference_vectors[name])
            )
            values[name] = retrieval_values(mixed, references, query_white, reference_white)
        print(1 + added, {name: item["top_1"] for name, item in values.items()}, flush=True)
    return metrics


def _mixed(
    item: ChunkedCall, others: Sequence[ChunkedCall], added: int, rng: np.random.Generator
) -> ChunkedCall:
    """Mix random calls of other labels into the chunk of a call, at the same level and with the same middle."""
    samples = item.chunk.samples.astype(np.float32)
    level, middle = _level(item.chunk), _middle(item.chunk)
    candidates = [other.chunk for other in others if other.call.label != item.call.label]
    for row in rng.integers(len(candidates), size=added) if candidates else ():
        other = candidates[row]
        wave = np.roll(other.samples.astype(np.float32), middle - _middle(other))
        samples = samples + wave * (level / max(_level(other), 1.0))
    samples *= min(1.0, MAX_LEVEL / max(float(np.abs(samples).max()), 1.0))
    return ChunkedCall(item.call, item.chunk._replace(samples=samples.astype(np.int16)))


def _span(chunk: EncodedChunk) -> slice:
    start, _, end, _ = (chunk.boxes[0] * 160).tolist()
    return slice(int(start), max(int(end), int(start) + 160))


def _level(chunk: EncodedChunk) -> float:
    """Return the root mean square of a chunk over the time of the box."""
    return float(np.sqrt((chunk.samples[_span(chunk)].astype(np.float64) ** 2).mean()))


def _middle(chunk: EncodedChunk) -> int:
    span = _span(chunk)
    return int(span.start + span.stop) // 2


def plot(metrics: Mapping[str, Any], path: Path) -> None:
    """Plot Top-1 of every kind of vector, and of the box and the chunk in mixtures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=(2.2, 1), layout="constrained")
    colours = {"raw": "#c3ccd6", "centred": "#8fa9c8", "half whitened": "#2f6db5", "whitened": "#e69f00"}
    names = list(metrics["vectors"])
    for number, (title, colour) in enumerate(colours.items()):
        _bars(left, [metrics["vectors"][name][title]["top_1"] for name in names], number, colour, title)
    left.set_yticks(np.arange(len(names)) + 0.3, names)
    left.invert_yaxis()
    left.set(xlim=(0, 1), xlabel="Top-1: the nearest call of another recording has the right label")
    left.legend(loc="upper right", frameon=False)
    for name, colour in (("box", "#2f6db5"), ("chunk", "#c8452d")):
        top_1 = [metrics["mixtures"][count][name]["top_1"] for count in metrics["mixtures"]]
        value, low, high = np.array(top_1, dtype=float).T
        right.errorbar(
            range(1, 1 + len(top_1)), value, (value - low, high - value), color=colour, marker="o", capsize=3,
            label=f"mean under the {name}" if name == "box" else "mean over the chunk",
        )  # fmt: skip
    right.set(ylim=(0, 1), xlabel="simultaneous calls of equal level", ylabel="Top-1", xticks=(1, 2, 3))
    right.legend(loc="lower left", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def _bars(axes: Any, values: list[list[float]], number: int, colour: str, label: str) -> None:
    value, low, high = np.array(values, dtype=float).T
    axes.barh(
        np.arange(len(values)) + 0.2 * number, value, 0.19, xerr=(value - low, high - value), color=colour,
        label=label, error_kw={"elinewidth": 0.8, "ecolor": "#444"},
    )  # fmt: skip


if __name__ == "__main__":
    main()
