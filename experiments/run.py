"""The shift benchmark: methods trained on one day at one site, measured there, on other days, and at other sites.

    python -m experiments.run DATA --size small             all that is missing, as long as it takes
    python -m experiments.run DATA --size small --only mast scratch --seeds 0 --minutes 90
    python -m experiments.run DATA --size smoke --out shift.json

Every method is a study, a few changed settings, and the verbs of MAST; every cell (method, seed) keeps its model and its
evaluation below the work folder, and what is there is not made again. Killed at any moment, the same command goes on.
Thresholds come from in-domain validation alone, and nothing is chosen by what a shifted test set says.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import write_result
from typer.testing import CliRunner

from experiments.soundscapes.material import read_material
from experiments.soundscapes.world import SIZES
from experiments.soundscapes.write import write_benchmark
from mast.cli import app
from mast.config import Study, load_study
from mast.detection.evaluate import evaluate_study
from mast.evaluation.compare import ranking_of
from mast.evaluation.metrics import METRICS, best_threshold
from mast.training.finetune import train_study
from mast.training.loop import Progress
from mast.training.pretrain import pretrain_study
from mast.training.run import Run
from mast.training.selftrain import selftrain_study

RESULTS = Path(__file__).parent / "results"
SPLITS = {"test": "in_domain", "temporal": "temporal", "site": "site", "unseen": "unseen"}
FIGURES = ("precision", "recall", "f1", "ap_101_points", "ap_11_points", "mean_iou")
SUMMARY = ("mast", "mast_st", "control", "recommended")


@dataclass(frozen=True)
class Method:
    """A row of the table: settings changed, whether the encoder is pretrained, and which detector is taught further."""

    sets: tuple[str, ...] = ()
    pretrained: bool = False
    teacher: str | None = None


ROBUST = ("normalisation=band-median",)
METHODS: Mapping[str, Method] = {
    "scratch_zscore": Method(),
    "scratch": Method(ROBUST),
    "mast_zscore": Method(pretrained=True),
    "mast": Method(ROBUST, pretrained=True),
    "mast_st": Method(ROBUST, teacher="mast"),
    "control": Method((*ROBUST, "selftrain.curriculum=control"), teacher="mast"),
    "no_contrastive": Method((*ROBUST, "train.contrastive_weight=0"), pretrained=True),
    "no_adapter": Method((*ROBUST, "model.adapter=none"), pretrained=True),
    "st_stage_1": Method((*ROBUST, "selftrain.curriculum=pseudo"), teacher="mast"),
    "st_stage_2": Method((*ROBUST, "selftrain.curriculum=expert"), teacher="mast"),
    "st_union": Method((*ROBUST, "selftrain.curriculum=union"), teacher="mast"),
    "recommended": Method(
        (
            *ROBUST,
            "selftrain.min_precision=0.6",
            "selftrain.quiet_backgrounds=true",
            "augmentation.mix_probability=0.5",
        ),
        teacher="mast",
    ),
}
"""Rows of the tables. `recommended` and `control` are not the paper's (docs/explanation/results.md)."""


