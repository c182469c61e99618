"""A loaded model predicts the same as before saving; unusable models raise an error with the reason."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from mast.config import Chunking, Collection, Spectrogram
from mast.errors import ModelError
from mast.models.checkpoint import ModelInfo, load_model, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.loading import (
    build_detector,
    build_encoder,
    check_store,
    load_detector,
    load_encoder,
    strip_prefix,
)
from mast.models.mae import MaskedAutoencoder
from mast.models.mae_decoder import Decoder, DecoderShape
from mast.normalisation import Normalisation
from mast.recordings.scan import scan
from mast.store.audio_store import AudioStore
from mast.store.prepare import prepare
from tests.models.small_detector import spectrograms

SHAPE = EncoderShape(width=64, heads=4, depth=1)
FRAMES = 128
DETECTOR = {"encoder": asdict(SHAPE), "adapter": "upsampling", "levels": 3, "channels": 256, "head_width": 32}
DESCRIPTION = ModelInfo(
    kind="detector",
    architecture=DETECTOR,
    spectrogram=Spectrogram(),
    chunking=Chunking(chunk_s=1.28, hop_s=0.64),
    normalisation=Normalisation("dataset", -6.0, 3.0),
    licence="none",
    source="a test",
)


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(SHAPE, FRAMES).eval()


def test_stripping_a_prefix_of_no_tensors_gives_none() -> None:
    assert strip_prefix({}, "encoder.") == {}


def test_a_prefix_is_stripped_once_and_other_tensors_are_excluded() -> None:
    one = torch.ones(1)
    tensors = {
        "encoder.norm.weight": one,
        "encoder.encoder.x": one,
        "decoder.norm.weight": one,
        "encoders": one,
    }
    assert set(strip_prefix(tensors, "encoder.")) == {"norm.weight", "encoder.x"}


@torch.no_grad()
def test_an_encoder_of_a_masked_autoencoder_gives_the_same_output(tmp_path: Path) -> None:
    saved = encoder()
    shape = DecoderShape("plain", 32, 4, 1)
    autoencoder = MaskedAutoencoder(saved, Decoder(shape, SHAPE, FRAMES))
    described = replace(
        DESCRIPTION,
        kind="masked-autoencoder",
        architecture={"encoder": asdict(SHAPE), "decoder": asdict(shape)},
    )
    written = save_model(str(tmp_path), described, autoencoder.state_dict())
    loaded = load_encoder(str(tmp_path))
    assert not loaded.network.training
    assert loaded.description == written
    assert torch.equal(loaded.network(spectrograms()), saved(spectrograms()))


@torch.no_grad()
def test_a_detector_predicts_the_same_and_has_its_own_front_end(tmp_path: Path) -> None:
    torch.manual_seed(1)
    saved = build_detector(DETECTOR, encoder()).eval()
    save_model(str(tmp_path), DESCRIPTION, saved.state_dict())
    loaded = load_detector(str(tmp_path))
    before, after = saved(spectrograms()), loaded.network(spectrograms())
    assert not loaded.network.training
    for name in ("logits", "distances", "centerness"):
        assert torch.equal(getattr(before, name), getattr(after, name)), name
    assert loaded.frontend.frames == FRAMES
    assert loaded.frontend.normalisation == DESCRIPTION.normalisation
    assert torch.equal(load_encoder(str(tmp_path)).network(spectrograms()), saved.encoder(spectrograms()))


def test_an_encoder_is_built_for_the_chunks_of_its_model() -> None:
    built = build_encoder(replace(DESCRIPTION, chunking=Chunking(chunk_s=2.56, hop_s=1.28)))
    assert built.pos_embed.shape == (1, 1 + 16 * 8, 64)


def test_a_model_without_a_detector_is_refused_with_the_command_to_train_one(tmp_path: Path) -> None:
    described = replace(DESCRIPTION, kind="encoder", architecture={"encoder": asdict(SHAPE)})
    save_model(str(tmp_path), described, {f"encoder.{k}": v for k, v in encoder().state_dict().items()})
    with pytest.raises(
        ModelError, match=r"is a model of kind encoder, which cannot predict boxes\. .* mast train"
    ):
        load_detector(str(tmp_path))


def test_a_model_without_normalisation_is_refused(tmp_path: Path) -> None:
    saved = encoder()
    tensors = {f"encoder.{name}": value for name, value in saved.state_dict().items()}
    save_model(str(tmp_path), replace(DESCRIPTION, kind="encoder", normalisation=None), tensors)
    with pytest.raises(ModelError, match="does not state how spectrograms are normalised"):
        load_encoder(str(tmp_path))
    assert set(load_model(str(tmp_path))[1]) == set(tensors)


def test_a_model_with_other_chunks_than_the_store_is_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    samples = np.random.default_rng(0).normal(0, 0.1, 32_000)
    soundfile.write(tmp_path / "card" / "20240101_000000.wav", samples, 16_000)
    card = {"card": Collection(root=str(tmp_path / "card"))}
    table, location = str(tmp_path / "recordings.parquet"), str(tmp_path / "audio.lance")
    scan(card, table)
    prepare(table, card, location, DESCRIPTION.chunking, workers=1)
    check_store("mine", DESCRIPTION, AudioStore(location))
    other = replace(DESCRIPTION, chunking=Chunking(chunk_s=2.56, hop_s=1.28))
    with pytest.raises(ModelError, match=r"mine reads chunks of 2\.56 s .* holds chunks of 1\.28 s"):
        check_store("mine", other, AudioStore(location))
