"""Would a sound that nobody has named be noticed? Each label of public sources is held out in turn.

    python -m experiments.novelty DATA --model pretrained FOLDER --birdnet FILE

Half the recordings of every other label are the examples, or the only one; the rest, and a few calls of the held-out
label, are an archive without names. It is put in order by novelty, as `mast discover` does it: how unlike a sound is to
the nearest example. Told is which share of the held-out calls is among the first 1 %, 5 % and 10 % of the archive; by
chance it would be as much, and no more than there is `room` for. Vectors are those of experiments.retrieval.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import write_result
from numpy.typing import NDArray

from experiments.known_calls import birdnet_vectors, embedded, hear_calls, parser_of, read_calls, ways_of
from experiments.retrieval import TURNS, named, unit
from mast.embeddings.discovery import novelty
from mast.evaluation.retrieval import Named

SHARES = (0.01, 0.05, 0.1)
LEAST = 10
"""Calls that a label needs to be held out."""

RARE, SPLITS = 4, 20
"""Calls of a label that are in the archive, and draws of these and of the examples; figures are means over draws."""


def main() -> None:
    """Measure, and write the figures."""
    options = parser_of(__doc__, Path("experiments/results/novelty.json")).parse_args()
    models = dict(options.model)
    write_result(
        options.out,
        measured(options.data, models, options.birdnet, options.most),
        ("torch", "timm", "numpy", "ai-edge-litert"),
    )


def measured(data: Path, models: Mapping[str, str], birdnet: Path | None, most: int) -> dict[str, Any]:
    """All figures."""
    started_s = time.monotonic()
    encoder, ways = ways_of(models)
    heard = hear_calls(read_calls(data, most), encoder)
    vectors = {name: TURNS["half whitened"](embedded(heard, hear)) for name, hear in ways.items()}
    vectors["log-mel"] = unit(embedded(heard, ways["log-mel"]))
    if birdnet:
        vectors["BirdNET"] = TURNS["centred"](birdnet_vectors([item.call for item in heard], birdnet))
    figures = {name: held_out(named(heard, own)) for name, own in vectors.items()}
    for name, own in figures.items():
        print(name, own["mean"], flush=True)
    return {
        "calls": len(heard),
        "shares": SHARES,
        "vectors": figures,
        "models": list(models),
        "seconds": round(time.monotonic() - started_s),
    }


def held_out(calls: Named) -> dict[str, Any]:
    """Recall of each label's calls in the first shares of the archive, their mean, and the most that has room there."""
    labels, counts = np.unique(calls.labels, return_counts=True)
    rows = {
        str(label): np.mean([recall(calls, str(label), seed) for seed in range(SPLITS)], axis=0)
        for label, count in zip(labels, counts, strict=True)
        if count >= LEAST
    }
    means = np.mean(list(rows.values()), axis=0) if rows else np.zeros((2, len(SHARES)))
    return {
        "mean": _told(means[0]),
        "room": _told(means[1]),
        "labels": {label: _told(own[0]) for label, own in rows.items()},
    }


def recall(calls: Named, label: str, seed: int) -> Any:
    """Share of a label's calls among the first shares of the archive, and the most that could be. → (2, shares)"""
    is_asked = np.zeros(len(calls.labels), bool)
    is_asked[np.random.default_rng(seed).permutation(np.flatnonzero(calls.labels == label))[:RARE]] = True
    is_known = (calls.labels != label) & examples(calls, seed)
    archive = is_asked | ((calls.labels != label) & ~is_known)
    order = np.argsort(-novelty(calls.vectors[archive], calls.vectors[is_known])[0], kind="stable")
    is_new = is_asked[archive][order]
    places = [max(1, round(share * len(order))) for share in SHARES]
    found = [is_new[:count].sum() / is_new.sum() for count in places]
    return np.array([found, [min(1.0, count / is_new.sum()) for count in places]])


def examples(calls: Named, seed: int) -> NDArray[np.bool_]:
    """Calls of every other recording of each label, beginning with the first of a random order. → (N,)"""
    rng, chosen = np.random.default_rng(seed), np.zeros(len(calls.labels), bool)
    for label in np.unique(calls.labels):
        own = calls.labels == label
        recordings = rng.permutation(np.unique(calls.recordings[own]))
        chosen |= own & np.isin(calls.recordings, recordings[::2])
    return chosen


def _told(values: Any) -> dict[str, float]:
    return {f"{share:.0%}": round(float(value), 4) for share, value in zip(SHARES, values, strict=True)}


if __name__ == "__main__":
    main()
