"""One small detector, and parts so short that a few seconds of sound make several, for all tests of archives."""

import pytest
import torch

from mast.detection import plan
from tests.detection.archives import NARROW, save_detector


@pytest.fixture(scope="session")
def detector(tmp_path_factory) -> str:
    return save_detector(tmp_path_factory.mktemp("detector") / "model")


@pytest.fixture(scope="session")
def narrow_detector(tmp_path_factory) -> str:
    return save_detector(tmp_path_factory.mktemp("narrow") / "model", architecture=NARROW)


@pytest.fixture
def short_parts(monkeypatch):
    monkeypatch.setattr(plan, "MIN_PART_S", 4.0)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
