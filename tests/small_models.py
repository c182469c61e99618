"""Models smaller than any user has, for tests of what is done with a model and not of what it learns."""

import pytest

from mast.models.decoder import DECODERS, DecoderShape
from mast.models.encoder import SIZES, EncoderShape
from mast.training.starting import WIDTHS


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Make `model.size: tiny` far smaller than it is, in this process."""
    patch.setitem(SIZES, "tiny", EncoderShape(width=32, heads=2, depth=2))
    patch.setitem(WIDTHS, "tiny", {"channels": 32, "head_width": 16})
    decoders = {"plain": DecoderShape("plain", 32, 2, 1), "swin": DecoderShape("swin", 32, 2, 2)}
    patch.setitem(DECODERS, "tiny", decoders)
