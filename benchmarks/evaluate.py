"""Compare matching and average precision with faster-coco-eval: same result, time and memory.

    python -m benchmarks.evaluate                  100,000 chunks; writes benchmarks/results/evaluate.json
    python -m benchmarks.evaluate --chunks 300     a small version

Each chunk has ten predictions and four annotations on average, so the full run has a million predictions. Both sides
start from their own input: arrays for MAST, a loaded and indexed dataset for faster-coco-eval, whose loading is timed
separately. faster-coco-eval computes one IoU, one range of areas and one number of detections. Rounds alternate; the
best round counts.

Memory is measured in separate processes that generate and match `CHUNKS_PER_BLOCK` chunks at a time, and keep the inputs
of the metrics: score, overlap and chunk of each prediction. It is reported beside the memory of the imports only, and of
faster-coco-eval, which needs all boxes at once.
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
from mast.evaluation.matching import GroupedBoxes, match
from mast.evaluation.metrics import RankedPredictions, average_precision_coco
from mast.types import Floats, Integers

CHUNKS = 100_000
PREDICTIONS, ANNOTATIONS = 10, 4
CHUNKS_PER_BLOCK = 2_000
ROUNDS = 3
SMALL_CASES = 30  # also compared, by average precision only
FRAMES, BINS = 1024, 128


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--out", type=Path, default=FOLDER / "evaluate.json")
    parser.add_argument("--memory", choices=MEMORY_JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        MEMORY_JOBS[options.memory](options.chunks)
        print(peak_mb())
        return
    metrics = measure(options.chunks)
    write_result(options.out, metrics, ("numpy", "faster-coco-eval"))
    print(
        f"{metrics['ratio_to_coco_eval']} of faster-coco-eval's time, "
        f"AP at most {metrics['max_ap_difference']:.0e} off, {metrics['peak_mb']} MB → {options.out}"
    )


def measure(chunks: int) -> dict[str, Any]:
    """Time both alternately on the same boxes; measure our memory at a tenth and at full size."""
    from faster_coco_eval import COCO, COCOeval_faster

    predictions, ground_truth = random_boxes(chunks, seed=0)
    start = time.perf_counter()
    dataset = coco_dataset(COCO, predictions, ground_truth, chunks)
    loading_s = time.perf_counter() - start
    ours_s, theirs_s, differences = [], [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ours = average_precision(predictions, ground_truth, chunks)
        middle = time.perf_counter()
        theirs = coco_average_precision(COCOeval_faster, *dataset)
        ours_s.append(middle - start)
        theirs_s.append(time.perf_counter() - middle)
        differences.append(abs(ours - theirs))
    for seed in range(1, 1 + SMALL_CASES):
        boxes = random_boxes(50, seed)
        theirs = coco_average_precision(COCOeval_faster, *coco_dataset(COCO, *boxes, 50))
        differences.append(abs(average_precision(*boxes, 50) - theirs))
    return {
        "chunks": chunks,
        "predictions": len(predictions),
        "annotations": len(ground_truth),
        "average_precision": ours,
        "max_ap_difference": max(differences),
        "ratio_to_coco_eval": round(min(ours_s) / min(theirs_s), 4),
        "seconds": round(min(ours_s), 3),
        "coco_eval_seconds": round(min(theirs_s), 3),
        "coco_eval_loading_seconds": round(loading_s, 3),
        "cases_compared": 1 + SMALL_CASES,
        "rounds": ROUNDS,
        "peak_mb": peak_memory_mb("parts", chunks),
        "peak_mb_at_a_tenth": peak_memory_mb("parts", chunks // 10),
        "peak_mb_of_imports": peak_memory_mb("imports", 0),
        "coco_eval_peak_mb": peak_memory_mb("coco_eval", chunks),
    }


def random_boxes(chunks: int, seed: int) -> tuple[GroupedBoxes, GroupedBoxes]:
    """Return predictions and annotations: predictions are shifted, scaled annotations, closer at higher scores."""
    rng = np.random.default_rng(seed)
    size = np.array([FRAMES, BINS])
    truth_chunk = np.sort(rng.integers(chunks, size=chunks * ANNOTATIONS))
    middle = rng.random((len(truth_chunk), 2)) * size
    half = (0.01 + 0.1 * rng.random((len(truth_chunk), 2))) * size
    source = np.sort(rng.integers(len(truth_chunk), size=chunks * PREDICTIONS))
    blur = rng.exponential(0.3, len(source))
    moved = middle[source] + half[source] * blur[:, None] * rng.normal(size=(len(source), 2))
    stretched = half[source] * np.exp(blur[:, None] * rng.normal(size=(len(source), 2)))
    score: Floats = np.exp(-blur - 0.3 * rng.exponential(size=len(source)))
    bounds = np.hstack([moved - stretched, moved + stretched])
    predictions = GroupedBoxes(truth_chunk[source], bounds, score.round(4))  # some scores are equal
    return predictions, GroupedBoxes(truth_chunk, np.hstack([middle - half, middle + half]))


def average_precision(predictions: GroupedBoxes, ground_truth: GroupedBoxes, chunks: int) -> float:
    """Return COCO's average precision at IoU 0.5, computed by MAST."""
    matches = match(predictions, ground_truth)
    assert predictions.score is not None
    return average_precision_coco(
        RankedPredictions.of(
            predictions.score, matches.overlap, predictions.group, ground_truth.group, chunks
        )
    )


