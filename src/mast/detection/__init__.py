"""Detect events in one recording: predict boxes in chunks and stitch them into events."""
