"""Baseline detectors with the examples, steps and test sets of MAST (paper, Baselines)."""
