"""The shift benchmark: methods trained on one day at one site, measured there, on other days, and at other sites.

    python -m experiments.run DATA --size small             all that is missing, as long as it takes
    python -m experiments.run DATA --size small --only mast scratch --seeds 0 --minutes 90
    python -m experiments.run DATA --only transfer --start CHECKPOINT
    python -m experiments.run --table main ablations --picture shift.png

Every method is a study, a few changed settings, and the verbs of MAST, or a baseline in its place; every cell (method,
seed) keeps its model and its evaluation below the work folder, and what is there is not made again. Killed at any moment,
the same command goes on. What tables are made from is kept in a folder beside the result files: cells of several machines
come together there, and tables can be made again without any model.

Thresholds come from in-domain validation alone, where made-up calls were learned from also from such calls over its quiet
chunks, as in `mast train`. The best baseline is the one that is hardest to beat at other sites. What is recommended was
chosen after a look at the sets under shift, and then heard at other sites (`experiments.new_sites`).
Baselines start from random weights, as MAST does, on the same chunks, for as many steps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import write_result
from typer.testing import CliRunner

from experiments.baselines.finding import evaluate_baseline
from experiments.baselines.train import train_baseline
from experiments.shift.kept import keep
from experiments.shift.methods import METHODS, Method, budgeted, shortened
from experiments.shift.picture import draw_shift
from experiments.shift.summary import SPLITS, Cells, finished_cells, summary, validation_ap
from experiments.shift.tables import TABLES
from experiments.soundscapes.material import read_material
from experiments.soundscapes.world import SIZES
from experiments.soundscapes.write import write_benchmark
from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.preparing import NORMALISATION
from mast.datasets.split_table import existing
from mast.detection.evaluate import evaluate_study
from mast.errors import MissingExtraError
from mast.models.checkpoint import load_model
from mast.recordings.store import AudioStore
from mast.storage import exists, join
from mast.study.products import STORE
from mast.training.finetune import train_study
from mast.training.lessons import EXPERTS
from mast.training.loop import End, Progress
from mast.training.pretrain import pretrain_study
from mast.training.rehearse import rehearse_study
from mast.training.run import Run
from mast.training.selftrain import selftrain_study

RESULTS = Path(__file__).parent / "results"
DEFAULT_OUT = RESULTS / "shift.json"
FIGURES = ("precision", "recall", "f1", "ap_area", "ap_101_points", "ap_11_points", "mean_iou")
PACKAGES = ("torch", "torchvision", "timm", "numpy", "transformers", "ultralytics")
PICTURE_DPI = 120


def main() -> None:
    """Make the benchmark and every cell that is missing, and write the results; or show those that are there."""
    options = _options()
    if options.table is not None or options.picture:
        show(options.out, options.table or [], options.picture)
        return
    if options.data is None:
        raise SystemExit("DATA is missing: the folder of sources to make the soundscapes from.")
    refuse_to_mix(options.out, options.size, options.sets)
    start = str(options.start.absolute()) if options.start else None
    refuse_other_cells(options.work / options.size, options.sets, start)
    table = Table(options.data, options.work / options.size, options.size, tuple(options.sets), start)
    names = options.only or [
        name for name, method in METHODS.items() if (start or not method.is_given) and not method.until
    ]
    start_s = time.monotonic()
    for seed in options.seeds:
        for name in names:
            if time.monotonic() - start_s > options.minutes * 60:
                break
            try:
                table.cell(name, seed)
            except MissingExtraError as error:
                print(f"{name} {seed} is left out. {error}", flush=True)
            table.keep(kept_of(options.out))
    write_tables(table, options.out)


def write_tables(table: Table, out: Path) -> None:
    """Write the result files from all kept cells; what an earlier file tells of methods without any stays in it."""
    cells = finished_cells(kept_of(out))
    before, told_before = (earlier(path, size=table.size) for path in (out, summary_of(out)))
    rows = [
        *(row for row in before.get("rows", []) if row["method"] not in cells),
        *table.rows(cells),
    ]
    rows.sort(key=lambda row: ([*METHODS].index(row["method"]), row["seed"]))
    write_result(out, {"size": table.size, "rows": rows}, PACKAGES)
    write_result(summary_of(out), {"size": table.size, **summary(cells, told_before)}, PACKAGES)


def refuse_to_mix(out: Path, size: str, sets: Sequence[str]) -> None:
    """Leave a result file alone that holds another benchmark, or for which nothing was changed."""
    found = json.loads(out.read_text("utf-8")).get("size", size) if out.exists() else size
    if found != size:
        raise SystemExit(
            f"{out} holds results of --size {found}. Give those of {size} a file of their own with --out."
        )
    if sets and out.resolve() == DEFAULT_OUT.resolve():
        raise SystemExit(
            f"{out} holds results of the methods as they are. Give changed ones a file of their own with --out."
        )


def refuse_other_cells(folder: Path, sets: Sequence[str], start: str | None) -> None:
    """Leave cells alone that were made with other settings or from another model: none would be made again."""
    note = folder / "changed.json"
    known = earlier(note) if note.exists() or (folder / "cells").exists() else {"sets": [*sets]}
    before, given = known.get("sets", []), known.get("start")
    if before != [*sets] or (None not in (given, start) and given != start):
        made = " ".join([*(f"--set {item}" for item in before), *([f"--start {given}"] if given else [])])
        raise SystemExit(
            f"{folder} holds cells made {'with ' + made if made else 'without --set'}. Give others a folder of their own "
            "with --work."
        )
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"sets": before, "start": given or start}), "utf-8")


def earlier(path: Path, **settings: object) -> dict[str, Any]:
    """What a result file holds, if it was made with these settings."""
    values: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return values if settings.items() <= values.items() else {}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--work", type=Path, default=Path("shift"))
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--only", nargs="*", choices=METHODS, help="methods; all of them if none is named")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", dest="sets")
    parser.add_argument("--start", type=Path, help="a pretrained model for the method transfer")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no cell after so long")
    parser.add_argument(
        "--table", nargs="*", choices=TABLES, help="print tables of --out, all if none is named; make nothing"
    )
    parser.add_argument("--picture", type=Path, help="draw the results of --out into this file; make nothing")
    return parser.parse_args()


def summary_of(out: Path) -> Path:
    """Where the summary of a result file is."""
    return out.with_name(f"{out.stem}_summary.json")


def kept_of(out: Path) -> Path:
    """Where that is kept which a result file is made from."""
    return out.with_suffix("")


def show(out: Path, names: Sequence[str], picture: Path | None) -> None:
    """Print tables of result files, and draw them."""
    result, told = (json.loads(path.read_text("utf-8")) for path in (out, summary_of(out)))
    for name in names or (() if picture else TABLES):
        print(f"{name}\n\n{TABLES[name](result, told)}")
    if picture:
        draw_shift(told).savefig(picture, dpi=PICTURE_DPI)


@dataclass(frozen=True)
class Table:
    """Where the cells of a benchmark are, and how to make them; `start` is the model that `transfer` goes on from.

    Sites and days are those of `world`; which animal and which background stands on which shelf is the same in all.
    """

    data: Path
    folder: Path
    size: str
    sets: tuple[str, ...]
    start: str | None = None
    world: int = 0

    @property
    def cells(self) -> Path:
        """Folder of all cells."""
        return self.folder / "cells"

    @property
    def study_file(self) -> Path:
        """The benchmark's study, made and prepared if it is not."""
        path = self.folder / "soundscapes" / "study.yaml"
        if not path.exists():
            material = read_material(self.data)
            size, world = SIZES[self.size], self.world
            write_benchmark(material, path.parent, size, world, lambda done, total: None, shelving=0)
        if not exists(join(load_study(path).work, NORMALISATION)):  # what the verbs make last
            for verb in ("scan", "splits", "prepare"):
                done = CliRunner().invoke(app, [verb, str(path)])
                if done.exit_code:
                    raise SystemExit(f"{done.output}{done.exception}")
        return path

    def study(self, name: str, seed: int) -> Study:
        """The study of a cell."""
        method = METHODS[name]
        seeds = tuple(f"{stage}.seed={seed}" for stage in ("train", "selftrain.pseudo", "selftrain.expert"))
        return load_study(self.study_file, [*method.settings, *seeds, *self._begin(method), *self.sets])

    def _begin(self, method: Method) -> tuple[str, ...]:
        """Settings that say what a method's encoder starts as; a given one hears as it is used to."""
        if method.is_given:
            if self.start is None:
                raise SystemExit("transfer needs a pretrained model: --start FOLDER.")
            scaling = load_model(self.start)[0].normalisation
            return (f"train.start={self.start}", *((f"normalisation={scaling.kind}",) if scaling else ()))
        if not method.is_rehearsed and not method.pretraining:
            return ()
        begun = self.rehearsal(method) if method.is_rehearsed else self.encoder(method)
        return (f"train.start={begun.model.absolute()}",)

    def encoder(self, method: Method) -> Run:
        """The pretrained encoder of a method, made if it is not there; one serves all seeds."""
        study, name = load_study(self.study_file, [*method.settings, *self.sets]), ""
        if method.pretraining != 1:
            name = f"-{round(100 * method.pretraining)}"
            study = study.model_copy(update={"pretrain": shortened(study.pretrain, method.pretraining)})
        name = f"{study.normalisation}{name}"
        run = Run(self.folder / "pretrain" / name)
        if not run.is_finished:
            goes_on(f"pretrain {name}", pretrain_study(study, run, "auto", told(f"pretrain {name}")))
        return run

    def rehearsal(self, method: Method) -> Run:
        """The detector that has rehearsed for a method, made if it is not there; one serves all seeds."""
        study = load_study(self.study_file, [*method.settings, *self.sets])
        run = Run(self.folder / "rehearse" / study.normalisation)
        if not run.is_finished:
            title = f"rehearse {study.normalisation}"
            goes_on(title, rehearse_study(study, run, "auto", told(title)))
        return run

    def cell(self, name: str, seed: int) -> Path:
        """A method's model for a seed, trained and evaluated if it is not. → its folder"""
        folder = self.cells / name / str(seed)
        if (folder / "evaluation" / "results.json").exists():
            return folder
        if METHODS[name].until:
            raise SystemExit(f"{name} cannot be made any more. What did: {self.command(name, seed)}")
        study, run = self.study(name, seed), Run(folder)
        goes_on(f"{name} {seed}", self._learn(name, seed, study, run))
        evaluate = evaluate_baseline if METHODS[name].baseline else evaluate_study
        evaluate(study, str(run.model), str(folder / "evaluation"))
        return folder

    def _learn(self, name: str, seed: int, study: Study, run: Run) -> End:
        """Train a cell's model, or go on with it."""
        method, on_progress, lesson = METHODS[name], told(f"{name} {seed}"), EXPERTS
        if method.budget:
            study, lesson = budgeted(study, AudioStore(existing(study, STORE)), method.budget, seed)
        if method.baseline:
            return train_baseline(method.baseline, study, run, "auto", on_progress, lesson)
        if method.teacher:
            teacher = Run(self.cell(method.teacher, seed)).model
            return selftrain_study(study, run, str(teacher), "auto", told_stage(f"{name} {seed}")).end
        if not method.is_taught:
            shutil.copytree(self.rehearsal(method).model, run.model, dirs_exist_ok=True)
            return "finished"
        return train_study(study, run, "auto", on_progress, lesson)

    def keep(self, folder: Path) -> None:
        """Keep what matters of all finished cells: also of those that others go on from."""
        for name, seeds in finished_cells(self.cells).items():
            for seed, cell in seeds.items():
                keep(cell, folder / name / str(seed))

    def rows(self, cells: Cells) -> list[dict[str, Any]]:
        """A row for each cell and each test set."""
        return [
            {
                "method": name,
                "seed": seed,
                "split": title,
                **measured_on(cell / "evaluation", split),
                "validation_ap": round(validation_ap(cell), 4),
                "command": self.command(name, seed),
            }
            for name, seeds in cells.items()
            for seed, cell in seeds.items()
            for split, title in SPLITS.items()
        ]

    def command(self, name: str, seed: int) -> str:
        """What makes a cell."""
        given = ("--start", "CHECKPOINT") if METHODS[name].is_given else ()
        changed = [word for item in self.sets for word in ("--set", item)]
        words = ["DATA", "--size", self.size, "--only", name, "--seeds", str(seed), *given, *changed]
        then = f"git checkout {METHODS[name].until} && " if METHODS[name].until else ""
        return f"{then}python -m experiments.run {' '.join(words)}"


def measured_on(folder: Path, split: str) -> dict[str, Any]:
    """Figures of one test set with intervals over recordings, and F1 at the threshold that would have suited it best."""
    values = json.loads((folder / "results.json").read_text("utf-8"))
    own = next(item for item in values["sets"] if item["name"] == split)
    matched = own["ways"]["iou"]
    figures = {name: matched["numbers"][name] for name in FIGURES}
    return {"best_f1": round(matched["best_f1"] or 0.0, 4), **figures, "recordings": own["recordings"]}


def goes_on(what: str, end: End) -> None:
    """Nothing follows a training that was told to stop."""
    if end != "finished":
        raise SystemExit(f"{what}: {end}; the same command goes on.")


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
