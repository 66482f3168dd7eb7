"""`amcast swarm`: random configurations and faults, a seed each, on all cores."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from amcast.cli.naming import protocol_named
from amcast.cli.output import complain, count, print_json, progress_bar, report_console
from amcast.core.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from amcast.lab.swarm import Outcome

MOST_TRACES = 10  # of failing seeds


@dataclass(frozen=True)
class Failure:
    seed: int
    problem: str
    config: str
    replay: str
    trace: str | None = None


@dataclass
class Tally:
    """What the swarm found so far."""

    done: int = 0
    events: int = 0
    failures: list[Failure] = field(default_factory=list)
    interrupted: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def per_minute(self) -> float:
        return 60 * self.done / max(self.seconds, 1e-9)


def swarm(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="See 'amcast protocols'.")],
    seeds: Annotated[int, Option(min=1, help="How many runs.")] = 100,
    first_seed: Annotated[int, Option(min=0, help="The seeds are this one and those after it.")] = 1,
    jobs: Annotated[int | None, Option(min=1, max=512, help="Processes. Default: one per core.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Write the traces of failing seeds there.")] = None,
    force: Annotated[bool, Option("--force", help="Replace older traces in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run a random configuration and fault plan per seed: safety first, then all must converge. Exit code 1 if not."""
    name = protocol_named(protocol).name
    if out is not None and not force and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is not an empty folder; expected a new or empty one; use --force or another --out")
    tally = Tally()
    console = report_console()
    with progress_bar("{task.completed:,.0f}/{task.total:,.0f} seeds", "{task.fields[found]}") as bar:
        task = bar.add_task(name, total=seeds, found="")
        for result in results(name, range(first_seed, first_seed + seeds), jobs or os.cpu_count() or 1, tally):
            if result.problem:
                tally.failures.append(failure_of(name, result, out if len(tally.failures) < MOST_TRACES else None))
                if not as_json:
                    with paused(bar):
                        console.print(describe(tally.failures[-1]), soft_wrap=True)
            found = f"{count(len(tally.failures), 'failure')}, {tally.per_minute:,.0f} seeds/min"
            bar.update(task, completed=tally.done, found=found)
    if tally.interrupted:
        complain(f"interrupted after {tally.done:,} of {count(seeds, 'seed')}")
    if as_json:
        print_json(document(name, first_seed, tally))
    else:
        result_line = count(len(tally.failures), "failure") if tally.failures else "no failure"
        spent = f"{tally.seconds:.1f} s, {tally.per_minute:,.0f} seeds/min, {tally.events:,} events"
        console.print(f"{name}: {count(tally.done, 'seed')} from {first_seed}, {result_line}; {spent}")
    return 130 if tally.interrupted else 1 if tally.failures else 0


def results(protocol: str, seeds: range, jobs: int, tally: Tally) -> "Iterator[Outcome]":
    """Counted, and ended in order by Ctrl-C."""
    from amcast.cli.seeds import run_seeds

    with closing(run_seeds(protocol, seeds, jobs)) as found:
        try:
            for result in found:
                tally.done += 1
                tally.events += result.events
                yield result
        except KeyboardInterrupt:
            tally.interrupted = True


def failure_of(protocol: str, result: "Outcome", out: Path | None) -> Failure:
    trace = None
    if out is not None:
        trace = out / f"{protocol}-{result.seed}"
        keep_trace(protocol, result.seed, trace)
    replay = f"amcast swarm {protocol} --seeds 1 --first-seed {result.seed}"
    return Failure(result.seed, result.problem, result.config, replay, None if trace is None else str(trace))


def keep_trace(protocol: str, seed: int, folder: Path) -> None:
    from amcast.lab.swarm import write_trace
    from amcast.tracefile import prepare_out

    prepare_out(folder, force=True)  # asked before the first seed
    try:
        write_trace(protocol, seed, folder)
    except UsageError:
        raise
    except Exception as error:  # how the seed failed in the first place: the trace up to there is what is wanted
        complain(f"the trace of seed {seed} ends with {type(error).__name__}: {error}")


def describe(failure: Failure) -> str:
    lines = [f"seed {failure.seed} failed: {failure.problem}", failure.config, f"replay: {failure.replay}"]
    if failure.trace is not None:
        lines.append(f"trace: {failure.trace}")
    return "\n  ".join(line for line in lines if line)


def document(protocol: str, first_seed: int, tally: Tally) -> dict[str, object]:
    """For JSON; `seeds` are those that were run."""
    return {
        "protocol": protocol,
        "first_seed": first_seed,
        "seeds": tally.done,
        "failures": [asdict(failure) for failure in tally.failures],
        "seconds": round(tally.seconds, 3),
        "seeds_per_minute": round(tally.per_minute, 1),
        "interrupted": tally.interrupted,
    }


@contextmanager
def paused(bar: "Progress") -> Iterator[None]:
    """Take the bar away while something is printed that stays."""
    bar.stop()
    yield
    bar.start()
