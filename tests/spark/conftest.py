"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from amcast.spark.session import open_session
from tests.tools import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
# Tables of tests have a few rows, and most of the time goes into Java that Spark writes and compiles for each plan. A
# quick run interprets the plans instead, and plans each once. Where everything runs, Spark runs as it does for users.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    with open_session("amcast tests", master="local[2,3]", settings=SMALL if FULL else SMALL | INTERPRETED) as session:
        yield session
