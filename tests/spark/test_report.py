"""A report is one page that needs nothing else, on a screen of any size and colour, and on paper."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.cli import run
from amcast.report.plots import recoveries
from tests.spark.page_cells import check_page

SPEC = """
    protocol = "white_box"
    groups = 2
    clients = [2, 6]
    messages = 60
    crashes = ["g0/0@20ms"]
    trace = "full"
"""
LOADS = {"src", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """Its elements, its text, and what it would have to fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.fetched: list[str] = []
        self.targets: set[str] = set()
        self.identifiers: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        for name, value in attrs:
            if name == "id":
                self.identifiers.append(str(value))
            if name == "href" and str(value).startswith("#"):
                self.targets.add(str(value)[1:])
            elif name == "href" or name in LOADS:
                self.fetched.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data


def swept(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str]:
    """Run a sweep and verify it; return its folder and the verdicts, which are beside it."""
    (folder / "spec.toml").write_text(SPEC)
    sweep = folder / "sweep"
    assert run(["sweep", str(folder / "spec.toml"), "--out", str(sweep)]) == 0
    capsys.readouterr()
    assert run(["verify", str(sweep / "trace"), "--json"]) == 0
    verdicts = capsys.readouterr().out
    (folder / "sweep-verdicts.json").write_text(verdicts)
    return sweep, verdicts


def test_the_page_of_a_sweep(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep, verdicts = swept(tmp_path, capsys)
    before = sorted(sweep.rglob("*"))
    assert run(["report", str(sweep)]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "verified ok: 12 of 12 verdicts ok" in out and "of 12 of 12 replicas" in out

    text = (tmp_path / "sweep-report.html").read_text()
    page = Page(text)
    assert page.fetched == [] and not {"script", "link", "img", "iframe"} & {*page.elements}
    assert not re.search(r"url\((?!#)|@import", text), "the style loads nothing either"
    assert page.targets <= {*page.identifiers} and len(page.identifiers) == len({*page.identifiers})
    assert page.elements.count("table") >= 5 and page.elements.count("svg") >= 4
    for part in ("prefers-color-scheme:dark", "@media print", 'name="viewport"', "<title>Sweep spec</title>"):
        assert part in text
    for part in ("termination", "g0/0 crashes", "Recovery", "p99, ms", "Latency over throughput", "AcceptAck"):
        assert part in page.text
    assert not re.search(r"\b(nan|None|null)\b", page.text)

    beside = {path.name for path in (tmp_path / "sweep-report").iterdir()}
    assert {"runs.csv", "latency.csv", "sweep.csv", "load_curve.png", "recovery.png"} <= beside
    assert sorted(sweep.rglob("*")) == before, "nothing is written into what the report is about"
    tables = {file.stem: rows_of(file) for file in (tmp_path / "sweep-report").glob("*.csv")}
    assert len(check_page(text, tables, json.loads(verdicts)["verdicts"]).tables) >= 6


@pytest.mark.slow
def test_verdicts_on_another_trace_are_not_shown(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, verdicts = swept(tmp_path, capsys)
    # They are not shown as if they were on this one, not even if it has as many deliveries.
    file = next((sweep / "trace" / "kind=deliver").glob("*.parquet"))
    rows = pq.ParquetFile(file).read()
    messages = rows["message"].to_pylist()
    swapped = pa.array([*reversed(messages[:2]), *messages[2:]], rows["message"].type)
    pq.write_table(rows.set_column(rows.column_names.index("message"), "message", swapped), file)
    assert run(["report", str(sweep)]) == 3
    out, err = capsys.readouterr()
    assert "these verdicts are of another trace: verify again" in err and "verified unknown: 0 of 12 verdicts" in out
    (tmp_path / "sweep-verdicts.json").write_text(verdicts.replace('"deliveries": ', '"deliveries": 1'))
    assert run(["report", str(sweep)]) == 3
    out, err = capsys.readouterr()
    assert "was judged on 1" in err and "(12 of 12 verdicts differ); verify this trace" in err
    assert "verified unknown: 0 of 12 verdicts ok" in out


def rows_of(file: Path) -> list[dict[str, Any]]:
    """A table as it is beside the page."""

    def value(cell: str) -> Any:
        for kind in (int, float):
            try:
                return kind(cell)
            except ValueError:
                pass
        return cell or None

    with file.open() as lines:
        return [{name: value(cell) for name, cell in row.items()} for row in csv.DictReader(lines)]


@pytest.mark.slow
def test_the_page_of_a_run_without_deliveries(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = '{"run": "r", "kind": "start", "process": "g0/0", "group": "g0", "seq": 0, "time": 0, "detail": DETAIL}\n'
    multicast = '"message": "a", "sender": "c0", "dest": ["g0"]'
    (tmp_path / "log.jsonl").write_text(
        start.replace("DETAIL", json.dumps('{"members": 3}'))
        + f'{{"run": "r", "kind": "multicast", "process": "c0", "group": null, "seq": 1, "time": 0, {multicast}}}\n'
        + '{"run": "r", "kind": "end", "process": "log", "group": null, "seq": 1, "time": 5}\n'
    )
    assert run(["report", str(tmp_path / "log.jsonl")]) == 3
    out, err = capsys.readouterr()
    assert err == "amcast: nothing was delivered\n" and "it shows 0 deliveries of 0 of 3 replicas; not verified" in out
    tables = {file.stem: rows_of(file) for file in (tmp_path / "log-report").glob("*.csv")}
    page = check_page((tmp_path / "log-report.html").read_text(), tables)
    assert page.notes == ["nothing was delivered"] and page.tiles["messages"].remark == "none delivered everywhere"


def test_what_a_trace_says_is_text_and_not_markup(spark: SparkSession, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&$x_1$"
    row = f'"process": "{evil}", "group": "{evil}", "message": "{evil}"'
    (tmp_path / "log.jsonl").write_text(
        f'{{"run": "r", "kind": "multicast", "seq": 1, "time": 0, {row}, "sender": "{evil}", "dest": ["{evil}"]}}\n'
        f'{{"run": "r", "kind": "deliver", "seq": 2, "time": 5000000, {row}}}\n'
    )
    assert run(["report", str(tmp_path / "log.jsonl")]) == 0
    text = (tmp_path / "log-report.html").read_text()
    assert "<script" not in text and "$x_1$" in Page(text).text


def test_a_name_with_a_backslash_is_drawn_as_it_is() -> None:
    picture = recoveries({r"run\1": [1.0, 2.0]})
    assert r'aria-label="run\1: 2 crashes, 1 to 2 ms."' in picture.svg


def test_a_report_replaces_nothing_but_a_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_text('{"run": "r", "kind": "end", "process": "p", "group": null, "seq": 1}\n')
    (tmp_path / "log-report.html").write_text("<h1>Thesis</h1>")
    for source in ("log.jsonl", "nothing"):
        assert run(["report", str(tmp_path / source)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "log-report.html"}
