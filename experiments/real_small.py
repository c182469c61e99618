"""Three small real studies, each with a detector from scratch and one from a pretrained encoder, whatever comes out.

python -m experiments.real_small DATA --start knn_probe/seed_0/model
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

from benchmarks.results import write_result
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Study, load_study
from mast.detection.evaluate import evaluate_study
from mast.training.finetune import train_study
from mast.training.pretrain import pretrain_study
from mast.training.run import Run

CONFIGS = Path(__file__).parents[1] / "configs"
STUDIES: dict[str, dict[str, str]] = {
    "birdeep-am1": {
        "collections.am1.root": "birdeep-am1/audio",
        "annotations.0.path": "birdeep-am1/annotations.csv",
        "annotations.1.path": "birdeep-am1/no_bird_markers.csv",
    },
    "boobook": {
        "collections.qut.root": "qut-boobook/audio",
        "annotations.0.path": "qut-boobook/annotations.csv",
    },
    "bats": {
        "collections.bats.root": "whombat-bats/audio",
        "annotations.0.path": "original-tables/aoef-whombat/example_annotation_project.json",
    },
}
FIGURES = ("precision", "recall", "f1", "ap_101_points", "mean_iou")


def main() -> None:
    """Prepare, pretrain, train and evaluate each study; write a table of study × model × split."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("real_small"))
    parser.add_argument("--out", type=Path, default=Path("experiments/results/real_small.json"))
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--pretrain-epochs", type=int, default=40)
    parser.add_argument("--studies", nargs="*", default=list(STUDIES))
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in options.studies:
        study = prepared(name, options)
        encoder = Run(options.work / name / "pretrain")
        pretrain_study(study, encoder)
        figures[name] = {}
        for model, start in (("scratch", None), ("pretrained", str(encoder.model))):
            figures[name][model] = measured(study, Run(options.work / name / model), start)
            print(name, model, figures[name][model], flush=True)
    settings = {name: getattr(options, name) for name in ("size", "epochs", "pretrain_epochs")}
    write_result(options.out, {"studies": figures, **settings}, ("torch", "timm", "numpy"))


def prepared(name: str, options: argparse.Namespace) -> Study:
    """A study of `configs/`, its sound from the data folder, prepared in the work folder."""
    paths = {key: str(options.data.absolute() / path) for key, path in STUDIES[name].items()}
    if name == "boobook":
        paths["annotations.1.path"] = str(reviewed_clips(options.data, options.work.absolute()))
    values = {
        "work": str((options.work / name / "work").absolute()),
        **paths,
        "preset": "laptop",
        "model.size": options.size,
        "normalisation": "band-median",
        "train.epochs": options.epochs,
        "pretrain.epochs": options.pretrain_epochs,
    }
    overrides = [f"{key}={value}" for key, value in values.items()]
    for verb in ("scan", "splits", "prepare"):
        arguments = [verb, str(CONFIGS / f"{name}.yaml")]
        for item in overrides:
            arguments += ["--set", item]
        done = CliRunner().invoke(app, arguments)
        if done.exit_code:
            raise SystemExit(done.output)
    return load_study(CONFIGS / f"{name}.yaml", overrides)


def reviewed_clips(data: Path, work: Path) -> Path:
    """The table that the study asks for: every clip was listened to from end to end."""
    table = work / "boobook_reviewed.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    with (data / "qut-boobook" / "recordings.csv").open(encoding="utf-8", newline="") as file:
        names = [row["recording"] for row in csv.DictReader(file)]
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recording", "start_s", "end_s"])
        writer.writerows([name, "", ""] for name in names)
    return table


def measured(study: Study, run: Run, start: str | None) -> dict[str, Any]:
    """Train a detector and evaluate it on every test set, per chunk, with intervals over recordings."""
    chosen = study.model_copy(update={"train": study.train.model_copy(update={"start": start})})
    train_study(chosen, run)
    results = evaluate_study(chosen, str(run.model), str(run.folder / "evaluation")).results
    return {
        item.name: {
            "recordings": item.recordings,
            "truths": item.ways["iou"].truths,
            **{
                name: [
                    None if math.isnan(number) else round(number, 4)
                    for number in (value.value, value.low, value.high)
                ]
                for name, value in item.ways["iou"].numbers.items()
                if name in FIGURES
            },
        }
        for item in results.sets
    }


if __name__ == "__main__":
    main()
