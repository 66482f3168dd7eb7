"""The oracles of the whole-cluster simulation: what must never be, looked at from outside of what promises it.

Each raises Alarm, with the class that it is counted under and a sentence. The best of them is the journal: a checking
application wraps the real one at every replica, and a chain of hashes must be the same wherever and whenever a position
is applied. It sees loss, repetition, another order and another state at the first delivery that is wrong.

An alarm inside a node may be caught there, since nodes catch what applications raise. So the journal keeps it: whoever
runs the world looks at `Journal.alarms` after every turn.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import errorcode
from hashlib import blake2b
from struct import Struct
from typing import Final

import msgspec

from amcast.checks import check
from amcast.checks.serializable import Call, Judgement, check_history
from amcast.core.application import AllOrNothing, Delivery, StateMachine, state_in_pieces
from amcast.core.trace import Event
from amcast.errors import Alarm, UsageError
from amcast.runtime.node import Node

BEGINNING: Final = bytes(16)
CHANGED: Final = b"members"
HEAD: Final = Struct("<Q16s")  # of a snapshot: how many were applied, and the chain of them
SAFETY: Final = ("integrity", "validity", "order", "agreement")
LIVENESS: Final = (*SAFETY, "termination")
SEARCHED: Final = 20_000  # states, until it is not known whether an order explains a history
Machine = Callable[[int, int], StateMachine]


def digest(*parts: bytes) -> bytes:
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8))
        found.update(part)
    return found.digest()


@dataclass(frozen=True, slots=True)
class Applied:
    """What the first replica of a group found at a position."""

    process: str
    message: str
    payload: bytes  # its digest
    before: bytes  # the chain up to and with this delivery …
    after: bytes  # … and with its answer


class Journal:
    """What was applied in each group, by any replica in any of its lives."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []
        self.applied: dict[str, list[Applied]] = {}  # by group and position
        self.applications = 0
        self._states: dict[tuple[str, int], tuple[bytes, str]] = {}  # digests of snapshots, and whose they were

    def checked(self, process: str, group: str, machine: Machine, unapplied: Callable[[], int] = lambda: 0) -> Machine:
        """Return a factory of the application with a check around it, for a node of this group.

        `unapplied` says how much the node has handled that its application has not seen: none, at a snapshot.
        """

        def make(number: int, groups: int) -> StateMachine:
            return CheckedMachine(self, process, group, machine(number, groups), unapplied)

        return make

    def alarm(self, kind: str, reason: str) -> Alarm:
        """Return an alarm, for the caller to raise, and keep it for whoever runs the world."""
        found = Alarm(kind, reason)
        self.alarms.append(found)
        return found

    def take(self, process: str, delivery: Delivery, chain: bytes) -> tuple[Applied | None, bytes]:
        """Compare a delivery behind this chain with what others had there; return that, and the chain with it."""
        before = digest(chain, msgspec.msgpack.encode((delivery.ts, delivery.message, delivery.dest)), delivery.payload)
        return self._known(process, delivery, before), before

    def answered(self, process: str, delivery: Delivery, known: Applied | None, before: bytes, answer: bytes) -> bytes:
        """Compare an answer with that of others; return the chain with it."""
        self.applications += 1
        after = digest(before, answer)
        if known is None:
            found = Applied(process, delivery.message, digest(delivery.payload), before, after)
            self.applied[delivery.group].append(found)
        elif known.after != after:
            raise self.alarm(
                "answers differ",
                f"{delivery.group} position {delivery.position}: {process} answers {delivery.message} otherwise than "
                f"{known.process} did, after the same deliveries",
            )
        return after

    def _known(self, process: str, delivery: Delivery, before: bytes) -> Applied | None:
        rows = self.applied.setdefault(delivery.group, [])
        where = f"{delivery.group} position {delivery.position}"
        if delivery.position > len(rows):
            text = f"{where}: {process} applies {delivery.message}, and nobody has applied position {len(rows)}"
            raise self.alarm("wrong position", text)
        if delivery.position == len(rows):
            return None
        known = rows[delivery.position]
        if known.before != before:
            same = "after another past" if known.message == delivery.message else f"where {known.process} applied"
            other = f"as {known.process} did not" if known.message == delivery.message else known.message
            raise self.alarm("replicas differ", f"{where}: {process} applies {delivery.message} {same} {other}")
        return known

    def passed(self, process: str, group: str, position: int, chain: bytes) -> bytes:
        """Compare a change of members, which no application sees, with what others had there; return the chain."""
        after = digest(chain, CHANGED)
        rows = self.applied.setdefault(group, [])
        if position == len(rows):
            rows.append(Applied(process, f"change {position}", digest(CHANGED), chain, after))
        elif position > len(rows) or rows[position].after != after:
            text = f"{group} position {position}: {process} has a change of members, and others have not"
            raise self.alarm("replicas differ", text)
        return after

    def changes(self, group: str) -> tuple[str, ...]:
        """Return the changes of members in the order of a group."""
        return tuple([row.message for row in self.applied.get(group, []) if row.payload == digest(CHANGED)])

    def restored(self, process: str, group: str, count: int, chain: bytes) -> None:
        """Look at a snapshot that somebody goes on from: it must be the state of the group at its position."""
        rows = self.applied.get(group, [])
        known = rows[count - 1].after if 0 < count <= len(rows) else BEGINNING
        if count > len(rows) or chain != known:
            text = f"{group} position {count}: {process} starts from a state that the group never had"
            raise self.alarm("replicas differ", text)

    def looked_at(self, process: str, group: str, count: int, inner: bytes) -> None:
        """Compare a snapshot with those that others made after the same deliveries."""
        state = digest(inner)
        known, owner = self._states.setdefault((group, count), (state, process))
        if known != state:
            text = f"{group} position {count}: the snapshots of {owner} and {process} differ"
            raise self.alarm("replicas differ", text)

    def log(self, group: str) -> tuple[str, ...]:
        """Return the messages of a group in the order in which they were applied."""
        return tuple([row.message for row in self.applied.get(group, [])])


