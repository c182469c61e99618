"""Review in rounds on real sound: does it pay to be asked for the right minutes?

    python -m experiments.review_loop DATA --start MODEL       writes experiments/results/review_loop.json
    python -m experiments.review_loop --picture review_loop.png

A detector learns from five labelled minutes of the BIRDeep recorder AM1. Then four rounds: it hears the other minutes of
the first days, a reviewer looks at one minute more, as spans of 20 s, and it learns anew from all that is labelled. The
reviewer knows the experts' boxes, and corrects, rejects and draws until a span is right. Two reviewers differ in nothing
but which spans they are asked for: the most doubtful, spread over hours and days, or the next ones by the clock. Both are
tested on later days, of which no sound was ever asked for.

Every step is a verb of MAST or the function behind it. What is there is not made again. `--start` is a model to learn
from in every round, such as one that `mast rehearse` has made.
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

from experiments.soundscapes.material import read_rows
from mast.boxes import iou
from mast.cli import app
from mast.config import Study, Train, load_study
from mast.datasets.budget import propose, unlabelled_spans
from mast.datasets.examples import detection_examples
from mast.datasets.split_table import existing
from mast.detection.evaluate import evaluate_study
from mast.detection.found import open_found
from mast.events import event_id
from mast.pictures.curves import COLOURS, GRID, HEIGHT_IN, WIDTH_IN
from mast.recordings.store import AudioStore
from mast.review.queues import Ask
from mast.review.reading import NAMES, REVIEW, read_verdicts
from mast.review.sounds import BOX, heard_of, sounds_of
from mast.review.spans import minutes
from mast.review.verdicts import Verdict, holding
from mast.study.products import STORE
from mast.training.finetune import train_study
from mast.training.run import Run

RESULT = Path(__file__).parent / "results" / "review_loop.json"
FIRST = 5
"""Recordings of a minute that are labelled before the first round."""

HELD_FROM = "2023-05-15"
TEST = "later_days"
SPAN_S, SPANS_A_ROUND = 20.0, 3
MIN_SCORE = 0.05
SAME_IOU = 0.3
"""From this IoU on the reviewer takes a box for the sound it should be, and corrects it; the experts' own are loose."""

FIGURES = ("f1", "precision", "recall", "ap_area")
PICTURE_DPI = 120
Truths = Mapping[str, "np.ndarray[Any, np.dtype[np.float64]]"]


@dataclass(frozen=True, slots=True)
class Round:
    """What a queue may look at: the study as it is, what was found, and what was decided in all rounds so far."""

    study: Study
    sounds: pa.Table
    heard: pa.Table
    decided: Mapping[str, Verdict]


def doubtful(given: Round) -> list[Ask]:
    """The queue `doubtful` of `mast review`."""
    return minutes(
        given.sounds, given.decided, SPANS_A_ROUND, heard=given.heard, liking="doubtful", span_s=SPAN_S
    )


def sequential(given: Round) -> list[Ask]:
    """What comes next by the clock, as `mast budget --strategy sequential` has it."""
    spans = propose(
        unlabelled_spans(given.study, SPAN_S),
        SPANS_A_ROUND * SPAN_S / 3600,
        "sequential",
        given.study.splits.seed,
    )
    return [Ask(span.recording_id, span.start_s, span.end_s, (), "the next by the clock") for span in spans]


REVIEWERS: dict[str, Callable[[Round], list[Ask]]] = {"doubtful": doubtful, "sequential": sequential}


