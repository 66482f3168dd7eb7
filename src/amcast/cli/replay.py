"""`amcast replay`: a schedule in the terminal, one move at a time."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from amcast.cli.naming import protocol_named
from amcast.cli.output import plain_table, report_console
from amcast.core.plural import count
from amcast.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.explorer.replay import Replay

HELP = """\
Enter, n      next move               NUMBER   go to this move
b             back                    m c0:0   to the next move about this message
s g0/1        state of a process      c        what the last move changed
l             all moves               q        quit"""


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by 'amcast explore --out'.")],
    to: Annotated[int | None, Option(metavar="N", help="Stop after this move. 0: before the first.")] = None,
    state: Annotated[list[str] | None, Option(metavar="P", help="Show the state of g0/1 there; repeatable.")] = None,
    message: Annotated[str | None, Option(metavar="ID", help="Only the moves about this message: c0:0.")] = None,
    step: Annotated[bool, Option("--step", help="Step through it, commands from standard input.")] = False,
) -> int:
    """Step through a schedule: moves, messages, states of processes, and what changed. Without a terminal: show it.

    A violation that is shown to the end is judged again. Exit code 1 if it is still one, 3 if nothing is delivered.
    """
    from amcast.explorer.replay import Replay
    from amcast.explorer.schedule import read_schedule

    schedule = read_schedule(file)
    replay = Replay(protocol_named(schedule.protocol), schedule)
    if to is not None and not 0 <= to <= len(replay):
        raise UsageError(f"--to {to}: expected 0 to {len(replay)}, the number of moves")
    for process in state or ():
        replay.topology.pid(process)
    console = report_console()
    scope = schedule.scope
    told = f"{schedule.protocol}, scope {scope.name} ({scope.about}): {count(len(replay), 'move')}"
    console.print(told, soft_wrap=True)
    if schedule.problem:
        console.print(f"written because {schedule.property} did not hold: {schedule.problem}", soft_wrap=True)
    asked = to is not None or bool(state) or message is not None
    if step or (not asked and sys.stdin.isatty()):
        return step_through(console, replay)
    last = len(replay) if to is None else to
    print_moves(console, replay, last, message)
    for process in state or ():
        print_state(console, replay, last, process)
    return print_verdict(console, replay) if schedule.problem and last == len(replay) and message is None else 0


def print_verdict(console: "Console", replay: "Replay") -> int:
    from amcast.explorer.exploration import judge_again

    status, reason = judge_again(replay.table, replay.schedule)
    told = {"violated": f"VIOLATED {reason}", "unknown": f"unknown: {reason}", "ok": reason}
    console.print(told[status], soft_wrap=True)
    return {"ok": 0, "violated": 1, "unknown": 3}[status]


def step_through(console: "Console", replay: "Replay") -> int:
    """Obey commands, one per line."""
    at = 0
    console.print(HELP)
    print_begin(console, replay)
    while True:
        try:
            line = input(f"{at}/{len(replay)}> ")
        except EOFError:
            return 0
        command, _, argument = line.strip().partition(" ")
        if command in ("q", "quit"):
            return 0
        try:
            at = obey(console, replay, at, command, argument.strip())
        except UsageError as error:
            console.print(str(error), soft_wrap=True)


def obey(console: "Console", replay: "Replay", at: int, command: str, argument: str) -> int:
    """Do what a command asks for, and return the number of the move that was reached."""
    steps = {"": at + 1, "n": at + 1, "b": at - 1}
    if command in steps or command.isdigit():
        return go(console, replay, steps[command] if command in steps else int(command))
    if command == "m":
        found = replay.next_about(at, argument)
        if found is None:
            raise UsageError(f"no later move is about {argument!r}")
        return go(console, replay, found)
    if command == "s":
        print_state(console, replay, at, argument)
    elif command == "c":
        print_changes(console, replay, at)
    elif command == "l":
        print_moves(console, replay, len(replay), None, here=at)
    else:
        console.print(HELP)
    return at


def go(console: "Console", replay: "Replay", number: int) -> int:
    if not 0 <= number <= len(replay):
        raise UsageError(f"move {number}: there are {len(replay)}")
    if number == 0:
        print_begin(console, replay)
    else:
        print_move(console, replay, number)
        print_changes(console, replay, number)
    return number


def print_begin(console: "Console", replay: "Replay") -> None:
    console.print("  0 start")
    for effect in replay.begin:
        console.print(f"      {effect}", soft_wrap=True)


def print_moves(console: "Console", replay: "Replay", last: int, message: str | None, here: int = -1) -> None:
    if message is None:
        print_begin(console, replay)
    at = 0
    while (found := at + 1 if message is None else replay.next_about(at, message)) is not None and found <= last:
        at = found
        print_move(console, replay, at, ">" if at == here else " ")


def print_move(console: "Console", replay: "Replay", number: int, mark: str = " ") -> None:
    moment = replay.moments[number - 1]
    console.print(f"{mark}{number:2} {moment.move}{': ' if moment.message else ''}{moment.message}", soft_wrap=True)
    for effect in moment.effects:
        console.print(f"      {effect}", soft_wrap=True)
    if moment.problem:
        console.print(f"      VIOLATED {moment.problem}", soft_wrap=True)


def print_state(console: "Console", replay: "Replay", number: int, process: str) -> None:
    """Print every variable, what it was before the last move changed it, and what the paper calls it."""
    table = plain_table("variable", "value", "before", "in the paper")
    before = replay.state(number - 1, process) if number else {}
    for name, variable in replay.state(number, process).items():
        was = before.get(name)
        changed = number > 0 and was != variable
        table.add_row(name, variable.value, (was.value if was else "-") if changed else "", variable.paper)
    console.print(f"{process} after move {number}:")
    console.print(table)


def print_changes(console: "Console", replay: "Replay", number: int) -> None:
    if number == 0 or replay.moments[number - 1].process < 0:
        return
    process = replay.topology.names[replay.moments[number - 1].process]
    for was, now in replay.changes(number, process):
        paper = f"   ({now.paper})" if now.paper else ""
        console.print(f"      {process} {now.name}: {was} → {now.value}{paper}", soft_wrap=True)
