"""`amcast watch` without Spark: what it reads is given, its judge, its verdicts and its exit code are the real ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from amcast.cli import run
from amcast.spark import session
from amcast.spark.stream import replicas, watch
from amcast.verify.online import as_text

Rows = list[dict[str, Any]]


def delivered(process: str, messages: Sequence[str], first: int = 0, **more: Any) -> Rows:
    """Rows of a process, for messages to its own group."""
    return [event("deliver", process, first + i, message=m, time=first + i + 1, **more) for i, m in enumerate(messages)]


def multicast(message: str, *dest: str, seq: int = 0) -> dict[str, Any]:
    return event("multicast", "c1", seq, message=message, dest=list(dest), group=None, time=1)


def event(kind: str, process: str, seq: int, **more: Any) -> dict[str, Any]:
    group = process.partition("/")[0]
    row = {"run": "r", "kind": kind, "process": process, "group": group, "seq": seq, "dest": [group], **more}
    return {name: row.get(name) for name in watch.COLUMNS}


class State:
    """A value in Spark's state store."""

    exists = False
    get: tuple[bytes, bytes]

    def update(self, value: tuple[bytes, bytes]) -> None:
        self.exists, self.get = True, value


def report(judge: watch.Judge, number: int, rows: Rows, states: dict[str, State]) -> watch.Report:
    """What the judge says of a micro-batch."""
    frame = pd.DataFrame(rows, columns=watch.COLUMNS)
    frame["dest"] = [as_text(dest) for dest in frame["dest"]]  # as `watch.start` sends it
    found = []
    for name, mine in frame.groupby("run", dropna=False):
        for said in judge((str(name),), iter([mine]), states.setdefault(str(name), State())):
            found += [SimpleNamespace(**record) for record in said.to_dict("records")]
    return watch.Report(number, found)


class Watched:
    """The command, with a stream that is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys
        self.states: dict[str, State] = {}  # of the checkpoint

    def __call__(
        self, *arguments: str | Path, batches: Sequence[Rows] = (), error: str = "", active: bool | None = None
    ) -> tuple[int, list[str]]:
        """Its exit code, and the lines that it printed. `active`: the query still runs when the command looks at it."""
        query = SimpleNamespace(
            isActive="--once" not in arguments if active is None else active,
            exception=lambda: error or None,
            stop=lambda: None,
        )

        @contextmanager
        def open_session(name: str, master: str | None, settings: dict[str, str]) -> Iterator[None]:
            yield None

        def start(rows: object, judge: watch.Judge, checkpoint: Path, seconds: float, tell: Any) -> object:
            for number, batch in enumerate(batches):
                tell(report(judge, number, batch, self.states))
            return query

        self._patch.setattr(session, "open_session", open_session)
        self._patch.setattr(watch, "from_cluster", lambda spark, options: None)
        self._patch.setattr(watch, "from_files", lambda spark, folder: None)
        self._patch.setattr(watch, "start", start)
        self._patch.setattr(watch, "refuse_unreachable", lambda spark, checkpoint: None)
        end = () if "--once" in arguments else ("--seconds", "0")
        code = run(["watch", *map(str, arguments), *end])
        said = self._capsys.readouterr()
        return code, [*said.out.splitlines(), *said.err.splitlines()]

    def answers(self, *positions: dict[str, int]) -> None:
        """What the replicas answer at the start, and at the end."""
        left = list(positions)
        self._patch.setattr(replicas, "positions", lambda config, client: left.pop(0) if len(left) > 1 else left[0])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Watched:
    return Watched(monkeypatch, capsys)
