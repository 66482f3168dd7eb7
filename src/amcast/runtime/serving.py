"""What a node does for clients: take their multicasts, answer them, let them read the ordered log.

Everything a client may ask passes `_Served.take`, and nothing before its name is known (`greeting.py`). Whether it may
multicast something is decided by `why_not` alone, whether it may read by `take_read`.
"""

import asyncio
from collections import deque
from hashlib import sha256
from typing import Final, Protocol

from amcast.core.application import Dated
from amcast.core.requests import Reply, Request
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage, Message, Reader
from amcast.errors import AmcastError, HistoryGone, WireError
from amcast.runtime import frames
from amcast.runtime.config import Grant
from amcast.runtime.doors import Door, Place
from amcast.runtime.engine import Engine
from amcast.runtime.frames import Change, Condition, Hello, Read, Refusal, Rows, Spoken
from amcast.runtime.framing import frame
from amcast.runtime.greeting import AcceptedConnection, GreetingHost
from amcast.runtime.history import History
from amcast.runtime.pulse import Pulses

GREETING_TEXT: Final = 2000  # characters, of what a greeting says of the groups
OVERHEAD: Final = 300  # bytes, besides an answer itself
SESSION_BITS: Final = 42  # of the number that a client draws; those above say who it is
CLIENT: Final = "client/"


def session_of(client: str, number: int) -> int:
    """Return the session of this client with this number: no other client may use it."""
    owner = 1 + int.from_bytes(sha256(client.encode()).digest()[:8]) % (2**20 - 1)
    return owner << SESSION_BITS | number & (1 << SESSION_BITS) - 1


class Results:
    """The answers of the application, kept for as long as a client may ask for them again.

    A client says with each message which answers it has. The last ones of clients that are gone would stay for ever, so
    there is room for so many bytes: the oldest go first. Their messages are still known, and not executed again.
    """

    def __init__(self, most_bytes: int = 64 * 2**20) -> None:
        self.by_mid: dict[Mid, bytes] = {}  # in the order of delivery
        self.size = 0
        self._most_bytes = most_bytes
        self._sessions: dict[int, deque[Mid] | Mid] = {}  # most have one answer, for which a deque is large

    def add(self, m: AppMessage, result: bytes) -> None:
        sender = sender_of(m.mid)
        mids = self._sessions.get(sender)
        if mids is None:
            self._sessions[sender] = m.mid
        elif isinstance(mids, deque):
            while mids and seq_of(mids[0]) < m.done:
                self._forget(mids.popleft())
            mids.append(m.mid)
        elif seq_of(mids) < m.done:
            self._forget(mids)
            self._sessions[sender] = m.mid
        else:
            self._sessions[sender] = deque((mids, m.mid))
        self.by_mid[m.mid] = result
        self.size += len(result) + OVERHEAD
        while self.size > self._most_bytes and len(self.by_mid) > 1:
            self._forget_oldest()

    def _forget(self, mid: Mid) -> None:
        result = self.by_mid.pop(mid, None)
        if result is not None:
            self.size -= len(result) + OVERHEAD

    def _forget_oldest(self) -> None:
        mid = next(iter(self.by_mid))
        self._forget(mid)
        mids = self._sessions.get(sender_of(mid))
        if isinstance(mids, deque) and len(mids) > 1:
            mids.popleft()  # it is the oldest of its session, too
        else:
            self._sessions.pop(sender_of(mid), None)

    def rows(self) -> list[tuple[int, int, bytes]]:
        return [(sender_of(mid), seq_of(mid), result) for mid, result in self.by_mid.items()]

    def restore(self, rows: list[tuple[int, int, bytes]]) -> None:
        for sender, seq, result in rows:
            self.add(AppMessage(message_id(sender, seq), (0,), b""), result)


class ServingHost(GreetingHost, Protocol):
    """The node, as its clients see it."""

    engine: Engine
    results: Results
    orders_all: bool  # messages to other groups too
    pulses: Pulses
    dated: Dated | None

    @property
    def history(self) -> History: ...

    @property
    def membership(self) -> "Changing": ...

    def readiness(self) -> str | None: ...

    def requests_in(self, batch: bytes, client: int) -> list[Request]: ...

    def on_requests(self, client: int, requests: list[Request]) -> None: ...

    @property
    def cuts(self) -> "Backups": ...

    @property
    def queries(self) -> "Reads": ...


