"""A sweep gives the same rows whoever runs them, whatever fails, and however often it is interrupted."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from amcast.cli import run
from amcast.errors import UsageError
from amcast.sim.simulation import Crash
from amcast.spark import sweep as sweep_module
from amcast.spark.row import Output, run_batch
from amcast.spark.spec import Range, Spec, load_spec, simulation_of, spec_of
from amcast.spark.sweep import called_in_background, read_runs, sweep
from amcast.tracefile import read_events
from tests.pace import allow

SMALL = """
    protocol = ["skeen", "white_box"]
    groups = 2
    clients = [2, 3]
    messages = 30
    network = ["constant:1ms", "uniform:1ms,9ms"]
    seeds = 3
"""


def spec_from(text: str) -> Spec:
    import tomllib

    return spec_of(tomllib.loads(text), "test", "test.toml")


# ---------------------------------------------------------------- specifications


def test_lists_are_a_grid_and_each_row_has_a_name_of_its_own() -> None:
    rows = spec_from(SMALL).rows()
    assert len(rows) == len({row.run for row in rows}) == 2 * 2 * 2 * 3
    assert {row.simulation.seed for row in rows} == {1, 2, 3}
    assert {(row.simulation.protocol, row.simulation.replicas) for row in rows} == {("skeen", 1), ("white_box", 3)}


def test_the_name_and_the_seed_of_a_row_depend_on_its_configuration_only() -> None:
    (alone,) = spec_from('protocol = "white_box"\nclients = 7').rows()
    among_others = spec_from('clients = [5, 7]\nprotocol = ["skeen", "white_box"]').rows()
    assert alone in among_others
    assert alone.run == "white_box-bd6d929190b22325" and alone.simulation.seed == 49209175049470, "on every machine"


def test_a_configuration_survives_its_journey_to_an_executor() -> None:
    text = 'protocol = "white_box"\nduration = "5s"\nrate = 10.5\ncrashes = ["g0/0@50ms"]\nchecked = true\nskew = "1ms"'
    (row,) = spec_from(text).rows()
    assert row.simulation.crashes == (Crash("g0/0", 50_000_000),) and row.simulation.duration == 5_000_000_000
    assert simulation_of(row.config) == row.simulation


def test_a_list_of_lists_of_crashes_is_an_axis() -> None:
    rows = spec_from('protocol = "white_box"\ncrashes = [[], ["g0/0@50ms", "g1/0@1s"]]').rows()
    assert [len(row.simulation.crashes) for row in rows] == [0, 2]


def test_a_sample_draws_from_lists_and_ranges() -> None:
    text = """
        protocol = ["skeen", "white_box"]
        clients = { min = 1, max = 1000, scale = "log" }
        payload = { min = 0, max = 3 }
        [sample]
        n = 200
        seed = 7
    """
    spec = spec_from(text)
    rows = [row.simulation for row in spec.rows()]
    assert rows == [row.simulation for row in spec.rows()] and len(rows) == 200
    assert {row.protocol for row in rows} == {"skeen", "white_box"} and {row.payload for row in rows} == {0, 1, 2, 3}
    assert 40 < sum(row.clients <= 10 for row in rows) < 100, "a third of them: as many from 1 to 10 as from 10 to 100"
    assert all(1 <= row.clients <= 1000 for row in rows)
    other = spec_from(text.replace("seed = 7", "seed = 8"))
    assert [row.simulation for row in other.rows()] != rows


@pytest.mark.parametrize("log", [False, True])
def test_both_ends_of_a_range_can_be_drawn(log: bool) -> None:
    assert Range(2, 9, log, True).at(0.0) == 2 and Range(2, 9, log, True).at(1 - 2**-53) == 9
    assert Range(0.5, 2.0, log, False).at(0.0) == pytest.approx(0.5)


MISTAKES = {
    'protocol = "skeen"\nclient = 3': "unknown key 'client'; did you mean clients?",
    'protocols = "skeen"': "unknown key 'protocols'; did you mean protocol?",
    'protocol = "skeen"\nzzz = 1': "unknown key 'zzz'; expected one of protocol",
    "clients = 3": "protocol is missing",
    'protocol = "whitebox"': "protocol: 'whitebox': no such protocol; did you mean white_box?",
    'protocol = "skeen"\nclients = 0': "clients: 0: expected a whole number from 1",
    'protocol = "skeen"\nclients = "many"': "clients: 'many': expected a whole number",
    'protocol = "skeen"\nclients = true': "clients: True: expected a whole number",
    'protocol = "skeen"\nclients = []': "clients: []: expected at least one",
    'protocol = "skeen"\nduration = 5': 'duration: 5: expected a time with its unit in quotes, such as "10s"',
    'protocol = "skeen"\nduration = "5"': "duration: time '5'",
    'protocol = "skeen"\nnetwork = "wlan"': "network: network 'wlan'",
    'protocol = "skeen"\nmessages = 5\nduration = "1s"': "exclude each other",
    'protocol = "allgather"\nmessages = 5\nrounds = 3': "messages and rounds exclude each other",
    'protocol = "skeen"\nrate = 0': "rate: 0: expected messages per second",
    'protocol = "white_box"\ncrashes = "g0/0@1s"': "crashes: 'g0/0@1s': expected a list",
    'protocol = "white_box"\ncrashes = ["g0/0"]': "crashes: crash 'g0/0': expected PROCESS@TIME",
    'protocol = "skeen"\nchecked = 1': "checked: 1: expected true or false",
    'protocol = "skeen"\nseeds = 0': "seeds: 0",
    'protocol = "skeen"\nseeds = [1, -1]': "seeds: -1",
    'protocol = "skeen"\ntrace = "all"': "trace: 'all': expected one of none, deliveries, full",
    'protocol = "skeen"\ntimeout = "0s"': "timeout: '0s'",
    'protocol = "skeen"\nclients = { min = 1, max = 3 }': "or a table [sample] with n",
    'protocol = "skeen"\n[sample]\nseed = 3': "sample: n is missing",
    'protocol = "skeen"\n[sample]\nm = 3': "sample: unknown key 'm'; expected one of n, seed",
    'protocol = "skeen"\nclients = { min = 4, max = 3 }\n[sample]\nn = 1': "lower bound first",
    'protocol = "skeen"\nclients = { min = 4 }\n[sample]\nn = 1': "expected both min and max",
    'protocol = "skeen"\nclients = { min = 1, max = 3, steps = 2 }\n[sample]\nn = 1': "clients: unknown key 'steps'",
    'protocol = { min = 1, max = 2 }\n[sample]\nn = 1': "there is no range of these",
    'protocol = "skeen"\nreplicas = 3': "none of the 1 rows can be run; the first: 3 replicas",
    "protocol = ": "is not TOML",
}  # fmt: skip


@pytest.mark.parametrize(("text", "line"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_a_mistake_is_one_clear_line_and_nothing_is_written(
    text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.toml").write_text(text)
    assert run(["sweep", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert line in err and err.count("\n") == 1 and not out
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- rows


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """All that a sweep says, but for the time it took."""
    return sorted(read_runs(folder).drop_columns(["wall_s"]).to_pylist(), key=lambda line: str(line["run"]))


def traces_of(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in read_events(folder / "trace"):
        found.setdefault(event.run, []).append(repr(event))
    return found


def test_rows_are_the_same_whatever_the_partitioning(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_from(SMALL)
    done = sweep(spec, tmp_path / "many")
    assert done.statuses == {"ok": 24} and done.done_before == 0
    lines = lines_of(tmp_path / "many")
    assert (done.evidence.runs, done.evidence.deliveries) == (24, sum(line["deliveries"] for line in lines))
    monkeypatch.setattr(sweep_module, "TASKS_PER_CORE", 1)
    sweep(spec, tmp_path / "few")
    assert lines_of(tmp_path / "many") == lines_of(tmp_path / "few")
    traces = traces_of(tmp_path / "many")
    assert traces == traces_of(tmp_path / "few") and len(traces) == 24
    assert (tmp_path / "few" / "_SUCCESS").exists() and not (tmp_path / "few" / "_tmp").exists()
    # And a row on its own, in this process, is the same again.
    row = spec.rows()[5]
    assert run_batch(row.run, [(row.run, row.config)], Output(tmp_path / "one")) is None
    (line,) = lines_of(tmp_path / "one")
    assert line in lines_of(tmp_path / "many") and traces_of(tmp_path / "one")[row.run] == traces[row.run]


def test_what_fails_is_a_row_and_loses_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sabotaged(batches: Iterator[pa.RecordBatch], output: Output) -> Iterator[pa.RecordBatch]:
        """Runs in the workers of Spark: some seeds are deadly."""
        from amcast.errors import InvariantViolation
        from amcast.sim.simulation import Simulation
        from amcast.spark import row

        real = Simulation.world

        def world(self: Simulation, *arguments: object, **named: object) -> object:
            if self.seed == 2:
                os._exit(9)
            if self.seed == 3:
                raise InvariantViolation("Invariant 3: two gts of one message")
            while self.seed == 4 and self.protocol == "white_box":
                pass
            return real(self, *arguments, **named)  # type: ignore[arg-type]

        Simulation.world = world  # type: ignore[method-assign, assignment]
        row.GRACE = 0.5  # type: ignore[misc]
        try:
            yield from row.run_batches(batches, output)
        finally:
            Simulation.world = real  # type: ignore[method-assign]
            row.GRACE = 30.0  # type: ignore[misc]

    monkeypatch.setattr(sweep_module, "run_batches", sabotaged)
    monkeypatch.setattr(sweep_module, "TASKS_PER_CORE", 2)
    text = 'protocol = ["skeen", "white_box"]\nreplicas = 3\nmessages = 10\nseeds = 6\n'
    text += f'timeout = "{1000 * allow(1.5):.0f}ms"'
    done = sweep(spec_from(text), tmp_path / "out")
    assert done.statuses == {"refused": 4, "ok": 3, "crashed": 2, "failed": 2, "timeout": 1}
    by_seed = {(line["protocol"], line["seed"]): line for line in lines_of(tmp_path / "out")}
    assert by_seed["skeen", 1]["error"].startswith("3 replicas: skeen has groups of one process")
    assert "exit code 9" in by_seed["white_box", 2]["error"]
    assert by_seed["white_box", 3]["error"] == "InvariantViolation: Invariant 3: two gts of one message"
    assert by_seed["white_box", 4]["status"] == "timeout"
    assert by_seed["white_box", 5]["delivered_messages"] == 10


def test_a_row_that_takes_too_long_keeps_what_it_has(tmp_path: Path) -> None:
    (row,) = spec_from('protocol = "skeen"\nduration = "1000000s"').rows()
    assert run_batch(row.run, [(row.run, row.config)], Output(tmp_path, timeout=allow(0.3))) is None
    (line,) = lines_of(tmp_path)
    assert line["status"] == "timeout" and "of virtual time" in str(line["error"])
    assert line["status"] == "timeout" and line["delivered_messages"] > 0
    kinds = {event.kind for event in read_events(tmp_path / "trace")}
    assert "deliver" in kinds and "end" not in kinds


def test_a_crash_of_too_many_is_a_row_that_stalls(tmp_path: Path) -> None:
    text = 'protocol = "white_box"\nmessages = 20\ngroups = 1\ncrashes = ["g0/0@5ms", "g0/1@5ms"]\ntrace = "none"'
    (row,) = spec_from(text).rows()
    assert run_batch(row.run, [(row.run, row.config)], Output(tmp_path, "none")) is None
    (line,) = lines_of(tmp_path)
    assert (line["status"], line["crashes_seen"]) == ("stalled", 2)
    assert not (tmp_path / "trace").exists()


# ---------------------------------------------------------------- the folder


def test_a_finished_sweep_is_not_run_again_and_another_needs_force(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nmessages = 10\nseeds = 2\ntrace = "none"')
    command = ["sweep", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--json"]
    assert run(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["rows"] == 2 and first["done_before"] == 0 and first["statuses"] == {"ok": 2}
    assert first["evidence"]["multicasts"] == 20 <= first["evidence"]["deliveries"]
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "runs").iterdir()}
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["done_before"] == 2
    assert written == {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "runs").iterdir()}
    # One that ended too early goes on.
    lost, kept = sorted(written)
    lost.unlink()
    (tmp_path / "out" / "_SUCCESS").unlink()
    assert run(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["done_before"] == 1 and again["statuses"] == {"ok": 2} and not lost.exists()
    assert kept.stat().st_mtime_ns == written[kept]
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nmessages = 10\nseeds = 1\ntrace = "none"')
    assert run(command) == 2
    assert "holds another sweep" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0
    assert json.loads(capsys.readouterr().out)["statuses"] == {"ok": 1}
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1
    # Rows in which nothing happens are no rows that are ok.
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nduration = "1ns"\nrate = 0.001\nseeds = 2')
    assert run([*command[:-1], "--force"]) == 3
    out, err = capsys.readouterr()
    assert "2 empty; 0 deliveries;" in out and "no row that is ok delivered anything" in err and err.count("\n") == 1


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"it holds letter\.txt"):
            sweep(spec_from('protocol = "skeen"'), tmp_path, force=force)
    with pytest.raises(UsageError, match="is a file"):
        sweep(spec_from('protocol = "skeen"'), tmp_path / "letter.txt")
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.txt"]


def test_a_folder_that_cannot_be_written_is_one_clear_line_and_no_success(spark: SparkSession, tmp_path: Path) -> None:
    spec = spec_from('protocol = "skeen"\nmessages = 10\nseeds = 3')
    with pytest.raises(UsageError, match="holds another sweep"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "trace").write_text("a file where executors want a folder")
        sweep(spec, tmp_path / "out")
    (tmp_path / "out" / "spec.json").write_text(json.dumps(spec.document()))
    with pytest.raises(UsageError, match="cannot be written"):
        sweep(spec, tmp_path / "out")
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    row = spec.rows()[0]
    assert run_batch(row.run, [(row.run, row.config)], Output(tmp_path / "out"), isolated=True) is not None


# ---------------------------------------------------------------- interruptions

PROGRAM = [sys.executable, "-c", "from amcast.cli import main; main()"]
SLOW = """
    protocol = ["skeen", "white_box"]
    groups = 2
    clients = 4
    messages = 1000
    seeds = 20
