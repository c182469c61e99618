"""Do the nearest vectors tell who is calling? Boxes of public sources, each named by those of other recordings.

    python -m experiments.retrieval DATA --model pretrained FOLDER --model detector FOLDER --birdnet FILE

Vectors are the mean of an encoder's map under the box, as `mast embed` makes them, of trained encoders and of one with
random weights; the mean log-mel of the box; and BirdNET's embedding of the three seconds around it. Each as it is (raw),
less the mean over all (centred), half whitened as `mast embed` does it, and whitened. Beside that, calls are laid over
others at the same level, and the mean under the box stands against the mean over the whole chunk.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import write_result

from experiments.known_calls import (
    Heard,
    Vectors,
    birdnet_vectors,
    embedded,
    hear_calls,
    parser_of,
    read_calls,
    ways_of,
    whole_chunks,
)
from mast.embeddings.boxes import BoxEncoder, Cut
from mast.embeddings.whitening import SHRINK, STRENGTH, measure
from mast.evaluation.retrieval import Named, retrieval
from mast.models.loading import load_encoder

MIXTURES, VOICES = 200, (1, 2)
"""Calls that are laid over others, and over how many."""

LOUDEST = 0.9 * 32767


def main() -> None:
    """Measure, and write the figures."""
    parser = parser_of(__doc__, Path("experiments/results/retrieval.json"))
    parser.add_argument("--picture", type=Path, help="draw the figures")
    options = parser.parse_args()
    figures = measured(options.data, dict(options.model), options.birdnet, options.most)
    write_result(options.out, figures, ("torch", "timm", "numpy", "ai-edge-litert"))
    if options.picture:
        draw(figures, options.picture)


def measured(data: Path, models: Mapping[str, str], birdnet: Path | None, most: int) -> dict[str, Any]:
    """All figures."""
    started_s = time.monotonic()
    encoder, ways = ways_of(models)
    heard = hear_calls(read_calls(data, most), encoder)
    vectors = {name: embedded(heard, hear) for name, hear in ways.items()}
    if birdnet:
        vectors["BirdNET"] = birdnet_vectors([item.call for item in heard], birdnet)
    figures = {
        name: {how: figure(heard, heard, turn(own), turn(own)) for how, turn in TURNS.items()}
        for name, own in vectors.items()
    }
    for name, own in figures.items():
        print(name, {how: item["top_1"] for how, item in own.items()}, flush=True)
    return {
        "calls": len(heard),
        "labels": dict(Counter(item.call.label for item in heard).most_common()),
        "recordings": len({item.call.source for item in heard}),
        "shrink": SHRINK,
        "strength": STRENGTH,
        "vectors": figures,
        "mixtures": mixtures(heard, BoxEncoder(load_encoder(next(iter(models.values()))), "last", "cpu")),
        "models": list(models),
        "seconds": round(time.monotonic() - started_s),
    }


def figure(asked: Sequence[Heard], known: Sequence[Heard], theirs: Vectors, ours: Vectors) -> dict[str, Any]:
    """Top-1, Top-5 and mean rank with intervals over recordings."""
    return retrieval(named(asked, theirs), named(known, ours), np.random.default_rng(0)).as_json()


def named(heard: Sequence[Heard], vectors: Vectors) -> Named:
    """Calls with their vectors."""
    return Named(
        vectors,
        np.array([item.call.label for item in heard]),
        np.array([item.call.source for item in heard]),
    )


def unit(vectors: Vectors) -> Vectors:
    """Of unit length."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    made: Vectors = vectors / np.maximum(lengths, 1e-12)
    return made


TURNS: dict[str, Callable[[Vectors], Vectors]] = {
    "raw": unit,
    "centred": lambda vectors: unit(vectors - vectors.mean(axis=0)),
    "half whitened": lambda vectors: measure(vectors)(vectors).astype(np.float32),
    "whitened": lambda vectors: measure(vectors, strength=1.0)(vectors).astype(np.float32),
}
"""What is made of vectors before they are compared; half whitened is what `mast embed` writes."""


