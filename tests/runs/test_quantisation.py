"""Calibration chunks of an engine."""

import os

import numpy as np
import soundfile

from mast.config import Chunking
from mast.recordings.scan import collections_from_folders, scan
from mast.runs.quantisation import calibration_chunks

CHUNKING = Chunking(chunk_s=0.64, hop_s=0.32)


def valid_samples(card, recordings):
    """Scan a card, and return the number of audio samples of each calibration chunk."""
    table = str(card.parent / "recordings.parquet")
    scan(collections_from_folders([str(card)]), table)
    _, samples = calibration_chunks(table, recordings, {"card": str(card)}, {"card": 1.0}, CHUNKING)
    return samples.tolist()


def test_without_recordings_the_calibration_chunk_is_silence(tmp_path):
    (tmp_path / "card").mkdir()
    assert valid_samples(tmp_path / "card", 0) == [10_240]


def test_the_middle_of_each_recording_is_used_also_of_a_truncated_one(tmp_path):
    card = tmp_path / "card"
    card.mkdir()
    noise = np.random.default_rng(0).normal(0, 0.1, 160_000)
    for name, seconds in (("long.wav", 10), ("cut.flac", 10), ("short.wav", 0.5)):
        soundfile.write(card / name, noise[: round(16_000 * seconds)], 16_000)
    os.truncate(card / "cut.flac", (card / "cut.flac").stat().st_size * 45 // 100)
    assert sorted(valid_samples(card, 3)) == [8_000, 10_240, 10_240]
