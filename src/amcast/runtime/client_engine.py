"""Runs the process of a client for a driver that moves bytes: multicasts in, batches for replicas out, answers in.

No I/O, as in `engine.py`.
"""

import math
from collections import defaultdict
from typing import Final, final

from librt.strings import BytesWriter

from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import ANSWERS, NOBODY, Hint, Reply, Request
from amcast.core.topology import Mid, Topology, message_id, seq_of
from amcast.core.wire import MOST_IN_BATCH, AppMessage, Codec, Reader, joined, split
from amcast.errors import WireError

BATCH_BYTES: Final = 64 * 1024  # a client batch is closed when it is this long
FRAME_BYTES: Final = 256 * 1024  # and what goes to a replica in one frame: after an outage there may be a lot


@final
class ClientBatch:
    """Consecutive messages of one client to the same groups, that travel as one; and who waits for them until when."""

    def __init__(self, dest: tuple[int, ...]) -> None:
        self.mid = NOBODY  # of the first message, once it is sent
        self.dest = dest
        self.begun = 0  # when it was sent first
        self.payloads: list[bytes] = []
        self.size = 0
        self.count = 0
        self.whole = False  # one waits for all of it, else one for each message
        self.waiting: list[object] = []
        self.until: list[float] = []
        self.results: dict[int, list[bytes]] = {}
        # Each time that it is written to a replica, the replica takes it or refuses it. Where all refused it, nobody
        # has it; where one did not answer, nobody knows.
        self.sent = 0
        self.holders: dict[int, int] = {}  # replica -> copies written to it that it did not refuse
        self.busy = False  # so said the last that refused it …
        self.reason = ""  # … and why

    def untaken(self) -> bool:
        """Return True if nobody has it: it will not be delivered if it is not sent again."""
        return not self.holders

    def written(self, pid: int) -> None:
        self.sent += 1
        self.holders[pid] = self.holders.get(pid, 0) + 1

    def refused(self, pid: int, for_good: bool = False) -> None:
        """Take note that a replica refused a copy; for good: those whose answers were lost with a connection, too."""
        left = 0 if for_good else self.holders.get(pid, 0) - 1
        if left > 0:
            self.holders[pid] = left
        else:
            self.holders.pop(pid, None)

    def take(self, g: int, result: bytes) -> None:
        """Take note of what group g said. Raises WireError."""
        if g not in self.results:
            count = self.count
            self.results[g] = [result] if count == 1 else split(result, count) if result else [b""] * count

    def answers(self) -> list[dict[int, bytes]]:
        """Return what each group said to each of the messages."""
        found: list[dict[int, bytes]] = [{} for _ in range(self.count)]
        for g, parts in self.results.items():
            for i in range(len(parts)):
                found[i][g] = parts[i]
        return found


