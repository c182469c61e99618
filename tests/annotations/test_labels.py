import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.annotations import Annotations, kind_of, kinds_of
from mast.config import Labels
from mast.errors import AnnotationError
from mast.events import Event

STRICT = Labels(animal=("unknown", "Parus major"), noise=("abiotic noise",), ignored=("?",))


def labelled(*labels):
    return Annotations(tuple(Event("x", 0, 1, label=label) for label in labels))


def test_no_events_have_no_kinds():
    assert kinds_of(Annotations(), STRICT) == ()


def test_labels_stand_for_what_the_study_says():
    assert kinds_of(labelled("unknown", "abiotic noise", "?"), STRICT) == ("animal", "noise", "ignored")


def test_the_star_stands_for_every_label_not_named_and_for_none():
    labels = Labels(noise=("rain",))
    assert kinds_of(labelled("rain", "anything", None), labels) == ("noise", "animal", "animal")
    assert kind_of(None, Labels(animal=("a",), ignored=("*",))) == "ignored"


def test_every_unmapped_label_is_listed_with_its_count_and_the_nearest_one():
    with pytest.raises(AnnotationError) as refused:
        kinds_of(labelled("Parus mayor", "Parus mayor", "zzz", None, "unknown"), STRICT)
    message = str(refused.value)
    assert "'Parus mayor' (did you mean 'Parus major'?): 2" in message
    assert "'zzz': 1" in message
    assert "(no label): 1" in message
    assert "'unknown'" not in message


@given(st.lists(st.sampled_from(["a", "b", "c", None])))
def test_kinds_are_those_of_each_label_in_order(labels):
    groups = Labels(animal=("a",), noise=("b",), ignored=("*",))
    assert kinds_of(labelled(*labels), groups) == tuple(kind_of(label, groups) for label in labels)
