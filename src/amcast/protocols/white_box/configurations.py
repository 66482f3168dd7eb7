"""Who the members of each group are, by epoch, so far as one process knows.

A seat is a member's number within its group: it is never used again, and names a process (`Topology.groups`). The list
of a group's next epoch is agreed on in its own order: a change is a message to that group alone, and takes effect where
it is delivered, if the epoch that it ends is the one that was going on. So there is one list per group and epoch. An
epoch is established when a majority of its list has entered a ballot of it: then the list before it is not needed.

A group that comes later is founded by a message to the first group (`REGISTRAR`), which says who its first members are:
the first one in the order of that group that names this number counts, so there is one list of epoch 0, too. Its own
members know that list from the start; they are to be believed only by who knows from others that the group is there.

What is known of all groups travels as a whole (`Lists`): every list, and up to which epoch they are established.
"""

from typing import final

from librt.strings import BytesWriter

from amcast.core.process import Params
from amcast.core.requests import CHANGE, FOUND, REGISTRAR
from amcast.core.topology import MOST, Topology
from amcast.core.wire import AppMessage, Reader, pack_blob, pack_long, pack_short
from amcast.errors import InvariantViolation, WireError
from amcast.protocols.white_box.messages import ListRows, Lists


@final
class Change:
    """What a message asks for that changes the members of its group; `about` is for drivers, such as addresses."""

    def __init__(self, from_epoch: int, seats: tuple[int, ...], about: bytes) -> None:
        self.from_epoch = from_epoch
        self.seats = seats
        self.about = about


def change_payload(from_epoch: int, seats: tuple[int, ...], about: bytes = b"") -> bytes:
    """Return the payload of a message that lets these be the members of its group when this epoch ends."""
    w = BytesWriter()
    w.write(CHANGE)
    pack_long(w, from_epoch)
    pack_short(w, len(seats))
    for seat in seats:
        pack_short(w, seat)
    pack_blob(w, about)
    return w.getvalue()


def change_of(m: AppMessage) -> Change | None:
    """Return the change that this message asks for; None if it is one of an application, or not well-formed."""
    if not m.payload.startswith(CHANGE) or len(m.dest) != 1 or m.count != 1:
        return None
    r = Reader(m.payload, 0)
    r.at += len(CHANGE)
    try:
        from_epoch = r.long()
        seats = tuple([r.short() for _ in range(r.short())])
        change = Change(from_epoch, seats, r.blob())
    except (ValueError, IndexError, WireError):
        return None
    return change if r.at == r.size else None


@final
class Founding:
    """What a message asks for that adds a group."""

    def __init__(self, group: int, seats: tuple[int, ...], about: bytes) -> None:
        self.group = group
        self.seats = seats
        self.about = about


def founding_payload(group: int, size: int, about: bytes = b"") -> bytes:
    """Return the payload of a message that adds a group with so many members."""
    w = BytesWriter()
    w.write(FOUND)
    pack_short(w, group)
    pack_short(w, size)
    pack_blob(w, about)
    return w.getvalue()


def founding_of(m: AppMessage) -> Founding | None:
    """Return the group that this message adds; None if it is one of an application, or not well-formed."""
    if not m.payload.startswith(FOUND) or m.dest != (REGISTRAR,) or m.count != 1:
        return None
    r = Reader(m.payload, 0)
    r.at += len(FOUND)
    try:
        founding = Founding(r.short(), tuple(range(r.short())), r.blob())
    except (ValueError, IndexError, WireError):
        return None
    return founding if r.at == r.size and founding.seats else None


@final
class Members:
    """The list of one epoch of a group."""

    def __init__(self, group: tuple[int, ...], epoch: int, seats: tuple[int, ...], about: bytes) -> None:
        self.epoch = epoch
        self.seats = seats
        self.about = about
        self.pids: tuple[int, ...] = tuple([group[seat] for seat in seats])
        self.quorum = len(seats) // 2 + 1


def initial_members(topology: Topology, params: Params, g: int) -> tuple[int, ...]:
    """Return the members that a group begins with; its last seats may be spare. None of a group that may come later."""
    group = topology.groups[g]
    return group[: len(group) - params.spare] if g < len(topology.sizes) else ()


@final
class Beginning:
    """What all processes know of the members at first. They share it, for there may be thousands of them."""

    def __init__(self, topology: Topology, params: Params) -> None:
        self.lists: list[list[Members]] = []
        for g, group in enumerate(topology.groups):
            seats = tuple(range(len(initial_members(topology, params, g))))
            self.lists.append([Members(group, 0, seats, b"")] if seats else [])
        self.established = [0] * len(topology.groups)
        self.reach = [lists[0].pids if lists else () for lists in self.lists]
        self.known: tuple[int, ...] = (1,) * len(topology.sizes)


def beginning_of(topology: Topology, params: Params) -> Beginning:
    found = topology.beginnings.get(params.spare)
    if not isinstance(found, Beginning):
        found = topology.beginnings[params.spare] = Beginning(topology, params)
    return found


