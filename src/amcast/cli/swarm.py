"""`amcast swarm`: random configurations and faults, a seed each, on all cores.

A seed runs the processes of a protocol alone or, with --cluster, shipped nodes, clients and gateways with their disks.
"""

import os
from collections.abc import Iterator
from contextlib import closing
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
    known: Annotated[
        list[str] | None, Option(metavar="CLASS", help="With --cluster: a class of failure that is counted apart.")
    ] = None,
    plan: Annotated[
        Path | None, Option(metavar="FILE", help="With --cluster: a plan of faults instead of the drawn one.")
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
    judge: Judge | None = None
    keep: Keep = keep_trace
    options = ""
    if cluster:
        from amcast.swarm.cluster.seeds import keep_failing, refuse_unsuited, run_cluster_seed

        refuse_unsuited(table, load or "")
        drawn_else = read_text(plan) if plan is not None else ""
        judge = partial(run_cluster_seed, load=load or "", known=tuple(known or ()), plan=drawn_else)
        keep = partial(keep_failing, load or "", drawn_else)
        options = f" --cluster{f' {load}' if load else ''}{f' --plan {plan}' if plan is not None else ''}"
    elif load or known or plan:
        raise UsageError("LOAD, --known and --plan are about whole clusters; add --cluster")
    tally = Tally(table, seeds)
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


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); take the plan.json that a failing seed left") from error


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
