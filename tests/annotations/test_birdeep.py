from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingFacts, read_annotations, write_annotations
from mast.annotations.birdeep import CLOCK_UNREAD, DURATION_UNREAD, START_CUT, read, write
from mast.annotations.rows import LOW_UNSET
from mast.annotations.tables import local_start
from mast.errors import AnnotationError
from mast.events import Event, Reviewed
from tests.annotations.cases import SLOW, annotations, by_hand, same, tidy

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


def test_an_empty_file_is_refused_and_a_header_alone_is_nothing(tmp_path):
    with pytest.raises(AnnotationError, match="the file is empty"):
        read(written(tmp_path, ""))
    assert read(written(tmp_path, HEADER)).events == ()


def test_the_raw_file_keeps_unknown_animals_and_noise_under_their_own_labels(tmp_path):
    found = read(written(tmp_path, RAW))
    space_removed = "AM2/AM02_20230511_060000.WAV"
    assert found.events == (
        Event(space_removed, 1.5, 2.5, 0.0, 4000.5, "unknown", annotator="Edu"),
        Event(space_removed, 3, 4, 100, 200, "abiotic noise", annotator="Edu"),
        Event("AM1/AM1_20230510_073000.WAV", 3, 4, 100, 200, "curund/curmel", annotator="Giulia"),
    )
    assert found.problems == {LOW_UNSET: 1}
    assert found.recordings[0] == RecordingFacts(
        space_removed, duration_s=60.0, start_local=datetime(2023, 5, 11, 6), site="AM2"
    )


def test_recordings_with_only_noise_in_the_published_file_are_reviewed(tmp_path):
    text = f"{HEADER}\na.WAV,Edu,AM1,2023/05/10,07:30:00,00:01:00,0,60,0,2490,No audio,\n"
    found = read(written(tmp_path, text))
    assert found.reviewed == (Reviewed("a.WAV"),)
    assert found.events[0].label == "No audio"


def test_dates_and_durations_that_say_nothing_are_counted(tmp_path):
    rows = "a.WAV,,,2023/13/45,07:30:00,1:00,0,1,,,,\nb.WAV,,,,,60,0,1,,,,\n"
    found = read(written(tmp_path, f"{HEADER}\n{rows}"))
    assert found.problems == {CLOCK_UNREAD: 1, DURATION_UNREAD: 1}
    assert found.recordings == (RecordingFacts("a.WAV"), RecordingFacts("b.WAV", duration_s=60.0))


def test_a_table_worked_out_by_hand(tmp_path):
    facts = RecordingFacts("a/x.wav", duration_s=3725.5, start_local=datetime(2023, 5, 10, 7, 30), site="AM1")
    path = tmp_path / "t.csv"
    assert write(replace(by_hand(), recordings=(facts,)), path) == Counter()
    assert path.read_text() == (
        f"{HEADER},Quality\n"
        "a/x.wav,Ann,AM1,2023/05/10,07:30:00,01:02:05.5,1.5,2.25,1000,4000,Parus major,,A\n"
        "a/x.wav,,AM1,2023/05/10,07:30:00,01:02:05.5,3,3,,,,,\n"
        "a/empty.wav,,,,,,,,,,,,\n"
    )
    assert read(path).recordings[0] == facts


@SLOW
@given(annotations())
def test_everything_comes_back(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("birdeep") / "t.csv"
    losses = write_annotations(found, path, "birdeep")
    cut = sum(bool(local_start(item).microsecond) for item in found.recordings)
    assert losses == +Counter({START_CUT: cut})
    back = read_annotations(path, "birdeep")
    assert tidy(back.events) == tidy(found.events)
    assert same(back.reviewed, found.reviewed)
    expected = {item.recording_id: item for item in found.recordings}
    for item in back.recordings:
        known = expected[item.recording_id]
        assert item.start_local == local_start(known).replace(microsecond=0)
        assert (item.duration_s, item.site) == (known.duration_s, known.site)


def test_nothing_is_a_header_only(tmp_path):
    write(Annotations(), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == HEADER + "\n"
