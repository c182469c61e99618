"""Find audio files, check them for faults, and read the metadata that recorders wrote."""
