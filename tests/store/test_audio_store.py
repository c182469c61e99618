"""Any span of the prepared audio equals the same span of the recording; the index needs little memory."""

from __future__ import annotations

import builtins
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.audio.reader import chunk_offsets, open_audio
from mast.config import Chunking, Collection
from mast.errors import MissingExtraError, StorageError
from mast.recordings.scan import scan
from mast.store.audio_store import AudioStore, StoreLayout, storage_options, to_float, to_int16
from mast.store.prepare import prepare

RATE_HZ = 16_000
CHUNKING = Chunking(chunk_s=0.5, hop_s=0.25)
LENGTHS_S = (1.3, 0.5, 0.1, 4.0, 1.0)
HALF_STEP = 0.51 / 32767
"""Maximum error of rounding to int16, plus a small tolerance for float32."""


class Prepared:
    """A prepared collection of noise at several rates, and the same audio read directly from the files."""

    def __init__(self, folder: Path) -> None:
        (folder / "card").mkdir()
        rng = np.random.default_rng(0)
        self.waves = []
        for number, length_s in enumerate(LENGTHS_S):
            rate_hz = (48_000, 16_000, 44_100, 32_000, 22_050)[number]
            path = folder / "card" / f"2023051{number}_073000.wav"
            soundfile.write(path, rng.standard_normal(round(length_s * rate_hz)) * 0.4, rate_hz)
            with open_audio(str(path), RATE_HZ) as audio:
                self.waves.append(audio.read_samples(0, audio.samples).clip(-1, 1))
        collections = {"card": Collection(root=str(folder / "card"))}
        scan(collections, str(folder / "recordings.parquet"))
        prepare(
            str(folder / "recordings.parquet"), collections, str(folder / "audio.lance"), CHUNKING, workers=1
        )
        self.location = str(folder / "audio.lance")
        self.store = AudioStore(self.location)
        self.first_rows = self.store.recordings["first_row"].to_pylist()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("prepared"))


def test_reading_nothing_gives_nothing(prepared: Prepared) -> None:
    assert prepared.store.read([], 100).shape == (0, 100)
    assert prepared.store.valid_lengths([], 100).shape == (0,)
    assert prepared.store.read([(0, 0)], 0).shape == (1, 0)


