"""From chunks and boxes to training examples."""
