"""A study's boxes are tied to its recordings and its labels, and what does not fit is told."""

import pytest

from mast.annotations.study import read_expertise
from mast.config import AnnotationSource, Labels, Study
from mast.errors import AnnotationError
from mast.events import Annotation, Event, Reviewed

HEADER = "recording,start_s,end_s,low_hz,high_hz,label\n"
IDS = ["cards/A1/x.wav", "cards/B1/x.wav", "cards/B1/y.wav"]


@pytest.fixture
def study(tmp_path):
    def make(labels: Labels, *tables: str) -> Study:
        sources = []
        for number, rows in enumerate(tables):
            path = tmp_path / f"{number}.csv"
            path.write_text(HEADER + rows, encoding="utf-8")
            sources.append(AnnotationSource(path=str(path), format="csv"))
        return Study(annotations=tuple(sources), labels=labels)

    return make


def test_a_study_without_annotations_knows_nothing(study):
    expertise = read_expertise(study(Labels()), IDS)
    assert (expertise.annotations, expertise.reviewed) == ((), ())
    assert expertise.summary() == "Expert boxes: none; 0 recordings reviewed"


def test_events_get_the_id_of_their_recording_the_meaning_of_their_label_and_their_file(study, tmp_path):
    labels = Labels(animal=("*",), noise=("rain",))
    found = read_expertise(study(labels, "A1/x.wav,0,1,100,200,owl\n", "y.wav,2,3,100,200,rain\n"), IDS)
    owl = Event("cards/A1/x.wav", 0, 1, 100, 200, "owl")
    assert found.annotations == (
        Annotation.of(owl, "animal", str(tmp_path / "0.csv")),
        Annotation.of(Event("cards/B1/y.wav", 2, 3, 100, 200, "rain"), "noise", str(tmp_path / "1.csv")),
    )
    assert found.reviewed == (Reviewed("cards/A1/x.wav"), Reviewed("cards/B1/y.wav"))
    assert found.summary() == "Expert boxes: 1 animal, 1 noise; 2 recordings reviewed"


def test_boxes_of_recordings_that_are_not_there_are_counted_and_named(study):
    found = read_expertise(study(Labels(), "x.wav,0,1,1,2,a\n", "gone.wav,0,1,1,2,a\n"), IDS)
    assert found.annotations == ()
    assert found.unmatched == ("x.wav", "gone.wav")
    assert "not found: x.wav, gone.wav" in found.summary()
    assert "1 x event of a recording that was not found" in found.summary()


def test_a_label_nobody_mapped_is_refused_with_the_list_over_all_files(study):
    tables = "y.wav,0,1,1,2,owl\n", "y.wav,0,1,1,2,frog\ny.wav,2,3,1,2,frog\n"
    with pytest.raises(AnnotationError, match=r"(?s)'frog': 2.*'owl'.*: 1"):
        read_expertise(study(Labels(animal=("owls",)), *tables), IDS)
