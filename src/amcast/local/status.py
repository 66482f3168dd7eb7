"""The state of every node of a cluster on this machine."""

from concurrent.futures import ThreadPoolExecutor

from amcast.local.level import NO_ANSWER, status_of
from amcast.local.processes import Processes
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
    said = status_of(processes.config, member)
    if not isinstance(said, str):
        return {**row, **said, "state": processes.why_not_ready(member) or "ready"}
    if said == NO_ANSWER and row["pid"] is None:
        outside = processes.config.is_spare(member) and not processes.log(member).exists()
        said = "spare" if outside else "stopped"
    return {**row, "state": said}


def line_about_formats(rows: list[dict[str, object]]) -> str:
    """Say which format is in use, and who knows which; nothing if nobody says it."""
    said = {str(row["id"]): row["format"] for row in rows if isinstance(row.get("format"), dict)}
    used: dict[str, list[str]] = {}
    knows: dict[str, list[str]] = {}
    for name, one in said.items():
        assert isinstance(one, dict)
        oldest, newest = one["knows"]
        used.setdefault(str(one["used"] or "none yet"), []).append(name)
        knows.setdefault(f"{oldest} to {newest}" if oldest < newest else str(newest), []).append(name)
    return f"format in use: {by_name(used)}; known: {by_name(knows)}" if said else ""


def by_name(found: dict[str, list[str]]) -> str:
    """Return what is so, and where, unless it is so everywhere."""
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{what} ({' '.join(names)})" for what, names in sorted(found.items()))


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
