"""How many of the sounds found are animals: told from the audit alone, with what the rest of the review cannot tell.

Which sounds a person decided about follows from what a queue asked for. Only those drawn by lot speak for all others:
the audit's. Verdicts of other queues say how these went, and are shown apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mast import __version__
from mast.detection.found import Found, open_found
from mast.errors import ConfigError, StorageError
from mast.pictures.curves import Bar, draw_precision
from mast.review.queues import SEED, STRATA, Integers, audit_order
from mast.review.reading import read_verdicts, verdicts_at
from mast.review.sounds import Floats, Mask, codes, named_among, sounds_of, threshold_of
from mast.review.verdicts import Verdict, holding
from mast.storage import exists, join, open_binary, written_whole

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

AUDIT = "audit"
"""Name of the queue whose asks are drawn by lot."""

CALIBRATION, PICTURE = "precision.json", "precision.png"
PICTURE_DPI = 150
ASKED = 0.9
LEVEL = 0.95
DRAWS = 4000
"""Of the posterior: enough for two digits of its bounds."""

PRIOR = 0.5
"""Jeffreys: as if half a right and half a wrong sound of every bin were known before."""

STEPS = 20
"""A threshold is a multiple of one in so many; more would only tell apart what the sample cannot."""

NO_SITE = "(no site)"


@dataclass(frozen=True, slots=True)
class Share:
    """Of `sounds`, of which `audited` were decided in the audit, the share that is right, and its bounds.

    NaN where none was audited.
    """

    sounds: int
    audited: int
    right: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Audit:
    """The sounds of a run, and which of them were audited. (N,) each

    The sample of a bin of scores is its first sounds by lot, as far as the queue has come; what another queue had
    asked for before is part of it, since the lot fell on it as well. `unsure` and `open` count those of the sample
    that nobody could tell, and that nobody has decided.
    """

    score: Floats
    stratum: Integers
    audited: Mask
    right: Mask
    unsure: int = 0
    open: int = 0

    def share(self, among: Mask, seed: int = SEED) -> Share:
        """How many of some sounds are right: bins are weighed by their sounds, bounds are those of a beta posterior.

        What was audited is known; only the rest is drawn, so that nothing is open where everything was looked at. A bin
        of which nothing was audited counts as its bounds take it: half of it is right, give or take all.
        """
        sounds, audited, right = (
            np.bincount(self.stratum[mask], minlength=STRATA)
            for mask in (among, among & self.audited, among & self.audited & self.right)
        )  # (STRATA,) each
        known = audited > 0
        if not known.any():
            return Share(int(sounds.sum()), 0, np.nan, np.nan, np.nan)
        mean = np.divide(right, audited, out=np.full(STRATA, 0.5), where=known) @ sounds / sounds.sum()
        rng = np.random.default_rng(seed)
        chance = rng.beta(right + PRIOR, audited - right + PRIOR, (DRAWS, STRATA))
        drawn = (right + rng.binomial(sounds - audited, chance)).sum(axis=1) / sounds.sum()
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        told = float(
            np.clip(mean, low, high)
        )  # of many sounds, hardly ever are all as the few that were audited
        return Share(int(sounds.sum()), int(audited.sum()), told, float(low), float(high))

    def threshold(self, asked: float, from_score: float = 0.0) -> float | None:
        """The lowest score from which on the share that is right is at least `asked` by its lower bound, if any is."""
        for step in range(STEPS):
            score = max(from_score, step / STEPS)
            above = self.score >= score
            if (step + 1) / STEPS > from_score and self.share(above).low >= asked:
                return score
        return None


def audit_sample(sounds: pa.Table, verdicts: Iterable[Verdict], seed: int = SEED) -> Audit:
    """The audit of a run as it stands; every verdict that holds counts, whoever gave it."""
    verdicts = list(verdicts)
    stratum, rank = audit_order(sounds, seed)
    drawn = {item.subject for item in verdicts if item.queue == AUDIT and item.kind == "sound"}
    reached = np.zeros(STRATA, np.int64)
    was_drawn = named_among(sounds, drawn)
    np.maximum.at(reached, stratum[was_drawn], rank[was_drawn] + 1)
    in_sample = rank < reached[stratum]
    held = holding(verdicts).values()
    accepted, rejected, unsure = (
        in_sample & named_among(sounds, [item.subject for item in held if item.state == state])
        for state in ("accepted", "rejected", "unsure")
    )
    audited = accepted | rejected
    return Audit(
        score=sounds["score"].to_numpy(),
        stratum=stratum,
        audited=audited,
        right=accepted,
        unsure=int(unsure.sum()),
        open=int((in_sample & ~audited & ~unsure).sum()),
    )


@dataclass(frozen=True, slots=True)
class Precision:
    """What an audit tells of a run, from which score on a share of `asked` is right, and how other queues went.

    `by_score` has a row for each bin with its lower edge, `by_site` one for each site that was audited. `others` are
    (decided, accepted) by queue.
    """

    run: str
    model: str
    overall: Share
    by_score: tuple[tuple[float, Share], ...]
    by_site: tuple[tuple[str, Share], ...]
    others: Mapping[str, tuple[int, int]]
    unsure: int
    open: int
    asked: float
    threshold: float | None
    reached: Share | None

    def summary(self) -> str:
        """The account for a person to read, below the table."""
        lines = [
            f"{self.overall.audited:,} of {self.overall.sounds:,} sounds audited: {told(self.overall)} are right"
        ]
        if self.unsure:
            lines.append(f"{self.unsure:,} of the sample are unsure, and left out")
        if self.open:
            lines.append(
                f"{self.open:,} of the sample are open: decide them, or leave them out with the --min-score of the "
                "review, or they count as like the others"
            )
        if self.threshold is None or self.reached is None:
            lines.append(
                f"From no score on {self.asked:.0%} are surely right. Audit more sounds, or ask for less with --asked."
            )
        else:
            kept = f"{self.reached.sounds:,} sounds are left, {told(self.reached)} of them right"
            lines.append(f"For {self.asked:.0%}: score {self.threshold:.2f} or more; {kept}")
        for name, (decided, accepted) in self.others.items():
            share = f"{accepted:,} of {decided:,} accepted"
            lines.append(f"Asked by {name}: {share}. These were chosen, and say nothing about the rest")
        return "\n".join(lines)


def told(share: Share) -> str:
    """A share with its bounds."""
    return f"{share.right:.0%} ({share.low:.0%} to {share.high:.0%})" if share.audited else "an unknown share"


def tell_precision(
    found: Found, sounds: pa.Table, verdicts: Sequence[Verdict], asked: float = ASKED
) -> Precision:
    """What the verdicts tell of the sounds of a run."""
    if not 0 < asked < 1:
        raise ConfigError(f"--asked {asked:g}: give a share between 0 and 1, such as 0.9.")
    audit = audit_sample(sounds, verdicts)
    site = codes(sounds["site"])
    threshold = audit.threshold(asked, threshold_of(sounds)) if audit.audited.any() else None
    return Precision(
        run=found.fingerprint,
        model=found.model,
        overall=audit.share(np.ones(len(site), bool)),
        by_score=tuple(
            (number / STRATA, audit.share(audit.stratum == number))
            for number in np.unique(audit.stratum).tolist()
        ),
        by_site=tuple(
            sorted(
                (_site(sounds, site == own), audit.share(site == own))
                for own in np.unique(site[audit.audited])
            )
        ),
        others=_others(verdicts),
        unsure=audit.unsure,
        open=audit.open,
        asked=asked,
        threshold=threshold,
        reached=None if threshold is None else audit.share(audit.score >= threshold),
    )


def _site(sounds: pa.Table, own: Mask) -> str:
    """The name of the site of some sounds."""
    return sounds["site"][int(own.argmax())].as_py() or NO_SITE


def _others(verdicts: Sequence[Verdict]) -> dict[str, tuple[int, int]]:
    """Sounds of the model decided about, and accepted, by the queue that asked for them; the audit's are not here."""
    counts: dict[str, tuple[int, int]] = {}
    for item in holding(verdicts).values():
        if item.kind == "sound" and item.score is not None and item.state in ("accepted", "rejected"):
            name = item.queue or "nobody"
            if name != AUDIT:
                decided, accepted = counts.get(name, (0, 0))
                counts[name] = (decided + 1, accepted + (item.state == "accepted"))
    return counts


