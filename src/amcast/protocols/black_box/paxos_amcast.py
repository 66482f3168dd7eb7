"""Paxos amcast: one group orders the messages of all.

Paper: "Optimistic Atomic Multicast", section 7, the protocol it compares itself with; the log is `replicated_log`, and
what is said in `multi_paxos` holds here too.

Latency in message delays: 3, everywhere, and never more without failures.

Every member of the first group is an acceptor, all processes of all groups learn every message in the order of its log,
and each delivers what is addressed to its group. Simple and without convoys, but not genuine: all load is on one group.
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.protocol import Protocol
from amcast.protocols.black_box.multi_paxos import ROW as MULTI_PAXOS_ROW
from amcast.protocols.black_box.multi_paxos import SEQUENCER, MultiPaxos


@final
class PaxosAmcast(MultiPaxos):
    def choose_acceptors(self) -> tuple[int, ...]:
        return self.topology.groups[SEQUENCER]


ROW: Final[Protocol] = replace(
    MULTI_PAXOS_ROW,
    name="paxos_amcast",
    title="Paxos amcast",
    replica=PaxosAmcast,
    tolerates="crash of a minority in group 0, any client",
    single_group=False,
    genuine=False,
    least_delivered=94,
)
