"""A name for a sound by a vote of its nearest examples, or none where they are too far or too many-voiced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.errors import ConfigError
from mast.evaluation.retrieval import Named

NEIGHBOURS = 5
"""Examples that vote: few enough for a name with few examples, and more than the one that may be wrong."""

MAX_WRONG = 0.1
"""Share of wrong names among those given that is put up with where nothing else is said."""

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Votes(NamedTuple):
    """For each sound the number of the name with most votes and its confidence, and the nearest example. (B,) each

    Confidence is the sum of the cosines of those among the nearest that have the name, over how many were asked: 1 where
    all are the same sound, low where they disagree or are far.
    """

    name: Integers
    confidence: Floats
    nearest: Integers
    similarity: Floats


@dataclass(frozen=True, slots=True)
class Rule:
    """From which confidence on a name is given, and what that came to on the examples, each by those of other recordings.

    `named` is the share of examples that got a name, and `wrong` the share of these names that was wrong.
    """

    neighbours: int
    max_wrong: float
    threshold: float
    named: float
    wrong: float
    examples: int
    labels: tuple[str, ...]

    def summary(self) -> str:
        """The account for a person to read."""
        if not np.isfinite(self.threshold):
            return (
                f"No name can be given with at most {self.max_wrong:.0%} of them wrong: examples of other recordings do "
                "not tell these names apart. Add examples, or allow more with --max-wrong."
            )
        return (
            f"A name is given from a confidence of {self.threshold:.3f} on: of the examples themselves, each named by "
            f"those of other recordings, {self.named:.0%} got a name, and {self.wrong:.1%} of these were wrong"
        )


def vote(near: Floats, number: Integers, names: int, neighbours: int = NEIGHBOURS) -> Votes:
    """Names of sounds by their cosines to examples, which have these numbers of names. (B, E), (E,)"""
    count = min(neighbours, near.shape[1])
    top = np.argpartition(-near, count - 1, axis=1)[:, :count]  # (B, k)
    weight = np.maximum(np.take_along_axis(near, top, axis=1), 0)
    votes = np.zeros((len(near), names), np.float32)
    np.add.at(votes, (np.arange(len(near))[:, None], number[top]), weight)
    winner = votes.argmax(axis=1)
    nearest = near.argmax(axis=1)
    rows = np.arange(len(near))
    return Votes(winner, votes[rows, winner] / neighbours, nearest, near[rows, nearest])


def calibrate(known: Named, neighbours: int = NEIGHBOURS, max_wrong: float = MAX_WRONG) -> Rule:
    """The lowest confidence from which on at most so large a share of names is wrong, for examples by other recordings'.

    An example whose name no other recording has is wrong whatever it is called: so is a sound that nobody has named.
    """
    if neighbours < 1:
        raise ConfigError(f"--neighbours {neighbours}: give 1 or more.")
    if not 0 < max_wrong < 1:
        raise ConfigError(f"--max-wrong {max_wrong:g}: give a share between 0 and 1, such as 0.1.")
    if len(np.unique(known.recordings)) < 2:
        raise ConfigError(
            "All examples are of one recording, and an animal sounds most like itself there: how often names are wrong "
            "elsewhere cannot be told. Give examples of at least two recordings."
        )
    labels, number = np.unique(known.labels, return_inverse=True)
    confidence, right = [], []
    for first in range(0, len(number), 1024):
        own = slice(first, first + 1024)
        near = known.vectors[own] @ known.vectors.T  # (B, E)
        near[known.recordings[own, None] == known.recordings[None]] = -np.inf
        votes = vote(near, number, len(labels), neighbours)
        confidence.append(votes.confidence)
        right.append(votes.name == number[own])
    threshold, named, wrong = _lowest(np.concatenate(confidence), np.concatenate(right), max_wrong)
    return Rule(neighbours, max_wrong, threshold, named, wrong, len(number), tuple(labels.tolist()))


def _lowest(confidence: Floats, right: NDArray[np.bool_], max_wrong: float) -> tuple[float, float, float]:
    """Threshold, share that reaches it, and share of these that is wrong; infinite where none is good enough."""
    order = np.argsort(-confidence, kind="stable")
    ranked, wrong = confidence[order], np.cumsum(~right[order])
    share = wrong / np.arange(1, len(order) + 1)
    is_last = np.append(ranked[1:] != ranked[:-1], True)  # equal ones reach a threshold together
    good = np.flatnonzero(is_last & (share <= max_wrong) & (ranked > 0))
    if not len(good):
        return np.inf, 0.0, 0.0
    last = good[-1]
    return float(ranked[last]), float((last + 1) / len(order)), float(share[last])