class Reads(Protocol):
    """Reads of the application's state."""

    def take(self, asker: "_Served", number: int, request: bytes) -> None: ...


class Backups(Protocol):
    """What is given out for backups."""

    def take(self, asker: "_Served", kind: int, number: int) -> None: ...

    def left(self, asker: "_Served") -> None: ...


class Changing(Protocol):
    """Has the members of the own group change (`membership.py`)."""

    def refusal_of(self, change: Change) -> tuple[int, str] | None: ...


class Serving:
    """All connections of clients."""

    def __init__(self, host: ServingHost) -> None:
        self.host = host
        self.limits = host.machine.limits
        self.sessions: dict[int, _Served] = {}
        self.door = Door(self.limits.most_strangers, self.limits.most_of_one_address, self.limits.seconds_to_greet)
        self.readers: list[tuple[_Served, Read, asyncio.TimerHandle]] = []
        self.paused = False

    def accept(self, place: Place) -> "_Served":
        return _Served(self, place)

    def answer(self, client: int, batch: bytes) -> None:
        served = self.sessions.get(client)
        if served is not None:  # else it has gone, or reaches us by another member later, and will ask again
            served.transport.write(frame(frames.ANSWERS, batch))

    def announce(self, batch: bytes) -> None:
        """Tell all clients that are connected, but those that do not read: these hear of it when they ask."""
        for served in self.sessions.values():
            if not served.full:
                served.transport.write(frame(frames.ANSWERS, batch))

    def with_results(self, answers: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
        """Leave out replies to what the application has not executed here, or whose answer is no longer kept.

        A leader that is asked again replies as soon as it has let the group deliver, itself among them. It has yet to
        execute the message then, and replies once more when it does.
        """
        found: list[tuple[int, Message]] = []
        for client, msg in answers:
            if not isinstance(msg, Reply) or msg.mid in self.host.results.by_mid:
                found.append((client, msg))
            elif self.host.engine.process.has_delivered(msg.mid):
                self.answer_is_gone(client, msg.mid)
        return found

    def answer_is_gone(self, client: int, mid: Mid) -> None:
        """Tell a client that a message of it was delivered, but nobody here knows any more what the answer was."""
        served = self.sessions.get(client)
        if served is not None:
            group = self.host.config.topology.group_name(self.host.me.group)
            reason = f"{group} has delivered it, and no longer keeps its answer"
            failure = Refusal(seq_of(mid), reason, kind=frames.GONE)
            served.transport.write(frame(frames.FAILED, frames.encode(failure)))

    def pause(self, congested: bool) -> None:
        """Take no more requests for a while."""
        if congested != self.paused:
            self.paused = congested
            for served in self.sessions.values():
                served.adjust_reading()

    def look_again(self) -> None:
        """Go by what clients may do now; who may do nothing any more is sent away."""
        for served in list(self.sessions.values()):
            served.look_again()

    def tell_condition(self) -> None:
        """Tell all clients which groups are refused from now on."""
        for served in self.sessions.values():
            served.tell_condition()

    def tell_members(self) -> None:
        """Tell all clients who the members of all groups are by now."""
        for served in self.sessions.values():
            served.tell_members()

    def grown(self) -> None:
        """Answer the reads that waited for new rows."""
        readers, self.readers = self.readers, []
        for served, read, timer in readers:
            timer.cancel()
            served.send_rows(read)

    def close(self) -> None:
        for served in list(self.sessions.values()):
            served.transport.close()


class _Served(AcceptedConnection):
    host: ServingHost

    def __init__(self, serving: Serving, place: Place) -> None:
        super().__init__(serving.host, place)
        self.serving = serving
        self.session = 0
        self.grant: Grant | None = None
        self.permitted: dict[tuple[int, ...], bool] = {}  # sets of destinations that were looked at before
        self.full = False  # it does not read what we write
        self.reads = 0  # that wait

    def welcome(self, hello: Hello, theirs: Spoken) -> int:
        config = self.host.config
        grant = config.clients.get(hello.name.removeprefix(CLIENT)) if hello.name.startswith(CLIENT) else None
        if grant is None:
            raise WireError(f"{hello.name!r} is no client of {config.name}; known ones are listed in cluster.toml")
        if hello.session != session_of(hello.name, hello.session):
            raise WireError(f"session {hello.session:x} is not of {hello.name}")
        most = self.serving.limits.most_clients
        if len(self.serving.sessions) >= most:
            raise WireError(f"{most} clients are connected; try another replica or try later")
        before = self.serving.sessions.get(hello.session)
        self.grant = grant
        self.session = hello.session
        if before is not None:
            before.transport.abort()
        self.serving.sessions[self.session] = self
        self.reader.largest = config.largest_message + frames.LARGEST_HELLO + 2**20
        self.adjust_reading()
        return 0

    def welcomed(self) -> None:
        self.tell_members()

    def tell_members(self) -> None:
        if lists := self.host.config.lists:
            self.transport.write(frame(frames.MEMBERS, frames.encode(lists)))

    def take_change(self, body: bytes) -> None:
        """Have the members of this group change, if this client may do that."""
        assert self.grant is not None
        change = frames.decode(frames.change_decoder, body)
        refused: tuple[int, str] | None
        if self.grant.operate:
            refused = self.host.membership.refusal_of(change)
        else:
            refused = frames.FORBIDDEN, f"{self.grant.name} may not change members; that takes operate = true"
        if refused is None:
            self.transport.write(frame(frames.CHANGED, b"", change.id))
        else:
            failure = Refusal(-1, refused[1], change.id, refused[0])
            self.transport.write(frame(frames.FAILED, frames.encode(failure)))

    def look_again(self) -> None:
        """Go by what this client may do now: it gets no rows that it waits for, if it may not read them any more."""
        config = self.host.config
        assert self.grant is not None
        name = self.grant.name
        grant = config.clients.get(name)
        if grant is None or self.host.me.group not in grant.read:
            for _, read, timer in [entry for entry in self.serving.readers if entry[0] is self]:
                timer.cancel()
                self.reads -= 1
                self.fail_read(read, f"{name} may not read g{self.host.me.group} any more")
            self.serving.readers = [entry for entry in self.serving.readers if entry[0] is not self]
        if grant is None:
            self.refuse(f"{CLIENT}{name} is no client of {config.name} any more")
        else:
            self.grant = grant
            self.permitted.clear()

    def take(self, kind: int, number: int, body: bytes) -> None:
        if kind == frames.REQUESTS:
            self.take_requests(body)
        elif kind == frames.READ:
            self.take_read(body)
        elif kind == frames.ASK:
            self.tell_condition(number)
        elif kind == frames.QUERY:
            self.host.queries.take(self, number, body)
        elif kind in (frames.CUT, frames.MARK, frames.WANT):
            self.host.cuts.take(self, kind, number)
        elif kind == frames.CHANGE:
            self.take_change(body)
        else:
            raise WireError(f"a frame of kind {kind}, expected requests or reads")

    def take_requests(self, batch: bytes) -> None:
        wanted: list[Request] = []
        for request in self.host.requests_in(batch, self.session):
            reason = self.why_not(request.m)
            refused = (frames.FORBIDDEN, reason) if reason is not None else self.host.pulses.refusal_of(request.m.dest)
            if refused is None and self.host.dated is not None:
                refused = self.from_the_future(self.host.dated, request.m)
            if refused is None:
                wanted.append(request)
            else:  # before anything is begun: who is refused by all whom it asked knows that nothing will come of it
                failure = Refusal(seq_of(request.m.mid), refused[1], kind=refused[0])
                self.transport.write(frame(frames.FAILED, frames.encode(failure)))
        self.host.on_requests(self.session, wanted)

    def from_the_future(self, app: Dated, m: AppMessage) -> tuple[int, str] | None:
        """Refuse what states a time far ahead of our clock. One that is behind changes nothing.

        Another replica may have taken the same before, and may take it yet, for its clock is another one: so this is no
        refusal for good. The messages of a client batch were stamped in the same turn, and the first speaks for all.
        """
        payload = m.payload if m.count == 1 else Reader(m.payload, 0).blob()
        ahead = app.stated_ms(payload) / 1000 - self.host.machine.clock.wall_ns() / 1e9
        if ahead <= self.serving.limits.clocks_differ:
            return None
        most = f"expected at most {self.serving.limits.clocks_differ:g}"
        return frames.UNAVAILABLE, f"its time is {ahead:.0f} s ahead of {self.host.me.name}, {most}; set the clocks"

    def refusals(self) -> tuple[str, ...]:
        """Return why requests to each group are refused, in words that fit a greeting however many groups there are."""
        found = self.host.pulses.refusals
        each = GREETING_TEXT // max(1, len(found) - found.count(""))
        return tuple([reason[:each] for reason in found]) if len(found) < GREETING_TEXT // 4 else ()

    def tell_condition(self, number: int = 0) -> None:
        wall_ms = self.host.machine.clock.wall_ns() // 1_000_000
        condition = Condition(wall_ms, self.host.readiness(), refusals=tuple(self.host.pulses.refusals))
        self.transport.write(frame(frames.CONDITION, frames.encode(condition), number))

    def why_not(self, m: AppMessage) -> str | None:
        """Say why this client may not multicast this here; None if it may. Nobody else decides that."""
        assert self.grant is not None
        allowed = self.permitted.get(m.dest)
        if allowed is None:
            ours = self.host.orders_all or self.host.me.group in m.dest
            allowed = self.grant.write.issuperset(m.dest) and ours
            if len(self.permitted) < 10_000:
                self.permitted[m.dest] = allowed
        if not allowed:
            return f"{self.grant.name} may not multicast to {', '.join(f'g{g}' for g in m.dest)} here"
        if m.count == 1 and len(m.payload) > self.host.config.largest_message:  # of a batch, each part was looked at
            return f"{len(m.payload)} bytes, expected at most {self.host.config.largest_message}"
        return None

    def take_read(self, body: bytes) -> None:
        assert self.grant is not None
        read = frames.decode(frames.read_decoder, body)
        if self.host.me.group not in self.grant.read:
            self.fail_read(read, f"{self.grant.name} may not read g{self.host.me.group}")
        elif read.position < 0 or read.position > self.host.history.end + 2**40:
            self.fail_read(read, f"position {read.position}: expected 0 or more")
        elif (
            self.host.history.end > read.position or read.wait_ms <= 0 or self.reads >= self.serving.limits.most_waiting
        ):
            self.send_rows(read, waited=False)
        else:
            self.reads += 1
            wait = min(read.wait_ms, self.serving.limits.longest_wait_ms) / 1000
            timer = asyncio.get_running_loop().call_later(wait, self.stop_waiting, read)
            self.serving.readers.append((self, read, timer))

    def stop_waiting(self, read: Read) -> None:
        readers = self.serving.readers
        self.serving.readers = [entry for entry in readers if entry[0] is not self or entry[1] is not read]
        self.send_rows(read)

    def send_rows(self, read: Read, waited: bool = True) -> None:
        if waited:
            self.reads -= 1
        history = self.host.history
        try:
            first, after, rows = history.read(read.position, min(read.most_bytes, self.serving.limits.most_read))
        except AmcastError as error:
            self.fail_read(read, str(error), frames.GONE if isinstance(error, HistoryGone) else frames.FORBIDDEN)
            return
        answer = Rows(read.id, first, after, history.earliest, history.end, rows)
        self.transport.write(frame(frames.ROWS, frames.encode(answer)))

    def fail_read(self, read: Read, reason: str, kind: int = frames.FORBIDDEN) -> None:
        self.transport.write(frame(frames.FAILED, frames.encode(Refusal(-1, reason, read.id, kind))))

    # Back-pressure

    def pause_writing(self) -> None:
        self.full = True
        self.adjust_reading()

    def resume_writing(self) -> None:
        self.full = False
        self.adjust_reading()

    def adjust_reading(self) -> None:
        if self.transport.is_closing():
            return
        if self.full or self.serving.paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def left(self) -> None:
        self.host.cuts.left(self)
        if self.serving.sessions.get(self.session) is self:
            del self.serving.sessions[self.session]
        for served, _, timer in self.serving.readers:
            if served is self:
                timer.cancel()
        self.serving.readers = [entry for entry in self.serving.readers if entry[0] is not self]
