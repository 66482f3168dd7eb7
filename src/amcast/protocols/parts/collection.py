"""When a message may be forgotten: every member of all its destination groups has delivered it.

The leader of a group finds its floor, up to which all members have delivered, and tells the groups that share messages
with it as the floor rises.
"""

from typing import Final

ANNOUNCE_TICKS: Final = 16  # heartbeats after which floors are announced again


def groups_to_tell(floor: int, shared_with: list[int], sent: list[int]) -> list[int]:
    """The groups that have not heard of this floor and share a message that matters; they count as told."""
    found: list[int] = []
    for g in range(len(sent)):
        if sent[g] < min(floor, shared_with[g]):
            sent[g] = floor
            found.append(g)
    return found
