"""Combine encoder, adapter, pyramid and head to a detector (paper, Detector Design)."""

from __future__ import annotations

from typing import TypeAlias, cast

from torch import Tensor, nn

from mast.models.adapter import Adapter, append_patches, drop_patches
from mast.models.conv_encoder import ConvEncoder
from mast.models.fpn import Pyramid
from mast.models.head import Head, HeadOutput

AdapterInput: TypeAlias = Tensor | list[Tensor]
"""Encoder tokens, for some adapters with patches (B, C, F/16, T/16), or the maps of a convolutional encoder."""


class Detector(nn.Module):
    """Detector for normalised log-mel chunks; `mast.models.postprocess` converts its predictions to boxes.

    The encoder is a `ConvEncoder`, or any module that maps (B, F, T) to (B, C, F/16, T/16).
    """

    def __init__(self, encoder: nn.Module, adapter: Adapter, pyramid: Pyramid, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.adapter = adapter
        self.pyramid = pyramid
        self.head = head

    def forward(self, spec: Tensor) -> HeadOutput:
        """Predict for all locations of all levels. (B, F, T) → (B, N)"""
        return self.predict(self.features(spec))

    def features(self, spec: Tensor) -> Tensor:
        """Return the adapter's feature map, from which boxes are pooled. (B, F, T) → (B, 256, F / stride, T / stride)"""
        adapted: Tensor = self.adapter(self.encode(spec))
        return adapted

    def encode(self, spec: Tensor) -> AdapterInput:
        """Return the adapter's input for normalised log-mel chunks (B, F, T)."""
        if isinstance(self.encoder, ConvEncoder):
            return self.encoder.maps(spec)
        return self.adapter_input(self.encoder(spec), spec)

    def adapter_input(self, tokens: Tensor, spec: Tensor) -> Tensor:
        """Return the adapter's input: the encoder's map, with the patches of `spec` if the adapter reads them."""
        return append_patches(tokens, spec) if self.adapter.reads_spectrogram else tokens

    def tokens(self, adapter_input: AdapterInput) -> Tensor:
        """Return the encoder's map, without the patches in the adapter's input. → (B, C, F/16, T/16)"""
        if isinstance(self.encoder, ConvEncoder):
            return self.encoder.merge(cast(list[Tensor], adapter_input))
        tokens = cast(Tensor, adapter_input)
        return drop_patches(tokens) if self.adapter.reads_spectrogram else tokens

    def predict_from_adapter_input(self, adapter_input: AdapterInput) -> HeadOutput:
        """Predict from the adapter's input. → (B, N)"""
        return self.predict(self.adapter(adapter_input))

    def predict(self, features: Tensor) -> HeadOutput:
        """Predict from the adapter's feature map, for callers that use both."""
        output: HeadOutput = self.head(self.pyramid(features), self.pyramid.strides(self.adapter.stride))
        return output
