"""What the commands share to print: the report on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from amcast.errors import UsageError
from amcast.places import Place

if TYPE_CHECKING:  # rich takes longer to import than most commands need to say what is wrong
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

PLAIN_WIDTH = 120  # of what goes to a file or a pipe


def complain(message: str) -> None:
    """Print one line on stderr."""
    print(f"amcast: {' '.join(message.split())}", file=sys.stderr)


def complain_of_plugins(broken: list[str]) -> int:
    """Say what other packages should have added to a list that was shown; return the exit code."""
    for line in broken:
        complain(line)
    return 2 if broken else 0


def print_json(document: object) -> None:
    """Print the one document that --json promises on stdout."""
    print(json.dumps(document, indent=2))


def report_console(stream: TextIO | None = None) -> "Console":
    from rich.console import Console

    file = stream or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def plain_table(*headings: str, right: tuple[str, ...] = ()) -> "Table":
    """Return a table without lines around its columns; those named in `right` hold numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


@contextmanager
def progress_bar(*columns: "ProgressColumn | str") -> Iterator["Progress"]:
    """Show a bar on stderr that leaves nothing behind; show none where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        yield bar


def refuse_file(out: Place | None) -> None:
    """Raise UsageError for a file where a folder is to be written."""
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; expected a folder, or a name for a new one")


def refuse_used_folder(out: Place | None, force: bool) -> None:
    """Complain of a folder that holds something, or of a library that writes traces, before the work and not after."""
    refuse_file(out)
    if out is not None:
        import_module("amcast.tracefile")
    if out is not None and not force and out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: is not an empty folder; expected a new or empty one; use --force or another --out")


def duration(ms: float) -> str:
    """Return a time that a person can read at a glance."""
    for unit, size in (("s", 1000.0), ("ms", 1.0), ("µs", 1e-3)):
        if ms >= size:
            return f"{three_digits(ms / size)} {unit}"
    return f"{ms * 1e6:.0f} ns" if ms else "0 s"


def three_digits(number: float) -> str:
    """Return a number with at least three digits, and never an exponent."""
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 1 or number == 0 else 3
    return f"{number:,.{decimals}f}"
