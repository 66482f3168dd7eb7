"""How a replica that forgot something is found out before it takes part again.

A disk may lose its end, or be put back to an older copy, and a replica that then votes as if nothing had happened
undoes what others count on. So whoever counts on the words of a replica remembers how much that one had on disk: which
life it was, and how many records (`Marks`). After each start a replica is on probation: it asks all replicas of all
groups what they remember of it (`Hello`), and until they have answered it takes no part in anything. If one remembers
more than is on its disk, it has forgotten something, and may only come back as one that lost its disk.

It is released when all have answered; or after a suspicion time, when a majority of its group, itself included, has and
nothing is missing from the end of its records so far as its driver knows. Who knows that it forgot itself answers so,
and is not waited for. A leader may have counted on itself and told nobody but the client, and whoever counted on others
may restart before it has written down what it heard of them. So whatever a member accepted in its ballot comes with its
answer, for one that works in the same ballot; what it had heard of others when a ballot began is on disk; and nobody
takes part again before it has delivered what those who answered had.

One that lost its disk tells the others of its group first (`void`): they drop what it said. When all have answered it
knows a ballot above all in which it may have had a part, and takes part from the first one above it (`rejoining`).
"""

from typing import Final, final

from amcast.core.order import BOTTOM
from amcast.core.process import Process
from amcast.core.wire import Message
from amcast.protocols.parts.sparse import dense, sparse
from amcast.protocols.white_box.messages import Hello, Marks, Welcome
from amcast.protocols.white_box.records import Accepted, Adopted, Delivered, Heard, Promised, Rejoining, Summary

NEW_DISK: Final = 1 << 40  # records: the count of one that lost its disk begins above all that anybody may remember


