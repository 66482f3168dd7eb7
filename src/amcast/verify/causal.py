"""Causal order on Spark: an acyclic relation proves it, and what is on a cycle is judged by the in-memory engine.

The relation holds the order of deliveries at every process, the order of multicasts at every sender, and for each
multicast all that its sender had delivered before. If m happened before m' and a process delivered m' without m, the
two are on a cycle, with all the messages of the chain from m to m'. So every violation lies inside one strongly
connected part, but not every such part is a violation: each is handed to `checks/causal.py`, as a trace of its messages
alone.

Two shortcuts. A sender that delivered nothing before it multicast adds no step from one process to another: if all are
so, causal order is fifo order. And what breaks fifo order breaks causal order.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from amcast.checks import check
from amcast.core.trace import Event
from amcast.verify.arrays import Ints, Lists, one_array
from amcast.verify.cuts import Steps, find_cuts, no_steps
from amcast.verify.cycles import find_in_blocks
from amcast.verify.graph import Line, Relation, line_of
from amcast.verify.messages import of_runs
from amcast.verify.participants import NONE, Participants
from amcast.verify.pieces import Pieces


def runs_with_chains(participants: Participants) -> set[int]:
    """Return the runs in which a process delivered something before it multicast something."""
    delivered, multicast = participants.chains["deliver"], participants.chains["multicast"]
    mixed = (delivered.counts > 0) & (multicast.counts > 0) & (delivered.first < multicast.last)
    return set(participants.processes.run[mixed].tolist())


def past_ignored(
    messages: Pieces,
    participants: Participants,
    runs: set[int],
    per_block: int,
    partitions: int,
    start: Steps | None,
) -> dict[int, list[str]]:
    """Return messages that show it for each of these runs that breaks causal order."""
    if not runs:
        return {}
    line = line_of(participants.processes.run, participants.chains["deliver"], participants.chains["multicast"])
    rows = messages.each(of_runs(runs, len(participants.runs)))
    if start is not None:
        start = no_steps(line).raised(line, start.place, start.level)
    cuts = find_cuts(rows, line, per_block, start)
    judge = partial(_violation, participants.processes.group)
    return find_in_blocks(rows, line, cuts, partitions, judge, all_components=True)


def _violation(group: Ints, part: Relation, rows: pa.Table, line: Line) -> Sequence[int]:
    """Return the messages of a counter-example to causal order among these messages; none if there is none."""
    (verdict,) = check(_events(rows, line, group), ["causal"])
    return sorted({int(row.message or 0) for row in verdict.counterexample})


def _events(rows: pa.Table, line: Line, group: Ints) -> Iterator[Event]:
    """Make a trace of these messages alone. Messages, processes and groups are named by their numbers."""
    for m, row in enumerate(rows.select(["sender", "sent", "dest"]).to_pylist()):
        if row["sender"] != NONE:
            who = str(row["sender"])
            yield Event("", "multicast", who, None, row["sent"], None, str(m), who, tuple(map(str, row["dest"])))
    places = Lists.of(one_array(rows["places"]))
    process = line.deliveries.process_at(places.values)
    seq = line.deliveries.seq_at(places.values, process)
    of_group = group[process]
    for m, p, g, s in zip(*(column.tolist() for column in (places.owner, process, of_group, seq)), strict=True):
        yield Event("", "deliver", str(p), None if g == NONE else str(g), s, None, str(m))
