"""What is wrong with a path is said before Spark starts, which takes seconds: one line, exit code 2."""

from pathlib import Path

import pytest
from calling import Amcast

import amcast.report.reproduce
import amcast.spark.session
import amcast.spark.sweep

MISTAKES = {
    # what is typed: what the line must say
    "verify nowhere --engine spark": "nowhere: does not exist",
    "verify EMPTY --engine spark": "there is no .parquet file in it",
    "verify nowhere --engine spark --columns node=process": "nowhere: does not exist",
    "verify good.jsonl --engine spark --out FILE": "FILE",
    "metrics nowhere": "nowhere: does not exist",
    "metrics nowhere.jsonl --columns node=process": "nowhere.jsonl: does not exist",
    "metrics FILE": "expected a Parquet folder or a .parquet, .jsonl or .csv file",
    "metrics good.jsonl --out FILE": "FILE",
    "report nowhere": "nowhere: does not exist",
    "report good.jsonl --verdicts nowhere.json": "nowhere.json",
    "report good.jsonl --out EMPTY": "EMPTY",
    "sweep nowhere.toml --out new": "nowhere.toml",
    "sweep spec.toml --out FILE": "FILE",
    "reproduce wb-fig99": "wb-fig99",
    "reproduce wb-fig8 --out FILE": "FILE",
    "watch nowhere": "nowhere: no such folder; expected a cluster, or a folder in which traces arrive",
    "watch nowhere.toml": "nowhere.toml: cannot be read",
    "watch EMPTY --once": "EMPTY: holds no trace",
    "watch EMPTY --checkpoint FILE": "FILE",
    "watch s3://bucket/x?endpoint_override=127.0.0.1:1&scheme=http": "cannot be reached",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("Spark was started")

    for module in (amcast.spark.session, amcast.spark.sweep, amcast.report.reproduce):
        monkeypatch.setattr(module, "open_session", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "good.jsonl").write_text('{"run": "r", "kind": "end", "process": "p", "group": null, "seq": 1}\n')
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nreplicas = 1\nmessages = 5\n')
    return tmp_path


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_wrong_path_is_one_line(amcast: Amcast, folder: Path, typed: str) -> None:
    done = amcast(*typed.split())
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("amcast: ") and done.err.count("\n") == 1 and MISTAKES[typed] in done.err


@pytest.mark.parametrize(
    "typed", ["verify good.jsonl --engine spark", "metrics good.jsonl", "sweep spec.toml --out new --master local[1]"]
)
def test_what_is_right_starts_spark(amcast: Amcast, folder: Path, typed: str) -> None:
    """Or the other test would show nothing."""
    with pytest.raises(AssertionError, match="Spark was started"):
        amcast(*typed.split())
