"""Executors that are killed in the middle of every command: in any storage the tables are those of a quiet run."""

import json
import os
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from amcast.cli import run
from amcast.places import place_of
from amcast.report import figure as figure_module
from amcast.spark.sweep import read_runs
from tests.s3 import new_bucket, store
from tests.spark.test_reproduce import CURVES, TIMELINE, TINY

SPEC = 'protocol = ["skeen", "white_box"]\ngroups = 2\nclients = 3\nmessages = 30\nseeds = 4\n'
WITH_THE_TIME = ("sweep.csv", "runs.csv")  # on the wall
FIGURES = ["curves-small", "timeline-small"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with store() as address:
        yield address


class Killer:
    """Kills the process of each first attempt at a task of `mapInArrow`, when it has made a part of its rows or all."""

    def __init__(self, patch: pytest.MonkeyPatch, flags: Any) -> None:
        self.flags = str(flags)
        real = type(SparkSession.getActiveSession().range(1)).mapInArrow  # type: ignore[union-attr]
        flags.mkdir()

        def deadly(frame: DataFrame, work: Any, schema: Any, *rest: Any, **more: Any) -> DataFrame:
            where = self.flags

            def dies_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                from pyspark import TaskContext

                task = TaskContext.get()
                first = task is not None and task.attemptNumber() == 0
                if first and task.partitionId() % 2:
                    next(iter(work(batches)), None)  # and nothing of it arrives
                    die(task)
                yield from work(batches)
                if first:
                    die(task)

            def die(task: Any) -> None:
                open(f"{where}/{task.stageId()}-{task.partitionId()}", "w").close()
                os._exit(9)

            return real(frame, dies_once, schema, *rest, **more)

        patch.setattr(type(SparkSession.getActiveSession().range(1)), "mapInArrow", deadly)  # type: ignore[union-attr]

    def killed(self) -> int:
        return len(os.listdir(self.flags))


def everything(base: str, spec: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run all commands, and return what they wrote."""
    out, trace = f"{base}/sweep", f"{base}/sweep/trace"
    found: dict[str, Any] = {}
    assert run(["sweep", spec, "--out", out]) == 0
    found["runs"] = sorted(map(repr, read_runs(place_of(out)).drop_columns(["wall_s"]).to_pylist()))
    assert run(["verify", trace, "--engine", "spark", "--out", f"{base}/said"]) == 0
    verdicts = place_of(f"{base}/said") / "verdicts.json"
    found["verdicts"] = json.loads(verdicts.read_text())["verdicts"]
    assert run(["metrics", trace, "--out", f"{base}/numbers"]) == 0
    assert run(["report", out, "--out", f"{base}/page.html", "--verdicts", str(verdicts)]) == 0
    assert "verified ok: 40 of 40 verdicts ok" in capsys.readouterr().out
    assert run(["reproduce", "curves", "timeline", "--out", f"{base}/figures"]) in (0, 3)
    capsys.readouterr()
    for folder in ("said", "numbers", "page", *(f"figures/{name}" for name in FIGURES)):
        for file in place_of(f"{base}/{folder}").iterdir():
            if file.suffix == ".csv" and file.name not in WITH_THE_TIME:
                found[f"{folder}/{file.name}"] = file.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_command_gives_the_same_tables_although_executors_are_killed(
    spark: SparkSession,
    server: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    documents = {"curves": tomllib.loads(TINY + CURVES), "timeline": tomllib.loads(TINY + TIMELINE)}
    monkeypatch.setattr(figure_module, "read_figure", documents.__getitem__)
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "file").mkdir()
    expected = everything(str(tmp_path / "plain"), str(tmp_path / "spec.toml"), capsys)
    assert len(expected) > 10 and len(expected["runs"]) == 8
    for number, base in enumerate(((tmp_path / "file").as_uri(), new_bucket(server))):
        with monkeypatch.context() as patch:
            killer = Killer(patch, tmp_path / f"flags{number}")
            found = everything(base, str(tmp_path / "spec.toml"), capsys)
        assert killer.killed() > 10, "executors did die"
        assert found.keys() == expected.keys()
        for name, content in expected.items():
            assert found[name] == content, f"{base}: {name}"
