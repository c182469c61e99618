"""Models smaller than any real one, for tests of model handling rather than of training."""

import pytest

from mast.models.encoder import SIZES, EncoderShape
from mast.models.mae_decoder import DECODERS, DecoderShape
from mast.training.initialisation import WIDTHS


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Reduce the size of `model.size: tiny` in this process."""
    patch.setitem(SIZES, "tiny", EncoderShape(width=32, heads=2, depth=2))
    patch.setitem(WIDTHS, "tiny", {"channels": 32, "head_width": 16})
    decoders = {"plain": DecoderShape("plain", 32, 2, 1), "swin": DecoderShape("swin", 32, 2, 2)}
    patch.setitem(DECODERS, "tiny", decoders)