@final
class Probation:
    """What one replica remembers of all others, and what it waits for before it takes part again."""

    def __init__(self, process: Process) -> None:
        topology = process.topology
        self.process = process
        self.group = topology.groups[topology.group_of[process.pid]]
        self.lists: list[tuple[int, ...]] = []  # if members change: those of which majorities must answer
        self.everybody = topology.everybody
        self.starts = 1  # lives of this replica, this one included
        self.mark = 0  # its records
        self.told_mark = -1  # when the group was last told
        self.known_starts: dict[int, int] = {}  # of each replica, what was heard of it
        self.known_marks: dict[int, int] = {}
        self.changed: dict[int, bool] = {}  # … since it was last told and recorded
        self.active = False
        self.void = False
        self.clean = True
        self.since = 0
        self.asked_mark = 0
        self.unanswered: dict[int, bool] = {}
        self.most_starts = 0  # of this replica, that an answer told
        self.most_mark = 0
        self.positions: dict[int, int] = {}  # of members of the group that remember no more than is on disk

    def count_on(self, lists: list[tuple[int, ...]], group: tuple[int, ...], everybody: tuple[int, ...]) -> None:
        """Let these be the lists of members that matter, all in them, and those of all groups.

        Who is in none any more is not waited for, and who is new is asked as well.
        """
        self.lists = lists
        if self.active:
            asked, now = (self.group, group) if self.void else (self.everybody, everybody)
            for pid in now:
                if pid != self.process.pid and pid not in asked:
                    self.unanswered[pid] = True
            for pid in [pid for pid in self.unanswered if pid not in now]:
                del self.unanswered[pid]
        self.group = group
        self.everybody = everybody

    def own(self) -> Marks:
        """Return what others shall remember of this replica, for a step that waits until it is on disk.

        A step that only delivers leaves before its records are synced: a crash may take them back.
        """
        self.process.out.urgent = True
        return Marks(((self.process.pid, self.starts, self.mark),))

    def heard(self, pid: int, mark: int) -> None:
        """Remember how many records a replica had when it said something that this one counts on."""
        if mark > self.known_marks.get(pid, 0):
            self.known_marks[pid] = mark
            self.changed[pid] = True

    def on_marks(self, msg: Marks) -> str:
        """Remember what is said of replicas; return why this one must have forgotten something, if it has."""
        for pid, starts, mark in msg.marks:
            if pid == self.process.pid:
                if not self.void and (starts, mark) > (self.starts, self.mark):
                    return self.more("others of its group remember", starts, mark)
            elif starts > self.known_starts.get(pid, 0):
                self.known_starts[pid] = starts
                self.known_marks[pid] = max(mark, self.known_marks.get(pid, 0))
                self.changed[pid] = True
            else:
                self.heard(pid, mark)
        return ""

    def more(self, who: str, starts: int, mark: int) -> str:
        disk = f"its disk had start {self.starts - 1} and record {self.asked_mark}"  # before this one
        return f"{who} start {starts} and record {mark}, {disk}"

    def news(self) -> Marks | None:
        """Return what has changed of members of this group since the last time, if anything has."""
        told = [pid for pid in self.group if pid in self.changed]
        self.changed.clear()
        marks = [(pid, self.known_starts.get(pid, 0), self.known_marks.get(pid, 0)) for pid in told]
        if self.told_mark != self.mark:
            self.told_mark = self.mark
            marks.append((self.process.pid, self.starts, self.mark))
        return Marks(tuple(marks)) if marks else None

    # On disk

    def record(self) -> Heard:
        return Heard(self.starts_of_all(), self.marks_of_all())

    def starts_of_all(self) -> tuple[int, ...]:
        return self.of_all(self.known_starts)

    def marks_of_all(self) -> tuple[int, ...]:
        return self.of_all(self.known_marks)

    def of_all(self, numbers: dict[int, int]) -> tuple[int, ...]:
        """Return the numbers of all replicas, of groups that came later up to the last of whom anything was heard."""
        return dense(numbers, max([self.process.topology.replicas_at_first - 1, *numbers]) + 1, 0)

    def replay(self, record: Message) -> None:
        """Count a record of an earlier life, and take what it says of lives and records."""
        if isinstance(record, (Accepted, Delivered, Promised, Adopted)):
            self.mark += 1
        if isinstance(record, Heard):
            self.known_starts = sparse(record.starts, 0)
            self.known_marks = sparse(record.marks, 0)
        elif isinstance(record, Rejoining):
            self.starts = record.starts
            self.mark = record.mark + 1  # this one
        elif isinstance(record, Summary):
            self.starts = record.starts
            self.mark = record.mark
            self.known_starts = sparse(record.known_starts, 0)
            self.known_marks = sparse(record.known_marks, 0)

    # Coming back

    def begin(self, now: int, clean: bool, void: bool = False) -> None:
        """Ask the others what they remember of this replica, or tell those of its group that it lost its disk."""
        process = self.process
        whom = self.group if void else self.everybody
        self.unanswered = {pid: True for pid in whom if pid != process.pid}
        self.active = True
        self.void = void
        self.clean = clean
        self.since = now
        self.positions = {}
        self.asked_mark = self.mark  # what is delivered meanwhile must not hide what is missing
        self.ask()

    def ask(self) -> None:
        self.process.send(tuple(self.unanswered), Hello(self.starts, self.asked_mark, self.void))

    def is_back(self, pid: int) -> None:
        """Ask a member again that came back: what it said that it had delivered may not have been on its disk."""
        if self.active and self.positions.pop(pid, None) is not None:
            self.unanswered[pid] = True

    def answered(self, sender: int, msg: Welcome) -> str:
        """Take an answer; return why this replica must have forgotten something, if it has."""
        if not self.active or msg.starts != self.starts:
            return ""
        self.most_starts = max(self.most_starts, msg.known_starts)
        self.most_mark = max(self.most_mark, msg.known_mark)
        if not self.void and msg.known_starts != BOTTOM:
            if msg.known_starts >= self.starts or msg.known_mark > self.asked_mark:
                name = self.process.topology.name(sender)
                return self.more(f"{name} remembers", msg.known_starts, msg.known_mark)
            if sender in self.group:
                self.positions[sender] = msg.position
        self.unanswered.pop(sender, None)
        return ""

    def is_over(self, now: int) -> bool:
        """Return whether enough have answered."""
        if not self.unanswered:
            return True
        if self.void or not self.clean or now - self.since < self.process.params.suspect_after:
            return False
        answered = [*self.positions, self.process.pid]
        return all(2 * len([pid for pid in answered if pid in members]) > len(members) for members in self.counted())

    def counted(self) -> list[tuple[int, ...]]:
        return self.lists or [self.group]

    def end(self) -> None:
        """Take part. The lives and records of one that lost its disk are counted on above all that others remember."""
        if self.void:
            self.starts = max(self.starts, self.most_starts + 1)
            self.mark = max(self.mark, (self.most_mark // NEW_DISK + 1) * NEW_DISK)
        self.active = False
        self.void = False
        self.unanswered = {}

    def unready(self) -> str:
        """Say what this replica waits for; empty if it takes part."""
        if not self.active:
            return ""
        if not self.unanswered:
            return "may have forgotten something: fetches what others have delivered"
        names = ", ".join([self.process.topology.name(pid) for pid in self.unanswered])
        if self.void:
            return f"rejoining: waits for {names} to count on nothing that it said before"
        return f"may have forgotten something: waits for {names} to say what they remember of it"
