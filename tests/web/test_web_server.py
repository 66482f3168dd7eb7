"""The server of the page: loopback only, no other host, our files and nothing else."""

import json
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pages import TRACES, rows_in, rows_of, trace_page
from tests.pace import allow

from amcast.checks.verdict_file import NO_TRACE, OTHER_TRACE, Verdicts, digest_of, read_verdicts
from amcast.cli import run
from amcast.core.trace import Event
from amcast.web.view import KEPT, ShownTrace


def get(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=allow(20))
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_what_it_serves_and_what_not() -> None:
    with trace_page(rows_in("cycle3.jsonl")) as url:
        assert urlsplit(url).hostname == "127.0.0.1"
        for path in ("/", "/page.js", "/style.css", "/icon.svg", "/runs", "/data?run=cycle3", "/verdicts"):
            status, headers, body = get(url, path)
            assert status == 200 and body, path
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/nothing", "/../view.py", "/static/page.js", "//etc/passwd", "/%2e%2e/view.py"):
            assert get(url, path)[0] == 404, path
        assert get(url, "/data?run=other")[0] == 400
        assert get(url, "/", method="POST")[0] == 405


def test_a_name_of_somebody_else_that_leads_here_is_refused() -> None:
    """What DNS rebinding would need."""
    with trace_page(rows_in("cycle3.jsonl")) as url:
        port = urlsplit(url).port
        for host, status in ((f"127.0.0.1:{port}", 200), (f"localhost:{port}", 200), (f"evil.example:{port}", 421),
                             ("127.0.0.1", 421), ("", 421)):  # fmt: skip
            assert get(url, "/runs", Host=host)[0] == status, host


def test_verdicts_are_made_here_or_read(tmp_path: Path) -> None:
    shown = ShownTrace(Path("x"), rows_in("cycle3.jsonl"))
    assert [v["property"] for v in shown.verdicts(None) if v["status"] == "violated"] == ["order"]
    shown.judged_here = False
    ok = {"property": "fifo", "run": "cycle3", "status": "ok"}
    assert ShownTrace(Path("x"), shown.runs, Verdicts([{**ok, "run": "other"}])).verdicts("cycle3") == []
    file, trace = tmp_path / "verdicts.json", TRACES / "cycle3.jsonl"
    known = {"verdicts": [{**ok, "evidence": {"deliveries": 4}}], "digest": digest_of(trace)}
    for document, status, reason in (
        (known, "ok", None),
        ({**known, "digest": None}, "unknown", NO_TRACE),
        ({**known, "digest": digest_of(TRACES / "good.jsonl")}, "unknown", OTHER_TRACE),
    ):
        file.write_text(json.dumps(document))
        (found,) = ShownTrace(Path("x"), shown.runs, read_verdicts(file, trace)).verdicts("cycle3")
        assert (found["property"], found["status"], found.get("reason")) == ("fifo", status, reason)
    for evidence, status in ((None, "unknown"), ({"deliveries": 0}, "unknown"), ({"deliveries": 4}, "ok")):
        (found,) = ShownTrace(Path("x"), shown.runs, Verdicts([{**ok, "evidence": evidence}])).verdicts("cycle3")
        assert found["status"] == status and bool(found.get("rests_on")) == (status == "ok")


def test_few_prepared_runs_are_kept() -> None:
    shown = ShownTrace(Path("x"), rows_of([Event(f"r{number}", "crash", "p", "g", 1, 1) for number in range(9)]))
    assert all(shown.data(name) == shown.data(name) for name in shown.runs)
    assert len(shown._data) == KEPT < len(shown.runs)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "Missing argument 'TRACE|CLUSTER'"),
        (("x.toml", "--since", "1s"), "--since is for a trace"),
        (("x.jsonl",), "x.jsonl: does not exist"),
        (("x.toml",), "x.toml"),
        ((TRACES / "good.jsonl", "--since", "soon"), "time 'soon'"),
        ((TRACES / "good.jsonl", "--client", "127.0.0.1:9300"), "--client is for a cluster"),
        ((TRACES / "good.jsonl", "--verdicts", "x.json"), "x.json: cannot be read"),
        ((TRACES / "good.jsonl", "--verdicts", TRACES / "good.jsonl"), "good.jsonl: holds no verdicts"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[object, ...], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["view", *map(str, arguments)]) == 2
    assert complaint in (said := capsys.readouterr().err) and said.count("\n") == 1


def test_the_command_says_where_it_is_and_ends_in_order() -> None:
    command = [sys.executable, "-m", "amcast", "view", str(TRACES / "good.jsonl"), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        assert get(url, "/")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
