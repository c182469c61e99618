"""Active learning on real recordings: compare two review queues over several rounds.

    python -m experiments.active_learning DATA --start MODEL       writes experiments/results/active_learning.json
    python -m experiments.active_learning --picture active_learning.png

A detector is trained on five annotated minutes of the BIRDeep recorder AM1. Four rounds follow: the detector processes
the other minutes of the first days, a simulated reviewer reviews one more minute, in spans of 20 s, and the detector is
trained again on all annotations. The reviewer has the ground truth, and corrects, rejects and adds boxes until a span is
right. Two reviewers differ only in the spans of their queue: the most uncertain ones, spread over hours and days, or the
next ones in time. Both detectors are tested on later days, which are never reviewed.

Every step is a command of MAST or its function. Finished steps are skipped. `--start` is a model that initialises every
training, such as one from `mast train-synthetic`.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import yaml
from benchmarks.results import write_result
from matplotlib.figure import Figure
from typer.testing import CliRunner

from experiments.soundscapes.sources import read_rows
from mast.box_ops import box_iou
from mast.cli import app
from mast.config import Study, Train, load_study
from mast.datasets.annotation_sampling import sample_spans, unlabelled_spans
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import detection_dataset
from mast.evaluation.evaluate import evaluate_study
from mast.plotting.curves import COLOURS, GRID, HEIGHT_IN, WIDTH_IN
from mast.records import event_id
from mast.review.event_table import BOX_COLUMNS, processed_recordings, run_events
from mast.review.queues.basic import QueueItem
from mast.review.queues.minutes import minutes
from mast.review.read_verdicts import FIELD_NAMES, read_verdicts
from mast.review.verdicts import REVIEW_DATABASE, Verdict, latest_verdicts
from mast.runs.results import open_results
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.run_dir import TrainingRun
from mast.training.supervised import train_study

RESULT = Path(__file__).parent / "results" / "active_learning.json"
FIRST = 5
"""Number of one-minute recordings that are annotated before the first round."""

HELD_FROM = "2023-05-15"
TEST = "later_days"
SPAN_S, SPANS_PER_ROUND = 20.0, 3
MIN_SCORE = 0.05
SAME_IOU = 0.3
"""Minimum IoU at which the reviewer corrects a box to an annotation; the annotations themselves are loose."""

METRICS = ("f1", "precision", "recall", "average_precision")
FIGURE_DPI = 120
GroundTruth = Mapping[str, "np.ndarray[Any, np.dtype[np.float64]]"]


@dataclass(frozen=True, slots=True)
class Round:
    """Input of a queue: the study, the events, the processed recordings and the verdicts of all rounds so far."""

    study: Study
    events: pa.Table
    processed: pa.Table
    verdicts: Mapping[str, Verdict]


def uncertain_minutes(current: Round) -> list[QueueItem]:
    """Return items of the queue `uncertain-minutes` of `mast review`."""
    return minutes(
        current.events,
        current.verdicts,
        SPANS_PER_ROUND,
        processed=current.processed,
        priority="uncertain",
        span_s=SPAN_S,
    )


def sequential(current: Round) -> list[QueueItem]:
    """Return the next spans in time, as `mast sample --strategy sequential` does."""
    spans = sample_spans(
        unlabelled_spans(current.study, SPAN_S),
        SPANS_PER_ROUND * SPAN_S / 3600,
        "sequential",
        current.study.splits.seed,
    )
    return [QueueItem(span.recording_id, span.start_s, span.end_s, (), "next in time") for span in spans]


REVIEWERS: dict[str, Callable[[Round], list[QueueItem]]] = {
    "uncertain-minutes": uncertain_minutes,
    "sequential": sequential,
}


def main() -> None:
    """Run every missing round and write the result; or plot an existing result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--work", type=Path, default=Path("active_learning"))
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--start", help="model that initialises every training")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--picture", type=Path, help="only plot the results of --out into this file")
    options = parser.parse_args()
    if options.picture:
        plot_rounds(json.loads(options.out.read_text("utf-8"))).savefig(options.picture, dpi=FIGURE_DPI)
        return
    if options.data is None:
        raise SystemExit("DATA is missing: the folder that contains birdeep-am1.")
    reviewers: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in REVIEWERS}
    for seed in options.seeds:
        loop = Loop(options.data.absolute(), options.work.absolute() / str(seed), options, seed)
        for name in REVIEWERS:
            reviewers[name][str(seed)] = loop.rounds(name)
    settings = {
        "steps": options.steps,
        "rounds": options.rounds,
        "span_s": SPAN_S,
        "from_checkpoint": bool(options.start),
    }
    write_result(options.out, {"reviewers": reviewers, **settings}, ("torch", "timm", "numpy"))


