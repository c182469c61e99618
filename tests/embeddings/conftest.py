"""Fixtures of the embedding tests: a prepared study, and a run of `mast detect` with its vectors."""

import pytest
import torch

from mast.embeddings.embed import embed_events
from mast.runs import plan
from mast.runs.local import ComputeResources
from mast.store.audio_store import AudioStore
from tests.embeddings.builders import prepared_study
from tests.embeddings.runs import detect_card, save_encoder
from tests.runs.archives import save_detector


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    return prepared_study(tmp_path_factory.mktemp("embeddings"))


@pytest.fixture(scope="session")
def store(study):
    return AudioStore(f"{study.work_dir}/audio.lance")


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
    """Return the folder of a run with three parts."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MIN_PART_S", 5.0)
        return detect_card(folder, save_detector(folder / "detector"))


@pytest.fixture(scope="session")
def embedded(run, encoder):
    """Embed the run in a real worker process; return the result and the progress calls."""
    progress = []
    result = embed_events(
        run, encoder, compute=ComputeResources("cpu", 1), on_progress=lambda *call: progress.append(call)
    )
    return result, progress
