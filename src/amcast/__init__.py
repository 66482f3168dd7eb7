"""amcast: atomic multicast protocols, written once and run by every driver."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amcast.core.application import Delivery, StateMachine
    from amcast.errors import AmcastError, MulticastFailed, OutcomeUnknown
    from amcast.service import connect, connect_sync, run_node

__version__ = "0.1.0"
__all__ = [
    "AmcastError",
    "Delivery",
    "MulticastFailed",
    "OutcomeUnknown",
    "StateMachine",
    "__version__",
    "compiled",
    "connect",
    "connect_sync",
    "run_node",
]


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
    """Whether the modules of compiled.txt run as machine code (mypyc) rather than as plain Python."""
    core = find_spec("amcast.core")
    return core is not None and core.origin is not None and not core.origin.endswith(".py")


def __getattr__(name: str) -> object:
    """The rest is imported when it is used: commands that need no cluster start faster without."""
    if name not in __all__:
        raise AttributeError(f"module 'amcast' has no attribute {name!r}")
    for module in ("amcast.errors", "amcast.core.application", "amcast.service"):
        found = getattr(import_module(module), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module 'amcast' has no attribute {name!r}")
