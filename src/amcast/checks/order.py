"""Order: one total order explains what every process delivered, in which place, and what it left out.

The relation over messages: m -> m' if some process delivered m and later m', or delivered m and never delivers m'
although m' is addressed to its group (a gap). The run is in order exactly if the relation has no cycle. A gap to a
message that nobody delivered cannot lie on a cycle, because nothing follows from such a message.

The check is linear: it merges the sequences of all processes. A message is taken when it is at the head of every
sequence that has it, and when every process with a gap there is through with its own sequence. If that stops half-way
there is a cycle, and the rest of the sequences is searched for a short one. No timestamp of a protocol is used: the
merge costs no more than checking timestamps would.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from amcast.checks.history import NOTHING_DELIVERED, History
from amcast.checks.verdict import Verdict
from amcast.core.trace import Event

# Steps spent on looking for a shorter cycle once there is one; about two seconds.
SEARCH_STEPS: Final = 2_000_000


class Edge(NamedTuple):
    """`process` delivered `first`, and then `second` or, if it is a gap, never `second`."""

    first: int
    second: int
    process: int
    gap: bool


def check_order(history: History) -> Verdict:
    if not history.evidence.deliveries:
        return history.unknown("order", NOTHING_DELIVERED)
    sequences = [log.firsts() for log in history.delivered]
    gaps = _gaps(history, sequences)
    rest = _merge(len(history.messages), sequences, gaps)
    if not any(len(sequence) for sequence in rest):
        return history.ok("order")
    cycle = _shortest_cycle(rest, gaps)
    return history.violated("order", _sentence(history, cycle), _rows(history, cycle))


def _gaps(history: History, sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each process that delivered something the messages that it lacks although others delivered them."""
    delivered = bytearray(len(history.messages))
    for sequence in sequences:
        for message in sequence:
            delivered[message] = 1
    gaps: list[list[int]] = [[] for _ in sequences]
    for group in range(len(history.groups)):
        due = [message for message in history.addressed[group] if delivered[message]]
        for process in history.members[group]:
            if len(sequences[process]):
                has = set(sequences[process])
                gaps[process] = [message for message in due if message not in has]
    return gaps


def _merge(messages: int, sequences: Sequence[Sequence[int]], gaps: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Merge the sequences as far as they agree and return the rest of each: nothing, if there is a total order."""
    needs = [0] * messages  # how many sequences and gaps still stand before the message
    for sequence in (*sequences, *gaps):
        for message in sequence:
            needs[message] += 1
    ends = [len(sequence) for sequence in sequences]
    heads = [0] * len(sequences)
    at_head: dict[int, list[int]] = {}
    moved = [process for process, end in enumerate(ends) if end]
    while moved:
        process = moved.pop()
        head = heads[process]
        if head == ends[process]:
            freed: Iterable[int] = gaps[process]
        else:
            message = sequences[process][head]
            if message in at_head:
                at_head[message].append(process)
            else:
                at_head[message] = [process]
            freed = (message,)
        for message in freed:
            needs[message] -= 1
            if needs[message] == 0:
                for holder in at_head.pop(message):
                    heads[holder] += 1
                    moved.append(holder)
    return [sequence[head:] for sequence, head in zip(sequences, heads, strict=True)]


def _shortest_cycle(rest: list[Sequence[int]], gaps: list[list[int]]) -> list[Edge]:
    """Return the shortest cycle that the allowed number of steps finds."""
    graph = _Relation(rest, gaps)
    best: list[Edge] = []
    for source in graph.sources():
        if best and (len(best) == 2 or graph.steps > SEARCH_STEPS):
            break
        cycle = graph.cycle_through(source, shorter_than=len(best) or None)
        best = cycle or best
    assert best, "the merge stopped but there is no cycle"
    return best


class _Relation:
    """The relation over the messages that could not be merged. An edge is not stored but found when it is followed."""

    def __init__(self, rest: list[Sequence[int]], gaps: list[list[int]]) -> None:
        self.steps = 0
        self._rest = rest
        # A process that is through with its sequence has no edge left: its gaps bind nobody any more.
        self._gaps = [gap if len(sequence) else [] for sequence, gap in zip(rest, gaps, strict=True)]
        self._places: dict[int, list[tuple[int, int]]] = {}
        for process, sequence in enumerate(rest):
            for place, message in enumerate(sequence):
                self._places.setdefault(message, []).append((process, place))

    def sources(self) -> Iterator[int]:
        """Yield the messages to start from: one that is surely on a cycle, then the other heads, then the rest."""
        heads = [sequence[0] for sequence in self._rest if len(sequence)]
        yield from dict.fromkeys((self._head_on_a_cycle(heads[0]), *heads, *self._places))

    def _head_on_a_cycle(self, head: int) -> int:
        """Return a head that is on a cycle: every head waits for another, so the walk comes back to where it was."""
        visited: set[int] = set()
        while head not in visited:
            visited.add(head)
            head = self._head_before(head)
        return head

    def _head_before(self, message: int) -> int:
        for process, place in self._places[message]:
            if place > 0:
                return self._rest[process][0]
        return next(self._rest[process][0] for process, gap in enumerate(self._gaps) if message in gap)

    def cycle_through(self, source: int, shorter_than: int | None) -> list[Edge] | None:
        """Search breadth first from the source until it is met again. Each place in a sequence is visited once."""
        reached_by: dict[int, Edge] = {}
        seen_from = [len(sequence) for sequence in self._rest]
        gaps_seen = [False] * len(self._rest)
        level = [source]
        length = 1
        while level and (shorter_than is None or length < shorter_than):
            found: list[int] = []
            for message in level:
                for process, place in self._places[message]:
                    followers = self._rest[process][place + 1 : seen_from[process]]
                    seen_from[process] = min(seen_from[process], place + 1)
                    missing = () if gaps_seen[process] else self._gaps[process]
                    gaps_seen[process] = True
                    for gap, targets in ((False, followers), (True, missing)):
                        self.steps += len(targets)
                        for target in targets:
                            if target not in reached_by:
                                reached_by[target] = Edge(message, target, process, gap)
                                found.append(target)
            if source in reached_by:
                edges = [reached_by[source]]
                while edges[-1].first != source:
                    edges.append(reached_by[edges[-1].first])
                return edges[::-1]
            level = found
            length += 1
        return None


def _sentence(history: History, cycle: list[Edge]) -> str:
    parts = []
    for edge in cycle:
        first, second = history.messages[edge.first], history.messages[edge.second]
        who = f"{history.processes[edge.process]}{' (crashed)' if history.is_down(edge.process) else ''}"
        if edge.gap:
            parts.append(f"{who} delivered {first} and never {second}, which is addressed to its group")
        else:
            parts.append(f"{who} delivered {first} before {second}")
    return f"no total order is possible: {'; '.join(parts)}"


def _rows(history: History, cycle: list[Edge]) -> tuple[Event, ...]:
    rows: list[Event] = []
    for edge in cycle:
        rows.append(history.deliver_row(edge.process, edge.first))
        rows.append(history.multicast_row(edge.second) if edge.gap else history.deliver_row(edge.process, edge.second))
    return tuple(rows)
