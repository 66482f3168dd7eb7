"""The table of protocols: a new one is a file beside this and a line here."""

from typing import Final

from amcast.core.process import Protocol
from amcast.errors import UsageError
from amcast.protocols import skeen
from amcast.protocols.allconcur.broadcasts import BROADCASTS
from amcast.protocols.black_box import fastcast, ft_skeen, multi_paxos, paxos_amcast
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.optimistic import baseline, optimistic
from amcast.protocols.optimistic import messages as oam_messages
from amcast.protocols.ordering import causal, fifo
from amcast.protocols.white_box import client as white_box_client
from amcast.protocols.white_box import messages as white_box_messages
from amcast.protocols.white_box import replica as white_box
from amcast.protocols.white_box.invariants import Monitor

PROTOCOLS: Final[dict[str, Protocol]] = {
    "skeen": Protocol(
        name="skeen",
        title="Skeen's protocol",
        replica=skeen.Skeen,
        client=skeen.SkeenClient,
        order="total",
        tolerates="no failure; every group is one process",
        latency="2δ, worst 4δ",
        messages=skeen.MESSAGES,
        packed=skeen.PACKED,
        single_replica=True,
    ),
    "white_box": Protocol(
        name="white_box",
        title="White-Box atomic multicast",
        replica=white_box.WhiteBox,
        client=white_box_client.WhiteBoxClient,
        order="total",
        tolerates="crash of a minority in each group, any client",
        latency="3δ / 4δ, worst 5δ / 6δ",
        messages=white_box_messages.MESSAGES,
        packed=white_box_messages.PACKED,
        elects=True,
        durable=True,
        monitor=Monitor,
    ),
    "ft_skeen": Protocol(
        name="ft_skeen",
        title="Fault-tolerant Skeen",
        replica=ft_skeen.FtSkeen,
        client=white_box_client.WhiteBoxClient,
        order="total",
        tolerates="crash of a minority in each group, any client",
        latency="6δ / 7δ, worst 12δ / 13δ",
        messages=ft_skeen.MESSAGES,
        packed=ft_skeen.PACKED,
        elects=True,
        monitor=LogMonitor,
    ),
    "ft_skeen_eager": Protocol(
        name="ft_skeen_eager",
        title="Fault-tolerant Skeen, eager clock",
        replica=ft_skeen.EagerFtSkeen,
        client=white_box_client.WhiteBoxClient,
        order="total",
        tolerates="crash of a minority in each group, any client",
        latency="6δ / 7δ, worst 10δ / 11δ",
        messages=ft_skeen.MESSAGES,
        packed=ft_skeen.PACKED,
        elects=True,
        monitor=LogMonitor,
    ),
    "fastcast": Protocol(
        name="fastcast",
        title="FastCast",
        replica=fastcast.FastCast,
        client=white_box_client.WhiteBoxClient,
        order="total",
        tolerates="crash of a minority in each group, any client",
        latency="4δ / 5δ, worst 8δ / 9δ",
        messages=fastcast.MESSAGES,
        packed=fastcast.PACKED,
        elects=True,
        monitor=LogMonitor,
    ),
    "fastcast_eager": Protocol(
        name="fastcast_eager",
        title="FastCast, eager clock",
        replica=fastcast.EagerFastCast,
        client=white_box_client.WhiteBoxClient,
        order="total",
        tolerates="crash of a minority in each group, any client",
        latency="4δ / 5δ, worst 6δ / 7δ",
        messages=fastcast.MESSAGES,
        packed=fastcast.PACKED,
        elects=True,
        monitor=LogMonitor,
    ),
    "multi_paxos": Protocol(
        name="multi_paxos",
        title="Multi-Paxos",
        replica=multi_paxos.MultiPaxos,
        client=multi_paxos.SequencerClient,
        order="total, one group",
        tolerates="crash of two of five acceptors, any client",
        latency="3δ",
        messages=multi_paxos.MESSAGES,
        packed=multi_paxos.PACKED,
        elects=True,
        single_group=True,
        monitor=LogMonitor,
    ),
    "paxos_amcast": Protocol(
        name="paxos_amcast",
        title="Paxos amcast",
        replica=paxos_amcast.PaxosAmcast,
        client=multi_paxos.SequencerClient,
        order="total",
        tolerates="crash of a minority in group 0, any client",
        latency="3δ",
        messages=multi_paxos.MESSAGES,
        packed=multi_paxos.PACKED,
        elects=True,
        genuine=False,
        monitor=LogMonitor,
    ),
    "baseline": Protocol(
        name="baseline",
        title="Baseline atomic multicast",
        replica=baseline.Baseline,
        client=baseline.OamClient,
        order="total, fifo",
        tolerates="crash of a minority in each group, any client",
        latency="3δ",
        messages=oam_messages.MESSAGES,
        packed=oam_messages.PACKED,
        elects=True,
        genuine=False,
        monitor=LogMonitor,
    ),
    "optimistic": Protocol(
        name="optimistic",
        title="Optimistic atomic multicast",
        replica=optimistic.Optimistic,
        client=baseline.OamClient,
        order="total, fifo",
        tolerates="crash of a minority in each group, any client",
        latency="3δ or 4δ, optimistic 1δ",
        messages=oam_messages.MESSAGES,
        packed=oam_messages.PACKED,
        elects=True,
        genuine=False,
        guesses=True,
        monitor=LogMonitor,
    ),
    "fifo": Protocol(
        name="fifo",
        title="A_fifo, fifo multicast",
        replica=fifo.Fifo,
        client=fifo.Fifo,
        order="fifo",
        tolerates="any number of crashes, with Θ",
        latency="2δ",
        messages=fifo.MESSAGES,
        detector="Θ",
        requests=fifo.ASKED,
    ),
    "causal": Protocol(
        name="causal",
        title="A_causal, causal multicast",
        replica=causal.Causal,
        client=causal.Causal,
        order="causal",
        tolerates="any crashes, with Θ; a sender's may block others",
        latency="2δ",
        messages=fifo.MESSAGES,
        detector="Θ",
        requests=fifo.ASKED,
    ),
    "causal_stable": Protocol(
        name="causal_stable",
        title="A_causal, every message stable before the next",
        replica=causal.CausalStable,
        client=causal.CausalStable,
        order="causal",
        tolerates="any number of crashes, with Θ",
        latency="2δ, one at a time",
        messages=fifo.MESSAGES,
        detector="Θ",
        requests=fifo.ASKED,
    ),
    **BROADCASTS,
}


def protocol(name: str) -> Protocol:
    """The protocol with this name."""
    found = PROTOCOLS.get(name)
    if found is None:
        raise UsageError(f"unknown protocol {name!r}: expected one of {', '.join(PROTOCOLS)}; see 'amcast protocols'")
    return found
