"""Experiments on real sound: each is a command that takes a data folder and writes its result file."""
