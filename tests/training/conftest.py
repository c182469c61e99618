"""A small prepared study for all tests of training."""

from pathlib import Path

import pytest

from tests.training.studies import prepare_example


@pytest.fixture(scope="session")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_example(tmp_path_factory.mktemp("study"))
