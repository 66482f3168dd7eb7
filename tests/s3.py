"""An object store on this machine, with the protocol of S3, for the time of the tests that ask for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pyarrow.fs
import pytest

from amcast import places


@contextmanager
def store() -> Iterator[str]:
    """Run a store and give its address. The environment names it, as that of a user would."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "amcast",
        "AWS_SECRET_ACCESS_KEY": "kept-secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }.items():
        patch.setenv(name, value)
    places._filesystem.cache_clear()
    try:
        yield f"{host}:{port}"
    finally:
        patch.undo()
        places._filesystem.cache_clear()
        server.stop()


def new_bucket(address: str) -> str:
    """Make a bucket and return its URI."""
    name = f"amcast-{uuid4().hex[:12]}"
    pyarrow.fs.S3FileSystem(
        endpoint_override=address, scheme="http", allow_bucket_creation=True, region="us-east-1"
    ).create_dir(name)
    return f"s3://{name}"
