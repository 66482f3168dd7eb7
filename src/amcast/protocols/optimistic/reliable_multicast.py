"""FIFO reliable multicast of messages that are going to be ordered: the first step of Baseline and Optimistic.

Each copy names the sender's previous one to the same group, and a receiver holds it back until it has that one. Whoever
has a copy that stays unordered for too long passes it on (`relay`), so a message that one correct process received
reaches the group that must order it, though its sender crashed. A message that was ordered counts as received.

Of a sender that crashed, a message may be lost, and a later one not: that one waits for ever. Then the sender's group
orders that nothing more comes of this *life* of the sender, and its remaining copies are void. A sender that lives
begins another life and sends again what was not ordered; the number of a message has its life in the upper bits.

Paper: the primitives fr-mcast and fr-deliver of "Optimistic Atomic Multicast", section 2.1. Agreement is only as far as
needed: among the processes that order the message, and by its ordered copy among its destinations.
"""

from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.topology import Mid
from amcast.core.wire import AppMessage, Message, Reader, pack_app, pack_long, pack_short


@final
@mypyc_attr(acyclic=True)
class Copy(Message):
    """Message n of process p, with its initial timestamp.

    For each destination group, `prev` is the number of p's previous message to it and `epochs` the membership in which
    p sends to it.
    """

    wire: ClassVar[dict[str, object]] = {
        "kind": int,
        "m": AppMessage,
        "p": int,
        "n": int,
        "ts": int,
        "prev": tuple[int, ...],
        "epochs": tuple[int, ...],
    }

    def __init__(
        self, kind: int, m: AppMessage, p: int, n: int, ts: int, prev: tuple[int, ...], epochs: tuple[int, ...]
    ) -> None:
        self.kind = kind
        self.m = m
        self.p = p
        self.n = n
        self.ts = ts
        self.prev = prev
        self.epochs = epochs

    def about(self) -> tuple[Mid, ...]:
        return (self.m.mid,) if self.kind >= 0 else ()

    def pack(self, w: BytesWriter) -> None:
        pack_short(w, self.kind)
        pack_app(w, self.m)
        pack_long(w, self.p)
        pack_long(w, self.n)
        pack_long(w, self.ts)
        for i in range(len(self.m.dest)):
            pack_long(w, self.prev[i])
            pack_long(w, self.epochs[i])

    def unpack(self, r: Reader) -> Message:
        kind = r.short()
        m = r.app()
        p = r.long()
        n = r.long()
        ts = r.long()
        pairs = [(r.long(), r.long()) for _ in m.dest]
        return Copy(kind, m, p, n, ts, tuple([prev for prev, _ in pairs]), tuple([epoch for _, epoch in pairs]))


LIFE: Final = 1 << 36  # numbers of one life of a sender
MOST_LIVES: Final = 255


def key_of(p: int, n: int) -> int:
    """Return the n-th message of process p as one number."""
    return p << 44 | n


def sender_in(key: int) -> int:
    return key >> 44


def number_in(key: int) -> int:
    return key & ((1 << 44) - 1)


@final
class FifoSender:
    """Numbers what a process sends."""

    def __init__(self) -> None:
        self.sent = 0
        self.first = 0  # the number before the first of this life
        self._last: dict[int, int] = {}  # group -> the number of the last message to it

    def begin(self, first: int) -> None:
        """Begin another life, with numbers above this one."""
        self.sent = self.first = first
        self._last = {}

    def next(self, dest: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the next number, from 1 on, and the previous one to each group."""
        self.sent += 1
        prev = tuple([self._last.get(g, self.first) for g in dest])
        for g in dest:
            self._last[g] = self.sent
        return self.sent, prev


@final
class FifoReceiver:
    """Puts copies in the order in which their senders sent them."""

    def __init__(self, g0: int, group_of: list[int]) -> None:
        self.g0 = g0
        self.group_of = group_of
        self._last: dict[int, int] = {}  # sender -> the number of its last message that has come
        self._held: dict[int, dict[int, Copy]] = {}

    def receive(self, copy: Copy) -> list[Copy]:
        """Return the copies that may be used now, in order."""
        last = self._last.get(copy.p, 0)
        if copy.n <= last:
            return []
        if self.previous(copy) > last:
            self._held.setdefault(copy.p, {})[copy.n] = copy
            return []
        self._last[copy.p] = copy.n
        return [copy, *self.release(copy.p)]

    def ordered(self, p: int, n: int) -> list[Copy]:
        """Count message n of p as received, since it is ordered; return the copies that may be used because of that."""
        if n > self._last.get(p, 0):
            self._last[p] = n
        return self.release(p)

    def release(self, p: int) -> list[Copy]:
        held = self._held.get(p)
        if held is None:
            return []
        found: list[Copy] = []
        for n in sorted(held):
            last = self._last[p]
            if n > last and self.previous(held[n]) > last:
                break
            copy = held.pop(n)
            if n > last:
                self._last[p] = n
                found.append(copy)
        if not held:
            del self._held[p]
        return found

    def waits(self, p: int) -> bool:
        """Return whether a message of p waits for one that has not come."""
        return p in self._held

    def life(self, p: int) -> int:
        """Return the number before the first one of the life of p."""
        return self._last.get(p, 0) // LIFE * LIFE

    def previous(self, copy: Copy) -> int:
        """Return what must have come here before it. The sender's group gets all that it sends."""
        if self.group_of[copy.p] == self.g0:
            return copy.n - 1
        return copy.prev[copy.m.dest.index(self.g0)] if self.g0 in copy.m.dest else copy.n // LIFE * LIFE
