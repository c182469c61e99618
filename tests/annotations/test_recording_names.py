import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.annotations import Annotations, RecordingMetadata, match_recordings
from mast.annotations.recording_names import name_prefilter, resolve
from mast.records import Event, ReviewedSpan

IDS = (
    "birds/north/AM02_20230511_060000.WAV",
    "birds/south/AM02_20230511_060000.WAV",
    "birds/north/rain.flac",
)


def test_no_annotations_match_no_recordings():
    matching = match_recordings(Annotations(), [])
    assert matching.annotations == Annotations()
    assert matching.unmatched == matching.ambiguous == {}


@pytest.mark.parametrize(
    ("name", "recording_id"),
    [
        ("birds/north/rain.flac", IDS[2]),
        ("north/rain.flac", IDS[2]),
        ("rain.flac", IDS[2]),
        ("RAIN.FLAC ", IDS[2]),
        ("rain.wav", IDS[2]),
        ("rain", IDS[2]),
        ("rain .WAV", IDS[2]),
        ("D:\\cards\\north\\AM02_20230511_060000.WAV", IDS[0]),
        ("south/AM2_20230511_060000 .wav", IDS[1]),
        ("elsewhere/rain.flac", IDS[2]),
    ],
)
def test_a_name_matches_its_recording(name, recording_id):
    assert resolve([name], IDS) == ({name: recording_id}, {})
    assert name_prefilter([name])(recording_id)
    assert not name_prefilter([name])("birds/other.wav")


def test_an_equal_extension_takes_precedence():
    assert resolve(["x.wav"], ["c/x.flac", "c/x.wav"])[0] == {"x.wav": "c/x.wav"}
    assert resolve(["x"], ["c/x.flac", "c/x.wav"])[1] == {"x": ("c/x.flac", "c/x.wav")}


def test_missing_and_ambiguous_names_are_excluded_counted_and_listed():
    ambiguous, missing, empty = "AM02_20230511_060000.WAV", "gone.wav", "gone too.wav"
    original = Annotations(
        events=(Event(ambiguous, 0, 1), Event(missing, 0, 1), Event(missing, 1, 2), Event("rain.wav", 0, 1)),
        reviewed=(ReviewedSpan("rain.wav"), ReviewedSpan("rain"), ReviewedSpan(empty)),
        recordings=(RecordingMetadata("rain.wav", duration_s=3.0), RecordingMetadata(missing)),
    )
    matching = match_recordings(original, IDS)
    assert matching.annotations.events == (Event(IDS[2], 0, 1),)
    assert matching.annotations.reviewed == (ReviewedSpan(IDS[2]),)
    assert matching.annotations.recordings == (RecordingMetadata(IDS[2], duration_s=3.0),)
    assert matching.unmatched == {missing: 2, empty: 0}
    assert matching.ambiguous == {ambiguous: IDS[:2]}
    assert sorted(matching.annotations.problems.values()) == [1, 1, 2]


def test_of_two_sites_with_equal_file_names_only_the_matching_one_gets_the_recording():
    assert resolve(["A1/x.wav", "B1/x.wav"], ["card/A1/x.wav"]) == ({"A1/x.wav": "card/A1/x.wav"}, {})
    assert resolve(["A1/x.wav", "B1/x.wav"], ["x.wav"]) == (
        {},
        {"A1/x.wav": ("x.wav",), "B1/x.wav": ("x.wav",)},
    )
    assert resolve(["x.wav", "x"], ["c/x.wav"])[0] == {"x.wav": "c/x.wav", "x": "c/x.wav"}


@pytest.mark.parametrize("file", ["2023_{index:06}", "rec"])
def test_a_hundred_thousand_recordings_are_matched_in_seconds(file):
    stems = [f"site{index}/{file.format(index=index)}" for index in range(100_000)]
    ids = [f"c/{stem}.wav" for stem in stems]
    begun = time.monotonic()
    resolved, ambiguous = resolve([stem.replace("/", "\\") + ".flac" for stem in stems], ids)
    assert time.monotonic() - begun < 30
    assert list(resolved.values()) == ids
    assert not ambiguous


@given(st.lists(st.sampled_from(["a/x", "b/x", "c/a/x", "c/b/x", "A/X", "x", "d/c/a/x"]), unique=True))
def test_the_recording_that_shares_most_folders_is_matched(ids):
    def shared(recording_id):
        pairs = zip(reversed(["e", "c", "a"]), reversed(recording_id.lower().split("/")[:-1]), strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    maximum = max(map(shared, ids), default=0)
    expected = tuple(recording_id for recording_id in ids if shared(recording_id) == maximum)
    resolved, ambiguous = resolve(["e/c/a/x"], ids)
    assert (*resolved.values(), *(item for group in ambiguous.values() for item in group)) == expected
