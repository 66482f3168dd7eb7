"""Votes of AllConcur with eventual accuracy: who has everybody's message of a reliable round tells all.

A vote travels on G_R and on its transpose, so that it comes from whoever hears this server and from whom it hears. It
names the members whose messages are there, and is passed on whatever round the relay is in, and whoever is suspected.
"""

from dataclasses import dataclass
from typing import final

from amcast.core.process import Effects, Params
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.protocols.allconcur.ballots import DecidingServer
from amcast.protocols.allconcur.digraphs import mask


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


class VotingServer(DecidingServer):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.votes: dict[tuple[int, int, int, bool], bool] = {}  # e, r, voter, backward

    def enough(self) -> int:
        return len(self.members) // 2

    def confirmed(self) -> bool:
        if not self.frozen:
            self.frozen = True
            self.is_whole(self.m)
            for backward in (False, True):
                self.pass_on(Vote(self.eon, self.e, self.r, self.pid, backward, self.everybody()))
        if not self.may_deliver(self.m):
            return False
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
