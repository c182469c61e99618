"""Compute on one thread in tests of runs: worker processes and other tests share the cores."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
