"""The recipes of docs/spark.md, as they stand there: each run twice, and no row lost or repeated."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amcast.local.trial import Trial
from amcast.service import connect_sync
from tests.pace import allow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
CONFIG, TABLES = "cluster/cluster.toml", "tables/"
MULTICASTS = 40


def recipes() -> dict[str, str]:
    """The programs below `## Recipes`, by the folder that they write."""
    section = DOCUMENT.read_text("utf-8").partition("## Recipes")[2].partition("\n## ")[0]
    programs = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return {re.search(r"tables/(\w+)", program)[1]: program for program in programs}  # type: ignore[index]


def test_every_recipe_is_a_program_that_reads_a_cluster() -> None:
    assert sorted(recipes()) == ["last", "log", "seconds", "sites"]
    for program in recipes().values():
        compile(program, str(DOCUMENT), "exec")
        assert CONFIG in program and "availableNow=True" in program and '-checkpoint"' in program


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("recipes") / "c"
    with Trial(folder, groups=2, replicas=1, app="log", secure=False, traced=False) as trial:
        yield trial


def multicast(trial: Trial, text: str) -> None:
    with connect_sync(trial.config.path, deadline=allow(60)) as client:
        for number in range(MULTICASTS):
            client.multicast(["g0", "g1"] if number % 2 else ["g1"], f"{text} {number}".encode())


def log(spark: "SparkSession", trial: Trial) -> list[Any]:
    return spark.read.format("amcast").options(config=str(trial.config.path), deadline=allow(30)).load().collect()


@pytest.mark.slow
def test_recipes_lose_and_repeat_nothing(
    spark: "SparkSession", trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> None:
        # The JVM of the tests was started in another folder
        text = recipes()[name].replace(CONFIG, str(trial.config.path)).replace(TABLES, f"{tmp_path}/")
        exec(compile(text, name, "exec"), {"spark": spark})

    multicast(trial, "first")
    for name in ("seconds", "sites", "log", "last"):
        run(name)
    # As if the job had been killed before it noted that the micro-batch is done: the next run does it again
    for name in ("log", "last"):
        commits = sorted((tmp_path / f"{name}-checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            file.unlink(missing_ok=True)
    multicast(trial, "second")
    capsys.readouterr()
    for name in ("sites", "log", "last"):
        run(name)
    said = capsys.readouterr().out.splitlines()[-1]
    rows = log(spark, trial)
    positions = Counter((row.group, row.position) for row in rows)
    assert len(positions) == len(rows) == 3 * MULTICASTS

    found = spark.read.parquet(str(tmp_path / "log")).collect()
    assert Counter((row.group, row.position) for row in found) == positions
    assert {row.message: bytes(row.payload) for row in found} == {row.message: bytes(row.payload) for row in rows}

    sites = {"g0": "Oslo", "g1": "Turin"}
    found = spark.read.parquet(str(tmp_path / "sites")).collect()
    assert Counter((row.site, row.position) for row in found) == Counter((sites[g], p) for g, p in positions)

    merged = spark.read.format("amcast").options(config=str(trial.config.path), order="merged").load().collect()
    newest = max((path for path in (tmp_path / "last").iterdir()), key=lambda path: int(path.name.partition("=")[2]))
    found = spark.read.parquet(str(newest)).collect()
    expected: dict[str, tuple[bytes, str]] = {}
    for row in merged:
        expected[row.sender] = max(expected.get(row.sender, (b"", "")), (bytes(row.key), row.message))
    assert {row.sender: (bytes(row.key), row.message) for row in found} == expected != {}
    came, ended = (json.loads(part.replace("'", '"')) for part in said.split(" of "))
    assert ended == {"g0": MULTICASTS, "g1": 2 * MULTICASTS} and came.keys() == ended.keys()
    assert all(came[group] <= ended[group] for group in ended), said

    seconds = spark.read.parquet(str(tmp_path / "seconds")).collect()
    assert len({(row.group, row.start) for row in seconds}) == len(seconds), "a second is written once"
    by_second = Counter((row.group, row.time.replace(microsecond=0, tzinfo=None)) for row in rows)
    assert all(by_second[row.group, row.start] >= row["count"] > 0 for row in seconds)


@pytest.mark.slow
def test_a_second_is_written_when_it_is_over(spark: "SparkSession", trial: Trial, tmp_path: Path) -> None:
    """Of an old log nothing is missing: with rows that are much later, the watermark has passed all others."""
    from pyspark.sql import functions as F

    rows = log(spark, trial) or (multicast(trial, "more") or log(spark, trial))
    first = min(row.time for row in rows)
    real = spark.readStream
    later = F.when(F.col("position") >= max(row.position for row in rows), F.expr("time + interval 1 hour"))

    class Reader:
        """The stream, of which the last row of the longest log came an hour later than it did."""

        def format(self, name: str) -> "Reader":
            return self

        def option(self, key: str, value: str) -> "Reader":
            return self

        def load(self) -> Any:
            stream = real.format("amcast").options(config=str(trial.config.path), rows_per_batch="50").load()
            return stream.withColumn("time", F.coalesce(later, "time"))

    class Session:
        readStream = Reader()

    text = recipes()["seconds"].replace(TABLES, f"{tmp_path}/")
    exec(compile(text, "seconds", "exec"), {"spark": Session()})
    found = spark.read.parquet(str(tmp_path / "seconds")).collect()
    last = max(row.position for row in rows)
    expected = Counter((row.group, int(row.time.timestamp())) for row in rows if row.position < last)
    assert {(row.group, int(row.start.timestamp())): row["count"] for row in found} == dict(expected)
    assert first.timestamp() >= min(row.start.timestamp() for row in found)
