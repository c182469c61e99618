import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.annotations import Annotations, label_kind, label_kinds
from mast.config import Labels
from mast.errors import AnnotationError
from mast.records import Event

STRICT = Labels(animal=("unknown", "Parus major"), noise=("abiotic noise",), ignore=("?",))


def labelled(*labels):
    return Annotations(tuple(Event("x", 0, 1, label=label) for label in labels))


def test_no_events_have_no_kinds():
    assert label_kinds(Annotations(), STRICT) == ()


def test_labels_have_the_kinds_of_the_label_map():
    assert label_kinds(labelled("unknown", "abiotic noise", "?"), STRICT) == ("animal", "noise", "ignored")


def test_the_wildcard_matches_every_other_label_and_a_missing_label():
    labels = Labels(noise=("rain",))
    assert label_kinds(labelled("rain", "anything", None), labels) == ("noise", "animal", "animal")
    assert label_kind(None, Labels(animal=("a",), ignore=("*",))) == "ignored"


def test_every_unmapped_label_is_listed_with_its_count_and_the_nearest_one():
    with pytest.raises(AnnotationError) as error:
        label_kinds(labelled("Parus mayor", "Parus mayor", "zzz", None, "unknown"), STRICT)
    message = str(error.value)
    assert "'Parus mayor' (did you mean 'Parus major'?): 2" in message
    assert "'zzz': 1" in message
    assert "(no label): 1" in message
    assert "'unknown'" not in message


@given(st.lists(st.sampled_from(["a", "b", "c", None])))
def test_kinds_are_in_the_order_of_the_events(labels):
    groups = Labels(animal=("a",), noise=("b",), ignore=("*",))
    assert label_kinds(labelled(*labels), groups) == tuple(label_kind(label, groups) for label in labels)
