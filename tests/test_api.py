"""The public names that other people's code may rely on: adding one is a decision, losing one a breaking change."""

import inspect

import amcast
import amcast.checks
import amcast.protocols
import amcast.tracefile
from amcast.core.process import Effects, Process
from amcast.core.trace import COLUMNS, KINDS


def test_package() -> None:
    errors = {"AmcastError", "MulticastFailed", "OutcomeUnknown"}
    programs = {"connect", "connect_sync", "run_node", "Delivery", "StateMachine"}
    assert set(amcast.__all__) == {"__version__", "compiled", *errors, *programs}
    assert all(getattr(amcast, name) for name in amcast.__all__)


def test_protocol_interface() -> None:
    verbs = (
        "start", "receive", "timer", "multicast", "recover", "absent", "rejoin", "suspect", "abandon", "detect",
        "reconfigure", "change_members", "join_group", "leave_group",
    )  # fmt: skip
    hooks = tuple(f"on_{name}" for name in (*verbs, "message", "observe", "supply") if name != "receive")
    says = ("send", "send_one", "set_timer", "deliver", "note", "idle", "footprint", "snapshot", "condition")
    public = {name for name in dir(Process) if not name.startswith("_")}
    data = {"pid", "topology", "params", "out", "now"}  # slots of the compiled class
    assert public - data == {*verbs, *hooks, *says}
    parts = ("records", "urgent", "sends", "timers", "optimistic", "deliveries", "completed", "notes")
    assert all(hasattr(Effects(), name) for name in parts)


def test_trace_format() -> None:
    assert COLUMNS == (
        "run", "kind", "process", "group", "seq", "time", "message", "sender", "dest", "ts", "peer", "type", "size",
        "about", "detail",
    )  # fmt: skip
    assert len(KINDS) == 14


def test_checks_and_trace_files() -> None:
    assert list(amcast.checks.PROPERTIES) == [
        "integrity", "validity", "order", "agreement", "agreement-nonuniform", "termination", "fifo", "causal",
        "genuine", "optimistic",
    ]  # fmt: skip
    assert list(inspect.signature(amcast.checks.check).parameters) == ["events", "properties"]
    for name in ("ParquetRecorder", "prepare_out", "read_events", "write_jsonl", "write_csv"):
        assert hasattr(amcast.tracefile, name)


def test_table_of_protocols() -> None:
    assert list(amcast.protocols.PROTOCOLS)[:2] == ["skeen", "white_box"]
