"""Applications on top of replicated groups: deterministic state machines, and what speaks to them.

A cluster's file names one of these. Other packages add some by entry points (docs/adding-a-protocol.md), and a path to
a class needs no entry point.
"""

import os
import sys
from importlib import import_module
from typing import Final

from amcast.core.application import APP_PATH, Application, Factory, StateMachine
from amcast.core.plugins import Table
from amcast.errors import UsageError, meant


def kv(group: int, groups: int) -> StateMachine:
    from amcast.apps.kv import KV

    return KV(group, groups)


def bank(group: int, groups: int) -> StateMachine:
    from amcast.apps.bank import Bank

    return Bank(group, groups)


def ledger(group: int, groups: int) -> StateMachine:
    from amcast.apps.ledger import Ledger

    return Ledger(group, groups)


LOG: Final = Application(name="log", title="nothing but the ordered log", machine=None)
KV_STORE: Final = Application(name="kv", title="a key-value store for Redis clients", machine=kv)
BANK: Final = Application(name="bank", title="accounts, and transfers between groups", machine=bank)
LEDGER: Final = Application(name="ledger", title="a hash-chained ledger", machine=ledger)
APPLICATIONS: Final = Table("amcast.apps", Application, (LOG, KV_STORE, BANK, LEDGER))


def application(name: str) -> Application:
    """Return the application with this name, or that a path such as package.module:Class leads to."""
    if ":" in name:
        return Application(name=name, title=name, machine=_at(name))
    found = APPLICATIONS.get(name)
    if found is None:
        raise APPLICATIONS.unknown(name, f"{meant(name, APPLICATIONS)}, or package.module:Class")
    return found


def _at(path: str) -> Factory:
    """Return what makes the state machines of an application, from its module. Raises UsageError."""
    if not APP_PATH.fullmatch(path):
        raise UsageError(f"application {path!r}: expected a path such as package.module:Class")
    module, _, place = path.partition(":")
    try:
        found: object = import_module(module)
        for part in place.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever somebody else's module does when it is imported
        absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        advice = "install it, or name its folder in PYTHONPATH" if absent else "correct it"
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"application {path} cannot be used: {why}; {advice}") from error
    if not callable(found):
        raise UsageError(f"application {path} is a {type(found).__name__}; expected a class, or what makes an object")
    return found


def same_application(one: Factory, other: Factory | None) -> bool:
    """Tell whether two are one, though a module may have been read twice: as a program, and by its name."""
    names = [(getattr(found, "__qualname__", None), _file_of(found)) for found in (one, other)]
    return one is other or (names[0] == names[1] and None not in names[0])


def _file_of(found: object) -> str | None:
    file = getattr(sys.modules.get(getattr(found, "__module__", "")), "__file__", None)
    return os.path.realpath(file) if file is not None else None
