"""The states that replicas leave when they stop, compared."""

from amcast.runtime.config import ClusterConfig
from amcast.runtime.durability import read_snapshot
from amcast.runtime.storage import Storage


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
