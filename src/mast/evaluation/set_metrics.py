"""Compute all metrics of one test set, at a threshold chosen before the test set is used (paper, Evaluation Details)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.evaluation.bootstrap import RESAMPLES, Interval, confidence_interval
from mast.evaluation.calibration import expected_calibration_error, reliability
from mast.evaluation.evaluation_set import MATCHING_MODES, EvaluationSet, MatchedSet, match_chunks
from mast.evaluation.metrics import METRICS, RankedPredictions, f1, max_f1_threshold, precision_recall_curve
from mast.evaluation.strata import Stratum, band_names, by_stratum, stratum_of
from mast.types import Floats, Integers

AT_THRESHOLD = ("precision", "recall", "f1", "mean_iou", "average_precision_voc")
"""Metrics of the predictions above the threshold; the paper's mAP is the last."""

OVER_ALL = ("average_precision_coco", "average_precision")
"""Metrics of the predictions of all scores."""

MACRO = ("macro_precision", "macro_recall", "macro_f1", "macro_mean_iou")
SEED = 0
"""Seed of the bootstrap: every metric and every model is resampled with the same recordings."""

BAND_HZ = tuple(125.0 * 2**octave for octave in range(11))
DURATION_S = (0.25, 0.5, 1.0, 2.0, 4.0)
SNR_DB = (0.0, 3.0, 6.0, 10.0)
CURVE_POINTS = 200
LABELS = 30
NO_CLOCK, NO_LABEL, UNDEFINED = "no clock", "(no label)", "undefined"


@dataclass(frozen=True, slots=True)
class SetMetrics:
    """Metrics of a model in one matching mode.

    `metrics` has those of `AT_THRESHOLD` and `OVER_ALL`; `macro` has means over chunks, or over recordings in the mode
    that matches whole recordings. `max_f1` is the F1 of the best threshold for this test set itself: an upper bound.
    """

    ground_truth: int
    predictions: int
    hits: int
    metrics: dict[str, Interval]
    macro: dict[str, float]
    max_f1: float
    max_f1_score: float


@dataclass(frozen=True, slots=True)
class Curves:
    """Precision and recall by score, thinned; and the fraction of hits among predictions by score."""

    score: list[float]
    precision: list[float]
    recall: list[float]
    calibration_score: list[float]
    calibration_hits: list[float]
    calibration_count: list[int]
    calibration_error: float


@dataclass(frozen=True, slots=True)
class StratumMetrics:
    """Metrics in one stratum; precision and F1 are NaN where only ground truth can be assigned to a stratum."""

    name: str
    predictions: int
    ground_truth: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class SetResults:
    """All metrics of one test set. `excluded` counts annotations that the grid cannot represent, by reason."""

    name: str
    recordings: int
    chunks: int
    events: int
    excluded: dict[str, int]
    matching_modes: dict[str, SetMetrics]
    curves: Curves
    strata: dict[str, list[StratumMetrics]]


def evaluate_set(evaluation_set: EvaluationSet, threshold: float, resamples: int = RESAMPLES) -> SetResults:
    """Compute the metrics of one test set, with 95 % intervals over its recordings."""
    ground_truth = evaluation_set.ground_truth
    matched = {mode: matching(evaluation_set) for mode, matching in MATCHING_MODES.items()}
    return SetResults(
        name=ground_truth.name,
        recordings=len(ground_truth.recordings),
        chunks=len(ground_truth.chunk_recording),
        events=len(ground_truth.events),
        excluded=dict(ground_truth.excluded),
        matching_modes={mode: compute_metrics(item, threshold, resamples) for mode, item in matched.items()},
        curves=curves(matched["iou"].ranking),
        strata=strata(evaluation_set.with_min_score(threshold)),
    )


def compute_metrics(matched: MatchedSet, threshold: float, resamples: int = RESAMPLES) -> SetMetrics:
    """Compute the metrics of predictions in one matching mode."""
    ranking = matched.ranking
    reported, best = ranking.with_min_score(threshold), max_f1_threshold(ranking)
    rankings = dict.fromkeys(AT_THRESHOLD, reported) | dict.fromkeys(OVER_ALL, ranking)
    by_group = _by_group(matched).with_min_score(threshold)
    return SetMetrics(
        ground_truth=int(reported.ground_truth.sum()),
        predictions=len(reported.score),
        hits=int(reported.is_hit.sum()),
        metrics={
            name: confidence_interval(METRICS[name], ranked, np.random.default_rng(SEED), resamples)
            for name, ranked in rankings.items()
        },
        macro={name: METRICS[name](by_group, None) for name in MACRO},
        max_f1=f1(ranking.with_min_score(best)),
        max_f1_score=best,
    )


def _by_group(matched: MatchedSet) -> RankedPredictions:
    """Rank the predictions with the matched groups, chunks or recordings, as units."""
    predictions, ground_truth = matched.predictions, matched.ground_truth
    groups = 1 + int(max(predictions.group.max(initial=-1), ground_truth.group.max(initial=-1)))
    score = matched.ranking.score[:0] if predictions.score is None else predictions.score
    return RankedPredictions.of(score, matched.matches.overlap, predictions.group, ground_truth.group, groups)


