"""Real recordings with experts' boxes: what is recommended, baselines, and starts from made-up calls and sites.

    python -m experiments.real DATA --start shift/small       writes experiments/results/real.json

Rows are methods of the shift benchmark with its very settings. `at_once_detail`, which is recommended, begins at random
and learns from a study's few labels and from calls made up over its labelled chunks without animals; `rehearsed` starts
from the detector that has rehearsed on the benchmark's unlabelled soundscapes, `transfer_detail` from the benchmark's
own `at_once_detail`, which has learned the labels of its soundscapes besides; `rehearsed_st` learns from a study's labels
half as long and then teaches itself on its pool; `scratch` and `fcos_band_median` begin at random; `energy` learns two
thresholds. All others take as many steps on a study as `rehearsed_st`, or some more; a start has taken its own before.

Labelled are the first two days of birdeep-am1, and the first place of boobook with all its days: those that the study's
own splits leave in-domain have seven boxes, too few to learn from and to choose a threshold by. An in-domain test would
be a recording or two, so there is none, and three in ten labelled recordings are validation. Tested are other days of
birdeep-am1, near and far, and other places of boobook. Every recording of these studies is labelled, and a pool is not:
so while one of the two sets is tested, the other is the pool, its labels hidden, and no detector has heard what it is
tested on. `both` takes the two tests together.

`--start` is the folder of a benchmark made by `experiments.run`; without one it is made, which takes about an hour. What
is there is not made again, and rows that were not asked for stay in a result file of as many steps. What tables are made
from is kept in a folder beside it: rows of several machines come together there.
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

from experiments.baselines.finding import evaluate_baseline
from experiments.baselines.train import train_baseline
from experiments.review_loop import mast
from experiments.run import RESULTS, Table, earlier, kept_of, told, told_stage
from experiments.shift.kept import keep_together, threshold_of
from experiments.shift.methods import METHODS, Method
from experiments.shift.summary import mean_interval, with_bounds
from experiments.soundscapes.world import SIZES
from mast.config import Chunking, DetectorStage, Study, dump_study, load_study
from mast.datasets.examples import TRAIN, detection_examples
from mast.datasets.split_table import SPLITS_TABLE, existing
from mast.detection.evaluate import evaluate_study
from mast.errors import TrainingError
from mast.evaluation.compare import ranking_of
from mast.evaluation.figures import AT_THRESHOLD, OVER_ALL
from mast.evaluation.metrics import Ranking, best_threshold
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.finetune import train_study
from mast.training.lessons import with_made_up
from mast.training.loop import End
from mast.training.pseudo_labels import pool_of
from mast.training.run import Run
from mast.training.selftrain import CURRICULA, selftrain_study

Stage = TypeVar("Stage", bound=DetectorStage)
CONFIGS = Path(__file__).parents[1] / "configs"
ROWS = (
    "energy",
    "fcos_band_median",
    "scratch",
    "rehearsed",
    "rehearsed_st",
    "at_once_detail",
    "transfer_detail",
)
PAIRS = (
    ("at_once_detail", "energy"),
    ("at_once_detail", "fcos_band_median"),
    ("at_once_detail", "scratch"),
    ("rehearsed", "energy"),
    ("rehearsed", "scratch"),
    ("rehearsed_st", "rehearsed"),
    ("transfer_detail", "energy"),
    ("transfer_detail", "scratch"),
    ("transfer_detail", "rehearsed"),
    ("transfer_detail", "at_once_detail"),
)
GIVEN = "at_once_detail"
"""The cell of the benchmark, of its first seed, that a method starts from which is given its start."""

BOTH = "both"
COMPARED = ("f1", "best_f1", "ap_area")
SHARES = {"splits.train": 0.7, "splits.val": 0.3, "splits.test": 0}
REVIEWED = ("recording", "start_s", "end_s")
"""Columns of a table that tells which recordings were listened to; without times, from end to end."""

PACKAGES = ("torch", "torchvision", "timm", "numpy")


@dataclass(frozen=True, slots=True)
class Source:
    """A study of `configs/`: its collection, the data folder that this is in, and the two held-out sets to test."""

    collection: str
    folder: str
    tested: tuple[str, str]


SOURCES = {
    "birdeep-am1": Source("am1", "birdeep-am1", ("temporal_shift_near", "temporal_shift_far")),
    "boobook": Source("qut", "qut-boobook", ("site_shift_near", "site_shift_far")),
}


@dataclass(frozen=True, slots=True)
class Detector:
    """A row's model, the steps it has taken on the study, and, where it should have taught itself, why it has not."""

    model: Path
    steps: int = 0
    stayed: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A row's predictions on a test set: those at its threshold, and all."""

    reported: Ranking
    every: Ranking


