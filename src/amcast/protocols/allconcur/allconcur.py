"""AllConcur: leaderless atomic broadcast over a digraph that survives failures, with early termination by tracking.

It is AllConcur+ that never leaves the reliable mode: every round is reliable and delivered when it is complete, and a
server with nothing to send waits for the first message of a round or a failure notification. Counts on a perfect
failure detector; uniform if nobody is suspected before all that it sent is handled.

Paper: Poke, Hoefler, Glass, "AllConcur: Leaderless Concurrent Atomic Broadcast", as described in §III-A of Poke, Glass,
"A Dual Digraph Approach for Leaderless Atomic Broadcast".

Latency in message delays: the diameter of G_R. Every server receives each message d times.

`AllConcurEA` and `AllConcurPlusEA` need an eventually perfect detector only: when tracking ends, a server tells all, on
G_R and on its transpose, the set of messages that it has, and delivers when as many others as make a majority have said
both ways that they have the same set. Departures: votes carry the set (without it two majorities could disagree on what
was lost), and are passed on whatever round the relay is in. What AllConcur+ holds or skips is delivered together with
the next reliable round. A server that waits too long for votes stops, as does one that hears it was removed.
"""

from dataclasses import dataclass, replace
from typing import Final, final

from amcast.core.notes import Stops
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.protocols.allconcur.allconcur_plus import UNIFORM_ROW, AllConcurPlus
from amcast.protocols.allconcur.digraphs import mask
from amcast.protocols.allconcur.messages import MESSAGES as PLUS_MESSAGES
from amcast.protocols.allconcur.messages import Round

STUCK: Final = 20  # times the time-out of the failure detector: then a server that waits for votes stops


@final
@dataclass
class Vote(Message):
    """`voter` has these messages in round r, and no others. If `backward`, it travels on the transpose of G_R."""

    eon: int
    e: int
    r: int
    voter: int
    backward: bool
    origins: bytes


MESSAGES: Final[tuple[type[Message], ...]] = (*PLUS_MESSAGES, Vote)


@final
class AllConcur(AllConcurPlus):
    always_reliable = True


class AllConcurPlusEA(AllConcurPlus):
    forgives = True
    uniform = True
    strict = False

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.waiting: list[Round] = []  # held and skipped rounds
        self.origins = b""  # of the messages in the frozen round
        self.frozen_since = 0
        self.votes: dict[tuple[int, int, int, bool], bytes] = {}  # e, r, voter, backward -> set

    def enough(self) -> int:
        return len(self.members) // 2

    def release(self, undelivered: Round) -> None:
        self.waiting.append(undelivered)

    def confirmed(self) -> bool:
        if not self.frozen:
            self.freeze()
        others = [p for p in self.members if p != self.pid]
        voters = len([p for p in others if self.agrees(p, False) and self.agrees(p, True)])
        if voters < len(self.members) // 2:
            return False
        waiting, self.waiting = self.waiting, []
        for undelivered in waiting:
            self.deliver_round(undelivered)
        self.votes = {key: origins for key, origins in self.votes.items() if key[1] >= self.r - 1}
        return True

    def agrees(self, p: int, backward: bool) -> bool:
        return self.votes.get((self.e, self.r, p, backward)) == self.origins

    def freeze(self) -> None:
        self.frozen = True
        self.frozen_since = self.now
        bits = mask(tuple([msg.origin for msg in self.m if msg is not None]))
        self.origins = bits.to_bytes(self.replicas // 8 + 1, "little")
        for backward in (False, True):
            self.pass_on(Vote(self.eon, self.e, self.r, self.pid, backward, self.origins))

    def pass_on(self, vote: Vote) -> None:
        self.votes[vote.e, vote.r, vote.voter, vote.backward] = vote.origins
        to = tuple([p for p in self.predecessors if not self.deaf[p]]) if vote.backward else self.successors
        if to:
            self.send(to, vote)

    def on_message(self, sender: int, msg: Message) -> None:
        if not isinstance(msg, Vote):
            super().on_message(sender, msg)
        elif msg.eon != self.eon:
            self.on_other_eon(sender, msg.eon, msg)
        elif self.deaf[sender]:
            if self.gone[sender]:
                self.tell_removed(sender)
        elif msg.r >= self.r - 1 and (msg.e, msg.r, msg.voter, msg.backward) not in self.votes:
            self.pass_on(msg)
            if self.frozen:
                self.try_to_complete()

    def on_timer(self, name: str) -> None:
        if self.frozen and self.now - self.frozen_since > STUCK * self.params.suspect_after:
            self.note(Stops("stuck"))
            self.out.halted = True
            return
        super().on_timer(name)

    def idle(self) -> bool:
        return not self.frozen and not self.waiting and super().idle()

    def footprint(self) -> int:
        return super().footprint() + len(self.votes) + len(self.waiting)


@final
class AllConcurEA(AllConcurPlusEA):
    always_reliable = True


ROW: Final[Protocol] = replace(
    UNIFORM_ROW,
    name="allconcur",
    title="AllConcur",
    replica=AllConcur,
    tolerates="f crashes, G_R of degree f + 1",
    latency="diameter of G_R",
    least_delivered=92,
)
EA_ROW: Final[Protocol] = replace(
    ROW,
    name="allconcur_ea",
    title="AllConcur with eventual accuracy",
    replica=AllConcurEA,
    tolerates="f crashes, G_R of degree f + 1; suspicions",
    latency="2 diameters of G_R",
    messages=MESSAGES,
    detector="◇P",
    least_delivered=65,  # the weather of its seeds is wild
    more_scopes=("pair",),
)
PLUS_EA_ROW: Final[Protocol] = replace(
    EA_ROW,
    name="allconcur_plus_ea",
    title="AllConcur+ with eventual accuracy",
    replica=AllConcurPlusEA,
    latency="2 tree depths and more",
    least_delivered=60,
    more_scopes=(),
)
