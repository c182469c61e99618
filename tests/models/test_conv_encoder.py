"""The lean convolutional encoders, and detectors built on them."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch import nn

from mast.config import Chunking, Spectrogram
from mast.errors import ConfigError
from mast.models.checkpoint import ModelInfo
from mast.models.conv_encoder import NETWORKS, ConvEncoder, ConvEncoderShape
from mast.models.detector import Detector
from mast.models.frontend import FrontEnd
from mast.models.fuse import fuse_batchnorm
from mast.models.inference_engines import open_engine, prepare_engine
from mast.models.loading import LoadedModel, build_detector, encoder_shape
from mast.models.postprocess import scores
from mast.normalisation import Normalisation
from tests.models.small_detector import spectrograms
from tests.models.test_fuse import randomise_batchnorm
from tests.runs.archives import varying_noise

BUDGET_MACS = 3e9
ARCHITECTURE = {"levels": 4, "channels": 64, "head_width": 64, "head_layers": 3}


def lean_detector(network: str, **changes: int) -> Detector:
    torch.manual_seed(0)
    return build_detector({**ARCHITECTURE, **changes}, ConvEncoder(ConvEncoderShape(network)))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("frames", [128, 512, 1024])
def test_maps_halve_from_a_cell_of_8_frames_and_4_bins(network: str, frames: int) -> None:
    encoder = ConvEncoder(ConvEncoderShape(network)).eval()
    with torch.no_grad():
        maps, merged = encoder.maps(spectrograms(frames)), encoder(spectrograms(frames))
    sizes = [
        (2, count, 32 >> level, frames // 8 >> level) for level, count in enumerate(encoder.shape.channels)
    ]
    assert [tuple(item.shape) for item in maps] == sizes
    assert merged.shape == (2, encoder.shape.width, 8, frames // 16)


def test_other_bins_and_an_odd_number_of_frames_are_refused() -> None:
    encoder = ConvEncoder(ConvEncoderShape("efficientnet_lite0", bins=64))
    with pytest.raises(ConfigError, match="reads 64 bins"):
        encoder(torch.zeros(1, 128, 64))
    with pytest.raises(ConfigError, match="an even number of frames, not 64 × 63"):
        encoder(torch.zeros(1, 64, 63))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_detector_takes_at_most_three_billion_multiplications_for_a_chunk(network: str) -> None:
    counted = []

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        counted.append(output.numel() * module.weight[0].numel())  # type: ignore[operator, union-attr, index]

    fused = fuse_batchnorm(lean_detector(network))
    for module in fused.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    with torch.no_grad():
        output = fused(spectrograms(1024)[:1])
    assert output.locations.level_strides[0] == (8, 4)
    assert 0.5e9 < sum(counted) < BUDGET_MACS


@pytest.mark.parametrize("network", NETWORKS)
def test_a_fused_detector_predicts_the_same_without_any_batch_norm(network: str) -> None:
    model = randomise_batchnorm(lean_detector(network)).eval()
    fused = fuse_batchnorm(model)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fused.modules())
    with torch.no_grad():
        expected, output = model(spectrograms()), fused(spectrograms())
    assert expected.logits.std() > 1e-3
    for name in ("logits", "centerness", "distances"):
        torch.testing.assert_close(getattr(output, name), getattr(expected, name), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_parameter_gets_a_finite_gradient(network: str) -> None:
    model = lean_detector(network)
    output = model(spectrograms(256))
    (output.logits.square().sum() + output.centerness.square().sum() + output.distances.sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


def test_the_shape_is_read_back_from_the_description_of_a_model() -> None:
    for shape in (ConvEncoderShape("yamnet"), ConvEncoderShape("efficientnet_lite0", bins=64)):
        assert encoder_shape(asdict(shape)) == shape


@pytest.mark.parametrize(
    ("engine", "tolerance"), [("float32", 1e-3), ("bf16", 0.1), ("int8", 0.2), ("int8-compiled", 0.2)]
)
def test_every_engine_predicts_as_float32_does(engine: str, tolerance: float) -> None:
    torch.set_num_threads(1)
    chunking, normalisation = Chunking(chunk_s=1.28, hop_s=1.28), Normalisation("band-median", 0.0, 1.0, 1.0)
    info = ModelInfo(
        kind="detector",
        architecture={},
        spectrogram=Spectrogram(),
        chunking=chunking,
        normalisation=normalisation,
        licence="test",
        source="test",
    )
    network = lean_detector("efficientnet_lite0", levels=2).eval()
    loaded = LoadedModel(info, network, FrontEnd(chunking, Spectrogram(), normalisation))
    audio = torch.from_numpy(varying_noise(1.28 * 6).reshape(6, -1)), torch.full((6,), 20_480)
    opened = open_engine(engine, loaded, "cpu", prepare_engine(engine, loaded, *audio))  # type: ignore[arg-type]
    with torch.inference_mode():
        expected, encoded = network(loaded.frontend(*audio)), opened.encode(loaded.frontend(*audio))
        torch.testing.assert_close(scores(opened.predict(encoded)), scores(expected), atol=tolerance, rtol=0)
        if opened.tokens:
            assert opened.tokens(encoded).shape == (6, 496, 8, 8)
