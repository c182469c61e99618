"""Each augmentation transforms audio and boxes consistently, and leaves its inputs unchanged."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from mast.config import Augmentation
from mast.datasets.transforms import (
    clip_to_audio_end,
    cutmix,
    frequency_mask,
    frequency_shift,
    gain,
    gaussian_noise,
    mix_background,
    mix_log_mel,
    mixup,
    time_mask,
    time_shift,
    time_warp,
)
from tests.datasets.builders import (
    BINS,
    DARK,
    FRAMES,
    NO_DEADLINE,
    OFF,
    STRONG,
    bright_extent,
    random_boxes,
    random_spec,
    rectangle,
    seeded,
)

OTHER_SPEC, OTHER_BOXES = random_spec(8, seed=9), random_boxes(8, seed=9)


def mix_bank(spec, boxes, settings, rng):
    return mix_background(spec, boxes, OTHER_SPEC, settings, rng)


def cutmix_with_other(spec, boxes, settings, rng):
    return cutmix(spec, boxes, OTHER_SPEC[: len(spec)], OTHER_BOXES[: len(spec)], settings, rng)


GEOMETRIC = [time_shift, frequency_shift, time_warp]
SINGLE = [*GEOMETRIC, time_mask, frequency_mask, gaussian_noise, gain]
RANDOM = [*SINGLE, mix_bank, cutmix_with_other]
KEEP_ALL = {"min_box_frames": 1, "min_box_bins": 1, "min_box_visibility": 0.0}


@st.composite
def rectangles(draw):
    """Sample bounds that leave part of the spectrogram dark, since its minimum fills empty parts."""
    start, low = draw(st.integers(0, FRAMES - 3)), draw(st.integers(0, BINS - 2))
    bounds = start, low, draw(st.integers(start + 3, FRAMES)), draw(st.integers(low + 1, BINS))
    assume(bounds != (0, 0, FRAMES, BINS))
    return bounds


@pytest.mark.parametrize("transform", SINGLE)
def test_no_boxes_in_are_no_boxes_out(transform):
    result = transform(random_spec(2), [torch.zeros(0, 4)] * 2, STRONG, seeded(0))
    assert [tuple(boxes.shape) for boxes in result.boxes] == [(0, 4), (0, 4)]
    assert result.dropped == [0, 0]


@pytest.mark.parametrize("transform", RANDOM)
def test_the_same_seed_gives_the_same_result_and_another_seed_another(transform):
    spec, boxes = random_spec(8), random_boxes(8)
    first, again, other = (transform(spec, boxes, STRONG, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.spec, again.spec)
    assert all(torch.equal(a, b) for a, b in zip(first.boxes, again.boxes, strict=True))
    assert first.dropped == again.dropped
    assert not torch.equal(first.spec, other.spec)


@pytest.mark.parametrize("transform", [*SINGLE, cutmix_with_other])
def test_zero_strength_changes_nothing(transform):
    spec, boxes = random_spec(8), random_boxes(8)
    result = transform(spec, boxes, OFF, seeded(0))
    assert torch.equal(result.spec, spec)
    assert all(torch.equal(a, b) for a, b in zip(result.boxes, boxes, strict=True))
    assert result.dropped == [0] * 8


@pytest.mark.parametrize("transform", RANDOM)
def test_the_inputs_stay_unchanged(transform):
    spec, boxes = random_spec(8), random_boxes(8)
    transform(spec, boxes, STRONG, seeded(0))
    assert torch.equal(spec, random_spec(8))
    assert all(torch.equal(a, b) for a, b in zip(boxes, random_boxes(8), strict=True))


@pytest.mark.parametrize("transform", RANDOM)
@pytest.mark.parametrize("seed", range(4))
def test_values_stay_finite_and_boxes_stay_valid_within_the_grid(transform, seed):
    result = transform(random_spec(8, seed), random_boxes(8, 20, seed), STRONG, seeded(seed))
    assert result.spec.shape == (8, BINS, FRAMES)
    assert result.spec.isfinite().all()
    boxes = torch.cat(result.boxes)
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= FRAMES
    assert boxes[:, 3].max() <= BINS


@pytest.mark.parametrize("transform", SINGLE)
def test_every_box_is_kept_or_counted_as_dropped(transform):
    boxes = random_boxes(8, 20)
    result = transform(random_spec(8), boxes, STRONG, seeded(3))
    assert [len(kept) + lost for kept, lost in zip(result.boxes, result.dropped, strict=True)] == [20] * 8


@pytest.mark.parametrize("transform", GEOMETRIC)
@NO_DEADLINE
@given(
    rectangles(),
    st.integers(0, 2**31),
    st.integers(0, FRAMES + 10),
    st.integers(0, BINS + 10),
    st.floats(0, 0.5),
)
def test_a_bright_rectangle_ends_where_its_box_says(transform, bounds, seed, frames, bins, warp):
    settings = Augmentation(
        max_time_shift_frames=frames, max_freq_shift_bins=bins, max_time_warp=warp, **KEEP_ALL
    )
    result = transform(*rectangle(*bounds), settings, seeded(seed))
    bright = bright_extent(result.spec[0])
    if result.dropped == [1]:
        assert bright is None or min(bright[2] - bright[0], bright[3] - bright[1]) <= 1
    else:
        box = result.boxes[0][0].tolist()
        assert bright is not None
        assert max(abs(a - b) for a, b in zip(bright, box, strict=True)) <= 1


@NO_DEADLINE
@given(rectangles(), st.integers(0, 2**31))
def test_shifts_by_whole_frames_and_bins_are_exact_and_filled_with_the_minimum(bounds, seed):
    settings = Augmentation(max_time_shift_frames=30, max_freq_shift_bins=8, **KEEP_ALL)
    for transform in (time_shift, frequency_shift):
        result = transform(*rectangle(*bounds), settings, seeded(seed))
        assert bright_extent(result.spec[0]) == (
            result.boxes[0][0].tolist() if len(result.boxes[0]) else None
        )
        assert result.spec.min() == DARK


def test_a_shift_reaches_its_maximum_on_both_sides_and_never_more():
    spec, boxes = rectangle(40, 10, 50, 20)
    batch = spec.expand(200, -1, -1), boxes * 200
    settings = Augmentation(max_time_shift_frames=7, max_freq_shift_bins=3)
    starts = torch.cat(time_shift(*batch, settings, seeded(0)).boxes)[:, 0] - 40
    lows = torch.cat(frequency_shift(*batch, settings, seeded(0)).boxes)[:, 1] - 10
    assert set(starts.tolist()) == set(range(-7, 8))
    assert set(lows.tolist()) == set(range(-3, 4))


def test_a_warp_scales_lengths_up_to_its_maximum():
    spec, boxes = rectangle(28, 10, 68, 20)
    warped = time_warp(spec.expand(200, -1, -1), boxes * 200, Augmentation(max_time_warp=0.25), seeded(0))
    lengths = torch.cat([kept[:, 2] - kept[:, 0] for kept in warped.boxes])
    assert lengths.min() == 30
    assert lengths.max() == 50


CUT_CASES = [
    ("half of a long call is kept", [90, 4, 102, 14], {}, 1),
    ("less than min_box_frames is dropped", [90, 4, 98, 14], {"min_box_frames": 7}, 0),
    ("less than min_box_bins is dropped", [20, -9, 40, 3], {"min_box_bins": 4}, 0),
    ("less than min_box_visibility is dropped", [93, 4, 108, 14], {"min_box_visibility": 0.25}, 0),
    ("min_box_visibility is kept", [93, 4, 105, 14], {"min_box_visibility": 0.25}, 1),
    ("a small complete call is kept", [20, 4, 21, 5], {"min_box_frames": 10, "min_box_bins": 5}, 1),
    ("a narrow call clipped in time is kept", [80, 4, 100, 5], {"min_box_bins": 5}, 1),
    ("a call outside is dropped", [96, 4, 120, 14], {}, 0),
]


@pytest.mark.parametrize(
    ("box", "limits", "kept"), [case[1:] for case in CUT_CASES], ids=[case[0] for case in CUT_CASES]
)
def test_a_clipped_box_is_kept_while_enough_of_it_is_visible(box, limits, kept):
    settings = Augmentation(max_time_shift_frames=0, **{**KEEP_ALL, **limits})
    result = time_shift(random_spec(1), [torch.tensor([box], dtype=torch.float32)], settings, seeded(0))
    assert (len(result.boxes[0]), result.dropped) == (kept, [1 - kept])


def test_a_box_beyond_the_end_of_the_audio_is_clipped_as_at_the_edge_of_the_grid():
    boxes = torch.tensor(
        [[10, 4, 30, 14], [40, 4, 80, 14], [44, 4, 80, 14], [60, 4, 80, 14]], dtype=torch.float32
    )
    clipped, unchanged = clip_to_audio_end([boxes, boxes], [50, 96], BINS, Augmentation())
    assert clipped.tolist() == [[10, 4, 30, 14], [40, 4, 50, 14]]
    assert torch.equal(unchanged, boxes)


@pytest.mark.parametrize("transform", [time_mask, frequency_mask])
@NO_DEADLINE
@given(st.integers(0, 2**31), st.integers(0, 16).map(lambda sixteenths: sixteenths / 16))
def test_masks_drop_exactly_the_boxes_they_hide(transform, seed, max_occlusion):
    spec, boxes = random_spec(3), random_boxes(3, 8, seed)
    settings = Augmentation(time_mask_frames=50, freq_mask_bins=20, max_occlusion=max_occlusion)
    result = transform(spec, boxes, settings, seeded(seed))
    for before, after, example_boxes, kept in zip(spec, result.spec, boxes, result.boxes, strict=True):
        masked = before != after
        naive = []
        for start, low, end, high in example_boxes.long().tolist():
            cells = masked[low:high, start:end]
            if cells.sum().item() <= max_occlusion * cells.numel():
                naive.append([start, low, end, high])
        assert kept.tolist() == naive


def test_a_mask_fills_one_span_with_the_examples_mean_up_to_the_maximum_width():
    spec = random_spec(200)
    for transform, axis, maximum in [(time_mask, 0, 9), (frequency_mask, 1, 5)]:
        masked = transform(
            spec, [torch.zeros(0, 4)] * 200, Augmentation(time_mask_frames=9, freq_mask_bins=5), seeded(0)
        )
        widths = set()
        for before, after in zip(spec, masked.spec, strict=True):
            masked_cells = before != after
            is_masked = masked_cells.all(dim=axis)
            assert masked_cells.sum() == is_masked.sum() * masked_cells.shape[axis]
            positions = is_masked.nonzero()[:, 0]
            assert positions[-1] - positions[0] + 1 == len(positions)
            assert torch.allclose(after[masked_cells], before.mean(), atol=1e-5)
            widths.add(len(positions))
        assert widths == set(range(1, maximum + 1))


def test_noise_has_the_configured_standard_deviation():
    spec = random_spec(8)
    noise = gaussian_noise(spec, [torch.zeros(0, 4)] * 8, Augmentation(noise_std=0.5), seeded(0)).spec - spec
    assert abs(noise.std() - 0.5) < 0.01
    assert abs(noise.mean()) < 0.02


def test_gain_adds_one_number_to_all_audio_and_nothing_to_silence():
    floor = math.log(torch.finfo(torch.float32).eps)
    spec = random_spec(50)
    spec[:, 3] = floor
    change = gain(spec, [torch.zeros(0, 4)] * 50, Augmentation(max_gain_db=6), seeded(0)).spec - spec
    assert (change[:, 3] == 0).all()
    offset = torch.cat([change[:, :3], change[:, 4:]], dim=1).flatten(1)
    assert (offset.amax(1) - offset.amin(1)).max() < 1e-5
    assert offset.abs().max() <= 6 * math.log(10) / 10
    assert offset.amax() > 1
    assert offset.amin() < -1


def test_ten_decibels_of_gain_are_a_tenfold_power():
    power = torch.rand(1, BINS, FRAMES, dtype=torch.float64) + 1
    louder = gain(power.log(), [torch.zeros(0, 4)], Augmentation(max_gain_db=10), seeded(4)).spec.exp()
    decibels = 10 * torch.log10(louder / power)
    assert decibels.abs().max() <= 10
    assert decibels.std() < 1e-9


def test_gain_never_lowers_values_below_the_floor():
    floor = torch.tensor(torch.finfo(torch.float32).eps).log()
    spec = torch.full((50, BINS, FRAMES), floor.item() + 0.1)
    result = gain(spec, [torch.zeros(0, 4)] * 50, Augmentation(max_gain_db=20), seeded(0))
    assert result.spec.min() == floor


@NO_DEADLINE
@given(st.lists(st.tuples(st.floats(-16, 5), st.floats(-16, 5)), min_size=1, max_size=20))
def test_mixing_adds_powers(pairs):
    first, second = torch.tensor(pairs).T
    naive = [
        math.log(math.exp(a) + math.exp(b)) for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    torch.testing.assert_close(mix_log_mel(first, second), torch.tensor(naive), rtol=1e-5, atol=1e-5)


def test_background_comes_from_the_bank_at_a_level_within_its_limits():
    spec, bank = random_spec(40).double(), random_spec(3, seed=5).double() + 4
    settings = Augmentation(background_min_db=-8, background_max_db=-2)
    result = mix_background(spec, random_boxes(40), bank, settings, seeded(0))
    added = (result.spec.exp() - spec.exp()).log()  # (B, F, T): the mixed background
    distance = added[:, None] - bank[None]  # (B, K, F, T)
    spread, number = distance.flatten(2).std(dim=2).min(dim=1)
    assert spread.max() < 1e-6
    assert set(number.tolist()) == {0, 1, 2}
    levels_db = (added.mean(dim=(1, 2)) - spec.mean(dim=(1, 2))) * 10 / math.log(10)
    assert -8 <= levels_db.min() < -7
    assert -3 < levels_db.max() <= -2
    assert result.dropped == [0] * 40


def test_a_bank_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(16, 96\) do not fit \(32, 96\)"):
        mix_background(random_spec(1), random_boxes(1), torch.zeros(4, 16, 96), Augmentation(), seeded(0))


def test_mixup_adds_the_powers_and_keeps_the_boxes_of_both():
    spec, boxes = random_spec(8), random_boxes(8)
    result = mixup(spec, boxes, OTHER_SPEC, OTHER_BOXES)
    naive = (spec.double().exp() + OTHER_SPEC.double().exp()).log().float()
    torch.testing.assert_close(result.spec, naive)
    for first, second, both in zip(boxes, OTHER_BOXES, result.boxes, strict=True):
        assert both.tolist() == [*first.tolist(), *second.tolist()]
    assert result.dropped == [0] * 8


@NO_DEADLINE
@given(st.integers(0, 2**31))
def test_cutmix_copies_a_span_with_its_boxes_and_drops_the_boxes_it_hides(seed):
    spec, boxes, others = random_spec(3), random_boxes(3, 8, seed), random_boxes(3, 8, seed + 1)
    settings = Augmentation(cutmix_frames=40, **KEEP_ALL)
    result = cutmix(spec, boxes, OTHER_SPEC[:3], others, settings, seeded(seed))
    for row in range(3):
        replaced = (spec[row] != result.spec[row]).any(dim=0)
        first, stop = replaced.nonzero()[0, 0].item(), replaced.nonzero()[-1, 0].item() + 1
        assert torch.equal(result.spec[row, :, first:stop], OTHER_SPEC[row, :, first:stop])
        kept = [box for box in boxes[row].tolist() if hidden_fraction(box, first, stop) <= 0.5]
        entering = [
            [max(start, first), low, min(end, stop), high]
            for start, low, end, high in others[row].tolist()
            if start < stop and end > first
        ]
        assert result.boxes[row].tolist() == [*kept, *entering]
        assert result.dropped[row] == 8 - len(kept)


def hidden_fraction(box, first, stop):
    start, _, end, _ = box
    return max(0, min(end, stop) - max(start, first)) / (end - start)


@NO_DEADLINE
@given(rectangles(), st.integers(0, 2**31))
def test_a_rectangle_that_cutmix_copies_ends_where_its_box_says(bounds, seed):
    settings = Augmentation(cutmix_frames=60, **KEEP_ALL)
    dark, none = torch.full((1, BINS, FRAMES), DARK), [torch.zeros(0, 4)]
    result = cutmix(dark, none, *rectangle(*bounds), settings, seeded(seed))
    assert bright_extent(result.spec[0]) == (result.boxes[0][0].tolist() if len(result.boxes[0]) else None)


def test_cutmix_counts_the_short_parts_that_it_drops():
    spec, boxes = random_spec(8), random_boxes(8, 20)
    others = random_boxes(8, 20, seed=1)
    kept, strict = (
        cutmix(spec, boxes, OTHER_SPEC, others, Augmentation(cutmix_frames=40, **limits), seeded(0))
        for limits in (KEEP_ALL, {})
    )
    for row in range(8):
        missing = len(kept.boxes[row]) - len(strict.boxes[row])
        assert strict.dropped[row] - kept.dropped[row] == missing
    assert sum(strict.dropped) > sum(kept.dropped)
