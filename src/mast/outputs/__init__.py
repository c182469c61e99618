"""Export detections, report on them, and export models."""
