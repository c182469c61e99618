"""Learning: targets, losses, optimiser and schedule, one loop, and the recipes that run on it."""
