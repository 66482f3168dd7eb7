"""A cluster of simulated machines: hosts with clocks and disks, the processes on them, and the operator of it all.

A seat is a replica through all its lives. What a fault does to it, and what an operator does about that, is asked of
the world; which fault comes when is not known here (`faults.py`), nor what is right or wrong (`judge.py`).
"""

import io
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from amcast.core.application import StateMachine
from amcast.core.protocol import Protocol
from amcast.errors import Alarm
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.frames import OURS
from amcast.runtime.log import Log
from amcast.runtime.machine import Files, Limits, Machine, write_all
from amcast.runtime.node import Node
from amcast.runtime.seats import FILE
from amcast.swarm.cluster.calendar import SECOND, Calendar
from amcast.swarm.cluster.clocks import HostClock
from amcast.swarm.cluster.disk import SimDisk, SimFiles
from amcast.swarm.cluster.loop import ProcessLoop
from amcast.swarm.cluster.network import Network, Weather
from amcast.swarm.cluster.next_release import NEXT, next_release
from amcast.swarm.cluster.shadow import checksum

YEAR_2026 = 1_767_225_600 * SECOND
TRACES = Path("/traces")


@dataclass(frozen=True)
class ProcessMachine(Machine):
    """The machine as one process sees it."""

    process: ProcessLoop | None = None

    def listen_at(self, host: str, port: int) -> Any:
        assert self.process is not None
        return self.process.network.listen_at(self.process, host, port)


class Host:
    """A machine: it outlives the processes on it."""

    def __init__(self, world: "World", name: str, address: str) -> None:
        random = world.stream(f"host {name}")
        start = random.randrange(10_000 * SECOND)
        self.name = name
        self.address = address
        self.clock = HostClock(
            start=start,
            parts_per_million=random.randint(-10_000, 10_000) if random.random() < 0.3 else 0,
            wall=YEAR_2026 - start + random.randrange(-SECOND, SECOND),
        )
        self.disk = SimDisk(world.stream(f"disk {name}"))
        self.powered = True


