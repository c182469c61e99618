"""Measure the gain of thresholds per site that are chosen without annotations.

    python -m experiments.site_thresholds shift/small/cells/*/0/evaluation

Writes experiments/results/site_thresholds.json. The folders are evaluations of detectors on the shift benchmark. At its
other sites, F1 is computed with thresholds of several methods: the threshold of in-domain validation; the score with the
same detection rate as in-domain; the valley between the two modes of a site's scores (Otsu's threshold, on logits). For
comparison, the oracle thresholds: the best score for all sites, and the best for each site.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.results import write_result

from mast.evaluation.metrics import RankedPredictions, max_f1_threshold
from mast.evaluation.results import CHUNKS, GROUND_TRUTH, PREDICTIONS
from mast.types import Floats, Mask

RESULTS = Path(__file__).parent / "results"
IN_DOMAIN, SHIFTED = "test", "site"
THRESHOLDS = 200
"""Number of candidate thresholds of Otsu's method."""


@dataclass(frozen=True, slots=True)
class Site:
    """Predictions at a site: scores and correctness (N,), with the number of annotations and of chunks."""

    score: Floats
    is_right: Mask
    annotations: int
    chunks: int

    def best(self) -> float:
        """Return the score threshold with the highest F1."""
        unit = np.zeros(len(self.score), np.int64)
        return max_f1_threshold(
            RankedPredictions.of(
                self.score, self.is_right.astype(float), unit, np.zeros(self.annotations, np.int64), 1
            )
        )


def main() -> None:
    """Compute F1 of every detector with the thresholds of every method, and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluations", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "site_thresholds.json")
    options = parser.parse_args()
    detectors = {}
    for folder in options.evaluations:
        threshold = json.loads((folder / "results.json").read_text("utf-8"))["threshold"]
        values = f1_by_method(sites_of(folder, IN_DOMAIN), sites_of(folder, SHIFTED), threshold)
        detectors["/".join(folder.parts[-3:-1])] = {
            method: round(value, 4) for method, value in values.items()
        }
    print(json.dumps(detectors, indent=1))
    write_result(options.out, {"detectors": detectors}, ("numpy",))


def sites_of(folder: Path, name: str) -> dict[str, Site]:
    """Return the predictions at each site of a test set."""
    tables = {
        table: pq.read_table(folder / table, filters=pc.field("set") == name)
        for table in (CHUNKS, PREDICTIONS, GROUND_TRUTH)
    }
    chunks = tables[CHUNKS].to_pydict()
    site_of = dict(zip(chunks["recording_id"], chunks["site"], strict=True))
    sites = {
        table: np.array([site_of[recording] for recording in rows["recording_id"].to_pylist()])
        for table, rows in tables.items()
    }
    score, overlap = (tables[PREDICTIONS][column].to_numpy() for column in ("score", "overlap"))
    return {
        site: Site(
            score[sites[PREDICTIONS] == site],
            overlap[sites[PREDICTIONS] == site] > 0,
            int((sites[GROUND_TRUTH] == site).sum()),
            int((sites[CHUNKS] == site).sum()),
        )
        for site in sorted(set(site_of.values()))
    }


def f1_by_method(
    in_domain: Mapping[str, Site], sites: Mapping[str, Site], threshold: float
) -> dict[str, float]:
    """Return F1 over all sites together, with the thresholds of each method."""
    rate = sum((site.score >= threshold).sum() for site in in_domain.values()) / sum(
        site.chunks for site in in_domain.values()
    )
    pooled = pool_sites(sites)
    thresholds = {
        "validation": [threshold for _ in sites],
        "equal rate": [nth_score(site.score, round(rate * site.chunks)) for site in sites.values()],
        "valley": [valley(site.score) for site in sites.values()],
        "best for all": [pooled.best() for _ in sites],
        "best for each": [site.best() for site in sites.values()],
    }
    return {method: f1_at(sites, scores) for method, scores in thresholds.items()}


def pool_sites(sites: Mapping[str, Site]) -> Site:
    """Pool all sites into one."""
    parts = [*sites.values()]
    return Site(
        np.concatenate([site.score for site in parts]),
        np.concatenate([site.is_right for site in parts]),
        sum(site.annotations for site in parts),
        sum(site.chunks for site in parts),
    )


def f1_at(sites: Mapping[str, Site], scores: list[float]) -> float:
    """Return F1 over all sites, each with its own threshold."""
    pairs = [*zip(sites.values(), scores, strict=True)]
    detections = sum(int((site.score >= score).sum()) for site, score in pairs)
    correct = sum(int(site.is_right[site.score >= score].sum()) for site, score in pairs)
    return 2 * correct / max(1, detections + sum(site.annotations for site in sites.values()))


def nth_score(score: Floats, count: int) -> float:
    """Return the threshold with `count` detections, or with all detections if there are fewer."""
    return float(np.sort(score)[::-1][min(count, len(score)) - 1]) if count and len(score) else np.inf


def valley(score: Floats) -> float:
    """Return Otsu's threshold of the scores, computed on logits: the largest variance between the two classes."""
    if len(np.unique(score)) < 2:
        return float(score.min(initial=1.0))
    logit = np.sort(np.log(score / (1 - score)))
    candidates = np.linspace(logit[0], logit[-1], THRESHOLDS + 2)[1:-1]
    below = np.searchsorted(logit, candidates)
    sums = np.append(0.0, np.cumsum(logit))
    low = sums[below] / np.maximum(below, 1)
    high = (sums[-1] - sums[below]) / np.maximum(len(logit) - below, 1)
    variance = below * (len(logit) - below) * (high - low) ** 2
    return float(1 / (1 + np.exp(-candidates[variance.argmax()])))


if __name__ == "__main__":
    main()