@dataclass(frozen=True)
class Loop:
    """The rounds of one seed, in one folder."""

    data: Path
    folder: Path
    options: argparse.Namespace
    seed: int

    def rounds(self, reviewer: str) -> list[dict[str, Any]]:
        """Return the metrics of the first training and of each round of a reviewer."""
        initial, folder = self.folder / "initial", self.folder / reviewer
        first = self.train(self.study_file(initial), initial / "rounds" / "0")
        if not folder.exists():
            shutil.copytree(initial, self.folder / f".{reviewer}", dirs_exist_ok=True)
            (self.folder / f".{reviewer}").rename(folder)
        results = [first]
        for number in range(1, self.options.rounds + 1):
            round_folder = folder / "rounds" / str(number)
            if not (round_folder / "evaluation" / "results.json").exists():
                self.review(reviewer, folder, number)
            results.append(self.train(folder / "study.yaml", round_folder))
            print(self.seed, reviewer, number, results[-1], flush=True)
        return results

    def study_file(self, folder: Path) -> Path:
        """Return the study file with five annotated minutes; prepare the study if necessary."""
        path = folder / "study.yaml"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            source = self.data / "birdeep-am1"
            annotations = initial_annotations(source, folder / "first.csv")
            draft = path.with_suffix(".draft.yaml")
            draft.write_text(yaml.safe_dump(study_settings(source, annotations, self)), encoding="utf-8")
            for command in ("scan", "split", "prepare"):
                run_mast(command, str(draft))
            draft.rename(path)
        return path

    def train(self, study_file: Path, folder: Path) -> dict[str, Any]:
        """Train on the study's current annotations, unless that is done, and test on later days."""
        study = load_study(study_file)
        chunks = detection_dataset(study, AudioStore(require_artifact(study, STORE)), "train").chunks
        if not (folder / "evaluation" / "results.json").exists():
            changed = {"init_from": self.options.start, "seed": self.seed}
            changed |= schedule(self.options.steps, len(chunks), study.train)
            changed_study = study.model_copy(update={"train": study.train.model_copy(update=changed)})
            train_study(changed_study, TrainingRun(folder))
            evaluate_study(changed_study, str(TrainingRun(folder).model), str(folder / "evaluation"), [TEST])
            boxes = sum(map(len, chunks.boxes(np.arange(len(chunks)))))
            counts = {"chunks": len(chunks), "boxes": boxes}
            (folder / "training_data.json").write_text(json.dumps(counts), "utf-8")
        (test_set,) = json.loads((folder / "evaluation" / "results.json").read_text("utf-8"))["sets"]
        matched = test_set["matching_modes"]["iou"]
        return {
            **json.loads((folder / "training_data.json").read_text("utf-8")),
            "max_f1": matched["max_f1"],
            **{name: matched["metrics"][name] for name in METRICS},
        }

    def review(self, reviewer: str, folder: Path, number: int) -> None:
        """Run one round of a reviewer: detect, select spans, review them, and add the annotations to the study."""
        study_file, events = folder / "study.yaml", folder / "rounds" / str(number) / "events"
        model = TrainingRun(folder / "rounds" / str(number - 1)).model
        options = ["--min-score", str(MIN_SCORE), "--workers", "1", "--device", "cpu"]
        run_mast("detect", str(study_file), "--model", str(model), "--out", str(events), *options)
        if not (events / REVIEW_DATABASE).exists():
            study, results = load_study(study_file), open_results(str(events))
            databases = sorted(folder.glob(f"rounds/*/events/{REVIEW_DATABASE}"))
            verdicts = latest_verdicts(
                verdict for database in databases for verdict in read_verdicts(str(database))
            )
            table, processed = run_events(results), reviewable(processed_recordings(results), study)
            queue = REVIEWERS[reviewer](Round(study, table, processed, verdicts))
            write_verdicts(events / REVIEW_DATABASE, review_spans(queue, table, read_ground_truth(self.data)))
        run_mast("apply-review", str(study_file), str(events))


