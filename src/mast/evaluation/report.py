"""An evaluation as one page that an ecologist can read, look at and listen to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mast.evaluation.figures import SetResults
from mast.evaluation.results import REPORT, Results
from mast.evaluation.trial import Trial
from mast.evaluation.worst import Tile, tile_of, worst_mistakes
from mast.pictures.curves import Line, draw_calibration, draw_precision_recall
from mast.pictures.html import picture_uri, render_page
from mast.recordings.store import AudioStore
from mast.storage import join, written_whole

TITLES = {"test": "In-domain test", "val": "Validation", "train": "Training"}
WAYS = {
    "iou": "Box by box (the paper’s way)",
    "iomin": "Loose boxes",
    "time": "Time only",
    "recordings": "Whole recordings",
}
STRATA = {
    "site": "By site",
    "hour": "By hour of the recorder’s clock",
    "band": "By middle frequency",
    "duration": "By duration",
    "signal_to_noise": "By loudness above the background",
    "label": "By label",
}
HEADLINE = {
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "ap_101_points": "AP",
    "mean_iou": "Mean IoU",
}


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Tiles of one test set."""

    misses: list[Tile]
    alarms: list[Tile]


def title_of(name: str) -> str:
    """What to call a split: a held-out set is sound of another kind than that of training."""
    return TITLES.get(name, f"Under shift: {name}")


def write_report(folder: str, results: Results, sets: Sequence[Trial], store: AudioStore) -> None:
    """Write the page beside the results, with the worst mistakes of each set to look at and listen to."""
    mistakes = []
    for trial in sets:
        missed, alarms = worst_mistakes(trial, results.threshold)
        mistakes.append(
            Mistakes([tile_of(item, store) for item in missed], [tile_of(item, store) for item in alarms])
        )
    with written_whole(join(folder, REPORT)) as file:
        file.write(report_page(results, mistakes).encode())


def report_page(results: Results, mistakes: Sequence[Mistakes]) -> str:
    """The page: numbers first, then curves, other ways to count, strata and mistakes."""
    values: dict[str, Any] = {
        "results": results,
        "sets": list(zip(results.sets, mistakes, strict=True)),
        "title_of": title_of,
        "sentence": sentence,
        "headline": HEADLINE,
        "ways": WAYS,
        "strata": STRATA,
        "precision_recall": picture_uri(draw_precision_recall([_tradeoff(item) for item in results.sets])),
        "calibration": picture_uri(draw_calibration([_calibration(item) for item in results.sets])),
    }
    return render_page("report.html", values)


def sentence(item: SetResults) -> str:
    """The headline numbers of a set in plain words."""
    figures = item.ways["iou"]
    if not figures.truths:
        return f"Experts drew no box here; the model drew {figures.predictions:,}, all of them false alarms."
    found = round(100 * figures.numbers["recall"].value)
    if not figures.predictions:
        return f"The model drew no box; experts drew {figures.truths:,}."
    right = round(100 * figures.numbers["precision"].value)
    return (
        f"Of 100 sounds that experts drew, the model finds {found}. "
        f"Of 100 boxes that the model draws, {right} are at such a sound."
    )


def _tradeoff(item: SetResults) -> Line:
    numbers = item.ways["iou"].numbers
    chosen = (numbers["recall"].value, numbers["precision"].value)
    return Line(title_of(item.name), item.curves.recall, item.curves.precision, chosen)


def _calibration(item: SetResults) -> Line:
    return Line(title_of(item.name), item.curves.calibration_score, item.curves.calibration_hits)
