import csv

import pytest

from mast.annotations import Annotations, RecordingFacts, Source, merge, with_recordings
from mast.annotations.rows import spans_from, spans_text
from mast.annotations.tables import by_recording, facts_of
from mast.annotations.text import decimal, plain, read_table
from mast.errors import AnnotationError
from mast.events import Event, Reviewed
from tests.annotations.cases import recording


def test_merging_nothing_gives_nothing():
    assert merge([]) == Annotations()


def test_merging_keeps_events_in_order_and_each_review_once():
    one = Annotations((Event("x", 0, 1),), (Reviewed("x"),), problems={"a": 1}, sources=(Source("p", "csv"),))
    two = Annotations((Event("y", 0, 1),), (Reviewed("x"),), problems={"a": 2}, sources=(Source("p", "csv"),))
    both = merge([one, two])
    assert [event.recording_id for event in both.events] == ["x", "y"]
    assert both.reviewed == (Reviewed("x"),)
    assert both.problems == {"a": 3}
    assert both.sources == (Source("p", "csv"),)


def test_facts_of_a_recording_are_filled_from_all_and_the_first_stands():
    one = Annotations(recordings=(RecordingFacts("x", duration_s=5.0),))
    two = Annotations(recordings=(RecordingFacts("x", duration_s=6.0, sample_rate_hz=8000),))
    assert merge([one, two]).recordings == (RecordingFacts("x", duration_s=5.0, sample_rate_hz=8000),)


def test_a_scan_puts_its_recordings_first_and_in_its_order():
    annotations = Annotations(recordings=(RecordingFacts("c/b"), RecordingFacts("z")))
    known = with_recordings(annotations, [recording("c/a", duration_s=1.0), recording("c/b", duration_s=2.0)])
    assert [(item.recording_id, item.duration_s) for item in known.recordings] == [
        ("c/a", 1.0),
        ("c/b", 2.0),
        ("z", None),
    ]


def test_bit_depth_is_read_off_the_encoding():
    assert facts_of(recording("c/a", encoding="PCM_24")).bit_depth == 24
    assert facts_of(recording("c/a")).bit_depth is None


def test_the_part_about_one_recording():
    annotations = Annotations((Event("x", 0, 1), Event("y", 0, 1)), (Reviewed("y"),))
    part = by_recording(annotations)["y"]
    assert part.events == (Event("y", 0, 1),)
    assert part.reviewed == (Reviewed("y"),)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("all", (Reviewed("x"),)),
        ("none", ()),
        ("0..10; 30..", (Reviewed("x", 0.0, 10.0), Reviewed("x", 30.0, None))),
        ("0.00001..2", (Reviewed("x", 1e-05, 2.0),)),
    ],
)
def test_reviewed_spans_as_text(text, spans):
    assert spans_text(spans) == text
    assert spans_from(text, "x", "here") == spans


def test_unclear_reviewed_spans_are_refused():
    with pytest.raises(AnnotationError, match="here: reviewed is '3'; write all, none, or spans such as"):
        spans_from("3", "x", "here")


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", "1.5"), (" 1,5 ", "1.5"), ("", None), ("NA", None), ("-2", "-2")]
)
def test_numbers_with_points_and_commas(text, value):
    assert plain(decimal(text, "here", "x")) == (value or "")


@pytest.mark.parametrize("text", ["abc", "1.5.2", "inf", "1,000.5"])
def test_what_is_no_number_is_refused_with_its_place(text):
    with pytest.raises(AnnotationError, match="t.txt, line 3: start_s is .* which is no number"):
        decimal(text, "t.txt, line 3", "start_s")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-07, "0.0000001"), (1e21, "1" + "0" * 21), (0.1, "0.1"), (100.0, "100"), (None, "")],
)
def test_numbers_are_written_in_full_without_exponents(value, text):
    assert plain(value) == text


@pytest.mark.parametrize(
    "data",
    [
        "recording,label\nx,Ü\n".encode(),
        "\ufeffrecording,label\r\nx,Ü\r\n".encode(),
        "recording;label\nx;Ü".encode("cp1252"),
        "recording\tlabel\rx\tÜ\r".encode(),
        "recording,label\nx,Ü\n".encode("utf-16"),
        "\n\nrecording , label \nx , Ü,,\n\n".encode(),
    ],
    ids=["utf-8", "mark and CRLF", "western", "old Mac", "utf-16", "blank lines and cells"],
)
def test_a_table_reads_the_same_in_every_encoding_and_line_ending(tmp_path, data):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    table = read_table(str(path))
    assert table.header == ("recording", "label")
    assert [cells for _, cells in table.rows] == [("x", "Ü")]


def test_bytes_that_no_encoding_knows_are_still_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"recording,label\nx,\x81\n")
    assert read_table(str(path)).rows == ((2, ("x", "\x81")),)


def test_a_table_tells_nameless_and_repeated_columns_apart(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,,a\n1,2,3\n")
    assert read_table(str(path)).header == ("a", "column 2", "a (3)")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        (",,,\n", "all cells are empty; a table has at least a line of column names"),
        ("a,b\n1,2,3\n", r"line 2: 3 cells under 2 column names"),
        ("a,b\n" + "x" * 2000 + ",2\n", "line 2: not a table"),
    ],
)
def test_a_damaged_table_is_refused_with_its_place(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    usual = csv.field_size_limit(1000)
    try:
        with pytest.raises(AnnotationError, match=message):
            read_table(str(path))
    finally:
        csv.field_size_limit(usual)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(AnnotationError, match="no such file"):
        read_table(str(tmp_path / "none.csv"))
    with pytest.raises(AnnotationError, match="cannot be read"):
        read_table(str(tmp_path))
