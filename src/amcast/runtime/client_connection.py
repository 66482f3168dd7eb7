"""The connection of a client to one replica: dialled again while there is something to say."""

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from amcast.core.topology import Mid
from amcast.errors import AmcastError, HistoryGone, PeerError, Refused, UsageError, WireError
from amcast.runtime import frames
from amcast.runtime.admission import fail
from amcast.runtime.config import Member
from amcast.runtime.frames import OURS, Condition, Hello, Rows
from amcast.runtime.framing import FrameReader, frame
from amcast.runtime.greeting import abort_unless, dial, say_hello
from amcast.runtime.seats import lists_decoder
from amcast.runtime.tls import Renewable

if TYPE_CHECKING:
    from amcast.runtime.client import Client


NOTHING: Final = Rows(0, 0, 0, 0, 0, b"")  # the answer to what is not read


class Connection(asyncio.Protocol):
    """To one replica: dialled again while there is something to say."""

    transport: asyncio.Transport | None
    reader: FrameReader

    def __init__(self, client: "Client", member: Member, context: Renewable | None) -> None:
        self.client = client
        self.member = member
        self.context = context
        self.transport = None
        self.welcome = False
        self.closed = False
        self.backlog: list[tuple[bytes, list[Mid]]] = []  # frames, and the messages in them
        self.reads: dict[int, asyncio.Future[Rows]] = {}
        self.queries: dict[int, asyncio.Future[bytes]] = {}
        self.asked: dict[int, asyncio.Future[Condition]] = {}
        self.limits = client.machine.limits
        self.pause = self.limits.first_pause
        self.dialling: asyncio.Task[None] | None = None
        self.hurry = asyncio.Event()  # dial at once

    def send(self, data: bytes, mids: list[Mid]) -> None:
        if self.welcome and self.transport is not None:
            self.transport.write(data)
            self.client._engine.written(self.member.pid, mids)
            return
        if len(self.backlog) < 1000:  # the protocol sends again what is lost
            self.backlog.append((data, mids))
        self.connect()

    def connect(self) -> None:
        if self.dialling is None and self.transport is None:
            self.dialling = self.client._loop.create_task(self.dial())

    def ask(self) -> asyncio.Future[Condition]:
        """Ask this replica how it is."""
        number = next(self.client._reads)
        future: asyncio.Future[Condition] = self.client._loop.create_future()
        self.asked[number] = future
        future.add_done_callback(lambda _: self.asked.pop(number, None))
        self.send(frame(frames.ASK, b"", number), [])
        return future

    def inquire(self) -> None:
        """Ask this replica which groups serve; to be connected is to be told."""
        if self.welcome and self.transport is not None:
            self.transport.write(frame(frames.ASK, b""))
        else:
            self.hurry.set()
            self.connect()

    async def dial(self) -> None:
        try:
            while not self.client._closed:
                if self.context is not None and self.context.outdated():  # this may be why we were hung up on
                    with suppress(UsageError):  # they may be half written: the old ones are as good as before
                        self.client.renew_certificate()
                try:
                    await dial(self.member.client, self.context, self, self.limits.seconds_to_greet)
                    return
                except (OSError, TimeoutError) as error:
                    self.backlog.clear()
                    fail([*self.reads.values(), *self.queries.values()], TimeoutError())
                    self.hurry.clear()
                    why = os.strerror(error.errno) if error.errno else str(error) or "no answer in time"
                    self.client._unreachable(self.member, f"at {self.member.client}: {why}")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.pause * self.client.machine.random.uniform(0.7, 1.3)):
                            await self.hurry.wait()
                    self.pause = min(2 * self.pause, self.limits.longest_pause)
        finally:
            self.dialling = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = self.transport = cast(asyncio.Transport, transport)
        self.closed = False  # by us
        self.reader = FrameReader(frames.LARGEST_PEER)  # with the greeting come all members that there ever were
        config = self.client.config
        client, to = self.client, self.member.name
        hello = Hello(frames.VERSION, config.name, client.name, 0, client.session, to, config.identity, formats=OURS)
        try:
            say_hello(transport, config, self.member.name, hello)
        except PeerError as error:
            self.refused(str(error))
            return
        abort_unless(lambda: self.welcome or self.transport is not made, made, self.limits.seconds_to_greet)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        if self.client._detector is not None:
            self.client._detector.heard(self.member.pid)
        try:
            for kind, number, body in self.reader.feed(data):
                if kind == frames.ANSWERS and self.welcome:
                    self.client._answered(self.member.pid, body)
                elif kind == frames.ROWS and self.welcome:
                    rows = frames.decode(frames.rows_decoder, body)
                    future = self.reads.get(rows.id)
                    if future is not None and not future.done():
                        future.set_result(rows)
                elif kind == frames.QUERIED and self.welcome:
                    if number in self.queries and not self.queries[number].done():
                        self.queries[number].set_result(body)
                elif kind == frames.CONDITION and self.welcome:
                    condition = frames.decode(frames.condition_decoder, body)
                    condition.heard_ns = self.client._now()
                    if number in self.asked and not self.asked[number].done():
                        self.asked[number].set_result(condition)
                    self.client._admission.told(self.member.pid, condition.refusals)
                elif kind == frames.MEMBERS and self.welcome:
                    self.client._listed(frames.decode(lists_decoder, body))
                    if self.transport.is_closing():  # it is no member any more
                        return
                elif kind == frames.CHANGED and self.welcome:
                    asked = self.reads.get(number)
                    if asked is not None and not asked.done():
                        asked.set_result(NOTHING)
                elif kind == frames.FAILED and self.welcome:
                    failure = frames.decode(frames.refusal_decoder, body)
                    if failure.id < 0:
                        self.client._failed(self.member, failure)
                    elif failure.id in self.queries:
                        for_good = failure.kind == frames.FORBIDDEN
                        fail([self.queries[failure.id]], (AmcastError if for_good else TimeoutError)(failure.reason))
                    elif failure.id in self.reads:
                        kinds: dict[int, type[AmcastError]] = {frames.GONE: HistoryGone, frames.FORBIDDEN: Refused}
                        fail([self.reads[failure.id]], kinds.get(failure.kind, AmcastError)(failure.reason))
                elif kind == frames.WELCOME and not self.welcome:
                    self.welcome = True
                    self.client._welcome = True
                    self.client._refusals.pop(self.member.pid, None)
                    self.pause = self.limits.first_pause
                    self.write_backlog()
                    welcome = frames.decode(frames.welcome_decoder, body)
                    self.client._admission.told(self.member.pid, welcome.refusals)
                elif kind == frames.REFUSED:
                    self.refused(body.decode(errors="replace"))
                    return
                else:
                    raise WireError(f"a frame of kind {kind}")
        except AmcastError as error:
            self.refused(str(error))

    def write_backlog(self) -> None:
        assert self.transport is not None
        backlog, self.backlog = self.backlog, []
        for data, mids in backlog:
            self.transport.write(data)
            self.client._engine.written(self.member.pid, mids)

    def refused(self, reason: str) -> None:
        """Take note that this replica refuses us; the others may not."""
        self.close()
        self.backlog.clear()
        text = f"{self.member.name} refused {self.client.name}: {reason}"
        fail(self.reads.values(), AmcastError(text))
        fail(self.queries.values(), TimeoutError(text))
        self.client._refused(self.member, text)
        self.client._unreachable(self.member, f"refused us: {reason}")

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        was_welcome, self.welcome = self.welcome, False
        why = "" if was_welcome else f"{self.member.name} hung up before it let us in: does it trust our certificate?"
        waiting = [*self.reads.values(), *self.queries.values(), *self.asked.values()]
        fail(waiting, TimeoutError(why) if why else TimeoutError())  # another replica may know
        if was_welcome:
            self.client._disconnected()
            self.client._unreachable(self.member, "hung up")
        elif not self.closed:
            self.client._turned_away(why)

    def close(self) -> None:
        self.closed = True
        if self.dialling is not None:
            self.dialling.cancel()
        if self.transport is not None:
            self.transport.abort()
