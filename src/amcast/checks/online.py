"""Checks the order of deliveries while they come: what every process has delivered so far must fit into one order.

The histories of the processes are merged. A message is passed when it is next at every process that must deliver it, so
what is kept is bounded by how far one process is behind another. If no message can be passed and each one that is next
waits for another one that is next elsewhere, there is a cycle. Its messages are the counter-example. A message that a
process left out shows in the same way: that process went on to one behind it. The search for a cycle looks past
messages that wait for a silent group, so that these do not hide what is behind them.

A process that is silent for long is not waited for. What it delivers later is compared with the messages passed last.

The destinations of a message may become known after its first deliveries (`tell`). Until then it waits, and counts as
addressed to the groups that delivered it. These are a part of its destinations, so what is wrong with them is wrong. If
too many messages wait for that, each group is judged by itself.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

WINDOW: Final = 20_000  # messages passed last that are remembered
MOST_SILENCE: Final = 30 * 10**9  # nanoseconds behind the others after which a process is not waited for


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A delivery. Without a message, it says that rows of this process are missing here."""

    process: str
    group: str
    place: int
    message: str | None
    dest: tuple[str, ...] | None  # not known yet
    time: int


class Violation(msgspec.Struct, array_like=True, frozen=True):
    property: str
    text: str
    rows: list[Row]


class Chain(msgspec.Struct, array_like=True):
    """The deliveries of one process that are not passed yet."""

    process: str
    group: str
    number: int
    waits: bool = True  # the others wait for it; else it is compared with them
    lost: bool = False  # rows of it are missing
    last: int = -1
    index: int = -1  # of the last message passed that it has
    before: str = ""  # that message
    time: int = 0
    queue: list[Row] = msgspec.field(default_factory=list)
    at: int = 0  # of the first in the queue
    nth: int = -1  # how many of its group's messages are up to `before`; -1 if that is not known

    def head(self) -> Row | None:
        return self.queue[self.at] if self.at < len(self.queue) else None

    def drop(self) -> None:
        self.at += 1
        if self.at * 2 > len(self.queue):
            del self.queue[: self.at]
            self.at = 0


class Pending(msgspec.Struct, array_like=True):
    dest: tuple[str, ...] | None
    has: set[int] = msgspec.field(default_factory=set)  # numbers of the processes
    first: int = 0  # when one delivered it
    latest: dict[str, int] = msgspec.field(default_factory=dict)  # when the last one of each group did

    def groups(self) -> tuple[str, ...]:
        """Return the destinations as far as they are known."""
        return tuple(self.latest) if self.dest is None else self.dest


class Passed(msgspec.Struct, array_like=True):
    index: int
    has: set[int]
    nth: dict[str, int] = msgspec.field(default_factory=dict)  # its place among the messages of each group


class WatcherState(msgspec.Struct, array_like=True):
    chains: dict[str, Chain]
    pending: dict[str, Pending]
    passed: dict[str, Passed]
    next_index: int
    newest: int
    broken: bool  # the order is no longer compared: a cycle was found, or what came before is not known
    oldest: int = 0
    sizes: dict[str, int] = msgspec.field(default_factory=dict)  # of groups, where rows say it
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # messages passed, by group
    unsent: dict[str, bool] = msgspec.field(default_factory=dict)  # delivered, multicast not seen: is `dest` known
    apart: bool = False  # each group is judged by itself, since too many destinations were not known


