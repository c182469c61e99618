"""Tables of the documentation: one function per table, each with a result file as input."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
