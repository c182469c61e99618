"""Experiments on the sensitivity of detections to chunk offsets."""
