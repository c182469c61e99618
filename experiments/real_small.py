"""Three small real studies, each with a detector from scratch and one from a pretrained encoder, whatever comes out.

    python -m experiments.real_small DATA --start knn_probe/seed_0/model

The encoder is that of `experiments.knn_probe`, which has heard everything in DATA but the clips of that probe, also the
test recordings of these studies, though none of their boxes. Without `--start` one is pretrained on each study's own
minutes. What is there is not made again.
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
from mast.config import Optimisation, Study, Train, load_study
from mast.datasets.examples import detection_examples, pretraining_examples
from mast.detection.evaluate import evaluate_study
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.study.products import STORE
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
MODELS = {"scratch": False, "pretrained": True}
"""Whether the encoder is pretrained."""

FIGURES = ("precision", "recall", "f1", "ap_101_points", "mean_iou")


def main() -> None:
    """Prepare, pretrain, train and evaluate each study; write a table of study × model × split."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("real_small"))
    parser.add_argument("--out", type=Path, default=Path("experiments/results/real_small.json"))
    parser.add_argument("--start", help="a pretrained encoder for all studies")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--pretrain-steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--studies", nargs="*", default=list(STUDIES))
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in options.studies:
        study = prepared(name, options)
        figures[name] = {}
        for model in options.models:
            figures[name][model] = measured(study, options, Run(options.work / name / model), model)
            print(name, model, figures[name][model], flush=True)
    settings = {name: getattr(options, name) for name in ("size", "steps", "pretrain_steps", "batch")}
    start = "experiments.knn_probe" if options.start else "the study's own sound"
    write_result(
        options.out, {"studies": figures, **settings, "pretrained_on": start}, ("torch", "timm", "numpy")
    )


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
        "chunking.chunk_s": 5.12,
        "chunking.hop_s": 2.56,
        "train.batch": options.batch,
        "pretrain.batch": options.batch,
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


def measured(study: Study, options: argparse.Namespace, run: Run, model: str) -> dict[str, Any]:
    """Train a detector and evaluate it on every test set, per chunk, with intervals over recordings."""
    start = None
    if MODELS[model]:
        start = options.start or encoder_of(study, options, run.folder.parent / "pretrain")
    store = AudioStore(join(study.work, STORE))
    chunks = len(detection_examples(study, store, "train").chunks)
    changed = {"start": start, **schedule(options.steps, chunks, study.train)}
    chosen = study.model_copy(update={"train": study.train.model_copy(update=changed)})
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


def encoder_of(study: Study, options: argparse.Namespace, folder: Path) -> str:
    """An encoder pretrained on the study's own sound."""
    store = AudioStore(join(study.work, STORE))
    chunks = len(pretraining_examples(study, store, study.pretrain.seed))
    changed = study.pretrain.model_copy(update=schedule(options.pretrain_steps, chunks, study.pretrain))
    pretrain_study(study.model_copy(update={"pretrain": changed}), Run(folder))
    return str(Run(folder).model)


def schedule(steps: int, chunks: int, settings: Optimisation) -> dict[str, Any]:
    """As many epochs as make so many steps, a twentieth of them to warm up, the encoder opened in tenths."""
    epochs = max(1, round(steps / max(1, chunks // min(settings.batch, max(1, chunks)))))
    tenth = max(1, epochs // 10)
    changed: dict[str, Any] = {
        "epochs": epochs,
        "warmup_epochs": epochs / 20,
        "picture_epochs": max(1, epochs // 5),
    }
    if isinstance(settings, Train):
        turns = {"first_epoch": tenth, "every_epochs": tenth}
        changed["unfreezing"] = settings.unfreezing.model_copy(update=turns)
    return changed


if __name__ == "__main__":
    main()