class NodeLog(io.StringIO):
    """Takes the log of a process, with the true time of each line."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__()
        self._world = world
        self._name = name

    def write(self, text: str) -> int:
        self._world.write_down(self._name, text.rstrip("\n"))
        return len(text)


@dataclass(eq=False)
class Life:
    """One start of a replica, to its end."""

    process: ProcessLoop
    files: "KeptTraces"
    rejoins: bool
    since: int
    node: Node | None = None
    ready: bool = False
    wrong: ClusterConfig | None = None  # it was started with this one, which is not that of its data
    forgot: str = ""  # what had been synced and is not in its folder, of which others have heard
    found: int = 0  # the checksum of its folder when it started


@dataclass(eq=False)
class Seat:
    """A replica through all its lives."""

    member: Member
    host: Host
    lives: list[Life] = field(default_factory=list)
    must_rejoin: bool = False  # its operator was told so …
    accepts_loss: bool = False  # … or knows that others, which it waits for, never come back
    left_alone: bool = False  # nobody starts it any more
    removed: bool = False  # it is no member any more
    joins: bytes = b""  # what is in its folder when it begins as one that is to become a member
    fresh: bool = False  # it has not served yet
    coming: bool = False  # it starts as the release to come …
    was_coming: bool = False  # … or did so once
    down_until: int = 0  # who stops it in order wants it to stay so until then
    reasons: set[str] = field(default_factory=set)  # to end, that faults gave it: harmed, older, full, failing

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def life(self) -> Life | None:
        """Return the process that runs now, paused or not."""
        return self.lives[-1] if self.lives and not self.lives[-1].process.dead else None

    def checksum(self) -> int:
        """Return a checksum of all that is in its data folder."""
        try:
            return checksum(self.host.disk.look_up(self.member.data))
        except OSError:
            return 0

    @property
    def node(self) -> Node | None:
        return self.life.node if self.life is not None else None


def crashed(trace: bytes) -> bytearray:
    """Return a trace with the crash of its process behind the last whole row."""
    whole = trace[: trace.rfind(b"\n") + 1]
    last = whole.rstrip(b"\n").rpartition(b"\n")[2]
    if not last:
        return bytearray(whole)
    row = msgspec.json.decode(last)
    same = {name: row[name] for name in ("run", "process", "group", "time")}
    return bytearray(whole + msgspec.json.encode({**same, "kind": "crash", "seq": row["seq"] + 1}) + b"\n")


@dataclass(eq=False)
class Program:
    """A client or a gateway, through all its lives."""

    name: str
    host: Host
    main: "Callable[[Program, ProcessMachine], Coroutine[Any, Any, None]]"
    process: ProcessLoop | None = None
    lives: int = 0
    done: bool = False  # it need not be started again


def trace_of(program: Program) -> Path:
    """Return where a client or a gateway writes down what it does in this life."""
    return TRACES / f"{program.name}-{program.lives}.jsonl"


class KeptTraces(Files):
    """The files of a process; its trace is not on the disk, for that would be evidence on the accused.

    `shared` are files of operators, which all can read.
    """

    def __init__(
        self, process: ProcessLoop, files: SimFiles, traces: dict[Path, bytearray], shared: dict[Path, bytes]
    ) -> None:
        self.disk = files
        self._process = process
        self._traces = traces
        self._shared = shared
        self._open: dict[int, bytearray] = {}
        for name in (
            "names",
            "lock",
            "read_at",
            "size",
            "place",
            "kept_time",
            "sync",
            "replace",
            "remove",
            "sync_folder",
            "free",
        ):
            setattr(self, name, getattr(files, name))

    def make_folder(self, path: Path) -> None:
        if path != TRACES:
            self.disk.make_folder(path)

    def exists(self, path: Path) -> bool:
        return path in self._traces or path in self._shared or (path.parent != TRACES and self.disk.exists(path))

    def read(self, path: Path) -> bytes:
        if path in self._shared:
            return self._shared[path]
        return bytes(self._traces[path]) if path.parent == TRACES else self.disk.read(path)

    def open(self, path: Path, *, append: bool = False, new: bool = False) -> int:
        if path.parent != TRACES:
            return self.disk.open(path, append=append, new=new)
        fd = 10**6 + len(self._open)
        self._open[fd] = self._traces.setdefault(path, bytearray())
        return fd

    def truncate(self, fd: int, length: int) -> None:
        if fd in self._open:
            del self._open[fd][length:]
        else:
            self.disk.truncate(fd, length)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if fd not in self._open:
            return self.disk.write(fd, data)
        self._process.spend("trace", 0)
        self._open[fd] += data
        return len(data)

    def close(self, fd: int) -> None:
        if fd not in self._open:
            self.disk.close(fd)


class World:
    """Everything of one run."""

    def __init__(
        self,
        seed: int,
        config: ClusterConfig,
        table: Protocol,
        app: Callable[[Seat, Life], Callable[[int, int], StateMachine]],
        limits: Limits,
        weather: Weather,
        *,
        traced: bool = True,
        turn_cost: int = 40_000,
    ) -> None:
        self.seed = seed
        self.config = config
        self.table = table
        self.coming = next_release(table)
        self.app = app
        self.limits = limits
        self.traced = traced
        self.calendar = Calendar(self.stream("ties"))
        self.network = Network(self.calendar, str(seed), weather)
        self.processes: list[ProcessLoop] = []
        self.lines: list[tuple[int, str, str]] = []  # of all logs: time, process, text
        self.traces: dict[Path, bytearray] = {}
        self.shared: dict[Path, bytes] = {}
        self.calm = False  # no more faults
        self.hosts: dict[str, Host] = {}
        self.seats: dict[str, Seat] = {}
        self.starting: dict[Seat, Life] = {}  # what does not serve yet; the dead stay until the next start
        self.groups: dict[str, list[Seat]] = {}  # by the name of each
        self.programs: dict[str, Program] = {}
        self.ready: Callable[[Seat, Life], None] = lambda *_: None  # a node serves
        self.ended: Callable[[Seat, Life, BaseException | None], None] = lambda *_: None  # a node, by itself
        self.passed: Callable[[Node, int], None] = lambda *_: None  # a change of members, in the order of a node
        self.other_config: Callable[[str, Seat], ClusterConfig]  # of the kind that is asked for
        self.complaint: Callable[[ProcessLoop, dict[str, Any]], None] = lambda *_: None  # a loop
        self._turn_cost = turn_cost
        self.change_members: Callable[[Seat, bool, bool], None] = lambda *_: None  # who goes, whether; who comes
        self.move_slots: Callable[[int, int, int, int], None] = lambda *_: None  # from, to, one in how many; a pause
        for member in config.members:
            self.add_seat(member)

    def stream(self, purpose: str) -> Random:
        """Return chance for one purpose: others must not draw more or less because of it."""
        return Random(f"{self.seed} {purpose}")

    def add_host(self, name: str, address: str) -> Host:
        host = self.hosts[name] = Host(self, name, address)
        return host

    def add_seat(self, member: Member, joins: bytes = b"") -> Seat:
        host = self.add_host(member.name, member.peer.host)
        coming = any(other.was_coming for other in self.seats.values())  # who comes gets the newest that is there
        seat = Seat(member, host, joins=joins, fresh=bool(joins), coming=coming, was_coming=coming)
        self.seats[member.name] = seat
        self.groups.setdefault(self.config.topology.group_name(member.group), []).append(seat)
        return seat

    def write_down(self, name: str, text: str) -> None:
        self.lines.append((self.calendar.now, name, text))

    # Processes

    def new_process(self, name: str, host: Host) -> ProcessLoop:
        number = len(self.processes) + 1
        calendar, network = self.calendar, self.network
        chance = self.stream(f"turns {name} {number}")
        process = ProcessLoop(  # type: ignore[abstract]  # what no program of ours asks of a loop is missing
            name, number, host.address, calendar, host.clock, network, chance, self._turn_cost
        )
        process.on_death = lambda power: self._died(host, process, power)
        process.on_complaint = lambda context: self.complaint(process, context)
        self.processes.append(process)
        return process

    def machine(self, process: ProcessLoop, files: Files) -> ProcessMachine:
        chance = self.stream(f"program {process.name} {process.number}")
        return ProcessMachine(clock=process.clock, random=chance, files=files, limits=self.limits, process=process)

    def _died(self, host: Host, process: ProcessLoop, power: bool) -> None:
        self.network.leave(process, silently=power)
        if power:
            self.power_off(host)

    # The operator

    def start(self, seat: Seat, *, new: bool = False, rejoin: bool = False, wrong: ClusterConfig | None = None) -> None:
        """Start a replica, unless it runs; with the `wrong` configuration, if there is one."""
        if seat.life is not None or seat.left_alone:
            return
        if not seat.host.powered:
            self.power_on(seat.host)
        rejoin = rejoin or seat.must_rejoin
        process = self.new_process(seat.name, seat.host)
        files = KeptTraces(process, seat.host.disk.mount(process), self.traces, self.shared)
        process.at_death.append(files.disk.kill)
        life = Life(process, files, rejoin, self.calendar.now, wrong=wrong, found=seat.checksum() if wrong else 0)
        seat.lives.append(life)
        self.starting[seat] = life
        machine = self.machine(process, files)
        trace = TRACES / f"{seat.name.replace('/', '-')}.jsonl" if self.traced else None

        def ready() -> None:
            life.ready = True
            del self.starting[seat]
            seat.fresh = False
            seat.must_rejoin = seat.accepts_loss = False
            self.ready(seat, life)

        async def main() -> None:
            if seat.joins and not files.exists(seat.member.data / FILE):
                self._prepare(seat, files)
            log = Log(seat.name, stream=NodeLog(self, seat.name), machine=machine)
            app = self.app(seat, life)
            config = wrong or self.config
            table, knows = (self.coming, NEXT) if seat.coming else (self.table, OURS)
            life.node = Node(
                config, seat.name, table, app, trace, log, machine=machine, new=new or seat.fresh, rejoin=rejoin,
                accept_loss=seat.accepts_loss, knows=knows,
            )  # fmt: skip
            node = life.node
            node.membership.passed = lambda position: self.passed(node, position)
            await node.run(ready)

        process.on_end = lambda _: self._ended(seat, life)
        how = {"--new": new, "--rejoin": rejoin, "--accept-loss": seat.accepts_loss, "wrongly": wrong is not None}
        self.write_down(seat.name, " ".join(["started", *[word for word, said in how.items() if said]]))
        process.begin(main())

    def _prepare(self, seat: Seat, files: Files) -> None:
        """Do what the command does before it starts a replica that is to become a member."""
        path = seat.member.data / FILE
        files.make_folder(seat.member.data)
        new = path.with_suffix(".new")
        fd = files.open(new, new=True)
        write_all(files, fd, seat.joins)
        files.sync(fd)
        files.close(fd)
        files.replace(new, path)

    def lost_some_of(self, group: int) -> bool:
        """Return whether a member of a group never comes back."""
        seats = [seat for seat in self.seats.values() if seat.member.group == group]
        return any(seat.left_alone and not seat.removed for seat in seats)

    def leave(self, seat: Seat) -> None:
        """Stop a replica for good that is no member any more."""
        self.kill(seat)
        seat.left_alone = seat.removed = True
        path = TRACES / f"{seat.name.replace('/', '-')}.jsonl"
        self.traces[path] = crashed(bytes(self.traces.get(path, b"")))

    def _ended(self, seat: Seat, life: Life) -> None:
        error = life.process.error
        self.write_down(seat.name, "ended" if error is None else f"ended with {type(error).__name__}: {error}")
        self.ended(seat, life, error)

    def start_program(self, program: Program) -> None:
        """Start a client or a gateway, unless it runs or has done its work."""
        if program.done or (program.process is not None and not program.process.dead):
            return
        self.power_on(program.host)
        process = program.process = self.new_process(program.name, program.host)
        program.lives += 1
        files = program.host.disk.mount(process)
        process.at_death += [files.kill, lambda: self._trace_crash(process, trace_of(program))]
        machine = self.machine(process, KeptTraces(process, files, self.traces, self.shared))

        def ended(process: ProcessLoop) -> None:
            program.done = process.error is None
            if process.error is not None and not isinstance(process.error, Alarm):
                self.complaint(process, {"message": "the program ended", "exception": process.error})

        process.on_end = ended
        process.begin(program.main(program, machine))

    def _trace_crash(self, process: ProcessLoop, path: Path) -> None:
        """Say in the trace of a program that it was killed: it cannot, and nobody sends again what it had under way.

        One that ended by itself has said whether something was.
        """
        if process.main is None or process.main.done():
            return
        if path in self.traces:
            self.traces[path] = crashed(bytes(self.traces[path]))

    def stop(self, seat: Seat) -> None:
        """Send SIGTERM."""
        if seat.life is not None:
            self.write_down(seat.name, "SIGTERM")
            seat.life.process.signal(signal.SIGTERM)

    def kill(self, seat: Seat) -> None:
        if seat.life is not None:
            self.write_down(seat.name, "SIGKILL")
            seat.life.process.kill()

    def cut_power(self, host: Host) -> None:
        """Take a machine's power: its processes are gone, and of its disk what was not synced."""
        for process in self.processes:
            if process.host == host.address and not process.dead:
                process.kill(power=True)
        self.power_off(host)

    def power_off(self, host: Host) -> None:
        if host.powered:
            self.write_down(host.name, "power off")
            host.powered = False
            self.network.power_off(host.address)
            host.disk.power_cut()

    def power_on(self, host: Host) -> None:
        if not host.powered:
            self.write_down(host.name, "power on")
            host.powered = True
            self.network.power_on(host.address)

    # What there is

    def end_trace(self) -> None:
        """Say in the trace that nothing more will happen."""
        now = max(host.clock.monotonic_at(self.calendar.now) + host.clock.wall for host in self.hosts.values())
        row = {"run": self.config.name, "kind": "end", "process": "cluster", "group": None, "seq": 1, "time": now}
        self.traces[TRACES / "cluster.jsonl"] = bytearray(msgspec.json.encode(row) + b"\n")

    def bury(self) -> None:
        """End the run: nobody is alive any more, and what is collected later reaches nobody."""
        for process in self.processes:
            process.dead = True
        for process in self.processes:
            process.bury()
