"""The prefix of a replica: what it has delivered of its group's sequence, and how it gets what it missed.

Deliveries of a group are numbered, so the length of a prefix (the position) names it, and a digest tells two apart that
should not differ. A prefix is a decided fact: it moves from any member to any other, in any status and ballot. A
replica that finds a gap, or a member ahead of it, asks for what follows (Fetch) and gets deliveries (Tail), or is told
that they are no longer kept one by one: then it pulls a snapshot.

Of a delivered message nothing stays but the memory that it was delivered, its row among the recent ones, and its final
timestamp (the outcome) as long as a leader of another destination group may still work on it.
"""

from typing import Final, final

from amcast.core.order import BOTTOM
from amcast.core.process import Process
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.parts.collection import Collectable, Collection
from amcast.protocols.parts.sessions import DeliveredMessages
from amcast.protocols.parts.sparse import sparse
from amcast.protocols.white_box.messages import Deliver, Fetch, Tail
from amcast.protocols.white_box.recent import Recent, digest_of
from amcast.protocols.white_box.records import Idle, Outcomes, Remembered, Summary

IN_RECORD: Final = 4096  # idle senders, or outcomes
FETCH_AGAIN: Final = 20  # in δ, after which somebody else is asked
PULL_AGAIN: Final = 4  # in times as long: a snapshot takes longer


@final
class Prefix:
    def __init__(self, process: Process, others_ask: bool = True) -> None:
        """With `others_ask`, leaders of other groups may ask for outcomes."""
        topology = process.topology
        g0 = topology.group_of[process.pid]
        self.process = process
        self.others_ask = others_ask
        self.position = 0
        self.digest = 0
        self.max_delivered_gts = BOTTOM
        self.done = DeliveredMessages()
        self.recent = Recent(process.params.tail_bytes)
        self.outcomes: dict[Mid, Collectable] = {}
        self.collection = Collection(process, topology.quorum(g0))  # of outcomes
        # What is under way to it.
        self.ahead: dict[int, Deliver] = {}  # by position: DELIVERs behind a gap
        self.ahead_bytes = 0
        self.fetched_at = BOTTOM  # the position for which it asked last, …
        self.fetch_after = 0  # … and from when on it may ask for it again
        self.position_at = [0] * len(topology.groups[g0])  # where it was when each member was last heard

    def append(self, m: AppMessage, lts: int, gts: int) -> None:
        """Take note of one more delivery."""
        assert gts > self.max_delivered_gts, "a delivery with a timestamp below that of the one before it"
        self.max_delivered_gts = gts  # l.30
        self.position += m.count
        self.digest = digest_of(self.digest, m.mid, gts)
        self.recent.add(m, lts, gts, self.position)
        if len(m.dest) > 1 and self.others_ask:
            outcome = self.outcomes[m.mid] = Collectable(m.mid, m.dest, gts)
            self.collection.delivered(outcome)
        else:
            self.collection.shared(m.dest, gts)

    def forget(self, positions: list[int]) -> None:
        """Drop deliveries that all members have; these are the positions that they are known to have reached."""
        if positions:
            self.recent.drop_before(min(positions))

    # What came too early

    def hold_back(self, msg: Deliver) -> None:
        """Keep what is behind a gap, within bounds: the rest is fetched when the gap is closed."""
        size = len(msg.m.payload)
        if msg.position not in self.ahead and self.ahead_bytes + size <= self.process.params.tail_bytes:
            self.ahead[msg.position] = msg
            self.ahead_bytes += size

    def next_ahead(self) -> Deliver | None:
        """Return what came too early and follows now, if it is here."""
        msg = self.ahead.pop(self.position, None)
        if msg is not None:
            self.ahead_bytes -= len(msg.m.payload)
        return msg

    def forget_ahead(self) -> None:
        for position in [position for position in self.ahead if position < self.position]:
            self.ahead_bytes -= len(self.ahead.pop(position).m.payload)

    # What others have

    def may_fetch(self) -> bool:
        """Return whether nobody was asked just now for what follows."""
        return self.fetched_at != self.position or self.process.now >= self.fetch_after

    def fetch(self, member: int) -> None:
        """Ask a member for what follows, unless somebody was asked for it just now."""
        process = self.process
        if self.may_fetch():
            self.fetched_at = self.position
            self.fetch_after = process.now + FETCH_AGAIN * process.params.delta
            process.send_one(member, Fetch(self.position))

    def on_fetch(self, sender: int, msg: Fetch) -> None:
        begin = self.recent.begin
        if msg.position < begin:
            self.process.send_one(sender, Tail(begin, self.position, ()))
        elif msg.position < self.position:
            rows = self.recent.from_position(msg.position, self.process.params.part_bytes)
            self.process.send_one(sender, Tail(msg.position, self.position, rows))

    def reaches(self, sender: int, msg: Tail) -> bool:
        """Return whether this tail goes on from here; else what is missing is not kept any more, and is pulled."""
        if msg.position <= self.position:
            return True
        process = self.process
        self.fetched_at = self.position
        self.fetch_after = process.now + PULL_AGAIN * FETCH_AGAIN * process.params.delta
        process.out.pulls.append(sender)
        return False

    def heard(self, sender: int, position: int) -> None:
        """Fetch from a member that is ahead, if nothing has come since it was last heard: no channel brings it."""
        rank = self.process.topology.rank_of[sender]
        if position > self.position and self.position_at[rank] == self.position:
            self.fetch(sender)
        self.position_at[rank] = self.position

    # On disk

    def records(self) -> list[Message]:
        """Return what a snapshot says of it besides the summary."""
        records: list[Message] = []
        for sender, done, above in self.done.rows():
            records.append(Remembered(sender, done, above))
        idle = self.done.idle_rows()
        for i in range(0, len(idle), IN_RECORD):
            records.append(Idle(tuple(idle[i : i + IN_RECORD])))
        outcomes = [(sender_of(o.mid), seq_of(o.mid), o.dest, o.gts) for o in self.outcomes.values()]
        for i in range(0, len(outcomes), IN_RECORD):
            records.append(Outcomes(tuple(outcomes[i : i + IN_RECORD])))
        return records

    def begin(self, summary: Summary) -> None:
        """Begin with the prefix of a snapshot, whose other records follow."""
        collection = self.collection
        self.done = DeliveredMessages()
        self.recent = Recent(self.process.params.tail_bytes, summary.position)
        self.position = summary.position
        self.digest = summary.digest
        self.max_delivered_gts = summary.max_delivered_gts
        for g, floor in sparse(summary.floors, BOTTOM).items():
            collection.raise_floor(g, floor)
        for g, gts in sparse(summary.shared_with, BOTTOM).items():
            collection.shared((g,), max(gts, collection.shared_with.get(g, BOTTOM)))

    def replay(self, record: Message) -> None:
        if isinstance(record, Remembered):
            self.done.restore(record.sender, record.done, record.above)
        elif isinstance(record, Idle):
            self.done.restore_idle(record.rows)
        elif isinstance(record, Outcomes):
            for sender, seq, dest, gts in record.rows:
                mid = message_id(sender, seq)
                if mid not in self.outcomes:
                    outcome = self.outcomes[mid] = Collectable(mid, dest, gts)
                    self.collection.keep(outcome)
