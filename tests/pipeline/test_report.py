"""A report is one page that needs nothing else, on a screen of any size and colour, and on paper."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amcast.cli import run

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


def test_the_page_of_a_sweep(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    sweep = tmp_path / "sweep"
    assert run(["sweep", str(tmp_path / "spec.toml"), "--out", str(sweep)]) == 0
    capsys.readouterr()
    assert run(["verify", str(sweep / "trace"), "--json"]) == 0
    (tmp_path / "sweep-verdicts.json").write_text(capsys.readouterr().out)
    before = sorted(sweep.rglob("*"))
    assert run(["report", str(sweep)]) == 0
    assert capsys.readouterr().err == ""

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