@final
class ClientEngine:
    """Runs the process of a client, which nothing reaches but the answers of replicas.

    Multicasts to the same groups in one turn travel as one client batch, unless each is to have an id that does not
    depend on how they fall into turns (`alone`).
    """

    def __init__(
        self, protocol: Protocol, session: int, topology: Topology, params: Params, alone: bool = False, first: int = 0
    ) -> None:
        self.out = Effects()
        self.process = protocol.make(session, topology, params, self.out)
        self._groups = len(topology.groups)
        self._group_of = topology.group_of
        self._requests = Codec(protocol.requests, self._groups)
        self._answers = Codec(ANSWERS, self._groups)
        self._writers: defaultdict[int, BytesWriter] = defaultdict(BytesWriter)
        self._scratch = BytesWriter()
        self._session = session
        self._next = first  # number of the next message
        self._alone = alone
        self._asked: dict[tuple[int, ...], ClientBatch] = {}
        self._full: list[ClientBatch] = []
        self.open: dict[Mid, ClientBatch] = {}
        self._given_up: dict[Mid, bool] = {}  # batches about which the process has something to say all the same

    def ask(self, dest: tuple[int, ...], payload: bytes, waiting: object, until: float) -> None:
        """Multicast this, with the next `begin`."""
        batch = self._asked.get(dest)
        if batch is None:
            batch = ClientBatch(dest)
            self._asked[dest] = batch
        batch.payloads.append(payload)
        batch.count += 1
        batch.size += len(payload)
        batch.waiting.append(waiting)
        batch.until.append(until)
        if self._alone or batch.size > BATCH_BYTES or len(batch.waiting) == MOST_IN_BATCH:
            del self._asked[dest]
            self._full.append(batch)

    def ask_batch(self, dest: tuple[int, ...], payloads: list[bytes], waiting: object, until: float) -> None:
        """Multicast these as one client batch, with the next `begin`."""
        batch = ClientBatch(dest)
        batch.payloads = payloads
        batch.count = len(payloads)
        batch.whole = True
        batch.waiting.append(waiting)
        batch.until.append(until)
        self._full.append(batch)

    def begin(self, now: int) -> list[ClientBatch]:
        """Send what was asked for; return it, with its ids."""
        batches = self._full + list(self._asked.values())
        self._full = []
        self._asked = {}
        for batch in batches:
            count = batch.count
            batch.mid = message_id(self._session, self._next)
            batch.begun = now
            self._next += count
            self.open[batch.mid] = batch
            payload = batch.payloads[0] if count == 1 else joined(batch.payloads)
            batch.payloads = []
            self.process.multicast(now, AppMessage(batch.mid, batch.dest, payload, 0, count))
        return batches

    def waiting(self) -> list[tuple[object, Mid]]:
        """Return all who wait, each with the id of its message, NOBODY before it is sent."""
        batches = list(self.open.values()) + self._full + list(self._asked.values())
        return [(batch.waiting[i], self._mid(batch, i)) for batch in batches for i in range(len(batch.waiting))]

    def late(self, now: float) -> list[tuple[object, Mid]]:
        """Return the waiters whose deadline has passed, each once and with the id of its message."""
        found: list[tuple[object, Mid]] = []
        for batch in self.open.values():
            for i in range(len(batch.until)):
                if batch.until[i] <= now:
                    batch.until[i] = math.inf
                    found.append((batch.waiting[i], self._mid(batch, i)))
        return found

    def untaken(self, dest: tuple[int, ...] | None, now: float) -> list[ClientBatch]:
        """Return the batches that nobody has: those to these groups, or those that everybody waited for too long."""
        return [
            batch
            for batch in self.open.values()
            if batch.untaken() and (batch.dest == dest if dest is not None else max(batch.until) <= now)
        ]

    def written(self, pid: int, mids: list[Mid]) -> None:
        """Take note that these messages were written to a replica, once more."""
        for mid in mids:
            batch = self.open.get(mid)
            if batch is not None:
                batch.written(pid)

    def _mid(self, batch: ClientBatch, i: int) -> Mid:
        return NOBODY if batch.mid == NOBODY else message_id(self._session, seq_of(batch.mid) + i)

    def abandon(self, now: int, mid: Mid) -> list[object]:
        """Drop a batch that was refused; return those who wait for it."""
        self.process.abandon(now, mid)
        dropped = self.open.pop(mid, None)
        return dropped.waiting if dropped is not None else []

    def gone(self, now: int, pid: int, mid: Mid) -> list[object]:
        """Drop a batch that the group of a replica delivered, whose answer nobody keeps; return those who wait."""
        self.process.receive(now, pid, Reply(mid, self._group_of[pid], pid))  # so that nothing waits for it there
        return self.abandon(now, mid)

    def forbidden(self, now: int, pid: int, mid: Mid) -> None:
        """Take note that a replica refuses for good what the process says about a batch that was given up."""
        if mid in self._given_up:
            self.process.receive(now, pid, Hint(mid, self._group_of[pid], pid))

    def receive(self, now: int, sender: int, batch: bytes) -> None:
        """Take the answers of a replica. Raises WireError."""
        r = Reader(batch, self._groups)
        while r.at < r.size:
            msg = self._answers.read_one(r)
            try:
                result = r.blob()
            except (ValueError, IndexError) as error:
                raise WireError(f"malformed answers of {r.size} bytes: {error}") from None
            assert isinstance(msg, Reply | Hint)
            if not 0 <= msg.leader < len(self._group_of) or self._group_of[msg.leader] != msg.g:
                raise WireError(f"process {msg.leader} as leader of group {msg.g}: expected one of its members")
            if isinstance(msg, Reply):
                asked = self.open.get(msg.mid)
                if asked is not None:
                    asked.take(msg.g, result)
            else:
                asked = self.open.get(msg.mid)
                if asked is not None:
                    asked.refused(sender)
            self.process.receive(now, sender, msg)

    def drain(self) -> tuple[list[tuple[int, bytes, list[Mid]]], list[ClientBatch], list[tuple[str, int, int]]]:
        """Return batches for replicas, each with its messages, the client batches that are complete, timers to set."""
        out = self.out
        batches: list[tuple[int, bytes, list[Mid]]] = []
        mids: defaultdict[int, list[Mid]] = defaultdict(list)
        for to, msg in out.sends:
            assert isinstance(msg, Request)
            if msg.m.mid not in self.open:
                if msg.wants_delivery():
                    continue  # given up since, as something that nobody has: nobody must get it now
                self._given_up[msg.m.mid] = True
            self._scratch.truncate(0)
            self._requests.write(self._scratch, msg)
            encoded = self._scratch.getvalue()
            for pid in to:
                w = self._writers[pid]
                if len(w) and len(w) + len(encoded) > FRAME_BYTES:
                    batches.append((pid, w.getvalue(), mids.pop(pid)))
                    w.truncate(0)
                w.write(encoded)
                mids[pid].append(msg.m.mid)
        for pid, w in self._writers.items():
            if len(w):
                batches.append((pid, w.getvalue(), mids[pid]))
                w.truncate(0)
        completed = [self.open.pop(mid) for mid in out.completed if mid in self.open]
        timers = out.timers
        out.timers = []
        out.clear()
        return batches, completed, timers
