"""All numbers about one test set, at a threshold that was fixed before it was heard (paper, Evaluation Details)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.evaluation.calibration import expected_calibration_error, reliability
from mast.evaluation.intervals import RESAMPLES, Interval, confidence_interval
from mast.evaluation.matching import Floats, Integers
from mast.evaluation.metrics import METRICS, Ranking, best_threshold, f1, precision_recall_curve
from mast.evaluation.strata import Stratum, band_names, by_stratum, stratum_of
from mast.evaluation.trial import WAYS, Matched, Trial, match_chunks

AT_THRESHOLD = ("precision", "recall", "f1", "mean_iou", "ap_11_points")
"""Numbers about the predictions above the threshold; the paper's mAP is the last."""

OVER_ALL = ("ap_101_points", "ap_area")
"""Numbers about the predictions of all scores."""

MACRO = ("macro_precision", "macro_recall", "macro_f1", "macro_mean_iou")
SEED = 0
"""Every number, and every model, is drawn for with the same recordings."""

BAND_HZ = tuple(125.0 * 2**octave for octave in range(11))
DURATION_S = (0.25, 0.5, 1.0, 2.0, 4.0)
SNR_DB = (0.0, 3.0, 6.0, 10.0)
CURVE_POINTS = 200
LABELS = 30
NO_CLOCK, NO_LABEL, NOT_TOLD = "no clock", "(no label)", "cannot be told"


@dataclass(frozen=True, slots=True)
class Figures:
    """How often a model was right, for one way of matching.

    `numbers` are of `AT_THRESHOLD` and `OVER_ALL`; `macro` are means over chunks, or over recordings where those are
    matched as a whole. `best_f1` is what the best threshold for this very set would have given: an upper bound.
    """

    truths: int
    predictions: int
    hits: int
    numbers: dict[str, Interval]
    macro: dict[str, float]
    best_f1: float
    best_score: float


@dataclass(frozen=True, slots=True)
class Curves:
    """Precision and recall by score, thinned; and of predictions by score, the share that are hits."""

    score: list[float]
    precision: list[float]
    recall: list[float]
    calibration_score: list[float]
    calibration_hits: list[float]
    calibration_count: list[int]
    calibration_error: float


@dataclass(frozen=True, slots=True)
class Part:
    """Results in one stratum; precision and F1 are NaN where only truths can be told apart."""

    name: str
    predictions: int
    truths: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class SetResults:
    """All about one test set. `left_out` counts experts' boxes that the grid cannot hold, by reason."""

    name: str
    recordings: int
    chunks: int
    events: int
    left_out: dict[str, int]
    ways: dict[str, Figures]
    curves: Curves
    strata: dict[str, list[Part]]


def set_results(trial: Trial, threshold: float, resamples: int = RESAMPLES) -> SetResults:
    """Numbers of one test set, with 95 % intervals over its recordings."""
    truths = trial.truths
    matched = {way: matching(trial) for way, matching in WAYS.items()}
    return SetResults(
        name=truths.name,
        recordings=len(truths.recordings),
        chunks=len(truths.chunk_recording),
        events=len(truths.events),
        left_out=dict(truths.left_out),
        ways={way: figures(item, threshold, resamples) for way, item in matched.items()},
        curves=curves(matched["iou"].ranking),
        strata=strata(trial.above(threshold)),
    )


def figures(matched: Matched, threshold: float, resamples: int = RESAMPLES) -> Figures:
    """Numbers for predictions matched in one way."""
    ranking = matched.ranking
    reported, best = ranking.above(threshold), best_threshold(ranking)
    rankings = dict.fromkeys(AT_THRESHOLD, reported) | dict.fromkeys(OVER_ALL, ranking)
    by_group = _by_group(matched).above(threshold)
    return Figures(
        truths=int(reported.truths.sum()),
        predictions=len(reported.score),
        hits=int(reported.is_hit.sum()),
        numbers={
            name: confidence_interval(METRICS[name], chosen, np.random.default_rng(SEED), resamples)
            for name, chosen in rankings.items()
        },
        macro={name: METRICS[name](by_group, None) for name in MACRO},
        best_f1=f1(ranking.above(best)),
        best_score=best,
    )


def _by_group(matched: Matched) -> Ranking:
    """The ranking with the groups that were matched, chunks or recordings, as its units."""
    found, truths = matched.found, matched.truths
    groups = 1 + int(max(found.group.max(initial=-1), truths.group.max(initial=-1)))
    score = matched.ranking.score[:0] if found.score is None else found.score
    return Ranking.of(score, matched.matches.overlap, found.group, truths.group, groups)