def main() -> None:
    """Make the benchmark, then every cell that is missing, and write the tables after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--work", type=Path, default=Path("shift"))
    parser.add_argument("--out", type=Path, default=RESULTS / "shift.json")
    parser.add_argument("--only", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", dest="sets")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no cell after so long")
    options = parser.parse_args()
    table = Table(options.data, options.work / options.size, options.size, tuple(options.sets))
    start_s = time.monotonic()
    for seed in options.seeds:
        for name in options.only:
            if time.monotonic() - start_s > options.minutes * 60:
                break
            table.cell(name, seed)
            rows = table.rows()
            write_result(options.out, {"size": options.size, "rows": rows}, ("torch", "timm", "numpy"))
            write_result(
                options.out.with_name(f"{options.out.stem}_summary.json"),
                {"size": options.size, **summary(rows)},
                ("torch",),
            )


@dataclass(frozen=True)
class Table:
    """Where the cells of a benchmark are, and how to make them."""

    data: Path
    folder: Path
    size: str
    sets: tuple[str, ...]

    @property
    def study_file(self) -> Path:
        """The benchmark's study, made and prepared if it is not."""
        path = self.folder / "soundscapes" / "study.yaml"
        if not path.exists():
            material = read_material(self.data)
            write_benchmark(material, path.parent, SIZES[self.size], 0, lambda done, total: None)
            for verb in ("scan", "splits", "prepare"):
                done = CliRunner().invoke(app, [verb, str(path)])
                if done.exit_code:
                    path.unlink()
                    raise SystemExit(f"{done.output}{done.exception}")
        return path

    def study(self, name: str, seed: int) -> Study:
        """The study of a cell."""
        method = METHODS[name]
        seeds = tuple(f"{stage}.seed={seed}" for stage in ("train", "selftrain.pseudo", "selftrain.expert"))
        start = (f"train.start={self.encoder(method).model}",) if method.pretrained else ()
        return load_study(self.study_file, [*method.sets, *seeds, *start, *self.sets])

    def encoder(self, method: Method) -> Run:
        """The pretrained encoder of a method, made if it is not there; one serves all seeds."""
        settings = load_study(self.study_file, [*method.sets, *self.sets])
        run = Run(self.folder / "pretrain" / settings.normalisation)
        if not run.is_finished:
            pretrain_study(settings, run, "auto", told(f"pretrain {settings.normalisation}"))
        return run

    def cell(self, name: str, seed: int) -> Path:
        """A method's model for a seed, trained and evaluated if it is not. → its folder"""
        folder = self.folder / "cells" / name / str(seed)
        if (folder / "evaluation" / "results.json").exists():
            return folder
        study, run, method = self.study(name, seed), Run(folder), METHODS[name]
        if method.teacher:
            teacher = Run(self.cell(method.teacher, seed)).model
            end = selftrain_study(study, run, str(teacher), "auto", told_stage(f"{name} {seed}")).end
        else:
            end = train_study(study, run, "auto", told(f"{name} {seed}"))
        if end != "finished":
            raise SystemExit(f"{name} {seed}: {end}; the same command goes on.")
        evaluate_study(study, str(run.model), str(folder / "evaluation"))
        return folder

    def rows(self) -> list[dict[str, Any]]:
        """A row for each cell that is there and each test set."""
        found = []
        for results in sorted((self.folder / "cells").glob("*/*/evaluation/results.json")):
            name, seed = results.parts[-4:-2]
            if name not in METHODS:
                continue
            for split, title in SPLITS.items():
                measured = measured_on(results.parent, split)
                command = f"python -m experiments.run DATA --size {self.size} --only {name} --seeds {seed}"
                found.append(
                    {"method": name, "seed": int(seed), "split": title, **measured, "command": command}
                )
        return found


def measured_on(folder: Path, split: str) -> dict[str, Any]:
    """Figures of one test set with intervals over recordings, and F1 at the threshold that would have suited it best."""
    values = json.loads((folder / "results.json").read_text("utf-8"))
    own = next(item for item in values["sets"] if item["name"] == split)
    numbers = own["ways"]["iou"]["numbers"]
    ranking = ranking_of(str(folder), split)
    best = best_threshold(ranking)
    best_f1 = METRICS["f1"](ranking.above(best), None) if np.isfinite(best) else 0.0
    figures = {name: numbers[name] for name in FIGURES}
    return {"best_f1": round(best_f1, 4), **figures, "recordings": own["recordings"]}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds of the rows that the claims are about; the best baseline is the best in-domain one."""
    told: dict[str, Any] = {}
    for name in SUMMARY:
        own = [row for row in rows if row["method"] == name]
        if own:
            told[name] = {
                split: {
                    figure: round(
                        float(np.mean([_value(row[key]) for row in own if row["split"] == split])), 4
                    )
                    for figure, key in (("f1", "f1"), ("best_f1", "best_f1"), ("ap", "ap_101_points"))
                }
                for split in SPLITS.values()
            }
            told[name]["seeds"] = len({row["seed"] for row in own})
    return told


def _value(number: Any) -> float:
    return float(number["value"] if isinstance(number, Mapping) else number)


def told(what: str) -> Callable[[Progress], None]:
    """A line now and then."""

    def on_progress(progress: Progress) -> None:
        if progress.step % 100 == 0 or progress.step == progress.steps:
            left = f"{progress.remaining_s / 60:.0f} min left"
            print(
                f"{what}: step {progress.step} of {progress.steps}, loss {progress.loss:.3f}, {left}",
                flush=True,
            )

    return on_progress


def told_stage(what: str) -> Callable[[str, int, int], None]:
    """A line now and then, for rounds."""

    def on_stage(stage: str, done: int, total: int) -> None:
        if done % 100 == 0 or done == total:
            print(f"{what}: {stage}, {done} of {total}", flush=True)

    return on_stage


if __name__ == "__main__":
    main()
