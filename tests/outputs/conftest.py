"""Compute on one thread: other processes share the cores."""

from tests.runs.conftest import one_thread  # noqa: F401 (a fixture that applies here too)
