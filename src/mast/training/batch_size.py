"""Find the largest micro-batch that fits into memory, by trying."""

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
"""Out-of-memory messages of torch's allocators on GPUs and CPUs; the last pattern is oneDNN's."""


def find_executable_batch_size(attempt: Callable[[int], None], maximum: int) -> int:
    """Return the largest of `maximum`, `maximum` / 2, `maximum` / 4, … for which `attempt` does not run out of memory."""
    count = maximum
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
    """Return whether an error is an out-of-memory error."""
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None
