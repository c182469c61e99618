"""The state of a study's artifacts, their changed inputs, and the next command."""

import json
from pathlib import Path

import pytest

from mast.config import AnnotationSource, Collection, Study
from mast.records import Recording, to_table, write_table
from mast.study import artifacts
from mast.study.artifacts import (
    artifact_status,
    fingerprint_file,
    inputs_of,
    next_step,
    not_scanned,
    record_inputs,
    render,
)


@pytest.fixture
def study(tmp_path):
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "a.txt").write_text("one")
    return Study(
        work_dir=str(tmp_path / "work"),
        collections={"card": Collection(root=str(tmp_path / "card"))},
        annotations=(AnnotationSource(path=str(tmp_path / "boxes"), format="raven"),),
    )


def create_artifacts(study: Study, *names: str) -> None:
    """Write small tables and files in place of the commands' artifacts, and record their inputs."""
    for name in names:
        if name.endswith(".parquet"):
            write_table([], Recording, f"{study.work_dir}/{name}")
        else:
            Path(study.work_dir, name).write_text("{}")
        record_inputs(study, name)


def states(study: Study) -> dict[str, str]:
    return {status.artifact.name: status.state for status in artifact_status(study)}


def changed_inputs(study: Study, name: str) -> tuple[str, ...]:
    return next(status.changed for status in artifact_status(study) if status.artifact.name == name)


def test_a_new_study_has_no_artifacts_and_starts_with_a_scan(study):
    statuses = artifact_status(study)
    assert {status.state for status in statuses} == {"missing"}
    assert next_step(statuses) == "scan"


def test_a_created_artifact_is_current_and_the_next_command_is_returned(study):
    create_artifacts(study, "recordings.parquet", "annotations.parquet")
    assert next_step(artifact_status(study)) == "split"
    create_artifacts(study, "splits.parquet")
    assert next_step(artifact_status(study)) == "prepare"
    assert list(states(study).values()) == ["current"] * 3 + ["missing"] * 2


def test_a_study_without_annotations_does_not_wait_for_any(study):
    bare = study.model_copy(update={"annotations": ()})
    create_artifacts(bare, "recordings.parquet")
    assert "annotations.parquet" not in states(bare)
    assert next_step(artifact_status(bare)) == "split"


def test_annotations_removed_from_a_study_after_a_scan_are_stale(study):
    create_artifacts(study, "recordings.parquet", "annotations.parquet", "splits.parquet")
    bare = study.model_copy(update={"annotations": ()})
    assert states(bare)["annotations.parquet"] == "stale" and next_step(artifact_status(bare)) == "scan"


def test_a_changed_setting_makes_only_dependent_artifacts_stale(study):
    create_artifacts(study, "recordings.parquet", "annotations.parquet", "splits.parquet")
    other = study.model_copy(update={"splits": study.splits.model_copy(update={"seed": 7})})
    assert states(other)["recordings.parquet"] == states(other)["annotations.parquet"] == "current"
    assert changed_inputs(other, "splits.parquet") == ("settings",)


def test_a_changed_annotation_file_is_listed(study, tmp_path):
    create_artifacts(study, "recordings.parquet", "annotations.parquet", "splits.parquet")
    (tmp_path / "boxes" / "a.txt").write_text("two")
    assert changed_inputs(study, "annotations.parquet") == (str(tmp_path / "boxes"),)
    assert changed_inputs(study, "splits.parquet") == ("annotations.parquet",)
    (tmp_path / "boxes" / "a.txt").write_text("one")
    assert states(study)["splits.parquet"] == "current"


def test_an_input_that_changes_during_creation_makes_the_artifact_stale(study, tmp_path):
    create_artifacts(study, "recordings.parquet")
    inputs = inputs_of(study, "annotations.parquet")
    write_table([], Recording, f"{study.work_dir}/annotations.parquet")
    (tmp_path / "boxes" / "a.txt").write_text("two")  # after it was read
    record_inputs(study, "annotations.parquet", inputs)
    assert changed_inputs(study, "annotations.parquet") == (str(tmp_path / "boxes"),)


