"""The vector of a box is the mean of the encoder's feature map under it, whichever chunk it shares."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.ops import roi_align

from mast.audio.reader import open_audio
from mast.embeddings.box_encoder import (
    MIN_CONTEXT_FRACTION,
    BoxEncoder,
    embed_boxes,
    encode_chunks,
    group_boxes_into_chunks,
)
from mast.models.loading import load_encoder
from mast.models.pooling import unit_vectors
from tests.embeddings.runs import SHAPE
from tests.recordings.builders import form, wav
from tests.runs.archives import varying_noise

CHUNK = 1000


def grouped(spans, samples=100_000):
    return list(group_boxes_into_chunks(np.array(spans, np.float64).reshape(-1, 2), CHUNK, samples))


def naive_mean(features, box):
    """Return the mean of a feature map over a box of whole cells."""
    start, low, end, high = (int(edge) for edge in box)
    cells = [features[:, row, column] for row in range(low, high) for column in range(start, end)]
    return np.stack(cells).mean(axis=0)


def test_no_spans_need_no_chunk():
    assert grouped([]) == []


def test_neighbouring_spans_share_a_chunk_centred_on_them():
    assert grouped([[5000, 5100], [5600, 5700], [5050, 5200]]) == [(4850, [0, 2, 1])]


def test_a_span_without_enough_context_gets_a_chunk_of_its_own():
    assert grouped([[5000, 5100], [5750, 5801]]) == [(4550, [0]), (5276, [1])]


def test_a_long_span_does_not_separate_its_neighbours():
    assert grouped([[5000, 5100], [5050, 6000], [5150, 5300]]) == [(5025, [1]), (4650, [0, 2])]


def test_a_chunk_covers_the_middle_of_a_span_longer_than_itself():
    assert grouped([[2000, 5000]]) == [(3000, [0])]


def test_a_chunk_ends_at_the_end_of_the_recording():
    assert grouped([[0, 100], [9900, 10_000]], samples=10_000) == [(0, [0]), (9000, [1])]
    assert grouped([[0, 100]], samples=400) == [(0, [0])]


SPANS = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 2500)), max_size=20)


@given(spans=SPANS, samples=st.integers(1, 12_000))
def test_every_span_is_in_one_chunk_with_its_context_as_far_as_both_fit(spans, samples):
    spans = [(start, start + length) for start, length in spans if start + length <= samples]
    chunks = grouped(spans, samples)
    assert sorted(row for _, rows in chunks for row in rows) == [*range(len(spans))]
    for first, rows in chunks:
        assert 0 <= first <= max(0, samples - CHUNK)
        for start, end in (spans[row] for row in rows):
            if end - start > CHUNK:
                assert first <= (start + end) / 2 <= first + CHUNK
            else:
                assert first <= start and end <= first + CHUNK
            if end - start <= (1 - 2 * MIN_CONTEXT_FRACTION) * CHUNK:
                assert start - first >= min(start, MIN_CONTEXT_FRACTION * CHUNK - 1)
                assert first + CHUNK - end >= min(samples - end, MIN_CONTEXT_FRACTION * CHUNK - 1)


@settings(max_examples=20)
@given(st.integers(0, 2**16), st.integers(0, 3))
def test_vectors_are_plain_means_of_unit_length(seed, count):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(2, 5, 4, 8)).astype(np.float32)
    edges = [np.sort(rng.choice(size, (2 * count, 2)), axis=1) for size in (8, 4)]
    cells = np.stack([edges[0][:, 0], edges[1][:, 0], edges[0][:, 1] + 1, edges[1][:, 1] + 1], axis=1)
    cells = cells.reshape(2, count, 4)
    vectors = unit_vectors(torch.from_numpy(features), list(torch.from_numpy(16.0 * cells).float()))
    assert vectors.shape == (2 * count, 5)
    for number, vector in enumerate(vectors):
        mean = naive_mean(features[number // count], cells[number // count, number % count])
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=2e-3)


@settings(max_examples=20)
@given(st.integers(0, 2**16))
def test_vectors_equal_roi_align_even_for_boxes_thinner_than_a_token(seed):
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(1, 6, 8, 16, generator=rng)
    edges = torch.rand(8, 2, 2, generator=rng).sort(dim=1).values * torch.tensor([256.0, 128])
    edges[:4, 1] = edges[:4, 0] + 3.0
    boxes = edges.flatten(1).clamp(max=256)
    expected = roi_align(features, [boxes / 16], output_size=(1, 1), aligned=True).flatten(1)
    expected = torch.nn.functional.normalize(expected, dim=1)
    np.testing.assert_allclose(unit_vectors(features, [boxes]), expected.numpy(), atol=2e-3)


@pytest.fixture(scope="module")
def box_encoder(encoder):
    return BoxEncoder(load_encoder(encoder), device="cpu")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recording") / "one.wav"
    path.write_bytes(wav(varying_noise(6.0).tobytes()))
    return str(path)


BOUNDS = np.array(
    [[0.1, 500, 0.3, 1500], [2.0, 3000, 2.2, 3100], [2.3, 900, 2.5, 6000], [5.9, 400, 6.0, 800]]
)


def one_by_one(location, box_encoder, bounds, samples=20_480):
    """Embed each box alone in its own chunk, with RoIAlign and unit length."""
    vectors = []
    with open_audio(location, 16_000) as audio, torch.inference_mode():
        for start_s, low_hz, end_s, high_hz in bounds:
            first = round(16_000 * (start_s + end_s) / 2 - samples / 2)
            first = max(0, min(first, audio.samples - samples))
            wave = np.rint(audio.read_samples(first, first + samples) * 32767).astype(np.int16)
            spec = box_encoder._frontend(torch.from_numpy(wave)[None], torch.tensor([samples]))
            features = box_encoder._network(spec).float()
            low, high = box_encoder.grid.hz_to_bins(torch.tensor([low_hz, high_hz])).tolist()
            box = [
                100 * (start_s - first / 16_000),
                max(low, 0),
                100 * (end_s - first / 16_000),
                min(high, 128),
            ]
            pooled = roi_align(
                features, [torch.tensor([box], dtype=torch.float32) / 16], output_size=(1, 1), aligned=True
            )
            vectors.append(torch.nn.functional.normalize(pooled.flatten(), dim=0).numpy())
    return np.stack(vectors)


def test_no_boxes_give_no_vectors(box_encoder, recording):
    with open_audio(recording, 16_000) as audio:
        vectors, rows = embed_boxes(audio, np.zeros((0, 4)), box_encoder)
    assert vectors.shape == (0, SHAPE.width) and len(rows) == 0


def test_each_box_of_a_recording_is_embedded_at_its_own_place(box_encoder, recording):
    apart = BOUNDS[[0, 1, 3]]
    with open_audio(recording, 16_000) as audio:
        vectors, rows = embed_boxes(audio, apart, box_encoder)
    assert rows.tolist() == [0, 1, 2]
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=2e-3)
    np.testing.assert_allclose(
        vectors, one_by_one(recording, box_encoder, apart), atol=0.02
    )  # bf16 on some CPUs


def test_close_boxes_share_one_chunk(box_encoder, recording):
    with open_audio(recording, 16_000) as audio:
        assert [chunk.rows for chunk in encode_chunks(audio, BOUNDS, box_encoder)] == [[0], [1, 2], [3]]


def test_a_box_after_the_end_of_the_audio_or_above_the_band_has_no_vector(box_encoder, recording):
    bounds = np.array(
        [[2.0, 500, 2.1, 900], [7.0, 500, 7.1, 900], [2.0, 8100, 2.1, 9000], [5.9, 500, 9.0, 900]]
    )
    with open_audio(recording, 16_000) as audio:
        _, rows = embed_boxes(audio, bounds, box_encoder)
    assert sorted(rows.tolist()) == [0, 3]


def test_time_expansion_gives_the_vectors_of_a_slowed_recording(box_encoder, recording, tmp_path):
    samples = varying_noise(6.0).tobytes()
    (tmp_path / "bat.wav").write_bytes(wav(samples, layout=form(rate_hz=32_000)))
    with open_audio(recording, 16_000) as audio:
        slow, _ = embed_boxes(audio, BOUNDS, box_encoder)
    with open_audio(str(tmp_path / "bat.wav"), 16_000, time_expansion=2.0) as audio:
        fast, _ = embed_boxes(audio, BOUNDS * np.array([0.5, 2] * 2), box_encoder, time_expansion=2.0)
    np.testing.assert_allclose(fast, slow, atol=2e-3)


def test_layers_blocks_gives_different_vectors(encoder, recording):
    vectors = {}
    for layers in ("last", "blocks"):
        with open_audio(recording, 16_000) as audio:
            vectors[layers], _ = embed_boxes(audio, BOUNDS, BoxEncoder(load_encoder(encoder), layers, "cpu"))
    assert np.abs(vectors["last"].astype(np.float32) - vectors["blocks"]).max() > 0.02


@settings(max_examples=5)
@given(batch=st.integers(1, 5))
def test_any_batch_size_gives_the_same_vectors(box_encoder, recording, batch):
    box_encoder.batch_size, default = batch, box_encoder.batch_size
    with open_audio(recording, 16_000) as audio:
        vectors, rows = embed_boxes(audio, BOUNDS, box_encoder)
    box_encoder.batch_size = default
    with open_audio(recording, 16_000) as audio:
        expected, _ = embed_boxes(audio, BOUNDS, box_encoder)
    assert rows.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(vectors, expected, atol=0.02)
