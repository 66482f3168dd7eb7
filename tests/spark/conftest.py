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


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    with open_session("amcast tests", master="local[2,3]", settings=SMALL) as session:
        yield session
