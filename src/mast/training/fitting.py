"""How many examples a device holds at once: tried, not guessed."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable

import torch

from mast.errors import TrainingError

OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|bad_alloc|could not create a memory object"
    r"|could not (create|execute) a primitive$",
    re.IGNORECASE,
)
"""How torch's allocators say that there is no more, on GPUs and CPUs; the last is oneDNN's way to say so."""


def largest_that_fits(attempt: Callable[[int], None], most: int) -> int:
    """Halve from `most` until an attempt at so many examples goes through."""
    count = most
    while True:
        try:
            attempt(count)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if count == 1:
                raise TrainingError(
                    "Not even one example fits into memory. Use a smaller model: --set model.size=small or tiny."
                ) from error
        else:
            return count
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        count //= 2


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that there is no more memory."""
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None
