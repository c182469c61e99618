"""The detector: encoder, adapter, pyramid and head, one after the other (paper, Detector Design)."""

from __future__ import annotations

from torch import Tensor, nn

from mast.models.adapter import Adapter, with_picture, without_picture
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
        adapted: Tensor = self.adapter(self.encode(spec))
        return adapted

    def encode(self, spec: Tensor) -> Tensor:
        """All that the adapter reads: the encoder's map, and more for some. (B, F, T) → (B, C, F/16, T/16)"""
        return self.as_read(self.encoder(spec), spec)

    def as_read(self, tokens: Tensor, spec: Tensor) -> Tensor:
        """The encoder's map as the adapter reads it, with or without the picture that it was made of."""
        return with_picture(tokens, spec) if self.adapter.reads_picture else tokens

    def tokens(self, read: Tensor) -> Tensor:
        """The encoder's map out of what the adapter reads."""
        return without_picture(read) if self.adapter.reads_picture else read

    def decide(self, read: Tensor) -> HeadOutput:
        """Predictions from what the adapter reads. (B, C, F/16, T/16) → (B, N)"""
        return self.predict(self.adapter(read))

    def predict(self, features: Tensor) -> HeadOutput:
        """Predictions from the adapter's map, for callers that need both."""
        output: HeadOutput = self.head(self.pyramid(features), self.pyramid.strides(self.adapter.stride))
        return output
