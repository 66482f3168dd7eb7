"""How a leader makes sure that its state has all that anybody was told, without a message in the order.

It asks all members of its ballot whether they have joined a higher one (Confirm). When a quorum has not, nobody led in
a higher ballot before the question came: whoever led later needed the vote of one of these after its answer. So all
that any leader had answered by then was committed in this ballot, and delivered here, or in a lower one. What is of a
lower one a quorum had accepted, so it was in the state with which this ballot began: a read waits until all of that is
delivered. No clock has a part in this, and a leader that stood still for however long is found out.
"""

from typing import TYPE_CHECKING, Final, final

from amcast.core.order import BOTTOM
from amcast.core.topology import Mid, message_id, seq_of
from amcast.protocols.parts.leader_candidate import LEADER
from amcast.protocols.white_box.message_state import ACCEPTED
from amcast.protocols.white_box.messages import Confirm

if TYPE_CHECKING:
    from amcast.protocols.white_box.replica import WhiteBox

ASKER: Final = (1 << 42) - 3  # sender of the ids of questions: no client and no member
MOST_ASKED: Final = 1024  # questions that nobody has answered


@final
class Reads:
    def __init__(self, process: "WhiteBox") -> None:
        self.process = process
        self.ballot = BOTTOM  # of these questions
        self.inherited: dict[Mid, bool] = {}  # what may be of lower ballots, and is not delivered
        self.asked: dict[int, int] = {}  # questions, each with a bit for each member that confirmed
        self.held: list[int] = []  # confirmed, but something inherited is not delivered yet

    def ask(self, number: int) -> None:
        process = self.process
        if process.candidate.status != LEADER:
            return
        if self.ballot != process.candidate.cballot:  # what this ballot began with is accepted here, or delivered
            self.ballot = process.candidate.cballot
            self.inherited = {mid: True for mid, entry in process.entries.items() if entry.phase >= ACCEPTED}
            self.asked = {}
            self.held = []
        self.asked[number] = 0
        if len(self.asked) > MOST_ASKED:
            del self.asked[next(iter(self.asked))]
        others = tuple([pid for pid in process.list.pids if pid != process.pid])
        if others:
            process.send(others, Confirm(message_id(ASKER, number), process.candidate.cballot, answer=False))
        self.count(process.pid, number)

    def on_answer(self, sender: int, msg: Confirm) -> None:
        candidate = self.process.candidate
        if (
            candidate.status == LEADER
            and msg.b == candidate.cballot == self.ballot
            and sender in self.process.list.pids
        ):
            self.count(sender, seq_of(msg.mid))

    def count(self, pid: int, number: int) -> None:
        if number not in self.asked:
            return
        self.asked[number] |= 1 << self.process.topology.rank_of[pid]
        if self.asked[number].bit_count() >= self.process.list.quorum:
            for earlier in [asked for asked in self.asked if asked <= number]:  # they were asked before: so they hold
                del self.asked[earlier]
                self.held.append(earlier)
            self.release()

    def release(self) -> None:
        """Let go what is confirmed, if all that was inherited is delivered."""
        entries, candidate = self.process.entries, self.process.candidate
        if self.inherited:
            self.inherited = {mid: True for mid in self.inherited if mid in entries}
        if not self.inherited and candidate.status == LEADER and candidate.cballot == self.ballot:
            self.process.out.confirmed += self.held
            self.held = []
