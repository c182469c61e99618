"""Train the detector that ships with MAST on synthetic calls and openly licensed recordings."""