def main() -> None:
    """Run every round that is missing and write the result; or draw one that is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--work", type=Path, default=Path("review_loop"))
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--start", help="a model to start every training from")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--picture", type=Path, help="draw the results of --out into this file; make nothing")
    options = parser.parse_args()
    if options.picture:
        draw_rounds(json.loads(options.out.read_text("utf-8"))).savefig(options.picture, dpi=PICTURE_DPI)
        return
    if options.data is None:
        raise SystemExit("DATA is missing: the folder that holds birdeep-am1.")
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in REVIEWERS}
    for seed in options.seeds:
        loop = Loop(options.data.absolute(), options.work.absolute() / str(seed), options, seed)
        for name in REVIEWERS:
            figures[name][str(seed)] = loop.rounds(name)
    settings = {
        "steps": options.steps,
        "rounds": options.rounds,
        "span_s": SPAN_S,
        "started": bool(options.start),
    }
    write_result(options.out, {"reviewers": figures, **settings}, ("torch", "timm", "numpy"))


@dataclass(frozen=True)
class Loop:
    """The rounds of one seed, below one folder."""

    data: Path
    folder: Path
    options: argparse.Namespace
    seed: int

    def rounds(self, reviewer: str) -> list[dict[str, Any]]:
        """Figures of the first training and of each round of a reviewer."""
        begun, own = self.folder / "begun", self.folder / reviewer
        first = self.learned(self.study_file(begun), begun / "rounds" / "0")
        if not own.exists():
            shutil.copytree(begun, self.folder / f".{reviewer}", dirs_exist_ok=True)
            (self.folder / f".{reviewer}").rename(own)
        told = [first]
        for number in range(1, self.options.rounds + 1):
            place = own / "rounds" / str(number)
            if not (place / "evaluation" / "results.json").exists():
                self.review(reviewer, own, number)
            told.append(self.learned(own / "study.yaml", place))
            print(self.seed, reviewer, number, told[-1], flush=True)
        return told

    def study_file(self, folder: Path) -> Path:
        """The study with five labelled minutes, prepared."""
        path = folder / "study.yaml"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            source = self.data / "birdeep-am1"
            labelled = first_labels(source, folder / "first.csv")
            draft = path.with_suffix(".draft.yaml")
            draft.write_text(yaml.safe_dump(settings_of(source, labelled, self)), encoding="utf-8")
            for verb in ("scan", "splits", "prepare"):
                mast(verb, str(draft))
            draft.rename(path)
        return path

    def learned(self, study_file: Path, place: Path) -> dict[str, Any]:
        """Train on what the study has now, unless that is done, and test on later days."""
        study = load_study(study_file)
        chunks = detection_examples(study, AudioStore(existing(study, STORE)), "train").chunks
        if not (place / "evaluation" / "results.json").exists():
            changed = {"start": self.options.start, "seed": self.seed}
            changed |= schedule(self.options.steps, len(chunks), study.train)
            chosen = study.model_copy(update={"train": study.train.model_copy(update=changed)})
            train_study(chosen, Run(place))
            evaluate_study(chosen, str(Run(place).model), str(place / "evaluation"), [TEST])
            boxes = sum(map(len, chunks.boxes(np.arange(len(chunks)))))
            (place / "taught.json").write_text(json.dumps({"chunks": len(chunks), "boxes": boxes}), "utf-8")
        (tested,) = json.loads((place / "evaluation" / "results.json").read_text("utf-8"))["sets"]
        matched = tested["ways"]["iou"]
        taught = json.loads((place / "taught.json").read_text("utf-8"))
        return {
            **taught,
            "best_f1": matched["best_f1"],
            **{name: matched["numbers"][name] for name in FIGURES},
        }

    def review(self, reviewer: str, own: Path, number: int) -> None:
        """One round of a reviewer: hear, ask, decide, and take the labels into the study."""
        study_file, events = own / "study.yaml", own / "rounds" / str(number) / "events"
        model = Run(own / "rounds" / str(number - 1)).model
        options = ["--min-score", str(MIN_SCORE), "--workers", "1", "--device", "cpu"]
        mast("detect", str(study_file), "--model", str(model), "--out", str(events), *options)
        if not (events / REVIEW).exists():
            study, found = load_study(study_file), open_found(str(events))
            stores = sorted(own.glob(f"rounds/*/events/{REVIEW}"))
            decided = holding(item for place in stores for item in read_verdicts(str(place)))
            sounds, heard = sounds_of(found), pool(heard_of(found), study)
            asks = REVIEWERS[reviewer](Round(study, sounds, heard, decided))
            keep(events / REVIEW, decide(asks, sounds, truths_of(self.data)))
        mast("labels", str(study_file), str(events))


def first_labels(source: Path, target: Path) -> Path:
    """The experts' tables of the first recordings by the clock, and of the later days, which are for the test alone."""
    tables = [read_rows(source / name) for name in ("annotations.csv", "no_bird_markers.csv")]
    names = sorted(path.name for path in (source / "audio").glob("*.flac"))  # AM1_20230510_073000.flac …
    later = [name for name in names if name.split("_")[1] >= HELD_FROM.replace("-", "")]
    labelled = {*names[:FIRST], *later}
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(tables[0][0]))
        writer.writeheader()
        writer.writerows(row for table in tables for row in table if row["recording"] in labelled)
    return target


