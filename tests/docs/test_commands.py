"""The documents' commands and programs, run page by page in a folder of their own, in the order in which they stand.

`make test` runs the quick ones, `make docs-commands` all, for half an hour. Exit codes are those of CODES, or 0.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.docs.test_site import PAGES, ROOT, blocks
from tests.mutants import test_skeen
from tests.pace import allow, slowness, until
from tests.plugged import Plugged
from tests.tools import FULL

from amcast.errors import Rejected
from amcast.explorer.exploration import explore
from amcast.explorer.scopes import scope_named
from amcast.local.level import statuses_of, why_not_level
from amcast.runtime.config import ClusterConfig
from amcast.service import connect_sync, load

pytestmark = pytest.mark.timeout(7200 if FULL else 300)
LIMIT = 1800 if FULL else 60  # seconds for one command
# Not run here, and why.
ELSEWHERE = {
    "make": "a run of all tests, of the demo or of the site: they are runs of their own",
    "redis-cli": "not a part of amcast: tests/apps compares answers with those of Redis",
    "maelstrom": "not a part of amcast, and needs its own Java: tests/apps/test_maelstrom.py drives the same nodes",
    "exec": "a line of a script for maelstrom",
    "curl": "asks a service without end: so does tests/docs/test_examples.py",
}
ENDLESS = ("kv", "view", "watch", "node")  # until Ctrl-C
EXCERPTS = {  # pages of which Python is a part of a source, and the package that they install
    "docs/adding-a-protocol.md": "my_protocol",
    "docs/inventory.md": "inventory",
    "docs/exactly-once.md": "",
}
CODES = {
    "amcast verify ledger.csv": (1,),
    "amcast cluster trace": (3,),  # the nodes were stopped before it
    "amcast cluster status shop": (1,),  # one of them was killed
    "amcast explore white_box --scope large --states 100000": (4,),  # a part of the schedules
    "amcast explore white_box --scope large --walks 200": (4,),
    "amcast kv-user store alice": (2,),  # nobody to ask for a password
    "amcast explore sequencer --out found": (1,),  # it is broken there
    "amcast replay found/replay.json": (1,),
    "amcast swarm sequencer --adversary --out shrunk": (1,),
}
EVERYTHING = ("",)
SLOW = {  # beginnings of what `make test` leaves out of a page: Spark, thousands of messages, or done elsewhere already
    "docs/study.md": (
        "amcast claims", "amcast sim", "amcast verify", "amcast view", "amcast export", "amcast swarm", "amcast sweep",
        "amcast metrics", "amcast report", "amcast reproduce",
    ),
    "docs/kv.md": EVERYTHING,  # the same as in README.md
    "docs/cluster.md": EVERYTHING,  # tests/cli
    "docs/adding-a-protocol.md": EVERYTHING,  # tests/test_plugins.py
    "docs/pipeline.md": EVERYTHING,
    "docs/inventory.md": EVERYTHING,  # tests/docs/test_examples.py
    "docs/exactly-once.md": EVERYTHING,
    "docs/spark.md": EVERYTHING,
    "docs/other-systems.md": ("amcast metrics", "cut"),  # tests/spark/test_documents.py
    "docs/view.md": EVERYTHING,  # tests/web/test_view_document.py has them on a shorter run
    "docs/explore.md": ("amcast explore white_box --scope large --states",),  # tests/explorer
    "docs/optimistic.md": ("amcast sim", "amcast swarm", "amcast reproduce"),
}  # fmt: skip
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
        if language == "python" and (file not in EXCERPTS or text.startswith("import asyncio")):
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
                if re.match(r"(amcast|python|cut|sed|redis-cli|maelstrom|exec|make|docker|kubectl|curl) ", command):
                    yield "command", command


def to_run(file: str) -> list[tuple[str, str]]:
    """The commands and programs of a page that can be run here."""
    found = [(kind, text) for kind, text in steps(file) if kind in ("command", "program")]
    return [(kind, text) for kind, text in found if text.split()[0] not in ELSEWHERE]


def pages() -> list[str]:
    return [file for file in PAGES if to_run(file)]


def is_slow(file: str, text: str) -> bool:
    return text.startswith(SLOW.get(file, ()))


class Session:
    """A folder in which the commands of a page are run. What fails is kept, so that one run shows all of it."""

    def __init__(self, folder: Path, file: str) -> None:
        self.folder = folder
        self.file = file
        self.clusters: list[str] = []
        self.ran: list[str] = []
        self.failures: list[str] = []
        found = os.environ.get("PATH", "")
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{found}",
            "BROWSER": "true",
            "TTY_COMPATIBLE": "1",  # as in a terminal: watch shows what it sees while it runs
        }
        if file in EXCERPTS:  # which begins in a clone, with the installation of the example
            shutil.copytree(ROOT / "examples", folder / "examples")
            plugged = Plugged(folder / "plugged")
            if EXCERPTS[file]:
                plugged.install_example(folder / "examples" / EXCERPTS[file])
            self.environment["PYTHONPATH"] = plugged.pythonpath

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
        if words[:1] == ["kv"]:
            words = [*words[:2], "--port", "0"]  # Redis may have the usual one, or the test of another page
        if words[:1] == ["node"]:
            self.run_nodes(words)
        else:
            process = self.start([sys.executable if program == "python" else program, *words])
            if program == "amcast" and words[0] in ENDLESS:
                self.interrupt(process, command)
            self.judge(process, command)
        if words[:2] == ["cluster", "init"]:
            self.let_be_patient(words[2])
        if words[:2] == ["cluster", "up"]:
            self.multicast(words[-1])
        self.ran.append(command)
        print(f"{time.monotonic() - began:6.1f} s: {command}", flush=True)

    def let_be_patient(self, name: str) -> None:
        """Let members wait longer on a busy machine before they suspect each other: who is removed stops."""
        file = self.folder / name / "cluster.toml"
        text, count = re.subn(
            r"suspect_ms = (\d+)", lambda found: f"suspect_ms = {int(found[1]) * slowness():.0f}", file.read_text()
        )
        assert count == 1, f"{file}: {count} times suspect_ms"
        file.write_text(text)

    def judge(self, process: "subprocess.Popen[str]", command: str) -> None:
        """Wait for the end of a command; it has the exit code that it should have."""
        try:
            output, _ = process.communicate(timeout=allow(LIMIT))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        endless = command.removeprefix("amcast ").startswith(ENDLESS)
        expected = next((codes for start, codes in CODES.items() if command.startswith(start)), (0,))
        if process.returncode not in ((*expected, 130) if endless else expected) or "Traceback" in output:
            self.failures.append(f"{self.file}: {command}: exit code {process.returncode}\n{output}")

    def interrupt(self, process: "subprocess.Popen[str]", command: str) -> None:
        """Ctrl-C when it has said that it runs, and has run for a moment."""
        assert process.stdout is not None
        wanted = r"\S+/\d+ +[1-9]" if " watch " in command else ""  # a replica, and that it delivered something
        overdue = threading.Timer(allow(LIMIT), process.kill)
        overdue.start()
        lines = []
        for line in process.stdout:
            lines.append(line)
            if re.search(wanted, line):
                break
        overdue.cancel()
        time.sleep(1)
        assert process.poll() is None, f"{self.file}: {command} ended: {''.join(lines)}{process.stdout.read()}"
        os.killpg(process.pid, signal.SIGINT)

    def run_nodes(self, words: list[str]) -> None:
        """Instead of one node all of its cluster, as the page says; with something to deliver."""
        config = load(self.folder / words[1])
        self.stop(config.path.parent.name)
        commands = [["amcast", *words[:2], member.name, *words[3:]] for member in config.members]
        nodes = [self.start(command) for command in commands]
        for node in nodes:
            assert node.stdout is not None
            assert any("serving" in line for line in node.stdout), f"{self.file}: {words} ended"
        self.multicast(config.path.parent.name, trace=self.folder / words[words.index("--trace") + 1] / "me.jsonl")
        wait_for_rest(config)
        for node, command in zip(nodes, commands, strict=True):
            os.killpg(node.pid, signal.SIGINT)
            self.judge(node, " ".join(command))

    def multicast(self, name: str, trace: Path | None = None) -> None:
        """Something to be seen by what the page does with a cluster."""
        config = load(self.folder / name / "cluster.toml")
        groups = [f"g{g}" for g in config.groups]
        with connect_sync(config.path, "dev", deadline=allow(60), trace=trace) as client:
            for number in range(20):
                with suppress(Rejected):  # by an application that expects something else: delivered all the same
                    client.multicast(groups[: number % len(groups) + 1], b"%d" % number)

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
        self.run(f"amcast cluster up {name}")

    def end(self) -> None:
        for name in self.clusters:
            self.stop(name)

    def stop(self, name: str) -> None:
        subprocess.run(["amcast", "cluster", "down", name], cwd=self.folder, env=self.environment, check=True)


def wait_for_rest(config: ClusterConfig) -> None:
    assert until(lambda: not why_not_level(config.members, statuses_of(config)), 60)


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
            if FULL:
                session.cluster(what.split()[1])
        else:
            session.run(what)
    if session.file == "docs/explore.md":
        violation(session.folder)


@pytest.mark.parametrize("file", pages())
def test_what_a_page_says_can_be_done(
    file: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    session = Session(tmp_path, file)
    found = to_run(file)
    chosen = [(kind, text) for kind, text in found if FULL or not is_slow(file, text)]
    left_out = len(found) - len(chosen)
    said = f"{left_out} of {len(found)} commands and programs of {file} take long: make docs-commands"
    if not chosen:
        pytest.skip(said)
    if left_out:
        record_property("left out", said)
    for kind, text in steps(file):
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
    assert not session.failures, "\n".join(session.failures)
    assert len(session.ran) >= len(chosen)


def test_what_a_tutorial_shows_of_a_source_stands_there() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")]
    for file in EXCERPTS:
        shown = [text for page, language, text in blocks() if page == file and language == "python"]
        assert shown
        for text in shown:
            assert text.startswith("import asyncio") or any(text in source for source in sources), f"{file}: {text}"


def test_nothing_is_left_out_without_a_reason() -> None:
    """Every command is amcast's, the shell's, or one of those that are not run here; there are many, on many pages."""
    known = {"amcast", "python", "cut", "sed", *ELSEWHERE}
    found = {file: list(steps(file)) for file in PAGES}
    assert "README.md" in found and len(pages()) >= 9
    assert sum(len(to_run(file)) for file in pages()) >= 70
    for file, all_of_it in found.items():
        assert {text.split()[0] for kind, text in all_of_it if kind == "command"} <= known, file
    everything = [text for all_of_it in found.values() for _, text in all_of_it]
    for file, start in [(file, start) for file, starts in SLOW.items() for start in starts]:
        assert any(text.startswith(start) for _, text in found[file]), f"{start!r} is not on {file} any more"
    for start in CODES:
        assert any(text.startswith(start) for text in everything), f"{start!r} is on no page any more"
