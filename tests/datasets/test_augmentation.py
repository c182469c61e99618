"""Each example gets a small random subset of the augmentations, and every setting has an effect."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.config import Augmentation, Study, load_study
from mast.datasets.augmentation import augment
from mast.errors import ConfigError
from tests.datasets.builders import BINS, FRAMES, NO_DEADLINE, OFF, STRONG, random_boxes, random_spec, seeded

BANK = random_spec(4, seed=7)


def same(first, second):
    return (
        torch.equal(first.spec, second.spec)
        and len(first.boxes) == len(second.boxes)
        and all(torch.equal(a, b) for a, b in zip(first.boxes, second.boxes, strict=True))
        and first.dropped == second.dropped
    )


def changed(before, after):
    return (before != after).flatten(1).any(dim=1)


def test_an_empty_batch_stays_empty():
    result = augment(torch.zeros(0, BINS, FRAMES), [], STRONG, seeded(0), BANK)
    assert result.spec.shape == (0, BINS, FRAMES)
    assert (result.boxes, result.dropped) == ([], [])


def test_no_boxes_in_are_no_boxes_out():
    result = augment(random_spec(8), [torch.zeros(0, 4)] * 8, STRONG, seeded(0), BANK)
    assert [tuple(boxes.shape) for boxes in result.boxes] == [(0, 4)] * 8
    assert result.dropped == [0] * 8


def test_the_papers_probability_is_the_default_and_mixup_and_cutmix_are_off():
    settings = Study().augmentation
    assert settings.probability == 0.9
    assert (settings.mixup, settings.cutmix_frames) == (False, 0)


@pytest.mark.parametrize(
    ("settings", "bank"),
    [(STRONG.model_copy(update={"probability": 0.0}), BANK), (OFF, None), (OFF, BANK[:0])],
    ids=["probability 0", "no strength at all", "an empty bank"],
)
def test_without_augmentations_the_batch_is_unchanged(settings, bank):
    spec, boxes = random_spec(8), random_boxes(8)
    result = augment(spec, boxes, settings, seeded(0), bank)
    assert torch.equal(result.spec, spec)
    assert result.spec is not spec
    assert all(torch.equal(a, b) for a, b in zip(result.boxes, boxes, strict=True))
    assert result.dropped == [0] * 8


def test_the_same_seed_gives_the_same_batch_and_another_seed_another():
    spec, boxes = random_spec(8), random_boxes(8)
    first, again, other = (augment(spec, boxes, STRONG, seeded(seed), BANK) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_the_global_random_state_is_neither_used_nor_changed():
    spec, boxes = random_spec(8), random_boxes(8)
    state = torch.get_rng_state()
    augment(spec, boxes, STRONG, seeded(0), BANK)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_inputs_stay_unchanged():
    spec, boxes, bank = random_spec(8), random_boxes(8), BANK.clone()
    augment(spec, boxes, STRONG, seeded(0), bank)
    assert torch.equal(spec, random_spec(8))
    assert torch.equal(bank, BANK)
    assert all(torch.equal(a, b) for a, b in zip(boxes, random_boxes(8), strict=True))


@NO_DEADLINE
@given(st.integers(0, 2**31), st.integers(1, 10), st.booleans())
def test_values_stay_finite_boxes_stay_valid_and_dropped_boxes_are_counted(seed, maximum, mixes):
    update = {"max_augmentations": maximum, "mixup": mixes, "cutmix_frames": 40 if mixes else 0}
    boxes = random_boxes(4, 6, seed)
    result = augment(random_spec(4), boxes, STRONG.model_copy(update=update), seeded(seed), BANK)
    assert result.spec.shape == (4, BINS, FRAMES)
    assert result.spec.isfinite().all()
    kept = torch.cat(result.boxes)
    assert (kept[:, 2:] > kept[:, :2]).all()
    assert (kept >= 0).all()
    assert (kept[:, 2:] <= torch.tensor([FRAMES, BINS])).all()
    counts = [len(left) + lost for left, lost in zip(result.boxes, result.dropped, strict=True)]
    assert all(count >= 6 for count in counts) if mixes else counts == [6] * 4


def test_the_fraction_of_augmented_examples_is_the_probability():
    spec = random_spec(1).expand(2000, -1, -1)[:, :4, :4]
    settings = OFF.model_copy(update={"probability": 0.7, "max_gain_db": 6.0})
    result = augment(spec, [torch.zeros(0, 4)] * 2000, settings, seeded(0))
    assert abs(changed(spec, result.spec).float().mean() - 0.7) < 0.04


def test_an_example_gets_one_to_max_augmentations_with_equal_probability():
    settings = OFF.model_copy(
        update={
            "probability": 1.0,
            "max_augmentations": 2,
            "max_gain_db": 6.0,
            "max_time_shift_frames": 3,
            "max_freq_shift_bins": 3,
        }
    )
    spec = torch.full((3000, 8, 8), -6.0)
    spec[:, 4, 4] = -1.0
    box = torch.tensor([[4.0, 4, 5, 5]])
    result = augment(spec, [box] * 3000, settings, seeded(0))
    moved = torch.cat(result.boxes) != box  # (B, 4)
    louder = result.spec.amax(dim=(1, 2)) != -1
    assert (moved[:, 0].int() + moved[:, 1].int() + louder.int()).max() == 2
    assert abs(louder.float().mean() - 1 / 2) < 0.04  # one of three or two of three, equally often
    for is_moved in (moved[:, 0], moved[:, 1]):
        assert abs(is_moved.float().mean() - 1 / 2 * 6 / 7) < 0.04  # one shift in seven is zero


def test_at_probability_one_every_example_is_augmented():
    settings = OFF.model_copy(update={"probability": 1.0, "max_gain_db": 6.0, "noise_std": 0.3})
    spec = random_spec(50)
    assert changed(spec, augment(spec, random_boxes(50), settings, seeded(0)).spec).all()


def test_a_single_example_is_not_mixed():
    settings = OFF.model_copy(update={"probability": 1.0, "mixup": True, "cutmix_frames": 30})
    spec, boxes = random_spec(1), random_boxes(1)
    result = augment(spec, boxes, settings, seeded(0))
    assert torch.equal(result.spec, spec)
    assert torch.equal(result.boxes[0], boxes[0])


def test_mixup_in_a_batch_uses_another_example():
    settings = OFF.model_copy(update={"probability": 1.0, "mixup": True})
    spec, boxes = random_spec(3), random_boxes(3)
    for seed in range(10):
        result = augment(spec, boxes, settings, seeded(seed))
        for row in range(3):
            added = (result.spec[row].double().exp() - spec[row].double().exp()).float()
            [other] = [n for n in range(3) if torch.allclose(added, spec[n].exp(), atol=1e-4)]
            assert other != row
            assert torch.equal(result.boxes[row], torch.cat([boxes[row], boxes[other]]))


OTHER_VALUES = {
    "probability": 0.2,
    "max_augmentations": 1,
    "max_time_shift_frames": 5,
    "max_freq_shift_bins": 1,
    "max_time_warp": 0.05,
    "time_mask_frames": 3,
    "freq_mask_bins": 2,
    "noise_std": 0.1,
    "max_gain_db": 1.0,
    "background_min_db": -30.0,
    "background_max_db": 20.0,
    "mixup": False,
    "cutmix_frames": 3,
    "max_occlusion": 0.1,
    "min_box_frames": 30,
    "min_box_bins": 12,
    "min_box_visibility": 0.9,
}


@pytest.mark.parametrize("setting", Augmentation.model_fields)
def test_every_setting_has_an_effect(setting):
    spec, boxes = random_spec(16), random_boxes(16, 20)
    usual = augment(spec, boxes, STRONG, seeded(0), BANK)
    other = augment(spec, boxes, STRONG.model_copy(update={setting: OTHER_VALUES[setting]}), seeded(0), BANK)
    assert not same(usual, other)


def test_a_background_minimum_above_the_maximum_is_refused():
    with pytest.raises(
        ConfigError, match=r"augmentation: background_min_db \(3\) must not be above background_max_db \(0\)"
    ):
        load_study(None, ["augmentation.background_min_db=3"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_result_as_the_cpu():
    spec, boxes = random_spec(8), random_boxes(8)
    on_cpu = augment(spec, boxes, STRONG, seeded(0), BANK)
    on_gpu = augment(
        spec.cuda(), [example_boxes.cuda() for example_boxes in boxes], STRONG, seeded(0), BANK.cuda()
    )
    torch.testing.assert_close(on_gpu.spec.cpu(), on_cpu.spec, rtol=0, atol=1e-4)
    assert on_gpu.dropped == on_cpu.dropped
