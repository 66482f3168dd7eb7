"""Guards the claim of swarm/cluster/judge.py: every oracle alarms at what it is for, and at nothing else."""

from collections.abc import Callable, Iterator

import pytest

from amcast.checks.serializable import Call, Get, Outcome, Put
from amcast.core.application import Delivery
from amcast.core.trace import Event
from amcast.errors import Alarm, StorageCorrupt, StorageFailure
from amcast.swarm.cluster.judge import (
    CheckedMachine,
    Excuse,
    Journal,
    Replica,
    check_acknowledged,
    check_calls,
    check_done,
    check_ending,
    check_handler,
    check_refused,
    check_settled,
    check_start,
    check_traces,
)


class Sum:
    """An application whose state and answers are the bytes so far, `also` being what makes one differ."""

    def __init__(self, also: bytes = b"") -> None:
        self.state = b""
        self.also = also

    def apply(self, delivery: Delivery) -> bytes:
        if delivery.payload == b"raise":
            raise ValueError("no such thing")
        self.state += delivery.payload
        return self.state + self.also

    def snapshot(self) -> bytes:
        return self.state

    def restore(self, state: bytes) -> None:
        self.state = state + self.also


def delivered(position: int, payload: bytes, message: str = "", group: str = "g0") -> Delivery:
    return Delivery(group, position, (position, group), message or f"c0:{position}", "c0", (group,), payload)


def replica(
    journal: Journal, name: str, inner: Sum | None = None, unapplied: Callable[[], int] = lambda: 0
) -> CheckedMachine:
    app = journal.checked(name, "g0", lambda group, groups: inner or Sum(), unapplied)(0, 1)
    assert isinstance(app, CheckedMachine)
    return app


def alarms(kind: str, journal: Journal | None, act: Callable[[], object]) -> None:
    with pytest.raises(Alarm) as raised:
        act()
    assert raised.value.kind == kind
    if journal is not None:
        assert journal.alarms == [raised.value]


def test_equal_replicas_raise_no_alarm_also_over_snapshots() -> None:
    journal = Journal()
    one, other = replica(journal, "p0"), replica(journal, "p1")
    assert [one.apply(delivered(n, b"x")) for n in range(3)] == [b"x", b"xx", b"xxx"]
    other.restore(one.snapshot())
    assert other.apply(delivered(3, b"y")) == one.apply(delivered(3, b"y")) == b"xxxy"
    assert one.snapshot() == other.snapshot()
    assert (journal.alarms, journal.applications, journal.log("g0")) == ([], 5, ("c0:0", "c0:1", "c0:2", "c0:3"))


def test_another_message_at_a_position() -> None:
    journal = Journal()
    replica(journal, "p0").apply(delivered(0, b"x", "c0:1"))
    alarms("replicas differ", journal, lambda: replica(journal, "p1").apply(delivered(0, b"x", "c0:2")))


def test_the_same_message_after_another_past() -> None:
    journal = Journal()
    one, other = replica(journal, "p0"), replica(journal, "p1")
    one.apply(delivered(0, b"x"))
    one.apply(delivered(1, b"y"))
    other.apply(delivered(0, b"x"))
    other._chain = b"something else"
    alarms("replicas differ", journal, lambda: other.apply(delivered(1, b"y")))


def test_another_answer() -> None:
    journal = Journal()
    replica(journal, "p0").apply(delivered(0, b"x"))
    alarms("answers differ", journal, lambda: replica(journal, "p1", Sum(b"!")).apply(delivered(0, b"x")))


def test_a_position_left_out_or_repeated() -> None:
    for position in (1, -1):
        journal = Journal()
        alarms("wrong position", journal, lambda: replica(journal, "p0").apply(delivered(position, b"x")))  # noqa: B023


def test_a_replica_that_counts_from_nowhere() -> None:
    journal = Journal()
    app = replica(journal, "p0")
    app.count = 5
    alarms("wrong position", journal, lambda: app.apply(delivered(5, b"x")))


def test_a_replica_that_forgot_everything() -> None:
    """It applies some later message at position 0, as one does that starts with an empty log."""
    journal = Journal()
    one = replica(journal, "p0")
    one.apply(delivered(0, b"x"))
    one.apply(delivered(1, b"y"))
    alarms("replicas differ", journal, lambda: replica(journal, "p1").apply(delivered(0, b"y", "c0:1")))


def test_an_exception_takes_a_position_and_must_be_the_same_everywhere() -> None:
    journal = Journal()
    for name in ("p0", "p1"):
        app = replica(journal, name)
        with pytest.raises(ValueError, match="no such thing"):
            app.apply(delivered(0, b"raise"))
        assert app.apply(delivered(1, b"x")) == b"x"
    assert not journal.alarms


def test_a_state_that_the_group_never_had() -> None:
    journal = Journal()
    one, other = replica(journal, "p0"), replica(journal, "p1")
    one.apply(delivered(0, b"x"))
    one._chain = b"another"
    state = one.snapshot()
    alarms("replicas differ", journal, lambda: other.restore(state))


def test_a_state_from_the_future() -> None:
    journal = Journal()
    other = replica(Journal(), "p0")
    other.apply(delivered(0, b"x"))
    alarms("replicas differ", journal, lambda: replica(journal, "p1").restore(other.snapshot()))


def test_snapshots_after_the_same_deliveries_that_differ() -> None:
    journal = Journal()
    one, other = replica(journal, "p0"), replica(journal, "p1")
    one.apply(delivered(0, b"x"))
    other.apply(delivered(0, b"x"))
    one.snapshot()
    assert isinstance(other.inner, Sum)
    other.inner.state = b"z"
    alarms("replicas differ", journal, other.snapshot)


