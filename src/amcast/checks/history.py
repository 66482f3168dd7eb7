"""One run in compact form: names become small integers, the histories of processes become arrays.

A history is built once from the events, in any order, and shared by all checkers. Memory is about 20 bytes per delivery
and some hundred per message. `send` and `receive` rows are judged as they come (`Traffic`) and not kept. Rows for a
counter-example are rebuilt from the arrays.

The members of a group are the processes that appear with it in any row. A `start` row may say in its detail how many
there should be. A process is down at the end of the run if it has a `crash` row and no later `restart` row.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import lt
from typing import Any, Final

from amcast.checks.evidence import NOTHING, Evidence
from amcast.checks.verdict import Verdict
from amcast.core.trace import Event
from amcast.errors import TraceError

NOBODY: Final = -1
NOWHERE: Final = -1
NO_GROUP: Final = -1
_NO_TIME: Final = -(2**63)
MOST_MEMBERS: Final = 1_000_000
VERBS: Final = {"deliver": "delivered", "optdeliver": "optimistically delivered"}

Fault = tuple[str, tuple[Event, ...]]  # what is wrong, and the rows that show it


class EventLog:
    """The deliveries (or multicasts) of one process in the order of `seq`, as three parallel arrays."""

    __slots__ = ("messages", "seqs", "times")

    def __init__(self) -> None:
        self.messages = array("i")
        self.seqs = array("q")
        self.times = array("q")

    def append(self, message: int, seq: int, time: int | None) -> None:
        self.messages.append(message)
        self.seqs.append(seq)
        self.times.append(_NO_TIME if time is None else time)

    def sort(self) -> None:
        if not all(map(lt, self.seqs, islice(self.seqs, 1, None))):
            by_seq = sorted(range(len(self.seqs)), key=self.seqs.__getitem__)
            self.messages = array("i", [self.messages[index] for index in by_seq])
            self.times = array("q", [self.times[index] for index in by_seq])
            self.seqs = array("q", [self.seqs[index] for index in by_seq])

    def firsts(self) -> "array[int]":
        """Return the messages without repetitions. A second delivery is the business of integrity alone."""
        unique = dict.fromkeys(self.messages)
        return self.messages if len(unique) == len(self.messages) else array("i", unique)


class Traffic:
    """The `send` and `receive` rows, reduced to those that may show that a protocol is not genuine."""

    def __init__(self) -> None:
        self.rows = 0
        self.rows_about_messages = 0
        # The first row that involves a process with a message, where no earlier row shows that it may be involved.
        self.suspects: dict[tuple[int, int], Event] = {}
        # A process, a message and a row that break the rule whatever else the trace holds: one is enough.
        self.proof: tuple[int, int, Event] | None = None


class History:
    """One run. Processes, groups and messages are indices into `processes`, `groups` and `messages`."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.started = False  # there are start rows of members
        self.ended = False
        self.evidence = NOTHING

        self.processes: list[str] = []
        self.group_of: list[int] = []
        self.delivered: list[EventLog] = []
        self.optimistic: list[EventLog] = []
        self.multicast: list[EventLog] = []
        self.crash_seqs: list[list[int]] = []
        self.restart_seqs: list[list[int]] = []

        self.groups: list[str] = []
        self.members: list[list[int]] = []  # of each group
        self.sizes: list[int] = []  # of each group, as its start rows say; 0 where they do not
        self.addressed: list[array[int]] = []  # to each group: sender by sender, in the order of multicast

        self.messages: list[str] = []
        self.sender: list[int] = []  # NOBODY: never multicast
        self.dest: list[int] = []  # an index into dest_sets; NOWHERE: never multicast
        self.dest_sets: list[tuple[int, ...]] = []

        self.traffic = Traffic()

        self._process_index: dict[str, int] = {}
        self._group_index: dict[str, int] = {}
        self._message_index: dict[str, int] = {}
        self._dest_index: dict[tuple[str, ...], int] = {}
        self._again: dict[int, tuple[int, int | None]] = {}  # of messages that are multicast again: the lowest seq

    # -- reading events

    def add(self, event: Event) -> None:
        process = self._process_index.get(event.process)
        if process is None:
            process = self._process(event.process)
        if event.group is not None:
            self._join(process, event.group)
        kind = event.kind
        if kind == "deliver":
            self.delivered[process].append(self._message(event), event.seq, event.time)
        elif kind == "send" or kind == "receive":
            self._add_traffic(event, process)
        elif kind == "multicast":
            self._add_multicast(event, process)
        elif kind == "optdeliver":
            self.optimistic[process].append(self._message(event), event.seq, event.time)
        elif kind == "crash":
            self.crash_seqs[process].append(event.seq)
        elif kind == "restart":
            self.restart_seqs[process].append(event.seq)
        elif kind == "end":
            self.ended = True
        elif kind == "start" and event.group is not None:
            self.started = True
            group = self._group(event.group)
            self.sizes[group] = max(self.sizes[group], stated_members(event.detail))

    def finish(self) -> None:
        """Sort the rows of every process by `seq`, and collect members and messages by group."""
        self._take_first_multicasts()
        for process, name in enumerate(self.processes):
            logs = (self.delivered[process], self.optimistic[process], self.multicast[process])
            for log in logs:
                log.sort()
            marks = (self.crash_seqs[process], self.restart_seqs[process])
            _check_distinct(self.run, name, [*(log.seqs for log in logs), *marks])
            if self.group_of[process] != NO_GROUP:
                self.members[self.group_of[process]].append(process)
            for message in self.multicast[process].messages:
                for group in self.dest_sets[self.dest[message]]:
                    self.addressed[group].append(message)
        self.evidence = Evidence(
            runs=1,
            replicas=sum(
                bool(log.messages) and group != NO_GROUP
                for log, group in zip(self.delivered, self.group_of, strict=True)
            ),
            expected=sum(max(size, len(members)) for size, members in zip(self.sizes, self.members, strict=True)),
            multicasts=sum(len(log.messages) for log in self.multicast),
            deliveries=sum(len(log.messages) for log in self.delivered),
            faults=sum(map(len, self.crash_seqs)),
        )

    def _process(self, name: str) -> int:
        index = self._process_index.get(name)
        if index is None:
            index = self._process_index[name] = len(self.processes)
            self.processes.append(name)
            self.group_of.append(NO_GROUP)
            self.delivered.append(EventLog())
            self.optimistic.append(EventLog())
            self.multicast.append(EventLog())
            self.crash_seqs.append([])
            self.restart_seqs.append([])
        return index

    def _group(self, name: str) -> int:
        index = self._group_index.get(name)
        if index is None:
            index = self._group_index[name] = len(self.groups)
            self.groups.append(name)
            self.members.append([])
            self.sizes.append(0)
            self.addressed.append(array("i"))
        return index

    def _join(self, process: int, group: str) -> None:
        index = self._group_index.get(group)
        if index is None:
            index = self._group(group)
        known = self.group_of[process]
        if known == index:
            return
        if known != NO_GROUP:
            raise TraceError(
                f"run {self.run!r}: process {self.processes[process]!r} appears with the groups {self.groups[known]!r} "
                f"and {group!r}; expected one group per process; correct the rows"
            )
        self.group_of[process] = index

    def _message(self, event: Event) -> int:
        name = event.message
        index = None if name is None else self._message_index.get(name)
        if index is None:
            if name is None:
                raise TraceError(
                    f"run {self.run!r}: a {event.kind} row of process {event.process!r} (seq {event.seq}) names no "
                    f"message; expected the id of the message; fill it in"
                )
            index = self._new_message(name)
        return index

    def _new_message(self, name: str) -> int:
        index = self._message_index[name] = len(self.messages)
        self.messages.append(name)
        self.sender.append(NOBODY)
        self.dest.append(NOWHERE)
        return index

    def _add_multicast(self, event: Event, process: int) -> None:
        message = self._message(event)
        if event.dest is None:
            raise TraceError(
                f"run {self.run!r}: the multicast of {event.message!r} names no destination; expected its groups; "
                f"add them"
            )
        dest = self._dest(event.dest)
        if self.sender[message] == NOBODY:
            self.sender[message] = process
            self.dest[message] = dest
            self.multicast[process].append(message, event.seq, event.time)
        elif self.sender[message] != process or set(self.dest_sets[self.dest[message]]) != set(self.dest_sets[dest]):
            raise TraceError(
                f"run {self.run!r}: message {event.message!r} is multicast twice, "
                f"by {self.processes[self.sender[message]]!r} to {self.dest_names(message)} "
                f"and by {event.process!r} to {', '.join(event.dest)}; "
                f"expected ids that are unique in the run; rename one"
            )
        else:  # a re-send
            known = self._again.get(message)
            if known is None or event.seq < known[0]:
                self._again[message] = event.seq, event.time

    def _take_first_multicasts(self) -> None:
        """Let the row with the lowest `seq` count among a multicast and its re-sends, whatever their order."""
        for process in {self.sender[message] for message in self._again}:
            log = self.multicast[process]
            for index, message in enumerate(log.messages):
                seq, time = self._again.get(message, (log.seqs[index], None))
                if seq < log.seqs[index]:
                    log.seqs[index], log.times[index] = seq, _NO_TIME if time is None else time

    def _dest(self, names: tuple[str, ...]) -> int:
        index = self._dest_index.get(names)
        if index is None:
            index = self._dest_index[names] = len(self.dest_sets)
            self.dest_sets.append(tuple(dict.fromkeys(self._group(name) for name in names)))
        return index

    def _add_traffic(self, event: Event, process: int) -> None:
        traffic = self.traffic
        traffic.rows += 1
        if not event.about:
            return
        traffic.rows_about_messages += 1
        if traffic.proof is not None:
            return
        ends = (process,) if event.peer is None else (process, self._process(event.peer))
        for name in event.about:
            message = self._message_index.get(name)
            if message is None:
                message = self._new_message(name)
            for end in ends:
                if self.may_handle(end, message):
                    continue
                if self.sender[message] != NOBODY and self.group_of[end] != NO_GROUP:
                    traffic.proof = (end, message, event)
                traffic.suspects.setdefault((end, message), event)

    # -- questions

    def may_handle(self, process: int, message: int) -> bool:
        """Return whether a genuine protocol may involve the process in ordering the message, by the rows so far."""
        return self.sender[message] == process or self.is_addressed(message, self.group_of[process])

    def is_addressed(self, message: int, group: int) -> bool:
        dest = self.dest[message]
        return dest != NOWHERE and group in self.dest_sets[dest]

    def logs(self, kind: str) -> list[EventLog]:
        """Return what each process delivered, for good (`deliver`) or optimistically (`optdeliver`)."""
        return self.delivered if kind == "deliver" else self.optimistic

    def is_down(self, process: int) -> bool:
        """Return whether the process crashed and did not restart since."""
        crashes = self.crash_seqs[process]
        return bool(crashes) and max(crashes) > max(self.restart_seqs[process], default=_NO_TIME)

    def absent(self) -> str:
        """Say which processes that messages are addressed to are not in the trace; empty if all are there."""
        known = zip(self.groups, self.members, self.sizes, self.addressed, strict=True)
        return who_is_absent([(name, len(found), size) for name, found, size, sent in known if sent], self.started)

    def multicast_deliveries(self) -> int:
        """Count the deliveries of messages that somebody multicast. Each message counts once per process."""
        return sum(self.sender[message] != NOBODY for log in self.delivered for message in log.firsts())

    def addressed_deliveries(self) -> int:
        """Count the deliveries at processes that the message is addressed to, once per message and process."""
        logs = zip(self.delivered, self.group_of, strict=True)
        return sum(self.is_addressed(message, group) for log, group in logs for message in log.firsts())

    def nothing_to_compare(self) -> str:
        """Say why no delivery can be compared with a multicast."""
        if not self.evidence.deliveries:
            return NOTHING_DELIVERED
        return NOTHING_KNOWN if self.evidence.multicasts else NOTHING_MULTICAST

    # -- verdicts

    def ok(self, name: str, pairs: int = 0, figure: dict[str, int | float] | None = None) -> Verdict:
        return Verdict(name, self.run, "ok", figure=figure, evidence=replace(self.evidence, pairs=pairs))

    def violated(
        self, name: str, reason: str, rows: tuple[Event, ...], figure: dict[str, int | float] | None = None
    ) -> Verdict:
        return Verdict(name, self.run, "violated", reason, rows, figure, self.evidence)

    def unknown(self, name: str, reason: str) -> Verdict:
        return Verdict(name, self.run, "unknown", reason, evidence=self.evidence)

    # -- rows of a counter-example

    def deliver_row(self, process: int, message: int, kind: str = "deliver", nth: int = 0) -> Event:
        """Return the row of the nth delivery of this kind, counted from 0."""
        log = self.logs(kind)[process]
        index = -1
        for _ in range(nth + 1):
            index = log.messages.index(message, index + 1)
        return self._row(kind, log, index, process, message)

    def multicast_row(self, message: int) -> Event:
        sender = self.sender[message]
        log = self.multicast[sender]
        dest = tuple(self.dest_groups(message))
        return self._row("multicast", log, log.messages.index(message), sender, message, self.processes[sender], dest)

    def _row(self, kind: str, log: EventLog, index: int, process: int, message: int, *rest: Any) -> Event:
        time = None if log.times[index] == _NO_TIME else log.times[index]
        name, group = self.processes[process], self.group_name(process)
        return Event(self.run, kind, name, group, log.seqs[index], time, self.messages[message], *rest)

    def group_name(self, process: int) -> str | None:
        group = self.group_of[process]
        return None if group == NO_GROUP else self.groups[group]

    def dest_names(self, message: int) -> str:
        return ", ".join(self.dest_groups(message)) or "nobody"

    def dest_groups(self, message: int) -> list[str]:
        return [self.groups[group] for group in self.dest_sets[self.dest[message]]]


