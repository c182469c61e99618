import csv

import pytest

from mast.annotations import Annotations, RecordingMetadata, SourceFile, merge, with_recordings
from mast.annotations.delimited import decimal, format_number, read_table
from mast.annotations.model import by_recording, metadata_of
from mast.annotations.table_io import format_spans, parse_spans
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import recording


def test_merging_nothing_gives_nothing():
    assert merge([]) == Annotations()


def test_merging_keeps_events_in_order_and_each_review_once():
    one = Annotations(
        (Event("x", 0, 1),), (ReviewedSpan("x"),), problems={"a": 1}, sources=(SourceFile("p", "csv"),)
    )
    two = Annotations(
        (Event("y", 0, 1),), (ReviewedSpan("x"),), problems={"a": 2}, sources=(SourceFile("p", "csv"),)
    )
    both = merge([one, two])
    assert [event.recording_id for event in both.events] == ["x", "y"]
    assert both.reviewed == (ReviewedSpan("x"),)
    assert both.problems == {"a": 3}
    assert both.sources == (SourceFile("p", "csv"),)


def test_metadata_is_merged_and_earlier_values_take_precedence():
    one = Annotations(recordings=(RecordingMetadata("x", duration_s=5.0),))
    two = Annotations(recordings=(RecordingMetadata("x", duration_s=6.0, sample_rate_hz=8000),))
    assert merge([one, two]).recordings == (RecordingMetadata("x", duration_s=5.0, sample_rate_hz=8000),)


def test_recordings_of_a_scan_come_first_and_in_its_order():
    annotations = Annotations(recordings=(RecordingMetadata("c/b"), RecordingMetadata("z")))
    merged = with_recordings(
        annotations, [recording("c/a", duration_s=1.0), recording("c/b", duration_s=2.0)]
    )
    assert [(item.recording_id, item.duration_s) for item in merged.recordings] == [
        ("c/a", 1.0),
        ("c/b", 2.0),
        ("z", None),
    ]


def test_bit_depth_is_derived_from_the_encoding():
    assert metadata_of(recording("c/a", encoding="PCM_24")).bit_depth == 24
    assert metadata_of(recording("c/a")).bit_depth is None


def test_the_part_about_one_recording():
    annotations = Annotations((Event("x", 0, 1), Event("y", 0, 1)), (ReviewedSpan("y"),))
    part = by_recording(annotations)["y"]
    assert part.events == (Event("y", 0, 1),)
    assert part.reviewed == (ReviewedSpan("y"),)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("all", (ReviewedSpan("x"),)),
        ("none", ()),
        ("0..10; 30..", (ReviewedSpan("x", 0.0, 10.0), ReviewedSpan("x", 30.0, None))),
        ("0.00001..2", (ReviewedSpan("x", 1e-05, 2.0),)),
    ],
)
def test_reviewed_spans_as_text(text, spans):
    assert format_spans(spans) == text
    assert parse_spans(text, "x", "here") == spans


def test_invalid_reviewed_spans_are_rejected():
    with pytest.raises(AnnotationError, match="here: reviewed is '3'; write all, none, or spans such as"):
        parse_spans("3", "x", "here")


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", "1.5"), (" 1,5 ", "1.5"), ("", None), ("NA", None), ("-2", "-2")]
)
def test_numbers_with_points_and_commas(text, value):
    assert format_number(decimal(text, "here", "x")) == (value or "")


@pytest.mark.parametrize("text", ["abc", "1.5.2", "inf", "1,000.5"])
def test_a_text_that_is_not_a_number_is_rejected_with_its_line(text):
    with pytest.raises(AnnotationError, match="t.txt, line 3: start_s is .* which is not a number"):
        decimal(text, "t.txt, line 3", "start_s")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-07, "0.0000001"), (1e21, "1" + "0" * 21), (0.1, "0.1"), (100.0, "100"), (None, "")],
)
def test_numbers_are_written_in_full_without_exponents(value, text):
    assert format_number(value) == text


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
def test_a_table_is_read_in_every_encoding_and_line_ending(tmp_path, data):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    table = read_table(str(path))
    assert table.header == ("recording", "label")
    assert [cells for _, cells in table.rows] == [("x", "Ü")]


def test_bytes_that_are_invalid_in_every_encoding_are_still_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"recording,label\nx,\x81\n")
    assert read_table(str(path)).rows == ((2, ("x", "\x81")),)


def test_empty_and_repeated_column_names_become_unique(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,,a\n1,2,3\n")
    assert read_table(str(path)).header == ("a", "column 2", "a (3)")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        (",,,\n", "all cells are empty; a table needs at least a line of column names"),
        ("a,b\n1,2,3\n", r"line 2: 3 cells under 2 column names"),
        ("a,b\n" + "x" * 2000 + ",2\n", "line 2: not a table"),
    ],
)
def test_a_damaged_table_is_rejected_with_its_line(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    usual = csv.field_size_limit(1000)
    try:
        with pytest.raises(AnnotationError, match=message):
            read_table(str(path))
    finally:
        csv.field_size_limit(usual)


def test_a_missing_file_and_a_folder_are_rejected(tmp_path):
    with pytest.raises(AnnotationError, match="no such file"):
        read_table(str(tmp_path / "none.csv"))
    with pytest.raises(AnnotationError, match="cannot be read"):
        read_table(str(tmp_path))
