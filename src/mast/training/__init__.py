"""Training: targets, losses, optimiser and schedule, one training loop, and the tasks that run on it."""
