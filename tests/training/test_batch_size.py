"""Search for the micro-batch size: it is halved after out-of-memory errors, and only after these."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.errors import TrainingError
from mast.training.batch_size import find_executable_batch_size, is_out_of_memory


def attempt_up_to(maximum: int, error: Exception) -> tuple[list[int], object]:
    tried: list[int] = []

    def attempt(count: int) -> None:
        tried.append(count)
        if count > maximum:
            raise error

    return tried, attempt


def test_a_size_that_fits_is_tried_once() -> None:
    tried, attempt = attempt_up_to(8, MemoryError())
    assert find_executable_batch_size(attempt, 8) == 8
    assert tried == [8]


def test_a_real_allocation_that_fails_is_recognised() -> None:
    def attempt(count: int) -> None:
        torch.empty(count << 45)  # 128 TB for one example

    with pytest.raises(TrainingError, match="Not even one example fits into memory") as raised:
        find_executable_batch_size(attempt, 4)
    assert "can't allocate memory" in str(raised.value.__cause__)


@settings(max_examples=20)  # memory is collected each time
@given(limit=st.integers(1, 300), maximum=st.integers(1, 300))
def test_the_first_repeated_half_that_fits_is_returned(limit: int, maximum: int) -> None:
    tried, attempt = attempt_up_to(limit, RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    size = find_executable_batch_size(attempt, maximum)
    assert size <= limit
    assert size == maximum or tried[-2] > limit


def test_any_other_error_is_raised() -> None:
    _, attempt = attempt_up_to(0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"):
        find_executable_batch_size(attempt, 4)


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
def test_out_of_memory_messages_are_recognised(text: str, expected: bool) -> None:
    assert is_out_of_memory(RuntimeError(text)) is expected
