"""Evaluate predicted boxes against annotations, with bootstrap confidence intervals."""
