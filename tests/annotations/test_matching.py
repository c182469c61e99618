import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.annotations import Annotations, RecordingFacts, match_recordings
from mast.annotations.matching import might_match, resolve
from mast.events import Event, Reviewed

IDS = (
    "birds/north/AM02_20230511_060000.WAV",
    "birds/south/AM02_20230511_060000.WAV",
    "birds/north/rain.flac",
)


def test_nothing_matches_nothing():
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
def test_a_name_finds_its_recording(name, recording_id):
    assert resolve([name], IDS) == ({name: recording_id}, {})
    assert might_match([name])(recording_id)
    assert not might_match([name])("birds/other.wav")


def test_the_same_ending_is_nearer_than_another_one():
    assert resolve(["x.wav"], ["c/x.flac", "c/x.wav"])[0] == {"x.wav": "c/x.wav"}
    assert resolve(["x"], ["c/x.flac", "c/x.wav"])[1] == {"x": ("c/x.flac", "c/x.wav")}


def test_what_is_not_found_or_could_be_several_is_left_out_counted_and_listed():
    ambiguous, missing, empty = "AM02_20230511_060000.WAV", "gone.wav", "gone too.wav"
    found = Annotations(
        events=(Event(ambiguous, 0, 1), Event(missing, 0, 1), Event(missing, 1, 2), Event("rain.wav", 0, 1)),
        reviewed=(Reviewed("rain.wav"), Reviewed("rain"), Reviewed(empty)),
        recordings=(RecordingFacts("rain.wav", duration_s=3.0), RecordingFacts(missing)),
    )
    matching = match_recordings(found, IDS)
    assert matching.annotations.events == (Event(IDS[2], 0, 1),)
    assert matching.annotations.reviewed == (Reviewed(IDS[2]),)
    assert matching.annotations.recordings == (RecordingFacts(IDS[2], duration_s=3.0),)
    assert matching.unmatched == {missing: 2, empty: 0}
    assert matching.ambiguous == {ambiguous: IDS[:2]}
    assert sorted(matching.annotations.problems.values()) == [1, 1, 2]


def test_of_two_sites_with_the_same_file_name_only_the_right_one_has_the_recording():
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
def test_the_recording_that_shares_most_folders_is_meant(ids):
    def shared(recording_id):
        pairs = zip(reversed(["e", "c", "a"]), reversed(recording_id.lower().split("/")[:-1]), strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    most = max(map(shared, ids), default=0)
    expected = tuple(recording_id for recording_id in ids if shared(recording_id) == most)
    resolved, ambiguous = resolve(["e/c/a/x"], ids)
    assert (*resolved.values(), *(item for group in ambiguous.values() for item in group)) == expected
