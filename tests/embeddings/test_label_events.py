"""Events get the labels of reference annotations, in files that `mast export` and `mast report` read."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.embeddings.label_events import label_events
from mast.embeddings.references import ReferenceEvent, embed_references, load_references
from mast.embeddings.vector_search import encoder_of_table
from mast.embeddings.vector_table import open_vectors
from mast.errors import AnnotationError
from mast.outputs.export import export
from mast.outputs.report import report
from mast.runs.results import open_results
from tests.embeddings.runs import rows_of
from tests.runs.archives import rows

HIGH_HZ = 3000.0


@pytest.fixture(scope="module")
def labelled_run(embedded, run, tmp_path_factory):
    """Return the run and its own events as references: labels "high" and "low", every tenth without a label."""
    location = tmp_path_factory.mktemp("references") / "boxes.csv"
    with location.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recording", "start_s", "end_s", "low_hz", "high_hz", "label"])
        for number, event in enumerate(rows(run, "events")):
            label = "high" if event["low_hz"] > HIGH_HZ else "low"
            box = [event[key] for key in ("recording_id", "start_s", "end_s", "low_hz", "high_hz")]
            writer.writerow([*box, "" if number % 10 == 0 else label])
    return run, str(location)


def test_every_event_has_a_row_and_export_and_report_include_its_label(labelled_run, tmp_path):
    run, location = labelled_run
    progress = []
    references = load_references(run, location)
    result = label_events(references, max_error_rate=0.9, on_progress=lambda *call: progress.append(call))
    events = rows_of(f"{run}/embeddings.lance")
    assert progress[-1] == (len(events), len(events))
    assert result.references.excluded["box without a label"] > 0
    labels = {
        event_id: label
        for number in open_results(run).numbers
        for event_id, label in open_results(run).labels(number).items()
    }
    assert labels.keys() <= {row["event_id"] for row in events} and set(labels.values()) <= {"high", "low"}
    assert Counter(labels.values()) == result.counts
    assert result.counts.total() + result.unlabelled == len(events) and result.counts.total() > 0
    rule = json.loads(Path(run, "labels", "labelling.json").read_text("utf-8"))
    assert rule["examples"] == len(references.references.boxes) and rule["source"] == location
    export(run, "csv", str(tmp_path / "csv"))
    with (tmp_path / "csv" / "events.csv").open(encoding="utf-8", newline="") as file:
        assert Counter(row["label"] for row in csv.DictReader(file) if row["label"]) == result.counts
    export(run, "audacity", str(tmp_path / "audacity"))
    tracks = "".join(path.read_text("utf-8") for path in (tmp_path / "audacity").rglob("*.txt"))
    assert tracks.count("high ") + tracks.count("low ") == result.counts.total()
    report(run, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Tentative labels" in page and all(f"<td>{name}</td>" in page for name in result.counts)


def test_labels_of_an_interrupted_call_are_not_read(labelled_run, monkeypatch):
    run, location = labelled_run
    references = load_references(run, location)
    label_events(references, max_error_rate=0.9)
    first = open_results(run).numbers[0]
    assert open_results(run).labels(first) and open_results(run).labelling()

    def killed(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_events(references, max_error_rate=0.5, on_progress=killed)
    assert open_results(run).labels(first) == {} and open_results(run).labelling() is None
    label_events(references, max_error_rate=0.9)
    assert open_results(run).labels(first)


def test_the_command_prints_the_counts_and_the_location(labelled_run):
    run, location = labelled_run
    done = CliRunner().invoke(app, ["label-events", run, "--examples", location, "--max-error-rate", "0.9"])
    assert done.exit_code == 0, done.output
    assert "events labelled" in done.stdout and "excluded" in done.stdout and "Labels:" in done.stdout


def test_a_study_file_provides_its_annotations_as_references(study, tmp_path, embedded, run):
    file = tmp_path / "study.yaml"
    file.write_text(study.model_dump_json(exclude_none=True, exclude_defaults=True), "utf-8")
    references = load_references(run, str(file))
    assert {"whistle", "trill"} <= set(references.references.labels.labels)
    assert len(set(references.references.labels.recordings)) > 1


def test_unreadable_references_are_counted(embedded, run):
    results = open_results(run)
    recording_id = rows(run, "events")[0]["recording_id"]
    location = results.location(*results.split_id(recording_id))
    boxes = [
        ReferenceEvent("a", "card/none.WAV", "none.WAV", 1.0, None, (0.0, 10.0, 1.0, 20.0)),
        ReferenceEvent("a", recording_id, location, 1.0, None, (0.0, 9000.0, 1.0, 9500.0)),
    ]
    table = f"{run}/embeddings.lance"
    metadata = open_vectors(table)[1]
    references = embed_references(boxes, encoder_of_table(table, metadata, metadata.location, "cpu"))
    assert references.boxes == () and references.excluded.total() == 2


def test_tables_without_usable_labels_are_refused(labelled_run, tmp_path):
    run, _ = labelled_run
    (tmp_path / "boxes.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\nx.WAV,0,1,10,20,a\n", "utf-8"
    )
    with pytest.raises(AnnotationError, match="no annotation has a label"):
        load_references(run, str(tmp_path / "boxes.csv"))