def test_a_snapshot_that_changes_when_it_is_restored() -> None:
    journal = Journal()
    one = replica(journal, "p0")
    one.apply(delivered(0, b"x"))
    alarms("snapshot changes", journal, lambda: replica(journal, "p1", Sum(b"!")).restore(one.snapshot()))


class SumInPieces(Sum):
    """A state in two pieces, of which the second is made when it is taken."""

    def snapshot_parts(self) -> Iterator[bytes]:
        yield self.state[:1]
        yield self.state[1:]


def test_a_snapshot_that_changes_while_it_is_written() -> None:
    journal = Journal()
    app = replica(journal, "p0", SumInPieces())
    app.apply(delivered(0, b"xy"))
    assert b"".join(app.snapshot_parts()) == app.snapshot()
    pieces = app.snapshot_parts()
    next(pieces)
    app.apply(delivered(1, b"z"))
    alarms("snapshot changes", journal, lambda: list(pieces))


def test_a_snapshot_ahead_of_the_application() -> None:
    journal = Journal()
    left = [0]
    app = replica(journal, "p0", unapplied=lambda: left[0])
    app.snapshot()
    left[0] = 2
    alarms("not one cut", journal, app.snapshot)


def settled(**change: object) -> Replica:
    facts = {"process": "p1", "group": "g0", "end": 3, "count": 3, "busy": "", "state": b"s", **change}
    return Replica(**facts)  # type: ignore[arg-type]


def test_the_calm() -> None:
    good = settled(process="p0")
    check_settled([good, settled(), settled(process="p2", group="g1", end=9, count=9, state=b"other")])
    alarms("not settled", None, lambda: check_settled([good, settled(end=2, count=2)]))
    alarms("not settled", None, lambda: check_settled([good, settled(busy="its protocol has something under way")]))
    alarms("wrong position", None, lambda: check_settled([good, settled(end=4)]))
    alarms("replicas differ", None, lambda: check_settled([good, settled(state=b"t")]))
    check_done({"c0": True})
    alarms("not settled", None, lambda: check_done({"c0": True, "c1": False}))


def test_what_was_acknowledged_or_refused() -> None:
    journal = Journal()
    app = replica(journal, "p0")
    app.apply(delivered(0, b"x", "c0:1"))
    check_acknowledged(journal, {"c0:1": ["g0"]})
    alarms("lost write", None, lambda: check_acknowledged(journal, {"c0:1": ["g0", "g1"]}))
    alarms("lost write", None, lambda: check_acknowledged(journal, {"c0:2": ["g0"]}))
    check_refused(journal, [b"y"])
    alarms("refused and delivered", None, lambda: check_refused(journal, [b"y", b"x"]))


def test_histories() -> None:
    wrong = [Call("c0", 0, 1, (Put("r", "a"),)), Call("c0", 2, 3, (Get("r", None),))]
    alarms("stale read", None, lambda: check_calls(wrong))
    assert check_calls(wrong[:1]).status == "ok"
    assert check_calls([Call("c0", 0, 1, (Put("r", "a"),), Outcome.UNKNOWN)]).status == "unknown"


def test_traces() -> None:
    def row(process: str, seq: int, kind: str, message: str | None = None) -> Event:
        group = None if process == "c0" else "g0"
        return Event("run", kind, process, group, seq, seq, message, dest=("g0",) if kind == "multicast" else None)

    rows = [
        row("c0", 1, "multicast", "a"),
        row("c0", 2, "multicast", "b"),
        row("p0", 1, "start"),
        row("p1", 1, "start"),
    ]
    same = [row(process, n, "deliver", m) for process in ("p0", "p1") for n, m in ((2, "a"), (3, "b"))]
    turned = [row("p0", 2, "deliver", "a"), row("p0", 3, "deliver", "b")]
    turned += [row("p1", 2, "deliver", "b"), row("p1", 3, "deliver", "a")]
    ends = [row("p0", 9, "end"), row("p1", 9, "end")]
    check_traces([*rows, *same, *ends], calm=True)
    alarms("order violated", None, lambda: check_traces([*rows, *turned], calm=False))
    check_traces([*rows, *same[:2]], calm=False)
    alarms("agreement violated", None, lambda: check_traces([*rows, *same[:2], *ends], calm=True))


def test_a_node_stops_only_for_a_reason_that_was_injected() -> None:
    full = StorageFailure("p0 stopped: disk full")
    full.__cause__ = OSError(28, "No space left on device")
    check_ending("p0", full, [Excuse(OSError, 28)])
    alarms("stopped with StorageFailure", None, lambda: check_ending("p0", full, [Excuse(OSError, 5)]))
    alarms(
        "stopped with OSError EBADF", None, lambda: check_ending("p0", OSError(9, "Bad file"), [Excuse(OSError, 28)])
    )
    alarms("stopped with KeyError", None, lambda: check_ending("p0", KeyError(), [Excuse(StorageCorrupt)]))
    alarms("replicas differ", None, lambda: check_ending("p0", Alarm("replicas differ", ""), [Excuse(Exception)]))


def test_starts_and_handlers() -> None:
    check_start("p0", "")
    alarms("forgot durable frames", None, lambda: check_start("p0", "frame 3 of 7"))
    alarms(
        "unhandled KeyError", None, lambda: check_handler("p0", {"message": "in a callback", "exception": KeyError()})
    )
