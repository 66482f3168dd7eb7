"""`amcast explore`: every schedule of a protocol in a small scope, or random ones in a larger one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from amcast.cli.naming import ProtocolName, protocol_named
from amcast.cli.output import complain, plain_table, print_json, progress_bar, refuse_used_folder, report_console
from amcast.core.plural import count
from amcast.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.core.protocol import Protocol
    from amcast.explorer.exploration import Exploration
    from amcast.explorer.scope import Scope


def explore(
    protocol: ProtocolName,
    scope: Annotated[str, Option(metavar="NAME", help="What is explored, or all; --list shows them.")] = "small",
    states: Annotated[int | None, Option(min=1, help="Stop after so many states.")] = None,
    depth: Annotated[int | None, Option(min=1, help="Follow no schedule for more moves.")] = None,
    seconds: Annotated[float | None, Option(min=0.1, help="Stop after so many seconds.")] = None,
    walks: Annotated[int, Option(min=0, help="Follow so many random schedules instead of all.")] = 0,
    delayed: Annotated[
        int, Option(min=0, help="After a search that was cut: so many walks in which some channels are slow.")
    ] = 1000,
    seed: Annotated[int, Option(min=0, help="The seed of random schedules.")] = 1,
    follow: Annotated[
        int | None, Option(min=0, help="Assert invariants along so many schedules. Default: all.")
    ] = None,
    after: Annotated[Path | None, Option(metavar="FILE", help="Go on from the end of this replay file.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Write a violation there, with its trace.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an older violation in DIR.")] = False,
    list_scopes: Annotated[bool, Option("--list", help="Show the scopes of the protocol.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run every schedule of a protocol within a scope and check every state.

    Exit code 1 if something is violated; 3 if nothing was delivered, or never was what the scope is made for; 4 if
    nothing is violated in a part of the schedules, because the search was cut.
    """
    table = protocol_named(protocol)
    from amcast.explorer.exploration import explore as explored
    from amcast.explorer.scopes import scope_named, scopes_of
    from amcast.explorer.search import Limits

    console = report_console()
    if list_scopes:
        rows = plain_table("scope", "what it covers")
        for found in scopes_of(table).values():
            rows.add_row(found.name, found.about)
        console.print(rows)
        return 0
    chosen = list(scopes_of(table).values()) if scope == "all" else [scope_named(table, scope)]
    refuse_used_folder(out, force)
    past = past_of(after, table, chosen) if after is not None else ()
    documents: list[dict[str, object]] = []
    found_out: set[str] = set()
    cut = False
    for one in chosen:
        with progress_bar("{task.fields[found]}") as bar:
            task = bar.add_task(f"{table.name} {one.name}", total=states or walks or None, found="")

            def show(seen: "Exploration") -> None:
                done = seen.schedules if walks else min(seen.states, states or seen.states)
                rate = seen.states / max(seen.seconds, 1e-9)
                told = f"{seen.phase}: {count(seen.states, 'state')}, depth {seen.depth}, {rate:,.0f} states/s"
                bar.update(task, completed=done, found=told)  # noqa: B023

            limits = Limits(states, depth, seconds)
            result = explored(
                table, one, limits, walks, seed, follow=follow, after=past, progress=show, delayed=delayed
            )
        written = keep(table, result, out) if result.violation is not None and out is not None else None
        documents.append(document(result, written))
        found_out.add(result.verdict[0])
        cut = cut or not result.complete
        if not as_json:
            report(console, result, written, walks, len(past))
        if result.violation is not None:
            break
    if as_json:
        print_json(documents if scope == "all" else documents[0])
    return 1 if "violated" in found_out else 3 if "unknown" in found_out or not found_out else 4 if cut else 0


def past_of(path: Path, table: "Protocol", scopes: "list[Scope]") -> tuple[str, ...]:
    """Return the moves of a replay file of this protocol and scope."""
    from amcast.explorer.schedule import read_schedule

    schedule = read_schedule(path)
    if schedule.protocol != table.name or [schedule.scope] != scopes:
        wanted = f"{table.name}, scope {scopes[0].name if len(scopes) == 1 else 'all'}"
        raise UsageError(f"{path}: of {schedule.protocol}, scope {schedule.scope.name}; expected {wanted} as it is now")
    return schedule.moves


