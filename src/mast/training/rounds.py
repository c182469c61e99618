"""Rounds of self-training: their metrics, the criteria for a rollback, and the report."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mast.config import RollbackCriteria
from mast.plotting.html import figure_data_uri, render_page
from mast.plotting.rounds import plot_by_round
from mast.storage import atomic_write

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """Metrics of a model on validation and its detections in the pool, at the threshold it was saved with.

    `rate_per_hour` is the number of detections per hour at each site, `hours` the duration that was processed.
    """

    validation: dict[str, float]
    rate_per_hour: dict[str, float]
    hours: dict[str, float] = field(default_factory=dict)

    def boxes(self, hours: dict[str, float]) -> float:
        """Return the expected number of detections in the given hours of each site."""
        return sum(self.rate_per_hour.get(site, 0.0) * duration for site, duration in hours.items())


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its pseudo-labels, the metrics before and after, and the reason of a rollback, if any."""

    number: int
    teacher: str
    pseudo_labels: dict[str, Any]
    before: RoundMetrics
    after: RoundMetrics
    rollback_reason: str | None

    def describe(self) -> str:
        """Return a one-line summary."""
        f1 = [item.validation.get("f1", math.nan) for item in (self.before, self.after)]
        outcome = f"rolled back: {self.rollback_reason}" if self.rollback_reason else "kept"
        return (
            f"Round {self.number}: {self.pseudo_labels['boxes']:,} pseudo-labels, F1 on validation {f1[1]:.3f} "
            f"(first teacher {f1[0]:.3f}); {outcome}."
        )


ALL_SITES = "all sites together"


def rollback_reason(before: RoundMetrics, after: RoundMetrics, criteria: RollbackCriteria) -> str | None:
    """Return the reason for rolling a round back, None to keep it: lower F1, or far more or far fewer detections.

    The increase is tested at each site, and at all sites together because the audio of one site may be too short for a
    test. A decrease at one site can be a decrease of false positives, so it is accepted unless no detections are left; at
    all sites together, the largest decrease is the same factor as the largest increase.
    """
    drop = before.validation.get("f1", 0.0) - after.validation.get("f1", 0.0)
    if drop > criteria.max_f1_drop:
        return f"F1 on validation fell by {drop:.2f}, more than selftrain.rollback.max_f1_drop ({criteria.max_f1_drop:g})"
    sites = {site or "the unnamed site": {site: hours} for site, hours in after.hours.items()}
    for site, hours in {**sites, ALL_SITES: after.hours}.items():
        count, expected, total = after.boxes(hours), before.boxes(hours), sum(hours.values())
        rises = count > criteria.max_detection_rate_ratio * max(expected, criteria.min_expected_detections)
        falls = expected > criteria.max_detection_rate_ratio * max(count, criteria.min_expected_detections)
        if rises or (falls and (not count or site == ALL_SITES)):
            return (
                f"at {site} it has {count / total:,.0f} detections per hour, the first teacher {expected / total:,.0f} "
                f"(selftrain.rollback.max_detection_rate_ratio {criteria.max_detection_rate_ratio:g})"
            )
    return None


def write_round(finished_round: Round, path: Path) -> None:
    """Write a finished round; the existence of the file marks the round as finished."""
    with atomic_write(str(path)) as file:
        file.write(json.dumps(asdict(finished_round), indent=2, ensure_ascii=False).encode())


def read_round(path: Path) -> Round:
    """Read a finished round."""
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    before, after = (RoundMetrics(**values.pop(name)) for name in ("before", "after"))
    return Round(**values, before=before, after=after)


def write_rounds(rounds: Sequence[Round], location: str) -> None:
    """Write the report of all rounds so far: validation metrics, detections per hour at each site, and rollbacks."""
    metrics = [rounds[0].before, *(item.after for item in rounds)]
    validation = {name: [item.validation.get(name, math.nan) for item in metrics] for name in METRIC_LABELS}
    sites = {
        site: [item.rate_per_hour.get(site, 0.0) for item in metrics] for site in metrics[0].rate_per_hour
    }
    values = {
        "rounds": rounds,
        "nan": math.nan,
        "validation": figure_data_uri(
            plot_by_round({METRIC_LABELS[name]: row for name, row in validation.items()}, "Validation")
        ),
        "rates": figure_data_uri(plot_by_round(sites, "Detections per hour", is_fraction=False)),
    }
    with atomic_write(location) as file:
        file.write(render_page("rounds.html", values).encode())


METRIC_LABELS = {"f1": "F1", "precision": "precision", "recall": "recall", "average_precision": "AP"}
