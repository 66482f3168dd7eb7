"""AllConcur: leaderless atomic broadcast over a digraph that survives failures, with early termination by tracking.

It is AllConcur+ that never leaves the reliable mode: every round is reliable and delivered when it is complete, and a
server with nothing to send waits for the first message of a round or a failure notification. Counts on a perfect
failure detector; uniform if nobody is suspected before all that it sent is handled.

Paper: Poke, Hoefler, Glass, "AllConcur: Leaderless Concurrent Atomic Broadcast", as described in §III-A of Poke, Glass,
"A Dual Digraph Approach for Leaderless Atomic Broadcast".

Latency in message delays: the diameter of G_R. Every server receives each message d times.

`AllConcurEA` and `AllConcurPlusEA` need an eventually perfect detector only: a server that has everybody's message of a
reliable round tells all, on G_R and on its transpose, and delivers when as many others as make a majority have said so.
What AllConcur+ holds or skips is delivered together with the next reliable round.

Departures of these two: a round is delivered whole or not at all. The paper's servers vote on what tracking left over,
and stop when no majority has the same; so a wrong suspicion, or halves that do not hear each other for a while, ended
the service. Here members decide by ballots (`ballots`) how the eon ends when a message is lost or rounds are stuck,
and who was removed comes back. Votes name the members whose messages are there,
and are passed on whatever round the relay is in, and whoever is suspected. All wait while no majority hears each other.
"""

from dataclasses import dataclass, replace
from typing import Final, final

from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.protocols.allconcur.allconcur_plus import UNIFORM_ROW, AllConcurPlus
from amcast.protocols.allconcur.ballots import MESSAGES as BALLOTS
from amcast.protocols.allconcur.ballots import DecidingServer
from amcast.protocols.allconcur.digraphs import mask
from amcast.protocols.allconcur.messages import MESSAGES as PLUS_MESSAGES


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


MESSAGES: Final[tuple[type[Message], ...]] = (*PLUS_MESSAGES, Vote, *BALLOTS)


@final
class AllConcur(AllConcurPlus):
    always_reliable = True


class AllConcurPlusEA(DecidingServer):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.votes: dict[tuple[int, int, int, bool], bool] = {}  # e, r, voter, backward

    def enough(self) -> int:
        return len(self.members) // 2

    def confirmed(self) -> bool:
        if not self.frozen:
            self.frozen = True
            for backward in (False, True):
                self.pass_on(Vote(self.eon, self.e, self.r, self.pid, backward, self.everybody()))
        others = [p for p in self.members if p != self.pid]
        if len([p for p in others if self.voted(p, False) and self.voted(p, True)]) < len(self.members) // 2:
            return False
        waiting, self.waiting = self.waiting, []
        for undelivered in waiting:
            self.deliver_round(undelivered)
        self.votes = {key: True for key in self.votes if key[1] >= self.r - 1}
        return True

    def voted(self, p: int, backward: bool) -> bool:
        return (self.e, self.r, p, backward) in self.votes

    def everybody(self) -> bytes:
        return mask(self.members).to_bytes(self.replicas // 8 + 1, "little")

    def pass_on(self, vote: Vote) -> None:
        self.votes[vote.e, vote.r, vote.voter, vote.backward] = True
        to = self.predecessors if vote.backward else self.successors
        if to:
            self.send(to, vote)

    def on_message(self, sender: int, msg: Message) -> None:
        if not isinstance(msg, Vote):
            super().on_message(sender, msg)
        elif msg.eon != self.eon:
            self.on_other_eon(sender, msg.eon, msg)
        elif msg.r >= self.r - 1 and (msg.e, msg.r, msg.voter, msg.backward) not in self.votes:
            self.pass_on(msg)
            if self.frozen:
                self.try_to_complete()

    def begin_state(self, eon: int, e: int, r: int, members: tuple[int, ...]) -> None:
        self.votes = {}
        super().begin_state(eon, e, r, members)

    def idle(self) -> bool:
        return not self.frozen and super().idle()

    def footprint(self) -> int:
        return super().footprint() + len(self.votes)


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
