"""Measure how well novelty ranks unlabelled species: each label of public sources is held out in turn.

    python -m experiments.novelty DATA --model pretrained FOLDER --birdnet FILE

Half of the recordings of every other label (at least one) are the references. The rest, and a few calls of the held-out
label, are an unlabelled archive. The archive is ranked by novelty as in `mast cluster`: one minus the cosine to the
nearest reference. The result is the recall of the held-out calls among the first 1 %, 5 % and 10 % of the archive. Random
ranking gives these fractions, and a perfect ranking the `upper_bound`. The vectors are those of experiments.retrieval.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import write_result
from numpy.typing import NDArray

from experiments.labelled_calls import (
    birdnet_vectors,
    chunk_calls,
    embed_calls,
    make_embedders,
    make_parser,
    read_calls,
)
from experiments.retrieval import TRANSFORMS, labelled, unit
from mast.embeddings.clustering.cluster import novelty
from mast.evaluation.retrieval_metrics import LabelledVectors

FRACTIONS = (0.01, 0.05, 0.1)
MIN_CALLS = 10
"""Minimum number of calls of a label that is held out."""

HELD_OUT_CALLS, REPETITIONS = 4, 20
"""Number of held-out calls in the archive, and number of random draws of these and of the references to average over."""


def main() -> None:
    """Compute the metrics and write them."""
    options = make_parser(__doc__, Path("experiments/results/novelty.json")).parse_args()
    models = dict(options.model)
    write_result(
        options.out,
        measure(options.data, models, options.birdnet, options.max_per_label),
        ("torch", "timm", "numpy", "ai-edge-litert"),
    )


def measure(
    data: Path, models: Mapping[str, str], birdnet: Path | None, max_per_label: int
) -> dict[str, Any]:
    """Compute all metrics."""
    started_s = time.monotonic()
    encoder, embedders = make_embedders(models)
    calls = chunk_calls(read_calls(data, max_per_label), encoder)
    half_whitened = TRANSFORMS["half whitened"]
    vectors = {name: half_whitened(embed_calls(calls, embedder)) for name, embedder in embedders.items()}
    vectors["log-mel"] = unit(embed_calls(calls, embedders["log-mel"]))
    if birdnet:
        vectors["BirdNET"] = TRANSFORMS["centred"](birdnet_vectors([item.call for item in calls], birdnet))
    metrics = {name: held_out(labelled(calls, values)) for name, values in vectors.items()}
    for name, item in metrics.items():
        print(name, item["mean"], flush=True)
    return {
        "calls": len(calls),
        "fractions": FRACTIONS,
        "vectors": metrics,
        "models": list(models),
        "seconds": round(time.monotonic() - started_s),
    }


def held_out(calls: LabelledVectors) -> dict[str, Any]:
    """Return the recall of each label's calls in the first fractions of the archive, its mean, and the upper bound."""
    labels, counts = np.unique(calls.labels, return_counts=True)
    rows = {
        str(label): np.mean([recall(calls, str(label), seed) for seed in range(REPETITIONS)], axis=0)
        for label, count in zip(labels, counts, strict=True)
        if count >= MIN_CALLS
    }
    means = np.mean(list(rows.values()), axis=0) if rows else np.zeros((2, len(FRACTIONS)))
    return {
        "mean": _by_fraction(means[0]),
        "upper_bound": _by_fraction(means[1]),
        "labels": {label: _by_fraction(values[0]) for label, values in rows.items()},
    }


def recall(calls: LabelledVectors, label: str, seed: int) -> Any:
    """Return the recall of a label's calls in the first parts of the archive, and its upper bound. → (2, fractions)"""
    is_held_out = np.zeros(len(calls.labels), bool)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(calls.labels == label))
    is_held_out[rows[:HELD_OUT_CALLS]] = True
    is_reference = (calls.labels != label) & sample_references(calls, seed)
    archive = is_held_out | ((calls.labels != label) & ~is_reference)
    order = np.argsort(-novelty(calls.vectors[archive], calls.vectors[is_reference])[0], kind="stable")
    is_novel = is_held_out[archive][order]
    counts = [max(1, round(fraction * len(order))) for fraction in FRACTIONS]
    recalls = [is_novel[:count].sum() / is_novel.sum() for count in counts]
    return np.array([recalls, [min(1.0, count / is_novel.sum()) for count in counts]])


def sample_references(calls: LabelledVectors, seed: int) -> NDArray[np.bool_]:
    """Choose the calls of every second recording of each label, in random order from the first one. → (N,)"""
    rng, chosen = np.random.default_rng(seed), np.zeros(len(calls.labels), bool)
    for label in np.unique(calls.labels):
        has_label = calls.labels == label
        recordings = rng.permutation(np.unique(calls.recordings[has_label]))
        chosen |= has_label & np.isin(calls.recordings, recordings[::2])
    return chosen


def _by_fraction(values: Any) -> dict[str, float]:
    return {
        f"{fraction:.0%}": round(float(value), 4) for fraction, value in zip(FRACTIONS, values, strict=True)
    }


if __name__ == "__main__":
    main()
