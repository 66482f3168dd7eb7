"""The experiments of the papers as named set-ups: what `amcast sim --setup` takes where no other option says more.

A run of a paper takes minutes; here it is as many messages as show a steady state.
"""

from collections.abc import Mapping
from typing import Any, Final

from amcast.errors import UsageError
from amcast.sim.settings import MESSAGES
from amcast.sim.simulation import Simulation, simulation_with

SETUPS: Final[dict[str, dict[str, Any]]] = {
    # White-Box, section VI: 10 groups of 3, 20-byte messages, closed loop, the marked number of clients.
    "white-box-lan": {"groups": 10, "clients": 1000, "messages": 20_000, "network": "lan"},
    # A replica of each group at each of three sites; all leaders at the first, or spread: --network wan-spread.
    "white-box-wan": {"groups": 10, "clients": 8000, "messages": 40_000, "network": "wan"},
    # Optimistic, section 7.1: 5 groups of 3, every process multicasts, three groups send to each; clocks kept by NTP.
    "oam-lan": {
        "groups": 5, "replicas": 3, "network": "oam-lan", "senders_to": 3, "rate": 1500.0, "messages": 15_000,
        "skew": 50_000,
    },
    # Section 7.2: 4 groups of 4, a process of each per region, two groups send to each; offsets below 10 ms.
    "oam-wan": {
        "groups": 4, "replicas": 4, "network": "oam-wan", "senders_to": 2, "rate": 200.0, "messages": 4_000,
        "skew": 5_000_000,
    },
    # AllConcur+, section V: every server broadcasts four transactions in every round; one or five data centres.
    "allconcur-sdc": {
        "groups": 1, "replicas": 72, "network": "allconcur-sdc", "rounds": 24, "payload": 250, "batch": 4,
    },
    "allconcur-mdc": {
        "groups": 1, "replicas": 75, "network": "allconcur-mdc", "rounds": 24, "payload": 250, "batch": 4,
    },
}  # fmt: skip


def setup(name: str) -> dict[str, Any]:
    """Return the fields of the `Simulation` with this name."""
    if name not in SETUPS:
        raise UsageError(f"unknown set-up {name!r}: expected one of {', '.join(SETUPS)}")
    return SETUPS[name]


def simulation_in(name: str | None, given: Mapping[str, Any]) -> Simulation:
    """Return the simulation of what is given, in the set-up with this name, or in none."""
    planned = setup(name) if name is not None else {}
    if "duration" in given:
        planned = {field: value for field, value in planned.items() if field != "messages"}
    fields = {**planned, **given}
    if not {"messages", "duration", "rounds"} & fields.keys():
        fields["messages"] = MESSAGES
    return simulation_with(fields)
