"""What an application sees: deliveries in order; and what it must offer to be replicated."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol, runtime_checkable

from amcast.core.order import group_of, time_of
from amcast.core.topology import Topology, sender_of, seq_of
from amcast.core.wire import AppMessage
from amcast.errors import UsageError


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message in the ordered log of a group."""

    group: str
    position: int  # in the group's log, from 0, without gaps
    ts: tuple[int, str]  # the place in the one total order over all groups
    message: str  # unique: the sender's name, a colon, a number
    sender: str
    dest: tuple[str, ...]
    payload: bytes


def place(topology: Topology, ts: int, index: int) -> tuple[int, str]:
    """Return the place of a message in the total order: messages that travelled as one share a timestamp."""
    tie = topology.group_name(group_of(ts))
    return time_of(ts), f"{tie}+{index:04}" if index else tie


def delivery(topology: Topology, group: str, position: int, ts: int, index: int, m: AppMessage) -> Delivery:
    sender = topology.name(sender_of(m.mid))
    dest = tuple([topology.group_name(g) for g in m.dest])
    message = f"{sender}:{seq_of(m.mid)}"
    return Delivery(group, position, place(topology, ts, index), message, sender, dest, m.payload)


class StateMachine(Protocol):
    """A deterministic application: the same deliveries give the same state and the same answers at every replica.

    So it uses no clock, no randomness and nothing else that differs between replicas; times travel in payloads.
    """

    def apply(self, delivery: Delivery) -> bytes:
        """Execute one message; return the answer for its sender, as this group's part of the result.

        An exception is an answer, too: the sender is told that the message was rejected, and nothing is changed. It
        must come from the message and the state alone. MemoryError, OSError and the like stop this replica.
        """
        ...

    def snapshot(self) -> bytes:
        """Return the whole state: in the same bytes wherever it is the same, for `cluster verify` compares them."""
        ...

    def restore(self, state: bytes) -> None:
        """Go on from a snapshot."""
        ...


@runtime_checkable
class InPieces(Protocol):
    """An application with a large state, which is written to disk while other messages are executed."""

    def snapshot_parts(self) -> Iterator[bytes]:
        """Yield the state in pieces, which together are what `restore` takes.

        It is the state at the time of the call, and up to the first piece nothing else happens. The others are taken
        later, in another thread: what is executed meanwhile must not change them.
        """
        ...


def state_in_pieces(app: StateMachine) -> Iterator[bytes]:
    """Return the state of an application at this moment, in the pieces that it wants to make of it."""
    if not isinstance(app, InPieces):
        return iter([app.snapshot()])
    pieces = app.snapshot_parts()
    first = next(pieces, b"")  # here: what a generator does before its first piece is not done when it is called
    return chain([first], pieces)


APP_PATH: Final = re.compile(r"(?=.{3,200}$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
Factory = Callable[[int, int], StateMachine]  # from a group's number and the number of groups


def made(factory: Factory, name: str, group: int, groups: int) -> StateMachine:
    """Return the state machine of a group. Raises UsageError, with the application's name, for what is none."""
    where = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', repr(factory))}"
    try:
        app = factory(group, groups)
    except (Exception, SystemExit) as error:  # whatever somebody else's code does
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"application {name}: {where}({group}, {groups}) failed: {why}; correct it") from error
    found: object = app  # whatever was promised
    lacks = [method for method in ("apply", "snapshot", "restore") if not callable(getattr(found, method, None))]
    if lacks or isinstance(found, type):
        what = "None" if found is None else f"a {type(found).__name__} without {', '.join(lacks)}"
        if isinstance(found, type):
            what = f"the class {found.__name__} itself"
        raise UsageError(
            f"application {name}: {where}({group}, {groups}) returned {what}; "
            "expected an object with apply, snapshot and restore"
        )
    version: object = getattr(found, "version", 1)
    if type(version) is not int or version < 1:
        raise UsageError(f"application {name}: version {version!r} of {where}: expected a whole number from 1 on")
    return app


def version_of(app: StateMachine) -> int:
    """Return the newest version of its rules that an application knows."""
    version: int = getattr(app, "version", 1)
    return version


