from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingMetadata, read_annotations, write_annotations
from mast.annotations.birdeep import CLOCK_UNREAD, DURATION_UNREAD, START_CUT, read, write
from mast.annotations.model import local_start
from mast.annotations.table_io import LOW_UNSET
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import SLOW, annotations, fixed_annotations, same, tidy

HEADER = "path,annotator,recorder,date,time,audio_duration,start_time,end_time,low_frequency,high_frequency,specie,bbox"
RAW = f"""{HEADER}
AM2/AM02_20230511_060000 .WAV,Edu,AM2,2023/05/11,06:00:00,00:01:00,1.5,2.5,-1.0,4000.5,unknown,"[0.5, 0.5, 0.1, 0.2]"
AM2/AM02_20230511_060000 .WAV,Edu,AM2,2023/05/11,06:00:00,00:01:00,3,4,100,200,abiotic noise,"[0.5, 0.5, 0.1, 0.2]"
AM1/AM1_20230510_073000.WAV,Giulia,AM1,2023/05/10,07:30:00,00:01:00,3,4,100,200, curund/curmel ,
"""


def written(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


def test_an_empty_file_is_rejected_and_a_header_alone_has_no_events(tmp_path):
    with pytest.raises(AnnotationError, match="the file is empty"):
        read(written(tmp_path, ""))
    assert read(written(tmp_path, HEADER)).events == ()


def test_the_raw_file_has_the_labels_of_unknown_animals_and_noise(tmp_path):
    result = read(written(tmp_path, RAW))
    space_removed = "AM2/AM02_20230511_060000.WAV"
    assert result.events == (
        Event(space_removed, 1.5, 2.5, 0.0, 4000.5, "unknown", annotator="Edu"),
        Event(space_removed, 3, 4, 100, 200, "abiotic noise", annotator="Edu"),
        Event("AM1/AM1_20230510_073000.WAV", 3, 4, 100, 200, "curund/curmel", annotator="Giulia"),
    )
    assert result.problems == {LOW_UNSET: 1}
    assert result.recordings[0] == RecordingMetadata(
        space_removed, duration_s=60.0, start_local=datetime(2023, 5, 11, 6), site="AM2"
    )


def test_recordings_with_only_noise_in_the_published_file_are_reviewed(tmp_path):
    text = f"{HEADER}\na.WAV,Edu,AM1,2023/05/10,07:30:00,00:01:00,0,60,0,2490,No audio,\n"
    result = read(written(tmp_path, text))
    assert result.reviewed == (ReviewedSpan("a.WAV"),)
    assert result.events[0].label == "No audio"


def test_invalid_dates_and_durations_are_counted(tmp_path):
    rows = "a.WAV,,,2023/13/45,07:30:00,1:00,0,1,,,,\nb.WAV,,,,,60,0,1,,,,\n"
    result = read(written(tmp_path, f"{HEADER}\n{rows}"))
    assert result.problems == {CLOCK_UNREAD: 1, DURATION_UNREAD: 1}
    assert result.recordings == (RecordingMetadata("a.WAV"), RecordingMetadata("b.WAV", duration_s=60.0))


def test_a_fixed_table_is_written(tmp_path):
    metadata = RecordingMetadata(
        "a/x.wav", duration_s=3725.5, start_local=datetime(2023, 5, 10, 7, 30), site="AM1"
    )
    path = tmp_path / "t.csv"
    assert write(replace(fixed_annotations(), recordings=(metadata,)), path) == Counter()
    assert path.read_text() == (
        f"{HEADER},Quality\n"
        "a/x.wav,Ann,AM1,2023/05/10,07:30:00,01:02:05.5,1.5,2.25,1000,4000,Parus major,,A\n"
        "a/x.wav,,AM1,2023/05/10,07:30:00,01:02:05.5,3,3,,,,,\n"
        "a/empty.wav,,,,,,,,,,,,\n"
    )
    assert read(path).recordings[0] == metadata


@SLOW
@given(annotations())
def test_annotations_survive_a_round_trip(tmp_path_factory, original):
    path = tmp_path_factory.mktemp("birdeep") / "t.csv"
    losses = write_annotations(original, path, "birdeep")
    cut = sum(bool(local_start(item).microsecond) for item in original.recordings)
    assert losses == +Counter({START_CUT: cut})
    back = read_annotations(path, "birdeep")
    assert tidy(back.events) == tidy(original.events)
    assert same(back.reviewed, original.reviewed)
    expected = {item.recording_id: item for item in original.recordings}
    for item in back.recordings:
        metadata = expected[item.recording_id]
        assert item.start_local == local_start(metadata).replace(microsecond=0)
        assert (item.duration_s, item.site) == (metadata.duration_s, metadata.site)


def test_no_annotations_are_a_header_only(tmp_path):
    write(Annotations(), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == HEADER + "\n"
