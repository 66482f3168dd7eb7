"""The command line: each command parses, calls one public function and prints.

Exit codes: 0 all is well, 1 something that was checked does not hold, 2 the user's mistake (one line on stderr),
3 nothing violated but something unknown, 128 + n stopped by signal n (130: Ctrl-C).
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, get_args

import typer

from amcast import __version__
from amcast.cli.archive import spark_archive
from amcast.cli.backup import backup, backup_verify, restore
from amcast.cli.certs import certs
from amcast.cli.claims import claims
from amcast.cli.cluster import cluster_commands
from amcast.cli.demo import demo
from amcast.cli.explore import explore
from amcast.cli.export import export
from amcast.cli.kv import kv, kv_user
from amcast.cli.ledger import ledger_commands
from amcast.cli.maelstrom import maelstrom
from amcast.cli.metrics import metrics
from amcast.cli.node import node
from amcast.cli.output import complain
from amcast.cli.protocols import protocols
from amcast.cli.rebalance import rebalance
from amcast.cli.replay import replay
from amcast.cli.report import report
from amcast.cli.reproduce import reproduce
from amcast.cli.sim import sim
from amcast.cli.swarm import swarm
from amcast.cli.sweep import sweep
from amcast.cli.verify import verify
from amcast.cli.view import view
from amcast.cli.watch import watch
from amcast.errors import AmcastError
from amcast.installed import build, remedy

__all__ = ["main", "run"]

app = typer.Typer(
    help="Atomic multicast protocols: simulate them, verify what happened, measure it.",
    epilog="'amcast COMMAND --help' says more about a command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    sim, verify, metrics, report, claims, swarm, explore, replay, sweep, reproduce, protocols, demo, node, kv,
    kv_user, maelstrom, certs, watch, view, export, spark_archive,
):  # fmt: skip
    app.command(no_args_is_help=False)(command)
for about_data in (backup, backup_verify, restore, rebalance):
    cluster_commands.command()(about_data)
app.add_typer(cluster_commands, name="cluster")
app.add_typer(ledger_commands, name="ledger")


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"amcast {__version__} ({build()})")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options of amcast itself."""


def main() -> None:
    """Run the command that was typed, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a δ must not end a command where the terminal has none
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        try:
            code = app(list(arguments), prog_name="amcast", standalone_mode=False)
        finally:
            sys.stdout.flush()
        return int(code or 0)
    except AmcastError as error:
        complain(str(error))
        return error.exit_code
    except typer.TyperException as error:
        return usage_error(error)
    except ModuleNotFoundError as error:
        missing = remedy(error)
        if missing is None:
            raise
        complain(f"{arguments[0]} {missing}")
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except MemoryError:
        complain("out of memory: expected a smaller run")
        return 2
    except BrokenPipeError:
        return nobody_reads()
    except SystemExit as error:  # what typer makes of a broken pipe, among others
        if isinstance(error.__context__, BrokenPipeError):
            return nobody_reads()
        raise


def nobody_reads() -> int:
    """Drop what is still in the buffer, for whoever read it has seen enough: it must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 128 + signal.SIGPIPE


def usage_error(error: typer.TyperException) -> int:
    """Say in one line, as our own errors do, what typer found wrong with the arguments."""
    message = wrong_value(error) or error.format_message().strip()
    if message:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "amcast"
        complain(f"{message.rstrip('.')} (see '{command} --help')")
    return 2


def wrong_value(error: typer.TyperException) -> str:
    """Say what value an option expects, if that is what is wrong; typer would not say what was typed."""
    option = getattr(error, "param", None)
    cause: Any = error.__cause__
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    choices = get_args(kind)  # of a Literal, which typer makes of an Enum
    if option is None or not (choices or kind in (int, float)) or not hasattr(cause, "errors"):
        return ""
    typed = cause.errors()[0]["input"]
    if choices:
        return f"{option.opts[0]} {typed}: expected one of {', '.join(map(str, choices))}"
    low, high = (None if limit is None else f"{limit:.10g}" for limit in (option.min, option.max))
    limits = f" from {low} to {high}" if low and high else f" of at least {low}" if low else ""
    return f"{option.opts[0]} {typed}: expected a {'whole ' if kind is int else ''}number{limits}"
