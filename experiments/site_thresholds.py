"""A threshold for each site, found without labels: is it worth anything?

    python -m experiments.site_thresholds shift/small/cells/*/0/evaluation

writes experiments/results/site_thresholds.json. The folders are evaluations of detectors on the shift benchmark. At its
other sites, F1 is taken with boxes chosen in several ways: from the one score of in-domain validation; so many a minute
as in-domain; from the valley between the two heaps that a site's scores make (Otsu's, on logits). Beside them stands what
hindsight could have: the best score for all sites, and the best for each.
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

from mast.evaluation.matching import Floats, Mask
from mast.evaluation.metrics import Ranking, best_threshold
from mast.evaluation.results import CHUNKS, PREDICTIONS, TRUTHS

RESULTS = Path(__file__).parent / "results"
IN_DOMAIN, SHIFTED = "test", "site"
VALLEYS = 200
"""Places at which a valley is sought."""


@dataclass(frozen=True, slots=True)
class Site:
    """What was found at a site: scores and whether each is right (N,), how many truths there were, in how many chunks."""

    score: Floats
    is_right: Mask
    truths: int
    chunks: int

    def best(self) -> float:
        """The score that would have had the highest F1."""
        unit = np.zeros(len(self.score), np.int64)
        return best_threshold(
            Ranking.of(self.score, self.is_right.astype(float), unit, np.zeros(self.truths, np.int64), 1)
        )


def main() -> None:
    """Choose boxes in every way for every detector, and write F1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluations", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "site_thresholds.json")
    options = parser.parse_args()
    detectors = {}
    for folder in options.evaluations:
        threshold = json.loads((folder / "results.json").read_text("utf-8"))["threshold"]
        found = f1_by_way(sites_of(folder, IN_DOMAIN), sites_of(folder, SHIFTED), threshold)
        detectors["/".join(folder.parts[-3:-1])] = {way: round(value, 4) for way, value in found.items()}
    print(json.dumps(detectors, indent=1))
    write_result(options.out, {"detectors": detectors}, ("numpy",))


def sites_of(folder: Path, name: str) -> dict[str, Site]:
    """What was found at each site of a test set."""
    tables = {
        table: pq.read_table(folder / table, filters=pc.field("set") == name)
        for table in (CHUNKS, PREDICTIONS, TRUTHS)
    }
    chunks = tables[CHUNKS].to_pydict()
    site_of = dict(zip(chunks["recording_id"], chunks["site"], strict=True))
    where = {
        table: np.array([site_of[item] for item in own["recording_id"].to_pylist()])
        for table, own in tables.items()
    }
    score, overlap = (tables[PREDICTIONS][column].to_numpy() for column in ("score", "overlap"))
    return {
        site: Site(
            score[where[PREDICTIONS] == site],
            overlap[where[PREDICTIONS] == site] > 0,
            int((where[TRUTHS] == site).sum()),
            int((where[CHUNKS] == site).sum()),
        )
        for site in sorted(set(site_of.values()))
    }


def f1_by_way(own: Mapping[str, Site], sites: Mapping[str, Site], threshold: float) -> dict[str, float]:
    """F1 over all sites together, with each way to choose a score for every one of them."""
    rate = sum((site.score >= threshold).sum() for site in own.values()) / sum(
        site.chunks for site in own.values()
    )
    whole = together(sites)
    chosen = {
        "validation": [threshold for _ in sites],
        "equal rate": [nth_score(site.score, round(rate * site.chunks)) for site in sites.values()],
        "valley": [valley(site.score) for site in sites.values()],
        "best for all": [whole.best() for _ in sites],
        "best for each": [site.best() for site in sites.values()],
    }
    return {way: f1_at(sites, scores) for way, scores in chosen.items()}


def together(sites: Mapping[str, Site]) -> Site:
    """All sites as one."""
    items = [*sites.values()]
    return Site(
        np.concatenate([site.score for site in items]),
        np.concatenate([site.is_right for site in items]),
        sum(site.truths for site in items),
        sum(site.chunks for site in items),
    )


def f1_at(sites: Mapping[str, Site], scores: list[float]) -> float:
    """F1 over all sites, each held to its own score."""
    pairs = [*zip(sites.values(), scores, strict=True)]
    told = sum(int((site.score >= score).sum()) for site, score in pairs)
    right = sum(int(site.is_right[site.score >= score].sum()) for site, score in pairs)
    return 2 * right / max(1, told + sum(site.truths for site in sites.values()))


def nth_score(score: Floats, count: int) -> float:
    """The score from which so many are told, or as many as there are."""
    return float(np.sort(score)[::-1][min(count, len(score)) - 1]) if count and len(score) else np.inf


def valley(score: Floats) -> float:
    """The score that parts all into two heaps as far apart as can be (Otsu), on logits."""
    if len(np.unique(score)) < 2:
        return float(score.min(initial=1.0))
    logit = np.sort(np.log(score / (1 - score)))
    places = np.linspace(logit[0], logit[-1], VALLEYS + 2)[1:-1]
    below = np.searchsorted(logit, places)
    sums = np.append(0.0, np.cumsum(logit))
    low = sums[below] / np.maximum(below, 1)
    high = (sums[-1] - sums[below]) / np.maximum(len(logit) - below, 1)
    apart = below * (len(logit) - below) * (high - low) ** 2
    return float(1 / (1 + np.exp(-places[apart.argmax()])))


if __name__ == "__main__":
    main()
