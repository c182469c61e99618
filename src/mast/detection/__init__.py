"""Detecting: chunks to boxes, and boxes to the events of whole recordings."""
