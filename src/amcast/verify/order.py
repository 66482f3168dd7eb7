"""Order on Spark: timestamps as a certificate that is checked, else the relation itself, cut into blocks.

A run is in order if each message has a number, the same everywhere, such that numbers increase along every history and
the number of a message is higher than that of anything delivered by a process that lacks it. If `ts` is such a number,
the run is proven to be in order and nothing else is needed. If it is not, nothing is proven, and the relation of
`checks/order.py` is searched for a cycle without a look at any timestamp.
"""

from amcast.verify.cuts import Steps, find_cuts
from amcast.verify.cycles import cycles_through, find_in_blocks, shortest_cycle
from amcast.verify.graph import line_of
from amcast.verify.messages import of_runs
from amcast.verify.participants import Participants, Timestamps
from amcast.verify.pieces import Pieces


def runs_without_proof(participants: Participants, ts: Timestamps | None, uncertified: set[int]) -> set[int]:
    """Return the runs whose timestamps do not prove that they are in order."""
    runs = set(range(len(participants.runs)))
    if ts is None:
        return runs
    delivers = participants.chains["deliver"].counts > 0
    unsteady = set(participants.processes.run[delivers & ~ts.increase].tolist())
    without = {run for run in runs if participants.facts[run].without_ts}
    return uncertified | unsteady | without


def disordered(
    messages: Pieces, participants: Participants, runs: set[int], per_block: int, partitions: int
) -> tuple[dict[int, list[str]], Steps | None]:
    """Return the messages of a cycle for each of these runs that is out of order, and the cuts."""
    if not runs:
        return {}, None
    line = line_of(participants.processes.run, participants.chains["deliver"])
    chosen = messages.each(of_runs(runs, len(participants.runs)))
    cuts = find_cuts(chosen, line, per_block)
    found = cycles_through(chosen, line, cuts.on_cycles) if len(cuts.on_cycles) else {}
    rest = runs - set(found)
    if rest:
        chosen = messages.each(of_runs(rest, len(participants.runs)))
        found |= find_in_blocks(chosen, line, cuts, partitions, shortest_cycle, all_components=False)
    return found, cuts.steps
