"""The members of the groups, as one node sees them: whom it is connected to, whom it tells, and who asks for a change.

The protocol agrees on lists of members, in the order of each group (`Seated`). From its lists follow the addresses of
all others (`seats.py`), and from these the links of this node. A replica that is in no list may greet all the same: one
that is to become a member and learns what its group delivered, or one that was removed and has not heard of it. It is a
guest: a link to it lasts as long as its own to us.

A change of the members is asked for by a client that may operate the cluster. The leader of the group refuses what
would leave the group without a quorum, or make a member of somebody who has yet to learn, and has its group order the
rest. Its id is made of what it says, so that however often and by whom it is proposed, it takes effect once.

A group that is to come is asked for likewise, of the leader of the first group (`REGISTRAR`): its members run already,
and are guests until the first of the messages that name its number is delivered there. So no group waits for another.
"""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from ssl import SSLContext
from typing import TYPE_CHECKING, Final

from amcast.core.capabilities import Electing, Listing, Seated
from amcast.core.requests import REGISTRAR, Multicast
from amcast.core.topology import Mid, message_id, sender_of
from amcast.core.wire import AppMessage
from amcast.errors import UsageError, WireError
from amcast.runtime import frames
from amcast.runtime.config import Member, refuse_addresses
from amcast.runtime.frames import Change, Hello, Pulse
from amcast.runtime.links import Outgoing
from amcast.runtime.machine import write_all
from amcast.runtime.seats import (
    FILE,
    Place,
    address_of,
    agreed_of,
    agreed_on,
    difference,
    member_at,
    merged,
    place_of,
    places_in,
    written,
)
from amcast.runtime.serving import SESSION_BITS

if TYPE_CHECKING:
    from amcast.runtime.node import Node

CHANGER: Final = (1 << SESSION_BITS) - 4  # below the sessions of all clients, as those of other messages of the cluster
NEAR: Final = 10_000  # deliveries: who lacks more has to learn before it becomes a member
UNKNOWN: Final = "?:1"


def is_change(mid: Mid) -> bool:
    """Return whether this message changes the members of its group; no application sees it."""
    return sender_of(mid) == CHANGER


