"""Sounds get the names of examples, in files that export and report read."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.detection.export import export
from mast.detection.found import open_found
from mast.detection.report import report
from mast.embeddings.examples import Example, hear_examples, open_known
from mast.embeddings.names import name_events
from mast.embeddings.neighbours import encoder_of_table
from mast.embeddings.table import open_vectors
from mast.errors import AnnotationError
from tests.detection.archives import rows
from tests.embeddings.runs import rows_of

HIGH_HZ = 3000.0


@pytest.fixture(scope="module")
def named_run(embedded, run, tmp_path_factory):
    """The run, with its own boxes as examples: some high, some low, a few without a name."""
    place = tmp_path_factory.mktemp("examples") / "boxes.csv"
    with place.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recording", "start_s", "end_s", "low_hz", "high_hz", "label"])
        for number, event in enumerate(rows(run, "events")):
            name = "high" if event["low_hz"] > HIGH_HZ else "low"
            box = [event[key] for key in ("recording_id", "start_s", "end_s", "low_hz", "high_hz")]
            writer.writerow([*box, "" if number % 10 == 0 else name])
    return run, str(place)


def test_every_sound_has_a_row_and_export_and_report_tell_its_name(named_run, tmp_path):
    run, examples = named_run
    told = []
    known = open_known(run, examples)
    named = name_events(known, max_wrong=0.9, on_progress=lambda *item: told.append(item))
    every = rows_of(f"{run}/embeddings.lance")
    assert told[-1] == (len(every), len(every)) and named.examples.left_out["box without a name"] > 0
    given = {
        name: label
        for number in open_found(run).numbers
        for name, label in open_found(run).names(number).items()
    }
    assert given.keys() <= {row["event_id"] for row in every} and set(given.values()) <= {"high", "low"}
    assert Counter(given.values()) == named.counts and named.counts.total() + named.unknown == len(every)
    assert named.counts.total() > 0
    rule = json.loads(Path(run, "names", "naming.json").read_text("utf-8"))
    assert rule["examples"] == len(known.examples.boxes) and rule["source"] == examples
    export(run, "csv", str(tmp_path / "csv"))
    with (tmp_path / "csv" / "events.csv").open(encoding="utf-8", newline="") as file:
        assert Counter(row["label"] for row in csv.DictReader(file) if row["label"]) == named.counts
    export(run, "audacity", str(tmp_path / "audacity"))
    tracks = "".join(path.read_text("utf-8") for path in (tmp_path / "audacity").rglob("*.txt"))
    assert tracks.count("high ") + tracks.count("low ") == named.counts.total()
    report(run, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Who it may be" in page and all(f"<td>{name}</td>" in page for name in named.counts)


def test_names_of_a_naming_that_was_stopped_are_not_told(named_run, monkeypatch):
    run, examples = named_run
    known = open_known(run, examples)
    name_events(known, max_wrong=0.9)
    first = open_found(run).numbers[0]
    assert open_found(run).names(first) and open_found(run).naming()

    def killed(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        name_events(known, max_wrong=0.5, on_progress=killed)
    assert open_found(run).names(first) == {} and open_found(run).naming() is None
    name_events(known, max_wrong=0.9)
    assert open_found(run).names(first)


def test_the_command_tells_what_became_of_it(named_run):
    run, examples = named_run
    done = CliRunner().invoke(app, ["name", run, "--examples", examples, "--max-wrong", "0.9"])
    assert done.exit_code == 0, done.output
    assert "sounds have a name" in done.stdout and "left out" in done.stdout and "Names:" in done.stdout


def test_a_study_file_gives_its_experts_boxes(study, tmp_path, embedded, run):
    file = tmp_path / "study.yaml"
    file.write_text(study.model_dump_json(exclude_none=True, exclude_defaults=True), "utf-8")
    known = open_known(run, str(file))
    assert {"whistle", "trill"} <= set(known.examples.named.labels)
    assert len(set(known.examples.named.recordings)) > 1


def test_examples_that_cannot_be_heard_are_counted(embedded, run):
    found = open_found(run)
    known = rows(run, "events")[0]
    where = found.place(*found.split_id(known["recording_id"]))
    boxes = [
        Example("a", "card/none.WAV", "none.WAV", 1.0, None, (0.0, 10.0, 1.0, 20.0)),
        Example("a", known["recording_id"], where, 1.0, None, (0.0, 9000.0, 1.0, 9500.0)),
    ]
    story = open_vectors(f"{run}/embeddings.lance")[1]
    heard = hear_examples(boxes, encoder_of_table(f"{run}/embeddings.lance", story, story.location, "cpu"))
    assert heard.boxes == () and heard.left_out.total() == 2


def test_tables_without_names_are_refused(named_run, tmp_path):
    run, _ = named_run
    (tmp_path / "boxes.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\nx.WAV,0,1,10,20,a\n", "utf-8"
    )
    with pytest.raises(AnnotationError, match="no box here"):
        open_known(run, str(tmp_path / "boxes.csv"))
