"""What some protocols can do and others cannot: each ability is a class that a replica inherits beside `Process`.

A driver asks `isinstance(process, Durable)`, and the flags of a protocol's row follow from what its replica inherits.
The classes are plain Python, even where everything around them is compiled: a compiled class may inherit any number of
them at no cost, and so may a class in somebody else's package. (Traits of mypyc may not be inherited by interpreted
classes: calling one crashes the interpreter.) They have no attributes of their own, so that they add no `__dict__`.
"""

from amcast.core.process import Memory, Supply
from amcast.core.wire import Message

# Of the list of members of an epoch: group, epoch, seats, whether it is established, and what drivers need to know.
MemberLists = tuple[tuple[int, int, tuple[int, ...], bool, bytes], ...]


class Capability:
    """What all of them share: a verb begins by telling the process what time it is."""

    __slots__ = ()
    now: int

    def at(self, now: int) -> None:
        self.now = now  # type: ignore[misc]  # an attribute of Process


class Electing(Capability):
    """Groups have leaders, so that crashes and spurious suspicions mean something."""

    __slots__ = ()

    def suspect(self, now: int) -> None:
        """Suspect the current leader for no reason (fault injection), and try to lead."""
        self.at(now)
        self.on_suspect()

    def on_suspect(self) -> None:
        raise NotImplementedError

    def gone(self, now: int, pid: int) -> None:
        """Hear that nobody listens any more where a process did that was connected: it crashed, as far as can be told.

        That may be wrong. It is news sooner than silence is, and worth no more.
        """
        self.at(now)
        self.on_gone(pid)

    def on_gone(self, pid: int) -> None:
        pass

    def hand_over(self, now: int, to: int) -> None:
        """At the leader: let this member of the group lead, or with -1 the first one that is up to date."""
        self.at(now)
        self.on_hand_over(to)

    def on_hand_over(self, to: int) -> None:
        pass

    def leads(self) -> bool:
        """Return whether this process is the leader of its group, so far as it knows."""
        raise NotImplementedError


class Confirming(Capability):
    """A leader can find out, without a message in the order, that its state has all that anybody was told."""

    __slots__ = ()

    def confirm(self, now: int, number: int) -> None:
        """At the leader: find that out. When it is certain, `Effects.confirmed` has this number; it may never be."""
        self.at(now)
        self.on_confirm_lead(number)

    def on_confirm_lead(self, number: int) -> None:
        raise NotImplementedError


class Durable(Capability):
    """Replicas come back from their records, or without them from what the others of their group know.

    A process that may have forgotten something takes no part until the others have said that it has not, and one that
    has must `rejoin`. All of that happens by messages; a driver hands over what is on disk, and what it knows of it.
    """

    __slots__ = ()

    def recover(self, now: int, records: list[bytes], starts: int, clean: bool) -> None:
        """Start from the records that earlier lives made durable.

        `starts` counts the lives, this one included. `clean` says that nothing is missing from the end of the records.
        """
        self.at(now)
        self.on_recover(records, starts, clean)

    def rejoin(self, now: int, starts: int) -> None:
        """Start without what this process knew: its disk is lost, or not to be trusted."""
        self.at(now)
        self.on_rejoin(starts)

    def install(self, now: int, records: list[bytes]) -> None:
        """Take over what another member had delivered when it took this snapshot, if that is more than this one has.

        The driver has the application's state of the same moment put in place, and makes a snapshot of this process
        durable, before it acts on any effect of this step.
        """
        self.at(now)
        self.on_install(records)

    def trust(self, now: int) -> None:
        """Let the process take part at once, whatever it may have forgotten: an operator accepts the loss."""
        self.at(now)
        self.on_trust()

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        raise NotImplementedError

    def on_rejoin(self, starts: int) -> None:
        raise NotImplementedError

    def on_install(self, records: list[bytes]) -> None:
        raise NotImplementedError

    def on_trust(self) -> None:
        pass

    def position(self) -> int:
        """Return how many messages were delivered, those of earlier lives included."""
        raise NotImplementedError

    def rejoining(self) -> bool:
        """Return whether this process lost its disk and does not know yet all that it may have known."""
        return False

    def snapshot(self) -> list[bytes]:
        """Return records from which `recover` rebuilds what this process must not forget, instead of all so far."""
        raise NotImplementedError

    def recall(self, memory: Memory) -> None:
        """Take these messages for delivered. The process is new: a cluster is founded with the state of another."""
        raise NotImplementedError


