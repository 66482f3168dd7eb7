"""Applications on top of replicated groups: deterministic state machines, and what speaks to them.

A cluster's file names one of these; other packages add some by entry points: see docs/adding-a-protocol.md.
"""

from typing import Final

from amcast.core.application import Application, StateMachine
from amcast.core.plugins import Table
from amcast.errors import meant


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
    """Return the application with this name."""
    found = APPLICATIONS.get(name)
    if found is None:
        raise APPLICATIONS.unknown(name, meant(name, APPLICATIONS))
    return found
