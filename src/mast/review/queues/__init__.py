"""Queues: which events or minutes to review next."""
