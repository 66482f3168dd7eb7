"""Carries what a node has to say to `comparison.py` and back: a statement every second, on the links to its group."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from amcast.core.protocol import Protocol as Row
from amcast.errors import ReplicasDiffer
from amcast.runtime import frames
from amcast.runtime.chain import Chain
from amcast.runtime.comparison import Comparison, Statement, statement_decoder
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.framing import frame
from amcast.runtime.links import Outgoing
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine


class ExchangeHost(Protocol):
    """The node, as it compares itself with others."""

    config: ClusterConfig
    me: Member
    protocol: Row
    machine: Machine
    log: Log
    chain: Chain

    @property
    def links(self) -> Mapping[int, Outgoing]: ...

    def fail(self, error: BaseException) -> None: ...


class Exchange:
    """The comparison of one node with the others of its group, from `start` to `stop`."""

    def __init__(self, host: ExchangeHost) -> None:
        self._host = host
        self._timer: asyncio.TimerHandle | None = None
        self._told_on: dict[int, object] = {}  # the connections on which members were told of our chain
        self._stopped = False
        self.comparison: Comparison | None = None  # where replicas need not have the same at a position
        self.members_changed()

    def members_changed(self) -> None:
        """Compare with those who are members now."""
        host = self._host
        members = host.config.group(host.me.group)
        self.comparison = None
        compares = "total" in host.protocol.orders and not host.protocol.joins and not self._stopped
        if compares and len({host.me, *members}) > 1:
            names = {member.pid: member.name for member in (host.me, *members)}
            group = host.config.topology.group_name(host.me.group)
            self.comparison = Comparison(self, group, host.me.pid, names, len(members) // 2 + 1)

    @property
    def chain(self) -> Chain:
        """Return the chain of the node, which is another one after it has restored a snapshot."""
        return self._host.chain

    def start(self) -> None:
        """Tell the others of the group what was applied, now and again and again."""
        if self._stopped:
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._host.machine.limits.compare_every, self.start)
        if self.comparison is None:
            return
        for pid, link in self._host.links.items():
            if link.connection is not self._told_on.get(pid):
                self.comparison.connected(pid)
        try:
            self.comparison.tick()
        except ReplicasDiffer as error:
            self._fail(error)

    def stop(self) -> None:
        self._stopped = True
        self.comparison = None
        if self._timer is not None:
            self._timer.cancel()

    def hear(self, pid: int, body: bytes) -> None:
        """Hear what a member has applied. Raises WireError."""
        statement = frames.decode(statement_decoder, body)
        if self.comparison is not None:
            try:
                self.comparison.hear(pid, statement)
            except ReplicasDiffer as error:
                self._fail(error)

    def state(self, pid: int, statement: Statement) -> bool:
        """Send a statement to a member, if it is connected; return whether it is."""
        link = self._host.links.get(pid)
        if link is None or link.connection is None:
            return False
        self._told_on[pid] = link.connection
        link.connection.transport.write(frame(frames.STATEMENT, frames.encode(statement)))
        return True

    def differs(self, name: str, position: int) -> None:
        """Say that a member differs from the majority, to which we belong; it stops by itself."""
        self._host.log.error("replica differs", peer=name, position=position)

    def _fail(self, error: ReplicasDiffer) -> None:
        self.stop()
        self._host.fail(error)
