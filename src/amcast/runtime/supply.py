"""What a replica hands to members that are far behind: its snapshots, part by part, and rows of its ordered log.

A member that lacks what nobody keeps message by message any more asks for a snapshot that is ahead of it. It gets the
newest one on disk, or a new one, and copies its file. While it does the file stays, whatever newer ones there are, and
for a while after the last part: a copy that was cut off can go on where it stopped. Whoever asks again after that is
offered another one.

Nothing here is held in memory but the parts that were asked for and not yet sent. The files are read in the thread of
the disk, which also writes and removes them, so that none goes away while it is looked at.
"""

import asyncio
from typing import Final, Protocol

from amcast.errors import AmcastError, PeerError, WireError
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.durability import Durability, Saved
from amcast.runtime.frames import Offer, Refusal, Rows
from amcast.runtime.framing import frame
from amcast.runtime.links import Peers
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine
from amcast.runtime.snapshots import SnapshotSource

MOST_WANTED: Final = 16  # parts that one member may ask for at once
MOST_BEHIND: Final = 4 * 2**20  # bytes of records since a snapshot, above which a new one is made instead


class SupplyHost(Protocol):
    """The node, as those see it who copy its state."""

    config: ClusterConfig
    me: Member
    machine: Machine
    log: Log
    durability: Durability

    @property
    def membership(self) -> Peers: ...

    def why_not_supply(self) -> str:
        """Return why this replica has nothing to offer; empty if it has."""
        ...


class Pinned:
    """A snapshot that stays on disk because somebody copies it."""

    def __init__(self, saved: Saved, source: SnapshotSource) -> None:
        self.saved = saved
        self.source = source
        self.users = 0
        self.release: asyncio.TimerHandle | None = None


class Supply:
    """All that is being copied from this replica."""

    def __init__(self, host: SupplyHost) -> None:
        self.host = host
        self._pinned: dict[Offer, Pinned] = {}
        self._stopped = False

    async def pin(self, position: int, known: Offer | None) -> tuple[Offer, Pinned]:
        """Return a snapshot that is ahead of this position: the one that is known, if it is still here."""
        if known is not None and known in self._pinned:
            return known, self._use(known)
        durability = self.host.durability
        while True:
            saved = await durability.snapshot_above(position, MOST_BEHIND)
            offer = Offer(saved.number, saved.position)
            if offer in self._pinned:
                return offer, self._use(offer)
            if await durability.in_thread(durability.pin, saved):
                if offer in self._pinned:  # by another, meanwhile
                    await durability.in_thread(durability.unpin, saved)
                else:
                    source = SnapshotSource(self.host.machine.files, saved.path)
                    self._pinned[offer] = Pinned(saved, source)
                return offer, self._use(offer)

    def _use(self, offer: Offer) -> Pinned:
        pinned = self._pinned[offer]
        pinned.users += 1
        if pinned.release is not None:
            pinned.release.cancel()
            pinned.release = None
        return pinned

    def leave(self, offer: Offer) -> None:
        """Have a snapshot go, after a while, unless somebody copies it by then."""
        pinned = self._pinned[offer]
        pinned.users -= 1
        if not pinned.users and not self._stopped:
            seconds = self.host.machine.limits.seconds_pinned
            pinned.release = asyncio.get_running_loop().call_later(seconds, self._release, offer)

    def _release(self, offer: Offer) -> None:
        durability = self.host.durability
        durability.in_thread(durability.unpin, self._pinned.pop(offer).saved)

    def stop(self) -> None:
        self._stopped = True
        for pinned in self._pinned.values():
            if pinned.release is not None:
                pinned.release.cancel()


class Supplied:
    """One connection on which a member asks for a snapshot, or for rows."""

    def __init__(self, supply: Supply, pid: int, transport: asyncio.Transport) -> None:
        self._supply = supply
        self._host = supply.host
        peer = supply.host.membership.peer(pid)
        assert peer is not None, "it has greeted"
        self._peer = peer
        if self._peer.group != self._host.me.group:
            raise WireError(f"{self._peer.name} is of another group than {self._host.me.name}")
        self._transport = transport
        self._wanted: asyncio.Queue[int] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def take(self, kind: int, number: int, body: bytes) -> None:
        """Answer a frame of this member. Raises WireError."""
        if kind == frames.PULL and self._task is None:
            pull = frames.decode(frames.pull_decoder, body)
            self._task = asyncio.ensure_future(self._send_parts(pull))
        elif kind == frames.WANT and self._task is not None and self._wanted.qsize() < MOST_WANTED:
            self._wanted.put_nowait(number)
        elif kind == frames.READ:
            self._send_rows(frames.decode(frames.read_decoder, body))
        else:
            raise WireError(f"a frame of kind {kind} on a connection for snapshots")

    async def _send_parts(self, pull: frames.Pull) -> None:
        try:
            if reason := self._host.why_not_supply():
                raise WireError(reason)
            offer, pinned = await self._made(pull)
            try:
                self._transport.write(frame(frames.OFFER, frames.encode(offer)))
                self._host.log.info("snapshot offered", peer=self._peer.name, position=offer.position)
                while True:
                    number = await self._wanted.get()
                    part = await self._host.durability.in_thread(pinned.source.piece, number)
                    self._transport.write(frame(frames.PART, part, number))
            finally:
                self._supply.leave(offer)
        except (PeerError, OSError, AmcastError) as error:
            self._fail(str(error))

    async def _made(self, pull: frames.Pull) -> tuple[Offer, Pinned]:
        """Return a snapshot, and say every second that it is being made, if that takes longer."""
        making = asyncio.ensure_future(self._supply.pin(pull.position, pull.known))
        try:
            while not (await asyncio.wait([making], timeout=1.0))[0]:
                self._transport.write(frame(frames.MAKING, b""))
        except asyncio.CancelledError:
            making.cancel()
            raise
        return making.result()

    def _send_rows(self, read: frames.Read) -> None:
        history = self._host.durability.history
        most = min(read.most_bytes, self._host.machine.limits.rows_at_once)
        first = after = read.position
        rows = b""
        try:
            if read.position >= history.earliest:  # else the answer says so
                first, after, rows = history.read(read.position, most)
        except AmcastError as error:
            self._fail(str(error))
            return
        answer = Rows(read.id, first, after, history.earliest, history.end, rows)
        self._transport.write(frame(frames.ROWS, frames.encode(answer)))

    def _fail(self, reason: str) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame(frames.FAILED, frames.encode(Refusal(-1, reason))))

    def left(self) -> None:
        """Stop: the member is gone."""
        if self._task is not None:
            self._task.cancel()
