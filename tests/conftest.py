"""What several tests share: the same random weights in every run, and a real S3 server on loopback."""

import os
import signal
import sys

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes test side by side, and start others
settings.register_profile("mast", deadline=None)  # a busy machine is not a wrong answer
settings.load_profile("mast")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what it leaves in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests interrupt what they start

LONGEST = (
    "test_experiments.py",
    "test_benchmarks.py",
    "test_archive_benchmarks.py",
    "test_docs.py",
    "test_baselines.py",
    "test_archive_run.py",
    "test_finetune.py",
    "test_pretrain.py",
    "test_selftrain.py",
    "test_evaluate.py",
)
"""Files that take minutes: begun first, so that two processes end together and neither waits for the other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(LONGEST)))


@pytest.fixture(autouse=True)
def same_random_weights():
    """Seed torch before each test that may use it, so that none passes or fails by luck."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def s3_server():
    """An S3 server on a free loopback port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """A fresh bucket, as `s3://name`, with the environment set so that every S3 client finds it."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    name = f"test-{os.urandom(4).hex()}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"
