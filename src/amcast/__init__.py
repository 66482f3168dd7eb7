"""Atomic multicast: a message goes to any set of replicated groups, and every group sees its part of one total order.

A cluster: `connect` and `connect_sync` give a `Client` or `SyncClient` of one; `run_node` runs a replica of it with
your `StateMachine`, which executes each `Delivery`. A protocol: `simulate` runs it in virtual time, `explore` in every
schedule of a small case, `check` judges what happened. `help(amcast.connect)` says more, and so do the others.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from amcast.errors import (  # isort: skip
    Alarm, AmcastError, Anomaly, AnswerGone, ApplicationFailed, Busy, CommandRefused, HistoryGone, IdentityRefused,
    InvariantViolation, LineFault, LostMessages, MulticastFailed, OutcomeUnknown, OutOfTime, PeerError,
    PropertyViolation, Refused, Rejected, ReplicasDiffer, RespError, SearchTooLong, SlotsMoved, StorageCorrupt,
    StorageFailure, SweepInterrupted, TopologyError, TraceError, UsageError, WireError, WorkloadRefused,
)  # fmt: skip

if TYPE_CHECKING:
    from amcast.core.application import Delivery, StateMachine
    from amcast.runtime.client import Client, SyncClient
    from amcast.service import connect, connect_sync, run_node
    from amcast.study import check, explore, simulate

__version__ = "0.2.0.dev0"
__all__ = [
    "Alarm", "AmcastError", "Anomaly", "AnswerGone", "ApplicationFailed", "Busy", "Client", "CommandRefused",
    "Delivery", "HistoryGone", "IdentityRefused", "InvariantViolation", "LineFault", "LostMessages", "MulticastFailed",
    "OutOfTime", "OutcomeUnknown", "PeerError", "PropertyViolation", "Refused", "Rejected", "ReplicasDiffer",
    "RespError", "SearchTooLong", "SlotsMoved", "StateMachine", "StorageCorrupt", "StorageFailure", "SweepInterrupted",
    "SyncClient", "TopologyError", "TraceError", "UsageError", "WireError", "WorkloadRefused", "__version__", "check",
    "compiled", "connect", "connect_sync", "explore", "run_node", "simulate",
]  # fmt: skip

# Where the rest is. It is imported when it is used: a command that needs no cluster starts faster without asyncio.
_HOMES = {
    "Client": "amcast.runtime.client",
    "Delivery": "amcast.core.application",
    "StateMachine": "amcast.core.application",
    "SyncClient": "amcast.runtime.client",
    "check": "amcast.study",
    "connect": "amcast.service",
    "connect_sync": "amcast.service",
    "explore": "amcast.study",
    "run_node": "amcast.service",
    "simulate": "amcast.study",
}


class _SourceOnly:
    """Finds the .py of a module, although a compiled module beside it would come first."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("amcast."):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path or ())
        return next((spec for finder in finders if (spec := finder.find_spec(name, target))), None)


if os.environ.get("AMCAST_PURE", "0") not in ("", "0"):
    sys.meta_path.insert(0, _SourceOnly)


def compiled() -> bool:
    """Return whether the modules of compiled.txt run as machine code (mypyc) rather than as plain Python."""
    core = find_spec("amcast.core")
    return core is not None and core.origin is not None and not core.origin.endswith(".py")


def __getattr__(name: str) -> object:
    """Import one of the public names, once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'amcast' has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *_HOMES})