class Dynamic(Capability):
    """Processes become members of the group, and leave it, while it runs."""

    __slots__ = ()
    members: tuple[int, ...]  # so far as this process knows; none before it has joined

    def change_members(self, now: int, members: tuple[int, ...]) -> None:
        """Let these processes be the members from some moment on, which all agree on."""
        self.at(now)
        self.on_change_members(members)

    def join_group(self, now: int) -> None:
        """Become a member."""
        self.at(now)
        self.on_join_group()

    def leave_group(self, now: int) -> None:
        """Let the others go on without this process, and stop when they agree."""
        self.at(now)
        self.on_leave_group()

    def on_change_members(self, members: tuple[int, ...]) -> None:
        raise NotImplementedError

    def on_join_group(self) -> None:
        raise NotImplementedError

    def on_leave_group(self) -> None:
        raise NotImplementedError


class Listing(Capability):
    """The process knows who the members of all groups are, by epoch."""

    __slots__ = ()

    def known(self) -> tuple[int, ...]:
        """Return how much of each group it knows: another value whenever it has learnt something."""
        raise NotImplementedError

    def lists(self) -> MemberLists:
        """Return all lists of members but those at the beginning."""
        raise NotImplementedError

    def learn_lists(self, now: int, lists: MemberLists) -> None:
        """Hear of lists that others know."""
        self.at(now)
        self.on_lists_learnt(lists)

    def on_lists_learnt(self, lists: MemberLists) -> None:
        raise NotImplementedError


class Seated(Capability):
    """The members of a group change while it runs, by a message to that group: the row's `change` makes its payload.

    A seat is the number of a member in its group, and is never used again. `Params.spare` seats of each group are no
    members at first.
    """

    __slots__ = ()

    def epoch(self) -> int:
        """Return how many changes of its group this process has delivered."""
        raise NotImplementedError

    def seats(self, g: int) -> tuple[int, ...]:
        """Return the newest list of members of a group that this process knows."""
        raise NotImplementedError

    def seats_in(self, epoch: int) -> tuple[int, ...]:
        """Return the list of an epoch that has begun here."""
        raise NotImplementedError

    def is_settled(self, g: int) -> bool:
        """Return whether that list is known to be at work, so that nobody needs the one before it."""
        raise NotImplementedError

    def has_established(self, g: int, epoch: int) -> bool:
        """Return whether the list of this epoch, or of a later one, is known to be at work."""
        raise NotImplementedError

    def groups(self) -> int:
        """Return how many groups there are, by what this process knows and by where its deliveries went."""
        raise NotImplementedError

    def table(self) -> Message:
        """Return what this process knows of the members of all groups, for clients."""
        raise NotImplementedError

    def is_removed(self) -> bool:
        """Return whether this process was a member, and is not needed any more."""
        raise NotImplementedError


class Detecting(Capability):
    """The protocol counts on a failure detector; its row says on which."""

    __slots__ = ()

    def detect(self, now: int, pid: int, suspected: bool) -> None:
        """Hear what a failure detector says of another process, besides what the protocol's own one finds out."""
        self.at(now)
        self.on_detect(pid, suspected)

    def on_detect(self, pid: int, suspected: bool) -> None:
        raise NotImplementedError


class Reconfigurable(Capability):
    """Groups begin and end to send to other groups. What a member sent to a group that its own has left is refused.

    Replica and client take a fifth argument, `Options`, with the relation at the start.
    """

    __slots__ = ()

    def reconfigure(self, now: int, join: bool, h: int) -> None:
        """Let the group of this process send to group h, or not any more."""
        self.at(now)
        self.on_reconfigure(join, h)

    def on_reconfigure(self, join: bool, h: int) -> None:
        raise NotImplementedError

    def may_send_to(self) -> list[int]:
        """Return the groups that the group of this process may send to, so far as it knows."""
        raise NotImplementedError

    def has_unanswered_joins(self) -> bool:
        """Return whether a group that asked to join waits for the answer of this one."""
        raise NotImplementedError

    def holds_back(self) -> bool:
        """Return whether a multicast waits here until it may be sent."""
        raise NotImplementedError


class Speculative(Capability):
    """Messages are delivered optimistically as well, before their order is known: see `Effects.optimistic`."""

    __slots__ = ()


class Rounds(Capability):
    """Atomic broadcast in one group of any size, whose members multicast in rounds."""

    __slots__ = ()

    def on_supply(self, supply: Supply) -> None:
        """Broadcast in every round as long as there is a supply of messages."""
        raise NotImplementedError


class Observed(Capability):
    """The invariants of a checked run are asserted by an observer that the row's `monitor` makes."""

    __slots__ = ()

    def on_observe(self, monitor: object) -> None:
        """Report to this observer from now on."""
        raise NotImplementedError
