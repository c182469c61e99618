"""Splits, datasets, augmentations and data loading: from chunks and boxes to training examples."""
