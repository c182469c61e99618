"""MAST finds animal sounds in field recordings, each as a box in time and frequency, from few labels."""

__version__ = "0.1.0"
