"""Replicas of a group compare what they applied, for as long as they run: who differs must not go on.

Every second, each tells the others the newest link of its chain (`chain.py`). Who hears one that differs from its own
asks all others what they have at that position, once every second, and concludes:

- who agrees with a majority of the group goes on, and says in its log who differs;
- who differs from what a majority agrees on stops, and says so;
- where no such majority is found within some seconds, all stop: nobody can say who is right.

Nothing is repaired here: a person has to look, and the data stays as it is. What a replica says of its past is part of
its data, so it stops again after a restart. These frames are the runtime's own. No protocol knows of them, they are
neither numbered nor sent again, and a replica that hears none misses nothing but a comparison.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from amcast.errors import ReplicasDiffer
from amcast.runtime.chain import Chain, Link

MOST_AHEAD: Final = 64  # statements of one member about positions that we have not reached
TICKS_TO_AGREE: Final = 5  # not seconds: a process that was paused must first hear what came meanwhile …
TICKS_TO_ARRIVE: Final = 60  # … and so many where a member is there that has not got so far


class Statement(msgspec.Struct, array_like=True, frozen=True):
    """What a member has at a position; `asks`: it wants to know what the others have there."""

    link: Link
    asks: bool = False


statement_decoder: Final = msgspec.msgpack.Decoder(Statement)


class ComparingHost(Protocol):
    """The node, as it compares itself."""

    @property
    def chain(self) -> Chain: ...

    def state(self, pid: int, statement: Statement) -> bool:
        """Send this to a member, if it is connected; return whether it is."""
        ...

    def differs(self, name: str, position: int) -> None:
        """Say that this member differs from the majority, to which we belong."""
        ...


class Dispute:
    """A position at which somebody differs: who has what there, and how long ago that was noticed."""

    def __init__(self, votes: dict[int, int]) -> None:
        self.votes = votes
        self.ticks = 0


class Comparison:
    """What one replica knows of the chains of the others. `tick` and `hear` raise ReplicasDiffer if it must stop."""

    def __init__(self, host: ComparingHost, group: str, me: int, names: dict[int, str], majority: int) -> None:
        """Prepare to compare with the members in `names`, of which this one is `me`."""
        self._host = host
        self._group = group
        self._me = me
        self._names = names
        self._others = [pid for pid in names if pid != me]
        self._majority = majority
        self._told: dict[int, int] = {}  # the position that a member was told last
        self._ahead: dict[int, dict[int, Statement]] = {pid: {} for pid in self._others}
        self._disputes: dict[int, Dispute] = {}  # by position
        self._wrong: set[int] = set()  # who differed from a majority: it has no vote about what came later
        self._behind: dict[int, tuple[int, int]] = {}  # who said when, in ticks, that it has only got so far
        self._ticks = 0

    def connected(self, pid: int) -> None:
        """Take note of a new connection to a member: it may be another life of it, and knows nothing of us."""
        self._told.pop(pid, None)
        self._wrong.discard(pid)

    def tick(self) -> None:
        """Tell the others where we are, if they do not know, and go on with what is in dispute."""
        self._ticks += 1
        end = self._host.chain.end
        for pid in self._others:
            if self._told.get(pid) != end.position and self._host.state(pid, Statement(end)):
                self._told[pid] = end.position
        for pid, ahead in self._ahead.items():
            for position in [position for position in ahead if position <= end.position]:
                self.hear(pid, ahead.pop(position))
        for position in list(self._disputes):
            if position in self._disputes:  # else the one before has settled it
                self._disputes[position].ticks += 1
                self._ask(position)
                self._conclude(position)

    def hear(self, pid: int, statement: Statement) -> None:
        """Compare what another member has at a position with what we have."""
        link = statement.link
        if pid not in self._ahead:
            return  # of another group
        if link.position > self._host.chain.position:
            if statement.asks:
                self._host.state(pid, Statement(self._host.chain.end))
            ahead = self._ahead[pid]
            ahead[link.position] = statement
            while len(ahead) > MOST_AHEAD:
                del ahead[next(iter(ahead))]
            return
        self._behind[pid] = self._ticks, link.position
        ours = self._host.chain.at(link.position)
        if ours is None or ours.since != link.since:
            return  # no longer known here, or not comparable
        if statement.asks:
            self._host.state(pid, Statement(ours))
        if pid in self._wrong:
            return
        if link.position in self._disputes:
            self._disputes[link.position].votes[pid] = link.value
            self._conclude(link.position)
        elif ours.value != link.value:
            self._disputes[link.position] = Dispute({self._me: ours.value, pid: link.value})
            self._ask(link.position)
            self._conclude(link.position)

    def _ask(self, position: int) -> None:
        ours = self._host.chain.at(position)
        if ours is not None:
            for pid in self._others:
                self._host.state(pid, Statement(ours, asks=True))

    def _conclude(self, position: int) -> None:
        dispute = self._disputes[position]
        votes = dispute.votes
        ours = votes[self._me]
        value, agree = Counter(votes.values()).most_common(1)[0]
        me = self._names[self._me]
        if agree >= self._majority and value == ours:
            for pid in [pid for pid in votes if votes[pid] != ours]:
                self._wrong.add(pid)
                self._host.differs(self._names[pid], position)
            self._drop_votes()
        elif agree >= self._majority:
            right = self._listed(pid for pid in votes if votes[pid] == value)
            raise ReplicasDiffer(
                f"{me} stopped: up to position {position} of {self._group} it applied something else than {right}, a "
                f"majority; its data is as it was; find out why, then start it with --rejoin to take their state"
            )
        elif len(votes) == len(self._names) or dispute.ticks >= self._most_ticks(position, votes):
            rest = f", {self._listed(set(self._names) - set(votes))} unknown" if len(votes) < len(self._names) else ""
            raise ReplicasDiffer(
                f"{me} stopped: up to position {position} of {self._group} {self._listed(votes)} did not apply the "
                f"same, and no majority agrees{rest}; all data is as it was; find out who is right, and start the "
                f"others with --rejoin"
            )

    def _drop_votes(self) -> None:
        """Forget what those said who are known to be wrong, and the disputes that were only with them."""
        for position, dispute in list(self._disputes.items()):
            for pid in self._wrong:
                dispute.votes.pop(pid, None)
            if len(set(dispute.votes.values())) == 1:
                del self._disputes[position]

    def _most_ticks(self, position: int, votes: dict[int, int]) -> int:
        """Return for how long somebody may still come to this position and say what it has there."""
        for pid in self._others:
            heard, reached = self._behind.get(pid, (-1, 0))
            if pid not in votes and heard >= self._ticks - 2 and reached < position:
                return TICKS_TO_ARRIVE
        return TICKS_TO_AGREE

    def _listed(self, pids: Iterable[int]) -> str:
        return " and ".join(self._names[pid] for pid in sorted(pids))