def initial_annotations(source: Path, target: Path) -> Path:
    """Write the annotations of the first recordings in time, and of the later days, which are only for the test."""
    tables = [read_rows(source / name) for name in ("annotations.csv", "no_bird_markers.csv")]
    names = sorted(path.name for path in (source / "audio").glob("*.flac"))  # AM1_20230510_073000.flac …
    later = [name for name in names if name.split("_")[1] >= HELD_FROM.replace("-", "")]
    labelled = {*names[:FIRST], *later}
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(tables[0][0]))
        writer.writeheader()
        writer.writerows(row for table in tables for row in table if row["recording"] in labelled)
    return target


def study_settings(source: Path, annotations: Path, loop: Loop) -> dict[str, Any]:
    """Return the study's settings: later days held out, and no in-domain test because annotations are few."""
    return {
        "preset": "laptop",
        "work_dir": "work",
        "collections": {"am1": {"root": str(source / "audio"), "time_zone": "Europe/Madrid"}},
        "annotations": [{"path": str(annotations), "format": "csv"}],
        "labels": {"animal": ["*"], "noise": ["No audio"]},
        "chunking": {"chunk_s": 5.12, "hop_s": 2.56},
        "normalisation": "band-median",
        "model": {"adapter": "upsampling"},
        "train": {"synthetic_fraction": 0, "min_steps": 0},
        "splits": {
            "train": 0.8,
            "val": 0.2,
            "test": 0.0,
            "block_s": 60,
            "guard_s": 5.12,
            "seed": loop.seed,
            "held_out": {TEST: {"from_date": HELD_FROM}},
        },
    }


