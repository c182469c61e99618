from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from mast.annotations import convert, read_annotations, write_annotations
from mast.errors import AnnotationError
from mast.records import Event, Recording, to_table
from tests.annotations.cases import fixed_annotations, recording

SCAN = [
    recording("c/a/x.flac", duration_s=60.0, sample_rate_hz=32_000, channels=1),
    recording("c/a/empty.flac", duration_s=60.0, sample_rate_hz=32_000, channels=1),
]


def test_an_empty_table_converts_to_an_empty_table(tmp_path):
    (tmp_path / "t.csv").write_text("recording,start_s,end_s\n")
    conversion = convert(tmp_path / "t.csv", tmp_path / "t.json", "batdetect2")
    assert (conversion.events, conversion.recordings, conversion.reviewed) == (0, 0, 0)
    assert conversion.summary().splitlines() == [
        f"{tmp_path / 't.csv'} (csv): 0 events in 0 recordings, 0 of them reviewed",
        f"Written: {tmp_path / 't.json'} (batdetect2)",
    ]


def test_problems_and_losses_are_reported(tmp_path):
    write_annotations(fixed_annotations(), tmp_path / "t.csv", "csv")
    with (tmp_path / "t.csv").open("a") as file:
        file.write("z.wav,,,,,rain,,\n")
    conversion = convert(tmp_path / "t.csv", tmp_path / "labels", "audacity", "csv")
    assert (conversion.events, conversion.recordings, conversion.reviewed) == (2, 2, 2)
    assert "Not imported from the source:\n  1 x row without a time" in conversion.summary()
    assert (
        "Not stored in audacity:\n  1 x annotator: not written\n  1 x free column: not written"
        in conversion.summary()
    )


@pytest.mark.parametrize("as_file", [True, False])
def test_a_scan_adds_missing_metadata_and_its_recording_ids(tmp_path, as_file):
    write_annotations(fixed_annotations(), tmp_path / "t.csv", "csv")
    pq.write_table(to_table(SCAN, Recording), tmp_path / "recordings.parquet")
    scan = tmp_path / "recordings.parquet" if as_file else SCAN
    conversion = convert(tmp_path / "t.csv", tmp_path / "t.json", "aoef", recordings=scan)
    assert not conversion.losses
    back = read_annotations(tmp_path / "t.json", "aoef")
    assert back.events == tuple(
        replace(event, recording_id="c/a/x.flac") for event in fixed_annotations().events
    )
    assert {span.recording_id for span in back.reviewed} == {"c/a/x.flac", "c/a/empty.flac"}


def test_recording_names_that_are_not_in_the_scan_are_kept(tmp_path):
    (tmp_path / "t.csv").write_text("recording,start_s,end_s\nother.wav,0,1\n")
    convert(tmp_path / "t.csv", tmp_path / "out.csv", "csv", recordings=SCAN)
    assert read_annotations(tmp_path / "out.csv", "csv").events == (Event("other.wav", 0, 1),)


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_an_invalid_table_of_recordings_is_rejected(tmp_path, content):
    (tmp_path / "t.csv").write_text("recording,start_s,end_s\n")
    path = tmp_path / "recordings.parquet"
    if content:
        path.write_bytes(content)
    with pytest.raises(AnnotationError, match="not a table of recordings"):
        convert(tmp_path / "t.csv", tmp_path / "out.csv", "csv", recordings=path)


def test_files_that_no_program_can_open_are_not_part_of_a_sequence(tmp_path):
    def scanned(name: str, status: str, duration_s: float | None) -> Recording:
        return Recording(name, "c", name, 1, None, status, duration_s=duration_s, sample_rate_hz=16_000)

    (tmp_path / "in.csv").write_text("recording,start_s,end_s,low_hz,high_hz,label\nb.wav,1,2,3,4,x\n")
    recordings = [
        scanned("a.wav", "suspect", 60.0),
        scanned("aa.wav", "quarantined", None),
        scanned("b.wav", "ok", 60.0),
    ]
    convert(tmp_path / "in.csv", tmp_path / "out.txt", "raven", recordings=recordings)
    assert "\t61\t62\t" in (tmp_path / "out.txt").read_text()
