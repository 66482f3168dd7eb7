"""Every exception that amcast raises on purpose, as one tree.

AmcastError                     exit code 1, unless it says another
├── UsageError                  yours: what was typed, called or configured cannot be used; exit code 2
│   ├── TopologyError           groups, replicas, processes or destinations that cannot be
│   └── TraceError              a trace that cannot be read or written
│       └── LineFault           what is wrong with a line, before anybody says which line it is
├── PeerError                   theirs: what another process sent, or who it is
│   ├── WireError               bytes that are not a message
│   ├── IdentityRefused         no certificate, or not that of the member who was expected
│   ├── RespError               bytes that are not a request of the Redis protocol
│   ├── CommandRefused          a command of the store that is answered with an error and changes nothing
│   └── WorkloadRefused         a request of Maelstrom that the workload does not execute
├── MulticastFailed             this multicast will not be delivered anywhere
│   └── Busy                    … because the cluster had no room for it until the deadline
├── Rejected                    the application did not execute this multicast, which has its place in the order
├── OutcomeUnknown              the deadline passed: this multicast may have been delivered, or may still be
├── AnswerGone                  this multicast was delivered before, and its answer is no longer kept
├── HistoryGone                 these rows of a group's log are no longer kept
├── LostMessages                messages are lost that a protocol without recovery cannot do without
├── ApplicationFailed           an application failed in a way that others may not: this replica must stop
├── StorageFailure              the disk refused a write: the node must stop
├── StorageCorrupt              what had been durable is damaged; starting again does not help, so exit code 2
├── ReplicasDiffer              replicas of a group did not apply the same: starting again does not help, so exit code 2
├── OutOfTime                   a row of a sweep took longer than it may
├── PropertyViolation           a property does not hold in a schedule that was explored
├── Anomaly                     no order of a history's calls explains every answer
├── SearchTooLong               whether there is such an order was not found out within the budget
├── Alarm                       an oracle of the whole-cluster simulation found what must not be
└── InvariantViolation          a protocol broke an invariant of its paper: a bug, never the user's fault
KeyboardInterrupt               Python's own: no `except Exception` may swallow it
└── SweepInterrupted            Ctrl-C in a sweep, with how much is done; exit code 130

Who catches `UsageError` shows its one line to whoever made the mistake. Who catches `PeerError` hangs up on that peer
and goes on. Nobody but the command line catches the others, unless it knows what to do about that one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar


class AmcastError(Exception):
    """Base of all errors that amcast raises on purpose."""

    exit_code: ClassVar[int] = 1  # of a command that ends with it


def meant(name: str, known: Collection[str], most: int = 1) -> str:
    """Return a hint, for the text of an error, at what somebody who wrote this name may have meant."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower().replace("-", "_"), list(known), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(known)}"


# Yours


class UsageError(AmcastError):
    """Input that cannot be used: says what was seen, what was expected and what to do."""

    exit_code = 2


class TopologyError(UsageError):
    """An impossible set of groups, replicas, clients or destinations."""


class TraceError(UsageError):
    """A trace that cannot be read, is malformed, or cannot be written."""


class LineFault(TraceError):
    """What is wrong with a line of a trace, without saying where it stands."""


# Theirs


class PeerError(AmcastError):
    """What another process sent or is cannot be accepted: the connection ends, this process goes on."""


class WireError(PeerError):
    """Bytes that do not decode to a message."""


class IdentityRefused(PeerError):
    """The peer has no certificate, or not one of a member that was expected here."""


class RespError(PeerError):
    """Bytes that are not a request of the Redis protocol: the connection is beyond repair."""


class CommandRefused(PeerError):
    """A command of the store that is answered with this error and changes nothing."""


class WorkloadRefused(PeerError):
    """A request that this Maelstrom workload does not execute; `code` is Maelstrom's for the reason."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# What became of a multicast, of a log, of a disk


class MulticastFailed(AmcastError):
    """The multicast is not delivered and will not be."""


class Busy(MulticastFailed):
    """Those who were asked had no room for the multicast until its deadline: it is not delivered and will not be."""


class Rejected(AmcastError):
    """The application of a group did not execute this multicast, and its state is as it was.

    Raised by an application, it says why. A client finds the reasons, and the answers of groups that did execute it,
    by the names of groups; `message` is the id under which it was delivered.
    """

    def __init__(
        self,
        text: str,
        message: str | None = None,
        reasons: Mapping[str, str] | None = None,
        answers: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__(text)
        self.message = message
        self.reasons = dict(reasons or {})
        self.answers = dict(answers or {})


class OutcomeUnknown(AmcastError):
    """Nobody answered by the deadline: the multicast may have been delivered, or may be later.

    `message` is the id under which it is or would be delivered; None if it was not sent.
    """

    def __init__(self, text: str, message: str | None = None) -> None:
        super().__init__(text)
        self.message = message


class AnswerGone(AmcastError):
    """The multicast was delivered, long ago or for an earlier client of its session; its answer is no longer kept.

    `message` is its id.
    """

    def __init__(self, text: str, message: str) -> None:
        super().__init__(text)
        self.message = message


class HistoryGone(AmcastError):
    """The rows asked for are no longer kept."""


class LostMessages(AmcastError):
    """Messages are lost that a protocol without recovery cannot do without: the node must stop."""


class ApplicationFailed(AmcastError):
    """An application failed in a way that other replicas may not: this one must stop, or it would differ from them."""


class StorageFailure(AmcastError):
    """The disk refused a write: what was not yet durable is lost, and the node must stop."""


class StorageCorrupt(AmcastError):
    """Data that had been durable is damaged: starting again does not help."""

    exit_code = 2


class ReplicasDiffer(AmcastError):
    """This replica did not apply what the others of its group did, or nobody can say which of them is right."""

    exit_code = 2


class OutOfTime(AmcastError):
    """A row of a sweep took longer than it may."""


# What was found out about a protocol


class PropertyViolation(AmcastError):
    """A property does not hold in a schedule."""

    def __init__(self, property: str, problem: str) -> None:
        super().__init__(f"{property}: {problem}")
        self.property = property
        self.problem = problem


class Anomaly(AmcastError):
    """A history that no order of its calls explains; `kind` is the usual name, `calls` are those that show it."""

    def __init__(self, kind: str, reason: str, calls: Iterable[object] = ()) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason
        self.calls = tuple(dict.fromkeys(calls))


class SearchTooLong(AmcastError):
    """The budget of a search was spent before it found something out."""


class Alarm(AmcastError):
    """What must not happen in a cluster happened in a simulated one; `kind` is the class that it is counted under."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason


class InvariantViolation(AmcastError):
    """A numbered invariant of a paper does not hold in a run."""


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C in a sweep: says how much is done."""

    def __init__(self, done: int, rows: int) -> None:
        super().__init__(f"{done} of {rows} rows are done")
        self.done = done
        self.rows = rows
