"""A channel to one other node, in order and without loss or repetition, over lines that come late, twice or not at all.

Every line is numbered and kept until the other end has acknowledged it; acknowledgements are cumulative and travel with
lines that go the other way, or alone after a short while. What stays unacknowledged is sent again: all of it to a node
that is heard, one line as a probe, ever less often, to one that is not. No clock and no I/O: time is handed in.

A node that starts again has forgotten what it promised, so it must not be taken for the one before. Each start has a
random number, and a channel knows only the first one that it saw. What is kept for a node that never answers grows as
long as the test lasts.
"""

from collections import deque
from typing import Final

import msgspec

RESEND_AFTER: Final = 10  # in δ
LONGEST_RESEND: Final = 60
WINDOW: Final = 65_536  # lines beyond the next one that wait for it


class Data(msgspec.Struct, frozen=True, tag_field="type", tag="amcast"):
    boot: int
    n: int
    ack: int
    kind: str
    data: bytes  # base64 in JSON


class Ack(msgspec.Struct, frozen=True, tag_field="type", tag="amcast_ack"):
    boot: int
    ack: int


class Channel:
    """Both directions between this node and another one."""

    def __init__(self, boot: int, delta: int) -> None:
        self.boot = boot
        self.peer_boot: int | None = None
        self.out: list[Data | Ack] = []  # for the driver to take
        self._next = 1
        self._kept: deque[tuple[int, str, bytes]] = deque()
        self._expected = 1
        self._early: dict[int, tuple[str, bytes]] = {}
        self._ack_after = delta // 2
        self._ack_at: int | None = None
        self._least = RESEND_AFTER * delta
        self._longest = LONGEST_RESEND * delta
        self._resend_after = self._least
        self._resend_at: int | None = None
        self._resent_at = -self._least  # all of it

    def send(self, now: int, kind: str, data: bytes) -> None:
        self._kept.append((self._next, kind, data))
        self._transmit(self._next, kind, data)
        self._next += 1
        if self._resend_at is None:
            self._resend_at = now + self._resend_after

    def _transmit(self, n: int, kind: str, data: bytes) -> None:
        self._ack_at = None
        self.out.append(Data(self.boot, n, self._expected - 1, kind, data))

    def receive(self, now: int, body: Data | Ack) -> list[tuple[str, bytes]] | None:
        """Return what is now complete and in order; None for a line of another start of that node."""
        if self.peer_boot is None:
            self.peer_boot = body.boot
        elif self.peer_boot != body.boot:
            return None
        self._acknowledged(now, body.ack)
        if isinstance(body, Ack):
            return []
        if self._ack_at is None:
            self._ack_at = now + self._ack_after
        if self._expected <= body.n < self._expected + WINDOW:
            self._early[body.n] = (body.kind, body.data)
        ready: list[tuple[str, bytes]] = []
        while (found := self._early.pop(self._expected, None)) is not None:
            ready.append(found)
            self._expected += 1
        return ready

    def _acknowledged(self, now: int, number: int) -> None:
        kept = self._kept
        progress = False
        while kept and kept[0][0] <= number:
            kept.popleft()
            progress = True
        if not kept:
            self._resend_at = None
        elif self._resend_after > self._least:  # it was silent and is heard again
            self._resend_at = max(now, self._resent_at + self._least)
        elif progress:
            self._resend_at = now + self._least
        self._resend_after = self._least

    def due(self) -> int | None:
        """Return when `tick` has something to do."""
        return min((at for at in (self._ack_at, self._resend_at) if at is not None), default=None)

    def tick(self, now: int) -> None:
        if self._resend_at is not None and now >= self._resend_at:
            silent = self._resend_after > self._least
            if not silent:
                self._resent_at = now
            self._resend_after = min(2 * self._resend_after, self._longest)
            for n, kind, data in [self._kept[0]] if silent else self._kept:
                self._transmit(n, kind, data)
            self._resend_at = now + self._resend_after
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = None
            self.out.append(Ack(self.boot, self._expected - 1))
