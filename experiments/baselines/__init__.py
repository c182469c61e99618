"""Other detectors on the same examples, steps and test sets as MAST (paper, Baselines)."""