class CheckedMachine(AllOrNothing):
    """An application that counts and chains what it applies, and tells the journal. What raises counts as well."""

    def __init__(
        self, journal: Journal, process: str, group: str, inner: StateMachine, unapplied: Callable[[], int]
    ) -> None:
        self.inner = inner
        self.count = 0
        self._chain = BEGINNING
        self._journal = journal
        self._process = process
        self._group = group
        self._unapplied = unapplied

    def apply(self, delivery: Delivery) -> bytes:
        if (delivery.group, delivery.position) != (self._group, self.count):
            raise self._journal.alarm(
                "wrong position",
                f"{self._process} is told to apply {delivery.message} at {delivery.group} position "
                f"{delivery.position}, and it has applied {self.count} of {self._group}",
            )
        known, before = self._journal.take(self._process, delivery, self._chain)
        try:
            answer = self.inner.apply(delivery)
        except Exception as error:  # a position like any other, and the same everywhere
            self._answered(delivery, known, before, type(error).__name__.encode())
            raise
        self._answered(delivery, known, before, answer)
        return answer

    def pass_by(self, position: int) -> None:
        """Take note of a position that the application does not see."""
        if position != self.count:
            text = f"{self._process} passes position {position}, and it has applied {self.count} of {self._group}"
            raise self._journal.alarm("wrong position", text)
        self._chain = self._journal.passed(self._process, self._group, position, self._chain)
        self.count += 1

    def _answered(self, delivery: Delivery, known: Applied | None, before: bytes, answer: bytes) -> None:
        self._chain = self._journal.answered(self._process, delivery, known, before, answer)
        self.count += 1

    def snapshot(self) -> bytes:
        return b"".join(self.snapshot_parts())

    def snapshot_parts(self) -> Iterator[bytes]:
        left = self._unapplied()
        if left:
            text = f"{self._process} takes a snapshot at position {self.count} with {left} deliveries not yet applied"
            raise self._journal.alarm("not one cut", text)
        now = self.inner.snapshot()
        self._journal.looked_at(self._process, self._group, self.count, now)
        pieces = state_in_pieces(self.inner)
        yield HEAD.pack(self.count, self._chain)
        at, position = 0, self.count
        for piece in pieces:
            if now[at : at + len(piece)] != piece:
                raise self._changed(position)
            at += len(piece)
            yield piece
        if at != len(now):
            raise self._changed(position)

    def _changed(self, position: int) -> Alarm:
        text = f"{self._process} gives out a snapshot of position {position} that is not its state there any more"
        return self._journal.alarm("snapshot changes", text)

    def restore(self, state: bytes) -> None:
        self.count, self._chain = HEAD.unpack_from(state)
        inner = state[HEAD.size :]
        self.inner.restore(inner)
        self._journal.restored(self._process, self._group, self.count, self._chain)
        if self.inner.snapshot() != inner:
            text = f"{self._process} restores a snapshot at position {self.count}, and another one comes out"
            raise self._journal.alarm("snapshot changes", text)


# The end of a run


@dataclass(frozen=True, slots=True)
class Replica:
    """What is left of a replica when all is calm."""

    process: str
    group: str
    end: int  # of its ordered log
    count: int  # that its application has applied
    busy: str  # what it has not finished; empty if nothing
    state: bytes


def replica_of(node: Node, lost_some: bool = False) -> Replica:
    """Return what the oracles look at, of a node that runs a checked application.

    `lost_some`: a member of its group never comes back. It may be the only one that has rows for the trace of this one.
    """
    app = node.app.app if node.app is not None else None  # inside what executes it
    assert isinstance(app, CheckedMachine), f"{node.me.name} runs an application without a check around it"
    busy = "" if node.engine.process.idle() else "its protocol has something under way"
    busy = busy or ("something waits for its disk" if node.durability.unfinished else "")
    lacks = node.trace is not None and node.trace.lacks and not lost_some
    busy = busy or ("its trace is not complete" if lacks else "")
    return Replica(node.me.name, node.group_names[node.me.group], node.history.end, app.count, busy, app.snapshot())