class Watcher:
    """A checker that is fed rows: `take` each process's rows in order, then `settle`, then read `violations`."""

    def __init__(self, window: int = WINDOW, most_silence: int = MOST_SILENCE, gapless: bool = False) -> None:
        """Create a watcher. `gapless`: places are positions, so that none may be missing."""
        self._window = window
        self._most_silence = most_silence
        self._gapless = gapless
        self.state = WatcherState({}, {}, {}, 0, 0, False)
        self._by_group: dict[str, list[Chain]] = {}
        self.violations: list[Violation] = []
        self.spreads: dict[str, list[int]] = {}  # nanoseconds from the first delivery anywhere to the last in a group
        self.delivered: dict[str, int] = {}  # by process, since the last `load`
        self.pairs = 0  # deliveries that were compared with another process, since the last `load`
        self.unchecked = 0  # deliveries that came too late for that
        self.guessed = 0  # messages, in each group, whose destinations did not become known in time
        self.lost: list[str] = []  # processes of which rows are missing, since the last `load`

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=WatcherState)
        self._by_group = {}
        for chain in self.state.chains.values():
            self._by_group.setdefault(chain.group, []).append(chain)

    def save(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def processes(self) -> list[tuple[str, str, int]]:
        """Return every known process with its group and the last place that was seen, -1 if there is none."""
        return [(chain.process, chain.group, chain.last) for chain in self.state.chains.values()]

    def absent(self) -> list[str]:
        """Return the groups that messages wait for although no process of theirs is known."""
        return sorted({group for m in self.state.pending.values() for group in m.groups()} - set(self._by_group))

    def unresolved(self) -> list[str]:
        """Return the messages that wait because their destinations are not known, oldest first."""
        return [message for message, pending in self.state.pending.items() if pending.dest is None]

    def expect(self, process: str, group: str, members: int = 0) -> None:
        """Note that this process takes part, in a group of so many members. 0 means that the size is not said."""
        state = self.state
        if members > state.sizes.get(group, 0):
            state.sizes[group] = members
        if process not in state.chains:
            chain = Chain(process, group, len(state.chains), time=state.newest)
            chain.waits = not state.next_index  # who comes later has missed something
            chain.nth = 0 if chain.waits else -1
            state.chains[process] = chain
            self._by_group.setdefault(group, []).append(chain)

    def take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.expect(row.process, row.group)
            self._take(self.state.chains[row.process], _in_its_group(row) if self.state.apart else row)

    def tell(self, message: str, dest: tuple[str, ...]) -> None:
        """Note that this message was multicast to these groups."""
        state = self.state
        state.unsent.pop(message, None)
        pending = state.pending.get(message)
        if pending is None or pending.dest is not None:
            return
        pending.dest = dest
        for group in [group for group in pending.latest if group not in dest]:
            del pending.latest[group]
            for chain in self._by_group[group]:
                mine = chain.queue[chain.at :]
                for row in mine:
                    if row.message == message:
                        self._not_for(row, dest)
                chain.queue, chain.at = [row for row in mine if row.message != message], 0
                pending.has.discard(chain.number)
        if not pending.has:
            del state.pending[message]

    def _not_for(self, row: Row, dest: Iterable[str]) -> None:
        self._wrong("validity", f"{row.process} delivers {row.message}, which is for {', '.join(dest)}", [row])

    def behind(self) -> dict[str, int]:
        """Return for each process how many of its messages wait for another process."""
        return {chain.process: len(chain.queue) - chain.at for chain in self.state.chains.values()}

    def heads(self) -> dict[str, Row]:
        """Return for each process the first of its rows that wait."""
        found = ((chain.process, chain.head()) for chain in self.state.chains.values())
        return {process: row for process, row in found if row is not None}

    def _take(self, chain: Chain, row: Row) -> None:
        state = self.state
        if row.message is None:
            chain.waits, chain.lost = False, True
            chain.last = chain.nth = -1
            self.lost.append(chain.process)
            return
        self.delivered[chain.process] = self.delivered.get(chain.process, 0) + 1
        if row.place <= chain.last:
            self._wrong("integrity", f"{row.process} goes back from {chain.last} to {row.place}", [row])
            return
        if self._gapless and chain.last >= 0 and row.place != chain.last + 1:
            self._wrong("order", f"{row.process} has nothing at positions {chain.last + 1} to {row.place - 1}", [row])
        chain.last = row.place
        chain.time = max(chain.time, row.time)
        state.newest = max(state.newest, row.time)
        state.oldest = min(state.oldest or row.time, row.time)
        if row.dest is not None and row.group not in row.dest:
            self._not_for(row, row.dest)
            return
        dest = (row.group,) if state.apart else row.dest
        known = state.passed.get(row.message)
        if known is not None and chain.number in known.has:
            self._wrong("integrity", f"{row.process} delivers {row.message} twice", [row])
            return
        if not chain.waits:
            chain.queue.append(row)
            return
        pending = state.pending.get(row.message)
        if pending is not None and pending.dest is None and dest is not None:
            self.tell(row.message, dest)
            pending = state.pending.get(row.message)
        if pending is None:
            pending = state.pending[row.message] = Pending(dest, first=row.time)
            self.guessed += state.apart and row.dest is None
        if pending.dest is not None and row.group not in pending.dest:
            self._not_for(row, pending.dest)  # this row says so itself, an earlier one did not
            return
        if chain.number in pending.has:
            self._wrong("integrity", f"{row.process} delivers {row.message} twice", [row])
            return
        pending.has.add(chain.number)
        pending.first = min(pending.first, row.time)
        pending.latest[row.group] = max(pending.latest.get(row.group, 0), row.time)
        chain.queue.append(row)

    def _compare(self, chain: Chain) -> None:
        """Compare the deliveries of a process that nobody waits for with what the others passed.

        If it has caught up with them, the others wait for it again.
        """
        row = chain.head()
        while row is not None and row.message is not None:
            known = self.state.passed.get(row.message)
            if known is None:
                if row.message in self.state.pending or chain.index >= self.state.next_index - self._window:
                    return  # to be passed
                self.unchecked += 1
                chain.nth = -1
            elif row.group not in known.nth:
                self._not_for(row, known.nth)
            elif known.index < chain.index:
                text = f"{row.process} delivers {chain.before} before {row.message}; its group does the opposite"
                self._wrong("order", text, [row])
            else:
                nth = known.nth[row.group]
                if 0 <= chain.nth < nth - 1 and not chain.lost:
                    text = f"{row.process} leaves out messages that its group delivers before {row.message}"
                    self._wrong("order", f"{text}: {nth - 1 - chain.nth:,}", [row])
                self.pairs += 1 if len(known.has) > 1 else 2  # the first one had nobody to be compared with
                known.has.add(chain.number)
                chain.index, chain.before, chain.nth = known.index, row.message, nth
            chain.drop()
            row = chain.head()
        if row is None and chain.nth >= self.state.counts.get(chain.group, 0):
            chain.waits, chain.lost = True, False

    def settle(self, wait: bool = True) -> None:
        """Pass what can be passed, and look for a cycle in the rest.

        `wait`: a process that has nothing more to compare may have it later. Without it the others go on at once.
        """
        state = self.state
        for chain in state.chains.values():
            chain.time = chain.time or state.oldest  # who gave nothing yet is waited for from the first row on
            if chain.waits and chain.head() is None and state.newest - chain.time > self._most_silence:
                chain.waits = False
        for chains in self._by_group.values():
            if not any(chain.waits for chain in chains):
                self._wake(chains)
        older = islice(state.pending.values(), max(0, len(state.pending) - self._window))
        if not state.apart and any(pending.dest is None for pending in older):
            self._take_apart()  # else all that follows would be kept
        self._go_on(wait)
        for chain in state.chains.values():
            if not chain.waits:
                self._compare(chain)
        if not wait:
            self._wake([chain for chain in state.chains.values() if self._is_ahead(chain)])
            self._go_on(wait)
        if not state.broken:
            self._find_cycle()
        while len(state.passed) > self._window:
            del state.passed[next(iter(state.passed))]

    def _go_on(self, wait: bool) -> None:
        self._pass_all()
        while not wait and self._leave_behind():
            self._pass_all()

    def _pass_all(self) -> None:
        ready = [chain for chain in self.state.chains.values() if chain.waits]
        while ready:
            row = ready.pop().head()
            if row is not None:
                ready += self._pass(row)

    def _leave_behind(self) -> bool:
        """Stop waiting for a process that has nothing more while another one of its group has."""
        groups = [[chain for chain in chains if chain.waits] for chains in self._by_group.values()]
        busy = [waiting for waiting in groups if any(chain.head() is not None for chain in waiting)]
        idle = [chain for waiting in busy for chain in waiting if chain.head() is None]
        for chain in idle:
            chain.waits = False
        return bool(idle)

    def _is_ahead(self, chain: Chain) -> bool:
        """Return whether a process that was left behind has by now all that its group passed, and more."""
        row = chain.head()
        if chain.waits or chain.lost or row is None or row.message in self.state.passed:
            return False
        return chain.nth >= self.state.counts.get(chain.group, 0)

    def _wake(self, chains: list[Chain]) -> None:
        """Wait again for silent processes: no other one is in their group, or they are ahead."""
        for chain in chains:
            row = chain.head()
            if row is None or row.message in self.state.passed:
                continue
            self.state.broken = self.state.broken or chain.lost  # nobody knows what came before
            chain.waits, chain.lost = True, False
            self._take_again(chain)

    def _take_again(self, chain: Chain) -> None:
        queue, chain.queue, chain.at, chain.last = chain.queue[chain.at :], [], 0, -1
        self.delivered[chain.process] = self.delivered.get(chain.process, 0) - len(queue)
        for row in queue:
            self._take(chain, row)

    def _take_apart(self) -> None:
        """Judge each group by itself from now on, because too many destinations are not known."""
        state = self.state
        state.apart = True
        state.pending.clear()
        state.passed = {
            _name(message, group): Passed(known.index, known.has, {group: nth})
            for message, known in state.passed.items()
            for group, nth in known.nth.items()
        }
        for chain in state.chains.values():
            chain.queue = [_in_its_group(row) for row in chain.queue]
            if chain.waits:
                self._take_again(chain)

    def _needed(self, dest: tuple[str, ...]) -> list[Chain]:
        return [chain for group in dest for chain in self._by_group.get(group, ()) if chain.waits]

    def _pass(self, row: Row) -> list[Chain]:
        """Pass this message if it is next wherever it must be, and return the processes that move on."""
        state = self.state
        assert row.message is not None
        pending = state.pending[row.message]
        if pending.dest is None:
            return []
        needed = self._needed(pending.dest)
        if {chain.group for chain in needed} != set(pending.dest):
            return []  # nobody of some group is there
        if any((head := chain.head()) is None or head.message != row.message for chain in needed):
            return []
        if len(needed) > 1:
            self.pairs += len(needed)
        nth = {group: state.counts.get(group, 0) + 1 for group in pending.dest}
        state.counts |= nth
        for chain in needed:
            chain.drop()
            chain.index, chain.before, chain.nth = state.next_index, row.message, nth[chain.group]
        state.passed[row.message] = Passed(state.next_index, pending.has, nth)
        state.next_index += 1
        for group, time in pending.latest.items():
            self.spreads.setdefault(group, []).append(time - pending.first)
        del state.pending[row.message]
        return needed

    def _find_cycle(self) -> None:
        """Look for a cycle: pass all that waits, ignoring processes that have nothing more.

        Such a process can deliver the rest only behind what it has, so it is in no cycle. What cannot be passed is in
        one.
        """
        state = self.state
        left = {chain.process: deque(chain.queue[chain.at :]) for chain in state.chains.values() if chain.waits}

        def blockers(message: str) -> list[Row]:
            """Return the rows that are next where this message should be."""
            return [left[c.process][0] for c in self._needed(state.pending[message].groups()) if left[c.process]]

        ready = list(left)
        while ready:
            mine = left[ready.pop()]
            firsts = blockers(mine[0].message or "") if mine else []
            if all(first.message == mine[0].message for first in firsts):
                for first in firsts:
                    left[first.process].popleft()
                    ready.append(first.process)
        waits: dict[str, list[tuple[str, Row]]] = {}
        for message in {rows[0].message or "" for rows in left.values() if rows}:
            waits[message] = [(row.message or "", row) for row in blockers(message) if row.message != message]
        cycle = _cycle(waits)
        if cycle:
            text = "; ".join(f"{row.process} delivers {row.message} before {later}" for later, row in cycle)
            state.broken = True
            self._wrong("order", f"a cycle: {text}", [row for _, row in cycle])

    def _wrong(self, what: str, text: str, rows: list[Row]) -> None:
        self.violations.append(Violation(what, text, rows))


def _name(message: str, group: str) -> str:
    return f"{message} ({group})"


def _in_its_group(row: Row) -> Row:
    return row if row.message is None else msgspec.structs.replace(row, message=_name(row.message, row.group))


def _cycle(waits: dict[str, list[tuple[str, Row]]]) -> list[tuple[str, Row]]:
    """Return a shortest cycle: each message with the row that comes before it."""
    found: list[tuple[str, Row]] = []
    for start in sorted(waits):
        came: dict[str, tuple[str, Row]] = {}
        queue = deque([start])
        while queue:
            message = queue.popleft()
            for first, row in waits.get(message, ()):
                if first == start:
                    path = [(message, row)]
                    while message != start:
                        message, row = came[message]
                        path.append((message, row))
                    if not found or len(path) < len(found):
                        found = path
                    queue.clear()
                    break
                if first not in came:
                    came[first] = (message, row)
                    queue.append(first)
    return found