def main() -> None:
    """Train and evaluate every row of every study, and write figures with intervals over recordings."""
    options = _options()
    folder = options.start or options.work / "shift" / options.size
    table = Table(options.data, folder.absolute(), options.size, tuple(options.sets))
    learners = dict.fromkeys(METHODS[row].teacher or row for row in options.rows)
    starts = {name: start for name in learners if (start := start_of(table, METHODS[name]))}
    models = {name: start.model for name, start in starts.items()}
    hears = load_study(table.study_file).chunking
    before = earlier(options.out, steps=options.steps)
    studies: dict[str, Any] = before.get("studies", {})
    for name in options.studies:
        place = options.work.absolute() / name
        kept = kept_of(options.out) / f"{options.steps}_steps" / name
        trial = Trial(name, options.data.absolute(), place, kept, hears, models, options.steps, options.sets)
        studies[name] = merged(studies.get(name, {}), trial.results(options.rows))
        print(name, json.dumps(studies[name]), flush=True)
    steps = {name: steps_of(start.folder) for name, start in starts.items()}
    settings = {
        "steps": options.steps,
        "start_steps": {**before.get("start_steps", {}), **steps},
        "start_heard": heard_in(folder / "soundscapes" / "world.json"),
    }
    write_result(options.out, {"studies": studies, **settings}, PACKAGES)


