"""In which format a cluster writes: one number for wires, records and snapshots, raised when all members can.

A release knows two formats: the one before, which it reads and writes, and its own. Members get a new release one by
one, and all go on in the format that is in use. When every member of every group is connected and knows a newer one,
each leader has its group order a message of this cluster's own, to all groups: the raise. Its id is made of the format,
so it is delivered once, whoever sends it. From its delivery on a replica writes the newer format. All can read it: who
cannot is let in nowhere any more. Until then each member can go back to the release before, after it not.

What is in use is a fact of the order, and stands in each data folder (`identity`) and snapshot, ahead of all that is
written in it: so older code refuses the folder in one line, before it takes what it cannot read for damage. A replica
without a state of its own writes in what the first member that it meets says is in use.

A protocol knows nothing of it: it reads and writes its own layouts. What goes to other members and to the disk is put
into that of the format in use (`Codec.at`), and what comes from the disk into its own.

Only protocols with leaders raise it; with others a cluster keeps the format that it began with.
"""

from typing import Final, Protocol

from amcast.core.capabilities import Electing
from amcast.core.protocol import Protocol as Row
from amcast.core.requests import Multicast
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage, Codec
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.durability import Durability, NodeSnapshot, read_snapshot
from amcast.runtime.engine import Engine
from amcast.runtime.frames import OURS, Spoken
from amcast.runtime.identity import Described
from amcast.runtime.links import Incoming, Outgoing
from amcast.runtime.log import Log
from amcast.runtime.serving import SESSION_BITS
from amcast.runtime.versions import LATEST, PROPOSE_AGAIN, number_to_all

RAISER: Final = (1 << SESSION_BITS) - 5  # below the sessions of all clients, as those of other messages of the cluster


def raise_in(mid: Mid) -> int:
    """Return the format that is in use from this message on; 0 if it is another message."""
    return seq_of(mid) & LATEST if sender_of(mid) == RAISER else 0


class FormatsHost(Protocol):
    """The node, as this module sees it."""

    config: ClusterConfig
    me: Member
    log: Log
    protocol: Row
    engine: Engine
    durability: Durability
    incoming: Incoming
    links: dict[int, Outgoing]


class Formats:
    """What one replica knows and writes, and what the members know."""

    def __init__(self, host: FormatsHost, knows: Spoken = OURS) -> None:
        self.knows = knows
        self.used = 0  # 0: this replica has yet to hear it
        self._host = host
        self._known: dict[int, int] = {}
        self._wait_until = 0  # a raise was proposed
        self._own: Codec | None = host.protocol.records  # as the protocol reads and writes its records
        self._written = self._own

    @property
    def level(self) -> int:
        """Return the format to write."""
        return self.used or self.knows.oldest

    def ours(self) -> Spoken:
        """Return what to say in a greeting."""
        return Spoken(self.knows.oldest, self.knows.newest, self.used)

    def begin(self, described: Described | None, *, rejoins: bool) -> None:
        """Go on in the format of the data here; a first start begins with the older one, a rejoin has none."""
        if not rejoins:
            self.use(described.format if described is not None else self.knows.oldest)

    def use(self, format: int) -> None:
        """Write this one from now on. It is on disk that it is in use before anything in it is."""
        if format <= self.used:
            return
        self.used = format
        self._host.engine.speak(format)
        if self._own is not None:
            self._written = self._own.at(format)
        self._host.durability.describe_format(format)

    # Records

    def written(self, records: list[bytes]) -> list[bytes]:
        """Return records of the protocol as they are written."""
        return rewritten(records, self._own, self._written)

    def read(self, records: list[bytes]) -> list[bytes]:
        """Return records as the protocol reads them, in whichever format they were written."""
        return rewritten(records, self._own, self._own)

    def snapshot(self, pieces: list[bytes]) -> NodeSnapshot:
        """Return the snapshot of our own that is in these pieces, and go on in its format."""
        found = read_snapshot(pieces, self.knows.oldest, self.knows.newest)
        self.use(found.format)
        return found

    def taken(self, snapshot: NodeSnapshot) -> list[bytes]:
        """Return the records in another member's snapshot, and go on in its format."""
        self.use(snapshot.format)
        return self.read(snapshot.protocol)

    # Others

    def greeted(self, name: str, theirs: Spoken) -> str | None:
        """Return why somebody and we do not understand each other; None if we do."""
        me, ours = self._host.me.name, self.knows
        if ours.newest < theirs.oldest or theirs.newest < ours.oldest:
            said = f"{name} knows formats {theirs.oldest} to {theirs.newest}, {me} {ours.oldest} to {ours.newest}"
            return f"{said}; run releases that follow on each other, or the same"
        return None

    def member_greeted(self, pid: int, name: str, theirs: Spoken) -> str | None:
        """Take note of what a member knows; return why it and we cannot read what the other one writes."""
        me = self._host.me.name
        self.heard(theirs)
        for who, knows, other, used in ((name, theirs, me, self.used), (me, self.knows, name, theirs.used)):
            if used and not knows.oldest <= used <= knows.newest:
                wanted = "a newer" if used > knows.newest else "an older"
                said = f"{who} knows formats {knows.oldest} to {knows.newest}, but {other} writes format {used}"
                return f"{said}; start {who} with {wanted} amcast"
        self._known[pid] = theirs.newest
        return None

    def heard(self, theirs: Spoken) -> None:
        """Go by what a member says is in use, if this replica has nothing of its own to go by."""
        if not self.used and self.knows.oldest <= theirs.used <= self.knows.newest:
            self.use(theirs.used)

    def left(self, pid: int) -> None:
        self._known.pop(pid, None)

    # The raise

    def proposal(self, now: int) -> Multicast | None:
        """Return what the leader of a group has its process order, when it is time for a raise."""
        if self.used >= self.knows.newest or not self.used or now < self._wait_until:
            return None
        host, process = self._host, self._host.engine.process
        others = [member.pid for member in host.config.members if member.pid != host.me.pid]
        if any(pid not in self._known for pid in others) or not (isinstance(process, Electing) and process.leads()):
            return None
        format = min([self.knows.newest, *self._known.values()])
        if format <= self.used:
            return None
        self._wait_until = now + PROPOSE_AGAIN
        number = number_to_all(host.config, format)
        return Multicast(AppMessage(message_id(RAISER, number), host.config.groups, b""))

    def raised(self, format: int, position: int) -> None:
        """Write a newer format: this is the place of the raise in the order. Part from who cannot read it."""
        if format <= self.used:
            return
        before, host = self.used, self._host
        self.use(format)
        host.log.info("format raised", format=format, before=before, position=position)
        for pid in [pid for pid, newest in self._known.items() if newest < format]:  # it went back meanwhile
            for end in (host.incoming.current.get(pid), host.links[pid].connection if pid in host.links else None):
                if end is not None:
                    end.transport.abort()


def rewritten(records: list[bytes], own: Codec | None, wanted: Codec | None) -> list[bytes]:
    """Return these records in the layouts of another codec with the same table."""
    if own is None or wanted is None or not own.has_layouts:
        return records
    return [wanted.written(own.read(record)) for record in records]
