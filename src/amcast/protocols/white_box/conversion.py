"""Makes records of those that White-Box of amcast 0.1 left on a disk.

What is new since: deliveries have positions and a digest, delivered messages are not kept, and a snapshot says what its
replica remembers of the others. A cluster is converted as a whole, and nobody remembers anything of anybody at first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.order import BOTTOM
from amcast.core.topology import MOST, Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Codec, Message, wired
from amcast.protocols.white_box.recent import digest_of
from amcast.protocols.white_box.records import (
    Accepted,
    Adopted,
    Delivered,
    Held,
    Idle,
    Outcomes,
    Promised,
    Rejoining,
    Remembered,
    Summary,
    encoded,
)

COMMITTED: Final = 3


@final
@dataclass
class OldSummary(Message):
    """The start of a snapshot of 0.1."""

    ballot: int
    cballot: int
    clock: int
    max_delivered_gts: int
    floors: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    shared_with: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))


@final
@dataclass
class OldRejoining(Message):
    """What came before was another member's state."""

    b: int


OLD_RECORDS: Final = Codec(
    (Promised, Adopted, Accepted, Delivered, OldSummary, Held, Remembered, OldRejoining, Idle), MOST
)


def converted(
    records: list[bytes], position: int, before: Iterable[tuple[Mid, int]], topology: Topology
) -> list[bytes]:
    """Return what a replica recovers from: of the records of a snapshot at this position, and of those behind it.

    `before` is what the snapshot's prefix has in common with those of the rest of its group since they were last
    together, in order: the digests of all of them begin there. What the records delivered behind the snapshot is
    delivered again.
    """
    digest = 0
    for mid, gts in before:
        digest = digest_of(digest, mid, gts)
    found: list[Message] = []
    held: list[Message] = []
    outcomes: list[tuple[int, int, tuple[int, ...], int]] = []
    messages: dict[Mid, AppMessage] = {}
    reached = BOTTOM
    for data in records:
        for record in OLD_RECORDS.read(data):
            if isinstance(record, OldSummary):
                reached = record.max_delivered_gts
                found.append(summary_of(record, position, digest, topology))
            elif isinstance(record, Held):
                messages[record.m.mid] = record.m
                if record.phase != COMMITTED or record.gts > reached:
                    held.append(record)
                elif len(record.m.dest) > 1:  # another of its groups may still ask for it
                    outcomes.append((sender_of(record.m.mid), seq_of(record.m.mid), record.m.dest, record.gts))
            elif isinstance(record, (Remembered, Idle)):
                found.append(record)
            else:
                held += later(record, messages)
    return [encoded(record) for record in [*found, Outcomes(tuple(outcomes)), *held]] if found or held else []


def summary_of(old: OldSummary, position: int, digest: int, topology: Topology) -> Summary:
    nobody = (0,) * topology.replicas_at_first
    return Summary(
        old.ballot, old.cballot, old.clock, old.max_delivered_gts, position, digest, 0, 0, False, BOTTOM,
        old.floors, old.shared_with, nobody, nobody, 0, (),
    )  # fmt: skip


def later(record: Message, messages: dict[Mid, AppMessage]) -> list[Message]:
    """Return what a record behind the snapshot becomes; take note of the messages in it."""
    if isinstance(record, Accepted):
        messages[record.m.mid] = record.m
    elif isinstance(record, Adopted):
        for m, _, _, _ in record.state:
            messages[m.mid] = m
    elif isinstance(record, Delivered):  # it may have been left out of a ballot since it was accepted
        return [Accepted(messages[record.mid], record.lts, 0), record]
    elif isinstance(record, OldRejoining):
        return [Rejoining(record.b, 0, 0)]
    return [record]
