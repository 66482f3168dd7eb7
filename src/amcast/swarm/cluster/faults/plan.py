"""A plan: faults in the order of their times, drawn, written and read."""

from typing import Final

import msgspec

from amcast.swarm.cluster.faults.aimed import AgainAtOnce, BeforeTheSync, LongAbsence, WhilePulling
from amcast.swarm.cluster.faults.disks import (
    BrokenRejoin,
    FailSync,
    Flip,
    FullDisk,
    LoseDisk,
    LoseName,
    OldFolder,
    SlowDisk,
)
from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.members import ChangeMembers, MoveSlots
from amcast.swarm.cluster.faults.processes import DieAtCall, JumpClock, Kill, Pause, PowerCut, Stop, StopGateway
from amcast.swarm.cluster.faults.shapes import Fault
from amcast.swarm.cluster.faults.starts import OtherConfig
from amcast.swarm.cluster.faults.upgrades import GoBack, Upgrade
from amcast.swarm.cluster.faults.ways import Cut, Reset, SlowWay

Plan = list[Fault]
AnyFault = (
    Stop | Kill | PowerCut | DieAtCall | Pause | JumpClock | StopGateway | Cut | SlowWay | Reset | SlowDisk | FullDisk
    | FailSync | Flip | LoseName | LoseDisk | BrokenRejoin | OldFolder | OtherConfig | BeforeTheSync | WhilePulling
    | AgainAtOnce | LongAbsence | ChangeMembers | MoveSlots | Upgrade | GoBack
)  # fmt: skip
KINDS: Final[tuple[type[Fault], ...]] = tuple(
    [kind for kind in AnyFault.__args__ if kind not in (ChangeMembers, MoveSlots, Upgrade, GoBack)]
)
_decoder = msgspec.json.Decoder(list[AnyFault])


def draw_plan(drawing: Drawing) -> Plan:
    """Draw a few kinds, each a few times."""
    random = drawing.random
    known: list[type[Fault]] = [kind for kind in KINDS if drawing.gateways or kind is not StopGateway]
    known += [StopGateway] * bool(drawing.gateways)
    plan: Plan = []
    for kind in random.sample(known, random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))):
        for _ in range(random.choice((1, 1, 2, 2, 3, 5))):
            fault = kind.draw(drawing)
            if fault is not None:
                plan.append(fault)
    return sorted(plan, key=lambda fault: fault.at)


def draw_changes(drawing: Drawing) -> Plan:
    """Draw changes of members, for a part of the seeds, with chance of their own: other faults are as without them."""
    times = drawing.one_of((0, 0, 0, 1, 1, 2, 3))
    return [fault for _ in range(times) if (fault := ChangeMembers.draw(drawing)) is not None]


def draw_moves(drawing: Drawing) -> Plan:
    """Draw moves of slots, likewise."""
    times = drawing.one_of((0, 1, 2, 4))
    return [fault for _ in range(times) if (fault := MoveSlots.draw(drawing)) is not None]


def as_json(plan: Plan) -> bytes:
    """Return a plan as text, one fault per line."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, plan)) + b"\n]\n"


def from_json(text: bytes) -> Plan:
    return list(_decoder.decode(text))
