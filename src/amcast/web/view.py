"""The page about a trace: its runs, their columns and their verdicts. Each is made when it is first asked for."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from amcast.checks import check
from amcast.checks.verdict_file import Verdicts, evidence_in, read_verdicts
from amcast.web.columns import encode
from amcast.web.runs import RunRows, picture_of, read_runs, run_named
from amcast.web.server import BINARY, PageServer, Query, as_json, serve

KEPT: Final = 4  # prepared runs in memory


def view_trace(
    trace: Path,
    port: int = 0,
    *,
    since: int | None = None,
    until: int | None = None,
    verdicts: Path | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serve the page about a trace until SIGTERM or SIGINT."""
    runs = read_runs(trace, since, until)
    shown = ShownTrace(trace, runs, None if verdicts is None else read_verdicts(verdicts, trace))
    shown.judged_here = since is None and until is None
    shown.data(None)
    asyncio.run(serve(PageServer("index.html", shown.sources()), port, ready))


class ShownTrace:
    def __init__(self, trace: Path, runs: dict[str, RunRows], verdicts: Verdicts | None = None) -> None:
        self.trace = trace
        self.runs = runs
        self.judged_here = True  # a part of a trace cannot be judged: what is missing is not there
        self._given = verdicts
        self._data: dict[str, bytes] = {}
        self._verdicts: dict[str, list[dict[str, Any]]] = {}
        self._one_at_a_time = asyncio.Lock()

    def sources(self) -> dict[str, Any]:
        return {"/runs": self._send_runs, "/data": self._send_data, "/verdicts": self._send_verdicts}

    async def _send_runs(self, query: Query) -> tuple[str, bytes]:
        runs = [{"name": name, "events": len(rows.events)} for name, rows in self.runs.items()]
        return as_json({"trace": str(self.trace), "runs": runs})

    async def _send_data(self, query: Query) -> tuple[str, bytes]:
        async with self._one_at_a_time:
            return BINARY, await asyncio.to_thread(self.data, query.get("run"))

    async def _send_verdicts(self, query: Query) -> tuple[str, bytes]:
        async with self._one_at_a_time:
            return as_json(await asyncio.to_thread(self.verdicts, query.get("run")))

    def data(self, name: str | None) -> bytes:
        """Return the columns of a run."""
        rows = run_named(self.runs, name, self.trace)
        name = rows.events[0].run
        if name not in self._data:
            while len(self._data) >= KEPT:
                del self._data[next(iter(self._data))]
            self._data[name] = encode(picture_of(rows), str(self.trace))
        return self._data[name]

    def verdicts(self, name: str | None) -> list[dict[str, Any]]:
        """Return the verdicts on a run. The rows of counter-examples are given as process, seq and kind."""
        rows = run_named(self.runs, name, self.trace)
        name = rows.events[0].run
        if self._given is not None:
            given = self._given
            return [with_evidence(verdict, given.doubt) for verdict in given.rows if verdict["run"] == name]
        if not self.judged_here:
            return []
        if name not in self._verdicts:
            self._verdicts[name] = [with_evidence(verdict.as_dict()) for verdict in check(rows.events)]
        return self._verdicts[name]


def with_evidence(verdict: Mapping[str, Any], doubt: str = "") -> dict[str, Any]:
    """Add in words what a verdict rests on.

    An `ok` that rests on nothing, or on another trace, becomes `unknown`.
    """
    evidence = evidence_in(verdict)
    if verdict["status"] == "ok" and (doubt or not evidence):
        return {**verdict, "status": "unknown", "reason": doubt or "the file does not say what this verdict rests on"}
    return {**verdict, "rests_on": str(evidence)}
