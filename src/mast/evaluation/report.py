"""Write an evaluation as one HTML page with metrics, spectrograms and audio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mast.evaluation.error_examples import ErrorTile, tile_of, worst_errors
from mast.evaluation.evaluation_set import EvaluationSet
from mast.evaluation.results import REPORT, Results
from mast.evaluation.set_metrics import SetResults
from mast.plotting.curves import Line, plot_calibration, plot_precision_recall
from mast.plotting.html import figure_data_uri, render_page
from mast.storage import atomic_write, join
from mast.store.audio_store import AudioStore

TITLES = {"test": "In-domain test", "val": "Validation", "train": "Training"}
MATCHING_TITLES = {
    "iou": "Box by box (as in the paper)",
    "iomin": "Loose boxes",
    "time": "Time only",
    "recordings": "Whole recordings",
}
STRATA = {
    "site": "By site",
    "hour": "By hour of the recorder’s clock",
    "band": "By centre frequency",
    "duration": "By duration",
    "signal_to_noise": "By signal-to-noise ratio",
    "label": "By label",
}
HEADLINE = {
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "average_precision_coco": "AP",
    "mean_iou": "Mean IoU",
}


@dataclass(frozen=True, slots=True)
class ErrorExamples:
    """Error examples of one test set."""

    misses: list[ErrorTile]
    false_positives: list[ErrorTile]


def title_of(name: str) -> str:
    """Return the title of a split; a held-out set differs in distribution from the training data."""
    return TITLES.get(name, f"Under shift: {name}")


def write_report(folder: str, results: Results, sets: Sequence[EvaluationSet], store: AudioStore) -> None:
    """Write the page next to the results, with spectrograms and audio of the worst errors of each set."""
    errors = []
    for evaluation_set in sets:
        misses, false_positives = worst_errors(evaluation_set, results.threshold)
        errors.append(
            ErrorExamples(
                [tile_of(example, store) for example in misses],
                [tile_of(example, store) for example in false_positives],
            )
        )
    with atomic_write(join(folder, REPORT)) as file:
        file.write(report_page(results, errors).encode())


def report_page(results: Results, errors: Sequence[ErrorExamples]) -> str:
    """Render the page: metrics first, then curves, other matching modes, strata and errors."""
    values: dict[str, Any] = {
        "results": results,
        "sets": list(zip(results.sets, errors, strict=True)),
        "title_of": title_of,
        "sentence": headline_sentence,
        "headline": HEADLINE,
        "matching_modes": MATCHING_TITLES,
        "strata": STRATA,
        "precision_recall": figure_data_uri(
            plot_precision_recall([_tradeoff(set_results) for set_results in results.sets])
        ),
        "calibration": figure_data_uri(
            plot_calibration([_calibration(set_results) for set_results in results.sets])
        ),
    }
    return render_page("report.html", values)


def headline_sentence(set_results: SetResults) -> str:
    """Summarise precision and recall of a set in plain words."""
    metrics = set_results.matching_modes["iou"]
    if not metrics.ground_truth:
        return f"This set has no annotations. False positives: {metrics.predictions:,}."
    recalled = round(100 * metrics.metrics["recall"].value)
    if not metrics.predictions:
        return f"The model detected nothing. Annotated boxes: {metrics.ground_truth:,}."
    correct = round(100 * metrics.metrics["precision"].value)
    return (
        f"The model detected {recalled} of every 100 annotated boxes. "
        f"Of every 100 boxes that it predicted, {correct} match an annotation."
    )


def _tradeoff(set_results: SetResults) -> Line:
    values = set_results.matching_modes["iou"].metrics
    operating_point = (values["recall"].value, values["precision"].value)
    return Line(
        title_of(set_results.name), set_results.curves.recall, set_results.curves.precision, operating_point
    )


def _calibration(set_results: SetResults) -> Line:
    return Line(
        title_of(set_results.name), set_results.curves.calibration_score, set_results.curves.calibration_hits
    )
