"""Type aliases that several modules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
Floats16: TypeAlias = NDArray[np.float16]
Integers: TypeAlias = NDArray[np.int64]
Samples: TypeAlias = NDArray[np.int16]
Mask: TypeAlias = NDArray[np.bool_]

OnCount: TypeAlias = Callable[[int, int], None]
"""Progress callback: done, total."""

OnSeconds: TypeAlias = Callable[[float, float], None]
"""Progress callback: seconds done, seconds in all."""

OnStage: TypeAlias = Callable[[str, float, float | None], None]
"""Progress callback: name of the stage, done, total or None if it is unknown."""