class Membership:
    """What one node knows and does about members."""

    def __init__(self, node: "Node", joins: str | None) -> None:
        """Prepare. `joins` says whose place this replica is to take, empty if nobody's; None if it is a member."""
        self._node = node
        self._joins = joins
        self._topology = node.config.topology
        self._guests: dict[int, Member] = {}
        self._learnt: dict[int, int] = {}  # how much guests have delivered
        self._known: tuple[int, ...] = ()
        self._proposed: tuple[int, bytes] = (-1, b"")  # the epoch that it is to end, and what was proposed
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._context: SSLContext | None = None
        self._linked = False
        self._gone = False
        # Whoever counts positions is told of those that no application sees.
        self.passed: Callable[[int], None] = lambda position: None

    # Others

    def peer(self, pid: int) -> Member | None:
        """Return another replica whose address is known."""
        return self._node.config.at(pid) or self._guests.get(pid)

    def greeted(self, hello: Hello) -> Member:
        """Return who greets, a guest if it is no member. Raises WireError."""
        node = self._node
        names = self._topology.names[: self._topology.replicas]
        pid = names.index(hello.name) if hello.name in names else -1
        if pid < 0 or pid == node.me.pid:
            raise WireError(f"{hello.name!r} is no other member of {node.config.name}")
        member = node.config.at(pid)
        came = member is not None and member.group >= len(self._topology.sizes)
        if member is not None and came and hello.at and hello.at != str(member.peer):
            raise WireError(f"{hello.name} is at {member.peer}, not at {hello.at}: others founded g{member.group}")
        if member is None:
            place = Place(self._topology.rank_of[pid], hello.at or UNKNOWN, UNKNOWN, UNKNOWN)
            try:
                member = self._guests[pid] = member_at(node.config, self._topology.group_of[pid], place)
            except ValueError:
                raise WireError(f"{hello.name} says that it is at {hello.at!r}; expected host:port") from None
        return member

    def arrived(self) -> None:
        """Connect to a guest that has come."""
        self._connect()

    def left(self, pid: int) -> None:
        """Take note that a replica has hung up."""
        self._learnt.pop(pid, None)
        self._connect()

    def heard(self, pid: int, pulse: Pulse) -> None:
        self._learnt[pid] = pulse.position

    def start(self, context: SSLContext | None) -> None:
        """Connect to all whom this node has to do with, from now on."""
        self._context = context
        self._linked = True
        self._connect()

    def stop(self) -> None:
        self._linked = False
        for task in self._tasks.values():
            task.cancel()

    def _connect(self) -> None:
        """Have a link to whoever needs one, and to nobody else."""
        if not self._linked:
            return
        node = self._node
        members = node.config.needed or [member.pid for member in node.config.members]
        wanted = {*members, *node.incoming.current} - {node.me.pid}
        for pid in wanted:
            member = self.peer(pid)
            if pid not in node.links and member is not None:
                link = node.links[pid] = Outgoing(node, member, self._context)
                self._tasks[pid] = asyncio.create_task(link.run())
        for pid in [pid for pid in node.links if pid not in wanted]:
            node.links.pop(pid).close()
            self._tasks.pop(pid).cancel()

    # The lists

    def look(self) -> None:
        """Go by what the protocol knows by now."""
        process: object = self._node.engine.process
        if not isinstance(process, Listing) or process.known() == self._known:
            return
        node = self._node
        first = not self._known
        self._known = process.known()
        lists = merged(process.lists(), node.config.lists)
        if not lists:
            return
        node.config = agreed_on(node.config, lists)
        if first and (line := difference(node.config)):
            raise UsageError(line)
        if not first:
            for g, number in [(g, number) for g, number in enumerate(self._known) if number]:
                names = ", ".join(member.name for member in node.config.group(g))
                node.log.info("members", group=f"g{g}", epoch=number // 2, settled=number % 2 == 1, are=names)
        for pid in list(self._guests):
            if (member := node.config.at(pid)) is not None:
                self._settle(self._guests.pop(pid), member)
        node.incoming.door.reserved = frozenset(member.peer.host for member in node.config.members)
        node.pulses.look_for_groups()
        node.exchange.members_changed()
        node.serving.tell_members()
        self._connect()
        self._keep()
        if isinstance(process, Seated) and process.is_removed() and not self._gone:
            self._gone = True
            node.log.warning("removed", reason=node.engine.process.unready())
            if node.trace is not None:  # whoever reads the trace is not to wait for what the others deliver
                node.trace.row("crash")
                node.trace.flush()

    def _settle(self, guest: Member, member: Member) -> None:
        """Go on with a guest as the member that it is by now; part from it if that is somebody else."""
        node = self._node
        if guest.peer == member.peer or guest.peer == address_of(UNKNOWN):
            return
        if (link := node.links.pop(guest.pid, None)) is not None:
            link.close()
            self._tasks.pop(guest.pid).cancel()
        if (connection := node.incoming.current.get(guest.pid)) is not None:
            connection.transport.abort()

    def begin(self) -> None:
        """Tell the protocol what was known before it began: it need not be on its own disk."""
        process: object = self._node.engine.process
        if isinstance(process, Listing) and self._node.config.lists:
            process.learn_lists(self._node.now(), self._node.config.lists)

    def _keep(self) -> None:
        """Write down who the members are, for whoever starts here."""
        node = self._node
        if not node.config.durable or node.durability.storage is None:
            return
        data = written(agreed_of(node.config, node.config.lists))
        joins = self._joins
        if joins is not None and node.config.at(node.me.pid) is None:
            data = written(agreed_of(node.config, node.config.lists, place_of(node.me), joins))
        future = node.durability.in_thread(self._write, data)
        future.add_done_callback(self._kept)

    def _write(self, data: bytes) -> None:
        """Write the file as a whole. In the thread of the disk."""
        files, path = self._node.machine.files, self._node.me.data / FILE
        new = path.with_suffix(".new")
        fd = files.open(new, new=True)
        try:
            write_all(files, fd, data)
            files.sync(fd)
        finally:
            files.close(fd)
        files.replace(new, path)

    def _kept(self, future: "asyncio.Future[None]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:  # the protocol has it in its records, and another start writes it again
            self._node.log.warning("members not written down", error=str(error))

    # Changes

    def refusal_of(self, change: Change) -> tuple[int, str] | None:
        """Have a change ordered; return why not, as the kind of refusal and a text."""
        node, process = self._node, self._node.engine.process
        g = node.me.group
        if node.protocol.change is None or not isinstance(process, Seated) or not isinstance(process, Electing):
            return frames.FORBIDDEN, f"{node.protocol.name} has fixed members"
        if change.group != g:
            return self._refusal_to_found(change)
        if not process.leads():
            return frames.UNAVAILABLE, f"{node.me.name} does not lead g{g}"
        epoch = process.epoch()
        if change.from_epoch < epoch:
            if process.seats_in(change.from_epoch + 1) == change.seats:
                return None  # it was asked for before
            return (
                frames.FORBIDDEN,
                f"the members of g{g} have changed meanwhile: now {self._names(g)}; look again",
            )
        if change.from_epoch > epoch:
            return frames.UNAVAILABLE, f"{node.me.name} has not got to that yet"
        payload = node.protocol.change(epoch, change.seats, change.about)
        if self._proposed[0] == epoch and self._proposed[1] != payload:
            return frames.FORBIDDEN, f"another change of g{g} is under way; see 'amcast cluster status'"
        if self._proposed[0] != epoch:
            if not process.is_settled(g):
                return frames.UNAVAILABLE, f"the last change of g{g} is still under way; see 'amcast cluster status'"
            if reason := self._why_not(change):
                return frames.FORBIDDEN, reason
            if reason := self._why_not_yet(change):
                return frames.UNAVAILABLE, reason
        self._proposed = epoch, payload
        self._propose(payload)
        return None

    def _propose(self, payload: bytes) -> None:
        """Have the own group order a change."""
        node = self._node
        seq = int.from_bytes(sha256(node.config.name.encode() + payload).digest()[:5])  # a backup remembers old ones
        message = Multicast(AppMessage(message_id(CHANGER, seq), (node.me.group,), payload))
        node.engine.handle(node.now(), CHANGER, [message])
        node.act()

    # Groups that come

    def _refusal_to_found(self, change: Change) -> tuple[int, str] | None:
        """Have a group added; return why not, as the kind of refusal and a text."""
        node, process, g = self._node, self._node.engine.process, change.group
        config, there = node.config, len(node.config.groups)
        if node.me.group != REGISTRAR or g < len(self._topology.sizes) or node.protocol.found is None:
            return frames.FORBIDDEN, f"{node.me.name} is not of g{g}"
        if not isinstance(process, Electing) or not process.leads():
            return frames.UNAVAILABLE, f"{node.me.name} does not lead g{REGISTRAR}"
        if g < there:
            first = next(row for row in config.lists if row[0] == g and row[1] == 0)
            if first[4] == change.about:
                return None  # it was asked for before
            where = ", ".join(place.peer for place in places_in(first[4]))
            return frames.FORBIDDEN, f"g{g} is there already, at {where}; the next group is g{there}"
        if g > there:
            return frames.FORBIDDEN, f"the next group is g{there}: groups are numbered without gaps"
        if reason := self._why_not_found(change):
            return frames.FORBIDDEN, reason
        if reason := self._why_not_found_yet(change):
            return frames.UNAVAILABLE, reason
        self._propose(node.protocol.found(g, len(change.seats), change.about))
        return None

    def _why_not_found(self, change: Change) -> str:
        """Say why this cannot be a group; empty if it can."""
        g, seats = change.group, change.seats
        if g >= len(self._topology.groups):
            return f"the cluster has had {len(self._topology.groups)} groups, and there is no number for another one"
        most = len(self._topology.groups[g])
        if not seats or seats != tuple(range(len(seats))) or len(seats) > most:
            return f"seats {list(seats)}: expected 0, 1, … without gaps, at most {most}"
        places = places_in(change.about)
        if tuple([place.seat for place in places]) != seats:
            return "it does not say where all members are"
        try:
            self._refuse_addresses(g, places)
        except (UsageError, ValueError) as error:
            return str(error)
        return ""

    def _why_not_found_yet(self, change: Change) -> str:
        """Say why this cannot be a group just now; empty if it can: all groups serve, and all its members are there."""
        node = self._node
        if reason := next((reason for reason in node.pulses.refusals if reason), ""):
            return reason
        for g in node.config.groups:  # who has just started refuses nothing yet
            members = node.config.group(g)
            away = [one.name for one in members if one.pid != node.me.pid and not node.pulses.hears(one.pid)]
            if 2 * len(away) >= len(members):
                return f"g{g} has no quorum: nothing is heard of {', '.join(away)}"
        for place in places_in(change.about):
            pid = self._topology.groups[change.group][place.seat]
            guest = self._guests.get(pid)
            if guest is None or pid not in node.incoming.current or not node.pulses.hears(pid):
                return f"g{change.group}/{place.seat} is not there: it must run before its group is added"
            if str(guest.peer) != place.peer:
                return f"g{change.group}/{place.seat} is at {guest.peer}, not at {place.peer}"
            if reason := node.pulses.refuses(pid):
                return reason
        return ""

    def _names(self, g: int) -> str:
        return ", ".join(member.name for member in self._node.config.group(g))

    def _why_not(self, change: Change) -> str:
        """Say why the members of the own group cannot become these; empty if they can."""
        node, g, seats = self._node, change.group, change.seats
        group = self._topology.groups[g]
        current = {member.rank for member in node.config.group(g)}
        ever = [seat for h, _, row, _, _ in node.config.lists if h == g for seat in row]
        highest = max([*ever, node.config.size_at_first(g) - 1])
        if not seats:
            return f"g{g} would have no member"
        if list(seats) != sorted(set(seats)) or seats[-1] >= len(group):
            return f"seats {seats}: expected increasing numbers below {len(group)}, as many as a group gets in its life"
        if again := [seat for seat in seats if seat not in current and seat <= highest]:
            return f"g{g}/{again[0]} was a member before, and is none again; the next one is g{g}/{highest + 1}"
        places = places_in(change.about)
        if [place.seat for place in places] != list(seats):
            return "it does not say where all members are"
        try:
            self._refuse_addresses(g, places)
        except (UsageError, ValueError) as error:
            return str(error)
        return ""

    def _why_not_yet(self, change: Change) -> str:
        """Say why the members of the own group cannot become these just now; empty if they can."""
        node, g, seats = self._node, change.group, change.seats
        group = self._topology.groups[g]
        current = {member.rank for member in node.config.group(g)}
        for seat in seats:
            pid = group[seat]
            if seat in current:
                continue
            if pid not in self._learnt or pid not in node.incoming.current:
                return f"g{g}/{seat} is not there: it must run and learn what g{g} delivered before it is a member"
            if (lacks := node.history.end - self._learnt[pid]) > NEAR:
                return f"g{g}/{seat} still learns: it lacks {lacks} deliveries, at most {NEAR} may be left"
        here = [pid for pid in [group[seat] for seat in seats] if pid == node.me.pid or node.pulses.hears(pid)]
        if len(here) <= len(seats) // 2:
            away = ", ".join(self._topology.name(group[seat]) for seat in seats if group[seat] not in here)
            return f"g{g} would have no quorum: of {len(seats)} members nothing is heard of {away}"
        return ""

    def _refuse_addresses(self, g: int, places: tuple[Place, ...]) -> None:
        """Raise UsageError if members are where others are."""
        node = self._node
        others = [member for member in node.config.members if member.group != g]
        members = [*others, *[member_at(node.config, g, place) for place in places]]
        refuse_addresses(f"g{g}", tuple(members), plaintext=node.config.tls is None)

    # For people

    def status(self) -> dict[str, object]:
        """Return what a node says of members."""
        node, process = self._node, self._node.engine.process
        if not isinstance(process, Seated):
            return {}
        g = node.me.group
        return {
            "groups": [f"g{h}" for h in node.config.groups],
            "epoch": process.epoch(),
            "members": [member.name for member in node.config.group(g)],
            "settled": process.is_settled(g),
            "listed": node.me.pid in [member.pid for member in node.config.group(g)],
            "removed": process.is_removed(),
            "guests": {self._topology.name(pid): self._learnt.get(pid, -1) for pid in node.incoming.current
                       if self._topology.group_of[pid] == g and pid not in node.config.needed
                       and pid not in [member.pid for member in node.config.members]},
        }  # fmt: skip
