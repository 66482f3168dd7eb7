"""The experiments of the papers as named set-ups: what `amcast sim --setup` takes where no other option says more.

A run of a paper takes minutes; here it is as many messages as show a steady state.
"""

from typing import Any, Final

from amcast.core.errors import UsageError

SETUPS: Final[dict[str, dict[str, Any]]] = {
    # White-Box, section VI: 10 groups of 3, 20-byte messages, closed loop, the marked number of clients.
    "white-box-lan": {"groups": 10, "clients": 1000, "messages": 20_000, "network": "lan"},
    # A replica of each group at each of three sites; all leaders at the first, or spread: --network wan-spread.
    "white-box-wan": {"groups": 10, "clients": 8000, "messages": 40_000, "network": "wan"},
}


def setup(name: str) -> dict[str, Any]:
    """The fields of the `Simulation` with this name."""
    if name not in SETUPS:
        raise UsageError(f"unknown set-up {name!r}: expected one of {', '.join(SETUPS)}")
    return SETUPS[name]
