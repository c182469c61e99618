"""Matching and average precision of many boxes against faster-coco-eval: the same figure, how fast, in what memory?

    python -m benchmarks.evaluate                  100,000 chunks; writes benchmarks/results/evaluate.json
    python -m benchmarks.evaluate --chunks 300     a small version

Each chunk has ten predictions and four truths on average, so the full run has a million predictions. Both sides start
from what they work on: arrays here, a loaded and indexed data set there, whose making is timed apart. faster-coco-eval
is asked for one overlap, one range of areas and one number of detections. Rounds alternate; the best of each counts.

Memory is measured in processes of their own that make, match and forget `CHUNKS_AT_ONCE` chunks after the other, and
keep what the metrics need: score, overlap and chunk of each prediction. It is told beside that of the bare imports and
of faster-coco-eval, which needs all boxes at once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import FOLDER, peak_mb, write_result
from mast.evaluation.matching import Boxes, Floats, Integers, match
from mast.evaluation.metrics import Ranking, ap_101_points

CHUNKS = 100_000
PREDICTIONS, TRUTHS = 10, 4
CHUNKS_AT_ONCE = 2_000
ROUNDS = 3
SMALL_CASES = 30  # also compared, by average precision alone
FRAMES, BINS = 1024, 128


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--out", type=Path, default=FOLDER / "evaluate.json")
    parser.add_argument("--weigh", choices=WEIGHED, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.weigh:
        WEIGHED[options.weigh](options.chunks)
        print(peak_mb())
        return
    figures = measure(options.chunks)
    write_result(options.out, figures, ("numpy", "faster-coco-eval"))
    print(
        f"{figures['ratio_to_coco_eval']} of faster-coco-eval's time, "
        f"AP at most {figures['max_ap_difference']:.0e} off, {figures['peak_mb']} MB → {options.out}"
    )


def measure(chunks: int) -> dict[str, Any]:
    """Time both on the same boxes, in turn; weigh ours at a tenth and at full size."""
    from faster_coco_eval import COCO, COCOeval_faster

    predictions, truths = made_boxes(chunks, seed=0)
    start = time.perf_counter()
    dataset = coco_dataset(COCO, predictions, truths, chunks)
    loading_s = time.perf_counter() - start
    ours_s, theirs_s, differences = [], [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ours = average_precision(predictions, truths, chunks)
        middle = time.perf_counter()
        theirs = coco_average_precision(COCOeval_faster, *dataset)
        ours_s.append(middle - start)
        theirs_s.append(time.perf_counter() - middle)
        differences.append(abs(ours - theirs))
    for seed in range(1, 1 + SMALL_CASES):
        boxes = made_boxes(50, seed)
        theirs = coco_average_precision(COCOeval_faster, *coco_dataset(COCO, *boxes, 50))
        differences.append(abs(average_precision(*boxes, 50) - theirs))
    return {
        "chunks": chunks,
        "predictions": len(predictions),
        "truths": len(truths),
        "average_precision": ours,
        "max_ap_difference": max(differences),
        "ratio_to_coco_eval": round(min(ours_s) / min(theirs_s), 4),
        "seconds": round(min(ours_s), 3),
        "coco_eval_seconds": round(min(theirs_s), 3),
        "coco_eval_loading_seconds": round(loading_s, 3),
        "cases_compared": 1 + SMALL_CASES,
        "rounds": ROUNDS,
        "peak_mb": weighed_mb("parts", chunks),
        "peak_mb_at_a_tenth": weighed_mb("parts", chunks // 10),
        "peak_mb_of_imports": weighed_mb("imports", 0),
        "coco_eval_peak_mb": weighed_mb("coco_eval", chunks),
    }


def made_boxes(chunks: int, seed: int) -> tuple[Boxes, Boxes]:
    """Truths anywhere in their chunks; predictions are such truths moved and stretched, the less the higher the score."""
    rng = np.random.default_rng(seed)
    size = np.array([FRAMES, BINS])
    truth_chunk = np.sort(rng.integers(chunks, size=chunks * TRUTHS))
    middle = rng.random((len(truth_chunk), 2)) * size
    half = (0.01 + 0.1 * rng.random((len(truth_chunk), 2))) * size
    source = np.sort(rng.integers(len(truth_chunk), size=chunks * PREDICTIONS))
    blur = rng.exponential(0.3, len(source))
    moved = middle[source] + half[source] * blur[:, None] * rng.normal(size=(len(source), 2))
    stretched = half[source] * np.exp(blur[:, None] * rng.normal(size=(len(source), 2)))
    score: Floats = np.exp(-blur - 0.3 * rng.exponential(size=len(source)))
    bounds = np.hstack([moved - stretched, moved + stretched])
    predictions = Boxes(truth_chunk[source], bounds, score.round(4))  # some scores are equal
    return predictions, Boxes(truth_chunk, np.hstack([middle - half, middle + half]))


def average_precision(predictions: Boxes, truths: Boxes, chunks: int) -> float:
    """COCO's average precision at IoU 0.5 by our functions."""
    matches = match(predictions, truths)
    assert predictions.score is not None
    return ap_101_points(
        Ranking.of(predictions.score, matches.overlap, predictions.group, truths.group, chunks)
    )


