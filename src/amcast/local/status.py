"""The state of every node of a cluster on this machine."""

import json
from concurrent.futures import ThreadPoolExecutor

from amcast.local.processes import Processes, ask
from amcast.runtime.config import Member


def states_of(processes: Processes) -> list[dict[str, object]]:
    """Ask all nodes at once; return a row for each, with how far it is behind its group."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        rows = list(pool.map(lambda member: state_of(processes, member), processes.config.members))
    add_lag(rows)
    return rows


def state_of(processes: Processes, member: Member) -> dict[str, object]:
    """Return what a node says of itself, and how it looks from outside."""
    row: dict[str, object] = {"id": member.name, "pid": processes.running(member)}
    answer = ask(member.admin, "/status")
    if answer is None:
        outside = processes.config.is_spare(member) and not processes.log(member).exists()
        stopped = "spare" if outside else "stopped"
        return {**row, "state": stopped if row["pid"] is None else "no answer"}
    try:
        said = json.loads(answer[1])
    except ValueError:
        said = None
    if answer[0] != 200 or not isinstance(said, dict):
        return {**row, "state": f"no status but HTTP {answer[0]}"}
    if (said.get("cluster"), said.get("id")) != (processes.config.name, member.name):
        return {**row, "state": f"{said.get('id')} of {said.get('cluster')} is at {member.admin}"}
    return {**row, **said, "state": processes.why_not_ready(member) or "ready"}


def add_lag(rows: list[dict[str, object]]) -> None:
    """Add how many deliveries each replica is behind the first of its group."""
    first: dict[str, int] = {}
    for row in rows:
        if isinstance(position := row.get("position"), int):
            group = str(row["id"]).partition("/")[0]
            first[group] = max(first.get(group, 0), position)
    for row in rows:
        if isinstance(position := row.get("position"), int):
            row["lag"] = first[str(row["id"]).partition("/")[0]] - position
