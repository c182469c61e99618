"""What the tests of embeddings share: one prepared study."""

import pytest

from mast.recordings.store import AudioStore
from tests.embeddings.made import prepared_study


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    return prepared_study(tmp_path_factory.mktemp("embeddings"))


@pytest.fixture(scope="session")
def store(study):
    return AudioStore(f"{study.work}/audio.lance")
