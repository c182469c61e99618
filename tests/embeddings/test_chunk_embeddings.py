"""The vector of a chunk is the mean of its tokens, independent of the batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.datasets.prepare import read_normalisation
from mast.embeddings.chunk_embeddings import embed_chunks
from mast.models.frontend import FrontEnd
from tests.embeddings.builders import tiny_encoder


@pytest.fixture(scope="module")
def frontend(study):
    return FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))


@pytest.fixture(scope="module")
def locations(study, store):
    return store.chunks(study.chunking)[::12]


def one_by_one(encoder, frontend, store, locations):
    """Embed one chunk at a time, as the mean over its tokens without the class token."""
    samples = store.layout.block_samples
    rows = []
    with torch.inference_mode():
        for location in locations[:, None]:
            spec = frontend(
                torch.from_numpy(store.read(location, samples)),
                torch.from_numpy(store.valid_lengths(location, samples)),
            )
            rows.append(encoder.all_tokens(spec)[0, 1:].mean(dim=0))
    return torch.stack(rows).numpy()


def test_no_chunks_give_no_vectors(frontend, store, locations):
    assert len(embed_chunks(tiny_encoder(), frontend, store, locations[:0])) == 0


def test_a_vector_is_the_mean_of_a_chunks_tokens(frontend, store, locations):
    encoder = tiny_encoder()
    vectors = embed_chunks(encoder, frontend, store, locations)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(locations), 16)
    np.testing.assert_allclose(vectors, one_by_one(encoder, frontend, store, locations), atol=1e-5)
    assert vectors.std(axis=0).min() > 0  # chunks differ


def test_bfloat16_changes_vectors_little_and_returns_float32(frontend, store, locations):
    exact = embed_chunks(tiny_encoder(), frontend, store, locations)
    bfloat16 = embed_chunks(tiny_encoder(), frontend, store, locations, torch.bfloat16)
    assert bfloat16.dtype == np.float32
    assert 0 < np.abs(bfloat16 - exact).max() < 0.05


@settings(max_examples=6)
@given(batch=st.integers(1, 40))
def test_any_batch_size_gives_the_same_vectors_and_progress_ends_at_the_total(
    frontend, store, locations, batch
):
    calls = []
    vectors = embed_chunks(
        tiny_encoder(),
        frontend,
        store,
        locations,
        batch=batch,
        on_progress=lambda *call: calls.append(call),
    )
    np.testing.assert_allclose(vectors, embed_chunks(tiny_encoder(), frontend, store, locations), atol=1e-5)
    assert calls[-1] == (len(locations), len(locations))
    assert len(calls) == -(-len(locations) // batch)
