"""Compare the recommended method, baselines and pretrained detectors on real annotated recordings.

    python -m experiments.real_recordings DATA --start shift/small       writes experiments/results/real_recordings.json

Rows are methods of the shift benchmark with the same settings. `joint_synthetic_hybrid`, the recommended method, starts
from random weights and is trained on a study's few annotations and on synthetic calls in its annotated background chunks.
`synthetic_then_labels` starts from a detector trained on synthetic calls in the benchmark's unlabelled soundscapes.
`transfer_hybrid` starts from the benchmark's `joint_synthetic_hybrid`, which was also trained on the annotations of its
soundscapes. `synthetic_then_labels_selftrain` is trained on a study's annotations for half of the steps and then
self-trained on its pool. `scratch` and `fcos_band_median` start from random weights; `energy` fits two thresholds. All
other methods take at least as many steps on a study as `synthetic_then_labels_selftrain`; steps of an initial detector
are not included.

Training uses the first two days of birdeep-am1, and the first site of boobook with all its days: the in-domain
recordings of the boobook study's own splits have seven boxes, too few for training and for a threshold. An in-domain
test would have one or two recordings, so there is none, and 30 % of the annotated recordings are validation. Tests
use other days of birdeep-am1, near and far, and other sites of boobook. All recordings of these studies are
annotated, so there is no unlabelled pool: while one of the two sets is tested, the other is the pool with its
annotations hidden, and no detector is trained on its test recordings. `both` pools the two test sets.

`--start` is the folder of a benchmark from `experiments.shift.run`; without it the benchmark is created, which takes
about an hour. Finished parts are skipped, and rows that are not requested stay in a result file of the same number of
steps. The inputs of the tables are archived in a folder beside it, which collects rows of several machines.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet as pq
from benchmarks.results import write_result

from experiments.active_learning import run_mast
from experiments.baselines.evaluate import evaluate_baseline
from experiments.baselines.train import train_baseline
from experiments.shift.archive import archive_evaluations, threshold_of
from experiments.shift.methods import METHODS, Method
from experiments.shift.run import (
    RESULTS,
    Benchmark,
    archive_folder,
    print_progress,
    print_stage,
    read_earlier,
    require_finished,
)
from experiments.shift.summary import mean_interval, with_bounds
from experiments.soundscapes.sites import SIZES
from mast.config import Chunking, DetectorStage, Study, dump_study, load_study
from mast.datasets.split_table import SPLITS_TABLE, require_artifact
from mast.datasets.study_datasets import TRAIN, detection_dataset
from mast.errors import TrainingError
from mast.evaluation.compare import ranking_of
from mast.evaluation.evaluate import evaluate_study
from mast.evaluation.metrics import RankedPredictions, max_f1_threshold
from mast.evaluation.set_metrics import AT_THRESHOLD, OVER_ALL
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.pseudo_labels import read_pool
from mast.training.run_dir import TrainingRun
from mast.training.selftrain import CURRICULA, selftrain_study
from mast.training.supervised import train_study
from mast.training.training_data import epoch_size

Stage = TypeVar("Stage", bound=DetectorStage)
CONFIGS = Path(__file__).parents[1] / "configs"
ROWS = (
    "energy",
    "fcos_band_median",
    "scratch",
    "synthetic_then_labels",
    "synthetic_then_labels_selftrain",
    "joint_synthetic_hybrid",
    "transfer_hybrid",
)
PAIRS = (
    ("joint_synthetic_hybrid", "energy"),
    ("joint_synthetic_hybrid", "fcos_band_median"),
    ("joint_synthetic_hybrid", "scratch"),
    ("synthetic_then_labels", "energy"),
    ("synthetic_then_labels", "scratch"),
    ("synthetic_then_labels_selftrain", "synthetic_then_labels"),
    ("transfer_hybrid", "energy"),
    ("transfer_hybrid", "scratch"),
    ("transfer_hybrid", "synthetic_then_labels"),
    ("transfer_hybrid", "joint_synthetic_hybrid"),
)
CHECKPOINT_METHOD = "joint_synthetic_hybrid"
"""Method whose benchmark cell of seed 0 is the checkpoint of methods that start from one."""

BOTH = "both"
COMPARED = ("f1", "max_f1", "average_precision")
SPLIT_FRACTIONS = {"splits.train": 0.7, "splits.val": 0.3, "splits.test": 0}
REVIEWED = ("recording", "start_s", "end_s")
"""Columns of a table of reviewed recordings; empty times mean the complete recording."""

PACKAGES = ("torch", "torchvision", "timm", "numpy")


@dataclass(frozen=True, slots=True)
class Source:
    """A study in `configs/`: its collection, its data folder, and the two held-out test sets."""

    collection: str
    folder: str
    tested: tuple[str, str]


SOURCES = {
    "birdeep-am1": Source("am1", "birdeep-am1", ("temporal_shift_near", "temporal_shift_far")),
    "boobook": Source("qut", "qut-boobook", ("site_shift_near", "site_shift_far")),
}


@dataclass(frozen=True, slots=True)
class Detector:
    """A row's model, its steps on the study, and the error if self-training was not possible."""

    model: Path
    steps: int = 0
    selftrain_error: str | None = None


