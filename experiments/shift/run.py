"""Run the shift benchmark: train methods on one day at one site, evaluate there, on other days and at other sites.

    python -m experiments.shift.run DATA --size small             train and evaluate every missing cell
    python -m experiments.shift.run DATA --size small --only mast scratch --seeds 0 --minutes 90
    python -m experiments.shift.run DATA --only transfer --start CHECKPOINT
    python -m experiments.shift.run --table main ablations --picture shift.png

Every method is a study with some changed settings, run by MAST's commands, or a baseline detector instead of MAST's.
Every cell (method, seed) stores its model and its evaluation below the work folder; finished cells are skipped. After
a kill at any moment, the same command resumes. The inputs of all tables are archived in a folder beside the result
files, which collects cells of several machines; tables can be made again from it without any model.

Thresholds are chosen on in-domain validation only; for methods that train on synthetic calls, also on synthetic calls
in its background chunks, as in `mast train`. The best baseline is the one with the highest AP at other sites. The
recommended method was chosen after looking at the shifted test sets, and then tested at other sites
(`experiments.new_sites`). Baselines start from random weights, as MAST does, and train on the same chunks for the
same number of steps.
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

from experiments.baselines.evaluate import evaluate_baseline
from experiments.baselines.train import train_baseline
from experiments.shift.archive import archive_cell
from experiments.shift.methods import METHODS, Method, apply_budget, shorten_pretraining
from experiments.shift.plots import plot_shift
from experiments.shift.summary import SPLITS, Cells, finished_cells, summary, validation_ap
from experiments.shift.tables import TABLES
from experiments.soundscapes.sites import SIZES
from experiments.soundscapes.sources import read_sources
from experiments.soundscapes.write import write_benchmark
from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.prepare import NORMALISATION
from mast.datasets.split_table import require_artifact
from mast.errors import MissingExtraError
from mast.evaluation.evaluate import evaluate_study
from mast.models.checkpoint import load_model
from mast.storage import exists, join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.loop import End, Progress
from mast.training.pretrain import pretrain_study
from mast.training.run_dir import TrainingRun
from mast.training.selftrain import selftrain_study
from mast.training.supervised import train_study
from mast.training.synthetic import train_synthetic_study
from mast.training.training_data import LABELLED_ONLY

RESULTS = Path(__file__).parents[1] / "results"
DEFAULT_OUT = RESULTS / "shift.json"
METRICS = (
    "precision",
    "recall",
    "f1",
    "average_precision",
    "average_precision_coco",
    "average_precision_voc",
    "mean_iou",
)
PACKAGES = ("torch", "torchvision", "timm", "numpy", "transformers", "ultralytics")
FIGURE_DPI = 120
OLD_MODULE = "experiments.run"
"""Name of this module at the commits of removed methods."""


def main() -> None:
    """Create the benchmark and every missing cell, and write the results; or print existing results."""
    options = _options()
    if options.table is not None or options.picture:
        show_results(options.out, options.table or [], options.picture)
        return
    if options.data is None:
        raise SystemExit("DATA is missing: the folder of source recordings for the soundscapes.")
    check_result_file(options.out, options.size, options.sets)
    start = str(options.start.absolute()) if options.start else None
    check_work_folder(options.work / options.size, options.sets, start)
    benchmark = Benchmark(options.data, options.work / options.size, options.size, tuple(options.sets), start)
    names = options.only or [
        name
        for name, method in METHODS.items()
        if (start or not method.from_checkpoint) and not method.removed_after
    ]
    start_s = time.monotonic()
    for seed in options.seeds:
        for name in names:
            if time.monotonic() - start_s > options.minutes * 60:
                break
            try:
                benchmark.cell(name, seed)
            except MissingExtraError as error:
                print(f"{name} {seed} is skipped. {error}", flush=True)
            benchmark.archive(archive_folder(options.out))
    write_tables(benchmark, options.out)


def write_tables(benchmark: Benchmark, out: Path) -> None:
    """Write the result files from all archived cells; keep earlier results of methods without archived cells."""
    cells = finished_cells(archive_folder(out))
    before, summary_before = (read_earlier(path, size=benchmark.size) for path in (out, summary_path(out)))
    rows = [
        *(row for row in before.get("rows", []) if row["method"] not in cells),
        *benchmark.rows(cells),
    ]
    rows.sort(key=lambda row: ([*METHODS].index(row["method"]), row["seed"]))
    write_result(out, {"size": benchmark.size, "rows": rows}, PACKAGES)
    write_result(summary_path(out), {"size": benchmark.size, **summary(cells, summary_before)}, PACKAGES)


def check_result_file(out: Path, size: str, overrides: Sequence[str]) -> None:
    """Check that a result file has this size, and that changed settings do not go to the default file."""
    existing = json.loads(out.read_text("utf-8")).get("size", size) if out.exists() else size
    if existing != size:
        raise SystemExit(
            f"{out} contains results of --size {existing}. Write those of {size} to another file with --out."
        )
    if overrides and out.resolve() == DEFAULT_OUT.resolve():
        raise SystemExit(
            f"{out} contains results with unchanged settings. Write results with --set to another file with --out."
        )


def check_work_folder(folder: Path, overrides: Sequence[str], start: str | None) -> None:
    """Check that the cells of a work folder have these settings and this checkpoint: finished cells are skipped."""
    note = folder / "changed.json"
    existing = read_earlier(note) if note.exists() or (folder / "cells").exists() else {"sets": [*overrides]}
    before, checkpoint = existing.get("sets", []), existing.get("start")
    if before != [*overrides] or (None not in (checkpoint, start) and checkpoint != start):
        used = " ".join(
            [*(f"--set {setting}" for setting in before), *([f"--start {checkpoint}"] if checkpoint else [])]
        )
        raise SystemExit(
            f"{folder} contains cells made {'with ' + used if used else 'without --set'}. Use another folder with --work."
        )
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"sets": before, "start": checkpoint or start}), "utf-8")


def read_earlier(path: Path, **settings: object) -> dict[str, Any]:
    """Return the content of a result file if it has these settings, otherwise an empty dictionary."""
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
    parser.add_argument("--only", nargs="*", choices=METHODS, help="methods; by default all")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", dest="sets", help="a changed setting"
    )
    parser.add_argument("--start", type=Path, help="checkpoint for the methods transfer and transfer_hybrid")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no cell after this number of minutes"
    )
    parser.add_argument(
        "--table", nargs="*", choices=TABLES, help="only print these tables of --out; by default all"
    )
    parser.add_argument("--picture", type=Path, help="only plot the results of --out into this file")
    return parser.parse_args()


def summary_path(out: Path) -> Path:
    """Return the path of the summary that belongs to a result file."""
    return out.with_name(f"{out.stem}_summary.json")


def archive_folder(out: Path) -> Path:
    """Return the folder of archived cells that belongs to a result file."""
    return out.with_suffix("")


def show_results(out: Path, names: Sequence[str], figure: Path | None) -> None:
    """Print tables of result files, and plot them into a file."""
    result, totals = (json.loads(path.read_text("utf-8")) for path in (out, summary_path(out)))
    for name in names or (() if figure else TABLES):
        print(f"{name}\n\n{TABLES[name](result, totals)}")
    if figure:
        plot_shift(totals).savefig(figure, dpi=FIGURE_DPI)


@dataclass(frozen=True)
class Benchmark:
    """The cells of a benchmark below a folder; `start` is the checkpoint of the method `transfer`.

    `world` is the random seed of sites and days. The split of source recordings between sets is the same for all seeds.
    """

    data: Path
    folder: Path
    size: str
    overrides: tuple[str, ...]
    start: str | None = None
    world: int = 0

    @property
    def cells(self) -> Path:
        """Folder of all cells."""
        return self.folder / "cells"

    @property
    def study_file(self) -> Path:
        """Path of the benchmark's study file; the study is created and prepared if necessary."""
        path = self.folder / "soundscapes" / "study.yaml"
        if not path.exists():
            source_audio = read_sources(self.data)
            size, world = SIZES[self.size], self.world
            write_benchmark(
                source_audio, path.parent, size, world, lambda done, total: None, partition_seed=0
            )
        if not exists(join(load_study(path).work_dir, NORMALISATION)):  # the last output of the commands
            for command in ("scan", "split", "prepare"):
                outcome = CliRunner().invoke(app, [command, str(path)])
                if outcome.exit_code:
                    raise SystemExit(f"{outcome.output}{outcome.exception}")
        return path

    def study(self, name: str, seed: int) -> Study:
        """Return the study of a cell, with its settings and seed."""
        method = METHODS[name]
        seeds = tuple(
            f"{stage}.seed={seed}"
            for stage in ("train", "selftrain.pseudo_label_stage", "selftrain.supervised_stage")
        )
        return load_study(
            self.study_file, [*method.settings, *seeds, *self._initial_settings(method), *self.overrides]
        )

    def _initial_settings(self, method: Method) -> tuple[str, ...]:
        """Return settings of a method's initial weights; a given checkpoint keeps its normalisation."""
        if method.from_checkpoint:
            if self.start is None:
                raise SystemExit("transfer needs a checkpoint: --start FOLDER.")
            statistics = load_model(self.start)[0].normalisation
            kind = (f"normalisation={statistics.kind}",) if statistics else ()
            return (f"train.init_from={self.start}", *kind)
        if not method.starts_from_synthetic and not method.pretraining:
            return ()
        initial = self.synthetic_detector(method) if method.starts_from_synthetic else self.encoder(method)
        return (f"train.init_from={initial.model.absolute()}",)

    def encoder(self, method: Method) -> TrainingRun:
        """Return the pretrained encoder of a method, training it if necessary; all seeds share it."""
        study, name = load_study(self.study_file, [*method.settings, *self.overrides]), ""
        if method.pretraining != 1:
            name = f"-{round(100 * method.pretraining)}"
            study = study.model_copy(
                update={"pretrain": shorten_pretraining(study.pretrain, method.pretraining)}
            )
        name = f"{study.normalisation}{name}"
        run = TrainingRun(self.folder / "pretrain" / name)
        if not run.is_finished:
            title = f"pretrain {name}"
            require_finished(title, pretrain_study(study, run, "auto", print_progress(title)))
        return run

    def synthetic_detector(self, method: Method) -> TrainingRun:
        """Return the detector trained on synthetic calls for a method, training it if necessary; all seeds share it."""
        study = load_study(self.study_file, [*method.settings, *self.overrides])
        run = TrainingRun(self.folder / "train-synthetic" / study.normalisation)
        if not run.is_finished:
            title = f"train-synthetic {study.normalisation}"
            require_finished(title, train_synthetic_study(study, run, "auto", print_progress(title)))
        return run

    def cell(self, name: str, seed: int) -> Path:
        """Return the folder of a method's model for a seed; train and evaluate it if necessary."""
        folder = self.cells / name / str(seed)
        if (folder / "evaluation" / "results.json").exists():
            return folder
        if METHODS[name].removed_after:
            raise SystemExit(f"{name} was removed. To train it: {self.command(name, seed)}")
        study, run = self.study(name, seed), TrainingRun(folder)
        require_finished(f"{name} {seed}", self._train(name, seed, study, run))
        evaluate = evaluate_baseline if METHODS[name].baseline else evaluate_study
        evaluate(study, str(run.model), str(folder / "evaluation"))
        return folder

    def _train(self, name: str, seed: int, study: Study, run: TrainingRun) -> End:
        """Train a cell's model, or resume its training."""
        method, on_progress, training_data = METHODS[name], print_progress(f"{name} {seed}"), LABELLED_ONLY
        if method.budget:
            store = AudioStore(require_artifact(study, STORE))
            study, training_data = apply_budget(study, store, method.budget, seed)
        if method.baseline:
            return train_baseline(method.baseline, study, run, "auto", on_progress, training_data)
        if method.teacher:
            teacher = TrainingRun(self.cell(method.teacher, seed)).model
            return selftrain_study(study, run, str(teacher), "auto", print_stage(f"{name} {seed}")).end
        if not method.uses_labels:
            shutil.copytree(self.synthetic_detector(method).model, run.model, dirs_exist_ok=True)
            return "finished"
        return train_study(study, run, "auto", on_progress, training_data)

    def archive(self, folder: Path) -> None:
        """Archive all finished cells, also those that other cells start from."""
        for name, seeds in finished_cells(self.cells).items():
            for seed, cell in seeds.items():
                archive_cell(cell, folder / name / str(seed))

    def rows(self, cells: Cells) -> list[dict[str, Any]]:
        """Return a row for each cell and each test set."""
        return [
            {
                "method": name,
                "seed": seed,
                "split": title,
                **metrics_on(cell / "evaluation", split),
                "validation_ap": round(validation_ap(cell), 4),
                "command": self.command(name, seed),
            }
            for name, seeds in cells.items()
            for seed, cell in seeds.items()
            for split, title in SPLITS.items()
        ]

    def command(self, name: str, seed: int) -> str:
        """Return the command that makes a cell; for a removed method, at its last commit and under its old name."""
        method = METHODS[name]
        start = ("--start", "CHECKPOINT") if method.from_checkpoint else ()
        changed = [argument for setting in self.overrides for argument in ("--set", setting)]
        title = method.old_name or name
        arguments = ["DATA", "--size", self.size, "--only", title, "--seeds", str(seed), *start, *changed]
        checkout = f"git checkout {method.removed_after} && " if method.removed_after else ""
        module = OLD_MODULE if method.removed_after else "experiments.shift.run"
        return f"{checkout}python -m {module} {' '.join(arguments)}"


