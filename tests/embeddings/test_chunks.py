"""A chunk's vector is the mean of its tokens, whatever it is batched with."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.datasets.preparing import read_normalisation
from mast.embeddings.chunks import embed_chunks
from mast.models.frontend import FrontEnd
from tests.embeddings.made import tiny_encoder


@pytest.fixture(scope="module")
def frontend(study):
    return FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))


@pytest.fixture(scope="module")
def places(study, store):
    return store.chunks(study.chunking)[::12]


def one_by_one(encoder, frontend, store, places):
    """The naive way: one chunk at a time, and the mean over its tokens without the class token."""
    samples = store.layout.step_samples
    rows = []
    with torch.inference_mode():
        for place in places[:, None]:
            spec = frontend(
                torch.from_numpy(store.read(place, samples)), torch.from_numpy(store.filled(place, samples))
            )
            rows.append(encoder.all_tokens(spec)[0, 1:].mean(dim=0))
    return torch.stack(rows).numpy()


def test_no_chunks_give_no_vectors(frontend, store, places):
    assert len(embed_chunks(tiny_encoder(), frontend, store, places[:0])) == 0


def test_a_vector_is_the_mean_of_a_chunks_tokens(frontend, store, places):
    encoder = tiny_encoder()
    vectors = embed_chunks(encoder, frontend, store, places)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(places), 16)
    np.testing.assert_allclose(vectors, one_by_one(encoder, frontend, store, places), atol=1e-5)
    assert vectors.std(axis=0).min() > 0  # chunks differ


def test_bfloat16_changes_little_and_hands_out_float32(frontend, store, places):
    exact = embed_chunks(tiny_encoder(), frontend, store, places)
    rough = embed_chunks(tiny_encoder(), frontend, store, places, torch.bfloat16)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - exact).max() < 0.05


@settings(max_examples=6)
@given(batch=st.integers(1, 40))
def test_batches_of_any_size_give_the_same_and_progress_ends_at_all(frontend, store, places, batch):
    told = []
    vectors = embed_chunks(
        tiny_encoder(),
        frontend,
        store,
        places,
        batch=batch,
        on_progress=lambda *progress: told.append(progress),
    )
    np.testing.assert_allclose(vectors, embed_chunks(tiny_encoder(), frontend, store, places), atol=1e-5)
    assert told[-1] == (len(places), len(places))
    assert len(told) == -(-len(places) // batch)
