"""One simulated process: an event loop of its own, which gets its turns from the calendar.

A turn is what a real loop does between two looks at the world: everything that is ready runs, as if it took no time,
and then the process is busy for a drawn time in which more may arrive. Between two turns it may be paused or killed;
nothing in the program that it runs has to help with that.

Death is a flag. `Died` is only the way out of what runs when it is set, and asyncio swallows it; so every simulated
call of a process looks at the flag, and what a dead process still does reaches nobody.
"""

import asyncio
import contextvars
import signal
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextlib import suppress
from functools import cache
from heapq import heapify, heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zlib import crc32

from amcast.swarm.cluster.calendar import MICROSECOND, MILLISECOND, Calendar
from amcast.swarm.cluster.clocks import HostClock, ProcessClock
from amcast.swarm.cluster.jobs import Died, Jobs

if TYPE_CHECKING:
    from amcast.swarm.cluster.network import Network

MOST_CANCELLED: Final = 64  # timers that are still in the heap
KEPT_TASKS: Final = 256
T = TypeVar("T")
Context = dict[str, Any]


@cache
def number_of(call: str) -> int:
    """Return what stands for the name of a system call in a digest."""
    return crc32(call.encode())


class Call(asyncio.TimerHandle):
    """A callback of a loop, at once or at a time."""

    __slots__ = ("at",)
    _loop: "ProcessLoop"

    def __init__(
        self,
        loop: "ProcessLoop",
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: contextvars.Context,
        at: int = -1,
    ) -> None:  # everything that asyncio's own handles keep for debugging is left out
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args = arguments
        self._context = context
        self._cancelled = False
        self.at = at

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = None, ()  # let go of what it holds, now
            if self.at >= 0:
                self._loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self.at / 1e9

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, Call)
        return self.at < other.at

    def __repr__(self) -> str:
        return f"<Call {self._callback} at {self.at}>"


class Disposition:
    """How a signal is taken: a handler of the program, or the way of the operating system."""

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments


