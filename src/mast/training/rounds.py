"""Rounds of self-training: what each did, and when one is taken back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mast.config import Guard
from mast.pictures.html import picture_uri, render_page
from mast.pictures.rounds import draw_by_round
from mast.storage import written_whole

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model does on validation and in the pool, at the threshold it was saved with.

    `hours` is how much of each site it was judged by.
    """

    validation: dict[str, float]
    rate_per_hour: dict[str, float]
    hours: dict[str, float] = field(default_factory=dict)

    def boxes(self, hours: dict[str, float]) -> float:
        """How many it draws in so many hours of each site."""
        return sum(self.rate_per_hour.get(site, 0.0) * own for site, own in hours.items())


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what was learned from, what came of it, and why it was taken back, if it was."""

    number: int
    teacher: str
    pseudo: dict[str, Any]
    before: Judged
    after: Judged
    rejected: str | None

    def told(self) -> str:
        """A line for a person."""
        f1 = [item.validation.get("f1", math.nan) for item in (self.before, self.after)]
        end = f"taken back: {self.rejected}" if self.rejected else "kept"
        return (
            f"Round {self.number}: {self.pseudo['boxes']:,} boxes learned from, F1 on validation {f1[1]:.3f} "
            f"(first teacher {f1[0]:.3f}); {end}."
        )


EVERYWHERE = "all sites together"


def why_rejected(before: Judged, after: Judged, guard: Guard) -> str | None:
    """Why a round is taken back: worse on validation, or boxes that run away or vanish; None if it may stand.

    They can run away at one site, and at many sites that were each heard too shortly to tell by. At one site fewer may
    mean fewer false alarms, unless there are none at all; at all sites together they may fall no further than rise.
    """
    lost = before.validation.get("f1", 0.0) - after.validation.get("f1", 0.0)
    if lost > guard.max_f1_loss:
        return f"F1 on validation fell by {lost:.2f}, more than selftrain.guard.max_f1_loss ({guard.max_f1_loss:g})"
    places = {site or "a place without a name": {site: hours} for site, hours in after.hours.items()}
    for place, hours in {**places, EVERYWHERE: after.hours}.items():
        drawn, known, total = after.boxes(hours), before.boxes(hours), sum(hours.values())
        runs_away = drawn > guard.max_rate_ratio * max(known, guard.min_boxes)
        falls = known > guard.max_rate_ratio * max(drawn, guard.min_boxes)
        if runs_away or (falls and (not drawn or place == EVERYWHERE)):
            return (
                f"at {place} it draws {drawn / total:,.0f} boxes an hour where the first teacher drew "
                f"{known / total:,.0f} (selftrain.guard.max_rate_ratio {guard.max_rate_ratio:g})"
            )
    return None


def write_round(done: Round, path: Path) -> None:
    """Keep a round; that it is there means that it is over."""
    with written_whole(str(path)) as file:
        file.write(json.dumps(asdict(done), indent=2, ensure_ascii=False).encode())


def read_round(path: Path) -> Round:
    """A round as it was kept."""
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    before, after = (Judged(**values.pop(name)) for name in ("before", "after"))
    return Round(**values, before=before, after=after)


def write_rounds(rounds: Sequence[Round], location: str) -> None:
    """Write a page about all rounds so far: better or worse on validation, how many boxes at each site, what stood."""
    judged = [rounds[0].before, *(item.after for item in rounds)]
    validation = {name: [item.validation.get(name, math.nan) for item in judged] for name in SHOWN}
    sites = {site: [item.rate_per_hour.get(site, 0.0) for item in judged] for site in judged[0].rate_per_hour}
    values = {
        "rounds": rounds,
        "nan": math.nan,
        "validation": picture_uri(
            draw_by_round({SHOWN[name]: row for name, row in validation.items()}, "Validation")
        ),
        "rates": picture_uri(draw_by_round(sites, "Boxes an hour", is_share=False)),
    }
    with written_whole(location) as file:
        file.write(render_page("rounds.html", values).encode())


SHOWN = {"f1": "F1", "precision": "precision", "recall": "recall", "ap_area": "AP"}