def metrics_on(folder: Path, split: str) -> dict[str, Any]:
    """Return metrics of one test set with intervals over recordings, and the maximum F1 over all thresholds."""
    values = json.loads((folder / "results.json").read_text("utf-8"))
    set_results = next(results for results in values["sets"] if results["name"] == split)
    matched = set_results["matching_modes"]["iou"]
    metrics = {name: matched["metrics"][name] for name in METRICS}
    return {"max_f1": round(matched["max_f1"] or 0.0, 4), **metrics, "recordings": set_results["recordings"]}


def require_finished(title: str, end: End) -> None:
    """Exit if training was stopped by a signal."""
    if end != "finished":
        raise SystemExit(f"{title}: {end}; run the same command again to resume.")


def print_progress(title: str) -> Callable[[Progress], None]:
    """Return a callback that prints a line every 100 steps."""

    def on_progress(progress: Progress) -> None:
        if progress.step % 100 == 0 or progress.step == progress.steps:
            left = f"{progress.remaining_s / 60:.0f} min left"
            print(
                f"{title}: step {progress.step} of {progress.steps}, loss {progress.loss:.3f}, {left}",
                flush=True,
            )

    return on_progress


def print_stage(title: str) -> Callable[[str, int, int], None]:
    """Return a callback for self-training that prints a line every 100 steps."""

    def on_stage(stage: str, done: int, total: int) -> None:
        if done % 100 == 0 or done == total:
            print(f"{title}: {stage}, {done} of {total}", flush=True)

    return on_stage


if __name__ == "__main__":
    main()
