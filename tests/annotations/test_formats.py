from dataclasses import replace

import pytest

from mast.annotations import FORMATS, Annotations, guess_format, read_annotations, write_annotations
from mast.config import AnnotationFormat
from mast.errors import AnnotationError
from mast.events import Event, Reviewed
from tests.annotations.cases import by_hand
from tests.annotations.test_camtrap_dp import KNOWN

RAVEN = "Begin Time (s)\tEnd Time (s)\n1\t2\n"


def test_every_format_a_study_can_name_is_there():
    assert set(FORMATS) == set(AnnotationFormat.__args__)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_from_its_own_files(tmp_path, name):
    target = tmp_path / "folder" if name in ("raven", "audacity", "camtrap-dp") else tmp_path / "t"
    if name not in ("raven", "audacity", "camtrap-dp"):
        target = target.with_suffix(FORMATS[name].SUFFIXES[0])
    write_annotations(replace(by_hand(), recordings=KNOWN), target, name)
    assert guess_format(target) == name


def test_a_file_that_tells_nothing_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "notes.doc").write_text("notes")
    (tmp_path / "empty.txt").write_text("")
    for path in (tmp_path, tmp_path / "t.csv", tmp_path / "notes.doc", tmp_path / "empty.txt"):
        with pytest.raises(AnnotationError, match="cannot tell which format this is"):
            guess_format(path)
    with pytest.raises(AnnotationError, match=r"none.csv: there is no such file or folder"):
        guess_format(tmp_path / "none.csv")


def test_a_folder_is_read_in_order_with_folders_in_the_recordings_names(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.Table.1.selections.txt").write_text(RAVEN)
    (tmp_path / "a.selections.txt").write_text(RAVEN)
    (tmp_path / "README.txt").write_text("Read me")
    (tmp_path / "._a.selections.txt").write_text("hidden")
    found = read_annotations(tmp_path, "raven")
    assert found.events == (Event("a", 1, 2), Event("b/x", 1, 2))
    assert found.problems == {"file in the folder that is not in the format raven: passed over": 1}
    assert len(found.sources) == 2


def test_a_folder_without_a_fitting_file_is_refused(tmp_path):
    with pytest.raises(
        AnnotationError, match=r"no file \(.txt or .tsv\) in this folder is in the format raven"
    ):
        read_annotations(tmp_path, "raven")


def test_files_on_an_object_store_are_read_and_written_alike(bucket):
    found = Annotations((Event("a/x.wav", 1, 2, 3, 4, "b"),), (Reviewed("a/x.wav"), Reviewed("y.wav")))
    write_annotations(found, f"{bucket}/tables", "raven")
    assert guess_format(f"{bucket}/tables") == "raven"
    back = read_annotations(f"{bucket}/tables", "raven")
    assert back.events == found.events
    assert set(back.reviewed) == set(found.reviewed)
    write_annotations(found, f"{bucket}/t.csv", "csv")
    assert read_annotations(f"{bucket}/t.csv", "csv").events == found.events
