"""Causal order: fifo not for one sender only, but for all m, m' where multicast(m) happened before multicast(m').

m directly precedes m' if the sender of m' multicast or delivered m before it multicast m'. Happened-before is every
chain of such steps. When a process of group g delivers m', it must have delivered all messages in the past of m' that
are addressed to g. The past is searched backwards from m', only as far as needed: a message addressed to g was searched
when it was delivered itself, and any other is entered once per process.

Time: for each group, in the worst case, members x (messages + deliveries at processes that multicast). Members whose
sequences agree are searched only once, so that an ordinary trace costs groups x (messages + deliveries at senders).
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from amcast.checks.history import NOBODY, History
from amcast.checks.verdict import Verdict
from amcast.core.trace import Event


class _Past:
    """The direct predecessors of each message, as places in the history of its sender."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._place = array("i", bytes(4 * len(history.messages)))  # in the sender's multicasts
        self._delivered = array("i", bytes(4 * len(history.messages)))  # by the sender, before the multicast
        for sent, got in zip(history.multicast, history.delivered, strict=True):
            for place, message in enumerate(sent.messages):
                self._place[message] = place
                self._delivered[message] = bisect_left(got.seqs, sent.seqs[place])

    def direct(self, message: int) -> Iterator[int]:
        """Yield the sender's multicast before this one, and what the sender delivered between the two."""
        sender = self._history.sender[message]
        if sender == NOBODY:
            return
        place = self._place[message]
        start = 0
        if place > 0:
            before = self._history.multicast[sender].messages[place - 1]
            start = self._delivered[before]
            yield before
        yield from self._history.delivered[sender].messages[start : self._delivered[message]]

    def is_multicast_before(self, earlier: int, later: int) -> bool:
        """Return whether one sender multicast both messages in this order."""
        sender = self._history.sender
        return sender[earlier] == sender[later] and self._place[earlier] < self._place[later]

    def shortest_chain(self, message: int, is_wanted: Callable[[int], bool]) -> list[int]:
        """Return the messages from the nearest wanted one in the past to this one, each directly before the next."""
        next_of: dict[int, int] = {message: NOBODY}
        seen_multicasts = [0] * len(self._history.processes)
        seen_deliveries = [0] * len(self._history.processes)
        level = [message]
        while level:
            found: list[int] = []
            for later in level:
                sender = self._history.sender[later]
                if sender == NOBODY:
                    continue
                place, delivered = self._place[later], self._delivered[later]
                sent = self._history.multicast[sender].messages[seen_multicasts[sender] : place]
                got = self._history.delivered[sender].messages[seen_deliveries[sender] : delivered]
                seen_multicasts[sender] = max(seen_multicasts[sender], place)
                seen_deliveries[sender] = max(seen_deliveries[sender], delivered)
                for earlier in (*sent, *got):
                    if earlier not in next_of:
                        next_of[earlier] = later
                        found.append(earlier)
                        if is_wanted(earlier):
                            chain = [earlier]
                            while chain[-1] != message:
                                chain.append(next_of[chain[-1]])
                            return chain
            level = found
        raise AssertionError("the message has nothing wanted in its past")


def check_causal(history: History) -> Verdict:
    pairs = history.addressed_deliveries()
    if not pairs:
        return history.unknown("causal", history.nothing_to_compare())
    past = _Past(history)
    for group in range(len(history.groups)):
        addressed = bytearray(len(history.messages))
        for message in history.addressed[group]:
            addressed[message] = 1
        fine = array("i")
        for process in history.members[group]:
            sequence = history.delivered[process].firsts()
            if sequence == fine[: len(sequence)]:
                continue
            early = _first_too_early(past, sequence, addressed)
            if early is not None:
                return _violated(history, past, process, early, addressed)
            fine = max(fine, sequence, key=len)
    return history.ok("causal", pairs)


def _first_too_early(past: _Past, sequence: Sequence[int], addressed: bytearray) -> int | None:
    """Return the first message that was delivered before a message of its past."""
    delivered = bytearray(len(addressed))
    entered = bytearray(len(addressed))
    for message in sequence:
        if not addressed[message]:
            continue
        delivered[message] = 1
        search = [message]
        while search:
            for earlier in past.direct(search.pop()):
                if addressed[earlier]:
                    if not delivered[earlier]:
                        return message
                elif not entered[earlier]:
                    entered[earlier] = 1
                    search.append(earlier)
    return None


def _violated(history: History, past: _Past, process: int, early: int, addressed: bytearray) -> Verdict:
    sequence = history.delivered[process].firsts()
    before = set(sequence[: sequence.index(early)])
    chain = past.shortest_chain(early, lambda message: bool(addressed[message]) and message not in before)
    missed = chain[0]
    rows: list[Event] = [history.multicast_row(missed)]
    steps: list[str] = []
    for earlier, later in pairwise(chain):
        sender = history.sender[later]
        how = "multicast" if past.is_multicast_before(earlier, later) else "delivered"
        if how == "delivered":
            rows.append(history.deliver_row(sender, earlier))
        rows.append(history.multicast_row(later))
        who, first, second = history.processes[sender], history.messages[earlier], history.messages[later]
        steps.append(f"{who} {how} {first} before it multicast {second}")
    rows.append(history.deliver_row(process, early))
    if missed in sequence:
        rows.append(history.deliver_row(process, missed))
    reason = (
        f"{history.processes[process]} delivered {history.messages[early]} without having delivered "
        f"{history.messages[missed]}, which happened before: {'; '.join(steps)}"
    )
    return history.violated("causal", reason, tuple(rows))
