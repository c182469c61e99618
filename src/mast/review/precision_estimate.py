"""Estimate the precision of a run from the audit, a random sample of its detections.

Other review queues select events on purpose, so only the random sample represents all detections. Verdicts from other
queues are reported separately.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mast.errors import ConfigError, StorageError
from mast.plotting.curves import Bar, plot_precision
from mast.review.event_table import category_codes, mask_by_id, run_events, threshold_of
from mast.review.queues.basic import SEED, STRATA, random_sample_order
from mast.review.read_verdicts import read_verdicts, verdicts_location
from mast.review.verdicts import Verdict, latest_verdicts
from mast.runs.results import DetectionResults, open_results
from mast.storage import atomic_write, exists, join, open_binary
from mast.types import Floats, Integers, Mask
from mast.version import __version__
from mast.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

RANDOM_SAMPLE = "random-sample"
"""Name of the queue of randomly sampled events (the audit)."""

PRECISION_FILE, FIGURE = "precision.json", "precision.png"
FIGURE_DPI = 150
TARGET = 0.9
LEVEL = 0.95
SAMPLES = 4000
"""Number of posterior samples: enough for two digits of the bounds."""

PRIOR = 0.5
"""Jeffreys prior: half a correct and half a wrong detection in each score bin."""

STEPS = 20
"""Thresholds are multiples of 1 / STEPS; the sample is too small for a finer grid."""

NO_SITE = "(no site)"


@dataclass(frozen=True, slots=True)
class ProportionEstimate:
    """Fraction of `events` that is `correct`, with its bounds, estimated from the number `audited`.

    NaN if none was audited.
    """

    events: int
    audited: int
    correct: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Audit:
    """Scores and score bins of the events of a run, and masks of the audited and correct ones, (N,) each.

    The sample of a score bin is its first events in random order, up to the last one that the queue listed. Events that
    another queue listed earlier are part of the sample, because the random order contains them, too. `uncertain` and
    `open` are the numbers of events in the sample that are unsure and that have no verdict.
    """

    score: Floats
    stratum: Integers
    audited: Mask
    correct: Mask
    uncertain: int = 0
    open: int = 0

    def proportion(self, among: Mask, seed: int = SEED) -> ProportionEstimate:
        """Estimate the fraction of correct events in a mask: bins weighted by their events, bounds from a beta posterior.

        Audited events are known; only the rest is sampled, so the bounds are exact if everything was audited. A bin
        without audited events counts as half correct, with bounds from the prior.
        """
        events, audited, correct = (
            np.bincount(self.stratum[mask], minlength=STRATA)
            for mask in (among, among & self.audited, among & self.audited & self.correct)
        )  # (STRATA,) each
        has_audit = audited > 0
        if not has_audit.any():
            return ProportionEstimate(int(events.sum()), 0, np.nan, np.nan, np.nan)
        mean = np.divide(correct, audited, out=np.full(STRATA, 0.5), where=has_audit) @ events / events.sum()
        rng = np.random.default_rng(seed)
        chance = rng.beta(correct + PRIOR, audited - correct + PRIOR, (SAMPLES, STRATA))
        posterior = (correct + rng.binomial(events - audited, chance)).sum(axis=1) / events.sum()
        low, high = np.quantile(posterior, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        value = float(
            np.clip(mean, low, high)
        )  # a large bin is hardly ever uniform, even if its audited events are
        return ProportionEstimate(int(events.sum()), int(audited.sum()), value, float(low), float(high))

    def threshold(self, target: float, from_score: float = 0.0) -> float | None:
        """Return the lowest score threshold whose precision has a lower bound >= `target`, or None."""
        for step in range(STEPS):
            score = max(from_score, step / STEPS)
            above = self.score >= score
            if (step + 1) / STEPS > from_score and self.proportion(above).low >= target:
                return score
        return None


def audit_sample(events: pa.Table, verdicts: Iterable[Verdict], seed: int = SEED) -> Audit:
    """Build the audit of a run from the latest verdicts of all users."""
    verdicts = list(verdicts)
    stratum, rank = random_sample_order(events, seed)
    listed = {item.event_id for item in verdicts if item.queue == RANDOM_SAMPLE and item.kind == "sound"}
    reached = np.zeros(STRATA, np.int64)
    is_sampled = mask_by_id(events, listed)
    np.maximum.at(reached, stratum[is_sampled], rank[is_sampled] + 1)
    in_sample = rank < reached[stratum]
    latest = latest_verdicts(verdicts).values()
    accepted, rejected, uncertain = (
        in_sample & mask_by_id(events, [item.event_id for item in latest if item.state == state])
        for state in ("accepted", "rejected", "unsure")
    )
    audited = accepted | rejected
    return Audit(
        score=events["score"].to_numpy(),
        stratum=stratum,
        audited=audited,
        correct=accepted,
        uncertain=int(uncertain.sum()),
        open=int((in_sample & ~audited & ~uncertain).sum()),
    )


@dataclass(frozen=True, slots=True)
class Precision:
    """Estimated precision of a run, the score threshold for a precision of `target`, and verdicts from other queues.

    `by_score` has a row for each bin with its lower edge, `by_site` a row for each audited site. `others` are
    (decided, accepted) by queue.
    """

    run: str
    model: str
    overall: ProportionEstimate
    by_score: tuple[tuple[float, ProportionEstimate], ...]
    by_site: tuple[tuple[str, ProportionEstimate], ...]
    others: Mapping[str, tuple[int, int]]
    uncertain: int
    open: int
    target: float
    threshold: float | None
    reached: ProportionEstimate | None

    def summary(self) -> str:
        """Return the estimate as text, to print below the table."""
        lines = [
            f"{self.overall.audited:,} of {counted(self.overall.events, 'event')} audited: "
            f"{format_proportion(self.overall)} correct"
        ]
        if self.uncertain:
            lines.append(f"{counted(self.uncertain, 'unsure event')} in the sample left out")
        if self.open:
            lines.append(
                f"{counted(self.open, 'open event')} in the sample counted like the others. Decide them, or, if the "
                "review had --min-score, use the same value here to leave them out"
            )
        if self.threshold is None or self.reached is None:
            lines.append(
                f"No score threshold reaches {self.target:.0%} precision. Audit more events, or use a lower --target."
            )
        else:
            kept = f"{counted(self.reached.events, 'event')} left, {format_proportion(self.reached)} correct"
            lines.append(f"For {self.target:.0%} precision: score >= {self.threshold:.2f}; {kept}")
        for name, (decided, accepted) in self.others.items():
            counts = f"{accepted:,} of {decided:,} accepted"
            lines.append(
                f"Queue {name}: {counts}. This is not a random sample, so it does not estimate precision"
            )
        return "\n".join(lines)


def format_proportion(proportion: ProportionEstimate) -> str:
    """Return a fraction with its bounds as text."""
    return (
        f"{proportion.correct:.0%} ({proportion.low:.0%} to {proportion.high:.0%})"
        if proportion.audited
        else "unknown fraction"
    )


def estimate_precision(
    results: DetectionResults, events: pa.Table, verdicts: Sequence[Verdict], target: float = TARGET
) -> Precision:
    """Estimate the precision of the events of a run from verdicts."""
    if not 0 < target < 1:
        raise ConfigError(f"--target {target:g}: must be between 0 and 1, such as 0.9.")
    audit = audit_sample(events, verdicts)
    site = category_codes(events["site"])
    threshold = audit.threshold(target, threshold_of(events)) if audit.audited.any() else None
    return Precision(
        run=results.fingerprint,
        model=results.model,
        overall=audit.proportion(np.ones(len(site), bool)),
        by_score=tuple(
            (number / STRATA, audit.proportion(audit.stratum == number))
            for number in np.unique(audit.stratum).tolist()
        ),
        by_site=tuple(
            sorted(
                (_site_name(events, site == code), audit.proportion(site == code))
                for code in np.unique(site[audit.audited])
            )
        ),
        others=_others(verdicts),
        uncertain=audit.uncertain,
        open=audit.open,
        target=target,
        threshold=threshold,
        reached=None if threshold is None else audit.proportion(audit.score >= threshold),
    )


def _site_name(events: pa.Table, mask: Mask) -> str:
    """Return the site of the first event of a mask."""
    return events["site"][int(mask.argmax())].as_py() or NO_SITE


def _others(verdicts: Sequence[Verdict]) -> dict[str, tuple[int, int]]:
    """Return the numbers of decided and accepted detections by queue, without the audit."""
    counts: dict[str, tuple[int, int]] = {}
    for item in latest_verdicts(verdicts).values():
        if item.kind == "sound" and item.score is not None and item.state in ("accepted", "rejected"):
            name = item.queue or "(no queue)"
            if name != RANDOM_SAMPLE:
                decided, accepted = counts.get(name, (0, 0))
                counts[name] = (decided + 1, accepted + (item.state == "accepted"))
    return counts


def measure_precision(
    events: str, target: float = TARGET, location: str | None = None, min_score: float | None = None
) -> Precision:
    """Estimate the precision of a run and write it to the run's folder, for `mast estimate-precision`.

    If the review had a `min_score`, use the same value here: its audit represents only the events above it.
    """
    results = open_results(events, min_score)
    source = verdicts_location(events, location)
    precision = estimate_precision(results, run_events(results, min_score), read_verdicts(source), target)
    if not precision.overall.audited:
        raise StorageError(
            f"{source}: nothing was audited yet. Review the audit (queue {RANDOM_SAMPLE}) in mast review."
        )
    record = {
        "mast_version": __version__,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdicts": source,
        "level": LEVEL,
        **asdict(precision),
    }
    with atomic_write(join(events, PRECISION_FILE)) as file:
        file.write(json.dumps(record, indent=1, ensure_ascii=False).encode())
    with atomic_write(join(events, FIGURE)) as file:
        bars = [
            Bar(low, low + 1 / STRATA, estimate.correct, estimate.low, estimate.high)
            for low, estimate in precision.by_score
            if estimate.audited
        ]
        plot_precision(bars, target, precision.threshold).savefig(file, format="png", dpi=FIGURE_DPI)
    return precision


def read_precision_threshold(events: str) -> float:
    """Return the score threshold that `mast estimate-precision` wrote; raise StorageError if it is of another run."""
    place = join(events, PRECISION_FILE)
    if not exists(place):
        raise StorageError(f"{place}: not found. Create it with mast estimate-precision {events}.")
    with open_binary(place) as file:
        record: dict[str, Any] = json.loads(file.read())
    if record["run"] != open_results(events).fingerprint:
        raise StorageError(f"{place} belongs to another run. Run mast estimate-precision {events} again.")
    if record["threshold"] is None:
        raise ConfigError(
            f"{place}: no score threshold reached {record['target']:.0%} precision. Audit more events and run "
            f"mast estimate-precision {events} again, or use a lower --target."
        )
    return float(record["threshold"])


def render(precision: Precision) -> Table:
    """Return a table of the precision by score and by site."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("Score", "Events", "Audited", "Correct", "95 % interval"):
        table.add_column(name, justify="left" if name == "Score" else "right")
    for low, proportion in precision.by_score:
        table.add_row(f"{low:.1f} to {low + 1 / STRATA:.1f}", *_cells(proportion))
    for site, proportion in precision.by_site if len(precision.by_site) > 1 else ():
        table.add_row(site, *_cells(proportion))
    return table


def _cells(proportion: ProportionEstimate) -> tuple[str, ...]:
    bounds = (
        (f"{proportion.correct:.0%}", f"{proportion.low:.0%} to {proportion.high:.0%}")
        if proportion.audited
        else ("–", "–")
    )
    return (f"{proportion.events:,}", f"{proportion.audited:,}", *bounds)
