"""The complete detector with a small encoder."""

from __future__ import annotations

import pytest
import torch

from tests.models.small_detector import detector, spectrograms


@pytest.mark.parametrize(
    ("adapter", "levels", "frames", "count"),
    [
        ("upsampling", 4, 1024, 5440),
        ("upsampling", 3, 128, 32 * 16 + 16 * 8 + 8 * 4),
        ("upsampling", 4, 176, 32 * 22 + 16 * 11 + 8 * 6 + 4 * 3),
        ("anisotropic", 4, 128, 32 * 8 + 16 * 4 + 8 * 2 + 4 * 1),
        ("conv", 4, 128, 8 * 8 + 4 * 4 + 2 * 2 + 1 * 1),
        ("none", 4, 128, 8 * 8 + 4 * 4 + 2 * 2 + 1 * 1),
    ],
)
def test_there_is_a_prediction_for_every_cell_of_every_level(
    adapter: str, levels: int, frames: int, count: int
) -> None:
    with torch.no_grad():
        output = detector(adapter, levels).eval()(spectrograms(frames))
    assert output.logits.shape == output.centerness.shape == (2, count)
    assert output.distances.shape == (2, count, 4)
    assert len(output.locations.centres) == count
    assert output.locations.extent == (frames, 128)


def test_predict_accepts_the_features_that_the_adapter_returned() -> None:
    model = detector().eval()
    with torch.no_grad():
        features = model.features(spectrograms())
        expected, output = model(spectrograms()), model.predict(features)
    assert features.shape == (2, 256, 32, 16)
    assert torch.equal(expected.logits, output.logits)
    assert torch.equal(expected.distances, output.distances)


def test_every_parameter_gets_a_finite_gradient() -> None:
    model = detector()
    output = model(spectrograms())
    (output.logits.square().sum() + output.centerness.square().sum() + output.distances.sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


def test_predictions_are_float32_under_autocast() -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        output = detector().eval()(spectrograms())
    assert {output.logits.dtype, output.centerness.dtype, output.distances.dtype} == {torch.float32}
