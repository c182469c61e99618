"""The example data is realistic: calls lie inside their boxes, and the scan reports every fault."""

import numpy as np
import pytest

from mast.annotations import read_annotations
from mast.audio.reader import open_audio
from mast.errors import StorageError
from mast.example_data import write_example
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import probe


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example") / "new"
    assert write_example(folder) == len(list((folder / "card").rglob("*.[wW][aA][vV]")))
    return folder


def test_every_box_is_louder_than_its_frequency_band_just_before_it(card):
    boxes = read_annotations(card / "boxes", "raven")
    assert len(boxes.events) > 30
    for event in boxes.events:
        with open_audio(str(card / "card" / event.recording_id), None) as audio:
            inside = audio.read(event.start_s, event.end_s - event.start_s)
            before = audio.read(max(0.0, event.start_s - 0.5), 0.3)
            levels = []
            for sound in (inside, before):
                power = np.abs(np.fft.rfft(sound)) ** 2 / len(sound)
                hz = np.fft.rfftfreq(len(sound), 1 / audio.sample_rate_hz)
                levels.append(power[(hz >= event.low_hz) & (hz <= event.high_hz)].mean())
        assert levels[0] > 0
        if not any(
            other is not event and other.start_s < event.start_s and other.end_s > event.start_s - 0.6
            for other in boxes.events
            if other.recording_id == event.recording_id
        ):
            assert levels[0] > 3 * levels[1], event


def test_the_example_data_has_common_faults(card):
    root = card / "card"
    names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.*"))]
    faults = {name: probe(str(root), "card", name, NamingScheme()).faults for name in names}
    assert faults["A1/20240511_093000.WAV"] == ("truncated",)
    assert faults["A1/20240511_113000.WAV"] == ("empty-file",)
    assert faults["A2/19700101_000135.WAV"] == ("clock-reset",)
    assert faults["A2/20240512_213000.WAV"] == ("silent",)
    assert faults["B1/20240512_213000.WAV"] == ("clipped",)
    assert faults["B1/notes.wav"] == ("not-audio",)
    assert sum(map(bool, faults.values())) == 6


def test_the_example_data_is_reproducible(card, tmp_path):
    write_example(tmp_path / "again")
    for path in card.rglob("*.*"):
        assert (tmp_path / "again" / path.relative_to(card)).read_bytes() == path.read_bytes()


def test_a_folder_that_is_not_empty_is_rejected(card):
    with pytest.raises(StorageError, match="is not empty"):
        write_example(card)
