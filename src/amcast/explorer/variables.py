"""Shows the state of a process to people: its variables with their values, beside the paper's names for them."""

from collections.abc import Mapping
from dataclasses import dataclass

from amcast.core.order import BOTTOM, group_of, leader_of, round_of, time_of
from amcast.core.process import Process
from amcast.core.topology import SEQ_BITS, Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Message, wire_of
from amcast.explorer.canonical import ATOMS, SURROUNDINGS, attributes

HIDDEN = frozenset(
    "pid topology params out monitor now group others quorum routes rank g0 wire session process owner members".split()
)
TIMESTAMPS = frozenset(
    "lts gts max_delivered_gts prev_gts proposals floors shared_with floor_sent delivered_by delivered ts".split()
)
BALLOTS = frozenset("ballot cballot seen_ballot refused rejoin_above bal b promised accepted_in".split())

VALUES = {
    "phase": ("START", "PROPOSED", "ACCEPTED", "COMMITTED"),
    "status": ("FOLLOWER", "LEADER", "RECOVERING"),
}


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    paper: str = ""


def variables(process: Process, topology: Topology, paper: Mapping[str, str]) -> dict[str, Variable]:
    """Return the variables by name. What a process knows of a message has a row each, such as `entries[c0:0].lts`."""
    found: dict[str, Variable] = {}

    def add(path: str, name: str, value: object) -> None:
        if isinstance(value, Mapping) and value and all(is_compound(item) for item in value.values()):
            for key, item in value.items():
                fields(f"{path}[{show('', key, topology)}]", item)
        elif is_compound(value) and len(path) < 60:
            fields(path, value)
        else:
            found[path] = Variable(path, show(name, value, topology), paper.get(name, ""))

    def fields(path: str, value: object) -> None:
        for name in attributes(value):
            if name not in HIDDEN:
                add(f"{path}.{name}", name, getattr(value, name, None))

    for name in attributes(process):
        value = getattr(process, name, None)
        if name not in HIDDEN and not isinstance(value, SURROUNDINGS):
            add(name, name, value)
    return found


def is_compound(value: object) -> bool:
    """Return whether this is an object of a protocol's own, to be shown attribute by attribute."""
    plain = (list, tuple, dict, set, frozenset, AppMessage, Message)
    return type(value) not in ATOMS and not isinstance(value, plain) and bool(attributes(value))


def show(name: str, value: object, topology: Topology) -> str:
    """Write a value as the papers do: (t, g) for a timestamp, (n, p) for a ballot, c0:0 for a message."""
    name = name.lstrip("_")
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return show_number(name, value, topology)
    if isinstance(value, AppMessage):
        return topology.message_name(value.mid)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{show('', k, topology)}: {show(name, v, topology)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(name, item, topology) for item in value) + "]"
    if type(value) in ATOMS:
        return str(value)
    fields = wire_of(type(value)) if isinstance(value, Message) else attributes(value)
    parts = [f"{field}={show(field, getattr(value, field, None), topology)}" for field in fields]
    return f"{type(value).__name__}({', '.join(parts)})"


def show_number(name: str, value: int, topology: Topology) -> str:
    if name in TIMESTAMPS or name in BALLOTS:
        if value == BOTTOM:
            return "⊥"
        if name in BALLOTS:
            return f"({round_of(value)}, {leader_of(value)})"
        return f"({time_of(value)}, g{group_of(value)})"
    if name in VALUES and 0 <= value < len(VALUES[name]):
        return VALUES[name][value]
    if value >> SEQ_BITS and sender_of(Mid(value)) < topology.size:
        return topology.message_name(Mid(value))
    return str(value)