def mixtures(heard: Sequence[Heard], encoder: BoxEncoder) -> dict[str, Any]:
    """Calls under others: named by the mean under their box, and by the mean over the chunk.

    Those others are of recordings that are kept for it, so that none of theirs is there to be found.
    """
    ways = {"box": lambda cuts: encoder(cuts).astype(np.float32), "chunk": whole_chunks(encoder)}
    rng = np.random.default_rng(0)
    sources = sorted({item.call.source for item in heard})
    kept = {
        source for source, lot in zip(sources, rng.permutation(len(sources)), strict=True) if lot % 4 == 0
    }
    known = [item for item in heard if item.call.source not in kept]
    others = [item for item in heard if item.call.source in kept]
    pairs = Counter(label for label, _ in {(item.call.label, item.call.source) for item in known})
    able = [item for item in known if pairs[item.call.label] > 1]
    chosen = [able[row] for row in np.sort(rng.permutation(len(able))[:MIXTURES])]
    clean = {name: embedded(known, hear) for name, hear in ways.items()}
    figures: dict[str, Any] = {}
    for voices in (0, *VOICES):
        mixed = [_mixed(item, others, voices, rng) for item in chosen]
        figures[str(1 + voices)] = {}
        for name, hear in ways.items():
            white = measure(clean[name])
            asked, there = (white(own).astype(np.float32) for own in (embedded(mixed, hear), clean[name]))
            figures[str(1 + voices)][name] = figure(mixed, known, asked, there)
        print(1 + voices, {name: own["top_1"] for name, own in figures[str(1 + voices)].items()}, flush=True)
    return figures


def _mixed(item: Heard, others: Sequence[Heard], voices: int, rng: np.random.Generator) -> Heard:
    """A call with others of other labels over it, at the same level, their middles where its own is."""
    sound = item.cut.sound.astype(np.float32)
    level, middle = _level(item.cut), _middle(item.cut)
    able = [other.cut for other in others if other.call.label != item.call.label]
    for row in rng.integers(len(able), size=voices) if able else ():
        other = able[row]
        wave = np.roll(other.sound.astype(np.float32), middle - _middle(other))
        sound = sound + wave * (level / max(_level(other), 1.0))
    sound *= min(1.0, LOUDEST / max(float(np.abs(sound).max()), 1.0))
    return Heard(item.call, item.cut._replace(sound=sound.astype(np.int16)))


def _span(cut: Cut) -> slice:
    start, _, end, _ = (cut.boxes[0] * 160).tolist()
    return slice(int(start), max(int(end), int(start) + 160))


def _level(cut: Cut) -> float:
    """Root mean square of a chunk over the time of the box."""
    return float(np.sqrt((cut.sound[_span(cut)].astype(np.float64) ** 2).mean()))


def _middle(cut: Cut) -> int:
    span = _span(cut)
    return int(span.start + span.stop) // 2


def draw(figures: Mapping[str, Any], picture: Path) -> None:
    """Top-1 of every kind of vector, and of box against chunk where others call, too."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    page, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=(2.2, 1), layout="constrained")
    colours = {"raw": "#c3ccd6", "centred": "#8fa9c8", "half whitened": "#2f6db5", "whitened": "#e69f00"}
    names = list(figures["vectors"])
    for number, (how, colour) in enumerate(colours.items()):
        _bars(left, [figures["vectors"][name][how]["top_1"] for name in names], number, colour, how)
    left.set_yticks(np.arange(len(names)) + 0.3, names)
    left.invert_yaxis()
    left.set(xlim=(0, 1), xlabel="Top-1: the nearest call of another recording has the right name")
    left.legend(loc="upper right", frameon=False)
    for name, colour in (("box", "#2f6db5"), ("chunk", "#c8452d")):
        own = [figures["mixtures"][voices][name]["top_1"] for voices in figures["mixtures"]]
        value, low, high = np.array(own, dtype=float).T
        right.errorbar(
            range(1, 1 + len(own)), value, (value - low, high - value), color=colour, marker="o", capsize=3,
            label=f"mean under the {name}" if name == "box" else "mean over the chunk",
        )  # fmt: skip
    right.set(ylim=(0, 1), xlabel="calls at once, equally loud", ylabel="Top-1", xticks=(1, 2, 3))
    right.legend(loc="lower left", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    page.savefig(picture, dpi=130)


def _bars(axes: Any, values: list[list[float]], number: int, colour: str, label: str) -> None:
    value, low, high = np.array(values, dtype=float).T
    axes.barh(
        np.arange(len(values)) + 0.2 * number, value, 0.19, xerr=(value - low, high - value), color=colour,
        label=label, error_kw={"elinewidth": 0.8, "ecolor": "#444"},
    )  # fmt: skip


if __name__ == "__main__":
    main()
