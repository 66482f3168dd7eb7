"""Whether a running cluster is at rest: what its nodes say of themselves, compared.

A trace has an end row only if somebody knows that nothing was under way; this is how it is known.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from amcast.local.processes import ask
from amcast.runtime.config import ClusterConfig, Member

NO_ANSWER: Final = "no answer"
Statuses = dict[str, dict[str, object]]


def status_of(config: ClusterConfig, member: Member) -> dict[str, object] | str:
    """Return what a node says of itself; a text that says what is wrong if it does not."""
    answer = ask(member.admin, "/status")
    if answer is None:
        return NO_ANSWER
    try:
        said = json.loads(answer[1])
    except ValueError:
        said = None
    if answer[0] != 200 or not isinstance(said, dict):
        return f"no status but HTTP {answer[0]}"
    if (said.get("cluster"), said.get("id")) != (config.name, member.name):
        return f"{said.get('id')} of {said.get('cluster')} is at {member.admin}"
    return said


def statuses_of(config: ClusterConfig) -> Statuses:
    """Return what each node says that answers, by its name. A node of another cluster at its address does not count."""
    asked = {member.name: status_of(config, member) for member in config.members}
    return {name: said for name, said in asked.items() if not isinstance(said, str)}


def why_not_level(members: Sequence[Member], statuses: Statuses) -> str:
    """Say why these members have not delivered the same, with nothing left to do; empty if they have."""
    if not members:
        return "no member is up"
    first: dict[int, tuple[str, object]] = {}  # of each group
    for member in members:
        said = statuses.get(member.name)
        if said is None:
            return f"{member.name} does not answer at {member.admin}"
        position = said.get("position")
        if not isinstance(position, int) or said.get("unfinished") is not False:
            return f"{member.name} has work under way"
        name, there = first.setdefault(member.group, (member.name, position))
        if there != position:
            return f"{name} is at position {there}, {member.name} at {position}"
    names = {member.name for member in members}
    strangers = sorted(name for name in statuses if name not in names)
    return f"{', '.join(strangers)} should not be up" if strangers else ""


def who_is_served(statuses: Statuses) -> str:
    """Say that clients are connected, which may have something under way; empty if none is."""
    served = [name for name, said in statuses.items() if said.get("clients")]
    return f"clients are connected to {', '.join(served)}" if served else ""


def positions(statuses: Statuses) -> dict[str, object]:
    return {name: said.get("position") for name, said in statuses.items()}


def why_not_whole(statuses: Statuses, deliveries: Mapping[str, int]) -> str:
    """Say which member has not traced all that it delivered; empty if all have. `deliveries` are counts of rows."""
    for name, position in positions(statuses).items():
        rows = deliveries.get(name, 0)
        if rows != position:
            return f"{name} delivered {position} messages, its file has {rows}: it ran without --trace for a while"
    return ""


def why_not_at_rest(members: Sequence[Member], before: Statuses, after: Statuses, deliveries: Mapping[str, int]) -> str:
    """Say why something may be missing in files that were read between two looks at a cluster; empty if nothing is."""
    if not after:
        return "no node answers"
    for said in (before, after):
        if reason := why_not_level(members, said) or who_is_served(said):
            return reason
    if positions(before) != positions(after):
        return "messages were delivered meanwhile"
    return why_not_whole(after, deliveries)
