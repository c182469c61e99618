"""Every loss compared with its formula, written as loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.models.anchor_points import decode_boxes, encode_boxes
from mast.models.head import HeadOutput
from mast.training.assignment import Targets, assign
from mast.training.losses import Classification, detection_loss, loss_normalisers, quality_focal_loss
from tests.training.builders import LATTICES, box_lists

LOCATIONS = LATTICES["conv"]
COUNT = len(LOCATIONS.level)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def cross_entropy(x: float, y: float) -> float:
    return -(y * math.log(sigmoid(x)) + (1 - y) * math.log(sigmoid(-x)))


def naive_iou_and_giou(a: list[float], b: list[float]) -> tuple[float, float]:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return width * height / union, width * height / union - (hull - union) / hull


def naive_loss(
    output: HeadOutput, targets: Targets, weights: list[float], kind: Classification
) -> dict[str, float]:
    sums = dict.fromkeys(("classification", "giou", "l1", "centerness"), 0.0)
    quality = {}
    for example, number, box, central in zip(
        *(part.tolist() for part in (targets.example, targets.location, targets.boxes, targets.centerness)),
        strict=True,
    ):
        centre, stride = LOCATIONS.centres[number], LOCATIONS.strides[number]
        predicted = decode_boxes(output.distances[example, number], centre, stride).tolist()
        iou, giou = naive_iou_and_giou(predicted, box)
        quality[example, number] = iou if kind == "quality" else 1.0
        edges = [
            abs(predicted[edge] - box[edge]) / stride[edge % 2].item() for edge in range(4)
        ]  # start, low, end, high
        sums["giou"] += weights[example] * central * (1 - giou)
        sums["l1"] += weights[example] * central * sum(edges) / 4
        logit = output.centerness[example, number].item()
        sums["centerness"] += weights[example] * cross_entropy(logit, central)
    for example, row in enumerate(output.logits.tolist()):
        for number, logit in enumerate(row):
            y = quality.get((example, number), 0.0)
            balance = 1.0 if kind == "quality" else 0.25 if y else 0.75
            term = balance * abs(y - sigmoid(logit)) ** 2 * cross_entropy(logit, y)
            sums["classification"] += weights[example] * term
    count, central_sum = max(1, len(quality)), max(1, targets.centerness.sum().item())
    return {key: total / (central_sum if key in ("giou", "l1") else count) for key, total in sums.items()}


def random_output(batch: int, seed: int = 0) -> HeadOutput:
    rng = torch.Generator().manual_seed(seed)
    logits, central = torch.randn(2, batch, COUNT, generator=rng, dtype=torch.float64)
    distances = 0.2 + 3 * torch.rand(batch, COUNT, 4, generator=rng, dtype=torch.float64)
    return HeadOutput(
        logits.requires_grad_(), central.requires_grad_(), distances.requires_grad_(), LOCATIONS
    )


@pytest.mark.parametrize("kind", ["quality", "focal"])
def test_without_any_boxes_only_the_background_has_a_loss(kind: Classification) -> None:
    output = random_output(2)
    targets = assign([torch.zeros(0, 4).double()] * 2, LOCATIONS)
    terms = detection_loss(output, targets, torch.ones(2), kind)
    assert [terms[name].item() for name in ("giou", "l1", "centerness")] == [0, 0, 0]
    sum(terms.values()).backward()  # type: ignore[union-attr]
    assert output.logits.grad is not None and (output.logits.grad > 0).all()
    for unused in (output.centerness, output.distances):
        assert unused.grad is not None and not unused.grad.any()


def test_quality_focal_loss_by_hand() -> None:
    logits, quality = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.5, 1.0, 0.0])
    expected = [0.0, 0.25 * math.log(2), sigmoid(2) ** 2 * math.log(1 + math.exp(2))]
    assert quality_focal_loss(logits, quality).tolist() == pytest.approx(expected)


@given(st.floats(-8, 8), st.floats(0, 1), st.sampled_from([1.0, 2.0]))
def test_quality_focal_loss_equals_its_formula(logit: float, quality: float, beta: float) -> None:
    loss = quality_focal_loss(torch.tensor(logit).double(), torch.tensor(quality).double(), beta)
    expected = abs(quality - sigmoid(logit)) ** beta * cross_entropy(logit, quality)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40)
@given(
    st.lists(box_lists(5), min_size=1, max_size=3),
    st.sampled_from(["quality", "focal"]),
    st.lists(st.floats(0, 2), min_size=3, max_size=3),
)
def test_every_term_equals_its_formula(
    boxes: list[torch.Tensor], kind: Classification, weights: list[float]
) -> None:
    output, targets = random_output(len(boxes)), assign(boxes, LOCATIONS)
    batch_weights = torch.tensor(weights[: len(boxes)], dtype=torch.float64)
    terms = detection_loss(output, targets, batch_weights, kind)
    for name, expected in naive_loss(output, targets, batch_weights.tolist(), kind).items():
        assert terms[name].item() == pytest.approx(expected, rel=1e-4, abs=1e-6), name
    sum(terms.values()).backward()  # type: ignore[union-attr]
    for part in (output.logits, output.centerness, output.distances):
        assert part.grad is not None and part.grad.isfinite().all()


BOXES = [torch.tensor([[10.0, 5, 90, 30], [100, 60, 101, 61]]), torch.tensor([[0.0, 0, 256, 128]])]


def test_a_perfect_head_has_only_the_entropy_of_the_centerness_as_loss() -> None:
    targets, output = assign(BOXES, LOCATIONS), random_output(2)
    logits, central, distances = (torch.full((2, COUNT, *more), -30.0) for more in ((), (), (4,)))
    positive = (targets.example, targets.location)
    logits[positive], central[positive] = 30.0, targets.centerness.logit(eps=1e-6)
    distances[positive] = encode_boxes(
        targets.boxes, LOCATIONS.centres[targets.location], LOCATIONS.strides[targets.location]
    )
    perfect = replace(output, logits=logits, centerness=central, distances=distances)
    terms = detection_loss(perfect, targets, torch.ones(2), "quality")
    assert [terms[name].item() for name in ("classification", "giou", "l1")] == pytest.approx(
        [0] * 3, abs=1e-4
    )
    minimum = -sum(c * math.log(c) + (1 - c) * math.log1p(-c) for c in targets.centerness.tolist() if c < 1)
    assert terms["centerness"].item() == pytest.approx(minimum / len(targets.boxes), abs=1e-4)


def test_an_example_of_weight_zero_has_no_gradients() -> None:
    output, targets = random_output(2), assign([item.double() for item in BOXES], LOCATIONS)
    sum(detection_loss(output, targets, torch.tensor([1.0, 0.0]), "quality").values()).backward()  # type: ignore[union-attr]
    for part in (output.logits, output.centerness, output.distances):
        assert part.grad is not None and part.grad[0].any() and not part.grad[1].any()


def test_ranks_with_common_divisors_add_up_to_one_large_batch() -> None:
    boxes = [item.double() for item in BOXES]
    output, weights = random_output(2), torch.tensor([1.0, 0.5])
    whole = detection_loss(output, assign(boxes, LOCATIONS), weights, "quality")
    ranks = [assign([item], LOCATIONS) for item in boxes]
    divisors = torch.stack([loss_normalisers(targets) for targets in ranks]).mean(dim=0)
    parts = []
    for rank, targets in enumerate(ranks):
        rank_output = (part[rank : rank + 1] for part in (output.logits, output.centerness, output.distances))
        parts.append(
            detection_loss(
                HeadOutput(*rank_output, LOCATIONS), targets, weights[rank : rank + 1], "quality", divisors
            )
        )
    for name, term in whole.items():
        torch.testing.assert_close(sum(part[name] for part in parts) / 2, term)
