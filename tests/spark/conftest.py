"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from amcast.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `pytest -n 2 --dist loadgroup` all of them run in one process, on the one session."""
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    with open_session("amcast tests", master="local[2,3]", settings=SMALL) as session:
        yield session
