"""Shared fixtures: reproducible random weights, small detectors, short parts of runs, and an S3 server on loopback."""

import os
import signal
import sys

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes run in parallel and start others
settings.register_profile("mast", deadline=None)  # slowness of a busy machine is not a failure
settings.load_profile("mast")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a process that a shell starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests send SIGINT to processes that they start

LONGEST = (
    "test_experiments.py",
    "test_benchmarks.py",
    "test_run_benchmarks.py",
    "test_docs.py",
    "test_baselines.py",
    "test_run.py",
    "test_supervised.py",
    "test_pretrain.py",
    "test_selftrain.py",
    "test_evaluate.py",
)
"""Files that take minutes run first, so that two parallel test processes finish at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(LONGEST)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where programs must be installed (MAST_REQUIRE_PROGRAMS) and a test was skipped for want of one."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("MAST_REQUIRE_PROGRAMS"):
        return
    reasons = {str(report.longrepr[2]) for report in reporter.stats.get("skipped", [])}
    if missing := sorted(reason for reason in reasons if "not installed" in reason):
        reporter.write_line(f"skipped for want of a program: {'; '.join(missing)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def same_random_weights():
    """Seed torch before each test that may use it, so that results do not depend on random weights."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def detector(tmp_path_factory) -> str:
    """Return the folder of a small detector."""
    from tests.runs.archives import save_detector

    return save_detector(tmp_path_factory.mktemp("detector") / "model")


@pytest.fixture(scope="session")
def narrow_detector(tmp_path_factory) -> str:
    """Return the folder of a detector with few operations."""
    from tests.runs.archives import NARROW, save_detector

    return save_detector(tmp_path_factory.mktemp("narrow") / "model", architecture=NARROW)


@pytest.fixture
def short_parts(monkeypatch):
    """Make parts so short that a few seconds of audio fill several."""
    from mast.runs import plan

    monkeypatch.setattr(plan, "MIN_PART_S", 4.0)


@pytest.fixture(scope="session")
def s3_server():
    """Start an S3 server on a free loopback port, and yield its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """Return a new bucket as `s3://name`; set the environment variables that every S3 client reads."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    name = f"test-{os.urandom(4).hex()}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"