@dataclass(frozen=True, slots=True)
class SetPredictions:
    """A row's predictions on a test set: those above its threshold, and all."""

    at_threshold: RankedPredictions
    complete: RankedPredictions


def main() -> None:
    """Train and evaluate every row of every study, and write metrics with intervals over recordings."""
    options = _options()
    folder = options.start or options.work / "shift" / options.size
    benchmark = Benchmark(options.data, folder.absolute(), options.size, tuple(options.sets))
    methods = dict.fromkeys(METHODS[row].teacher or row for row in options.rows)
    starts = {name: start for name in methods if (start := initial_run(benchmark, METHODS[name]))}
    models = {name: start.model for name, start in starts.items()}
    chunking = load_study(benchmark.study_file).chunking
    before = read_earlier(options.out, steps=options.steps)
    studies: dict[str, Any] = before.get("studies", {})
    for name in options.studies:
        experiment = StudyExperiment(
            name=name,
            data=options.data.absolute(),
            folder=options.work.absolute() / name,
            archive=archive_folder(options.out) / f"{options.steps}_steps" / name,
            chunking=chunking,
            starts=models,
            steps=options.steps,
            overrides=options.sets,
        )
        studies[name] = merge_results(studies.get(name, {}), experiment.results(options.rows))
        print(name, json.dumps(studies[name]), flush=True)
    steps = {name: total_steps(start.folder) for name, start in starts.items()}
    settings = {
        "steps": options.steps,
        "start_steps": {**before.get("start_steps", {}), **steps},
        "start_sources": sources_of(folder / "soundscapes" / "world.json"),
    }
    write_result(options.out, {"studies": studies, **settings}, PACKAGES)


def initial_run(benchmark: Benchmark, method: Method) -> TrainingRun | None:
    """Return the run whose model a method starts from, training it in the benchmark if necessary."""
    if method.starts_from_synthetic:
        return benchmark.synthetic_detector(method)
    return TrainingRun(benchmark.cell(CHECKPOINT_METHOD, 0)) if method.from_checkpoint else None


