"""One small prepared study for all evaluation tests."""

from pathlib import Path

import pytest
import torch

from tests.evaluation.studies import study_under_shift


@pytest.fixture(scope="session")
def shifted_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study_under_shift(tmp_path_factory.mktemp("study"))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