def check_settled(replicas: Iterable[Replica]) -> None:
    """Alarm unless all replicas of each group are idle at the same position, with the same state."""
    groups: dict[str, list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(replica.group, []).append(replica)
        if replica.end != replica.count:
            text = f"the log of {replica.process} ends at {replica.end}, and it has applied {replica.count}"
            raise Alarm("wrong position", text)
    for group, members in groups.items():
        positions = {replica.process: replica.count for replica in members}
        busy = [f"{replica.process}: {replica.busy}" for replica in members if replica.busy]
        if len(set(positions.values())) > 1 or busy:
            where = ", ".join(f"{process} at {position}" for process, position in positions.items())
            raise Alarm("not settled", "; ".join([f"{group} in the calm: {where}", *busy]))
        first = members[0]
        for replica in members[1:]:
            if replica.state != first.state:
                text = f"{group} position {first.count}: the states of {first.process} and {replica.process} differ"
                raise Alarm("replicas differ", text)


def check_done(clients: Mapping[str, bool]) -> None:
    """Alarm unless all clients are done."""
    late = [name for name, done in clients.items() if not done]
    if late:
        raise Alarm("not settled", f"in the calm these clients are not done: {', '.join(late)}")


def check_acknowledged(journal: Journal, acknowledged: Mapping[str, Collection[str]]) -> None:
    """Alarm unless every acknowledged multicast, given with its groups, was applied in each of them."""
    logs = {group: set(journal.log(group)) for group in journal.applied}
    for message, groups in acknowledged.items():
        for group in groups:
            if message not in logs.get(group, ()):
                raise Alarm("lost write", f"{message} was acknowledged, and {group} has not applied it")


def check_refused(journal: Journal, payloads: Iterable[bytes]) -> None:
    """Alarm if a payload was applied that was refused. No two multicasts may have the same one."""
    applied = {row.payload: (group, row.message) for group, rows in journal.applied.items() for row in rows}
    for payload in payloads:
        if found := applied.get(digest(payload)):
            raise Alarm("refused and delivered", f"{found[1]} was refused, and {found[0]} applied it")


def check_calls(calls: Sequence[Call], *, by_group: bool = False) -> Judgement:
    """Alarm if no order explains what clients heard; return the judgement, which may be that it was too much."""
    judgement = check_history(calls, by_group=by_group, budget=SEARCHED)
    if judgement.status == "violated":
        raise Alarm(judgement.kind, str(judgement).partition(": ")[2])
    return judgement


def check_traces(events: Iterable[Event], *, calm: bool) -> None:
    """Alarm if the traces of all lives break a promise of atomic multicast; liveness only after a calm."""
    for verdict in check(events, LIVENESS if calm else SAFETY):
        if verdict.status == "violated":
            raise Alarm(f"{verdict.property} violated", verdict.reason)


# During a run


@dataclass(frozen=True, slots=True)
class Excuse:
    """A reason for which a node may stop, given by a fault that was injected: the class of the error and its number."""

    error: type[BaseException]
    errno: int | None = None

    def holds_for(self, error: BaseException) -> bool:
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, self.error) and self.errno in (None, getattr(seen, "errno", None)):
                return True
            seen = seen.__cause__
        return False


def check_ending(process: str, error: BaseException, excuses: Iterable[Excuse]) -> None:
    """Alarm if a node stopped for a reason that no fault explains. An alarm that it stopped for is raised again."""
    if isinstance(error, Alarm):
        raise error
    if not any(excuse.holds_for(error) for excuse in excuses):
        number = errorcode.get(error.errno or 0, "") if isinstance(error, OSError) else ""
        raise Alarm(f"stopped with {type(error).__name__} {number}".strip(), f"{process}: {error}") from error


def check_refusal(process: str, error: BaseException | None, named: Collection[str], untouched: bool) -> None:
    """Alarm unless a start with a wrong configuration was refused in one line that names it, and changed nothing."""
    if not isinstance(error, UsageError):
        raise Alarm("wrong start", f"{process} ended with {type(error).__name__}: {error}, expected a refusal")
    if "\n" in str(error) or not any(name in str(error) for name in named):
        raise Alarm("wrong start", f"{process}: {error}, expected one line that names {' or '.join(named)}")
    if not untouched:
        raise Alarm("wrong start", f"{process} was refused, and its data folder has changed")


def check_start(process: str, complaint: str) -> None:
    """Alarm if the shadow of a disk complains about what a node found on it."""
    if complaint:
        raise Alarm("forgot durable frames", f"{process}: {complaint}")


def check_handler(process: str, context: Mapping[str, object]) -> None:
    """Alarm at what reaches the exception handler of a process' loop."""
    error = context.get("exception")
    kind = type(error).__name__ if error is not None else "a message"
    raise Alarm(f"unhandled {kind}", f"{process}: {context.get('message')}: {error}")
