"""The table of protocols: a row stands at the end of its protocol's file, and here is their order.

Other packages add rows by entry points: see docs/adding-a-protocol.md.
"""

from typing import Final

from amcast.core.plugins import Table
from amcast.core.protocol import Protocol
from amcast.protocols import lcr, skeen
from amcast.protocols.allconcur import allconcur, allconcur_plus, allgather
from amcast.protocols.black_box import fastcast, ft_skeen, multi_paxos, paxos_amcast
from amcast.protocols.optimistic import baseline, optimistic
from amcast.protocols.ordering import causal, fifo
from amcast.protocols.primcast import replica as primcast
from amcast.protocols.white_box import replica as white_box

ROWS: Final = (
    skeen.ROW,
    white_box.ROW,
    primcast.ROW,
    primcast.HYBRID_ROW,
    ft_skeen.ROW,
    ft_skeen.EAGER_ROW,
    fastcast.ROW,
    fastcast.EAGER_ROW,
    multi_paxos.ROW,
    paxos_amcast.ROW,
    baseline.ROW,
    optimistic.ROW,
    fifo.ROW,
    causal.ROW,
    causal.STABLE_ROW,
    allgather.ROW,
    allconcur.ROW,
    allconcur.EA_ROW,
    allconcur_plus.ROW,
    allconcur_plus.UNIFORM_ROW,
    allconcur_plus.RERUN_ROW,
    allconcur_plus.MERGE_ROW,
    allconcur.PLUS_EA_ROW,
    lcr.ROW,
)
PROTOCOLS: Final = Table("amcast.protocols", Protocol, ROWS)


def protocol(name: str) -> Protocol:
    """Return the protocol with this name."""
    found = PROTOCOLS.get(name)
    if found is None:
        raise PROTOCOLS.unknown(name, f"expected one of {', '.join(PROTOCOLS)}; see 'amcast protocols'")
    return found