def curves(ranking: Ranking) -> Curves:
    """What other thresholds would have given, and whether scores can be taken at their word."""
    curve = precision_recall_curve(ranking)
    shown = np.unique(np.linspace(0, max(len(curve.score) - 1, 0), CURVE_POINTS).astype(np.int64))
    shown = shown[: len(curve.score)]
    bins = reliability(ranking.score, ranking.is_hit)
    return Curves(
        score=curve.score[shown].tolist(),
        precision=curve.precision[shown].tolist(),
        recall=curve.recall[shown].tolist(),
        calibration_score=bins.score.tolist(),
        calibration_hits=bins.hit_share.tolist(),
        calibration_count=bins.count.tolist(),
        calibration_error=expected_calibration_error(bins),
    )


def strata(trial: Trial) -> dict[str, list[Part]]:
    """Results by site, hour, band and duration, and recall by label and signal-to-noise; empty strata are left out."""
    truths, matched = trial.truths, match_chunks(trial)
    event = truths.events.bounds[truths.box_event]  # (M, 4)
    sites = sorted(set(truths.sites))
    site = np.array([sites.index(name) for name in truths.sites], dtype=np.int64)
    hours = [*(f"{hour:02d}–{(hour + 1) % 24:02d} h" for hour in range(24)), NO_CLOCK]
    low, high = _reach(np.concatenate([_pitch_hz(event), _pitch_hz(trial.found_events)]))
    bands_hz = [edge for edge in BAND_HZ if low < edge <= high] or [BAND_HZ[0]]

    def parts(names: list[str], found: Integers, true: Integers) -> list[Part]:
        return [_part(item) for item in by_stratum(matched.matches, found, true, names)]

    by = {
        "site": parts(sites, site[matched.found_recording], site[matched.truth_recording]),
        "hour": parts(
            hours,
            truths.chunk_hour[trial.found.group] % len(hours),
            truths.chunk_hour[truths.boxes.group] % len(hours),
        ),
        "band": parts(
            band_names(bands_hz, "Hz"),
            stratum_of(_pitch_hz(trial.found_events), bands_hz),
            stratum_of(_pitch_hz(event), bands_hz),
        ),
        "duration": parts(
            band_names(DURATION_S, "s"),
            stratum_of(_length_s(trial.found_events), DURATION_S),
            stratum_of(_length_s(event), DURATION_S),
        ),
        "signal_to_noise": _recalls(
            matched,
            [*band_names(SNR_DB, "dB"), NOT_TOLD],
            _snr_stratum(truths.event_snr_db[truths.box_event]),
        ),
        "label": _by_label(matched, np.array(truths.event_labels, dtype=object)[truths.box_event]),
    }
    return {name: [part for part in rows if part.predictions or part.truths] for name, rows in by.items()}


def _part(stratum: Stratum) -> Part:
    return Part(
        stratum.name, stratum.predictions, stratum.truths, stratum.precision, stratum.recall, stratum.f1
    )


def _recalls(matched: Matched, names: list[str], stratum: Integers) -> list[Part]:
    """Recall in strata that only truths belong to: nobody knows which of them a false alarm would be in."""
    found = matched.matches.is_found(len(matched.truths))
    total, hits = (np.bincount(stratum[rows], minlength=len(names)) for rows in (slice(None), found))
    return [
        Part(name, 0, int(truths), np.nan, hit / truths if truths else np.nan, np.nan)
        for name, truths, hit in zip(names, total, hits, strict=True)
    ]


def _by_label(matched: Matched, labels: np.ndarray[tuple[int], np.dtype[np.object_]]) -> list[Part]:
    """Recall by what experts call a sound, the most frequent first."""
    names, stratum = np.unique(labels.astype(str), return_inverse=True)
    rows = _recalls(matched, [name or NO_LABEL for name in names.tolist()], stratum.astype(np.int64))
    return sorted(rows, key=lambda part: (-part.truths, part.name))[:LABELS]


def _snr_stratum(snr_db: Floats) -> Integers:
    return np.where(np.isnan(snr_db), len(SNR_DB) + 1, stratum_of(snr_db, SNR_DB))


def _pitch_hz(events: Floats) -> Floats:
    """Middle of each event in frequency. (N, 4) → (N,)"""
    return events[:, 1::2].mean(axis=1)  # type: ignore[no-any-return]


def _length_s(events: Floats) -> Floats:
    return events[:, 2] - events[:, 0]


def _reach(values: Floats) -> tuple[float, float]:
    return float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
