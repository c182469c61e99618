"""Start a temporary S3 server on loopback with an empty bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "benchmark"


@contextmanager
def bucket_on(folder: Path) -> Iterator[str | None]:
    """Yield the address `s3://name` of an empty bucket stored in a folder, or None if no server is installed."""
    import boto3
    from tests.s3_server import ceph, missing

    if missing():
        yield None
        return
    data = folder / "ceph"
    data.mkdir()
    with ceph(data) as environment:
        os.environ |= environment
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"


def upload(folder: Path, location: str) -> None:
    """Copy all files of a folder to `s3://bucket/name`."""
    import boto3

    bucket, name = location.removeprefix("s3://").split("/", 1)
    client = boto3.client("s3")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), bucket, f"{name}/{path.relative_to(folder).as_posix()}")
