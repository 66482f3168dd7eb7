"""What a simulated process runs beside its loop: executors of one thread each.

A job has a stack of its own, which hands back to the calendar at every system call: turns of the loop fall between
these calls, as with a real thread. A paused process pauses its threads; a dead one never resumes them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

from amcast.swarm.cluster.stack import new_stack

if TYPE_CHECKING:
    from amcast.swarm.cluster.loop import ProcessLoop

T = TypeVar("T")


class Died(BaseException):
    """The way out of what runs in a process that is dead. Catching it is in vain: the next call raises it again."""


class Job:
    """A function that an executor of a process runs."""

    def __init__(
        self,
        process: "ProcessLoop",
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        future: "asyncio.Future[Any]",
        line: "deque[Job]",
    ) -> None:
        self.line = line  # of the same executor, this one included until it ends
        self.ended = False
        self.in_a_hurry = False  # the loop blocks until this ends: its time is that of the loop's turn
        self.stack = new_stack(self._run)
        self._process = process
        self._function = function
        self._arguments = arguments
        self._future = future

    def _run(self) -> None:
        result, error = None, None
        try:
            result = self._function(*self._arguments)
        except Died:
            pass
        except BaseException as problem:
            error = problem
        self.ended = True
        if not self._process.dead:
            self._process.call_soon_threadsafe(self._tell, result, error)

    def _tell(self, result: object, error: BaseException | None) -> None:
        if self._future.cancelled():
            return
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)


class Jobs:
    """All executors of one process."""

    def __init__(self, process: "ProcessLoop") -> None:
        self.current: Job | None = None  # that runs at this moment
        self._process = process
        self._lines: dict[Executor | None, deque[Job]] = {}
        self._held: list[Job] = []  # that would have gone on while the process is paused

    def run(
        self,
        executor: Executor | None,
        function: Callable[..., T],
        arguments: tuple[Any, ...],
        future: "asyncio.Future[T]",
    ) -> None:
        """Run this beside the loop, behind what the same executor runs."""
        line = self._lines.get(executor)
        if line is None:
            line = self._lines[executor] = deque()
            if executor is not None:  # no thread of it ever starts, so it could not wait for what it runs
                setattr(executor, "shutdown", lambda *_, **__: self._finish(line))  # noqa: B010
        line.append(Job(self._process, function, arguments, future, line))
        if len(line) == 1:
            self._begin(line[0], self._process.spent)

    def _begin(self, job: Job, spent: int) -> None:
        process = self._process
        process.calendar.after(spent + process.draw_cost(), self.go_on, job)

    def go_on(self, job: Job) -> None:
        """Let a job run to its next system call."""
        process = self._process
        if process.dead or job.ended:
            return
        if process.paused:
            self._held.append(job)
            return
        self.current = job
        job.stack.resume()
        self.current = None
        self._begin_next(job)

    def _begin_next(self, job: Job) -> None:
        """Begin what the same executor runs behind a job, if that has ended."""
        line = job.line
        if job.ended and line and line[0] is job:
            line.popleft()
            if line and not self._process.dead:
                self._begin(line[0], 0)

    def let_go(self) -> None:
        """Go on with what was held while the process was paused."""
        held, self._held = self._held, []
        for job in held:
            self._process.calendar.after(0, self.go_on, job)

    def _finish(self, line: deque[Job]) -> None:
        """Block until these jobs have ended, as a turn does that joins a thread."""
        while line and not self._process.dead:
            job = line.popleft()
            job.in_a_hurry = True
            before, self.current = self.current, job
            job.stack.resume()
            self.current = before
        if self._process.dead:
            raise Died

    def bury(self) -> None:
        """Run to their ends what a dead process left in the middle: the call in which each paused raises Died."""
        for line in self._lines.values():
            for job in line:
                if job.stack.started and not job.ended:
                    job.stack.resume()
        self._lines.clear()
