"""A real cluster read and written by Spark: every row once, whoever is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from amcast.apps import teller
from amcast.errors import AmcastError, UsageError
from amcast.local.trial import Trial
from amcast.runtime.rows import unpack_rows
from amcast.service import connect_sync
from amcast.spark.stream.sink import Sink, client_batches
from amcast.spark.stream.source import first_offset, limited, wanted
from tests.pace import allow, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("stream_driver.py")
GROUPS = ("g0", "g1")
SECONDS = 140.0


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("stream") / "bank", groups=2, replicas=3, secure=True) as trial:
        takings = teller.run(trial.client(deadline=allow(30)), 1.5, 800)
        assert takings.done and not takings.unexpected and not takings.failed
        yield trial


def own_log(trial: Trial, group: str) -> list[tuple[int, str, bytes]]:
    """Position, message and payload of all that a group has delivered, as the cluster itself tells it."""
    assert trial.wait_until_level(), trial.not_level  # one replica is asked, and any may be behind
    found: list[tuple[int, str, bytes]] = []
    with connect_sync(trial.config.path, deadline=allow(30)) as client:
        end = client.rows(group, 2**40, replica=1).end
        while len(found) < end:
            rows = client.rows(group, len(found), replica=1)
            for _, _, _, m in unpack_rows(rows.rows, 2)[len(found) - rows.first :]:
                found.append((len(found), trial.config.topology.message_name(m.mid), m.payload))
    return found


def read(spark: "SparkSession", trial: Trial, **options: str) -> Any:
    return spark.read.format("amcast").options(config=str(trial.config.path), deadline=allow(30), **options).load()


def test_a_batch_query_has_every_row_of_every_group(spark: "SparkSession", trial: Trial) -> None:
    assert trial.wait_until_level(), trial.not_level
    rows = read(spark, trial).collect()
    for group in GROUPS:
        mine = [(row.position, row.message, bytes(row.payload)) for row in rows if row.group == group]
        assert sorted(mine) == own_log(trial, group) != []
        assert all(group in row.dest for row in rows if row.group == group)
        keys = [bytes(row.key) for row in rows if row.group == group]
        assert keys == sorted(keys)
    few = read(spark, trial, groups="g1", start='{"g1": 7}')
    positions = [(row.group, row.position) for row in few.collect()]
    assert sorted(positions) == [("g1", place) for place in range(7, len(own_log(trial, "g1")))]
    assert read(spark, trial, start="latest").count() == 0


def test_the_merged_order_has_every_message_once(spark: "SparkSession", trial: Trial) -> None:
    rows = read(spark, trial).collect()
    merged = read(spark, trial, order="merged").collect()
    keys = [bytes(row.key) for row in merged]
    assert keys == sorted(set(keys)), "in the total order, each once"
    last = min(max(bytes(row.key) for row in rows if row.group == group) for group in GROUPS)
    assert set(keys) == {bytes(row.key) for row in rows if bytes(row.key) <= last}, "all up to where it is final"
    order = {row.message: place for place, row in enumerate(merged)}
    for group in GROUPS:
        mine = sorted((row.position, row.message) for row in rows if row.group == group and row.message in order)
        places = [order[message] for _, message in mine]
        assert places == sorted(places), f"{group} agrees"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": "g9"}, "group 'g9' of option groups: expected some of g0, g1"),
        ({"start": "now"}, "option start 'now': expected earliest, latest, a time, or a position per group"),
        ({"start": '{"g0": 1}'}, "expected earliest, latest, a time, or a position per group"),
        ({"strat": "x"}, "option 'strat' of format amcast: expected one of config, client"),
        ({"order": "total"}, "option order 'total': expected group or merged"),
        ({"on_loss": "ignore"}, "option on_loss 'ignore': expected fail or earliest"),
        ({"rows_per_batch": "-1"}, "option rows_per_batch '-1': expected a number above 0"),
        ({"deadline": "soon"}, "option deadline 'soon': expected a number above 0"),
        ({"config": "/nowhere.toml"}, "/nowhere.toml"),
    ],
)
def test_wrong_options_of_a_source(trial: Trial, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as problem:
        first_offset(wanted({"config": str(trial.config.path), **options}))
    assert said in str(problem.value)


def test_a_user_sees_what_is_wrong(spark: "SparkSession", trial: Trial) -> None:
    before = len(own_log(trial, "g0"))
    with pytest.raises(Exception, match="eve"):
        read(spark, trial, client="eve").count()
    with pytest.raises(Exception, match="expected some of g0, g1"):
        rows = spark.sql("select array('g7') as dest, 'x' as payload")
        rows.write.format("amcast").option("config", str(trial.config.path)).mode("append").save()
    assert len(own_log(trial, "g0")) == before, "nothing was multicast"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("dest string, payload string", "column dest is string: expected array<string>"),
        ("dest array<string>, payload int", "column payload is int: expected binary or string"),
        ("to array<string>, payload string", "columns to, payload: expected dest (groups) and payload"),
    ],
)
def test_wrong_columns_for_a_sink(trial: Trial, schema: str, said: str) -> None:
    from pyspark.sql.types import StructType

    with pytest.raises(UsageError) as problem:
        Sink({"config": str(trial.config.path)}, StructType.fromDDL(schema))
    assert said in str(problem.value)


@pytest.mark.parametrize(
    ("dest", "payload", "said"),
    [
        (["g7"], b"x", "dest of row 1: 'g7', expected some of g0, g1"),
        (None, b"x", "dest of row 1: None, expected some of g0, g1"),
        ([], b"x", "dest of row 1: [], expected some of g0, g1"),
        (["g0"], None, "payload of row 1: null, expected at most"),
        (["g0"], bytes(2**21), "payload of row 1: 2097152 bytes, expected at most"),
    ],
)
def test_wrong_rows_for_a_sink(trial: Trial, dest: list[str] | None, payload: bytes | None, said: str) -> None:
    rows = pa.RecordBatch.from_pydict({"dest": [["g0"], dest], "payload": [b"good", payload]})
    with pytest.raises(UsageError) as problem:
        list(client_batches(iter([rows]), trial.config))
    assert said in str(problem.value)


def test_rows_to_the_same_groups_travel_together_and_always_in_the_same_way(trial: Trial) -> None:
    dest = [["g0"]] * 300 + [["g1", "g0"]] * 3 + [["g0"]]
    rows = pa.RecordBatch.from_pydict({"dest": dest, "payload": [b"%d" % i for i in range(len(dest))]})
    found = list(client_batches(iter([rows]), trial.config))
    assert [(to, len(payloads)) for to, payloads in found] == [((0,), 256), ((0,), 44), ((0, 1), 3), ((0,), 1)]
    assert list(client_batches(iter([rows.slice(0, 77), rows.slice(77)]), trial.config)) == found


def driver(trial: Trial, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(trial.config.path), str(folder), str(allow(60))], start_new_session=True
    )


@pytest.mark.slow
def test_streams_lose_and_repeat_no_row_although_driver_and_leader_are_killed(
    spark: "SparkSession", trial: Trial, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    before = {group: len(own_log(trial, group)) for group in GROUPS}
    sent = []
    for part in range(4):
        rows = [{"dest": ["g0", "g1"] if i % 3 else ["g1"], "payload": f"once {part} {i}"} for i in range(300)]
        sent += [row["payload"] for row in rows]
        (tmp_path / "in" / f"{part}.json").write_text("\n".join(map(json.dumps, rows)))
    process = driver(trial, tmp_path)

    def at_work() -> bool:
        assert process.poll() is None, "the driver ended before it was killed"
        return all(any((tmp_path / name).glob("[0-9]*")) for name in ("reading/commits", "writing/offsets"))

    assert until(at_work, SECONDS), "the driver does nothing"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    gone = trial.leader(0)
    trial.kill(gone)
    assert driver(trial, tmp_path).wait(allow(SECONDS)) == 0
    trial.start(gone)
    found = spark.read.parquet(str(tmp_path / "out")).select("group", "position", "message", "payload").collect()
    for group in GROUPS:
        mine = sorted((row.position, row.message, bytes(row.payload)) for row in found if row.group == group)
        assert mine == own_log(trial, group)[: len(mine)] and len(mine) >= before[group] > 0, "row by row"
    once = [payload.decode() for _, _, payload in own_log(trial, "g1") if payload.startswith(b"once ")]
    assert sorted(once) == sorted(sent), "each once"


def test_a_task_that_is_run_again_multicasts_nothing_twice(spark: "SparkSession", trial: Trial, tmp_path: Path) -> None:
    """The second half of a partition fails at the first attempt, after the first half was sent."""
    from pyspark.sql import functions as F

    flag = tmp_path / "failed"

    @F.udf("string", useArrow=False)
    def payload(number: int) -> str:
        if number == 900 and not flag.exists():
            flag.touch()
            raise RuntimeError("once")
        return f"again {number}"

    rows = spark.range(1000).coalesce(1).select(F.array(F.lit("g0")).alias("dest"), payload("id").alias("payload"))
    rows.write.format("amcast").option("config", str(trial.config.path)).mode("append").save()
    assert flag.exists(), "the first attempt did fail"
    found = [payload for _, _, payload in own_log(trial, "g0") if payload.startswith(b"again ")]
    assert found == [b"again %d" % i for i in range(1000)]


def test_rows_that_are_gone(spark: "SparkSession", trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    from amcast.runtime.frames import Rows
    from amcast.spark.stream.log import ClusterLogs

    log = ClusterLogs(str(trial.config.path), None, 5.0, "fail")
    real = ClusterLogs.read

    def without_the_first(
        self: ClusterLogs, group: str, position: int, wait_ms: int = 0, most_bytes: int = 2**22
    ) -> Rows:
        if position < 10:
            raise AmcastError(f"position {position} is no longer kept: the earliest is 10")
        rows = real(self, group, position, wait_ms, most_bytes)
        return Rows(rows.id, rows.first, rows.next, 10, rows.end, rows.rows)

    monkeypatch.setattr(ClusterLogs, "read", without_the_first)
    with pytest.raises(AmcastError, match="g0: positions 3 to 9 are no longer kept; start from 'earliest'"):
        list(log.batches("g0", 3, 20))
    lenient = ClusterLogs(str(trial.config.path), None, 5.0, "earliest")
    assert [batch["position"].to_pylist() for batch in lenient.batches("g0", 3, 20)] == [list(range(10, 20))]


def test_a_micro_batch_is_shared_out() -> None:
    assert limited({"a": 0, "b": 5}, {"a": 100, "b": 8}, 20) == {"a": 17, "b": 8}
    assert limited({"a": 0, "b": 5}, {"a": 0, "b": 5}, 20) == {"a": 0, "b": 5}
    assert limited({"a": 0, "b": 0, "c": 0}, {"a": 9, "b": 9, "c": 9}, 2) == {"a": 1, "b": 1, "c": 0}


@pytest.mark.slow
def test_the_notebook_from_an_empty_bank(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = json.loads((ROOT / "examples/bank.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    with Trial(tmp_path / "bank", app="bank", traced=False) as bank:
        monkeypatch.setenv("AMCAST_CONFIG", str(bank.config.path))
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert names["distinct"] == [60 * 1000]
    assert "60 accounts, 300 transfers" in capsys.readouterr().out


def test_the_example(spark: "SparkSession", trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec((ROOT / "examples/write_and_read.py").read_text(), names)
    names["main"](str(trial.config.path), 200)
    assert "100 messages to both groups, in the same order: True" in capsys.readouterr().out
