"""What a run has found, as one page that an ecologist can read, look at and listen to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from matplotlib.figure import Figure

from mast import __version__
from mast.detection.activity import BAND_HZ, HOUR_S, Activity, Sums
from mast.detection.examples import Lottery, draw_examples
from mast.detection.found import Found, FoundPart, open_found
from mast.events import BOX, event_id
from mast.pictures.activity import (
    HOURS,
    NARROW_IN,
    SOUNDS,
    WIDE_IN,
    draw_diel,
    draw_scores,
    draw_site_days,
)
from mast.pictures.html import picture_uri, render_page
from mast.recordings.clocks import length
from mast.recordings.faults import FAULTS
from mast.storage import join, written_whole

REPORT = "report.html"
MAX_SITES = 40
"""Sites with a row of their own, those that were heard most; the rest are added up."""

MAX_NAMES = 60
"""Names on the page, the most frequent; the export has all."""


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site as the page shows it."""

    name: str
    sums: Sums
    days: int
    share: float
    """Of the highest rate of any site."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture for a desk and for a phone, each as an address that holds it."""

    wide: str
    narrow: str


@dataclass(frozen=True, slots=True)
class Told:
    """What was told, and where."""

    page: str
    sums: Sums
    sites: int

    def summary(self) -> str:
        """The account for a person to read."""
        where = f" at {self.sites:,} sites" if self.sites > 1 else ""
        return (
            f"{self.sums.events:,} sounds in {length(self.sums.effort_s)} heard{where}\nReport: {self.page}"
        )


def report(
    events: str,
    out: str | None = None,
    min_score: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Told:
    """Write a page about the events of a run."""
    found = open_found(events, min_score)
    activity, lottery = Activity(), Lottery()
    named: Counter[str] = Counter()
    for done, part in enumerate(found.parts(min_score), start=1):
        activity.add(part)
        lottery.add(part)
        named.update(_names(found, part))
        on_progress(done, len(found.numbers))
    page = out or join(events, REPORT)
    with written_whole(page) as file:
        file.write(
            report_page(found, activity, lottery, min_score, named).encode("utf-8", "backslashreplace")
        )
    return Told(page, _total(activity), len(activity.sites))


def _names(found: Found, part: FoundPart) -> Iterator[str]:
    """Tentative names of a part's sounds, those that have one."""
    if given := found.names(part.number):
        columns = (part.events[column].to_pylist() for column in BOX)
        names = (given.get(event_id(*box)) for box in zip(*columns, strict=True))
        yield from (name for name in names if name is not None)


def report_page(
    found: Found,
    activity: Activity,
    lottery: Lottery,
    min_score: float | None = None,
    named: Counter[str] | None = None,
) -> str:
    """The page: what was heard, then where, when and at which pitch, then examples and faults."""
    threshold = found.threshold if min_score is None else min_score
    examples, unread = draw_examples(found, lottery.chosen(), threshold)
    ranked = sorted(activity.sites, key=lambda site: (-activity.sites[site].effort_s, site))
    shown = sorted(ranked[:MAX_SITES])
    days = sorted({day for _, day in activity.days})
    span = (days[0], days[-1]) if days else None
    values: dict[str, Any] = {
        "found": found,
        "threshold": threshold,
        "version": __version__,
        "activity": activity,
        "total": _total(activity),
        "sites": _site_rows(activity, shown),
        "more": _joined([activity.sites[site] for site in ranked[MAX_SITES:]]),
        "more_sites": len(ranked[MAX_SITES:]),
        "span": span,
        "day_count": len(days),
        "diel": _diel(activity) if span else None,
        "effort_days": _effort_days(activity, shown, span) if span else None,
        "rate_days": _rate_days(activity, shown, span) if span else None,
        "scores": picture_uri(draw_scores(activity.scores, threshold)),
        "named": (named or Counter()).most_common(MAX_NAMES),
        "all_named": (named or Counter()).total(),
        "naming": found.naming(),
        "examples": examples,
        "unread": unread,
        "faults": [(FAULTS[code], count) for code, count in activity.faults.most_common() if code in FAULTS],
    }
    return render_page("events.html", values)


def _total(activity: Activity) -> Sums:
    return _joined(list(activity.sites.values()))


def _joined(sums: list[Sums]) -> Sums:
    return Sums(
        sum(item.effort_s for item in sums),
        sum(item.events for item in sums),
        sum(item.recordings for item in sums),
    )


def _site_rows(activity: Activity, sites: list[str]) -> list[SiteRow]:
    most = max((activity.sites[site].rate for site in sites if activity.sites[site].events), default=1.0)
    days: dict[str, set[date]] = {site: set() for site in sites}
    for site, day in activity.days:
        if site in days:
            days[site].add(day)
    return [
        SiteRow(site, sums, len(days[site]), sums.rate / most if sums.effort_s else 0.0)
        for site, sums in ((site, activity.sites[site]) for site in sites)
    ]


def _diel(activity: Activity) -> Picture:
    rates, effort_h = activity.rates(), activity.effort_by_hour_s / HOUR_S
    return _picture(lambda width_in: draw_diel(rates, effort_h, BAND_HZ, width_in))


def _effort_days(activity: Activity, sites: list[str], span: tuple[date, date]) -> Picture:
    hours = {key: sums.effort_s / HOUR_S for key, sums in activity.days.items() if sums.effort_s}
    return _picture(lambda width_in: draw_site_days(hours, sites, span, "Hours heard", HOURS, width_in))


def _rate_days(activity: Activity, sites: list[str], span: tuple[date, date]) -> Picture:
    rates = {key: sums.rate for key, sums in activity.days.items() if sums.effort_s}
    return _picture(lambda width_in: draw_site_days(rates, sites, span, "Sounds an hour", SOUNDS, width_in))


def _picture(draw: Callable[[float], Figure]) -> Picture:
    return Picture(picture_uri(draw(WIDE_IN)), picture_uri(draw(NARROW_IN)))