"""


def start(command: list[str], tmp_path: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {
        "AMCAST_SPARK_MASTER": "local[2,3]",
        "AMCAST_SPARK_CONF": "spark.driver.memory=700m;spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        "TMPDIR": str(tmp_path),
    }
    return subprocess.Popen(
        [*PROGRAM, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_rows(process: "subprocess.Popen[str]", folder: Path, number: int) -> None:
    """Until so many rows are done. The program has many more to run, so that its end is a failure."""
    while len(list(folder.glob("runs/*.parquet"))) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_an_interrupt_before_the_job_has_begun_ends_it_all_the_same() -> None:
    """Else the program would say "interrupted" when all rows are done."""
    begun, cancelled = threading.Event(), threading.Event()

    def job() -> list[object]:
        begun.wait(allow(10))
        assert cancelled.wait(allow(10)), "nobody cancelled a job that began late"
        return []

    def look() -> None:
        raise KeyboardInterrupt

    def cancel() -> None:  # as Spark does: what has not begun cannot be cancelled
        if begun.is_set():
            cancelled.set()
        begun.set()

    with pytest.raises(KeyboardInterrupt):
        called_in_background(job, look, cancel)
    assert cancelled.is_set()


@pytest.mark.slow
def test_an_interrupted_and_a_killed_sweep_go_on_where_they_were(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SLOW)
    out = tmp_path / "out"
    command = ["sweep", str(tmp_path / "spec.toml"), "--out", str(out)]
    process = start(command, tmp_path)
    wait_for_rows(process, out, 2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert stderr.startswith("amcast: interrupted: ") and "the same command runs the rest" in stderr
    assert stderr.count("\n") == 1 and not stdout
    assert not list(tmp_path.glob("amcast-spark-*")), "nothing is left of Spark"
    done = len(list(out.glob("runs/*.parquet")))
    assert 2 <= done < 30 and not (out / "_SUCCESS").exists(), "Ctrl-C ended the job, it did not wait for it"
    before = {file.name: file.stat().st_mtime_ns for file in out.glob("runs/*.parquet")}

    process = start(command, tmp_path)
    wait_for_rows(process, out, done + 2)
    process.kill()
    process.communicate()
    assert not (out / "_SUCCESS").exists() and len(list(out.glob("runs/*.parquet"))) < 40

    spec = load_spec(tmp_path / "spec.toml")
    finished = sweep(spec, out)
    assert finished.done_before >= done + 2 and finished.statuses == {"ok": 40}
    assert before.items() <= {file.name: file.stat().st_mtime_ns for file in out.glob("runs/*.parquet")}.items()
    sweep(spec, tmp_path / "at once")
    assert lines_of(out) == lines_of(tmp_path / "at once")
    assert traces_of(out) == traces_of(tmp_path / "at once")