def test_a_store_has_rows_a_layout_and_recordings(prepared: Prepared) -> None:
    store = prepared.store
    assert store.layout == StoreLayout(RATE_HZ, 8000)
    assert store.recordings["recording_id"].to_pylist() == [f"card/2023051{n}_073000.wav" for n in range(5)]
    assert store.recordings["samples"].to_pylist() == [len(wave) for wave in prepared.waves]
    assert store.recordings["steps"].to_pylist() == [3, 1, 1, 8, 2]
    assert prepared.first_rows == [0, 3, 4, 5, 13]
    assert len(store) == 15
    assert len(store.fingerprint) == 32


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_any_spans_equal_the_recordings_within_the_rounding_of_int16(prepared: Prepared, data: Any) -> None:
    spans, expected = [], []
    samples = data.draw(st.integers(1, 30_000))
    for number in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)):
        wave = prepared.waves[number]
        start = data.draw(st.integers(0, len(wave) + 100))
        row = data.draw(st.integers(0, (len(wave) - 1) // 8000))
        spans.append((prepared.first_rows[number] + row, start - row * 8000))
        expected.append(
            np.pad(wave[start : start + samples], (0, max(0, samples - max(0, len(wave) - start))))
        )
    read = prepared.store.read(spans, samples)
    assert read.dtype == np.int16
    np.testing.assert_allclose(to_float(read), np.stack(expected), atol=HALF_STEP)


@pytest.mark.parametrize("min_audio_fraction", [0.0, 0.5, 1.0])
def test_chunks_equal_those_of_direct_decoding(prepared: Prepared, min_audio_fraction: float) -> None:
    chunking = CHUNKING.model_copy(update={"min_audio_fraction": min_audio_fraction})
    spans = prepared.store.chunks(chunking)
    valid_samples = prepared.store.valid_lengths(spans, 8000)
    expected = [
        (first_row, first, valid)
        for first_row, wave in zip(prepared.first_rows, prepared.waves, strict=True)
        for first, valid in chunk_offsets(len(wave), chunking)
    ]
    assert [
        (*map(int, span), int(count)) for span, count in zip(spans, valid_samples, strict=True)
    ] == expected


def test_chunks_of_selected_recordings_keep_the_given_order(prepared: Prepared) -> None:
    rows = prepared.store.chunks(CHUNKING, [4, 1])[:, 0].tolist()
    assert rows == [13] * 4 + [3] * 2
    assert prepared.store.chunks(CHUNKING, []).shape == (0, 2)


def test_spans_outside_the_store_are_refused(prepared: Prepared) -> None:
    for spans in ([(15, 0)], [(-1, 0)], [(3, -1)]):
        with pytest.raises(IndexError):
            prepared.store.read(spans, 10)


def test_a_store_can_be_sent_to_another_process(prepared: Prepared) -> None:
    prepared.store.read([(0, 0)], 10)
    received = pickle.loads(pickle.dumps(prepared.store))
    assert "dataset" not in vars(received)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        from_process = pool.apply(prepared.store.read, ([(0, 7900), (5, 100)], 8000))
    np.testing.assert_array_equal(from_process, prepared.store.read([(0, 7900), (5, 100)], 8000))


def test_int16_rounds_to_nearest_and_clips_values_out_of_range() -> None:
    wave = np.array([0, 1, -1, 1.5, -2, 0.5, 1.4 / 32767, 1.6 / 32767], np.float32)
    out = np.zeros(8, np.int16)
    to_int16(wave, out)
    assert out.tolist() == [0, 32767, -32767, 32767, -32767, 16384, 1, 2]
    assert to_float(out)[:3].tolist() == [0, 1, -1]


def test_the_error_for_a_missing_store_names_the_command_that_creates_it(tmp_path: Path, bucket: str) -> None:
    for location in (str(tmp_path / "audio.lance"), f"{bucket}/work/audio.lance"):
        with pytest.raises(StorageError, match="Create it with mast prepare"):
            len(AudioStore(location))


def test_the_error_without_lance_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_lance(name: str, *rest: Any) -> Any:
        if name == "lance":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_lance)
    with pytest.raises(MissingExtraError, match=r'pip install "mast-bioacoustics\[train\]"'):
        len(AudioStore("audio.lance"))


def test_object_stores_are_configured_by_the_usual_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert storage_options("work/audio.lance") is None
    assert storage_options("s3://bucket/audio.lance") == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert storage_options("s3://bucket/audio.lance") == {
        "aws_endpoint": "http://127.0.0.1:9000",
        "allow_http": "true",
        "aws_region": "us-east-1",
    }
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://storage.example.org")
    assert storage_options("s3://bucket/audio.lance") == {
        "aws_endpoint": "https://storage.example.org",
        "allow_http": "false",
        "aws_region": "eu-west-1",
    }


def test_a_million_rows_are_indexed_in_tens_of_megabytes(tmp_path: Path) -> None:
    import lance
    import pyarrow as pa

    from mast.store.audio_store import store_schema

    rows = 1_000_000
    number = np.arange(rows)
    ids = pa.array([f"card/site{n // 60000}/20230510_{n // 6:07d}.WAV" for n in range(rows)])
    columns = {
        "recording_id": ids,
        "collection": pa.array(["card"] * rows),
        "site": pa.array(["pond"] * rows),
        "block": number % 6,
        "start_s": number % 6 * 10.24,
        "start_utc": pa.nulls(rows, pa.timestamp("us", tz="UTC")),
        "samples": np.full(rows, 163_840),
        "part": number // 352,
        "fault": pa.nulls(rows, pa.string()),
    }
    schema = store_schema()
    table = pa.table([columns[name] for name in schema.names[:-1]], schema=schema.remove(len(schema) - 1))
    lance.write_dataset(table, tmp_path / "audio.lance", data_storage_version="2.1")
    store = AudioStore(str(tmp_path / "audio.lance"))
    assert len(store.recordings) == -(-rows // 6)
    assert store.recordings["samples"].to_pylist()[:2] == [6 * 163_840] * 2
    assert store.recordings.nbytes < 30e6
