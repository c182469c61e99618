"""Which sound an engine is prepared with."""

import os

import numpy as np
import soundfile

from mast.config import Chunking
from mast.detection.calibration import chunks_of
from mast.recordings.scan import collections_from_folders, scan

CHUNKING = Chunking(chunk_s=0.64, hop_s=0.32)


def heard(card, recordings):
    """Filled samples of each chunk that is taken from a scanned card."""
    table = str(card.parent / "recordings.parquet")
    scan(collections_from_folders([str(card)]), table)
    _, filled = chunks_of(table, recordings, {"card": str(card)}, {"card": 1.0}, CHUNKING)
    return filled.tolist()


def test_no_recordings_are_heard_as_silence(tmp_path):
    (tmp_path / "card").mkdir()
    assert heard(tmp_path / "card", 0) == [10_240]


def test_the_middle_of_each_recording_is_heard_also_of_one_that_was_cut_short(tmp_path):
    card = tmp_path / "card"
    card.mkdir()
    noise = np.random.default_rng(0).normal(0, 0.1, 160_000)
    for name, seconds in (("long.wav", 10), ("cut.flac", 10), ("short.wav", 0.5)):
        soundfile.write(card / name, noise[: round(16_000 * seconds)], 16_000)
    os.truncate(card / "cut.flac", (card / "cut.flac").stat().st_size * 45 // 100)
    assert sorted(heard(card, 3)) == [8_000, 10_240, 10_240]
