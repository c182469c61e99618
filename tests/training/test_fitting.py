"""How many examples fit: halved until they do, and only for want of memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.errors import TrainingError
from mast.training.fitting import is_out_of_memory, largest_that_fits


def holding(most: int, error: Exception) -> tuple[list[int], object]:
    tried: list[int] = []

    def attempt(count: int) -> None:
        tried.append(count)
        if count > most:
            raise error

    return tried, attempt


def test_what_fits_at_once_is_tried_once() -> None:
    tried, attempt = holding(8, MemoryError())
    assert largest_that_fits(attempt, 8) == 8
    assert tried == [8]


def test_a_real_allocation_that_fails_is_known_as_such() -> None:
    def attempt(count: int) -> None:
        torch.empty(count << 45)  # 128 TB for one

    with pytest.raises(TrainingError, match="Not even one example fits into memory") as told:
        largest_that_fits(attempt, 4)
    assert "can't allocate memory" in str(told.value.__cause__)


@settings(max_examples=20)  # memory is collected each time
@given(holds=st.integers(1, 300), most=st.integers(1, 300))
def test_the_first_half_of_a_half_that_fits_is_found(holds: int, most: int) -> None:
    tried, attempt = holding(holds, RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    found = largest_that_fits(attempt, most)
    assert found <= holds
    assert found == most or tried[-2] > holds


def test_any_other_error_is_left_alone() -> None:
    _, attempt = holding(0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"):
        largest_that_fits(attempt, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", True),
        ("could not create a primitive", True),
        ("could not create a memory object", True),
        ("std::bad_alloc", True),
        ("could not create a primitive descriptor for a matmul primitive", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_words_for_want_of_memory(text: str, expected: bool) -> None:
    assert is_out_of_memory(RuntimeError(text)) is expected
