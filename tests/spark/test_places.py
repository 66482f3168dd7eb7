"""A plain path, file:// and an object store hold the same: traces, sweeps, tables, reports and verdicts."""

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.cli import run
from amcast.errors import TraceError, UsageError
from amcast.places import Remote, place_of, publish, remove_tree
from amcast.spark import sweep as sweep_module
from amcast.spark.metrics import save
from amcast.spark.row import Output, run_batch, run_batches
from amcast.spark.spec import spec_of
from amcast.spark.sweep import batches_of, configs_of, finish, read_runs, run_rows, sweep
from amcast.spark.verify import verify_trace
from amcast.tracefile import read_events
from amcast.tracefile.commits import parts_that_count, records_in
from amcast.tracefile.parts import parts_of, read_part
from tests.s3 import new_bucket, store

SPEC = 'protocol = ["skeen", "white_box"]\ngroups = 2\nclients = 3\nmessages = 30\nseeds = 4\n'


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with store() as address:
        yield address


@pytest.fixture
def bucket(server: str) -> str:
    return new_bucket(server)


def spec_from(text: str) -> sweep_module.Spec:
    import tomllib

    return spec_of(tomllib.loads(text), "test", "test.toml")


def content_of(out: str) -> tuple[list[dict[str, object]], list[object]]:
    """What a sweep says, without what depends on the clock on the wall."""
    lines = read_runs(place_of(out)).drop_columns(["wall_s"]).to_pylist()
    return lines, sorted(map(repr, read_events(f"{out}/trace")))


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "foo://bucket/x": "foo://bucket/x: there is no storage foo://; expected a path, or file://, s3://",
        "s3://": "names no bucket; expected s3://bucket/name",
        "s3://key:secret@bucket/x": "s3://bucket/x: holds credentials, which would be shown; leave them out",
        "s3://there-is-no-such-bucket/x": "there is no bucket there-is-no-such-bucket; make it, or correct its name",
        "hdfs://nowhere:8020/x": "hdfs://nowhere:8020: cannot be used (",
        "file://host/x": "names another machine; expected file:///path",
    }.items(),
)
@pytest.mark.parametrize("command", ["sweep", "verify", "metrics", "report", "verify --out", "sim", "reproduce"])
def test_a_place_that_cannot_work_is_one_line_at_once(
    command: str,
    text: str,
    said: str,
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "t.jsonl").write_text('{"run": "r", "kind": "start", "process": "p", "seq": 0}\n')
    arguments = {
        "sweep": ["sweep", "spec.toml", "--out", text],
        "verify --out": ["verify", "t.jsonl", "--out", text],
        "sim": ["sim", "skeen", "--messages", "5", "--out", text],
        "reproduce": ["reproduce", "--out", text],
    }
    assert run(arguments.get(command, [command, text])) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and "secret" not in err and not out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["spec.toml", "t.jsonl"], "nothing is written"


def test_credentials_in_a_uri_are_refused(server: str) -> None:
    with pytest.raises(UsageError, match=r"^s3://bucket/x: holds credentials") as caught:
        place_of("s3://key:secret@bucket/x")
    assert "secret@" not in str(caught.value)


def test_a_bucket_that_is_not_there(server: str) -> None:
    with pytest.raises(UsageError, match="there is no bucket none-such"):
        place_of("s3://none-such/x")


def test_a_store_that_does_not_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "s3://bucket/x?endpoint_override=127.0.0.1:1&scheme=http"]) == 2
    err = capsys.readouterr().err
    assert "cannot be reached (" in err and "; set AWS_ACCESS_KEY_ID" in err and err.count("\n") == 1