def schedule(steps: int, chunks: int, settings: Train) -> dict[str, Any]:
    """Return the number of epochs for `steps`, a warm-up of 5 % of them, and unfreezing at every 10 %."""
    epochs = max(1, round(steps / max(1, chunks // min(settings.batch_size, max(1, chunks)))))
    tenth = max(1, epochs // 10)
    unfreezing = {"start_epoch": tenth, "interval_epochs": tenth}
    return {
        "epochs": epochs,
        "warmup_epochs": epochs / 20,
        "plot_every_epochs": max(1, epochs // 5),
        "unfreezing": settings.unfreezing.model_copy(update=unfreezing),
    }


def reviewable(processed: pa.Table, study: Study) -> pa.Table:
    """Return the processed recordings of the first days that have unlabelled spans."""
    names = sorted({span.recording_id for span in unlabelled_spans(study, SPAN_S)})
    return processed.filter(pc.is_in(processed["recording_id"], value_set=pa.array(names, pa.string())))


def read_ground_truth(data: Path) -> GroundTruth:
    """Read the annotations by recording: start_s, low_hz, end_s, high_hz. (N, 4) each"""
    rows = read_rows(data / "birdeep-am1" / "annotations.csv")
    boxes: dict[str, list[list[float]]] = {}
    for row in rows:
        boxes.setdefault(f"am1/{row['recording']}", []).append([float(row[name]) for name in BOX_COLUMNS])
    return {name: np.array(bounds) for name, bounds in boxes.items()}


def review_spans(queue: Sequence[QueueItem], events: pa.Table, ground_truth: GroundTruth) -> list[Verdict]:
    """Return a perfect reviewer's verdicts: every event is corrected or rejected, every missed annotation is added."""
    verdicts: list[Verdict] = []
    rows = events.to_pylist()
    for item in queue:
        visible = [row for row in rows if row["recording_id"] == item.recording_id and _is_inside(row, item)]
        annotated = ground_truth.get(item.recording_id, np.zeros((0, 4)))
        annotated = annotated[(annotated[:, 0] < item.end_s) & (annotated[:, 2] > item.start_s)]
        boxes = torch.tensor(
            [[row[name] for name in BOX_COLUMNS] for row in visible], dtype=torch.float64
        ).reshape(-1, 4)
        iou = box_iou(boxes, torch.from_numpy(annotated)).numpy()  # (events, annotations)
        matched: set[int] = set()
        for row, overlap in zip(visible, iou, strict=True):
            best = int(overlap.argmax()) if len(overlap) else -1
            is_correct = best >= 0 and overlap[best] >= SAME_IOU and best not in matched
            matched |= {best} if is_correct else set()
            box = annotated[best].tolist() if is_correct else [row[name] for name in BOX_COLUMNS]
            state = "accepted" if is_correct else "rejected"
            verdicts.append(_verdict(row["event_id"], "sound", state, item, box, row["score"]))
        for number in sorted(set(range(len(annotated))) - matched):
            start_s, low_hz, end_s, high_hz = annotated[number].tolist()
            name = "drawn " + event_id(item.recording_id, start_s, end_s, low_hz, high_hz)
            verdicts.append(_verdict(name, "sound", "accepted", item, annotated[number].tolist(), None))
        name = f"span {item.recording_id} {item.start_s:g}"
        verdicts.append(
            _verdict(name, "span", "accepted", item, [item.start_s, None, item.end_s, None], None)
        )
    return list(latest_verdicts(verdicts).values())


def _is_inside(row: Mapping[str, Any], item: QueueItem) -> bool:
    return bool(row["start_s"] < item.end_s and row["end_s"] > item.start_s)


def _verdict(
    event_id: str, kind: Any, state: Any, item: QueueItem, box: Sequence[float | None], score: float | None
) -> Verdict:
    start_s, low_hz, end_s, high_hz = box
    return Verdict(
        number=0,
        event_id=event_id,
        version=1,
        kind=kind,
        state=state,
        recording_id=item.recording_id,
        start_s=start_s or 0.0,
        end_s=end_s or 0.0,
        low_hz=low_hz,
        high_hz=high_hz,
        label=None,
        score=score,
        model=None,
        user="expert",
        created_at=datetime.now(UTC),
    )


def write_verdicts(location: Path, verdicts: Sequence[Verdict]) -> None:
    """Write verdicts in the format of `mast review`; the database is renamed into place when it is complete."""
    partial = location.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    connection = sqlite3.connect(partial)
    with connection:
        connection.execute(f"CREATE TABLE verdicts ({', '.join(FIELD_NAMES)})")
        for number, verdict in enumerate(verdicts, start=1):
            values = dict(zip(FIELD_NAMES, astuple(verdict), strict=True))
            row = tuple((values | {"number": number, "created_at": verdict.created_at.isoformat()}).values())
            connection.execute(f"INSERT INTO verdicts VALUES ({', '.join('?' * len(FIELD_NAMES))})", row)
    connection.close()
    partial.rename(location)


def run_mast(*arguments: str) -> None:
    """Run a command of MAST; exit if it fails."""
    outcome = CliRunner().invoke(app, list(arguments))
    if outcome.exit_code:
        raise SystemExit(f"mast {' '.join(arguments)}\n{outcome.output}{outcome.exception}")


def plot_rounds(result: Mapping[str, Any]) -> Figure:
    """Plot F1 and AP on later days (y) by annotated minutes (x): a line per reviewer, averaged over seeds."""
    figure = Figure(figsize=(2 * WIDTH_IN, HEIGHT_IN), layout="constrained")
    titles = {"f1": "F1 at the validation threshold", "average_precision": "Average precision"}
    for axes, (name, title) in zip(figure.subplots(1, len(titles)), titles.items(), strict=True):
        for colour, (reviewer, seeds) in zip(COLOURS, result["reviewers"].items(), strict=False):
            values = np.array([[_value(row[name]) for row in rounds] for rounds in seeds.values()])
            minutes_annotated = FIRST + np.arange(values.shape[1]) * SPANS_PER_ROUND * SPAN_S / 60
            axes.plot(
                minutes_annotated, values.mean(axis=0), color=colour, marker="o", markersize=4, label=reviewer
            )
            for row in values if len(values) > 1 else ():
                axes.plot(minutes_annotated, row, color=colour, linewidth=0.6, alpha=0.5)
            axes.set_xticks(minutes_annotated)
        axes.set_xlabel("Annotated minutes", fontsize=9)
        axes.set_ylabel(title, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.tick_params(labelsize=8, length=0)
        axes.legend(fontsize=8, frameon=False, loc="best")
        for side in axes.spines.values():
            side.set_visible(False)
    return figure


def _value(metric: Mapping[str, float | None]) -> float:
    """Return a metric without its bounds; 0 if it is undefined."""
    return metric["value"] or 0.0


if __name__ == "__main__":
    main()
