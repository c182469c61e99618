"""Decode recordings and compute log-mel spectrograms."""