def settings_of(source: Path, labelled: Path, loop: Loop) -> dict[str, Any]:
    """The study: a tiny model, later days held out, and no in-domain test, for labels are few."""
    return {
        "preset": "laptop",
        "work": "work",
        "collections": {"am1": {"root": str(source / "audio"), "time_zone": "Europe/Madrid"}},
        "annotations": [{"path": str(labelled), "format": "csv"}],
        "labels": {"animal": ["*"], "noise": ["No audio"]},
        "chunking": {"chunk_s": 5.12, "hop_s": 2.56},
        "normalisation": "band-median",
        "model": {"adapter": "upsampling"},
        "train": {"rehearsed_share": 0, "min_steps": 0},
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
    """As many epochs as make so many steps, a twentieth of them to warm up, the encoder opened in tenths."""
    epochs = max(1, round(steps / max(1, chunks // min(settings.batch, max(1, chunks)))))
    tenth = max(1, epochs // 10)
    turns = {"first_epoch": tenth, "every_epochs": tenth}
    return {
        "epochs": epochs,
        "warmup_epochs": epochs / 20,
        "picture_epochs": max(1, epochs // 5),
        "unfreezing": settings.unfreezing.model_copy(update=turns),
    }


def pool(heard: pa.Table, study: Study) -> pa.Table:
    """What a reviewer may be asked for: recordings of the first days of which anything is unlabelled."""
    names = sorted({span.recording_id for span in unlabelled_spans(study, SPAN_S)})
    return heard.filter(pc.is_in(heard["recording_id"], value_set=pa.array(names, pa.string())))


def truths_of(data: Path) -> Truths:
    """The experts' boxes by recording: start_s, low_hz, end_s, high_hz. (n, 4) each"""
    rows = read_rows(data / "birdeep-am1" / "annotations.csv")
    boxes: dict[str, list[list[float]]] = {}
    for row in rows:
        boxes.setdefault(f"am1/{row['recording']}", []).append([float(row[name]) for name in BOX])
    return {name: np.array(own) for name, own in boxes.items()}


def decide(asks: Sequence[Ask], sounds: pa.Table, truths: Truths) -> list[Verdict]:
    """What a reviewer who knows the truth says of every span: each sound corrected or rejected, each missed one drawn."""
    verdicts: list[Verdict] = []
    rows = sounds.to_pylist()
    for ask in asks:
        own = [row for row in rows if row["recording_id"] == ask.recording_id and _inside(row, ask)]
        known = truths.get(ask.recording_id, np.zeros((0, 4)))
        known = known[(known[:, 0] < ask.end_s) & (known[:, 2] > ask.start_s)]
        boxes = torch.tensor([[row[name] for name in BOX] for row in own], dtype=torch.float64).reshape(-1, 4)
        shared = iou(boxes, torch.from_numpy(known)).numpy()  # (sounds, truths)
        taken: set[int] = set()
        for row, overlap in zip(own, shared, strict=True):
            best = int(overlap.argmax()) if len(overlap) else -1
            right = best >= 0 and overlap[best] >= SAME_IOU and best not in taken
            taken |= {best} if right else set()
            box = known[best].tolist() if right else [row[name] for name in BOX]
            state = "accepted" if right else "rejected"
            verdicts.append(_verdict(row["event_id"], "sound", state, ask, box, row["score"]))
        for number in sorted(set(range(len(known))) - taken):
            start_s, low_hz, end_s, high_hz = known[number].tolist()
            name = "drawn " + event_id(ask.recording_id, start_s, end_s, low_hz, high_hz)
            verdicts.append(_verdict(name, "sound", "accepted", ask, known[number].tolist(), None))
        name = f"span {ask.recording_id} {ask.start_s:g}"
        verdicts.append(_verdict(name, "span", "accepted", ask, [ask.start_s, None, ask.end_s, None], None))
    return list(holding(verdicts).values())


def _inside(row: Mapping[str, Any], ask: Ask) -> bool:
    return bool(row["start_s"] < ask.end_s and row["end_s"] > ask.start_s)


def _verdict(
    subject: str, kind: Any, state: Any, ask: Ask, box: Sequence[float | None], score: float | None
) -> Verdict:
    start_s, low_hz, end_s, high_hz = box
    return Verdict(
        number=0,
        subject=subject,
        version=1,
        kind=kind,
        state=state,
        recording_id=ask.recording_id,
        start_s=start_s or 0.0,
        end_s=end_s or 0.0,
        low_hz=low_hz,
        high_hz=high_hz,
        label=None,
        score=score,
        model=None,
        who="expert",
        at_utc=datetime.now(UTC),
    )


def keep(location: Path, verdicts: Sequence[Verdict]) -> None:
    """Write verdicts as `mast review` keeps them; the store appears when it is complete."""
    partial = location.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    connection = sqlite3.connect(partial)
    with connection:
        connection.execute(f"CREATE TABLE verdicts ({', '.join(NAMES)})")
        for number, item in enumerate(verdicts, start=1):
            values = dict(zip(NAMES, astuple(item), strict=True))
            row = tuple((values | {"number": number, "at_utc": item.at_utc.isoformat()}).values())
            connection.execute(f"INSERT INTO verdicts VALUES ({', '.join('?' * len(NAMES))})", row)
    connection.close()
    partial.rename(location)


def mast(*words: str) -> None:
    """Run a verb of MAST."""
    done = CliRunner().invoke(app, list(words))
    if done.exit_code:
        raise SystemExit(f"mast {' '.join(words)}\n{done.output}{done.exception}")


def draw_rounds(result: Mapping[str, Any]) -> Figure:
    """F1 and average precision on later days (y) by labelled minutes (x), a line for each reviewer over its seeds."""
    figure = Figure(figsize=(2 * WIDTH_IN, HEIGHT_IN), layout="constrained")
    titles = {"f1": "F1 at the threshold of validation", "ap_area": "Average precision"}
    for axes, (name, title) in zip(figure.subplots(1, len(titles)), titles.items(), strict=True):
        for colour, (reviewer, seeds) in zip(COLOURS, result["reviewers"].items(), strict=False):
            values = np.array([[_number(item[name]) for item in rounds] for rounds in seeds.values()])
            labelled = FIRST + np.arange(values.shape[1]) * SPANS_A_ROUND * SPAN_S / 60
            axes.plot(labelled, values.mean(axis=0), color=colour, marker="o", markersize=4, label=reviewer)
            for own in values if len(values) > 1 else ():
                axes.plot(labelled, own, color=colour, linewidth=0.6, alpha=0.5)
            axes.set_xticks(labelled)
        axes.set_xlabel("Labelled minutes", fontsize=9)
        axes.set_ylabel(title, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.tick_params(labelsize=8, length=0)
        axes.legend(fontsize=8, frameon=False, loc="best")
        for side in axes.spines.values():
            side.set_visible(False)
    return figure


def _number(value: Mapping[str, float | None]) -> float:
    """A figure without its bounds; one that cannot be told is nothing."""
    return value["value"] or 0.0


if __name__ == "__main__":
    main()
