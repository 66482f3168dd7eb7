"""Keeps an operator from setting aside the data of so many replicas of a group that nobody knows what it promised."""

from amcast.errors import UsageError
from amcast.local.level import status_of
from amcast.runtime.config import ClusterConfig, Member


def refuse_too_many(config: ClusterConfig, member: Member) -> None:
    """Raise UsageError if others of the group rejoin just now, and the group would be lost if this one did, too.

    Who does not answer is not counted: a rejoin waits for it. Two that are told to rejoin within a moment do not see
    each other; this is for whoever goes from one machine to the next, or has the option in a file.
    """
    group = [other for other in config.members if other.group == member.group and not config.is_spare(other)]
    said = {other.name: status_of(config, other) for other in group if other is not member}
    joining = [name for name, state in said.items() if not isinstance(state, str) and state.get("role") == "joining"]
    if joining and len(group) - len(joining) - 1 <= len(group) // 2:
        raise UsageError(
            f"{member.name}: {', '.join(joining)} of its group rejoins, too; with both, what the group acknowledged "
            "would be lost: start this one without --rejoin, or wait until that one is ready"
        )