def keep(table: "Protocol", result: "Exploration", folder: Path) -> Path:
    """Write the violation as a replay file, with its trace beside it."""
    from amcast.explorer.exploration import retell
    from amcast.tracefile import ParquetRecorder, prepare_out

    assert result.violation is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "replay.json"
        result.violation.write(path)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; expected a folder that can be written") from None
    with ParquetRecorder(prepare_out(folder / "trace", force=True), full=True) as recorder:
        retell(table, result.violation, recorder)
    return path


def report(console: "Console", result: "Exploration", written: Path | None, walks: int, past: int) -> None:
    scope = result.scope
    how = "random schedules" if walks else "every schedule" if result.complete else "a part of the schedules"
    how += f" after {count(past, 'move')}" if past else ""
    console.print(f"{result.protocol}, scope {scope.name} ({scope.about}): {how}", soft_wrap=True)
    followed = f"{count(result.schedules, 'schedule')} followed, up to {count(result.depth, 'move')} long"
    spent = f"{result.seconds:.1f} s, {result.states / max(result.seconds, 1e-9):,.0f} states/s"
    found = f"{count(result.states, 'unique state')}, {count(result.transitions, 'move')}, {followed}; {spent}"
    console.print(found, soft_wrap=True)
    if result.delayed:
        told = f"the search was cut: {count(result.delayed, 'walk')} with slow channels followed, up to"
        console.print(f"{told} {count(result.longest, 'move')} long", soft_wrap=True)
    if result.unseen:
        where = "scope" if result.complete else "part of the scope"
        complain(f"never seen in this {where}: {'; '.join(result.unseen)}")
    violation = result.violation
    if violation is None:
        status, reason = result.verdict
        found = "no violation" if result.complete else "no violation in a part of the schedules"
        told = f"{found if status == 'ok' else f'unknown: {reason}'}; {rests_on(result)}"
        if result.schedules < result.ways:  # every state was judged, but a monitor has to see how it came about
            told += f"; invariants were asserted along {result.schedules:,} of {count(result.ways, 'schedule')}"
        console.print(told, soft_wrap=True)
        return
    console.print(f"VIOLATED {violation.property}: {violation.problem}", soft_wrap=True)
    console.print(f"shortest schedule found ({count(len(violation.moves), 'move')}, from {result.found_after}):")
    for number, move in enumerate(violation.moves, 1):
        console.print(f"  {number:3} {move}")
    if violation.calm:
        console.print("      and then nothing else goes wrong")
    if written is not None:
        console.print(f"replay: amcast replay {written}", soft_wrap=True)
        console.print(f"trace:  {written.parent / 'trace'}", soft_wrap=True)


def rests_on(result: "Exploration") -> str:
    evidence = result.evidence
    deliveries = count(evidence.deliveries, "delivery", "deliveries")
    replicas = f"{evidence.replicas} of {count(evidence.expected, 'replica')}"
    ended = f", {count(result.ended, 'schedule')} ended in calm" if result.ended else ""
    histories = count(evidence.runs, "history", "histories")
    return f"{deliveries} of {replicas} in {histories}, {count(evidence.faults, 'fault')}{ended}"


def document(result: "Exploration", written: Path | None) -> dict[str, object]:
    """Return the result for JSON. Invariants were asserted along `schedules` of the `ways` that lead to all states."""
    same = ("protocol", "complete", "states", "schedules", "ways", "rests", "depth", "ended", "delayed", "longest",
            "sometimes")  # fmt: skip
    violation: dict[str, object] | None = None
    if result.violation is not None:
        shown = ("property", "problem", "moves", "calm")
        violation = {name: getattr(result.violation, name) for name in shown}
        violation["replay"] = str(written) if written is not None else None
    return {
        **{name: getattr(result, name) for name in same},
        "scope": result.scope.name,
        "moves": result.transitions,
        "seconds": round(result.seconds, 3),
        "states_per_second": round(result.states / max(result.seconds, 1e-9), 1),
        "verdict": result.verdict[0],
        "reason": result.verdict[1],
        "evidence": result.evidence.as_dict(),
        "violation": violation,
    }
