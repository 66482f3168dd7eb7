"""FastCast: fault-tolerant Skeen that guesses the final timestamp and agrees on it at once.

Paper: Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", section VI, which describes the protocol of Coelho,
Schiper and Pedone. It has no figure; what is not said here is in `ft_skeen`.

Latency in message delays, leader / follower: 4 / 5 with no conflicting message under way, 8 / 9 at worst without
failures, 3 / 4 to one group. With the eager clock 6 / 7 at worst.

How it works. A leader tells the others its local timestamp at once (SOFT) and again when it is decided (HARD). With all
SOFTs it puts their maximum into its log (GTS) while the local timestamps are still being decided. A message is
committed when a decided GTS is the maximum of all HARDs; if a leader changed between SOFT and HARD the guess was
wrong, and GTS is put into the log again. So a new leader does not trust a GTS in its log before it has all HARDs.
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.order import BOTTOM
from amcast.core.protocol import Protocol
from amcast.core.wire import Message, Reader
from amcast.protocols.black_box.ft_skeen import MESSAGES as FT_SKEEN_MESSAGES
from amcast.protocols.black_box.ft_skeen import ROW as FT_SKEEN_ROW
from amcast.protocols.black_box.ft_skeen import FtSkeen, Hard, Known, LocalTimestamp
from amcast.protocols.parts.leader_candidate import LEADER


@final
class Soft(LocalTimestamp):
    """A local timestamp that is not decided. It may change if the leader of that ballot is replaced."""

    def unpack(self, r: Reader) -> Message:
        return Soft(r.mid(), r.group(), r.long(), r.long())


MESSAGES: Final[tuple[type[Message], ...]] = (*FT_SKEEN_MESSAGES, Soft)


class FastCast(FtSkeen):
    """A member of group g0."""

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Soft):
            self.on_soft(msg)
        else:
            super().on_message(sender, msg)

    def timestamp_given(self, known: Known) -> None:
        self.send(self.other_leaders(known.m), Soft(known.mid, self.g0, self.log.cballot, known.lts))
        self.guess(known)

    def on_soft(self, msg: Soft) -> None:
        if self.log.status != LEADER or msg.b < self.ballots[msg.g]:
            return
        self.ballots[msg.g] = msg.b
        known = self.known_of(msg.mid)
        if known is not None:
            known.soft[msg.g] = msg.lts
            self.guess(known)

    def on_hard(self, msg: Hard) -> None:
        super().on_hard(msg)
        known = self.known.get(msg.mid)
        if known is not None and self.log.status == LEADER:
            self.guess(known)

    def guess(self, known: Known) -> None:
        """Propose the final timestamp from what the groups have said so far, if all have."""
        if known.lts == BOTTOM or known.proposed != BOTTOM:
            return
        gts = known.lts
        for g in known.m.dest:
            if g != self.g0:
                lts = known.hard.get(g, known.soft.get(g, BOTTOM))
                if lts == BOTTOM:
                    return
                gts = max(gts, lts)
        self.propose(known, gts)

    def certain_gts(self, known: Known) -> int:
        if len(known.m.dest) == 1:
            return super().certain_gts(known)
        if len(known.hard) < len(known.m.dest) or max(known.hard.values()) != known.logged:
            return BOTTOM
        return known.logged


@final
class EagerFastCast(FastCast):
    """Raises its clock as soon as it guesses a final timestamp."""

    eager_clock = True


ROW: Final[Protocol] = replace(
    FT_SKEEN_ROW,
    name="fastcast",
    title="FastCast",
    replica=FastCast,
    latency="4δ / 5δ, worst 8δ / 9δ",
    messages=MESSAGES,
)
EAGER_ROW: Final[Protocol] = replace(
    ROW,
    name="fastcast_eager",
    title="FastCast, eager clock",
    replica=EagerFastCast,
    latency="4δ / 5δ, worst 6δ / 7δ",
)
