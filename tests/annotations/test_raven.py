from collections import Counter

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingMetadata, read_annotations, write_annotations
from mast.annotations.model import is_whole
from mast.annotations.raven import CLIPPED, EMPTY_LOST, NAME_CHANGED, REPEATED, SPANS_LOST, read, write
from mast.annotations.table_io import UNTABBED
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import SLOW, annotations, fixed_annotations, recording, same, tidy

HEADER = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)"


def written(tmp_path, text, name="x.Table.1.selections.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_is_rejected(tmp_path):
    with pytest.raises(AnnotationError, match="the file is empty"):
        read(written(tmp_path, ""))


def test_a_table_with_only_a_header_means_reviewed_without_events(tmp_path):
    annotations = read(written(tmp_path, HEADER + "\n"))
    assert annotations.events == ()
    assert annotations.reviewed == (ReviewedSpan("x"),)


def test_an_empty_table_with_model_scores_is_not_a_review(tmp_path):
    path = written(tmp_path, HEADER + "\tConfidence\n", "x.BirdNET.selection.table.txt")
    assert read(path).reviewed == ()


def test_a_selection_repeated_for_another_view_is_read_once_with_the_spectrograms_frequencies(tmp_path):
    text = (
        HEADER
        + "\tAnnotation\n1\tWaveform 1\t1\t1.0\t2.0\t\t\tcall\n1\tSpectrogram 1\t1\t1.0\t2.0\t100\t200\tcall\n"
        "2\tSpectrogram 1\t1\t3.0\t4.0\t100\t200\tcall\n2\tWaveform 1\t1\t3.0\t4.0\t0\t9\tcall\n"
    )
    annotations = read(written(tmp_path, text))
    assert annotations.events == (Event("x", 1, 2, 100, 200, "call"), Event("x", 3, 4, 100, 200, "call"))
    assert annotations.problems == {REPEATED: 2}


def test_the_same_selection_twice_in_one_view_is_two(tmp_path):
    row = "1\tSpectrogram 1\t1\t1.0\t2.0\t100\t200\n"
    assert len(read(written(tmp_path, f"{HEADER}\n{row}{row}")).events) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Begin Time (s)\tEnd Time (s)\n1.5\t2\n",
        "Begin Time (s)\tEnd Time (s)\r\n1,5\t2,0\r\n",
        "\ufeffEnd Time (s)\tBegin Time (s)\tBegin File\n2\t1.5\tx\n",
        "Begin Time (s)\tEnd Time (s)\tBegin File\tBegin Path\n1.5\t2\tx\t\n",
        "Begin Time (s)\tEnd Time (s)\tBegin File\tFile Offset (s)\n101.5\t102\tx\t1.5\n",
    ],
    ids=["few columns", "decimal commas", "mark and other order", "empty path", "later in a sequence"],
)
def test_variants_of_one_selection_are_read_alike(tmp_path, text):
    assert read(written(tmp_path, text)).events == (Event("x", 1.5, 2.0),)


@pytest.mark.parametrize(
    ("columns", "cells", "label"),
    [
        ("Annotation\tSpecies", "call\tEATO", "call"),
        ("Annotation\tSpecies", "\tEATO", "EATO"),
        ("Common Name\tSpecies Code", "Great Tit\tgretit1", "Great Tit"),
        ("Notes", "faint", None),
    ],
)
def test_the_label_is_in_the_first_known_column_with_a_value(tmp_path, columns, cells, label):
    text = f"Begin Time (s)\tEnd Time (s)\t{columns}\n1\t2\t{cells}\n"
    assert read(written(tmp_path, text)).events[0].label == label


def test_a_sequence_without_file_offsets_is_rejected(tmp_path):
    text = "Begin Time (s)\tEnd Time (s)\tBegin File\n1\t2\ta.wav\n61\t62\tb.wav\n"
    with pytest.raises(AnnotationError, match=r"line 2: the table covers 2 files .*File Offset \(s\)"):
        read(written(tmp_path, text))


def test_a_fixed_table_is_written(tmp_path):
    losses = write(fixed_annotations(), tmp_path)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.txt"))
    assert names == ["a/empty.wav.Table.1.selections.txt", "a/x.wav.Table.1.selections.txt"]
    first = HEADER + "\tBegin File\tBegin Path\tFile Offset (s)\tAnnotation\tAnnotator\tQuality"
    assert (tmp_path / names[1]).read_text() == (
        f"{first}\n"
        "1\tSpectrogram 1\t1\t1.5\t2.25\t1000\t4000\tx.wav\ta/x.wav\t1.5\tParus major\tAnn\tA\n"
        "2\tSpectrogram 1\t1\t3\t3\t\t\tx.wav\ta/x.wav\t3\t\t\t\n"
    )
    assert losses == Counter()


def test_times_count_every_file_of_the_sequence_even_without_events(tmp_path):
    path = tmp_path / "all.txt"
    original = Annotations(
        events=(Event("c/c.wav", 2.5, 3.0, 100, 200), Event("c/a.wav", 1.0, 2.0, 100, 200)),
        reviewed=(ReviewedSpan("c/c.wav"), ReviewedSpan("c/a.wav")),
    )
    scan = [
        recording(f"c/{name}.wav", duration_s=seconds)
        for name, seconds in (("a", 60.1), ("b", 0.2), ("c", 60.0))
    ]
    assert write_annotations(original, path, "raven", scan) == Counter()
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    column = {name: index for index, name in enumerate(rows[0])}
    columns_written = [
        [row[column[name]] for name in ("Begin Time (s)", "End Time (s)", "File Offset (s)", "Begin File")]
        for row in rows[1:]
    ]
    assert columns_written == [["62.8", "63.3", "2.5", "c.wav"], ["1", "2", "1", "a.wav"]]
    assert read(path).events == original.events