NOTHING_DELIVERED: Final = "nothing was delivered"
NOTHING_MULTICAST: Final = "nothing was multicast"
NOTHING_KNOWN: Final = "no message was both multicast and delivered where it is addressed to"
CUT_OFF: Final = "the run has no end row: it was cut off, and more might have been delivered"
SOLITARY: Final = (
    "every group has one process in the trace, and no start row says that there are no others; add one for each member"
)


def no_process_of(groups: Sequence[str]) -> str:
    return f"messages are addressed to {', '.join(groups)}, of which no process is in the trace"


def who_is_absent(addressed: Iterable[tuple[str, int, int]], started: bool) -> str:
    """Say which processes that messages are addressed to are not in the trace; empty if all are there.

    `addressed` are groups, each with how many of its members the trace has and how many it should have.
    """
    groups = sorted(addressed)
    if gone := [name for name, found, _ in groups if not found]:
        return no_process_of(gone)
    for name, found, size in groups:
        if found < size:
            return f"of {name} only {found} of {size} members are in the trace"
    if groups and not started and all(found == 1 for _, found, _ in groups):
        return SOLITARY
    return ""


def stated_members(detail: str | None) -> int:
    """Return how many members a start row gives its group in the detail `{"members": n}`; 0 if it gives none."""
    if not detail:
        return 0
    try:
        document = json.loads(detail)
    except (ValueError, RecursionError):
        return 0
    size = document.get("members") if isinstance(document, dict) else None
    return size if isinstance(size, int) and 0 < size <= MOST_MEMBERS else 0


def histories(events: Iterable[Event]) -> list[History]:
    """Return one history per run, in the order in which the runs first appear. Events may be interleaved."""
    runs: dict[str, History] = {}
    history = History("")
    current: str | None = None
    for event in events:
        if event.run != current:
            current = event.run
            if current not in runs:
                runs[current] = History(current)
            history = runs[current]
        history.add(event)
    for history in runs.values():
        history.finish()
    return list(runs.values())


def _check_distinct(run: str, process: str, seqs: list[Sequence[int]]) -> None:
    """Raise TraceError if two events of a process have one `seq`: their order would be a guess."""
    used = [of_kind for of_kind in seqs if len(of_kind)]
    if len(used) == 1 and all(map(lt, used[0], islice(used[0], 1, None))):
        return
    seen: set[int] = set()
    for seq in chain.from_iterable(used):
        if seq in seen:
            raise TraceError(
                f"run {run!r}: process {process!r} has two events with seq {seq}; expected seq to increase strictly at "
                f"each process; number its events again"
            )
        seen.add(seq)
