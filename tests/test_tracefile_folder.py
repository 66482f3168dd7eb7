"""The folder of a trace holds parts of the trace and nothing else, and every engine reads all of it."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.tracefile import ParquetRecorder, read_events

# Each of these is read by one engine and passed over by another.
STRANGERS = [
    "kind=deliver/part-1.parq",
    "kind=deliver/part-1.PARQUET",
    "kind=deliver/part-1",
    "kind=deliver/sub/part-1.parquet",
    "kind=deliver/day=1/part-1.parquet",
    "kind=deliver/sub.parquet/part-1.parquet",
    "kind=deliver/_day=1.parq",
    "deliver/part-1.parquet",
    "Kind=deliver/part-1.parquet",
    "old/kind=deliver/part-1.parquet",
    "part-1.parquet",
    "part-1",
    "notes.txt",
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with ParquetRecorder(tmp_path / "trace") as recorder:
        recorder.record(Event("r", "deliver", "g0/0", "g0", 1, message="m"))
    return tmp_path / "trace"


def add(trace: Path, name: str) -> Path:
    """Copy a part of the trace to another place in it."""
    place = trace / name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(trace / "kind=deliver" / "part-0.parquet", place)
    return place


@pytest.mark.parametrize("name", STRANGERS)
def test_what_does_not_belong_to_a_trace_is_named(trace: Path, name: str) -> None:
    place = add(trace, name)
    with pytest.raises(TraceError, match=r"does not belong to a trace; expected only kind=<kind>/\*.parquet") as caught:
        read_events(trace)
    assert str(place).startswith(str(caught.value).split(": ")[0]) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", STRANGERS)
def test_nor_to_one_with_other_names(trace: Path, name: str) -> None:
    add(trace, name.replace("kind=", "event="))
    for folder in trace.glob("kind=*"):
        for file in folder.iterdir():
            (trace / "event=deliver").mkdir(exist_ok=True)
            file.rename(trace / "event=deliver" / file.name)
        folder.rmdir()
    with pytest.raises(TraceError, match=r"does not belong to a trace; expected only event=<kind>/\*.parquet"):
        list(read_events(trace, {"event": "kind"}))


@pytest.mark.parametrize(
    "name", ["_SUCCESS", "._SUCCESS.crc", "kind=deliver/_part-1.parquet", "kind=deliver/.part-1.parquet.tmp",
             "kind=deliver/.x.crc", "_temporary/0/part-1.parquet", "summary.json", "verdicts.json", "violation.svg"]
)  # fmt: skip
def test_what_writers_leave_is_left_alone(trace: Path, name: str) -> None:
    add(trace, name)
    assert [event.seq for event in read_events(trace)] == [1]


def test_a_folder_of_files_that_say_the_kind(trace: Path, tmp_path: Path) -> None:
    table = pq.read_table(next(trace.glob("kind=deliver/*.parquet")), partitioning=None)
    (tmp_path / "flat").mkdir()
    for name in ("a", "b"):
        whole = table.append_column("kind", pa.array(["deliver"]))
        pq.write_table(whole, tmp_path / "flat" / f"{name}.parquet")
    assert [event.kind for event in read_events(tmp_path / "flat")] == ["deliver", "deliver"]


@pytest.mark.parametrize("column", ["dest", "about"])
def test_a_null_in_a_list(trace: Path, column: str) -> None:
    (file,) = trace.glob("kind=deliver/*.parquet")
    table = pa.concat_tables([pq.read_table(file, partitioning=None)] * 3)
    place = table.column_names.index(column)
    lists = pa.array([["g0"], None, ["g0", None]], pa.list_(pa.string()))
    pq.write_table(table.set_column(place, column, lists), file)
    with pytest.raises(TraceError, match=f"row 3: column '{column}' has a null in its list; expected names only"):
        list(read_events(trace))


ROW = {"run": '"r"', "event": '"deliver"', "node": '"p"', "group": '"g"', "seq": "1", "message": '"m"'}


def renamed_trace(folder: Path, columns: dict[str, str]) -> list[Event]:
    line = ", ".join(f'"{name}": {value}' for name, value in ROW.items())
    (folder / "t.jsonl").write_text(f"{{{line}}}\n")
    return list(read_events(folder / "t.jsonl", {"event": "kind", "node": "process", **columns}))


def test_columns_of_json_that_swap_names_or_are_left_out(tmp_path: Path) -> None:
    (event,) = renamed_trace(tmp_path, {"group": "message", "message": "group"})
    assert (event.group, event.message) == ("m", "g")
    with pytest.raises(TraceError, match="column 'group' is missing in a deliver row"):
        renamed_trace(tmp_path, {"group": ""})
