"""The documents' commands and programs, run page by page in a folder of their own, in the order in which they stand.

`make test` runs the quick ones; `DOCS_ALL=1 pytest tests/docs/test_commands.py -s` all, for half an hour.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.test_site import PAGES, blocks
from tests.mutants import test_skeen

from amcast.lab.exploration import explore
from amcast.lab.scopes import scope_named

ALL = "DOCS_ALL" in os.environ
pytestmark = pytest.mark.timeout(7200 if ALL else 300)
LIMIT = 1800 if ALL else 60  # seconds for one command
# Not run here, and why.
ELSEWHERE = {
    "make": "a run of all tests, of the demo or of the site: they are runs of their own",
    "redis-cli": "not a part of amcast: tests/apps compares answers with those of Redis",
    "maelstrom": "not a part of amcast, and needs its own Java: tests/apps/test_maelstrom.py drives the same nodes",
    "exec": "a line of a script for maelstrom",
}
ENDLESS = ("kv", "view", "watch", "node")  # until Ctrl-C
EXCERPTS = ("docs/adding-a-protocol.md",)  # its programs are parts of the source
CODES = {"amcast verify ledger.csv": (1,)}
QUICK = (
    "amcast protocols", "amcast explore white_box --list",
    "amcast replay DIR/replay.json", "amcast replay DIR/replay.json --to 6 --state g0/0",
    "amcast replay DIR/replay.json --message c0:0", "amcast cluster init store --groups 3 --replicas 3",
)  # fmt: skip
PREPARED = {  # what a page takes from another one
    "docs/pipeline.md": ["amcast sim white_box --messages 500 --trace full --out run1", "CLUSTER store"],
    "docs/view.md": ["CLUSTER store"],
    "docs/spark.md": ["CLUSTER cluster", "amcast sim white_box --messages 100 --out traces"],
}


def steps(file: str) -> Iterator[tuple[str, str]]:
    """Kind and text: of a command to run, a program, a file to write."""
    for page, language, text in blocks():
        if page != file:
            continue
        if language == "python" and file not in EXCERPTS:
            yield "program", text
        elif language == "toml" and "protocol =" in text:
            yield "spec.toml", text
        elif language == "json" and "amcast schedule" in text:
            yield "here.json", text
        elif language == "csv":
            yield "ledger.csv", text
        elif language in ("", "console"):
            for line in re.sub(r"\\\n\s*", "", text).splitlines():
                command = re.split(r"\s{2,}|\s#", line.strip().removeprefix("$ "))[0]
                if re.match(r"(amcast|python|cut|redis-cli|maelstrom|exec|make|docker|kubectl) ", command):
                    yield "command", command


def pages() -> list[str]:
    return [file for file in PAGES if any(kind in ("command", "program") for kind, _ in steps(file))]


class Session:
    """A folder in which the commands of a page are run."""

    def __init__(self, folder: Path, file: str) -> None:
        self.folder = folder
        self.file = file
        self.clusters: list[str] = []
        self.ran: list[str] = []
        found = os.environ.get("PATH", "")
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{found}", "BROWSER": "true"}

    def start(self, words: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, command: str) -> None:
        program, *words = shlex.split(command)
        if program in ELSEWHERE:
            return
        began = time.monotonic()
        if words[:2] == ["cluster", "up"]:
            self.clusters.append(words[-1])
        process = self.start([sys.executable if program == "python" else program, *words])
        endless = program == "amcast" and words[0] in ENDLESS
        if endless:
            self.interrupt(process, command)
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        self.ran.append(command)
        print(f"{time.monotonic() - began:6.1f} s, {process.returncode}: {command}", flush=True)
        usual = (0, 130) if endless else (0,)
        expected = next((codes for start, codes in CODES.items() if command.startswith(start)), usual)
        assert process.returncode in expected, f"{self.file}: {command}: exit code {process.returncode}\n{output}"
        assert "Traceback" not in output, f"{self.file}: {command}\n{output}"

    def interrupt(self, process: "subprocess.Popen[str]", command: str) -> None:
        """Ctrl-C when it has said that it runs, and has run for a moment."""
        assert process.stdout is not None
        line = process.stdout.readline() if "watch" not in command and "node" not in command else ""
        time.sleep(45 if "watch" in command else 5)
        assert process.poll() is None, f"{self.file}: {command} ended: {line}{process.stdout.read()}"
        os.killpg(process.pid, signal.SIGINT)

    def program(self, text: str) -> None:
        if "spark." in text or "df." in text:
            text = (
                "from pyspark.sql import SparkSession\nspark = SparkSession.builder.master('local[1]').getOrCreate()\n"
                f"df = spark.createDataFrame([(['g0'], 'x')], 'dest array<string>, payload string')\n{text}\n"
            ) + ("print(logs.count())\n" if "logs =" in text else "")
        elif text.startswith("async with"):
            body = "\n".join(f"    {line}" for line in text.splitlines())
            text = f"import asyncio\nimport amcast\nasync def main():\n{body}\nasyncio.run(main())\n"
        (self.folder / "program.py").write_text(text, encoding="utf-8")
        self.run("python program.py")

    def cluster(self, name: str) -> None:
        self.run(f"amcast cluster init {name} --groups 3 --replicas 3")
        self.run(f"amcast cluster up -d {name}")

    def end(self) -> None:
        for name in self.clusters:
            subprocess.run(["amcast", "cluster", "down", "-d", name], cwd=self.folder, env=self.environment, check=True)


def violation(folder: Path) -> None:
    """What docs/explore.md replays: Skeen's protocol without its line 15."""
    table = test_skeen.table(next(mutant for mutant in test_skeen.MUTANTS if mutant.name == "clock_not_raised"))
    found = explore(table, scope_named(table, "small")).violation
    assert found is not None
    (folder / "DIR").mkdir()
    found.write(folder / "DIR" / "replay.json")


def prepare(session: Session) -> None:
    for what in PREPARED.get(session.file, []):
        if what.startswith("CLUSTER "):
            if ALL:
                session.cluster(what.split()[1])
        else:
            session.run(what)
    if session.file == "docs/explore.md":
        violation(session.folder)


@pytest.mark.parametrize("file", pages())
def test_what_a_page_says_can_be_done(file: str, tmp_path: Path) -> None:
    session = Session(tmp_path, file)
    found = list(steps(file))
    chosen = [(kind, text) for kind, text in found if kind in ("command", "program") and (ALL or text in QUICK)]
    if not chosen:
        pytest.skip("takes long: DOCS_ALL=1")
    for kind, text in found:
        if kind.startswith(("spec", "ledger", "here")):
            (tmp_path / kind).write_text(text, encoding="utf-8")
    try:
        prepare(session)
        for kind, text in chosen:
            if kind == "command":
                session.run(text)
            else:
                session.program(text)
    finally:
        session.end()


def test_nothing_is_left_out_without_a_reason() -> None:
    """Every command is amcast's, the shell's, or one of those that are not run here."""
    known = {"amcast", "python", "cut", *ELSEWHERE}
    for file in pages():
        assert {text.split()[0] for kind, text in steps(file) if kind == "command"} <= known, file
