"""`amcast watch`: what goes wrong in a live stream is reported at once, and nothing else is."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from amcast.core.trace import ListRecorder
from amcast.core.wire import AppMessage
from amcast.errors import UsageError
from amcast.runtime.history import History
from amcast.service import connect_sync
from amcast.sim.simulation import Simulation
from amcast.spark.stream import watch
from amcast.verify.online import MULTICASTS, ColumnWatcher, as_text, packed
from tests.pace import allow

sys.path.append(str(Path(__file__).parents[1] / "runtime"))
from nodes import cluster, running, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS = 100.0  # for a batch of Spark


@contextmanager
def watching(
    spark: "SparkSession", rows: "DataFrame", checkpoint: Path, judge: watch.Judge
) -> Iterator[list[watch.Report]]:
    reports: list[watch.Report] = []
    before = {name: spark.conf.get(name, None) for name in watch.SETTINGS}
    for name, value in watch.SETTINGS.items():
        spark.conf.set(name, value)
    query = watch.start(rows, judge, checkpoint, 0.2, reports.append)
    try:
        yield reports
        assert query.isActive, query.exception()
    finally:
        query.stop()
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def violations(reports: list[watch.Report]) -> list[Any]:
    return [row for report in reports for row in report.rows if row.kind == "violation"]


def checked(reports: list[watch.Report]) -> int:
    return sum(row.amount for report in reports for row in report.rows if row.kind == "process")


def test_a_replica_that_goes_wrong_in_a_live_cluster(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster(tmp_path / "c", groups=2, replicas=3)
    with running(config) as nodes, connect_sync(config.path, deadline=allow(60)) as client:
        faulty = nodes["g0/2"].history
        real = History.append

        held: list[tuple[AppMessage, int]] = []

        def append(self: History, deliveries: list[tuple[AppMessage, int]], when: int) -> None:
            if self is faulty:
                deliveries = held + deliveries
                held.clear()
                if len(deliveries) == 1:
                    held.extend(deliveries)
                    return
                deliveries = deliveries[::-1]
            real(self, deliveries, when)

        for number in range(40):
            client.multicast(["g0", "g1"] if number % 2 else ["g0"], b"good %d" % number)
        rows = watch.from_cluster(spark, {"config": str(config.path)})
        judge = watch.judge_of_cluster({member.name: f"g{member.group}" for member in config.members}, once=False)
        with watching(spark, rows, tmp_path / "checkpoint", judge) as reports:
            assert until(lambda: checked(reports) == 3 * 40 + 3 * 20, SECONDS)
            assert not violations(reports)
            monkeypatch.setattr(History, "append", append)
            client.multicast_batches([((0,), [b"swap 1"]), ((0, 1), [b"swap 2"])])
            assert until(lambda: faulty.end == 42)
            seen = reports[-1].batch
            assert until(lambda: violations(reports), SECONDS)
            found = next(report for report in reports if any(row.kind == "violation" for row in report.rows))
            assert found.batch <= seen + 2, "within two micro-batches"
            (violation,) = violations(reports)
            assert violation.name == "order" and "g0/2 delivers" in violation.text
            assert len(json.loads(violation.rows)) == 2


def trace(process: str, messages: list[str], first: int = 0) -> str:
    rows = [
        {"run": "r", "kind": "deliver", "process": process, "group": process[:2], "seq": first + i, "time": i,
         "message": message, "dest": ["g0", "g1"]}
        for i, message in enumerate(messages)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_traces_that_arrive_as_files(spark: "SparkSession", tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()

    def arrive(name: str, text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(folder / f"{name}.jsonl")

    arrive("a1", trace("g0/0", ["a", "b", "c"]))
    rows = watch.from_files(spark, folder)
    with watching(spark, rows, tmp_path / "checkpoint", watch.Judge()) as reports:
        arrive("b1", trace("g1/0", ["a", "b"]))
        assert until(lambda: checked(reports) == 5, SECONDS)
        assert not violations(reports)
        seen = reports[-1].batch
        arrive("b2", trace("g1/0", ["d", "c"], 10))
        arrive("a2", trace("g0/0", ["d"], 10))
        assert until(lambda: violations(reports), SECONDS)
        found = next(report for report in reports if any(row.kind == "violation" for row in report.rows))
        assert found.batch <= seen + 2
        (violation,) = violations(reports)
        assert {row["message"] for row in json.loads(violation.rows)} == {"c", "d"}


def test_a_checkpoint_that_spark_cannot_reach_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    watch.refuse_unreachable(spark, str(tmp_path / "new"))
    for place in ("s3://bucket/x", "nosuch://x/y"):
        with pytest.raises(
            UsageError, match=f"^checkpoint {place}: Spark itself writes it, and cannot reach it \\("
        ) as e:
            watch.refuse_unreachable(spark, place)
        assert "\n" not in str(e.value) and "spark.jars.packages" in str(e.value)


def test_multicasts_that_an_older_checkpoint_remembers() -> None:
    for sent in ({}, {"m": (7, ("g0", "g1")), "n": (9, ())}):
        found = watch.multicasts_of(msgspec.msgpack.encode(sent)).to_pylist()
        assert [(row["message"], row["time"], row["dest"]) for row in found] == [
            (message, time, as_text(dest)) for message, (time, dest) in sent.items()
        ]
        kept = watch.multicasts_of(packed(watch.multicasts_of(msgspec.msgpack.encode(sent))))
        assert kept.to_pylist() == found


def judged(events: list[dict[str, Any]]) -> ColumnWatcher:
    import pandas as pd

    watcher = ColumnWatcher()
    rows = pd.DataFrame(events, columns=watch.COLUMNS)
    rows["dest"] = [as_text(dest) for dest in rows["dest"]]
    watch.take(watcher, watch.table_of(iter([rows])), MULTICASTS.empty_table(), {})
    return watcher


def test_a_trace_of_several_groups() -> None:
    """Its deliveries do not say where else a message goes."""
    recorder = ListRecorder()
    Simulation("white_box", groups=3, messages=60).world(recorder).run()
    events = [{name: getattr(event, name, None) for name in watch.COLUMNS} for event in recorder.events]
    assert {event["dest"] for event in events if event["kind"] == "deliver"} == {None}
    watcher = judged(events)
    assert not watcher.violations and set(watcher.behind().values()) == {0}
    alone = judged([event for event in events if event["kind"] != "multicast"])
    assert not alone.violations and alone.unresolved() and len(alone.state.unsent) == 60, (
        "what the groups deliver agrees"
    )
    by_message: dict[str, set[str]] = {}
    for event in events:
        if event["kind"] == "deliver":
            by_message.setdefault(event["message"], set()).add(event["group"])
    first, second = [m for m, groups in by_message.items() if {"g0", "g1"} <= groups][:2]
    swapped = {first: second, second: first}
    wrong = [
        {**event, "message": swapped.get(event["message"], event["message"])}
        if event["kind"] == "deliver" and event["group"] == "g1"
        else event
        for event in events
    ]
    assert {violation.property for violation in judged(wrong).violations} == {"order"}
