"""Turns what was found into verdicts: the rows of a few messages are fetched, and `amcast.checks` judges them.

So a verdict has the words and rows of these checks. Nothing is called violated unless they find it violated on these
rows alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amcast.checks import Verdict, check
from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.tracefile.parts import event_of
from amcast.verify.arrays import Bools
from amcast.verify.judgement import FoundOfRun

Choose = Callable[[pa.Table], Bools]  # which rows of a table are wanted
FetchRows = Callable[[Choose], Iterable[dict[str, Any]]]

_KINDS_OF_MESSAGES: Final = ("multicast", "deliver", "optdeliver")


def verdicts_of(found: Sequence[FoundOfRun], fetch: FetchRows) -> list[Verdict]:
    """Return the verdicts on these runs, in the order of their names. `fetch` reads chosen rows of the trace.

    Raises TraceError if a message is multicast in two ways.
    """
    suspects = {(of.run, message) for of in found for one in of.found for message in one.messages}
    suspects |= {(of.run, of.conflict) for of in found if of.conflict is not None}
    traffic = {(of.run, m) for of in found for one in of.found if one.property == "genuine" for m in one.messages}
    rows = _Rows(suspects, traffic, fetch)
    verdicts: list[Verdict] = []
    for of in sorted(found, key=lambda of: of.run):
        if of.conflict is not None:
            check(rows.about[of.run, of.conflict], ["integrity"])
            raise AssertionError(f"{of.conflict} is multicast twice, and is not")
        members = [Event(of.run, "start", process, group, 0) for process, group in of.members]
        for one in of.found:
            reason = one.reason
            example: tuple[Event, ...] = ()
            if one.status == "violated":
                about = [event for message in one.messages for event in rows.about[of.run, message]]
                about += rows.traffic[of.run] if one.property == "genuine" else []
                (shown,) = check([*members, *about, *rows.marks[of.run]], [one.property])
                assert shown.status == "violated", f"{one.property} of {of.run!r} is {shown.status} in {about}"
                reason, example = shown.reason, shown.counterexample
            verdicts.append(Verdict(one.property, of.run, one.status, reason, example, one.figure, one.evidence))
    return verdicts


class _Rows:
    """The rows about some messages, and the crashes, restarts and ends of their runs, always in the same order."""

    def __init__(self, suspects: set[tuple[str, str]], traffic: set[tuple[str, str]], fetch: FetchRows) -> None:
        self.about: dict[tuple[str, str], list[Event]] = defaultdict(list)
        self.traffic: dict[str, list[Event]] = defaultdict(list)
        self.marks: dict[str, list[Event]] = defaultdict(list)
        if not suspects:
            return
        events = map(event_of, fetch(_choice(suspects, traffic)))
        for event in sorted(events, key=lambda event: (event.run, event.process, event.seq, event.kind)):
            key = event.run, event.message or ""
            if event.kind in ("crash", "restart", "end"):
                self.marks[event.run].append(event)
            elif event.kind in ("send", "receive"):
                if any((event.run, name) in traffic for name in event.about or ()):
                    self.traffic[event.run].append(event)
            elif key in suspects:
                self.about[key].append(event)


def _choice(suspects: set[tuple[str, str]], traffic: set[tuple[str, str]]) -> Choose:
    """Return what chooses all rows that may be wanted, and few others."""
    runs = pa.array(sorted({run for run, _ in suspects}))
    names, about = (pa.array(sorted({name for _, name in pairs}), pa.string()) for pairs in (suspects, traffic))

    def choose(table: pa.Table) -> Bools:
        kind = table["kind"].cast(pa.string())
        is_mark = pc.is_in(kind, value_set=pa.array(["crash", "restart", "end"]))
        of_message = pc.is_in(kind, value_set=pa.array(_KINDS_OF_MESSAGES))
        wanted = pc.or_(is_mark, pc.and_(of_message, pc.is_in(table["message"], value_set=names)))
        chosen = pc.and_(wanted, pc.is_in(table["run"].cast(pa.string()), value_set=runs)).to_numpy()
        if len(about):
            lists = table["about"].combine_chunks()
            lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
            named = pc.is_in(lists.flatten(), value_set=about).to_numpy(zero_copy_only=False)
            chosen = np.array(chosen)
            chosen[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[named]] = True
        return np.asarray(chosen)

    return choose


def refused(path: str, error: TraceError) -> TraceError:
    """Return the error with the name of the trace, which one about a file has already."""
    return error if str(error).startswith(path) else TraceError(f"{path}: {error}")
