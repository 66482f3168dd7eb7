"""Runs the process of a client for a driver that moves bytes: multicasts in, batches for replicas out, answers in.

Multicasts to the same groups in one turn travel as one client batch. No I/O, as in `engine.py`.
"""

import math
from typing import Final, final

from librt.strings import BytesWriter

from amcast.core.process import Effects, Params, Protocol
from amcast.core.requests import ANSWERS, NOTHING, Hint, Reply, codec_of
from amcast.core.topology import Mid, Topology, message_id
from amcast.core.wire import MOST_IN_BATCH, AppMessage, Reader, joined, split
from amcast.errors import WireError

RUN_BYTES: Final = 64 * 1024  # a run of messages is closed when it is this long


@final
class Run:
    """What a client asked for in one turn, to the same groups; and who waits for it until when."""

    def __init__(self, dest: tuple[int, ...]) -> None:
        self.mid = NOTHING.mid  # of the first message, once it is sent
        self.dest = dest
        self.payloads: list[bytes] = []
        self.size = 0
        self.count = 0
        self.whole = False  # one waits for all of it, else one for each message
        self.waiting: list[object] = []
        self.until: list[float] = []
        self.results: dict[int, list[bytes]] = {}

    def take(self, g: int, result: bytes) -> None:
        """What group g said. Raises WireError."""
        if g not in self.results:
            count = self.count
            self.results[g] = [result] if count == 1 else split(result, count) if result else [b""] * count

    def answers(self) -> list[dict[int, bytes]]:
        """What each group said to each of the messages."""
        found: list[dict[int, bytes]] = [{} for _ in range(self.count)]
        for g, parts in self.results.items():
            for i in range(len(parts)):
                found[i][g] = parts[i]
        return found


@final
class ClientEngine:
    """The same for the process of a client, which no one else's messages reach but the replicas' answers.

    Multicasts to the same groups in one turn travel as one run, unless each is to have an id that does not depend on
    how they fall into turns (`alone`).
    """

    def __init__(
        self, protocol: Protocol, session: int, topology: Topology, params: Params, alone: bool = False, first: int = 0
    ) -> None:
        self.out = Effects()
        self.process = protocol.client(session, topology, params, self.out)
        self._groups = len(topology.groups)
        self._group_of = topology.group_of
        self._requests = codec_of(protocol.requests, self._groups)
        self._answers = codec_of(ANSWERS, self._groups)
        self._writers: dict[int, BytesWriter] = {}
        self._scratch = BytesWriter()
        self._session = session
        self._next = first  # number of the next message
        self._alone = alone
        self._asked: dict[tuple[int, ...], Run] = {}
        self._full: list[Run] = []
        self.open: dict[Mid, Run] = {}

    def start(self, now: int) -> None:
        self.process.start(now)

    def ask(self, dest: tuple[int, ...], payload: bytes, waiting: object, until: float) -> None:
        """Multicast this, with the next `begin`."""
        run = self._asked.get(dest)
        if run is None:
            run = Run(dest)
            self._asked[dest] = run
        run.payloads.append(payload)
        run.count += 1
        run.size += len(payload)
        run.waiting.append(waiting)
        run.until.append(until)
        if self._alone or run.size > RUN_BYTES or len(run.waiting) == MOST_IN_BATCH:
            del self._asked[dest]
            self._full.append(run)

    def ask_run(self, dest: tuple[int, ...], payloads: list[bytes], waiting: object, until: float) -> None:
        """Multicast these as one run, with the next `begin`."""
        run = Run(dest)
        run.payloads = payloads
        run.count = len(payloads)
        run.whole = True
        run.waiting.append(waiting)
        run.until.append(until)
        self._full.append(run)

    def begin(self, now: int) -> list[Run]:
        """Send what was asked for."""
        runs = self._full
        if self._asked:
            runs = runs + list(self._asked.values())
            self._asked = {}
        self._full = []
        for run in runs:
            count = run.count
            run.mid = message_id(self._session, self._next)
            self._next += count
            self.open[run.mid] = run
            payload = run.payloads[0] if count == 1 else joined(run.payloads)
            run.payloads = []
            self.process.multicast(now, AppMessage(run.mid, run.dest, payload, 0, count))
        return runs

    def waiting(self) -> list[object]:
        """All who wait."""
        runs = list(self.open.values()) + self._full + list(self._asked.values())
        return [one for run in runs for one in run.waiting]

    def late(self, now: float) -> list[object]:
        """Those who wait no longer."""
        found: list[object] = []
        for run in self.open.values():
            for i in range(len(run.until)):
                if run.until[i] <= now:
                    run.until[i] = math.inf
                    found.append(run.waiting[i])
        return found

    def timer(self, now: int, name: str) -> None:
        self.process.timer(now, name)

    def suspect(self, now: int) -> None:
        self.process.suspect(now)

    def abandon(self, now: int, mid: Mid) -> list[object]:
        """Those who wait for this run, which was refused."""
        self.process.abandon(now, mid)
        run = self.open.pop(mid, None)
        return run.waiting if run is not None else []

    def receive(self, now: int, sender: int, batch: bytes) -> None:
        """Answers of a replica. Raises WireError."""
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
                run = self.open.get(msg.mid)
                if run is not None:
                    run.take(msg.g, result)
            self.process.receive(now, sender, msg)

    def drain(self) -> tuple[list[tuple[int, bytes]], list[Run], list[tuple[str, int, int]]]:
        """Batches for replicas, the runs that are complete, timers to set."""
        out = self.out
        for to, msg in out.sends:
            self._scratch.truncate(0)
            self._requests.write(self._scratch, msg)
            encoded = self._scratch.getvalue()
            for pid in to:
                w = self._writers.get(pid)
                if w is None:
                    w = BytesWriter()
                    self._writers[pid] = w
                w.write(encoded)
        batches: list[tuple[int, bytes]] = []
        for pid, w in self._writers.items():
            if len(w):
                batches.append((pid, w.getvalue()))
                w.truncate(0)
        completed = [self.open.pop(mid) for mid in out.completed if mid in self.open]
        timers = out.timers
        out.timers = []
        out.clear()
        return batches, completed, timers
