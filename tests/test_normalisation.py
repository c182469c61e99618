"""Normalisation compared with simple versions, and statistics compared with numpy over all values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mast.audio.reader import read_chunks
from mast.audio.spectrogram import LogMel
from mast.config import Chunking, Collection, Spectrogram, Study
from mast.errors import AudioError, ConfigError
from mast.normalisation import (
    Normalisation,
    Provenance,
    Statistics,
    band_medians,
    measure_statistics,
    remove_dc_offset,
)
from mast.recordings.scan import scan
from mast.store.audio_store import AudioStore
from mast.store.prepare import prepare

CHUNKING = Chunking(chunk_s=0.64, hop_s=0.32)
SAMPLES = 10_240
STATISTICS = Statistics(-7.5, 3.25, 2.5, Provenance("abc", 10, 102.4))


def numpy_median(values: np.ndarray[Any, Any]) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_each_kind_equals_a_simple_version(data: Any) -> None:
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 7)))
    spec = data.draw(arrays.arrays(np.float32, shape, elements=st.floats(-16, 5, width=32)))
    frames = np.array([data.draw(st.integers(0, shape[2])) for _ in range(shape[0])])
    plain = {
        "dataset": (spec + 7.5) / (3.25 + 1e-6),
        "audiomae": (spec + 4.2677393) / (2 * 4.5689974),
        "band-median": np.zeros_like(spec),
    }
    for chunk, valid_frames in enumerate(frames):
        for band in range(shape[1] if valid_frames else 0):
            values = spec[chunk, band, :valid_frames]
            plain["band-median"][chunk, band, :valid_frames] = (values - numpy_median(values)) / (2.5 + 1e-6)
    for kind, expected in plain.items():
        scaled = Normalisation.from_statistics(kind, STATISTICS).apply(
            torch.from_numpy(spec), torch.from_numpy(frames)
        )  # type: ignore[arg-type]
        np.testing.assert_allclose(scaled.numpy(), expected, atol=1e-5)


def test_without_frames_the_complete_chunk_is_valid() -> None:
    spec = torch.tensor([[[3.0, 1.0, 2.0, 5.0], [0.0, 0.0, 9.0, 0.0]]])
    assert band_medians(spec).squeeze().tolist() == [2.0, 0.0]
    assert band_medians(spec, torch.tensor([4])).squeeze().tolist() == [2.0, 0.0]
    scaled = Normalisation("band-median", 0, 1, 0.5 - 1e-6).apply(spec)
    torch.testing.assert_close(scaled, torch.tensor([[[2.0, -2, 0, 6], [0, 0, 18, 0]]]))


def test_band_medians_remove_constant_hum_and_recorder_gain() -> None:
    spec = torch.randn(2, 4, 50, generator=torch.Generator().manual_seed(0))
    louder = spec + torch.tensor([1.0, 0, 7, 2])[:, None] + 3
    scale = Normalisation.from_statistics("band-median", STATISTICS)
    torch.testing.assert_close(scale.apply(louder), scale.apply(spec), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["dataset", "audiomae", "band-median"])
def test_a_normalisation_is_preserved_in_json(kind: Any) -> None:
    normalisation = Normalisation.from_statistics(kind, STATISTICS)
    assert Normalisation.from_json(normalisation.to_json()) == normalisation
    assert json.loads(normalisation.to_json())["kind"] == kind


def test_missing_statistics_raise_an_error() -> None:
    with pytest.raises(ConfigError, match="needs the statistics"):
        Normalisation.from_statistics("dataset")
    with pytest.raises(ConfigError, match="band_deviation"):
        Normalisation("band-median", 0, 1).apply(torch.zeros(1, 2, 3))
    assert Normalisation.from_statistics("audiomae").provenance is None


def test_a_study_has_a_valid_normalisation() -> None:
    assert Study().normalisation == "dataset"
    with pytest.raises(ValueError, match="normalisation"):
        Study(normalisation="none")  # type: ignore[arg-type]


def test_padding_does_not_shift_the_mean_of_a_waveform() -> None:
    audio = torch.tensor([[1.0, 3, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    centred = remove_dc_offset(audio, torch.tensor([2, 4, 0]))
    assert centred.tolist() == [[-1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> tuple[AudioStore, list[Path]]:
    folder = tmp_path_factory.mktemp("card")
    (folder / "card").mkdir()
    rng = np.random.default_rng(0)
    paths = [folder / "card" / f"2023051{number}_073000.wav" for number in range(3)]
    for number, (path, length_s) in enumerate(zip(paths, (2.1, 0.64, 0.4), strict=True)):
        soundfile.write(
            path, rng.standard_normal(round(length_s * 16_000)) * 0.05 * (number + 1) + 0.1, 16_000
        )
    collections = {"card": Collection(root=str(folder / "card"))}
    scan(collections, str(folder / "recordings.parquet"))
    prepare(str(folder / "recordings.parquet"), collections, str(folder / "audio.lance"), CHUNKING, workers=1)
    return AudioStore(str(folder / "audio.lance")), paths


def plain_statistics(paths: list[Path]) -> tuple[float, float, float]:
    """Compute mean, standard deviation and deviation from band medians from all values at once."""
    logmel = LogMel(Spectrogram(), 16_000)
    values, deviations = [], []
    for path in paths:
        for chunk, wave in read_chunks(str(path), path.name, CHUNKING):
            spec = logmel(torch.from_numpy(wave)[None])[0].double().numpy()
            spec = spec[:, : logmel.num_frames(round(chunk.audio_s * 16_000))]
            values.append(spec.ravel())
            deviations.append((spec - np.array([numpy_median(band) for band in spec])[:, None]).ravel())
    all_values = np.concatenate(values)
    return all_values.mean(), all_values.std(), float(np.sqrt(np.square(np.concatenate(deviations)).mean()))


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_statistics_of_one_pass_equal_those_of_all_values_at_once(
    card: tuple[AudioStore, list[Path]], batch: int
) -> None:
    store, paths = card
    spans = store.chunks(CHUNKING)
    progress: list[tuple[float, float]] = []
    statistics = measure_statistics(
        store, spans, SAMPLES, Spectrogram(), batch, lambda *update: progress.append(update)
    )
    expected = plain_statistics(paths)
    np.testing.assert_allclose(
        (statistics.mean, statistics.std, statistics.band_deviation), expected, atol=2e-3
    )
    audio_s = store.valid_lengths(spans, SAMPLES).sum() / 16_000
    spectrogram = Spectrogram().model_dump(mode="json")
    assert statistics.provenance == Provenance(store.fingerprint, len(spans), audio_s, spectrogram)
    assert progress[-1] == (audio_s, len(spans) * 0.64)


def test_statistics_of_selected_spans_ignore_other_spans(card: tuple[AudioStore, list[Path]]) -> None:
    store, paths = card
    statistics = measure_statistics(store, store.chunks(CHUNKING, [1]), SAMPLES, Spectrogram())
    np.testing.assert_allclose(
        (statistics.mean, statistics.std, statistics.band_deviation), plain_statistics(paths[1:2]), atol=2e-3
    )


def test_statistics_without_audio_are_refused(card: tuple[AudioStore, list[Path]]) -> None:
    store, _ = card
    for spans in (np.zeros((0, 2), np.int64), np.array([[0, 33_500]])):
        with pytest.raises(AudioError, match="contains no audio to compute statistics from"):
            measure_statistics(store, spans, SAMPLES, Spectrogram())


def test_a_scaled_dataset_has_mean_zero_and_deviation_one(card: tuple[AudioStore, list[Path]]) -> None:
    store, paths = card
    scale = Normalisation.from_statistics(
        "dataset", measure_statistics(store, store.chunks(CHUNKING, [1]), SAMPLES, Spectrogram())
    )
    wave = torch.from_numpy(next(read_chunks(str(paths[1]), "a", CHUNKING))[1])
    spec = LogMel(Spectrogram(), 16_000)(wave[None])
    spectrograms = torch.cat(
        [spec, LogMel(Spectrogram(), 16_000)(remove_dc_offset(wave[None, 5120:], torch.tensor([5120])))], -1
    )
    assert abs(float(scale.apply(spectrograms).mean())) < 0.05
    assert abs(float(scale.apply(spectrograms).std()) - 1) < 0.05