def start_of(table: Table, method: Method) -> Run | None:
    """What a method starts from, of a benchmark that makes it if it is not there."""
    if method.is_rehearsed:
        return table.rehearsal(method)
    return Run(table.cell(GIVEN, 0)) if method.is_given else None


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a study's rows now, and before of those that were not made again.

    A difference to a row whose figures are others now is no longer told.
    """
    rows = before.get("rows", {})
    changed = {row for row, told in now["rows"].items() if row in rows and rows[row] != told}
    differences = {
        pair: told
        for pair, told in before.get("differences", {}).items()
        if not changed & {*pair.split(" - ")}
    }
    kept = {**before, "differences": differences}
    return {part: {**kept.get(part, {}), **told} for part, told in now.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("real"))
    parser.add_argument("--out", type=Path, default=RESULTS / "real.json")
    parser.add_argument("--start", type=Path, help="folder of a benchmark that is there, such as shift/small")
    parser.add_argument("--size", choices=SIZES, default="small", help="of a benchmark that is not")
    parser.add_argument(
        "--steps", type=int, default=80, help="of self-training; as many before it, on labels"
    )
    parser.add_argument("--studies", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", dest="sets")
    return parser.parse_args()


@dataclass(frozen=True)
class Trial:
    """The rows of one study, below one folder; `starts` has the models of methods that start from one.

    What figures are made from is kept in another folder, so that rows of several machines can be compared.
    """

    name: str
    data: Path
    folder: Path
    kept: Path
    hears: Chunking
    starts: Mapping[str, Path]
    steps: int
    sets: Sequence[str]

    @property
    def source(self) -> Source:
        """Where the study's sound is, and what is tested."""
        return SOURCES[self.name]

    def results(self, rows: Sequence[str]) -> dict[str, Any]:
        """Figures of rows, and of all that are kept; their paired differences, and how each came about."""
        made: dict[str, dict[str, Any]] = {}
        for row in rows:
            found = {tested: self.detector(row, tested) for tested in self.source.tested}
            made[row] = {
                tested: {"steps": item.steps, "stayed": item.stayed} for tested, item in found.items()
            }
            keep_together(
                {
                    self.evaluated(row, tested, item): self.kept / row / tested
                    for tested, item in found.items()
                }
            )
        held = {row: own for row in ROWS if (own := self.held(row))}
        return {
            "rows": {row: {name: figures(item) for name, item in own.items()} for row, own in held.items()},
            "differences": {
                f"{one} - {other}": {name: less(held[one][name], held[other][name]) for name in held[one]}
                for one, other in PAIRS
                if one in held and other in held
            },
            "made": made,
        }

    def held(self, row: str) -> dict[str, Held]:
        """A row's kept predictions on each test set and on both; none where not all are there."""
        folders = {tested: self.kept / row / tested for tested in self.source.tested}
        if not all((folder / "results.json").exists() for folder in folders.values()):
            return {}
        return together({tested: held_of(folder, tested) for tested, folder in folders.items()})

    def study_file(self, tested: str | None = None) -> Path:
        """The study, prepared: with both held-out sets, or with the tested one alone and the other as its pool."""
        path = self.folder / (tested or BOTH) / "study.yaml"
        if not path.exists():
            draft = path.with_name("draft.yaml")
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(dump_study(self._settings(path.parent, tested)), encoding="utf-8")
            for verb in ("scan", "splits", "prepare"):
                mast(verb, str(draft))
            draft.rename(path)
        return path

    def _settings(self, folder: Path, tested: str | None) -> Study:
        """The study of `configs/` with its sound from the data folder, in chunks as the benchmark has them."""
        source = self.data / self.source.folder
        hidden = self._pool(tested) if tested else set()
        tables = [
            labels_without(hidden, source / "annotations.csv", folder / "annotations.csv"),
            labels_without(hidden, source / "recordings.csv", folder / "reviewed.csv", REVIEWED),
        ]
        values = {
            "preset": "laptop",
            "work": folder / "work",
            f"collections.{self.source.collection}.root": source / "audio",
            "annotations": json.dumps([{"path": str(table), "format": "csv"} for table in tables]),
            "chunking.chunk_s": self.hears.chunk_s,
            "chunking.hop_s": self.hears.hop_s,
            **SHARES,
        }
        study = load_study(CONFIGS / f"{self.name}.yaml", [f"{key}={value}" for key, value in values.items()])
        names = [tested] if tested else self.source.tested
        held_out = {name: study.splits.held_out[name] for name in names}
        return study.model_copy(update={"splits": study.splits.model_copy(update={"held_out": held_out})})

    def _pool(self, tested: str) -> set[str]:
        """Recordings of the set that is not tested, as the experts' tables name them."""
        location = existing(load_study(self.study_file()), SPLITS_TABLE)
        table = pq.read_table(location, columns=["recording_id", "split"]).to_pylist()
        others = {name for name in self.source.tested if name != tested}
        return {row["recording_id"].partition("/")[2] for row in table if row["split"] in others}

    def study(self, method: str, tested: str | None = None) -> Study:
        """The study with the settings of a method of the benchmark."""
        begin = [f"train.start={self.starts[method]}"] if method in self.starts else []
        return load_study(self.study_file(tested), [*METHODS[method].settings, *begin, *self.sets])

    def detector(self, row: str, tested: str) -> Detector:
        """A row's detector to test on a set, made if it is not there."""
        if row == "rehearsed_st":
            return self._taught(self._learned(str(METHODS[row].teacher), self.steps), tested)
        return self._learned(row, 2 * self.steps)

    def _learned(self, method: str, steps: int) -> Detector:
        """A detector that has learned from the labels, and from made-up calls beside them, for so many steps."""
        study, run = self.study(method), Run(self.folder / "cells" / f"{method}_{steps}")
        labelled = len(detection_examples(study, AudioStore(existing(study, STORE)), TRAIN).chunks)
        train = lasting(study.train, steps, with_made_up(labelled, study.train)).model_copy(
            update={"min_steps": 0}
        )
        study = study.model_copy(update={"train": train})
        baseline = METHODS[method].baseline
        learn = partial(train_baseline, baseline) if baseline else train_study
        _finished(learn(study, run, "auto", told(f"{self.name} {run.folder.name}")))
        return Detector(run.model, steps_of(run.folder))

    def _taught(self, teacher: Detector, tested: str) -> Detector:
        """A detector that has taught itself on the set that is not tested; its teacher, where it refuses to."""
        study = self.study("rehearsed_st", tested)
        run = Run(self.folder / "cells" / f"rehearsed_st_{self.steps}_{tested}")
        store, settings = AudioStore(existing(study, STORE)), study.selftrain
        steps = self.steps // (settings.rounds * len(CURRICULA[settings.curriculum]))
        stages = {
            "pseudo": lasting(settings.pseudo, steps, len(pool_of(study, store).places)),
            "expert": lasting(settings.expert, steps, len(detection_examples(study, store, TRAIN).chunks)),
        }
        study = study.model_copy(update={"selftrain": settings.model_copy(update=stages)})
        on_stage = told_stage(f"{self.name} {run.folder.name}")
        try:
            _finished(selftrain_study(study, run, str(teacher.model), "auto", on_stage).end)
        except TrainingError as error:
            return replace(teacher, stayed=str(error))
        return Detector(run.model, teacher.steps + steps_of(run.folder))

    def evaluated(self, row: str, tested: str, found: Detector) -> Path:
        """Where the evaluation of a row's detector is, made if it is not; intervals are computed elsewhere."""
        folder = found.model.parent / "evaluations" / tested
        if not (folder / "results.json").exists():
            study = self.study(row, tested)
            evaluate = evaluate_baseline if METHODS[row].baseline else evaluate_study
            evaluate(study, str(found.model), str(folder), resamples=0)
        return folder