def curves(ranking: RankedPredictions) -> Curves:
    """Compute the precision-recall curve and the calibration curve."""
    curve = precision_recall_curve(ranking)
    points = np.unique(np.linspace(0, max(len(curve.score) - 1, 0), CURVE_POINTS).astype(np.int64))
    points = points[: len(curve.score)]
    bins = reliability(ranking.score, ranking.is_hit)
    return Curves(
        score=curve.score[points].tolist(),
        precision=curve.precision[points].tolist(),
        recall=curve.recall[points].tolist(),
        calibration_score=bins.score.tolist(),
        calibration_hits=bins.hit_fraction.tolist(),
        calibration_count=bins.count.tolist(),
        calibration_error=expected_calibration_error(bins),
    )


def strata(evaluation_set: EvaluationSet) -> dict[str, list[StratumMetrics]]:
    """Compute metrics by site, hour, band and duration, and recall by label and signal-to-noise; omit empty strata."""
    ground_truth, matched = evaluation_set.ground_truth, match_chunks(evaluation_set)
    event = ground_truth.events.bounds[ground_truth.box_event]  # (M, 4)
    sites = sorted(set(ground_truth.sites))
    site = np.array([sites.index(name) for name in ground_truth.sites], dtype=np.int64)
    hours = [*(f"{hour:02d}–{(hour + 1) % 24:02d} h" for hour in range(24)), NO_CLOCK]
    low, high = _min_max(np.concatenate([_centre_hz(event), _centre_hz(evaluation_set.prediction_events)]))
    bands_hz = [edge for edge in BAND_HZ if low < edge <= high] or [BAND_HZ[0]]

    def parts(
        names: list[str], prediction_stratum: Integers, ground_truth_stratum: Integers
    ) -> list[StratumMetrics]:
        return [
            _part(item)
            for item in by_stratum(matched.matches, prediction_stratum, ground_truth_stratum, names)
        ]

    by = {
        "site": parts(sites, site[matched.prediction_recording], site[matched.ground_truth_recording]),
        "hour": parts(
            hours,
            ground_truth.chunk_hour[evaluation_set.predictions.group] % len(hours),
            ground_truth.chunk_hour[ground_truth.boxes.group] % len(hours),
        ),
        "band": parts(
            band_names(bands_hz, "Hz"),
            stratum_of(_centre_hz(evaluation_set.prediction_events), bands_hz),
            stratum_of(_centre_hz(event), bands_hz),
        ),
        "duration": parts(
            band_names(DURATION_S, "s"),
            stratum_of(_duration_s(evaluation_set.prediction_events), DURATION_S),
            stratum_of(_duration_s(event), DURATION_S),
        ),
        "signal_to_noise": _recalls(
            matched,
            [*band_names(SNR_DB, "dB"), UNDEFINED],
            _snr_stratum(ground_truth.event_snr_db[ground_truth.box_event]),
        ),
        "label": _by_label(
            matched, np.array(ground_truth.event_labels, dtype=object)[ground_truth.box_event]
        ),
    }
    return {
        name: [part for part in rows if part.predictions or part.ground_truth] for name, rows in by.items()
    }


def _part(stratum: Stratum) -> StratumMetrics:
    return StratumMetrics(
        stratum.name, stratum.predictions, stratum.ground_truth, stratum.precision, stratum.recall, stratum.f1
    )


def _recalls(matched: MatchedSet, names: list[str], stratum: Integers) -> list[StratumMetrics]:
    """Compute recall in strata of ground truth; false positives have no label or signal-to-noise ratio."""
    is_recalled = matched.matches.is_recalled(len(matched.ground_truth))
    total, hits = (np.bincount(stratum[rows], minlength=len(names)) for rows in (slice(None), is_recalled))
    return [
        StratumMetrics(
            name, 0, int(ground_truth), np.nan, hit / ground_truth if ground_truth else np.nan, np.nan
        )
        for name, ground_truth, hit in zip(names, total, hits, strict=True)
    ]


def _by_label(
    matched: MatchedSet, labels: np.ndarray[tuple[int], np.dtype[np.object_]]
) -> list[StratumMetrics]:
    """Compute recall by label, the most frequent label first."""
    names, stratum = np.unique(labels.astype(str), return_inverse=True)
    rows = _recalls(matched, [name or NO_LABEL for name in names.tolist()], stratum.astype(np.int64))
    return sorted(rows, key=lambda part: (-part.ground_truth, part.name))[:LABELS]


def _snr_stratum(snr_db: Floats) -> Integers:
    return np.where(np.isnan(snr_db), len(SNR_DB) + 1, stratum_of(snr_db, SNR_DB))


def _centre_hz(events: Floats) -> Floats:
    """Return the centre frequency of each event in Hz. (N, 4) → (N,)"""
    return events[:, 1::2].mean(axis=1)  # type: ignore[no-any-return]


def _duration_s(events: Floats) -> Floats:
    return events[:, 2] - events[:, 0]


def _min_max(values: Floats) -> tuple[float, float]:
    return float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
