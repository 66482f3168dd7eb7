"""What must be true of a cluster that was disturbed: after each round, and of what its replicas leave at the end."""

from collections.abc import Sequence

from amcast.apps.teller import Takings
from amcast.local.compare import compare
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig
from amcast.runtime.durability import read_snapshot
from amcast.runtime.storage import Storage
from tests.pace import allow


def judge_round(trial: Trial, loads: Sequence[Takings], deadline: float) -> None:
    """Judge the newest load, after the cluster has come to rest: answers, books, positions and states."""
    newest = loads[-1]
    assert newest.done > 20, f"{newest.done} transfers were answered"
    assert max(took for _, took in newest.latencies) < deadline + allow(1.0), "a late answer"
    expected = sum(load.expected for load in loads)
    assert newest.total == expected, f"{newest.total} in the books, {expected} expected"
    assert trial.wait_until_level(), trial.not_level
    found = compare(trial.config, protocol(trial.config.protocol), allow(20.0))
    assert {one.status for one in found} == {"ok"}, "; ".join(one.line for one in found)


def differing_states(config: ClusterConfig) -> str:
    """Say which replicas of a group were stopped in different states; empty if none were.

    All must have been asked to stop when they had delivered the same.
    """
    first: dict[int, tuple[str, int, object]] = {}
    for member in config.members:
        storage = Storage(member.data, f"{config.name} {member.name}", new=False)
        try:
            recovered = storage.recover()
        finally:
            storage.close()
        if recovered.snapshot is None or recovered.records:
            return f"{member.name} has no snapshot of its end"
        found = read_snapshot(recovered.snapshot)
        state = found.chain, b"".join(found.app)
        name, position, other = first.setdefault(member.group, (member.name, found.position, state))
        if (position, other) != (found.position, state):
            return f"{name} stopped at position {position}, {member.name} at {found.position}, with other states"
    return ""