def test_a_sequence_with_an_unknown_duration_is_rejected(tmp_path):
    original = Annotations((Event("a", 0, 1), Event("b", 0, 1)))
    with pytest.raises(AnnotationError, match="needs the duration of each"):
        write(original, tmp_path / "all.txt")


@SLOW
@given(annotations())
def test_a_folder_of_tables_survives_a_round_trip_except_reviewed_parts_without_events(
    tmp_path_factory, original
):
    folder = tmp_path_factory.mktemp("raven")
    losses = write_annotations(original, folder, "raven")
    if not any(folder.iterdir()):
        assert original.events == original.reviewed == ()
        return
    back = read_annotations(folder, "raven")
    named = {event.recording_id for event in original.events}
    parts = {span.recording_id for span in original.reviewed if not is_whole(span)} - named
    assert same(back.events, original.events)
    kept = {span for span in original.reviewed if span.recording_id not in parts}
    assert set(back.reviewed) == kept | {ReviewedSpan(name) for name in parts}
    assert losses == +Counter({SPANS_LOST: len(parts)})


@SLOW
@given(annotations())
def test_a_table_over_a_sequence_survives_a_round_trip_except_recordings_without_events(
    tmp_path_factory, original
):
    path = tmp_path_factory.mktemp("raven") / "all.txt"
    losses = write_annotations(original, path, "raven")
    named = {event.recording_id for event in original.events}
    empty = {span.recording_id for span in original.reviewed} - named
    assert losses == +Counter({EMPTY_LOST: len(empty)})
    if original.events:
        back = read_annotations(path, "raven")
        assert tidy(back.events) == tidy(original.events)
        assert same(back.reviewed, [span for span in original.reviewed if span.recording_id in named])


def test_an_empty_table_named_after_its_recording_keeps_the_review(tmp_path):
    path = tmp_path / "x.selections.txt"
    assert write(Annotations(reviewed=(ReviewedSpan("x"),)), path) == Counter()
    assert read(path).reviewed == (ReviewedSpan("x"),)


def test_frequencies_above_half_the_sample_rate_are_clipped_and_counted(tmp_path):
    metadata = (RecordingMetadata("x.wav", sample_rate_hz=8000),)
    original = Annotations(
        (Event("x.wav", 0, 1, 3000, 5000), Event("x.wav", 0, 1, 5000, 6000)), recordings=metadata
    )
    assert write(original, tmp_path / "t.txt") == {CLIPPED: 2}
    assert [(event.low_hz, event.high_hz) for event in read(tmp_path / "t.txt").events] == [
        (3000, 4000),
        (4000, 4000),
    ]


def test_another_channel_is_a_free_column_and_survives_a_round_trip(tmp_path):
    original = Annotations(
        (Event("x.wav", 0, 1, 0, 9, columns=(("Channel", "2"),)),), (ReviewedSpan("x.wav"),)
    )
    write(original, tmp_path / "t.txt")
    assert "\tSpectrogram 1\t2\t" not in (tmp_path / "t.txt").read_text().splitlines()[0]
    assert read(tmp_path / "t.txt").events == original.events


def test_tabs_and_line_breaks_in_texts_become_spaces_and_are_counted(tmp_path):
    original = Annotations((Event("x.wav", 0, 1, label="a\tb\nc"),))
    assert write(original, tmp_path / "t.txt") == {UNTABBED: 1}
    assert read(tmp_path / "t.txt").events[0].label == "a b c"


@pytest.mark.parametrize(
    "name",
    ["../../x.wav", "/etc/x.wav", "..\\x.wav", "C:\\data\\x.wav", "a/./../x", "..", "/", 'a"b<c>|?*:.wav'],
)
def test_no_recording_name_leaves_the_output_folder(tmp_path, name):
    folder = tmp_path / "inner" / "out"
    original = Annotations((Event(name, 0, 1),), (ReviewedSpan(name), ReviewedSpan("ok.wav")))
    assert write(original, folder) == Counter()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert all(path.is_relative_to(folder) for path in files)
    assert read_annotations(folder, "raven").events == original.events


def test_recordings_with_equal_names_on_some_file_systems_get_separate_tables(tmp_path):
    original = Annotations(
        reviewed=(ReviewedSpan("a:b.wav"), ReviewedSpan("a_b.wav"), ReviewedSpan("A_B.wav"))
    )
    assert write(original, tmp_path) == {NAME_CHANGED: 2}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_column_with_texts_is_not_a_score(tmp_path):
    text = "Begin Time (s)\tEnd Time (s)\tScore\n1\t2\tgood\n1\t2\t3\n"
    result = read(written(tmp_path, text))
    assert [(event.score, event.origin, event.columns) for event in result.events] == [
        (None, "expert", (("Score", "good"),)),
        (None, "expert", (("Score", "3"),)),
    ]


def test_numbers_with_extreme_exponents_are_read_or_rejected(tmp_path):
    text = "Begin Time (s)\tEnd Time (s)\tFile Offset (s)\n1e-999999999\t2\t0\n"
    assert read(written(tmp_path, text)).events == (Event("x", 0, 2),)
    with pytest.raises(AnnotationError, match="not a number"):
        read(written(tmp_path, text.replace("e-", "e")))