def coco_dataset(api: type, predictions: Boxes, truths: Boxes, chunks: int) -> tuple[Any, Any]:
    """Truths and predictions as the COCO classes of an `api` hold them; a chunk is an image."""
    true, predicted = api(), api()
    for coco, boxes in ((true, truths), (predicted, predictions)):
        sizes = boxes.bounds[:, 2:] - boxes.bounds[:, :2]
        scores = np.zeros(len(boxes)) if boxes.score is None else boxes.score
        rows = np.hstack([boxes.bounds[:, :2], sizes]).tolist()
        coco.dataset = {
            "images": [{"id": chunk, "width": FRAMES, "height": BINS} for chunk in range(chunks)],
            "categories": [{"id": 1, "name": "animal"}],
            "annotations": [
                {"id": number, "image_id": chunk, "category_id": 1, "bbox": row, "area": row[2] * row[3]}
                | {"iscrowd": 0, "score": score}
                for number, (chunk, row, score) in enumerate(
                    zip(boxes.group.tolist(), rows, scores.tolist(), strict=True), start=1
                )
            ],
        }
        coco.createIndex()
    return true, predicted


def coco_average_precision(evaluator: type, true: Any, predicted: Any) -> float:
    """Average precision at IoU 0.5 over boxes of any size by a COCO evaluator; -1 without truths."""
    evaluation = evaluator(true, predicted, iouType="bbox")
    evaluation.params.iouThrs = np.array([0.5])
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
    evaluation.params.maxDets = [max(map(len, predicted.imgToAnns.values()), default=1)]  # all of them
    evaluation.evaluate()
    evaluation.accumulate()
    return float(np.mean(evaluation.eval["precision"]))


def parts(chunks: int) -> Iterator[tuple[Floats, Floats, Integers, Integers]]:
    """Score, overlap and chunk of predictions, and chunk of truths, of some chunks after the other."""
    for first in range(0, chunks, CHUNKS_AT_ONCE):
        predictions, truths = made_boxes(min(CHUNKS_AT_ONCE, chunks - first), seed=first)
        assert predictions.score is not None
        overlap = match(predictions, truths).overlap
        yield predictions.score, overlap, predictions.group + first, truths.group + first


def in_parts(chunks: int) -> None:
    score, overlap, chunk, truth_chunk = (np.concatenate(part) for part in zip(*parts(chunks), strict=True))
    ap_101_points(Ranking.of(score, overlap, chunk, truth_chunk, chunks))


def by_coco_eval(chunks: int) -> None:
    from faster_coco_eval import COCO, COCOeval_faster

    coco_average_precision(COCOeval_faster, *coco_dataset(COCO, *made_boxes(chunks, seed=0), chunks))


WEIGHED: dict[str, Callable[[int], None]] = {
    "parts": in_parts,
    "coco_eval": by_coco_eval,
    "imports": lambda chunks: None,
}


def weighed_mb(job: str, chunks: int) -> int:
    """Most memory of a fresh process that does one of the jobs."""
    command = [sys.executable, "-m", "benchmarks.evaluate", "--weigh", job, "--chunks", str(chunks)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return round(float(done.stdout.split()[-1]))


if __name__ == "__main__":
    main()
