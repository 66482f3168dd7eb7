"""Verdicts in a file: they are believed only of the trace that was judged, and only if they can be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amcast.checks import ALWAYS, check
from amcast.checks.verdict_file import NO_TRACE, OTHER_TRACE, digest_of, read_verdicts
from amcast.cli import run
from amcast.errors import UsageError
from amcast.tracefile import read_events

GOOD = Path(__file__).parents[1] / "traces" / "good.jsonl"
OK = {"property": "order", "run": "r", "status": "ok", "evidence": {"deliveries": 4}}


def file_with(path: Path, *verdicts: Any, **other: Any) -> Path:
    path.write_text(json.dumps({"verdicts": list(verdicts), **other}))
    return path


def test_what_is_always_judged() -> None:
    judged = ("integrity", "validity", "order", "agreement", "termination")
    assert tuple(verdict.property for verdict in check(read_events(GOOD))) == ALWAYS == judged


def test_verdicts_are_of_what_was_judged_and_of_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "log.jsonl"
    trace.write_bytes(GOOD.read_bytes())
    assert run(["verify", str(trace), "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert run(["verify", str(trace), "--properties", "order", "--json"]) == 0
    (tmp_path / "order.json").write_text(capsys.readouterr().out)
    found, order = (read_verdicts(tmp_path / name, trace) for name in ("verdicts.json", "order.json"))
    assert (found.doubt, found.properties, tuple(found.asked), len(found.rows)) == ("", None, ALWAYS, 5)
    assert (order.doubt, order.properties, len(order.rows)) == ("", ["order"], 1)
    assert read_verdicts(tmp_path / "order.json", trace, {"node": "process"}).doubt == OTHER_TRACE
    assert read_verdicts(tmp_path / "order.json", None).doubt == OTHER_TRACE
    trace.write_text(trace.read_text().replace('"a"', '"A"'))
    assert read_verdicts(tmp_path / "order.json", trace).doubt == OTHER_TRACE
    assert read_verdicts(file_with(tmp_path / "old.json", OK), trace).doubt == NO_TRACE


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "kind=deliver/1.parquet").write_bytes(b"dq"),
    "a name": lambda folder: (folder / "kind=deliver/1.parquet").rename(folder / "kind=deliver/2.parquet"),
    "a kind": lambda folder: (folder / "kind=deliver").rename(folder / "kind=send"),
    "one more": lambda folder: (folder / "kind=deliver/2.parquet").write_bytes(b""),
    "one less": lambda folder: (folder / "kind=end/1.parquet").unlink(),
}
NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "verdicts in its folder": lambda folder: (folder / "verdicts.json").write_text("{}"),
    "what no engine reads": lambda folder: (folder / "kind=end/.1.parquet.crc").write_text("{}"),
    "another place": lambda folder: folder.rename(folder.with_name("copy")),
}


@pytest.mark.parametrize("what", [*CHANGES, *NO_CHANGES])
def test_the_digest_of_a_folder(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "trace"
    for kind in ("deliver", "end"):
        (folder / f"kind={kind}").mkdir(parents=True)
        (folder / f"kind={kind}" / "1.parquet").write_bytes(kind.encode())
    before = digest_of(folder)
    assert before is not None and before == digest_of(str(folder))
    (CHANGES | NO_CHANGES)[what](folder)
    assert (digest_of(next(tmp_path.iterdir())) == before) == (what in NO_CHANGES)


def test_what_is_not_here_has_no_digest(tmp_path: Path) -> None:
    assert digest_of(str(tmp_path / "none")) is None and digest_of(tmp_path / "none") is None


WRONG: dict[str, Any] = {
    "verdict 1 is not one": 1,
    "verdict 1 has no property": {},
    "verdict 1 has no run": {**OK, "run": 7},
    "verdict 1 has the status 'fine'": {**OK, "status": "fine"},
    "verdict 1 has a reason that is no text": {**OK, "reason": 5},
    "verdict 1 has a figure that is no table": {**OK, "figure": [1]},
    "verdict 1 has evidence that is no table of counts": {**OK, "evidence": {"deliveries": "x"}},
    "verdict 1 has evidence that is no table": {**OK, "evidence": 180},
    "verdict 1 has a counterexample that is no list of rows": {**OK, "counterexample": [1, 2]},
    "verdict 1 has a counterexample that is no list": {**OK, "counterexample": "abc"},
    "property 'nonsense' is unknown; expected one of integrity, ": {**OK, "property": "nonsense"},
}


@pytest.mark.parametrize("command", ["report", "view"])
@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_verdict_is_one_line(
    tmp_path: Path, command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(tmp_path / "v.json", WRONG[said])
    assert run([command, str(GOOD), "--verdicts", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and f"{file}: {said}" in err


def test_a_file_without_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "v.json"
    for text in ("", "[]", '{"verdicts": 1}', '{"verdicts": []}', "[" * 100_000):
        file.write_text(text)
        with pytest.raises(UsageError, match="holds no verdicts"):
            read_verdicts(file, GOOD)
    with pytest.raises(UsageError, match="properties are no list of names"):
        read_verdicts(file_with(file, OK, properties="order"), GOOD)