def test_an_object_store_has_the_names_of_a_folder(bucket: str, tmp_path: Path) -> None:
    place = place_of(f"{bucket}//a/b/".replace("s3://", "s3a://"))
    assert isinstance(place, Remote) and str(place) == f"{bucket}/a/b" and place.name == "b"
    assert str(place.with_suffix(".html")) == f"{bucket}/a/b.html" and place.parent.parent == place_of(bucket)
    assert not place.exists() and not place.is_dir() and list(place.iterdir()) == []
    (tmp_path / "x").write_bytes(b"one\ntwo")
    publish(tmp_path / "x", place / "c=1" / "x.csv")
    (place / "y").write_bytes(b"")
    assert place.is_dir() and not place.is_file() and (place / "y").is_file()
    assert {found.name for found in place.iterdir()} == {"c=1", "y"}
    assert [str(found.relative_to(place)) for found in place.rglob("*.csv")] == ["c=1/x.csv"]
    with (place / "c=1" / "x.csv").open("rb") as lines:
        assert list(lines) == [b"one\n", b"two"]
    remove_tree(place / "c=1")
    remove_tree(place / "y")
    assert not (place / "c=1").exists() and not (place / "y").exists()


def test_credentials_go_along_to_executors_and_are_in_no_text(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(bucket)
    sent = pickle.dumps(place)
    assert b"kept-secret" in sent and "secret" not in repr(place) + str(place)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert pickle.loads(sent) == place and os.environ["AWS_SECRET_ACCESS_KEY"] == "kept-secret"


# ---------------------------------------------------------------- the same everywhere


def test_a_sweep_and_its_verdicts_are_the_same_wherever_they_are(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In processes of this machine: no Spark is asked for."""
    monkeypatch.setattr("amcast.spark.sweep.is_asked_for", lambda master, settings: False)
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "file").mkdir()
    found = {}
    for base in (str(tmp_path / "plain"), (tmp_path / "file").as_uri(), bucket):
        out = f"{base}/sweep"
        for done_before in (0, 8):
            assert run(["sweep", str(tmp_path / "spec.toml"), "--out", out, "--json"]) == 0
            said = json.loads(capsys.readouterr().out)
            assert said["statuses"] == {"ok": 8} and said["done_before"] == done_before
        command = ["verify", f"{out}/trace", "--engine", "memory", "--out", f"{base}/said", "--json"]
        assert run(command) == 0
        said = json.loads(capsys.readouterr().out)
        kept = json.loads((place_of(f"{base}/said") / "verdicts.json").read_text())
        assert kept == said and len(said["digest"]) == 64
        found[base] = (content_of(out), said["verdicts"])
    plain, *others = found.values()
    assert plain[0][0] and plain[0][1] and all(other == plain for other in others)


@pytest.mark.slow
def test_tables_reports_and_verdicts_of_spark_are_the_same_in_a_store(
    spark: SparkSession, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    found = {}
    for base in (str(tmp_path / "plain"), bucket):
        out = f"{base}/sweep"
        assert run(["sweep", str(tmp_path / "spec.toml"), "--out", out]) == 0
        assert run(["verify", f"{out}/trace", "--engine", "spark", "--out", f"{base}/said"]) == 0
        verdicts = place_of(f"{base}/said") / "verdicts.json"
        assert run(["report", out, "--out", f"{base}/page.html", "--verdicts", str(verdicts)]) == 0
        assert "verified ok: 40 of 40 verdicts ok" in capsys.readouterr().out
        folder = place_of(f"{base}/page")
        tables = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix == ".csv"}
        assert {"sweep.csv", "latency.csv", "runs.csv"} <= tables.keys() and place_of(f"{base}/page.html").exists()
        tables.pop("sweep.csv")  # in which is the time on the wall
        found[base] = (json.loads(verdicts.read_text())["verdicts"], tables)
    plain, other = found.values()
    assert plain == other


def test_tables_in_a_store_are_replaced_only_with_force(bucket: str) -> None:
    table = pa.table({"run": ["r"]})
    folder = place_of(f"{bucket}/tables")
    save({"runs": table}, folder)
    with pytest.raises(UsageError, match="holds older tables; use --force"):
        save({"latency": table}, folder)
    save({"latency": table}, folder, force=True)
    assert {file.name for file in folder.iterdir()} == {"latency.parquet", "latency.csv", "_SUCCESS"}


def test_a_trace_of_text_and_a_simulation_can_be_in_a_store(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", "white_box", "--messages", "20", "--out", f"{bucket}/run"]) == 0
    assert run(["sim", "white_box", "--messages", "20", "--out", f"{bucket}/run"]) == 2
    assert "holds an older trace" in capsys.readouterr().err
    assert run(["sim", "white_box", "--messages", "20", "--out", f"{bucket}/run", "--force"]) == 0
    assert run(["verify", f"{bucket}/run"]) == 0
    lines = [{"run": "r", "kind": "multicast", "process": "c", "seq": 0, "message": "m", "sender": "c", "dest": ["g0"]}]
    delivery = {"run": "r", "kind": "deliver", "process": "p", "group": "g0", "message": "m"}
    lines += [{**delivery, "seq": seq} for seq in range(2)]
    place = place_of(f"{bucket}/t.jsonl")
    assert isinstance(place, Remote)
    place.write_bytes("\n".join(map(json.dumps, lines)).encode())
    capsys.readouterr()
    for engine in ("memory", "spark"):
        assert run(["verify", f"{bucket}/t.jsonl", "--engine", engine, "--out", f"{bucket}/said"]) == 1
        examples = pq.read_table(pa.BufferReader((place_of(f"{bucket}/said") / "counterexamples.parquet").read_bytes()))
        verdicts = pq.read_table(pa.BufferReader((place_of(f"{bucket}/said") / "verdicts.parquet").read_bytes()))
        assert set(examples["message"].to_pylist()) == {"m"} and "violated" in verdicts["status"].to_pylist()


# ---------------------------------------------------------------- commits


@pytest.mark.slow
def test_what_no_record_names_does_not_count_and_goes_at_the_end(bucket: str, tmp_path: Path) -> None:
    """Two attempts of each batch, one cut off before its record: the first by name counts, in any storage."""
    spec = spec_from(SPEC)
    batches = batches_of(spec.rows())
    for base in (place_of(bucket), tmp_path):
        out, other = base / "sweep", base / "other"
        for target in (out, other):
            for name, rows in batches.items():
                assert run_batch(name, configs_of(rows), Output(target)) is None
        # what a second attempt, and one that died before its record, leave: the same rows under other names
        for part in records_in(other):
            late = part[:-8] + ("00000000" if part.startswith("skeen") else "ffffffff")
            for file in (other / "trace").rglob(f"*{part}.parquet"):
                (tmp_path / "x").write_bytes(file.read_bytes())
                publish(tmp_path / "x", out / "trace" / file.parent.name / f"{late}.parquet")
            if part != records_in(other)[0]:
                (tmp_path / "x").write_bytes((other / "runs" / f"{part}.parquet").read_bytes())
                publish(tmp_path / "x", out / "runs" / f"{late}.parquet")
        (tmp_path / "x").write_text(json.dumps(spec.document()))
        for target in (out, other):
            (tmp_path / "y").write_bytes((tmp_path / "x").read_bytes())
            publish(tmp_path / "y", target / "spec.json")
        expected = content_of(str(other))
        assert content_of(str(out)) == expected, "nothing counts twice"
        counted = parts_that_count(out)
        finish(out, batches)
        assert parts_that_count(out) == counted == records_in(out)
        assert {file.stem for file in (out / "trace").rglob("*.parquet")} == set(counted), "and nothing is left"
        assert content_of(str(out)) == expected


def test_a_batch_whose_record_cannot_be_written_is_not_done(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_batch_is_not_done_without("runs", bucket, tmp_path, monkeypatch)


def test_a_batch_whose_trace_cannot_be_written_is_not_done(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_batch_is_not_done_without("kind=end", bucket, tmp_path, monkeypatch)


def a_batch_is_not_done_without(folder: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from amcast.spark import row

    real = row.publish

    def breaks(file: Path, to: sweep_module.Place) -> None:
        if to.parent.name == folder:
            raise OSError("the connection is gone")
        real(file, to)

    spec = spec_from(SPEC)
    (name, rows), *_ = batches_of(spec.rows()).items()
    for out in (place_of(bucket) / "s", tmp_path / "s"):
        monkeypatch.setattr(row, "publish", breaks)
        assert run_batch(name, configs_of(rows), Output(out)) == "the connection is gone"
        assert records_in(out) == [] and read_runs(out).num_rows == 0
        monkeypatch.setattr(row, "publish", real)
        assert run_batch(name, configs_of(rows), Output(out)) is None
        assert read_runs(out).num_rows == len(rows)


@pytest.mark.slow
def test_an_executor_that_dies_in_the_middle_changes_nothing(
    spark: SparkSession, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies_once(batches: Iterator[pa.RecordBatch], output: Output) -> Iterator[pa.RecordBatch]:
        """Runs in the workers of Spark: the first attempt at each task dies between the trace and its record."""
        from pyspark import TaskContext

        from amcast.spark import row

        task = TaskContext.get()
        real: Callable[..., None] = row.publish

        def deadly(file: Path, to: sweep_module.Place) -> None:
            if task is not None and task.attemptNumber() == 0 and to.parent.name == "runs":
                os._exit(9)
            real(file, to)

        row.publish = deadly
        try:
            yield from run_batches(batches, output)
        finally:
            row.publish = real

    spec = spec_from(SPEC)
    expected = sweep(spec, tmp_path / "expected")
    assert expected.statuses == {"ok": 8}
    monkeypatch.setattr(sweep_module, "run_batches", dies_once)
    for out in (place_of(bucket) / "s", tmp_path / "s"):
        sweep_module.prepare_sweep(out, spec, False)
        batches = batches_of(spec.rows())
        run_rows(spark, batches, Output(out), lambda: None)
        assert len(list((out / "trace").rglob("*.parquet"))) > 3 * len(batches), "what the dead ones wrote is there"
        assert content_of(str(out)) == content_of(str(tmp_path / "expected"))
        finish(out, batches)
        assert content_of(str(out)) == content_of(str(tmp_path / "expected"))


def test_rows_are_dealt_into_batches_by_the_specification_alone() -> None:
    rows = spec_from('protocol = "skeen"\nmessages = 5\nseeds = 1000').rows()
    batches = batches_of(rows)
    assert len(batches) == 334 and {row.run for of in batches.values() for row in of} == {row.run for row in rows}
    assert [len(batches_of(rows[:some])) for some in (1, 255, 256, 511, 512)] == [1, 255, 256, 511, 256]


# ---------------------------------------------------------------- a trace that changes


def test_a_trace_that_changes_while_it_is_read_is_one_line(
    spark: SparkSession, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base in (tmp_path, place_of(bucket)):
        trace = base / "run"
        assert run(["sim", "white_box", "--messages", "20", "--out", str(trace)]) == 0
        part = next(part for part in parts_of(trace, {}) if part.kind == "deliver")
        table = pq.read_table(pa.BufferReader(part.path.read_bytes()))
        sink = pa.BufferOutputStream()
        pq.write_table(table.slice(1), sink)
        part.path.write_bytes(bytes(sink.getvalue()))
        with pytest.raises(TraceError, match="was changed while the trace was read; expected one that is complete"):
            list(read_part(part, {}))
        old = [part]
        with monkeypatch.context() as patched:
            patched.setattr("amcast.spark.verify.parts_of", lambda *given, old=old: [*parts_of(*given)[:1], *old])
            with pytest.raises((TraceError, UsageError), match="was changed while the trace was read"):
                verify_trace(spark, str(trace))