def _finished(end: End) -> None:
    if end != "finished":
        raise SystemExit(f"{end}; the same command goes on.")


def labels_without(hidden: Container[str], table: Path, out: Path, columns: Sequence[str] = ()) -> Path:
    """Copy a table of recordings, or some of its columns, but for those that are to be without labels. → `out`"""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["recording"] not in hidden]
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return out


def lasting(settings: Stage, steps: int, chunks: int) -> Stage:
    """A stage of about so many steps over so many chunks; all that is counted in epochs lasts as much longer."""
    an_epoch, unfreezing = chunks // min(settings.batch, chunks), settings.unfreezing
    factor = steps / (settings.epochs * an_epoch)
    turns = {
        "first_epoch": round(unfreezing.first_epoch * factor),
        "every_epochs": max(1, round(unfreezing.every_epochs * factor)),
    }
    return settings.model_copy(
        update={
            "epochs": max(1, round(settings.epochs * factor)),
            "warmup_epochs": settings.warmup_epochs * factor,
            "picture_epochs": max(1, round(settings.picture_epochs * factor)),
            "unfreezing": unfreezing.model_copy(update=turns),
        }
    )


def steps_of(folder: Path) -> int:
    """Steps of all runs below a folder."""
    return sum(Run(path.parent).read()[-1]["step"] for path in folder.rglob("metrics.jsonl"))


def heard_in(world: Path) -> dict[str, list[str]]:
    """The sources that the soundscapes of a start are made of, by what they gave."""
    days = json.loads(world.read_text("utf-8"))["days"]
    kinds = {"calls": "sources", "backgrounds": "backgrounds"}
    return {
        kind: sorted({name.partition("/")[0] for day in days for name in day[field]})
        for kind, field in kinds.items()
    }


def held_of(folder: Path, tested: str) -> Held:
    """The predictions of an evaluation."""
    every = ranking_of(str(folder), tested)
    return Held(every.above(threshold_of(folder)), every)


def together(parts: Mapping[str, Held]) -> dict[str, Held]:
    """Test sets, and all of them as one."""
    own = parts.values()
    return {
        **parts,
        BOTH: Held(pooled([item.reported for item in own]), pooled([item.every for item in own])),
    }


def pooled(rankings: Sequence[Ranking]) -> Ranking:
    """Rankings of different recordings as one."""
    truths = np.concatenate([item.truths for item in rankings])
    first = np.cumsum([0, *(len(item.truths) for item in rankings)])
    score, overlap, unit = (
        np.concatenate(columns)
        for columns in zip(
            *((item.score, item.overlap, item.unit + at) for item, at in zip(rankings, first, strict=False)),
            strict=True,
        )
    )
    return Ranking.of(score, overlap, unit, np.repeat(np.arange(len(truths)), truths), len(truths))


def figures(held: Held) -> dict[str, Any]:
    """All figures of a test set, each with its interval over recordings."""
    numbers = {name: mean_interval(metric, [ranking]) for name, (metric, ranking) in cuts(held).items()}
    counts = {"recordings": len(held.every.truths), "truths": int(held.every.truths.sum())}
    return {**counts, **{name: with_bounds(item) for name, item in numbers.items()}}


def less(held: Held, other: Held) -> dict[str, list[float | None]]:
    """How much higher the figures of a row are than another's, each draw of recordings serving both."""
    sides = cuts(held), cuts(other)
    return {
        name: with_bounds(mean_interval(sides[0][name][0], [sides[0][name][1]], [sides[1][name][1]]))
        for name in COMPARED
    }


def cuts(held: Held) -> dict[str, tuple[str, Ranking]]:
    """Figures, with the metric and the predictions that each is of."""
    return {
        **{name: (name, held.reported) for name in AT_THRESHOLD},
        **{name: (name, held.every) for name in OVER_ALL},
        "best_f1": ("f1", held.every.above(best_threshold(held.every))),
    }


if __name__ == "__main__":
    main()
