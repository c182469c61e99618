"""Experiments on real audio: each is a command that reads a data folder and writes a result file."""
