"""How a replica gives out the state of its group at one place of the total order, while it goes on.

A mark is a message of the cluster's own to all groups, as a change of version is (`versions.py`): it takes a position
in each log, and no application sees it. What each group delivered before it is one cut: two groups that share a message
order it alike, before the mark or behind it. Whoever takes a backup is a client that may read and write all groups. It
has one replica of each group prepare, has the mark ordered, and copies from each what that one wrote when it delivered
the mark: the state of its application, what it remembers of clients, and their answers, all of this very position.

Nothing waits for a cut. The state is taken as that of a snapshot is, and written by the thread of the disk, in parts,
between commits. It is gone when its client is, or has asked for nothing for a while, or when the replica starts again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from amcast.core.application import Speculator, state_in_pieces
from amcast.core.capabilities import Electing, Seated
from amcast.core.process import Memory
from amcast.core.protocol import Protocol as Row
from amcast.core.requests import Multicast
from amcast.core.topology import SEQ_BITS, Mid, message_id, sender_of
from amcast.core.wire import AppMessage
from amcast.errors import AmcastError, PeerError, WireError
from amcast.runtime import frames
from amcast.runtime.backup import CutHead, cut_pieces
from amcast.runtime.config import ClusterConfig, Grant, Member
from amcast.runtime.durability import CUT, Durability
from amcast.runtime.engine import Engine
from amcast.runtime.execution import Executor
from amcast.runtime.frames import Made, Refusal
from amcast.runtime.framing import frame
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine
from amcast.runtime.pulse import Pulses
from amcast.runtime.serving import SESSION_BITS, Results
from amcast.runtime.snapshots import SnapshotSource, SnapshotWriter
from amcast.runtime.versions import Versions

DRAWN_BITS: Final = 42  # of the number of a mark; those above count groups that came later
MARKER: Final = (1 << SESSION_BITS) - 2  # sends marks; below the sessions of all clients
KINDS: Final = (frames.CUT, frames.MARK, frames.WANT)


def is_mark(mid: Mid) -> bool:
    """Return whether this message is a mark, and none for the application."""
    return sender_of(mid) == MARKER


def mark_number(drawn: int, config: ClusterConfig) -> int:
    """Return the number of a mark to all groups that there are by now: nobody may order it among other ones."""
    return (len(config.groups) - len(config.topology.sizes)) << DRAWN_BITS | drawn


def groups_of(number: int, config: ClusterConfig) -> int:
    return len(config.topology.sizes) + (number >> DRAWN_BITS)


def why_no_backup(protocol: Row) -> str:
    """Say why clusters of this protocol have no backups; empty if they have."""
    if protocol.joins:
        return f"members of {protocol.name} come and go, and all have the whole log: see 'amcast ledger found'"
    if not protocol.durable or not protocol.elects:
        return (
            f"replicas of {protocol.name} do not come back from a disk, so no cluster can be founded with their state"
        )
    return ""


class CutsHost(Protocol):
    """The node, as backups see it."""

    config: ClusterConfig
    me: Member
    protocol: Row
    machine: Machine
    log: Log
    engine: Engine
    durability: Durability
    pulses: Pulses
    versions: Versions
    results: Results
    app: Executor | Speculator | None

    def act(self) -> None:
        """Have what the process wants done be done, at the end of this turn."""

    def readiness(self) -> str | None: ...

    def now(self) -> int: ...


class Asker(Protocol):
    """The connection of a client."""

    transport: asyncio.Transport
    grant: Grant | None


class Cut:
    """What one client copies from this replica."""

    def __init__(self, mid: Mid, number: int, asker: Asker) -> None:
        self.mid = mid
        self.number = number
        self.asker = asker
        self.task: asyncio.Task[None] | None = None
        self.path: Path | None = None  # of its file
        self.source: SnapshotSource | None = None  # when it is whole
        self.wanted: asyncio.Queue[int] = asyncio.Queue()
        self.patience: asyncio.TimerHandle | None = None


class Cuts:
    """All that is given out for backups: one at a time, for each is a copy of the state."""

    def __init__(self, host: CutsHost) -> None:
        self._host = host
        self._cut: Cut | None = None
        self._stopped = False

    def take(self, asker: Asker, kind: int, number: int) -> None:
        """Handle a frame of a client. Raises WireError."""
        try:
            if reason := self._why_not(asker, number):
                raise WireError(reason)
            if kind == frames.MARK:
                self._order(number)
            elif kind == frames.CUT:
                self._prepare(asker, number)
            elif self._cut is not None and self._cut.asker is asker:
                self._cut.wanted.put_nowait(number)
                self._wait_for_asker(self._cut)
        except WireError as error:
            self._fail(asker, str(error))

    def _why_not(self, asker: Asker, number: int) -> str:
        assert asker.grant is not None
        if self._stopped:
            return f"{self._host.me.name} stops"
        groups = self._host.config.groups
        if not (asker.grant.read.issuperset(groups) and asker.grant.write.issuperset(groups)):
            return f"{asker.grant.name} may not back up the cluster: that takes read and write of all groups"
        return "" if 0 <= number < 1 << SEQ_BITS else f"number {number}: expected one of {SEQ_BITS} bits"

    def _other_groups(self, number: int) -> str:
        """Say that there are other groups than the backup is of; empty if not.

        Who has delivered a message to a group that is not among them would give out one part of it alone.
        """
        process: object = self._host.engine.process
        wanted = groups_of(number, self._host.config)
        there = process.groups() if isinstance(process, Seated) else len(self._host.config.groups)
        return "" if there == wanted else f"the backup is of {wanted} groups, and there are {there}; begin it again"

    def _prepare(self, asker: Asker, number: int) -> None:
        host = self._host
        mid = message_id(MARKER, number)
        reason = why_no_backup(host.protocol) or host.readiness() or host.durability.short_of_space()
        reason = reason or self._other_groups(number)
        if reason:
            raise WireError(reason)
        if self._cut is not None:
            raise WireError("another backup is being taken; try again when it is done")
        if host.engine.process.has_delivered(mid):
            raise WireError(f"mark {number} was delivered before")
        self._cut = Cut(mid, number, asker)
        self._wait_for_asker(self._cut)
        host.engine.out.marks.add(mid)
        asker.transport.write(frame(frames.CUT, frames.encode(Made()), number))

    def _order(self, number: int) -> None:
        """Have the process order a mark, if that is up to this replica. It may be asked more often than it takes."""
        process = self._host.engine.process
        if reason := self._other_groups(number):
            raise WireError(reason)
        groups = tuple(range(groups_of(number, self._host.config)))
        refusal = self._host.pulses.refusal_of(groups)
        if refusal is not None and refusal[0] == frames.UNAVAILABLE:  # a mark is nothing to a group that is only busy
            raise WireError(refusal[1])
        if not isinstance(process, Electing) or not process.leads():
            return
        mark = Multicast(AppMessage(message_id(MARKER, number), groups, b""))
        self._host.engine.handle(self._host.now(), MARKER, [mark])
        self._host.act()

    def reached(self, mid: Mid, position: int, memories: dict[Mid, Memory]) -> None:
        """Take the state, if this is the mark: all before it is executed, and nothing that was delivered behind it."""
        cut, host = self._cut, self._host
        if cut is None or cut.mid != mid or cut.path is not None:
            return
        host.engine.out.marks.discard(mid)
        if reason := self._other_groups(cut.number):
            self.failed(reason)
            return
        memory = memories[mid]
        try:
            app = state_in_pieces(host.app) if host.app is not None else iter(())
        except AmcastError as error:  # no reason to stop: nobody but a backup asked for it here
            self.failed(str(error))
            return
        # Of clients alone: what members and the cluster itself sent means nothing in another one.
        sessions = [row for row in memory[0] if row[0] >> SESSION_BITS]
        idle = [row for row in memory[1] if row[0] >> SESSION_BITS]
        kept = [row for row in host.results.rows() if row[0] >> SESSION_BITS]
        head = CutHead(host.me.group, position, host.versions.ours().active, (sessions, idle), kept)
        cut.path = host.me.data / f"{CUT}{cut.number}"
        cut.task = asyncio.ensure_future(self._give(cut, position, cut_pieces(head, app)))
        host.log.info("state taken for a backup", position=position)

    def failed(self, reason: str) -> None:
        """Give up, for the state cannot be had."""
        cut = self._cut
        assert cut is not None
        self._host.log.warning("backup given up", error=reason)
        self._fail(cut.asker, f"{self._host.me.name}: {reason}")
        self._drop(cut)

    def jumped(self) -> None:
        """Give up if the mark was among what another replica delivered, whose state this one has taken over."""
        cut = self._cut
        if cut is not None and cut.path is None and self._host.engine.process.has_delivered(cut.mid):
            self.failed("it was far behind, and has not delivered the mark itself")

    async def _give(self, cut: Cut, position: int, pieces: Iterator[bytes]) -> None:
        """Write the state to a file, and send the parts that are asked for."""
        host, durability = self._host, self._host.durability
        assert cut.path is not None
        writer = None
        try:
            writer = await durability.in_thread(SnapshotWriter, host.machine, cut.path, cut.number, pieces)
            while not await durability.in_thread(writer.write_some):
                if reason := durability.short_of_space():
                    raise AmcastError(reason)
                self._wait_for_asker(cut)
            made = Made(position, writer.count + 1)
            writer = None
            cut.source = SnapshotSource(host.machine.files, cut.path)
            cut.asker.transport.write(frame(frames.CUT, frames.encode(made), cut.number))
            while True:
                number = await cut.wanted.get()
                part = await durability.in_thread(cut.source.piece, number)
                cut.asker.transport.write(frame(frames.PART, part, number))
        except (PeerError, OSError, AmcastError) as error:
            host.log.warning("backup given up", error=str(error))
            self._fail(cut.asker, f"{host.me.name}: {error}")
        finally:
            if writer is not None:
                with suppress(RuntimeError):  # it stops: a start removes what is left
                    durability.in_thread(writer.close)  # not while that thread writes

    def _wait_for_asker(self, cut: Cut) -> None:
        """Give the client more time to ask for the next part."""
        if cut.patience is not None:
            cut.patience.cancel()
        seconds = self._host.machine.limits.seconds_pinned
        cut.patience = asyncio.get_running_loop().call_later(seconds, self._drop, cut)

    def left(self, asker: Asker) -> None:
        """Forget what this client wanted."""
        if self._cut is not None and self._cut.asker is asker:
            self._drop(self._cut)

    def _drop(self, cut: Cut) -> None:
        if cut is not self._cut:
            return
        self._cut = None
        self._host.engine.out.marks.discard(cut.mid)
        if cut.patience is not None:
            cut.patience.cancel()
        if cut.task is None:
            return
        cut.task.cancel()
        path = cut.path
        assert path is not None
        self._host.durability.in_thread(self._remove, path)  # behind what is being written

    def _remove(self, path: Path) -> None:
        """Remove the file of a cut, whole or not. In the thread of the disk."""
        files = self._host.machine.files
        for name in files.names(path.parent):
            if name.startswith(path.name):
                files.remove(path.parent / name)

    def stop(self) -> None:
        """Give up what is under way: this node stops."""
        self._stopped = True
        if self._cut is not None:
            cut, self._cut = self._cut, None
            if cut.patience is not None:
                cut.patience.cancel()
            if cut.task is not None:
                cut.task.cancel()

    def _fail(self, asker: Asker, reason: str) -> None:
        if not asker.transport.is_closing():
            asker.transport.write(frame(frames.FAILED, frames.encode(Refusal(-1, reason))))
