"""Label events by a vote of the nearest reference events; no label where these are too far or disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.errors import ConfigError
from mast.evaluation.retrieval_metrics import LabelledVectors
from mast.types import Floats32, Integers

NEIGHBOURS = 5
"""Default number of references that vote: small enough for a label with few references, and robust to one wrong one."""

MAX_ERROR_RATE = 0.1
"""Default maximum fraction of assigned labels that are wrong."""


class Votes(NamedTuple):
    """Index of the winning label, its confidence, index of the nearest reference and its cosine. (B,) each

    Confidence is the sum of the cosines of the nearest references with the winning label, divided by the number of
    voters: 1 if all are the same sound, low if they disagree or are far.
    """

    label: Integers
    confidence: Floats32
    nearest: Integers
    similarity: Floats32


@dataclass(frozen=True, slots=True)
class LabellingRule:
    """Confidence threshold for assigning a label, with its leave-one-recording-out error on the reference events.

    `labelled` is the fraction of references that got a label, and `error_rate` the fraction of these labels that was
    wrong. `examples` is the number of references.
    """

    neighbours: int
    max_error_rate: float
    threshold: float
    labelled: float
    error_rate: float
    examples: int
    labels: tuple[str, ...]

    def summary(self) -> str:
        """Return a readable summary."""
        if not np.isfinite(self.threshold):
            return (
                f"No confidence threshold keeps the error rate at or below {self.max_error_rate:.0%}, so no event gets a "
                "label: the examples of different recordings do not separate these labels. Add examples, or increase "
                "--max-error-rate."
            )
        return (
            f"Confidence threshold {self.threshold:.3f}: when each example is labelled by those of other recordings, "
            f"{self.labelled:.0%} get a label, and {self.error_rate:.1%} of these labels are wrong"
        )


def knn_vote(
    similarity: Floats32, label_index: Integers, num_labels: int, neighbours: int = NEIGHBOURS
) -> Votes:
    """Return the vote of the nearest of E references for B events.

    `similarity` (B, E) holds cosines, and `label_index` (E,) the label of each reference, below `num_labels`.
    """
    count = min(neighbours, similarity.shape[1])
    top = np.argpartition(-similarity, count - 1, axis=1)[:, :count]  # (B, k)
    weight = np.maximum(np.take_along_axis(similarity, top, axis=1), 0)
    votes = np.zeros((len(similarity), num_labels), np.float32)
    np.add.at(votes, (np.arange(len(similarity))[:, None], label_index[top]), weight)
    winner = votes.argmax(axis=1)
    nearest = similarity.argmax(axis=1)
    rows = np.arange(len(similarity))
    return Votes(winner, votes[rows, winner] / neighbours, nearest, similarity[rows, nearest])


def choose_threshold(
    references: LabelledVectors, neighbours: int = NEIGHBOURS, max_error_rate: float = MAX_ERROR_RATE
) -> LabellingRule:
    """Choose the lowest confidence threshold at which at most `max_error_rate` of the assigned labels are wrong.

    Each reference is labelled by those of other recordings. If no other recording has its label, any label counts as
    wrong, as it would for a species without references.
    """
    if neighbours < 1:
        raise ConfigError(f"--neighbours {neighbours}: specify 1 or more.")
    if not 0 < max_error_rate < 1:
        raise ConfigError(
            f"--max-error-rate {max_error_rate:g}: specify a fraction between 0 and 1, such as 0.1."
        )
    if len(np.unique(references.recordings)) < 2:
        raise ConfigError(
            "All labelled examples are from one recording, where an animal is most similar to itself, so the error rate "
            "on other recordings is unknown. Provide examples from at least two recordings."
        )
    labels, label_index = np.unique(references.labels, return_inverse=True)
    confidence, correct = [], []
    for first in range(0, len(label_index), 1024):
        block = slice(first, first + 1024)
        similarity = references.vectors[block] @ references.vectors.T  # (B, E)
        similarity[references.recordings[block, None] == references.recordings[None]] = -np.inf
        votes = knn_vote(similarity, label_index, len(labels), neighbours)
        confidence.append(votes.confidence)
        correct.append(votes.label == label_index[block])
    threshold, labelled, error_rate = _lowest_threshold(
        np.concatenate(confidence), np.concatenate(correct), max_error_rate
    )
    return LabellingRule(
        neighbours, max_error_rate, threshold, labelled, error_rate, len(label_index), tuple(labels.tolist())
    )


def _lowest_threshold(
    confidence: Floats32, correct: NDArray[np.bool_], max_error_rate: float
) -> tuple[float, float, float]:
    """Return the threshold, the fraction at or above it, and the error rate of these; infinity if none is low enough."""
    order = np.argsort(-confidence, kind="stable")
    ranked, errors = confidence[order], np.cumsum(~correct[order])
    error_rate = errors / np.arange(1, len(order) + 1)
    is_last = np.append(ranked[1:] != ranked[:-1], True)  # equal confidences reach a threshold together
    acceptable = np.flatnonzero(is_last & (error_rate <= max_error_rate) & (ranked > 0))
    if not len(acceptable):
        return np.inf, 0.0, 0.0
    last = acceptable[-1]
    return float(ranked[last]), float((last + 1) / len(order)), float(error_rate[last])
