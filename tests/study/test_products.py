"""A study knows what it has, what is out of date and why, and what comes next."""

import json
from pathlib import Path

import pytest

from mast.config import AnnotationSource, Collection, Study
from mast.events import Recording, to_table, write_table
from mast.study import products
from mast.study.products import fingerprint_file, inputs_of, look, next_step, not_scanned, remember, render


@pytest.fixture
def study(tmp_path):
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "a.txt").write_text("one")
    return Study(
        work=str(tmp_path / "work"),
        collections={"card": Collection(root=str(tmp_path / "card"))},
        annotations=(AnnotationSource(path=str(tmp_path / "boxes"), format="raven"),),
    )


def made(study: Study, *names: str) -> None:
    """Stand-ins for what the verbs write: small tables and files, remembered as the verbs do."""
    for name in names:
        if name.endswith(".parquet"):
            write_table([], Recording, f"{study.work}/{name}")
        else:
            Path(study.work, name).write_text("{}")
        remember(study, name)


def states(study: Study) -> dict[str, str]:
    return {item.product.name: item.state for item in look(study)}


def why(study: Study, name: str) -> tuple[str, ...]:
    return next(item.why for item in look(study) if item.product.name == name)


def test_a_new_study_has_nothing_and_begins_with_a_scan(study):
    found = look(study)
    assert {item.state for item in found} == {"missing"}
    assert next_step(found) == "scan"


def test_what_was_made_is_current_and_the_next_verb_is_named(study):
    made(study, "recordings.parquet", "annotations.parquet")
    assert next_step(look(study)) == "splits"
    made(study, "splits.parquet")
    assert next_step(look(study)) == "prepare"
    assert list(states(study).values()) == ["current"] * 3 + ["missing"] * 2


def test_a_study_without_annotations_does_not_wait_for_any(study):
    bare = study.model_copy(update={"annotations": ()})
    made(bare, "recordings.parquet")
    assert "annotations.parquet" not in states(bare)
    assert next_step(look(bare)) == "splits"


def test_what_experts_said_before_they_were_taken_out_of_a_study_is_out_of_date(study):
    made(study, "recordings.parquet", "annotations.parquet", "splits.parquet")
    bare = study.model_copy(update={"annotations": ()})
    assert states(bare)["annotations.parquet"] == "stale" and next_step(look(bare)) == "scan"


def test_a_changed_setting_makes_out_of_date_what_depends_on_it_and_nothing_else(study):
    made(study, "recordings.parquet", "annotations.parquet", "splits.parquet")
    other = study.model_copy(update={"splits": study.splits.model_copy(update={"seed": 7})})
    assert states(other)["recordings.parquet"] == states(other)["annotations.parquet"] == "current"
    assert why(other, "splits.parquet") == ("settings",)


def test_a_changed_annotation_file_is_named(study, tmp_path):
    made(study, "recordings.parquet", "annotations.parquet", "splits.parquet")
    (tmp_path / "boxes" / "a.txt").write_text("two")
    assert why(study, "annotations.parquet") == (str(tmp_path / "boxes"),)
    assert why(study, "splits.parquet") == ("annotations.parquet",)
    (tmp_path / "boxes" / "a.txt").write_text("one")
    assert states(study)["splits.parquet"] == "current"


def test_what_changes_while_a_product_is_made_makes_it_out_of_date(study, tmp_path):
    made(study, "recordings.parquet")
    inputs = inputs_of(study, "annotations.parquet")
    write_table([], Recording, f"{study.work}/annotations.parquet")
    (tmp_path / "boxes" / "a.txt").write_text("two")  # after it was read
    remember(study, "annotations.parquet", inputs)
    assert why(study, "annotations.parquet") == (str(tmp_path / "boxes"),)


def test_annotations_that_are_a_file_or_are_gone_are_seen_too(study, tmp_path):
    one = study.model_copy(
        update={"annotations": (AnnotationSource(path=str(tmp_path / "boxes" / "a.txt"), format="raven"),)}
    )
    made(one, "recordings.parquet", "annotations.parquet")
    assert states(one)["annotations.parquet"] == "current"
    (tmp_path / "boxes" / "a.txt").unlink()
    assert states(one)["annotations.parquet"] == "stale"


def test_recordings_that_came_after_the_scan_are_told(study, tmp_path):
    assert not_scanned(study, "study.yaml") is None  # nothing was scanned yet
    rows = [Recording("card/A/1.WAV", "card", "A/1.WAV", 1, None, "ok")]
    write_table(rows, Recording, f"{study.work}/recordings.parquet")
    assert not_scanned(study, "study.yaml") is None  # the drive is not here today
    for name in ("A/1.WAV", "B/1.WAV", "B/2.wav", "B/notes.txt"):
        (tmp_path / "card" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "card" / name).touch()
    told = not_scanned(study, "my study.yaml")
    assert told == "2 recordings are not in the study's table: run mast scan 'my study.yaml'."
    (tmp_path / "card" / "B" / "2.wav").unlink()
    assert not_scanned(study, "s.yaml") == "1 recording is not in the study's table: run mast scan s.yaml."
    (tmp_path / "card" / "B" / "1.WAV").unlink()
    assert not_scanned(study, "study.yaml") is None


def test_folders_of_more_recordings_than_can_be_listed_are_not_looked_at(study, tmp_path, monkeypatch):
    write_table(
        [Recording("card/1.WAV", "card", "1.WAV", 1, None, "ok")],
        Recording,
        f"{study.work}/recordings.parquet",
    )
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "2.WAV").touch()
    assert not_scanned(study, "study.yaml") is not None
    monkeypatch.setattr(products, "MOST_LISTED", 0)
    assert not_scanned(study, "study.yaml") is None


def test_what_nobody_remembers_making_is_out_of_date(study):
    made(study, "recordings.parquet")
    (Path(study.work) / products.JOURNAL).unlink()
    assert why(study, "recordings.parquet") == ("it is not known what it was made from",)


def test_the_same_rows_are_the_same_content_however_and_whenever_they_were_written(tmp_path):
    import pyarrow.parquet as pq

    rows = to_table(
        [Recording("c/a", "c", "a", 1, None, "ok"), Recording("c/b", "c", "b", 2, None, "ok")], Recording
    )
    pq.write_table(rows, tmp_path / "one.parquet", compression="zstd")
    told = rows.replace_schema_metadata({"created": "later"})
    pq.write_table(told, tmp_path / "two.parquet", compression="none")
    pq.write_table(rows.slice(1), tmp_path / "three.parquet")
    one, two, three = (
        fingerprint_file(str(tmp_path / f"{name}.parquet")) for name in ("one", "two", "three")
    )
    assert one == two != three


def test_the_journal_is_plain_json_beside_the_products(study):
    made(study, "recordings.parquet")
    journal = json.loads((Path(study.work) / products.JOURNAL).read_text())
    assert journal["recordings.parquet"].keys() == {"made_utc", "inputs", "content"}


def test_the_state_is_told_in_words(study):
    from rich.console import Console

    made(study, "recordings.parquet")
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(render(look(study)))
    console.file.close()
    text = console.export_text()
    assert "up to date" in text
    assert "not made yet" in text
