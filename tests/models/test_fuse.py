"""A fused detector compared with the original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mast.models.detector import Detector
from mast.models.fuse import fuse_batchnorm
from tests.models.small_detector import detector, spectrograms


def randomise_batchnorm(model: Detector) -> Detector:
    """Set random statistics and scales for every BatchNorm, as after training."""
    rng = torch.Generator().manual_seed(2)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                values.data = torch.rand(values.shape, generator=rng) + 0.5  # type: ignore[union-attr]
    return model


@pytest.mark.parametrize("adapter", ["none", "conv", "anisotropic", "upsampling", "hybrid"])
def test_a_fused_detector_predicts_the_same_without_any_batch_norm(adapter: str) -> None:
    model = randomise_batchnorm(detector(adapter)).eval()
    fused = fuse_batchnorm(model)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fused.modules())
    assert not any(p.requires_grad for p in fused.parameters())
    with torch.no_grad():
        expected, output = model(spectrograms()), fuse_batchnorm(model)(spectrograms())
    assert expected.logits.std() > 1e-3
    for name in ("logits", "centerness", "distances"):
        torch.testing.assert_close(getattr(output, name), getattr(expected, name), atol=1e-4, rtol=1e-4)


def test_fusing_leaves_the_original_unchanged() -> None:
    model = detector().train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    fuse_batchnorm(model)
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_fusing_twice_equals_fusing_once() -> None:
    once = fuse_batchnorm(randomise_batchnorm(detector()))
    twice = fuse_batchnorm(once)
    with torch.no_grad():
        assert torch.equal(once(spectrograms()).logits, twice(spectrograms()).logits)