@dataclass(frozen=True, kw_only=True)
class Application:
    """A row of the table of applications: what a cluster's file may name."""

    name: str
    title: str
    machine: Factory | None  # None: only the log


class Versioned(Protocol):
    """What an application may offer besides, when its rules or the form of its state change.

    `version` is the newest that this code knows. While not all replicas of the cluster know it, or when messages from
    before are executed again, amcast sets the attribute of the object to an older one: then `apply`, `snapshot` and
    `restore` do as that version did. When all know it, all change at one position of the order: the state of the old
    version goes through `migrate`, and the result through `restore` with the new one.
    """

    version: int

    def migrate(self, old: int, state: bytes) -> bytes:
        """Return a snapshot of an older version as one of `version` is. Without this method it stays as it is."""
        ...


@runtime_checkable
class Queried(Protocol):
    """An application that answers questions from its state, without a place in the order (`client.read`)."""

    def query(self, request: bytes) -> bytes:
        """Answer, and change nothing. An exception is an answer, too: the read is rejected."""
        ...


@runtime_checkable
class Spread(Protocol):
    """An application whose state can go to another number of groups, when a cluster is founded from a backup."""

    def spread(self, states: list[bytes], groups: int) -> list[bytes]:
        """Return the states of so many groups that hold what these held, the states of all groups at one place."""
        ...


class AllOrNothing:
    """Inherited by a state machine whose `apply` raises only before it has changed anything.

    So nothing has to be undone, and no copy of its state is kept for that.
    """


class Dated:
    """Inherited by a state machine whose payloads state the time, and that goes by it.

    A replica does not take a request of a client whose time is far ahead of its own clock. What is delivered was taken,
    and nobody judges its time again: replicas have different clocks, and must do the same.
    """

    def stated_ms(self, payload: bytes) -> int:
        """Return the time that a payload states, in milliseconds since 1970; 0 if it states none."""
        raise NotImplementedError


class Archiving:
    """Inherited by a state machine whose readers follow the log: even without durability it is kept on disk."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A message that was executed before its place in the order was known."""

    delivery: Delivery
    before: bytes  # the state before it
    answer: bytes


class Speculator:
    """Runs a state machine ahead of the order.

    What is delivered optimistically is executed at once, on a state that is kept until the order is known. If the order
    turns out otherwise, it is undone and executed again.
    """

    def __init__(self, app: StateMachine) -> None:
        self.app = app
        self.guesses: list[Guess] = []
        self.confirmed = 0  # deliveries that were executed before, in the right order
        self.rollbacks = 0
        self.executed_again = 0

    def optimistic(self, delivery: Delivery) -> bytes:
        """Execute a message before its place is known; return an answer, which holds if the guess is right."""
        before = self.app.snapshot()
        answer = self.app.apply(delivery)
        self.guesses.append(Guess(delivery, before, answer))
        return answer

    def apply(self, delivery: Delivery) -> bytes:
        """Execute a message whose place in the order is known, unless it was guessed right before."""
        guesses = self.guesses
        if guesses and guesses[0].delivery.message == delivery.message:
            self.confirmed += 1
            return guesses.pop(0).answer
        if not guesses:
            return self.app.apply(delivery)
        self.rollbacks += 1
        self.app.restore(guesses[0].before)
        answer = self.app.apply(delivery)
        self.guesses = []
        for guess in guesses:
            if guess.delivery.message != delivery.message:
                self.executed_again += 1
                self.optimistic(guess.delivery)
        return answer

    def undo(self, message: str) -> None:
        """Take back what was executed of a message that will never be delivered."""
        for place, guess in enumerate(self.guesses):
            if guess.delivery.message == message:
                later = self.guesses[place + 1 :]
                self.rollbacks += 1
                self.app.restore(guess.before)
                del self.guesses[place:]
                for other in later:
                    self.executed_again += 1
                    self.optimistic(other.delivery)
                return

    def snapshot(self) -> bytes:
        """Return the state that is certain."""
        return self.guesses[0].before if self.guesses else self.app.snapshot()

    def restore(self, state: bytes) -> None:
        self.guesses = []
        self.app.restore(state)
