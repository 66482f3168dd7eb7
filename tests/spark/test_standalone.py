"""A standalone master with two workers, whose Python has the libraries of amcast but not amcast itself."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import amcast
from amcast.spark.java import find_java
from tests.pace import allow

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


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
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
        for _ in range(2):
            size = ["--cores", "1", "--memory", "768m"]
            worker = ["org.apache.spark.deploy.worker.Worker", *where, *size, url]
            start(*worker, said="Successfully registered with master")
        yield url, program
    finally:
        for process in processes:
            process.kill()
            process.wait()


def command(arguments: list[str], master: tuple[str, Path], **more: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "AMCAST_SPARK_MASTER": master[0],
        "PYSPARK_PYTHON": str(master[1]),
        "AMCAST_SPARK_CONF": SMALL,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(arguments, env=environment | more, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_run_the_package_as_it_is_here(master: tuple[str, Path], tmp_path: Path) -> None:
    alone = subprocess.run([str(master[1]), "-c", "import amcast"], capture_output=True, check=False, cwd=tmp_path)
    assert b"No module named 'amcast'" in alone.stderr, "the Python of the workers does not have it"
    done = command([sys.executable, "-c", WHO], master)
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout):
        assert row["file"].endswith("/amcast_pkg/amcast/__init__.py") and row["compiled"] == amcast.compiled()
    refused = command([sys.executable, "-c", WHO], master, AMCAST_SPARK_CONF=f"{SMALL};spark.amcast.ship=false")
    assert refused.returncode == 1 and "lacks amcast; expected what 'amcast[spark]' needs" in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_work_on_it(master: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('protocol = ["skeen", "white_box"]\ngroups = 2\nmessages = 20\nseeds = 3\n')
    out = tmp_path / "sweep"
    done = command([*AMCAST, "sweep", str(tmp_path / "spec.toml"), "--out", str(out), "--json"], master)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["statuses"] == {"ok": 6}
    for arguments in (["verify", f"{out}/trace", "--engine", "spark"], ["metrics", f"{out}/trace"]):
        done = command([*AMCAST, *arguments, "--json"], master)
        assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["trace"] == f"{out}/trace"
    (tmp_path / "traces").mkdir()
    row = {"run": "r", "kind": "multicast", "process": "c", "seq": 0, "message": "m", "sender": "c", "dest": ["g0"]}
    rows = [row] + [
        {"run": "r", "kind": "deliver", "process": process, "group": "g0", "seq": 0, "message": "m"} for process in "pq"
    ]
    (tmp_path / "traces" / "t.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    watched = [*AMCAST, "watch", str(tmp_path / "traces"), "--once", "--checkpoint", str(tmp_path / "checkpoint")]
    done = command(watched, master)
    assert done.returncode == 0 and "ok: 2 deliveries" in done.stdout, done.stdout + done.stderr
