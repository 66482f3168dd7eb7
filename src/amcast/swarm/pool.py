"""Runs the seeds of a swarm over several processes."""

import signal
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, get_context

from amcast.errors import AmcastError, UsageError
from amcast.swarm.seeds import Outcome, run_seed

SEEDS_AHEAD = 4  # handed to each process in advance


def run_seeds(
    protocol: str, seeds: range, jobs: int, run: Callable[[str, int], Outcome] | None = None
) -> Generator[Outcome, None, None]:
    """The results as they come. Closing the iterator ends the processes at once.

    `run` judges a seed of a protocol in another way than by simulating its processes alone.
    """
    if jobs == 1 or len(seeds) == 1:
        for seed in seeds:
            yield run_one(protocol, seed, run)
        return
    pool = ProcessPoolExecutor(min(jobs, len(seeds)), get_context("spawn"))
    try:
        left = iter(seeds)
        waiting: set[Future[Outcome]] = set()
        while True:
            with interrupts_held():
                new = islice(left, SEEDS_AHEAD * jobs - len(waiting))
                waiting |= {pool.submit(run_one, protocol, seed, run) for seed in new}
            if not waiting:
                pool.shutdown()
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from sorted((future.result() for future in done), key=lambda result: result.seed)
    except BrokenProcessPool:
        raise AmcastError("a process of the swarm was killed, for want of memory perhaps; use fewer --jobs") from None
    finally:
        for process in active_children():
            process.terminate()
        pool.shutdown(cancel_futures=True)


def run_one(protocol: str, seed: int, run: Callable[[str, int], Outcome] | None = None) -> Outcome:
    """A seed that raises has failed like any other."""
    try:
        return (run or run_seed)(protocol, seed)
    except UsageError:
        raise
    except Exception as error:  # a bug of the protocol, the simulator or a checker: the seed that shows it matters
        return Outcome(seed, f"{type(error).__name__}: {error}", "", 0, 0.0, 0.0)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until after the block. Processes started in it never see one: their parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
