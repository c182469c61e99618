"""Write a report of a run for ecologists: one HTML page with tables, figures and audio examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from matplotlib.figure import Figure

from mast.outputs.activity import BAND_HZ, HOUR_S, Activity, ActivityCounts
from mast.outputs.examples import EventSampler, render_examples
from mast.plotting.activity import (
    EVENT_COLOURS,
    HOURS,
    NARROW_IN,
    WIDE_IN,
    plot_diel,
    plot_scores,
    plot_site_days,
)
from mast.plotting.html import figure_data_uri, render_page
from mast.recordings.clocks import format_duration
from mast.recordings.faults import FAULTS
from mast.records import BOX_COLUMNS, event_id
from mast.runs.results import DetectionResults, ResultsPart, open_results
from mast.storage import atomic_write, join
from mast.version import __version__
from mast.wording import counted

REPORT = "report.html"
MAX_SITES = 40
"""Maximum number of sites with their own row, those with the most effort; the others are summed up in one row."""

MAX_LABELS = 60
"""Maximum number of labels on the page, the most frequent ones; the export contains all."""


@dataclass(frozen=True, slots=True)
class SiteRow:
    """Row of a site on the page."""

    name: str
    counts: ActivityCounts
    days: int
    fraction: float
    """Fraction of the highest event rate of any site."""


@dataclass(frozen=True, slots=True)
class ResponsiveFigure:
    """Figure for wide and for narrow screens, each as a data URI."""

    wide: str
    narrow: str


@dataclass(frozen=True, slots=True)
class ReportResult:
    """Path and totals of a written report."""

    page: str
    counts: ActivityCounts
    sites: int

    def summary(self) -> str:
        """Return a text summary for the user."""
        sites = f" at {self.sites:,} sites" if self.sites > 1 else ""
        events, effort = counted(self.counts.events, "event"), format_duration(self.counts.effort_s)
        return f"{events} in {effort} of audio{sites}\nReport: {self.page}"


def report(
    events: str,
    out: str | None = None,
    min_score: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ReportResult:
    """Write a report page about the events of a run with score >= `min_score`, by default into its folder."""
    results = open_results(events, min_score)
    activity, sampler = Activity(), EventSampler()
    labels: Counter[str] = Counter()
    for done, part in enumerate(results.parts(min_score), start=1):
        activity.add(part)
        sampler.add(part)
        labels.update(_count_labels(results, part))
        on_progress(done, len(results.numbers))
    page = out or join(events, REPORT)
    with atomic_write(page) as file:
        file.write(
            report_page(results, activity, sampler, min_score, labels).encode("utf-8", "backslashreplace")
        )
    return ReportResult(page, _total(activity), len(activity.sites))


def _count_labels(results: DetectionResults, part: ResultsPart) -> Iterator[str]:
    """Yield the tentative labels of a part's events that have one."""
    if labels := results.labels(part.number):
        columns = (part.events[column].to_pylist() for column in BOX_COLUMNS)
        assigned = (labels.get(event_id(*box)) for box in zip(*columns, strict=True))
        yield from (label for label in assigned if label is not None)


def report_page(
    results: DetectionResults,
    activity: Activity,
    sampler: EventSampler,
    min_score: float | None = None,
    labels: Counter[str] | None = None,
) -> str:
    """Return the page as HTML: totals, sites, hours and frequencies, days, labels, scores, examples and problems."""
    threshold = results.threshold if min_score is None else min_score
    examples, unread = render_examples(results, sampler.chosen(), threshold)
    ranked = sorted(activity.sites, key=lambda site: (-activity.sites[site].effort_s, site))
    shown = sorted(ranked[:MAX_SITES])
    days = sorted({day for _, day in activity.days})
    span = (days[0], days[-1]) if days else None
    values: dict[str, Any] = {
        "results": results,
        "threshold": threshold,
        "version": __version__,
        "activity": activity,
        "total": _total(activity),
        "sites": _site_rows(activity, shown),
        "more": _add_counts([activity.sites[site] for site in ranked[MAX_SITES:]]),
        "more_sites": len(ranked[MAX_SITES:]),
        "span": span,
        "day_count": len(days),
        "diel": _diel(activity) if span else None,
        "effort_days": _effort_days(activity, shown, span) if span else None,
        "rate_days": _rate_days(activity, shown, span) if span else None,
        "scores": figure_data_uri(plot_scores(activity.scores, threshold)),
        "named": (labels or Counter()).most_common(MAX_LABELS),
        "all_named": (labels or Counter()).total(),
        "labelling": results.labelling(),
        "examples": examples,
        "unread": unread,
        "faults": [(FAULTS[code], count) for code, count in activity.faults.most_common() if code in FAULTS],
    }
    return render_page("events.html", values)


def _total(activity: Activity) -> ActivityCounts:
    return _add_counts(list(activity.sites.values()))


def _add_counts(counts: list[ActivityCounts]) -> ActivityCounts:
    return ActivityCounts(
        sum(count.effort_s for count in counts),
        sum(count.events for count in counts),
        sum(count.recordings for count in counts),
    )


def _site_rows(activity: Activity, sites: list[str]) -> list[SiteRow]:
    max_rate = max((activity.sites[site].rate for site in sites if activity.sites[site].events), default=1.0)
    days: dict[str, set[date]] = {site: set() for site in sites}
    for site, day in activity.days:
        if site in days:
            days[site].add(day)
    return [
        SiteRow(site, counts, len(days[site]), counts.rate / max_rate if counts.effort_s else 0.0)
        for site, counts in ((site, activity.sites[site]) for site in sites)
    ]


def _diel(activity: Activity) -> ResponsiveFigure:
    rates, effort_h = activity.rates(), activity.effort_by_hour_s / HOUR_S
    return _responsive_figure(lambda width_in: plot_diel(rates, effort_h, BAND_HZ, width_in))


def _effort_days(activity: Activity, sites: list[str], span: tuple[date, date]) -> ResponsiveFigure:
    hours = {key: counts.effort_s / HOUR_S for key, counts in activity.days.items() if counts.effort_s}
    return _responsive_figure(
        lambda width_in: plot_site_days(hours, sites, span, "Hours of audio", HOURS, width_in)
    )


def _rate_days(activity: Activity, sites: list[str], span: tuple[date, date]) -> ResponsiveFigure:
    rates = {key: counts.rate for key, counts in activity.days.items() if counts.effort_s}
    return _responsive_figure(
        lambda width_in: plot_site_days(rates, sites, span, "Events per hour", EVENT_COLOURS, width_in)
    )


def _responsive_figure(plot: Callable[[float], Figure]) -> ResponsiveFigure:
    return ResponsiveFigure(figure_data_uri(plot(WIDE_IN)), figure_data_uri(plot(NARROW_IN)))
