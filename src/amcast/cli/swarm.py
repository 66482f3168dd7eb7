"""`amcast swarm`: random configurations and faults, a seed each, on all cores."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from amcast.cli.naming import ProtocolName, protocol_named
from amcast.cli.output import complain, print_json, progress_bar, refuse_used_folder, report_console
from amcast.core.plural import count
from amcast.errors import UsageError

if TYPE_CHECKING:
    from amcast.swarm.seeds import Outcome
    from amcast.swarm.tally import Failure, Tally

MOST_TRACES = 10  # of failing seeds


def swarm(
    protocol: ProtocolName,
    seeds: Annotated[int, Option(min=1, help="How many runs.")] = 100,
    first_seed: Annotated[int, Option(min=0, help="The seeds are this one and those after it.")] = 1,
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
    tally = Tally(table, seeds)
    console = report_console()
    with progress_bar("{task.completed:,.0f}/{task.total:,.0f} seeds", "{task.fields[found]}") as bar:
        task = bar.add_task(name, total=seeds, found="")
        for result in results(name, range(first_seed, first_seed + seeds), jobs or os.cpu_count() or 1, tally):
            if result.problem:
                tally.failures.append(failure_of(name, result, out if len(tally.failures) < MOST_TRACES else None))
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


def results(protocol: str, seeds: range, jobs: int, tally: "Tally") -> "Iterator[Outcome]":
    """Yield the outcome of each seed, counted; end in order at Ctrl-C."""
    from amcast.swarm.pool import run_seeds

    with closing(run_seeds(protocol, seeds, jobs)) as found:
        try:
            for result in found:
                tally.add(result)
                yield result
        except KeyboardInterrupt:
            tally.interrupted = True


def failure_of(protocol: str, result: "Outcome", out: Path | None) -> "Failure":
    from amcast.swarm.tally import Failure

    trace = None if out is None else keep_trace(protocol, result.seed, out / f"{protocol}-{result.seed}")
    replay = f"amcast swarm {protocol} --seeds 1 --first-seed {result.seed}"
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
