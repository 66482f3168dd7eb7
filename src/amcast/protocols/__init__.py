"""The table of protocols: a new one is a file beside this and a line here."""

from typing import Final

from amcast.core.errors import UsageError
from amcast.core.process import Protocol
from amcast.protocols import (
    fastcast,
    ft_skeen,
    multi_paxos,
    paxos_amcast,
    skeen,
    white_box,
    white_box_client,
    white_box_messages,
)
from amcast.protocols.log_invariants import LogMonitor
from amcast.protocols.white_box_invariants import Monitor

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
        tolerates="crash of a minority of five acceptors, any client",
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
        tolerates="crash of a minority in the first group, any client",
        latency="3δ",
        messages=multi_paxos.MESSAGES,
        packed=multi_paxos.PACKED,
        elects=True,
        genuine=False,
        monitor=LogMonitor,
    ),
}


def protocol(name: str) -> Protocol:
    """The protocol with this name."""
    found = PROTOCOLS.get(name)
    if found is None:
        raise UsageError(f"unknown protocol {name!r}: expected one of {', '.join(PROTOCOLS)}; see 'amcast protocols'")
    return found