def merge_results(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Merge new results of a study's rows into earlier ones.

    Earlier differences to a row whose metrics changed are dropped.
    """
    rows = before.get("rows", {})
    changed = {row for row, metrics in now["rows"].items() if row in rows and rows[row] != metrics}
    differences = {
        pair: difference
        for pair, difference in before.get("differences", {}).items()
        if not changed & {*pair.split(" - ")}
    }
    kept = {**before, "differences": differences}
    return {part: {**kept.get(part, {}), **values} for part, values in now.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("real_recordings"))
    parser.add_argument("--out", type=Path, default=RESULTS / "real_recordings.json")
    parser.add_argument("--start", type=Path, help="folder of an existing benchmark, such as shift/small")
    parser.add_argument(
        "--size", choices=SIZES, default="small", help="size of the benchmark that is created without --start"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=80,
        help="steps of self-training, and of the training on annotations before it",
    )
    parser.add_argument("--studies", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", dest="sets")
    return parser.parse_args()


@dataclass(frozen=True)
class StudyExperiment:
    """The rows of one study, in one folder; `starts` are the initial models of methods that need one.

    Evaluations are archived in another folder, so that rows of several machines can be compared.
    """

    name: str
    data: Path
    folder: Path
    archive: Path
    chunking: Chunking
    starts: Mapping[str, Path]
    steps: int
    overrides: Sequence[str]

    @property
    def source(self) -> Source:
        """Data source and test sets of the study."""
        return SOURCES[self.name]

    def results(self, rows: Sequence[str]) -> dict[str, Any]:
        """Return the metrics of all archived rows, their paired differences, and the training of the given rows."""
        training: dict[str, dict[str, Any]] = {}
        for row in rows:
            detectors = {tested: self.detector(row, tested) for tested in self.source.tested}
            training[row] = {
                tested: {"steps": detector.steps, "selftrain_error": detector.selftrain_error}
                for tested, detector in detectors.items()
            }
            archive_evaluations(
                {
                    self.evaluate(row, tested, detector): self.archive / row / tested
                    for tested, detector in detectors.items()
                }
            )
        predictions = {row: by_set for row in ROWS if (by_set := self.predictions(row))}
        return {
            "rows": {
                row: {name: all_metrics(test) for name, test in by_set.items()}
                for row, by_set in predictions.items()
            },
            "differences": {
                f"{one} - {other}": {
                    name: metric_differences(predictions[one][name], predictions[other][name])
                    for name in predictions[one]
                }
                for one, other in PAIRS
                if one in predictions and other in predictions
            },
            "training": training,
        }

    def predictions(self, row: str) -> dict[str, SetPredictions]:
        """Return a row's archived predictions on each test set and on both; empty unless both sets are archived."""
        folders = {tested: self.archive / row / tested for tested in self.source.tested}
        if not all((folder / "results.json").exists() for folder in folders.values()):
            return {}
        return with_pooled({tested: read_predictions(folder, tested) for tested, folder in folders.items()})

    def study_file(self, tested: str | None = None) -> Path:
        """Return the prepared study: with both held-out sets, or with the tested set and the other as its pool."""
        path = self.folder / (tested or BOTH) / "study.yaml"
        if not path.exists():
            draft = path.with_name("draft.yaml")
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(dump_study(self._settings(path.parent, tested)), encoding="utf-8")
            for command in ("scan", "split", "prepare"):
                run_mast(command, str(draft))
            draft.rename(path)
        return path

    def _settings(self, folder: Path, tested: str | None) -> Study:
        """Return the study of `configs/` with the audio of the data folder, and the chunking of the benchmark."""
        source = self.data / self.source.folder
        hidden = self._pool(tested) if tested else set()
        tables = [
            copy_without(hidden, source / "annotations.csv", folder / "annotations.csv"),
            copy_without(hidden, source / "recordings.csv", folder / "reviewed.csv", REVIEWED),
        ]
        values = {
            "preset": "laptop",
            "work_dir": folder / "work",
            f"collections.{self.source.collection}.root": source / "audio",
            "annotations": json.dumps([{"path": str(table), "format": "csv"} for table in tables]),
            "chunking.chunk_s": self.chunking.chunk_s,
            "chunking.hop_s": self.chunking.hop_s,
            **SPLIT_FRACTIONS,
        }
        study = load_study(CONFIGS / f"{self.name}.yaml", [f"{key}={value}" for key, value in values.items()])
        names = [tested] if tested else self.source.tested
        held_out = {name: study.splits.held_out[name] for name in names}
        return study.model_copy(update={"splits": study.splits.model_copy(update={"held_out": held_out})})

    def _pool(self, tested: str) -> set[str]:
        """Return the recordings of the set that is not tested, as named in the annotation tables."""
        location = require_artifact(load_study(self.study_file()), SPLITS_TABLE)
        table = pq.read_table(location, columns=["recording_id", "split"]).to_pylist()
        others = {name for name in self.source.tested if name != tested}
        return {row["recording_id"].partition("/")[2] for row in table if row["split"] in others}

    def study(self, method: str, tested: str | None = None) -> Study:
        """Return the study with the settings of a method of the benchmark."""
        start = [f"train.init_from={self.starts[method]}"] if method in self.starts else []
        return load_study(self.study_file(tested), [*METHODS[method].settings, *start, *self.overrides])

    def detector(self, row: str, tested: str) -> Detector:
        """Return a row's detector for a test set, training it if necessary."""
        if row == "synthetic_then_labels_selftrain":
            return self._selftrain(self._train(str(METHODS[row].teacher), self.steps), tested)
        return self._train(row, 2 * self.steps)

    def _train(self, method: str, steps: int) -> Detector:
        """Train a detector on annotations, and on synthetic calls if the method uses them, for about `steps` steps."""
        study, run = self.study(method), TrainingRun(self.folder / "cells" / f"{method}_{steps}")
        labelled = len(detection_dataset(study, AudioStore(require_artifact(study, STORE)), TRAIN).chunks)
        train = with_steps(study.train, steps, epoch_size(labelled, study.train)).model_copy(
            update={"min_steps": 0}
        )
        study = study.model_copy(update={"train": train})
        baseline = METHODS[method].baseline
        train_model = partial(train_baseline, baseline) if baseline else train_study
        require_finished(
            f"{self.name} {run.folder.name}",
            train_model(study, run, "auto", print_progress(f"{self.name} {run.folder.name}")),
        )
        return Detector(run.model, total_steps(run.folder))

    def _selftrain(self, teacher: Detector, tested: str) -> Detector:
        """Self-train a detector on the set that is not tested; return the teacher if self-training raises an error."""
        study = self.study("synthetic_then_labels_selftrain", tested)
        run = TrainingRun(self.folder / "cells" / f"synthetic_then_labels_selftrain_{self.steps}_{tested}")
        store, settings = AudioStore(require_artifact(study, STORE)), study.selftrain
        steps = self.steps // (settings.rounds * len(CURRICULA[settings.curriculum]))
        stages = {
            "pseudo_label_stage": with_steps(
                settings.pseudo_label_stage, steps, len(read_pool(study, store).locations)
            ),
            "supervised_stage": with_steps(
                settings.supervised_stage, steps, len(detection_dataset(study, store, TRAIN).chunks)
            ),
        }
        study = study.model_copy(update={"selftrain": settings.model_copy(update=stages)})
        title = f"{self.name} {run.folder.name}"
        try:
            result = selftrain_study(study, run, str(teacher.model), "auto", print_stage(title))
        except TrainingError as error:
            return replace(teacher, selftrain_error=str(error))
        require_finished(title, result.end)
        return Detector(run.model, teacher.steps + total_steps(run.folder))

    def evaluate(self, row: str, tested: str, detector: Detector) -> Path:
        """Return the folder with the evaluation of a row's detector; evaluate it, without intervals, if necessary."""
        folder = detector.model.parent / "evaluations" / tested
        if not (folder / "results.json").exists():
            study = self.study(row, tested)
            evaluate = evaluate_baseline if METHODS[row].baseline else evaluate_study
            evaluate(study, str(detector.model), str(folder), resamples=0)
        return folder


def copy_without(hidden: Container[str], table: Path, out: Path, columns: Sequence[str] = ()) -> Path:
    """Copy a table, or some of its columns, without the rows of hidden recordings; return `out`."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["recording"] not in hidden]
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return out


def with_steps(settings: Stage, steps: int, chunks: int) -> Stage:
    """Return the settings of a stage with about `steps` steps; all durations in epochs are scaled by the same factor."""
    steps_per_epoch, unfreezing = chunks // min(settings.batch_size, chunks), settings.unfreezing
    factor = steps / (settings.epochs * steps_per_epoch)
    scaled = {
        "start_epoch": round(unfreezing.start_epoch * factor),
        "interval_epochs": max(1, round(unfreezing.interval_epochs * factor)),
    }
    return settings.model_copy(
        update={
            "epochs": max(1, round(settings.epochs * factor)),
            "warmup_epochs": settings.warmup_epochs * factor,
            "plot_every_epochs": max(1, round(settings.plot_every_epochs * factor)),
            "unfreezing": unfreezing.model_copy(update=scaled),
        }
    )


def total_steps(folder: Path) -> int:
    """Return the total steps of all runs below a folder."""
    return sum(TrainingRun(path.parent).read()[-1]["step"] for path in folder.rglob("metrics.jsonl"))


def sources_of(world: Path) -> dict[str, list[str]]:
    """Return the source datasets of the calls and of the backgrounds in a benchmark's soundscapes."""
    days = json.loads(world.read_text("utf-8"))["days"]
    kinds = {"calls": "sources", "backgrounds": "backgrounds"}
    return {
        kind: sorted({name.partition("/")[0] for day in days for name in day[field]})
        for kind, field in kinds.items()
    }


def read_predictions(folder: Path, tested: str) -> SetPredictions:
    """Read the predictions of an evaluation."""
    complete = ranking_of(str(folder), tested)
    return SetPredictions(complete.with_min_score(threshold_of(folder)), complete)


def with_pooled(parts: Mapping[str, SetPredictions]) -> dict[str, SetPredictions]:
    """Return the test sets, and all of them pooled under the name `both`."""
    tests = parts.values()
    pooled = SetPredictions(
        pool_rankings([test.at_threshold for test in tests]), pool_rankings([test.complete for test in tests])
    )
    return {**parts, BOTH: pooled}


def pool_rankings(rankings: Sequence[RankedPredictions]) -> RankedPredictions:
    """Pool rankings of different recordings into one."""
    counts = np.concatenate([ranking.ground_truth for ranking in rankings])
    first = np.cumsum([0, *(len(ranking.ground_truth) for ranking in rankings)])
    score, overlap, unit = (
        np.concatenate(columns)
        for columns in zip(
            *(
                (ranking.score, ranking.overlap, ranking.unit + offset)
                for ranking, offset in zip(rankings, first, strict=False)
            ),
            strict=True,
        )
    )
    return RankedPredictions.of(score, overlap, unit, np.repeat(np.arange(len(counts)), counts), len(counts))


def all_metrics(test: SetPredictions) -> dict[str, Any]:
    """Return all metrics of a test set, each with its interval over recordings."""
    intervals = {
        name: mean_interval(metric, [ranking]) for name, (metric, ranking) in metric_inputs(test).items()
    }
    ground_truth = test.complete.ground_truth
    counts = {"recordings": len(ground_truth), "annotations": int(ground_truth.sum())}
    return {**counts, **{name: with_bounds(interval) for name, interval in intervals.items()}}


def metric_differences(test: SetPredictions, other: SetPredictions) -> dict[str, list[float | None]]:
    """Return the metrics of a row minus those of another, with paired bootstrap intervals."""
    sides = metric_inputs(test), metric_inputs(other)
    return {
        name: with_bounds(mean_interval(sides[0][name][0], [sides[0][name][1]], [sides[1][name][1]]))
        for name in COMPARED
    }


def metric_inputs(test: SetPredictions) -> dict[str, tuple[str, RankedPredictions]]:
    """Return for each reported metric its function and its predictions."""
    return {
        **{name: (name, test.at_threshold) for name in AT_THRESHOLD},
        **{name: (name, test.complete) for name in OVER_ALL},
        "max_f1": ("f1", test.complete.with_min_score(max_f1_threshold(test.complete))),
    }


if __name__ == "__main__":
    main()
