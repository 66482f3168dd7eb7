"""`amcast swarm`: random configurations and faults, a seed each, on all cores.

A seed runs the processes of a protocol alone or, with --cluster, shipped nodes, clients and gateways with their disks.
With --adversary the processes run without any time: chance serves and freezes channels and fires timers as it likes.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from amcast.cli.naming import ProtocolName, protocol_named
from amcast.cli.output import complain, print_json, progress_bar, refuse_used_folder, report_console
from amcast.core.plural import count
from amcast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amcast.core.protocol import Protocol
    from amcast.swarm.seeds import Outcome
    from amcast.swarm.tally import Failure, Tally

    Judge = Callable[[str, int], Outcome]
    Keep = Callable[[str, int, Path], str]

MOST_TRACES = 10  # of failing seeds


def swarm(
    protocol: ProtocolName,
    load: Annotated[
        str | None, Argument(metavar="[LOAD]", help="With --cluster: echo, store or kv (gateway, Redis clients).")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="How many runs.")] = 100,
    first_seed: Annotated[int, Option(min=0, help="The seeds are this one and those after it.")] = 1,
    cluster: Annotated[
        bool, Option("--cluster", help="Whole nodes with disks, clients and gateways, in virtual time.")
    ] = False,
    adversary: Annotated[
        bool, Option("--adversary", help="No time: channels frozen, timers and elections at any moment, old disks.")
    ] = False,
    known: Annotated[
        list[str] | None, Option(metavar="CLASS", help="With --cluster: a class of failure that is counted apart.")
    ] = None,
    plan: Annotated[
        Path | None,
        Option(metavar="FILE", help="With --cluster or --adversary: faults or moves instead of the drawn ones."),
    ] = None,
    jobs: Annotated[int | None, Option(min=1, max=512, help="Processes. Default: one per core.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Write the traces of failing seeds there.")] = None,
    force: Annotated[bool, Option("--force", help="Replace older traces in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run a random configuration and fault plan per seed: safety first, then all must converge.

    Exit code 1 if something is violated, or too few messages are delivered; 3 if no seed could be judged.
    """
    table = protocol_named(protocol)
    name = table.name
    from amcast.swarm.tally import Tally, describe, document, result_line

    refuse_used_folder(out, force)
    judge, keep, options = kind_of_swarm(table, load, cluster, adversary, known, plan)
    tally = Tally(judged_by(table, adversary), seeds)
    console = report_console()
    with progress_bar("{task.completed:,.0f}/{task.total:,.0f} seeds", "{task.fields[found]}") as bar:
        task = bar.add_task(name, total=seeds, found="")
        for result in results(name, range(first_seed, first_seed + seeds), jobs or os.cpu_count() or 1, tally, judge):
            if result.problem:
                folder = out if len(tally.failures) < MOST_TRACES else None
                tally.failures.append(failure_of(name, options, result, folder, keep))
                if not as_json:
                    bar.stop()  # what is printed now stays
                    console.print(describe(tally.failures[-1]), soft_wrap=True)
                    bar.start()
            found = f"{count(len(tally.failures), 'failure')}, {tally.per_minute:,.0f} seeds/min"
            bar.update(task, completed=tally.done, found=found)
    if tally.interrupted:
        complain(f"interrupted after {tally.done:,} of {count(seeds, 'seed')}")
    if as_json:
        print_json(document(first_seed, tally))
    else:
        console.print(result_line(first_seed, tally), soft_wrap=True)
    return 130 if tally.interrupted else tally.exit_code()


def kind_of_swarm(
    table: "Protocol", load: str | None, cluster: bool, adversary: bool, known: list[str] | None, plan: Path | None
) -> "tuple[Judge | None, Keep, str]":
    """Return what judges a seed, what keeps a failing one, and the options that name this kind of swarm."""
    with_plan = f" --plan {plan}" if plan is not None else ""
    if cluster and adversary:
        raise UsageError("--cluster and --adversary are two kinds of swarm; give one of them")
    if adversary:
        from amcast.swarm.adversary.failing import keep_failing_moves
        from amcast.swarm.adversary.seeds import run_adversary_seed

        if load or known:
            raise UsageError("LOAD and --known are about whole clusters; give --cluster instead of --adversary")
        moves = read_text(plan) if plan is not None else ""
        return partial(run_adversary_seed, plan=moves), partial(keep_failing_moves, moves), f" --adversary{with_plan}"
    if cluster:
        from amcast.swarm.cluster.seeds import keep_failing, refuse_unsuited, run_cluster_seed

        refuse_unsuited(table, load or "")
        drawn_else = read_text(plan) if plan is not None else ""
        judge = partial(run_cluster_seed, load=load or "", known=tuple(known or ()), plan=drawn_else)
        keep = partial(keep_failing, load or "", drawn_else)
        return judge, keep, f" --cluster{f' {load}' if load else ''}{with_plan}"
    if load or known or plan:
        raise UsageError("LOAD, --known and --plan are about whole clusters; add --cluster (or --adversary to --plan)")
    return None, keep_trace, ""


def judged_by(table: "Protocol", adversary: bool) -> "Protocol":
    """Return the row by which the tally is judged: an adversary may keep more from being delivered."""
    if not adversary:
        return table
    from amcast.swarm.adversary.seeds import LESS_DELIVERED

    return replace(table, least_delivered=max(0, table.least_delivered - LESS_DELIVERED))


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); take the file that a failing seed left") from error


def results(
    protocol: str, seeds: range, jobs: int, tally: "Tally", judge: "Judge | None" = None
) -> "Iterator[Outcome]":
    """Yield the outcome of each seed, counted; end in order at Ctrl-C."""
    from amcast.swarm.pool import run_seeds

    with closing(run_seeds(protocol, seeds, jobs, judge)) as found:
        try:
            for result in found:
                tally.add(result)
                yield result
        except KeyboardInterrupt:
            tally.interrupted = True


def failure_of(protocol: str, options: str, result: "Outcome", out: Path | None, keep: "Keep") -> "Failure":
    from amcast.swarm.tally import Failure

    trace = None if out is None else keep(protocol, result.seed, out / f"{protocol}-{result.seed}")
    replay = f"amcast swarm {protocol}{options} --seeds 1 --first-seed {result.seed}"
    return Failure(result.seed, result.problem, result.config, replay, trace)


def keep_trace(protocol: str, seed: int, folder: Path) -> str:
    from amcast.swarm.seeds import write_trace
    from amcast.tracefile import prepare_out

    prepare_out(folder, force=True)  # asked before the first seed
    try:
        write_trace(protocol, seed, folder)
    except UsageError:
        raise
    except Exception as error:  # how the seed failed in the first place: the trace up to there is what is wanted
        complain(f"the trace of seed {seed} ends with {type(error).__name__}: {error}")
    return str(folder)
