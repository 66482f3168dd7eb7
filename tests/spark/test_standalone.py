"""A standalone master with two workers, whose Python has the libraries of amcast but not amcast itself."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

import amcast
from amcast.spark.java import find_java
from tests.pace import allow, until

SPARK = Path(pyspark.__file__).parent
AMCAST = [sys.executable, "-c", "from amcast.cli import main; main()"]
LOG4J = "rootLogger.level = info\nrootLogger.appenderRef.c.ref = c\nappender.c.type = Console\nappender.c.name = c\n"
LOG4J += "appender.c.target = SYSTEM_ERR\nappender.c.layout.type = PatternLayout\nappender.c.layout.pattern = %m%n\n"
SMALL = "spark.executor.memory=512m;spark.driver.memory=700m;spark.sql.shuffle.partitions=2"
WHO = """
import json, pyarrow as pa
from amcast.spark.session import open_session

def who(batches):
    import amcast
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"file": amcast.__file__, "compiled": amcast.compiled()}])

with open_session("test") as session:
    found = session.range(0, 4, 1, 4).mapInArrow(who, "file string, compiled boolean").collect()
    print(json.dumps([row.asDict() for row in found]))
"""


def python_without_amcast(folder: Path) -> Path:
    """Write a Python that reads no .pth files, so it does not find what is installed in place."""
    program = folder / "python"
    libraries = sysconfig.get_path("purelib")
    program.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{libraries}"\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program


@dataclass
class Standalone:
    """A master, and how to start and kill its workers."""

    url: str
    python: Path
    start_worker: Callable[[], None]
    workers: list["subprocess.Popen[bytes]"]

    def kill_a_worker(self) -> None:
        """Kill a worker and its executors, at once."""
        worker = self.workers.pop()
        executors = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        for thread in Path(f"/proc/{worker.pid}/task").iterdir():
            executors += (thread / "children").read_text().split()
        assert executors, "it has none"
        worker.kill()
        for executor in set(executors):
            with suppress(ProcessLookupError):
                os.kill(int(executor), signal.SIGKILL)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("standalone")
    (folder / "log4j2.properties").write_text(LOG4J)
    java = find_java(folder)
    program = python_without_amcast(folder)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AMCAST_PURE")},
        "SPARK_HOME": str(SPARK),
        "JAVA_HOME": str(java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'} -XX:TieredStopAtLevel=1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(*command: str, said: str) -> re.Match[str]:
        log = folder / f"{len(processes)}.log"
        with log.open("wb") as output:
            arguments = [str(SPARK / "bin" / "spark-class"), *command]
            processes.append(subprocess.Popen(arguments, env=environment, stdout=output, stderr=output))
        until = time.monotonic() + allow(60)
        while (found := re.search(said, log.read_text(errors="replace"))) is None:
            assert processes[-1].poll() is None and time.monotonic() < until, log.read_text(errors="replace")
            time.sleep(0.05)
        return found

    try:
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        url = start("org.apache.spark.deploy.master.Master", *where, said=r"Starting Spark master at (spark://\S+)")[1]
        made = Standalone(url, program, lambda: None, [])

        def start_worker() -> None:
            size = ["--cores", "1", "--memory", "768m"]
            worker = ["org.apache.spark.deploy.worker.Worker", *where, *size, url]
            start(*worker, said="Successfully registered with master")
            made.workers.append(processes[-1])

        made.start_worker = start_worker
        for _ in range(2):
            start_worker()
        yield made
    finally:
        for process in processes:
            process.kill()
            process.wait()


def command(arguments: list[str], master: Standalone, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = environment_of(master) | more
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)


def environment_of(master: Standalone) -> dict[str, str]:
    return os.environ | {
        "AMCAST_SPARK_MASTER": master.url,
        "PYSPARK_PYTHON": str(master.python),
        "AMCAST_SPARK_CONF": SMALL,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_run_the_package_as_it_is_here(master: Standalone, tmp_path: Path) -> None:
    alone = subprocess.run([str(master.python), "-c", "import amcast"], capture_output=True, check=False, cwd=tmp_path)
    assert b"No module named 'amcast'" in alone.stderr, "the Python of the workers does not have it"
    done = command([sys.executable, "-c", WHO], master)
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout):
        assert row["file"].endswith("/amcast_pkg/amcast/__init__.py") and row["compiled"] == amcast.compiled()
    refused = command([sys.executable, "-c", WHO], master, AMCAST_SPARK_CONF=f"{SMALL};spark.amcast.ship=false")
    assert refused.returncode == 1 and "lacks amcast; expected what 'amcast[spark]' needs" in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_work_on_it(master: Standalone, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('protocol = ["skeen", "white_box"]\ngroups = 2\nmessages = 20\nseeds = 3\n')
    out = tmp_path / "sweep"
    done = command([*AMCAST, "sweep", str(tmp_path / "spec.toml"), "--out", str(out), "--json"], master)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["statuses"] == {"ok": 6}
    for arguments in (["verify", f"{out}/trace", "--engine", "spark"], ["metrics", f"{out}/trace"]):
        done = command([*AMCAST, *arguments, "--json"], master)
        assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["trace"] == f"{out}/trace"
    (tmp_path / "traces").mkdir()
    arrive(tmp_path / "traces", 0)
    watched = [*AMCAST, "watch", str(tmp_path / "traces"), "--once", "--checkpoint", str(tmp_path / "checkpoint")]
    done = command(watched, master)
    assert done.returncode == 0 and "ok: 2 deliveries" in done.stdout, done.stdout + done.stderr


def arrive(folder: Path, number: int) -> None:
    """A multicast and its two deliveries."""
    name = {"message": f"m{number}", "seq": number, "time": number + 1}
    row = {"run": "r", "kind": "multicast", "process": "c", "sender": "c", "dest": ["g0"], **name}
    rows = [row] + [{"run": "r", "kind": "deliver", "process": process, "group": "g0", **name} for process in "pq"]
    (folder / f".{number}").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / f".{number}").rename(folder / f"{number}.jsonl")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_watch_survives_the_loss_of_a_worker(master: Standalone, tmp_path: Path) -> None:
    traces, checkpoint = tmp_path / "traces", tmp_path / "checkpoint"
    traces.mkdir()
    words = ["watch", str(traces), "--checkpoint", str(checkpoint), "--every", "0.5"]
    arrive(traces, 0)
    with (tmp_path / "out").open("wb") as out:
        watch = subprocess.Popen([*AMCAST, *words], env=environment_of(master), stdout=out, stderr=out)

        def done(batches: int) -> bool:
            assert watch.poll() is None, (tmp_path / "out").read_text()
            return len(list((checkpoint / "commits").glob("[0-9]*"))) >= batches

        try:
            assert until(lambda: done(1), 300)
            arrive(traces, 1)
            assert until(lambda: done(2), 300)
            master.kill_a_worker()
            arrive(traces, 2)
            assert until(lambda: done(3), 300)
            master.start_worker()
            arrive(traces, 3)
            assert until(lambda: done(4), 300)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(allow(120)) == 0, (tmp_path / "out").read_text()
        finally:
            watch.kill()
    said = (tmp_path / "out").read_text()
    assert "order, integrity, validity ok: 8 deliveries of 2 of 2 replicas, 8 pairs compared" in said
