"""The table of protocols: a new one is a file beside this and a line here."""

from typing import Final

from amcast.core.errors import UsageError
from amcast.core.process import Protocol
from amcast.protocols import causal, fifo, skeen, white_box, white_box_client, white_box_messages
from amcast.protocols.broadcasts import BROADCASTS
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
        latency="leader 3δ, follower 4δ; worst 5δ, 6δ",
        messages=white_box_messages.MESSAGES,
        packed=white_box_messages.PACKED,
        elects=True,
        durable=True,
        monitor=Monitor,
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
    ),
    "causal": Protocol(
        name="causal",
        title="A_causal, causal multicast",
        replica=causal.Causal,
        client=causal.Causal,
        order="causal",
        tolerates="any number of crashes, with Θ; a sender's crash may block others",
        latency="2δ",
        messages=fifo.MESSAGES,
        detector="Θ",
    ),
    "causal_stable": Protocol(
        name="causal_stable",
        title="A_causal, every message stable before the next",
        replica=causal.CausalStable,
        client=causal.CausalStable,
        order="causal",
        tolerates="any number of crashes, with Θ",
        latency="2δ, and 2δ between messages of a sender",
        messages=fifo.MESSAGES,
        detector="Θ",
    ),
    **BROADCASTS,
}


def protocol(name: str) -> Protocol:
    """The protocol with this name."""
    found = PROTOCOLS.get(name)
    if found is None:
        raise UsageError(f"unknown protocol {name!r}: expected one of {', '.join(PROTOCOLS)}; see 'amcast protocols'")
    return found