class ProcessLoop(asyncio.AbstractEventLoop):
    """A process from its start to its end, and the event loop in it."""

    def __init__(
        self,
        name: str,
        number: int,
        host: str,
        calendar: Calendar,
        host_clock: HostClock,
        network: "Network",
        random: Random,
        turn_cost: int = 40 * MICROSECOND,
    ) -> None:
        self.name = name
        self.number = number  # of this process in its run, for the digest
        self.host = host
        self.calendar = calendar
        self.host_clock = host_clock
        self.network = network
        self.random = random
        self.clock = ProcessClock(self)
        self.dead = False
        self.paused = False
        self.spent = 0  # nanoseconds in this turn, so far
        self.turns = 0
        self.received = 0  # bytes
        self.main: asyncio.Task[Any] | None = None
        self.error: BaseException | None = None  # with which the program ended
        self.on_complaint: Callable[[Context], None] | None = None  # what reached the loop's handler of exceptions
        self.at_death: list[Callable[[], None]] = []
        self.on_death: Callable[[bool], None] | None = None  # is told whether the power went, too
        self.on_end: Callable[[ProcessLoop], None] | None = None  # when the program has ended by itself
        self._turn_cost = turn_cost
        self._ready: deque[Call] = deque()
        self._timers: list[tuple[int, int, Call]] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._arrived: list[Callable[[], None]] = []
        self._context = contextvars.Context()
        self._has_turn = False  # the calendar has the next one, as soon as the process is free
        self._alarm_at = -1  # when the calendar looks for timers that are due
        self._busy_until = 0
        self._in_turn = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = KEPT_TASKS
        self._jobs = Jobs(self)
        self._signals: dict[int, Disposition] = {}
        self._leaving = False

    # Life and death

    def begin(self, main: Coroutine[Any, Any, Any]) -> None:
        """Run this program."""
        self.main = self.create_task(main)
        self.main.add_done_callback(self._ended)
        self.wake()

    def _ended(self, main: "asyncio.Task[Any]") -> None:
        """Cancel what the program left behind, as asyncio.Runner does; the process ends when that has ended."""
        self.error = None if main.cancelled() else main.exception()
        self._leaving = True
        for task in self._tasks:
            if not task.done():
                task.cancel()

    def kill(self, *, power: bool = False) -> None:
        """End here and now, in the middle of whatever it does, alone or with the power of its machine."""
        if not self.dead:
            self.dead = True
            self.calendar.note(self.number)
            for act in self.at_death:
                act()
            if self.on_death is not None:
                self.on_death(power)

    def die(self, power: bool) -> None:
        """End in the middle of a system call of its own. Raises Died."""
        self.kill(power=power)
        raise Died

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        if self.paused:
            self.paused = False
            self._jobs.let_go()
            self.wake()

    def signal(self, number: signal.Signals) -> None:
        """Deliver a signal: one that the program does not handle kills it."""
        disposition = self._signals.get(number)
        if disposition is not None:
            self.call_soon_threadsafe(disposition.callback, *disposition.arguments)
        else:
            self.kill()

    def bury(self) -> None:
        """Let go of everything, while no process is alive any more: what runs now, in `finally`, reaches nobody."""
        self.dead = True
        events._set_running_loop(None)
        self._jobs.bury()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if isinstance(coroutine, Coroutine):
                with suppress(Exception, Died, GeneratorExit):
                    coroutine.close()
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()
        self._arrived.clear()
        self.at_death.clear()
        self.on_end = self.on_death = self.on_complaint = None

    def forgotten_errors(self) -> list[BaseException]:
        """Return the errors of tasks that nobody looked at: a real loop would complain when they are collected.

        Whoever was to look in the turn that its death prevented is not blamed.
        """
        found: list[BaseException] = []
        about_to_look = {id(argument) for call in self._ready for argument in call._args or ()}
        for task in self._tasks:
            if task.done() and not task.cancelled() and task._log_traceback and id(task) not in about_to_look:
                error = task.exception()
                if error is not None and not isinstance(error, Died):
                    found.append(error)
        return found

    # Time

    def spend(self, what: str, nanoseconds: int) -> None:
        """Take time in a system call; every simulated one passes here. Raises Died if there is no process any more."""
        if self.dead:
            raise Died
        self.calendar.note(number_of(what) + nanoseconds)
        job = self._jobs.current
        if job is None or job.in_a_hurry:
            self.spent += nanoseconds
            return
        if self.calendar.passes_to(self.calendar.now + nanoseconds):
            return
        self.calendar.after(nanoseconds, self._jobs.go_on, job)
        job.stack.pause()
        self._check_alive()

    def _check_alive(self) -> None:
        if self.dead:
            raise Died

    def time(self) -> float:
        return self.clock.monotonic_ns() / 1e9

    def wake(self) -> None:
        """Have a turn as soon as the process is free."""
        if not self._in_turn and not self._has_turn:
            self._has_turn = True
            self.calendar.at(self._busy_until, self._turn)

    def _set_alarm(self) -> None:
        """Have a turn when the first timer is due. An alarm that comes too early is set again, so one is enough."""
        at = self.host_clock.time_of(self._timers[0][0])
        if at < self._busy_until:
            at = self._busy_until
        if self._alarm_at < 0 or at < self._alarm_at:
            self._alarm_at = at
            self.calendar.at(at, self._alarm, at)

    def _alarm(self, at: int) -> None:
        if at != self._alarm_at or self.dead:
            return  # it was replaced by an earlier one
        self._alarm_at = -1
        if self.paused or self._has_turn or not self._timers:
            return  # that turn sets it again
        if self._busy_until > self.calendar.now or self._timers[0][0] > self.clock.monotonic_ns():
            self._set_alarm()
        else:
            self._turn()

    def _turn(self) -> None:
        self._has_turn = False
        if self.dead or self.paused:
            return
        self._in_turn = True
        self.turns += 1
        self.spent = 0
        events._set_running_loop(self)  # it stays so until the next turn of any loop: nothing else asks for it
        ready = self._ready
        if self._arrived:
            self._collect()
        if self._timers:
            self._collect_timers()
        count = len(ready)
        self.calendar.note(self.number << 24 | count)
        for _ in range(count):
            call = ready.popleft()
            if not call._cancelled:
                try:
                    call._context.run(call._callback, *call._args)  # type: ignore[arg-type]  # it was not cancelled
                except BaseException as error:
                    self._raised(call, error)
                if self.is_closed():
                    break
        self._in_turn = False
        self._busy_until = self.calendar.now + self.spent + self.draw_cost()
        self.spent = 0
        if not self.is_closed():
            self._plan_next_turn()

    def _plan_next_turn(self) -> None:
        if self._leaving and all(task.done() for task in self._tasks):
            self.kill()
            if self.on_end is not None:
                self.on_end(self)
        elif self._ready or self._arrived:
            self.wake()
        elif self._timers:
            self._set_alarm()

    def draw_cost(self) -> int:
        """Draw how long a turn takes: mostly little, at times as long as a page fault or a busy neighbour takes."""
        drawn = self.random.getrandbits(16)
        if drawn & 1023 == 0:
            return (drawn >> 10) * MILLISECOND // 2
        return 1 + self._turn_cost * (drawn >> 10) // 32

    def _collect(self) -> None:
        """Make ready what arrived, behind what is ready and before timers, as asyncio does."""
        ready, context = self._ready, self._context
        for call in self._arrived:
            ready.append(Call(self, call, (), context))
        self._arrived.clear()

    def _collect_timers(self) -> None:
        """Make ready the timers that are due."""
        timers = self._timers
        now = self.clock.monotonic_ns()
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            timer.at = -1
            if timer._cancelled:
                self._cancelled_timers -= 1
            else:
                self._ready.append(timer)

    def _raised(self, call: Call, error: BaseException) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        if isinstance(error, Died):
            assert self.dead
        else:
            self.call_exception_handler({"message": f"exception in {call._callback}", "exception": error})

    # What programs ask of a loop

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._in_turn

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: Context) -> None:
        if not self.dead and self.on_complaint is not None:
            self.on_complaint(context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        call = Call(self, callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(call)
        if not self._in_turn:
            self.wake()
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at(self.clock.monotonic_ns() + round(delay * 1e9), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at(round(when * 1e9), callback, args, context)

    def _call_at(
        self, at: int, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> asyncio.TimerHandle:
        call = Call(self, callback, args, contextvars.copy_context() if context is None else context, max(at, 0))
        self._timer_number += 1
        heappush(self._timers, (call.at, self._timer_number, call))
        if not self._in_turn:
            self._set_alarm()
        return call

    def timer_cancelled(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > MOST_CANCELLED and 2 * self._cancelled_timers > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[T]":
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)  # until the end of the run: what is collected before may act in another process
        if len(self._tasks) > self._most_tasks:
            self._tasks = [t for t in self._tasks if not t.done() or t._log_traceback]
            self._most_tasks = 2 * len(self._tasks) + KEPT_TASKS
        return task

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        self._signals[sig] = Disposition(callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signals.pop(sig, None) is not None

    def run_in_executor(  # type: ignore[override]  # the future is not a coroutine
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run this beside the loop, behind what the same executor runs: each has one thread."""
        future: asyncio.Future[T] = self.create_future()
        self._jobs.run(executor, func, args, future)
        return future

    # Networks; transports are in network.py

    def arrived(self, call: Callable[[], None]) -> None:
        """Have this called in the next turn, before timers: something has come from outside."""
        self._arrived.append(call)
        if not self._in_turn:
            self.wake()

    async def getaddrinfo(  # type: ignore[override]
        self, host: str | None, port: int | str | None, **_: int
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(2, 1, 6, "", (str(host), int(port or 0)))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, ssl: None = None, **_: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        assert ssl is None, "TLS is not simulated: it draws chance and time of its own"
        return await self.network.dial(self, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, ssl: None = None, **_: Any
    ) -> asyncio.AbstractServer:
        assert ssl is None, "TLS is not simulated: it draws chance and time of its own"
        return self.network.serve(self, protocol_factory, host, port)

    async def sock_accept(self, sock: Any) -> tuple[Any, Any]:
        return await self.network.accept(sock)

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], sock: Any, *, ssl: None = None, **_: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        assert ssl is None, "TLS is not simulated: it draws chance and time of its own"
        return await self.network.adopt(self, protocol_factory, sock)
