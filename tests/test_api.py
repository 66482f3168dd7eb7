"""The public names that other people's code may rely on: adding one is a decision, losing one a breaking change."""

import inspect
import re

import pytest

import amcast
import amcast.checks
import amcast.errors
import amcast.tracefile
from amcast.core.capabilities import Capability
from amcast.core.process import Effects, Process
from amcast.core.trace import COLUMNS, KINDS
from amcast.protocols import PROTOCOLS
from amcast.sim.settings import SETTINGS

SIGNATURES = {
    "connect": "(cluster: str | Path, name: str | None = None, *, deadline: float = 30.0, session: int | None = None, "
    "trace: str | Path | None = None, admin: str | None = None) -> Client",
    "connect_sync": "(cluster: str | Path, name: str | None = None, *, deadline: float = 30.0, "
    "session: int | None = None, first: int = 0, trace: str | Path | None = None, "
    "admin: str | None = None) -> SyncClient",
    "run_node": "(cluster: str | Path, name: str, app: Callable[[int, int], StateMachine] | None = None, *, "
    "trace: str | Path | None = None, level: str = 'info', new: bool = False, rejoin: bool = False, "
    "accept_loss: bool = False) -> None",
    "simulate": "(protocol: str, *, setup: str | None = None, full: bool = False, **settings: Any) -> SimulatedRun",
    "check": "(trace: str | Path | Iterable[Event], properties: Sequence[str] | None = None) -> list[Verdict]",
    "explore": "(protocol: str, scope: str | Scope = 'small', *, states: int | None = None, depth: int | None = None, "
    "seconds: float | None = None, walks: int = 0, seed: int = 1) -> Exploration",
    "compiled": "() -> bool",
}
METHODS = {
    "Client": [
        "change_members",
        "close",
        "conditions",
        "deliveries",
        "multicast",
        "read",
        "renew_certificate",
        "rows",
        "submit",
        "submit_batch",
    ],
    "SyncClient": ["close", "deliveries", "multicast", "multicast_batches", "read", "rows"],
    "StateMachine": ["apply", "restore", "snapshot"],
    "Delivery": ["dest", "group", "message", "payload", "position", "sender", "ts"],
}


def test_package() -> None:
    kinds = [found for found in vars(amcast.errors).values() if isinstance(found, type)]
    errors = {found.__name__ for found in kinds if issubclass(found, BaseException)}
    assert set(amcast.__all__) == {"__version__", *errors, *SIGNATURES, *METHODS}
    assert amcast.__all__ == sorted(amcast.__all__) and set(amcast.__all__) <= set(dir(amcast))
    with pytest.raises(AttributeError, match="no attribute 'connected'"):
        _ = amcast.connected  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_frozen(name: str) -> None:
    found = inspect.signature(getattr(amcast, name))
    assert re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", str(found)) == SIGNATURES[name]


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_frozen(name: str) -> None:
    assert sorted(found for found in dir(getattr(amcast, name)) if not found.startswith("_")) == METHODS[name]


def test_help_helps() -> None:
    """Also in the compiled build, where a docstring may be lost."""
    documented = [name for name in amcast.__all__ if name != "__version__"]
    assert not [name for name in documented if len((getattr(amcast, name).__doc__ or "").split()) < 4]
    for name, methods in METHODS.items():
        found = getattr(amcast, name)
        assert not [
            method for method in methods if callable(getattr(found, method)) and not getattr(found, method).__doc__
        ]
    for name in ("connect", "connect_sync", "run_node", "simulate", "check", "explore"):
        parameters = inspect.signature(getattr(amcast, name)).parameters
        described = getattr(amcast, name).__doc__ or ""
        if name != "connect_sync":  # which refers to connect
            assert not [
                one for one in parameters if f"`{one}`" not in described and one != "trace" and one != "protocol"
            ]
    assert not [setting for setting in SETTINGS if setting not in (amcast.simulate.__doc__ or "")]


def test_protocol_interface() -> None:
    verbs = ("start", "receive", "timer", "multicast", "abandon", "disconnect")
    hooks = tuple(f"on_{name}" for name in (*verbs, "message") if name != "receive")
    looks = ("idle", "has_delivered", "remembered", "unready", "footprint", "condition", "backlog")
    says = ("send", "send_one", "set_timer", "deliver", "note", *looks)
    public = {name for name in dir(Process) if not name.startswith("_")}
    data = {"pid", "topology", "params", "out", "now"}  # slots of the compiled class
    assert public - data == {*verbs, *hooks, *says}
    on_a_log = {"ft_skeen", "ft_skeen_eager", "fastcast", "fastcast_eager", "multi_paxos", "paxos_amcast"}
    alike = {"white_box", "primcast", "primcast_hybrid"}
    in_rounds = {"allconcur_ea", "allconcur_plus_ea"}
    assert {row.name for row in PROTOCOLS.values() if row.durable} == {*alike, *on_a_log, *in_rounds}
    capabilities = {cls.__name__ for cls in Capability.__subclasses__()}
    assert capabilities == {
        "Confirming", "Electing", "Durable", "Dynamic", "Detecting", "Reconfigurable", "Speculative", "Rounds",
        "Observed", "Listing", "Seated",
    }  # fmt: skip
    assert not any(cls.__dict__.get("__dict__") for cls in Capability.__subclasses__()), "they add no __dict__"
    parts = ("records", "urgent", "sends", "timers", "optimistic", "deliveries", "completed", "notes", "news")
    assert all(hasattr(Effects(), name) for name in parts)


def test_trace_format() -> None:
    assert COLUMNS == (
        "run", "kind", "process", "group", "seq", "time", "message", "sender", "dest", "ts", "peer", "type", "size",
        "about", "detail",
    )  # fmt: skip
    assert len(KINDS) == 15


def test_checks_and_trace_files() -> None:
    assert list(amcast.checks.PROPERTIES) == [
        "integrity", "validity", "order", "agreement", "agreement-nonuniform", "termination", "fifo", "causal",
        "genuine", "optimistic",
    ]  # fmt: skip
    assert list(inspect.signature(amcast.checks.check).parameters) == ["events", "properties"]
    for name in ("ParquetRecorder", "prepare_out", "read_events", "write_jsonl", "write_csv"):
        assert hasattr(amcast.tracefile, name)


def test_table_of_protocols() -> None:
    assert list(PROTOCOLS)[:2] == ["skeen", "white_box"]