def test_a_single_annotation_file_and_its_removal_are_detected(study, tmp_path):
    one = study.model_copy(
        update={"annotations": (AnnotationSource(path=str(tmp_path / "boxes" / "a.txt"), format="raven"),)}
    )
    create_artifacts(one, "recordings.parquet", "annotations.parquet")
    assert states(one)["annotations.parquet"] == "current"
    (tmp_path / "boxes" / "a.txt").unlink()
    assert states(one)["annotations.parquet"] == "stale"


def test_recordings_added_after_the_scan_are_reported(study, tmp_path):
    assert not_scanned(study, "study.yaml") is None  # nothing was scanned yet
    rows = [Recording("card/A/1.WAV", "card", "A/1.WAV", 1, None, "ok")]
    write_table(rows, Recording, f"{study.work_dir}/recordings.parquet")
    assert not_scanned(study, "study.yaml") is None  # the drive is not mounted
    for name in ("A/1.WAV", "B/1.WAV", "B/2.wav", "B/notes.txt"):
        (tmp_path / "card" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "card" / name).touch()
    note = not_scanned(study, "my study.yaml")
    assert note == "2 recordings are not in the study's table: run mast scan 'my study.yaml'."
    (tmp_path / "card" / "B" / "2.wav").unlink()
    assert not_scanned(study, "s.yaml") == "1 recording is not in the study's table: run mast scan s.yaml."
    (tmp_path / "card" / "B" / "1.WAV").unlink()
    assert not_scanned(study, "study.yaml") is None


def test_folders_are_not_listed_above_the_maximum_number_of_recordings(study, tmp_path, monkeypatch):
    write_table(
        [Recording("card/1.WAV", "card", "1.WAV", 1, None, "ok")],
        Recording,
        f"{study.work_dir}/recordings.parquet",
    )
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "2.WAV").touch()
    assert not_scanned(study, "study.yaml") is not None
    monkeypatch.setattr(artifacts, "MAX_LISTED", 0)
    assert not_scanned(study, "study.yaml") is None


def test_an_artifact_without_recorded_inputs_is_stale(study):
    create_artifacts(study, "recordings.parquet")
    (Path(study.work_dir) / artifacts.PROVENANCE_FILE).unlink()
    assert changed_inputs(study, "recordings.parquet") == ("its inputs are not recorded",)


def test_the_content_of_a_table_depends_only_on_its_rows(tmp_path):
    import pyarrow.parquet as pq

    rows = to_table(
        [Recording("c/a", "c", "a", 1, None, "ok"), Recording("c/b", "c", "b", 2, None, "ok")], Recording
    )
    pq.write_table(rows, tmp_path / "one.parquet", compression="zstd")
    with_metadata = rows.replace_schema_metadata({"created": "later"})
    pq.write_table(with_metadata, tmp_path / "two.parquet", compression="none")
    pq.write_table(rows.slice(1), tmp_path / "three.parquet")
    one, two, three = (
        fingerprint_file(str(tmp_path / f"{name}.parquet")) for name in ("one", "two", "three")
    )
    assert one == two != three


def test_the_provenance_file_is_json_next_to_the_artifacts(study):
    create_artifacts(study, "recordings.parquet")
    journal = json.loads((Path(study.work_dir) / artifacts.PROVENANCE_FILE).read_text())
    assert journal["recordings.parquet"].keys() == {"made_utc", "inputs", "content"}


def test_the_state_is_rendered_as_text(study):
    from rich.console import Console

    create_artifacts(study, "recordings.parquet")
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(render(artifact_status(study)))
    console.file.close()
    text = console.export_text()
    assert "up to date" in text
    assert "not created yet" in text
