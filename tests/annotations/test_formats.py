from dataclasses import replace

import pytest

from mast.annotations import FORMATS, Annotations, detect_format, read_annotations, write_annotations
from mast.config import AnnotationFormat
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import fixed_annotations
from tests.annotations.test_camtrap_dp import WITH_START

RAVEN = "Begin Time (s)\tEnd Time (s)\n1\t2\n"


def test_every_format_of_the_settings_exists():
    assert set(FORMATS) == set(AnnotationFormat.__args__)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_detected_from_its_files(tmp_path, name):
    target = tmp_path / "folder" if name in ("raven", "audacity", "camtrap-dp") else tmp_path / "t"
    if name not in ("raven", "audacity", "camtrap-dp"):
        target = target.with_suffix(FORMATS[name].SUFFIXES[0])
    write_annotations(replace(fixed_annotations(), recordings=WITH_START), target, name)
    assert detect_format(target) == name


def test_a_file_of_unknown_format_is_rejected(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "notes.doc").write_text("notes")
    (tmp_path / "empty.txt").write_text("")
    for path in (tmp_path, tmp_path / "t.csv", tmp_path / "notes.doc", tmp_path / "empty.txt"):
        with pytest.raises(AnnotationError, match="format not recognised"):
            detect_format(path)
    with pytest.raises(AnnotationError, match=r"none.csv: there is no such file or folder"):
        detect_format(tmp_path / "none.csv")


def test_a_folder_is_read_in_order_and_recording_names_include_subfolders(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.Table.1.selections.txt").write_text(RAVEN)
    (tmp_path / "a.selections.txt").write_text(RAVEN)
    (tmp_path / "README.txt").write_text("Read me")
    (tmp_path / "._a.selections.txt").write_text("hidden")
    result = read_annotations(tmp_path, "raven")
    assert result.events == (Event("a", 1, 2), Event("b/x", 1, 2))
    assert result.problems == {"file in the folder that is not in the format raven: skipped": 1}
    assert len(result.sources) == 2


def test_a_folder_without_a_file_of_the_format_is_rejected(tmp_path):
    with pytest.raises(
        AnnotationError, match=r"no file \(.txt or .tsv\) in this folder is in the format raven"
    ):
        read_annotations(tmp_path, "raven")


def test_files_on_an_object_store_are_read_and_written(bucket):
    original = Annotations(
        (Event("a/x.wav", 1, 2, 3, 4, "b"),), (ReviewedSpan("a/x.wav"), ReviewedSpan("y.wav"))
    )
    write_annotations(original, f"{bucket}/tables", "raven")
    assert detect_format(f"{bucket}/tables") == "raven"
    back = read_annotations(f"{bucket}/tables", "raven")
    assert back.events == original.events
    assert set(back.reviewed) == set(original.reviewed)
    write_annotations(original, f"{bucket}/t.csv", "csv")
    assert read_annotations(f"{bucket}/t.csv", "csv").events == original.events