@final
class Configurations:
    def __init__(self, topology: Topology, params: Params) -> None:
        beginning = beginning_of(topology, params)
        self.topology = topology
        self.spare = params.spare
        self.lists = beginning.lists  # of each group, by epoch
        self.established = beginning.established  # of each group: the highest epoch that is known to be established
        self.reach = beginning.reach  # of each group: whom to tell what concerns it
        # Of each group up to the last that there is: the newest epoch, doubled, and one more if it is established.
        self.known = beginning.known
        self.told: dict[int, tuple[int, ...]] = {}  # what others are known to know
        self.changed = False  # in some group something is known beyond the beginning
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}

    def change(self) -> None:
        """Go on with lists of one's own: those of the beginning are everybody's."""
        if not self.changed:
            self.changed = True
            self.lists = [list(lists) for lists in self.lists]
            self.established = list(self.established)

    def count(self) -> None:
        """Find again what follows from the lists."""
        self.reach = []
        known: list[int] = []
        there = max([g for g, lists in enumerate(self.lists) if lists]) + 1
        for g, lists in enumerate(self.lists):
            reached: dict[int, bool] = {}
            for members in lists[self.established[g] :]:
                for pid in members.pids:
                    reached[pid] = True
            self.reach.append(tuple(reached))
            if g < there:
                newest = lists[-1].epoch if lists else 0
                known.append(2 * newest + 1 if lists and self.established[g] == newest else 2 * newest)
        self.known = tuple(known)
        self._members = {}

    def members_of(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        """Return all processes that may have to do with messages to these groups, in order."""
        if not self.changed and self.spare == 0:
            return self.topology.members_of(dest)
        known = self._members.get(dest)
        if known is None:
            known = self._members[dest] = tuple([p for g in dest for p in self.reach[g]])
        return known

    def of(self, g: int, epoch: int) -> Members | None:
        """Return the list of an epoch, if it is known."""
        lists = self.lists[g]
        return lists[epoch] if epoch < len(lists) else None

    def has(self, g: int) -> bool:
        """Return whether a group is known to be there."""
        return bool(self.lists[g])

    def may_be_founded(self, founding: Founding) -> bool:
        """Return whether this is the group that comes next."""
        g = founding.group
        return (
            g < len(self.topology.groups)
            and not self.lists[g]
            and bool(self.lists[g - 1])
            and founding.seats[-1] < len(self.topology.groups[g])
        )

    def newest(self, g: int) -> Members:
        return self.lists[g][-1]

    def is_possible(self, g: int, epoch: int, seats: tuple[int, ...]) -> bool:
        """Return whether these seats may follow upon the list of an epoch: one that was given up never comes back."""
        current = self.lists[g][epoch].seats
        highest = max([seat for members in self.lists[g][: epoch + 1] for seat in members.seats])
        return (
            0 < len(seats) <= MOST
            and list(seats) == sorted(set(seats))
            and seats[-1] < len(self.topology.groups[g])
            and all(seat in current or seat > highest for seat in seats)
        )

    def add(self, g: int, epoch: int, seats: tuple[int, ...], about: bytes) -> bool:
        """Take note of the list of an epoch; False if it was known."""
        lists = self.lists[g]
        if epoch < len(lists):
            known = lists[epoch]
            if known.seats != seats:
                raise InvariantViolation(f"g{g} has members {known.seats} and {seats} in epoch {epoch}")
            if known.about or not about or g < len(self.topology.sizes):
                return False
            lists[epoch] = Members(self.topology.groups[g], epoch, seats, about)  # a founder begins without it
            return True
        assert epoch == len(lists), "a list is told without those before it"
        self.change()
        self.lists[g].append(Members(self.topology.groups[g], epoch, seats, about))
        self.established[g] = max(self.established[g], epoch - 1, 0)  # else nothing could have been delivered in it
        self.count()
        return True

    def establish(self, g: int, epoch: int) -> bool:
        """Take note that an epoch is established; False if that was known."""
        if epoch <= self.established[g]:
            return False
        self.change()
        self.established[g] = epoch
        self.count()
        return True

    # As it travels

    def rows(self) -> ListRows:
        """Return all that is known beyond the beginning."""
        rows: list[tuple[int, int, tuple[int, ...], bool, bytes]] = []
        for g, lists in enumerate(self.lists):
            for members in lists[1:] if g < len(self.topology.sizes) else lists:
                rows.append((g, members.epoch, members.seats, members.epoch <= self.established[g], members.about))
        return tuple(rows)

    def merge(self, rows: ListRows) -> bool:
        """Take over what another process knows; False if nothing of it is new."""
        news = False
        for g, epoch, seats, established, about in rows:
            news = self.add(g, epoch, seats, about) or news
            if established:
                news = self.establish(g, epoch) or news
        return news

    def message(self) -> Lists:
        return Lists(self.known, self.rows())

    def knows_less(self, pid: int) -> bool:
        """Return whether a process is not known to know all that this one does."""
        if not self.changed:
            return False
        known = self.told.get(pid)
        if known is None or len(known) < len(self.known):
            return True
        return any(theirs < mine for theirs, mine in zip(known, self.known, strict=False))
