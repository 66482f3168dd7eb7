"""Traces as files: what is written is what is read, bad input is one clear line, Ctrl-C leaves a readable trace."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amcast.core.trace import KINDS, Event
from amcast.errors import TraceError, UsageError
from amcast.tracefile import ParquetRecorder, prepare_out, read_events, write_csv, write_jsonl, writer
from tests.pace import allow
from tests.tools import examples

# ---------------------------------------------------------------- round trip

# An empty cell of a CSV file is null, so there are no empty strings in it.
words = st.text(st.sampled_from("ab/7 ;,[]{}\"'\\\nδ☃"), min_size=1, max_size=4)
lists = st.lists(words, max_size=3).map(tuple)
int64 = st.integers(-(2**63), 2**63 - 1)
optional_words = st.none() | words


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(KINDS))
    process = draw(words)
    has_message = kind in ("multicast", "withdraw", "deliver", "optdeliver")
    return Event(
        run=draw(words),
        kind=kind,
        process=process,
        group=draw(optional_words),
        seq=draw(int64),
        time=draw(st.none() | int64),
        message=draw(words if has_message else optional_words),
        sender=process if kind == "multicast" else draw(optional_words),
        dest=draw(lists if kind == "multicast" else st.none() | lists),
        ts=draw(st.none() | st.tuples(int64, st.just("") | words)),
        peer=draw(optional_words),
        type=draw(optional_words),
        size=draw(st.none() | st.integers(-(2**31), 2**31 - 1)),
        about=draw(st.none() | lists),
        detail=draw(optional_words),
    )


def write_parquet(path: Path, rows: Iterable[Event]) -> None:
    with ParquetRecorder(path, rows_per_group=2) as recorder:
        for event in rows:
            recorder.record(event)


WRITERS: dict[str, Callable[[Path, Iterable[Event]], None]] = {
    "trace": write_parquet,
    "trace.jsonl": write_jsonl,
    "trace.csv": write_csv,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_what_is_read(name: str) -> None:
    @given(st.lists(events(), min_size=1, max_size=6))
    @settings(max_examples=examples(60), deadline=None, derandomize=True)
    def round_trip(written: list[Event]) -> None:
        if name == "trace.csv":
            written = [event for event in written if not any("\n" in str(value) for value in event.row().values())]
            assume(written)
        with TemporaryDirectory() as folder:
            WRITERS[name](Path(folder) / name, written)
            read = list(read_events(Path(folder) / name))
        if name == "trace":  # kind by kind
            written = sorted(written, key=lambda event: KINDS.index(event.kind))
        assert read == written

    round_trip()


def test_csv_has_no_room_for_a_line_break(tmp_path: Path) -> None:
    """A line is an event, for whoever reads a file from many places at once."""
    with pytest.raises(UsageError, match=r"'m\\nn' has a line break; expected none in a .csv trace"):
        write_csv(tmp_path / "t.csv", [delivery(1, "m\nn")])
    write_csv(tmp_path / "t.csv", [Event("r", "start", "p", "g", 1, about=("m\nn",))])
    assert [event.about for event in read_events(tmp_path / "t.csv")] == [("m\nn",)]


# ---------------------------------------------------------------- Parquet folders


def delivery(seq: int, message: str = "m") -> Event:
    return Event("r", "deliver", "g0/0", "g0", seq, 10 * seq, message, ts=(seq, "g0"))


def test_the_files_have_the_columns_and_types_of_trace_format(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t", [delivery(1), Event("r", "end", "driver", None, 1)])
    assert sorted(str(file.relative_to(tmp_path / "t")) for file in (tmp_path / "t").rglob("*.*")) == [
        "kind=deliver/part-0.parquet",
        "kind=end/part-0.parquet",
    ]
    for kind in ("deliver", "end"):
        schema = pq.read_schema(tmp_path / "t" / f"kind={kind}" / "part-0.parquet")
        assert {field.name: str(field.type) for field in schema} == {
            "run": "string",
            "process": "string",
            "group": "string",
            "seq": "int64",
            "time": "int64",
            "message": "string",
            "sender": "string",
            "dest": "list<element: string>",
            "ts": "struct<time: int64, tie: string>",
            "peer": "string",
            "type": "string",
            "size": "int32",
            "about": "list<element: string>",
            "detail": "string",
        }


def test_what_an_event_does_not_have_is_null_in_the_file(tmp_path: Path) -> None:
    without_ts = Event("r", "deliver", "g0/0", "g0", 2, message="m")
    write_parquet(tmp_path / "t", [delivery(1), without_ts])
    table = pq.read_table(tmp_path / "t" / "kind=deliver" / "part-0.parquet", partitioning=None)
    nulls = {name: table.column(name).is_null().to_pylist() for name in table.column_names}
    assert nulls["ts"] == nulls["time"] == [False, True]
    assert nulls["dest"] == nulls["about"] == nulls["detail"] == [True, True]


def test_memory_is_bounded_by_the_row_group(tmp_path: Path) -> None:
    with ParquetRecorder(tmp_path / "t", rows_per_group=10) as recorder:
        for seq in range(95):
            recorder.record(delivery(seq))
            assert sum(len(waiting) for waiting in recorder._waiting.values()) < 10
    file = pq.ParquetFile(tmp_path / "t" / "kind=deliver" / "part-0.parquet")
    assert file.metadata.num_row_groups == 10
    assert [event.seq for event in read_events(tmp_path / "t")] == list(range(95))


def test_two_parts_make_one_trace(tmp_path: Path) -> None:
    with ParquetRecorder(tmp_path / "t", part="node-1") as one, ParquetRecorder(tmp_path / "t", part="node-2") as two:
        one.record(delivery(1))
        two.record(delivery(2))
    assert [event.seq for event in read_events(tmp_path / "t")] == [1, 2]


def test_a_part_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t", [delivery(1)])
    with pytest.raises(TraceError, match=r"part-0\.parquet: exists already"):
        write_parquet(tmp_path / "t", [delivery(2)])
    assert [event.seq for event in read_events(tmp_path / "t")] == [1]


def test_published_events_are_readable_while_the_recorder_goes_on(tmp_path: Path) -> None:
    with ParquetRecorder(tmp_path / "t") as recorder:
        recorder.record(delivery(1))
        recorder.publish()
        assert [event.seq for event in read_events(tmp_path / "t")] == [1]
        recorder.record(delivery(2))
    assert sorted(event.seq for event in read_events(tmp_path / "t")) == [1, 2]


def test_an_event_after_the_close_or_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path / "t")
    with pytest.raises(TraceError, match=r"kind 'delivr' is unknown; expected one of start, multicast"):
        recorder.record(Event("r", "delivr", "p", None, 1))
    recorder.close()
    recorder.close()
    with pytest.raises(TraceError, match="came after the trace was closed"):
        recorder.record(delivery(1))


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=r"file/t: the trace cannot be written \(Not a directory\)"):
        ParquetRecorder(tmp_path / "file" / "t")


# ---------------------------------------------------------------- interrupted and killed writers


def test_an_interrupted_run_leaves_a_readable_trace(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ParquetRecorder(tmp_path / "t", rows_per_group=2) as recorder:
        for seq in range(5):
            recorder.record(delivery(seq))
        raise KeyboardInterrupt
    assert [event.seq for event in read_events(tmp_path / "t")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_in_the_middle_of_a_write_neither_loses_nor_repeats_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    write = writer._PartFile.write

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's may be there
    handler = signal.getsignal(signal.SIGINT)

    def interrupted_write(self: writer._PartFile, table: pa.Table) -> None:
        if when == "before":
            signal.raise_signal(signal.SIGINT)
        write(self, table)
        if when == "after":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), ParquetRecorder(tmp_path / "t", rows_per_group=2) as recorder:
        monkeypatch.setattr(writer._PartFile, "write", interrupted_write)
        recorder.record(delivery(1))
        try:
            recorder.record(delivery(2))
        finally:
            monkeypatch.undo()
    assert [event.seq for event in read_events(tmp_path / "t")] == [1, 2]
    assert signal.getsignal(signal.SIGINT) is handler
    signal.signal(signal.SIGINT, before)


def test_a_killed_writer_leaves_no_file_under_a_real_name(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from amcast.core.trace import Event\n"
        "from amcast.tracefile import ParquetRecorder\n"
        "recorder = ParquetRecorder(sys.argv[1], rows_per_group=2)\n"
        "for seq in range(5): recorder.record(Event('r', 'deliver', 'p', 'g0', seq, message='m'))\n"
        "os._exit(9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "t")], check=False, timeout=allow(60))
    assert killed.returncode == 9
    assert refusal(tmp_path / "t").startswith(f"{tmp_path / 't'}: holds only unfinished files (.parquet.tmp)")
    prepare_out(tmp_path / "t", force=True)
    assert list((tmp_path / "t").iterdir()) == []


# ---------------------------------------------------------------- the folder of a run


def test_a_new_or_empty_folder_is_taken(tmp_path: Path) -> None:
    assert prepare_out(tmp_path / "a" / "b", force=False) == tmp_path / "a" / "b"
    assert prepare_out(tmp_path / "a" / "b", force=False).is_dir()


def test_an_old_trace_is_replaced_only_with_force(tmp_path: Path) -> None:
    write_parquet(tmp_path, [delivery(1)])
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds an older trace; expected an empty or new folder; use --force"):
        prepare_out(tmp_path, force=False)
    assert [event.seq for event in read_events(tmp_path)] == [1]
    prepare_out(tmp_path, force=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stranger", ["thesis.tex", "src/main.py", "kind=deliver/thesis.tex", "kind=deliver/src/x"])
def test_a_folder_with_anything_else_in_it_is_refused_even_with_force(tmp_path: Path, stranger: str) -> None:
    write_parquet(tmp_path, [delivery(1)])
    (tmp_path / stranger).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / stranger).write_text("years of work")
    for force in (False, True):
        with pytest.raises(
            UsageError, match=r"is not empty and is not a trace either \(it holds .*choose another --out"
        ):
            prepare_out(tmp_path, force=force)
    assert (tmp_path / stranger).read_text() == "years of work"
    assert list(tmp_path.glob("kind=deliver/*.parquet"))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kind=deliver").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="it holds kind=deliver"):
        prepare_out(tmp_path / "out", force=True)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("")
    with pytest.raises(UsageError, match="is a file; expected a folder"):
        prepare_out(tmp_path / "t", force=True)
    with pytest.raises(UsageError, match=r"cannot be used as the folder of a trace \(Not a directory\)"):
        prepare_out(tmp_path / "t" / "u", force=True)


# ---------------------------------------------------------------- bad input


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        list(read_events(path))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


def test_a_path_that_is_no_trace(tmp_path: Path) -> None:
    assert "does not exist; expected a trace" in refusal(tmp_path / "none")
    assert "there is no .parquet file in it; expected kind=<kind>/*.parquet" in refusal(tmp_path)
    (tmp_path / "t.txt").write_text("hello")
    assert "has the suffix '.txt'; expected a Parquet folder or a .parquet, .jsonl or .csv" in refusal(
        tmp_path / "t.txt"
    )
    (tmp_path / "d.jsonl").mkdir()
    assert "there is no .parquet file in it" in refusal(tmp_path / "d.jsonl")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.jsonl").write_text("{}")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "cannot be read (Permission denied)" in refusal(tmp_path / "t.jsonl")


def test_a_truncated_parquet_file(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t", [delivery(seq) for seq in range(100)])
    file = tmp_path / "t" / "kind=deliver" / "part-0.parquet"
    whole = file.read_bytes()
    for size in (len(whole) // 2, 5, 0):
        file.write_bytes(whole[:size])
        assert refusal(file).startswith(f"{file}: cannot be read (")
        with pytest.raises(TraceError, match=r"part-0.parquet: cannot be read \("):
            list(read_events(tmp_path / "t"))


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    """The footer is whole, a page is not."""
    write_parquet(tmp_path / "t", [delivery(seq, f"m{seq * 7919 % 1000}") for seq in range(100)])
    file = tmp_path / "t" / "kind=deliver" / "part-0.parquet"
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(396)
    file.write_bytes(data)
    assert refusal(file).startswith(f"{file}: cannot be read (")


def parquet(path: Path, **columns: object) -> Path:
    rows: dict[str, object] = {
        "run": ["r"],
        "kind": ["deliver"],
        "process": ["g0/0"],
        "group": ["g0"],
        "seq": [1],
        "message": ["m"],
        "sender": pa.nulls(1),
        "dest": pa.nulls(1),
    }
    rows.update(columns)
    pq.write_table(pa.table({name: value for name, value in rows.items() if value is not None}), path)
    return path


def test_only_the_starred_columns_are_needed_and_strange_ones_are_ignored(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", colour=["red"])
    assert list(read_events(path)) == [Event("r", "deliver", "g0/0", "g0", 1, message="m")]
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / "t.parquet")
    assert [event.message for event in read_events(tmp_path / "folder")] == ["m"]


def test_other_widths_and_encodings_of_the_same_type_are_read(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "t.parquet",
        seq=pa.array([1], pa.uint8()),
        time=pa.array([2], pa.int32()),
        message=pa.array(["m"], pa.large_string()),
        process=pa.array(["g0/0"]).dictionary_encode(),
        dest=pa.array([["g0"]], pa.large_list(pa.large_string())),
        ts=pa.array([{"tie": "x", "time": 5}], pa.struct([("tie", pa.string()), ("time", pa.int32())])),
    )
    assert list(read_events(path)) == [Event("r", "deliver", "g0/0", "g0", 1, 2, "m", None, ("g0",), (5, "x"))]


@pytest.mark.parametrize("column", ["run", "kind", "process", "group", "seq", "message", "sender", "dest"])
def test_a_missing_column_in_each_form(tmp_path: Path, column: str) -> None:
    expected = f"column {column!r} is missing; expected"
    assert expected in refusal(parquet(tmp_path / "t.parquet", **{column: None}))
    names = ["run", "kind", "process", "group", "seq", "message", "sender", "dest"]
    names.remove(column)
    (tmp_path / "t.csv").write_text(",".join(names) + "\n")
    assert "line 1: " + expected in refusal(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("column", "value", "seen"),
    [
        ("seq", ["one"], "string; expected int64"),
        ("seq", [1.5], "double; expected int64"),
        ("message", [7], "int64; expected string"),
        ("dest", ["g0"], "string; expected list<item: string>"),
        ("dest", [[1]], "list<element: int64>; expected list<item: string>"),
        ("ts", [7], "int64; expected struct<time: int64, tie: string>"),
        ("ts", [{"time": 7}], "struct<time: int64>; expected struct<time: int64, tie: string>"),
        ("size", ["big"], "string; expected int32"),
    ],
)
def test_a_column_of_the_wrong_type(tmp_path: Path, column: str, value: object, seen: str) -> None:
    assert f"column {column!r} has the type {seen}" in refusal(parquet(tmp_path / "t.parquet", **{column: value}))


def test_a_number_that_does_not_fit(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", seq=pa.array([2**64 - 1], pa.uint64()))
    assert "column 'seq' does not fit (Integer value 18446744073709551615 not in range" in refusal(path)
    path = parquet(tmp_path / "t.parquet", size=pa.array([2**40], pa.int64()))
    assert "column 'size' does not fit (Integer value 1099511627776 not in range" in refusal(path)


def test_a_null_where_a_value_must_be(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "t.parquet",
        run=["r", "r"],
        kind=["deliver", "end"],
        process=["g0/0", None],
        group=["g0", None],
        seq=[1, 2],
        message=["m", None],
        sender=pa.nulls(2),
        dest=pa.nulls(2),
    )
    assert "row 2: column 'process' is null; expected a value in every row" in refusal(path)
    no_message = parquet(tmp_path / "t.parquet", message=pa.nulls(1))
    assert "row 1: column 'message' is null in a deliver row" in refusal(no_message)
    folder = tmp_path / "kind=deliver"
    folder.mkdir()
    assert "row 1: column 'message' is null in a deliver row" in refusal(no_message.rename(folder / "t.parquet"))


def test_an_unknown_kind_in_each_form(tmp_path: Path) -> None:
    expected = "kind 'delivr' is unknown; expected one of start, multicast, withdraw, deliver"
    assert "row 1: " + expected in refusal(parquet(tmp_path / "t.parquet", kind=["delivr"]))
    assert "line 1: " + expected in refusal(jsonl(tmp_path, kind="delivr"))
    assert "line 2: " + expected in refusal(csv(tmp_path, kind="delivr"))
    (tmp_path / "t" / "kind=delivr").mkdir(parents=True)
    with pytest.raises(TraceError, match=expected):
        read_events(tmp_path / "t")


def test_an_empty_trace_in_each_form(tmp_path: Path) -> None:
    expected = "is empty; expected at least one event"
    (tmp_path / "t.jsonl").write_text("\n")
    assert expected in refusal(tmp_path / "t.jsonl")
    (tmp_path / "t.csv").write_text("")
    assert expected in refusal(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("run,kind,process,group,seq,message,sender,dest\n")
    assert expected in refusal(tmp_path / "t.csv")
    no_rows = {
        name: pa.array([], type=pa.string()) for name in ("run", "kind", "process", "group", "message", "sender")
    }
    path = parquet(tmp_path / "t.parquet", seq=pa.array([], pa.int64()), dest=pa.nulls(0), **no_rows)
    assert expected in refusal(path)


# ---------------------------------------------------------------- hand-written text

GOOD_ROW: dict[str, object] = {
    "run": "r",
    "kind": "multicast",
    "process": "c1",
    "group": None,
    "seq": 1,
    "message": "m",
    "sender": "c1",
    "dest": ["g0", "g1"],
}


def jsonl(folder: Path, **columns: object) -> Path:
    """A file of one line; `...` leaves a column out."""
    row = {name: value for name, value in {**GOOD_ROW, **columns}.items() if value is not ...}
    (folder / "t.jsonl").write_text(json.dumps(row) + "\n")
    return folder / "t.jsonl"


def csv(folder: Path, **columns: str) -> Path:
    row = {**GOOD_ROW, "group": "", "dest": "g0;g1", **columns}
    cells = ",".join('"' + str(value).replace('"', '""') + '"' for value in row.values())
    (folder / "t.csv").write_text(",".join(row) + "\n" + cells + "\n")
    return folder / "t.csv"


MULTICAST = Event("r", "multicast", "c1", None, 1, message="m", sender="c1", dest=("g0", "g1"))


def test_the_good_row_is_good(tmp_path: Path) -> None:
    assert list(read_events(jsonl(tmp_path, colour="red"))) == [MULTICAST]
    assert list(read_events(csv(tmp_path, colour="red"))) == [MULTICAST]


@pytest.mark.parametrize("written", [{"time": 7, "tie": "x"}, [7, "x"]])
def test_two_ways_to_write_a_timestamp_in_json(tmp_path: Path, written: object) -> None:
    (event,) = read_events(jsonl(tmp_path, ts=written))
    assert event.ts == (7, "x")


@pytest.mark.parametrize("written", ["7;x", '{"time": 7, "tie": "x"}', '[7, "x"]'])
def test_three_ways_to_write_a_timestamp_in_csv(tmp_path: Path, written: str) -> None:
    (event,) = read_events(csv(tmp_path, ts=written))
    assert event.ts == (7, "x")


@pytest.mark.parametrize("written", ["g0;g1", '["g0", "g1"]'])
def test_two_ways_to_write_a_list_in_csv(tmp_path: Path, written: str) -> None:
    (event,) = read_events(csv(tmp_path, dest=written, about=written))
    assert event.dest == event.about == ("g0", "g1")


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"seq": ...}, "column 'seq' is missing; expected it in every line"),
        ({"run": ...}, "column 'run' is missing; expected it in every line"),
        ({"seq": "1"}, "column 'seq' has the wrong type: expected int, got str"),
        ({"seq": 1.5}, "column 'seq' has the wrong type: expected int, got float"),
        ({"seq": 2**63}, "column 'seq'"),
        ({"size": 2**31}, "column 'size' has the wrong type: expected int <= 2147483647"),
        ({"process": None}, "column 'process' has the wrong type: expected str, got null"),
        ({"dest": "g0"}, "column 'dest' has the wrong type: expected array | null, got str"),
        ({"dest": ["g0", 1]}, "column 'dest[1]' has the wrong type: expected str, got int"),
        ({"dest": ...}, "column 'dest' is null in a multicast row; expected the destination groups"),
        ({"message": ...}, "column 'message' is null in a multicast row"),
        ({"sender": ...}, "column 'sender' is null in a multicast row of process 'c1'; expected the same process"),
        ({"sender": "c2"}, "column 'sender' is 'c2' in a multicast row of process 'c1'; expected the same process"),
        ({"kind": "deliver", "group": ...}, "column 'group' is missing in a deliver row; expected a group"),
        ({"ts": [7]}, "column 'ts' has the wrong type"),
        ({"ts": {"time": "7", "tie": "x"}}, "column 'ts.time' has the wrong type: expected int, got str"),
    ],
)
def test_a_bad_column_of_a_json_line(tmp_path: Path, columns: dict[str, object], complaint: str) -> None:
    assert f"line 1: {complaint}" in refusal(jsonl(tmp_path, **columns))


@pytest.mark.parametrize("line", [b"{", b"hello", b'{"run": "\xff"}', b"{'run': 'r'}"])
def test_a_line_that_is_not_json_is_named(tmp_path: Path, line: bytes) -> None:
    path = jsonl(tmp_path)
    path.write_bytes(path.read_bytes() + b"\n" + line)
    assert "line 3: is not JSON (" in refusal(path)
    path = jsonl(tmp_path)
    path.write_bytes(path.read_bytes().strip() + b" " + line)
    assert "line 1: is not JSON (" in refusal(path)


def test_a_line_that_is_json_but_no_object(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("[1, 2]\n")
    assert "line 1: is not an event: expected object, got array" in refusal(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"seq": "one"}, "column 'seq' is 'one'; expected an integer"),
        ({"seq": "1_0"}, "column 'seq' is '1_0'; expected an integer"),
        ({"seq": "\u0663"}, "column 'seq' is '\u0663'; expected an integer"),
        (
            {"message": "m\nn"},
            "is not CSV (unexpected end of data); expected comma-separated cells without a line break",
        ),
        ({"seq": ""}, "column 'seq' is empty; expected a value in every row"),
        ({"run": ""}, "column 'run' is empty; expected a value in every row"),
        ({"seq": str(2**63)}, "expected an integer that fits in int64"),
        ({"size": str(2**31)}, "expected an integer that fits in int32"),
        ({"dest": "[1]"}, "column 'dest' is '[1]'; expected names separated by ';' or a JSON array of strings"),
        ({"dest": ""}, "column 'dest' is null in a multicast row"),
        ({"ts": "7"}, "column 'ts' is '7'; expected 'time;tie'"),
        ({"ts": "x;7"}, "column 'ts' is 'x;7'; expected 'time;tie'"),
        ({"ts": "[7]"}, "column 'ts' is '[7]'; expected 'time;tie'"),
    ],
)
def test_a_bad_cell_of_a_csv_row(tmp_path: Path, columns: dict[str, str], complaint: str) -> None:
    message = refusal(csv(tmp_path, **columns))
    assert "line 2: " in message and complaint in message


def test_csv_that_does_not_hold_together(tmp_path: Path) -> None:
    path = csv(tmp_path)
    good = path.read_bytes()
    path.write_bytes(good + b"r,multicast\n")
    assert "line 3: has 2 cells; expected 8 as in the header" in refusal(path)
    path.write_bytes(good + b'r,"multicast\n')
    assert "line 3: is not CSV (" in refusal(path)
    path.write_bytes(good + b"r,\xff\n")
    assert "is not UTF-8 (" in refusal(path)
    path.write_bytes(good.replace(b"kind", b"kind,seq", 1))
    assert "line 1: column 'seq' is there twice" in refusal(path)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    for path in (jsonl(tmp_path), csv(tmp_path)):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert list(read_events(path)) == [MULTICAST]