def coco_dataset(
    api: type, predictions: GroupedBoxes, ground_truth: GroupedBoxes, chunks: int
) -> tuple[Any, Any]:
    """Return annotations and predictions as objects of a COCO `api`; a chunk is an image."""
    true, predicted = api(), api()
    for coco, boxes in ((true, ground_truth), (predicted, predictions)):
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
    """Return the average precision at IoU 0.5 over boxes of any size by a COCO evaluator; -1 without annotations."""
    evaluation = evaluator(true, predicted, iouType="bbox")
    evaluation.params.iouThrs = np.array([0.5])
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
    evaluation.params.maxDets = [max(map(len, predicted.imgToAnns.values()), default=1)]  # all of them
    evaluation.evaluate()
    evaluation.accumulate()
    return float(np.mean(evaluation.eval["precision"]))


def parts(chunks: int) -> Iterator[tuple[Floats, Floats, Integers, Integers]]:
    """Yield score, overlap and chunk of predictions, and chunk of annotations, block by block."""
    for first in range(0, chunks, CHUNKS_PER_BLOCK):
        predictions, ground_truth = random_boxes(min(CHUNKS_PER_BLOCK, chunks - first), seed=first)
        assert predictions.score is not None
        overlap = match(predictions, ground_truth).overlap
        yield predictions.score, overlap, predictions.group + first, ground_truth.group + first


def in_parts(chunks: int) -> None:
    score, overlap, chunk, truth_chunk = (np.concatenate(part) for part in zip(*parts(chunks), strict=True))
    average_precision_coco(RankedPredictions.of(score, overlap, chunk, truth_chunk, chunks))


def by_coco_eval(chunks: int) -> None:
    from faster_coco_eval import COCO, COCOeval_faster

    coco_average_precision(COCOeval_faster, *coco_dataset(COCO, *random_boxes(chunks, seed=0), chunks))


MEMORY_JOBS: dict[str, Callable[[int], None]] = {
    "parts": in_parts,
    "coco_eval": by_coco_eval,
    "imports": lambda chunks: None,
}


def peak_memory_mb(job: str, chunks: int) -> int:
    """Return the peak memory of a new process that runs one of the jobs."""
    command = [sys.executable, "-m", "benchmarks.evaluate", "--memory", job, "--chunks", str(chunks)]
    root = Path(__file__).parents[1]
    process = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return round(float(process.stdout.split()[-1]))


if __name__ == "__main__":
    main()
