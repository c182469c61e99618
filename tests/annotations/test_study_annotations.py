"""Annotations of a study are matched to its recordings and label map; the rest is reported."""

import pytest

from mast.annotations.study_annotations import read_study_annotations
from mast.config import AnnotationSource, Labels, Study
from mast.errors import AnnotationError
from mast.records import Annotation, Event, ReviewedSpan

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


def test_a_study_without_annotation_files_has_no_annotations(study):
    result = read_study_annotations(study(Labels()), IDS)
    assert (result.annotations, result.reviewed) == ((), ())
    assert result.summary() == "Annotations: none; 0 recordings reviewed"


def test_events_get_their_recording_id_the_kind_of_their_label_and_their_file(study, tmp_path):
    labels = Labels(animal=("*",), noise=("rain",))
    result = read_study_annotations(
        study(labels, "A1/x.wav,0,1,100,200,owl\n", "y.wav,2,3,100,200,rain\n"), IDS
    )
    owl = Event("cards/A1/x.wav", 0, 1, 100, 200, "owl")
    assert result.annotations == (
        Annotation.of(owl, "animal", str(tmp_path / "0.csv")),
        Annotation.of(Event("cards/B1/y.wav", 2, 3, 100, 200, "rain"), "noise", str(tmp_path / "1.csv")),
    )
    assert result.reviewed == (ReviewedSpan("cards/A1/x.wav"), ReviewedSpan("cards/B1/y.wav"))
    assert result.summary() == "Annotations: 1 animal, 1 noise; 2 recordings reviewed"


def test_boxes_of_missing_recordings_are_counted_and_listed(study):
    result = read_study_annotations(study(Labels(), "x.wav,0,1,1,2,a\n", "gone.wav,0,1,1,2,a\n"), IDS)
    assert result.annotations == ()
    assert result.unmatched == ("x.wav", "gone.wav")
    assert "not found: x.wav, gone.wav" in result.summary()
    assert "1 x event of a recording that was not found" in result.summary()


def test_unmapped_labels_are_rejected_with_a_list_over_all_files(study):
    tables = "y.wav,0,1,1,2,owl\n", "y.wav,0,1,1,2,frog\ny.wav,2,3,1,2,frog\n"
    with pytest.raises(AnnotationError, match=r"(?s)'frog': 2.*'owl'.*: 1"):
        read_study_annotations(study(Labels(animal=("owls",)), *tables), IDS)
