"""A folded detector against the one it was folded from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mast.models.detector import Detector
from mast.models.folding import fold
from tests.models.small_detector import detector, spectrograms


def lived_in(model: Detector) -> Detector:
    """Statistics and scales of every BatchNorm as training might leave them."""
    rng = torch.Generator().manual_seed(2)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                values.data = torch.rand(values.shape, generator=rng) + 0.5  # type: ignore[union-attr]
    return model


@pytest.mark.parametrize("adapter", ["none", "conv", "anisotropic", "upsampling", "detail"])
def test_a_folded_detector_says_the_same_without_any_batch_norm(adapter: str) -> None:
    model = lived_in(detector(adapter)).eval()
    folded = fold(model)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())
    assert not any(p.requires_grad for p in folded.parameters())
    with torch.no_grad():
        expected, found = model(spectrograms()), fold(model)(spectrograms())
    assert expected.logits.std() > 1e-3
    for name in ("logits", "centerness", "distances"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-4, rtol=1e-4)


def test_folding_leaves_the_original_as_it_was() -> None:
    model = detector().train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    fold(model)
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_folding_twice_is_folding_once() -> None:
    once = fold(lived_in(detector()))
    twice = fold(once)
    with torch.no_grad():
        assert torch.equal(once(spectrograms()).logits, twice(spectrograms()).logits)
