"""The detector: encoder, adapter, pyramid and head, one after the other (paper, Detector Design)."""

from __future__ import annotations

from torch import Tensor, nn

from mast.models.adapter import Adapter
from mast.models.head import Head, HeadOutput
from mast.models.pyramid import Pyramid


class Detector(nn.Module):
    """Normalised log-mel chunks to predictions; `mast.models.decoding` makes boxes of them.

    The encoder is any module that maps (B, F, T) to (B, C, F/16, T/16).
    """

    def __init__(self, encoder: nn.Module, adapter: Adapter, pyramid: Pyramid, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.adapter = adapter
        self.pyramid = pyramid
        self.head = head

    def forward(self, spec: Tensor) -> HeadOutput:
        """(B, F, T) → predictions for all locations of all levels."""
        return self.predict(self.features(spec))

    def features(self, spec: Tensor) -> Tensor:
        """The adapter's map, from which boxes are pooled. (B, F, T) → (B, 256, F / stride, T / stride)"""
        adapted: Tensor = self.adapter(self.encoder(spec))
        return adapted

    def predict(self, features: Tensor) -> HeadOutput:
        """Predictions from the adapter's map, for callers that need both."""
        output: HeadOutput = self.head(self.pyramid(features), self.pyramid.strides(self.adapter.stride))
        return output
