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
│   ├── Busy                    … because the cluster had no room for it until the deadline
│   └── SlotsMoved              … because the store has moved slots since it was routed; a gateway sends it again
├── Rejected                    the application did not execute this multicast, which has its place in the order
├── OutcomeUnknown              the deadline passed: this multicast may have been delivered, or may still be
├── AnswerGone                  this multicast was delivered before, and its answer is no longer kept
├── Refused                     a cluster does not do this: asking again, or somebody else, does not help
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
    """Base of all errors that amcast raises on purpose.

    What to do: read its line; which of the errors below it is says more.
    """

    exit_code: ClassVar[int] = 1  # of a command that ends with it


def meant(name: str, known: Collection[str], most: int = 1) -> str:
    """Return a hint, for the text of an error, at what somebody who wrote this name may have meant."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower().replace("-", "_"), list(known), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(known)}"


# Yours


class UsageError(AmcastError):
    """Input that cannot be used: says what was seen, what was expected and what to do.

    What to do: correct what the line names, and run the command again. Nothing was changed.
    """

    exit_code = 2


class TopologyError(UsageError):
    """An impossible set of groups, replicas, clients or destinations.

    What to do: choose numbers and names that fit together; the line says which do not.
    """


class TraceError(UsageError):
    """A trace that cannot be read, is malformed, or cannot be written.

    What to do: give a trace as docs/results.md describes it, with `--columns` if its columns have other names, or
    another `--out`.
    """


class LineFault(TraceError):
    """What is wrong with a line of a trace, without saying where it stands.

    What to do: correct or remove the line of the trace that it names.
    """


# Theirs


class PeerError(AmcastError):
    """What another process sent or is cannot be accepted: the connection ends, this process goes on.

    What to do: nothing, unless it comes again and again in a node's log: then see who dials that port.
    """


class WireError(PeerError):
    """Bytes that do not decode to a message.

    What to do: see that both sides are of the same version; the log says who sent it.
    """


class IdentityRefused(PeerError):
    """The peer has no certificate, or not one of a member that was expected here.

    What to do: renew the certificate (`amcast certs`), or name its owner in every `cluster.toml`.
    """


class RespError(PeerError):
    """Bytes that are not a request of the Redis protocol: the connection is beyond repair.

    What to do: point a Redis client, and nothing else, at the port of `amcast kv`.
    """


class CommandRefused(PeerError):
    """A command of the store that is answered with this error and changes nothing.

    What to do: correct the command; Redis would have answered the same.
    """


class WorkloadRefused(PeerError):
    """A request that this Maelstrom workload does not execute; `code` is Maelstrom's for the reason.

    What to do: give the node the workload that Maelstrom runs.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# What became of a multicast, of a log, of a disk


class MulticastFailed(AmcastError):
    """The multicast is not delivered and will not be.

    What to do: bring back the group that the line names, and multicast again: it cannot be delivered twice.
    """


class Busy(MulticastFailed):
    """Those who were asked had no room for the multicast until its deadline: it is not delivered and will not be.

    What to do: multicast less at a time, or wait and multicast again; `/status` of the nodes says what they are
    short of.
    """


class SlotsMoved(MulticastFailed):
    """Slots of the store have moved since this was routed: nothing was executed, and the newer map is known.

    What to do: nothing, a gateway sends it again by itself. A program that asks the groups of the store without a
    gateway routes it anew.
    """


class Rejected(AmcastError):
    """The application of a group did not execute this multicast, and its state is as it was.

    Raised by an application, it says why. A client finds the reasons, and the answers of groups that did execute it,
    by the names of groups; `message` is the id under which it was delivered.

    What to do: see `reasons`: the request is at fault, or the application. Other groups may have executed it
    (`answers`).
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

    What to do: look whether the message with that id was delivered, or let a named `session` send it again: it is
    executed once.
    """

    def __init__(self, text: str, message: str | None = None) -> None:
        super().__init__(text)
        self.message = message


class AnswerGone(AmcastError):
    """The multicast was delivered, long ago or for an earlier client of its session; its answer is no longer kept.

    `message` is its id.

    What to do: read the state instead; do not send it as a new message, for it was executed.
    """

    def __init__(self, text: str, message: str) -> None:
        super().__init__(text)
        self.message = message


class Refused(AmcastError):
    """What was asked for is refused for good, by the replica that decides it.

    What to do: ask for what the line says is possible; the same would be refused again.
    """


class HistoryGone(AmcastError):
    """The rows asked for are no longer kept.

    What to do: start at a later position, or at `"earliest"`; in Spark with `on_loss=earliest`.
    """


class LostMessages(AmcastError):
    """Messages are lost that a protocol without recovery cannot do without: the node must stop.

    What to do: choose a protocol that comes back from disk (`amcast protocols`) if members stop or channels break.
    """


class ApplicationFailed(AmcastError):
    """An application failed in a way that other replicas may not: this one must stop, or it would differ from them.

    What to do: mend what the line says of that machine (memory, disk, an import), and start the replica again.
    """


class StorageFailure(AmcastError):
    """The disk refused a write: what was not yet durable is lost, and the node must stop.

    What to do: mend or replace the disk, then start the replica, with `--rejoin` if its data is gone.
    """


class StorageCorrupt(AmcastError):
    """Data that had been durable is damaged: starting again does not help.

    What to do: start the replica with `--rejoin`, while the others of its group are up.
    """

    exit_code = 2


class ReplicasDiffer(AmcastError):
    """This replica did not apply what the others of its group did, or nobody can say which of them is right.

    What to do: find out why (`amcast cluster verify`, most often an application that is not deterministic), then
    `--rejoin`.
    """

    exit_code = 2


class OutOfTime(AmcastError):
    """A row of a sweep took longer than it may.

    What to do: give the row more time, or make it smaller; the other rows are not affected.
    """


# What was found out about a protocol


class PropertyViolation(AmcastError):
    """A property does not hold in a schedule.

    What to do: replay the schedule that is printed (`amcast replay`): the protocol, or the property, is wrong.
    """

    def __init__(self, property: str, problem: str) -> None:
        super().__init__(f"{property}: {problem}")
        self.property = property
        self.problem = problem


class Anomaly(AmcastError):
    """A history that no order of its calls explains; `kind` is the usual name, `calls` are those that show it.

    What to do: look at the calls that it names, in their order: no order of them is possible.
    """

    def __init__(self, kind: str, reason: str, calls: Iterable[object] = ()) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason
        self.calls = tuple(dict.fromkeys(calls))


class SearchTooLong(AmcastError):
    """The budget of a search was spent before it found something out.

    What to do: give the search more steps, or a shorter history: nothing was found out.
    """


class Alarm(AmcastError):
    """What must not happen in a cluster happened in a simulated one; `kind` is the class that it is counted under.

    What to do: replay the seed that is printed.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason


class InvariantViolation(AmcastError):
    """A numbered invariant of a paper does not hold in a run.

    What to do: replay the run: it is a fault of the protocol, never yours. Please report it.
    """


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C in a sweep: says how much is done.

    What to do: give the same command again: it goes on with the rows that are left.
    """

    def __init__(self, done: int, rows: int) -> None:
        super().__init__(f"{done} of {rows} rows are done")
        self.done = done
        self.rows = rows
