"""The head: locations of its outputs, initial predictions, and the boxes that it can encode."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mast.models.anchor_points import ANCHOR_STRIDES, decode_boxes, make_anchor_points
from mast.models.blocks import LevelConvNorm
from mast.models.head import Head, distances
from mast.models.postprocess import scores

SIZES, STRIDES = [(6, 4), (3, 2)], [(8, 4), (16, 8)]


def maps(batch: int = 2) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(batch, 256, rows, columns, generator=rng) for columns, rows in SIZES]


@pytest.mark.parametrize("width", [128, 256])
def test_an_untrained_head_scores_a_hundredth_and_predicts_the_anchors(width: int) -> None:
    output = Head(levels=2, width=width)(maps(), STRIDES)
    assert output.logits.shape == output.centerness.shape == (2, 30)
    assert output.logits.sigmoid().mean().item() == pytest.approx(0.01, abs=0.005)
    assert scores(output).mean().item() == pytest.approx(0.005, abs=0.003)
    boxes = decode_boxes(output.distances, output.locations.centres, output.locations.strides)
    sides = output.locations.strides.repeat(1, 2).expand(2, -1, -1)
    assert ((boxes - output.locations.anchors()).abs() / sides).mean() < 1


def test_the_tower_width_is_configurable() -> None:
    narrow, wide = (sum(p.numel() for p in Head(4, width).parameters()) for width in (128, 256))
    assert (round(narrow / 1e6, 1), round(wide / 1e6, 1)) == (1.5, 4.7)


def test_each_output_belongs_to_the_location_it_was_computed_at() -> None:
    head = Head(levels=2, width=256).eval()
    locations = make_anchor_points(SIZES, STRIDES)
    for conv in head.modules():
        if isinstance(conv, nn.Conv2d):
            nn.init.dirac_(conv.weight)
    nn.init.zeros_(head.logit.bias)  # type: ignore[arg-type]
    planes = torch.cat([locations.centres, locations.level[:, None]], dim=1) / 100  # (N, 3)
    parts = planes.split([columns * rows for columns, rows in SIZES])
    features = [torch.zeros(1, 256, rows, columns) for columns, rows in SIZES]
    for level, part, (columns, rows) in zip(features, parts, SIZES, strict=True):
        level[0, :3] = part.T.reshape(3, rows, columns)
    output = head(features, STRIDES)
    torch.testing.assert_close(output.logits[0], planes[:, 0], atol=1e-4, rtol=0)
    torch.testing.assert_close(output.centerness[0], planes[:, 0], atol=1e-4, rtol=0)
    raw = torch.cat([planes, torch.zeros(30, 1)], dim=1)  # the box convolution passes four channels on
    torch.testing.assert_close(output.distances[0], distances(raw), atol=1e-3, rtol=0)
    assert torch.equal(output.locations.centres, locations.centres)


def test_each_level_has_its_own_scale_and_statistics() -> None:
    head = Head(levels=2, width=128).eval()
    before = head(maps(), STRIDES)
    head.scales.data[1] = 3.0
    layer = head.class_tower[0]
    assert isinstance(layer, LevelConvNorm)
    nn.init.constant_(layer.norms[1].running_mean, 1.0)  # type: ignore[arg-type]
    after = head(maps(), STRIDES)
    assert torch.equal(before.distances[:, :24], after.distances[:, :24])
    assert torch.equal(before.logits[:, :24], after.logits[:, :24])
    assert not torch.equal(before.distances[:, 24:], after.distances[:, 24:])
    assert not torch.equal(before.logits[:, 24:], after.logits[:, 24:])


SIDE, OFFSET = st.floats(0.01, 500), st.floats(-40, 40)


@given(st.tuples(OFFSET, OFFSET), st.tuples(SIDE, SIDE))
def test_any_box_can_be_encoded_at_any_location(
    centre: tuple[float, float], sides: tuple[float, float]
) -> None:
    location, stride = torch.tensor([20.0, 6.0]).double(), torch.tensor([8.0, 4.0]).double()
    logs = (torch.tensor(sides).double() / ANCHOR_STRIDES).log()
    raw = torch.cat([torch.tensor(centre).double(), logs])
    box = decode_boxes(distances(raw), location, stride)
    torch.testing.assert_close((box[:2] + box[2:]) / 2, location + raw[:2] * stride)
    torch.testing.assert_close(box[2:] - box[:2], torch.tensor(sides).double() * stride)


def test_predictions_are_finite_and_have_ordered_edges() -> None:
    wild = distances(torch.tensor([[1e3, -1e3, 1e9, -30.0], [0, 0, 88, 89]]))
    assert wild.isfinite().all()
    assert (wild[:, :2] + wild[:, 2:] >= 0).all()


def test_every_parameter_gets_a_gradient() -> None:
    head = Head(levels=2, width=128)
    output = head(maps(), STRIDES)
    (output.logits.square().sum() + output.centerness.square().sum() + output.distances.sum()).backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
