"""What the tests of embeddings share: one prepared study, and one run of `mast detect` with its vectors."""

import pytest
import torch

from mast.detection import plan
from mast.detection.local import Compute
from mast.embeddings.embed import embed_events
from mast.recordings.store import AudioStore
from tests.detection.archives import save_detector
from tests.embeddings.made import prepared_study
from tests.embeddings.runs import detected, save_encoder


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    return prepared_study(tmp_path_factory.mktemp("embeddings"))


@pytest.fixture(scope="session")
def store(study):
    return AudioStore(f"{study.work}/audio.lance")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder") / "model")


@pytest.fixture(scope="session")
def detector(tmp_path_factory) -> str:
    return save_detector(tmp_path_factory.mktemp("detector") / "model")


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> str:
    """A run of three parts."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MIN_PART_S", 5.0)
        return detected(folder, save_detector(folder / "detector"))


@pytest.fixture(scope="session")
def embedded(run, encoder):
    """The run's vectors, made by a real child process."""
    told = []
    result = embed_events(
        run, encoder, compute=Compute("cpu", 1), on_progress=lambda *item: told.append(item)
    )
    return result, told