def measure_precision(
    events: str, asked: float = ASKED, location: str | None = None, min_score: float | None = None
) -> Precision:
    """What `mast precision` does: reads a run and its verdicts, and keeps what they tell in the run's folder.

    An audit of the sounds from some score on speaks of these alone: with the same `min_score`, so does this.
    """
    found = open_found(events, min_score)
    place = verdicts_at(events, location)
    precision = tell_precision(found, sounds_of(found, min_score), read_verdicts(place), asked)
    if not precision.overall.audited:
        raise StorageError(f"{place}: nothing was audited yet. Answer the queue {AUDIT} of mast review.")
    story = {
        "mast_version": __version__,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdicts": place,
        "level": LEVEL,
        **asdict(precision),
    }
    with written_whole(join(events, CALIBRATION)) as file:
        file.write(json.dumps(story, indent=1, ensure_ascii=False).encode())
    with written_whole(join(events, PICTURE)) as file:
        bars = [
            Bar(low, low + 1 / STRATA, s.right, s.low, s.high) for low, s in precision.by_score if s.audited
        ]
        draw_precision(bars, asked, precision.threshold).savefig(file, format="png", dpi=PICTURE_DPI)
    return precision


def calibrated_score(events: str) -> float:
    """The score that `mast precision` has found for a run; one of another run is refused."""
    place = join(events, CALIBRATION)
    if not exists(place):
        raise StorageError(f"{place} is not there yet. Make it with mast precision {events}.")
    with open_binary(place) as file:
        story: dict[str, Any] = json.loads(file.read())
    if story["run"] != open_found(events).fingerprint:
        raise StorageError(f"{place} was made for another run. Run mast precision {events} again.")
    if story["threshold"] is None:
        raise ConfigError(
            f"{place}: from no score on {story['asked']:.0%} were surely right. Run mast precision {events} after "
            "more of the audit, or with a lower --asked."
        )
    return float(story["threshold"])


def render(precision: Precision) -> Table:
    """Shares by score and by site, for a person to read."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("Score", "Sounds", "Audited", "Right", "95 of 100"):
        table.add_column(name, justify="left" if name == "Score" else "right")
    for low, share in precision.by_score:
        table.add_row(f"{low:.1f} to {low + 1 / STRATA:.1f}", *_cells(share))
    for site, share in precision.by_site if len(precision.by_site) > 1 else ():
        table.add_row(site, *_cells(share))
    return table


def _cells(share: Share) -> tuple[str, ...]:
    bounds = (f"{share.right:.0%}", f"{share.low:.0%} to {share.high:.0%}") if share.audited else ("–", "–")
    return (f"{share.sounds:,}", f"{share.audited:,}", *bounds)
