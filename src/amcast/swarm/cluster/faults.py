"""What goes wrong in a run: a plan, drawn before the run, one object per fault.

A plan can be printed, read, and run again without some of its faults, which is how a failure is made short: no fault
draws anything when it acts that another one could notice. Times are milliseconds from the beginning of the run. Every
fault ends by itself, before the calm; replicas that it stopped are started again by it.
"""

import signal
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from amcast.swarm.cluster.calendar import MILLISECOND
from amcast.swarm.cluster.world import Host, Seat, World

LEADER: Final = "leader of "  # and a group: whoever leads it when the fault comes


class Fault(msgspec.Struct, frozen=True, tag_field="fault"):
    """Something that happens once, at its time."""

    at: int

    def act(self, world: World) -> None:
        raise NotImplementedError

    def harms(self) -> str:
        """Return the replica whose disk loses or changes what it had promised to keep, if any."""
        return ""


def seat_of(world: World, node: str) -> Seat:
    if not node.startswith(LEADER):
        return world.seats[node]
    group = [seat for seat in world.seats.values() if seat.name.startswith(node.removeprefix(LEADER) + "/")]
    for seat in group:
        if seat.node is not None and seat.node.status()["leads"]:
            return seat
    return group[0]


def later(world: World, delay: int, act: Callable[[], None]) -> None:
    world.calendar.after(delay * MILLISECOND, act)


def restart(world: World, seat: Seat, down: int, *, rejoin: bool = False) -> None:
    """Start a replica after a while."""
    later(world, down, lambda: world.start(seat, rejoin=rejoin))


class Stop(Fault, frozen=True, tag=True):
    """SIGTERM, and a start."""

    node: str
    down: int

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        world.stop(seat)
        seat.down_until = world.calendar.now + self.down * MILLISECOND
        restart(world, seat, self.down)


class Kill(Fault, frozen=True, tag=True):
    """`kill -9`, and a start."""

    node: str
    down: int

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        world.kill(seat)
        restart(world, seat, self.down)


class PowerCut(Fault, frozen=True, tag=True):
    """A machine without power, and a start. Without a name: all machines at once."""

    node: str
    down: int

    def act(self, world: World) -> None:
        for seat in [seat_of(world, self.node)] if self.node else world.seats.values():
            world.cut_power(seat.host)
            restart(world, seat, self.down)


class DieAtCall(Fault, frozen=True, tag=True):
    """Death at a system call of the disk, with or without the power. Where the replica is down, in its next start."""

    node: str
    call: int
    power: bool
    down: int

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        if seat.life is None:
            world.start(seat)
        assert seat.life is not None or seat.left_alone
        if seat.life is not None:
            world.write_down(seat.name, f"will die at call {self.call}")
            seat.life.files.disk.die_at(self.call, power=self.power)
        restart(world, seat, self.down)


class Pause(Fault, frozen=True, tag=True):
    """SIGSTOP and SIGCONT."""

    node: str
    length: int

    def act(self, world: World) -> None:
        life = seat_of(world, self.node).life
        if life is not None:
            world.write_down(life.process.name, f"paused for {self.length} ms")
            life.process.pause()
            later(world, self.length, life.process.go_on)


class Cut(Fault, frozen=True, tag=True):
    """Nothing passes from one machine to another, or to all others, or both ways."""

    source: str
    target: str  # empty: all others
    one_way: bool
    length: int

    def act(self, world: World) -> None:
        source = world.hosts[self.source]
        targets = [world.hosts[self.target]] if self.target else [h for h in world.hosts.values() if h is not source]
        pairs = [(source.address, target.address) for target in targets]
        if not self.one_way:
            pairs += [(target, source) for source, target in pairs]
        elif not self.target and self.length % 2:  # deaf instead of mute
            pairs = [(target, source) for source, target in pairs]
        world.write_down(self.source, f"cut off: {', '.join(map(' to '.join, pairs))}")
        for pair in pairs:
            world.network.cut(*pair)
            later(world, self.length, lambda pair=pair: world.network.heal(*pair))  # type: ignore[misc]


class Reset(Fault, frozen=True, tag=True):
    """Connections between two machines break; who dials may do so again."""

    one: str
    other: str

    def act(self, world: World) -> None:
        for endpoint in world.network.connections(world.hosts[self.one].address, world.hosts[self.other].address):
            world.network.reset(endpoint)


class SlowWay(Fault, frozen=True, tag=True):
    """Everything takes much longer between two machines."""

    one: str
    other: str
    factor: int
    length: int

    def act(self, world: World) -> None:
        one, other = world.hosts[self.one].address, world.hosts[self.other].address
        ways = [world.network.way(one, other), world.network.way(other, one)]
        for way in ways:
            way.slower = self.factor
            later(world, self.length, lambda way=way: setattr(way, "slower", 1))  # type: ignore[misc]


class SlowDisk(Fault, frozen=True, tag=True):
    node: str
    factor: int
    length: int

    def act(self, world: World) -> None:
        disk = seat_of(world, self.node).host.disk
        disk.slow = self.factor
        later(world, self.length, lambda: setattr(disk, "slow", 1.0))


class FullDisk(Fault, frozen=True, tag=True):
    """There is no room for bytes, or for names, for a while; then an operator makes some, and starts what stopped."""

    node: str
    names: bool
    length: int

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        disk = seat.host.disk
        world.write_down(seat.name, "no room for another file" if self.names else "disk full")
        if self.names:
            disk.nameless = True
        else:
            disk.full = True
        seat.reasons.add("full")

        def make_room() -> None:
            disk.full = disk.nameless = False
            world.start(seat)

        later(world, self.length, make_room)


class FailSync(Fault, frozen=True, tag=True):
    """The next sync fails."""

    node: str

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        seat.host.disk.failing_sync += 1
        seat.reasons.add("failing")


class Flip(Fault, frozen=True, tag=True):
    """A bit flips on the disk of a replica that was killed, or whose power was cut."""

    node: str
    power: bool
    down: int

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        end_hard(world, seat, self.power)
        world.write_down(seat.name, f"flipped {seat.host.disk.flip_bit()}")
        seat.reasons.add("harmed")
        restart(world, seat, self.down)

    def harms(self) -> str:
        return self.node


class LoseName(Fault, frozen=True, tag=True):
    """A file is gone from the disk of a replica that was killed."""

    node: str
    power: bool
    down: int

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        end_hard(world, seat, self.power)
        world.write_down(seat.name, f"lost {seat.host.disk.lose_name()}")
        seat.reasons.add("harmed")
        restart(world, seat, self.down)

    def harms(self) -> str:
        return self.node


class OldFolder(Fault, frozen=True, tag=True):
    """An operator puts an older copy of the data folder back, after a crash, and says so with --rejoin, or does not."""

    node: str
    age: int
    told: bool
    down: int

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        try:
            copy = seat.host.disk.copy(seat.member.data)
        except OSError:  # there is none yet
            return

        def put_back() -> None:
            end_hard(world, seat, power=False)
            world.write_down(seat.name, f"data folder of {self.age} ms ago put back")
            seat.host.disk.put_back(copy)
            seat.reasons |= {"harmed", "older"}
            seat.must_rejoin = seat.must_rejoin or self.told
            restart(world, seat, self.down)

        later(world, self.age, put_back)

    def harms(self) -> str:
        return self.node


class LoseDisk(Fault, frozen=True, tag=True):
    """A machine gets an empty disk; its operator knows what to do, or is told."""

    node: str
    knows: bool
    down: int

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        end_hard(world, seat, power=True)
        world.write_down(seat.name, "disk lost")
        seat.host.disk.lose()
        seat.reasons.add("harmed")
        restart(world, seat, self.down, rejoin=self.knows)

    def harms(self) -> str:
        return self.node


class BrokenRejoin(Fault, frozen=True, tag=True):
    """A machine gets an empty disk; its `--rejoin` is killed, and what starts next is a plain start."""

    node: str
    call: int  # of the disk, at which it dies; 0: after a time
    after: int
    power: bool
    down: int

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        end_hard(world, seat, power=True)
        world.write_down(seat.name, "disk lost")
        seat.host.disk.lose()
        seat.reasons.add("harmed")
        later(world, self.down, lambda: self._rejoin(world, seat))

    def _rejoin(self, world: World, seat: Seat) -> None:
        world.start(seat, rejoin=True)
        if self.call and seat.life is not None:
            seat.life.files.disk.die_at(self.call, power=self.power)
        later(world, self.after, lambda: self._forget(world, seat))

    def _forget(self, world: World, seat: Seat) -> None:
        end_hard(world, seat, self.power)
        restart(world, seat, self.down)

    def harms(self) -> str:
        return self.node


class JumpClock(Fault, frozen=True, tag=True):
    """Somebody sets the wall clock of a machine."""

    host: str
    by: int

    def act(self, world: World) -> None:
        host: Host = world.hosts[self.host]
        world.write_down(host.name, f"wall clock set by {self.by} ms")
        host.clock.wall += self.by * MILLISECOND


class StopGateway(Fault, frozen=True, tag=True):
    """A gateway stops, in order or not, and starts again."""

    gateway: str
    in_order: bool
    down: int

    def act(self, world: World) -> None:
        program = world.programs[self.gateway]
        world.write_down(program.name, "SIGTERM" if self.in_order else "SIGKILL")
        if program.process is not None and self.in_order:
            program.process.signal(signal.SIGTERM)
        elif program.process is not None:
            program.process.kill()

        def again() -> None:
            if program.process is not None and not program.process.dead:  # it still answers what was under way
                later(world, self.down, again)
            else:
                program.done = False
                world.start_program(program)

        later(world, self.down, again)


def end_hard(world: World, seat: Seat, power: bool) -> None:
    if power:
        world.cut_power(seat.host)
    else:
        world.kill(seat)


Plan = list[Fault]
AnyFault = (
    Stop | Kill | PowerCut | DieAtCall | Pause | Cut | Reset | SlowWay | SlowDisk | FullDisk | FailSync | Flip
    | LoseName | OldFolder | LoseDisk | BrokenRejoin | JumpClock | StopGateway
)  # fmt: skip
_decoder = msgspec.json.Decoder(list[AnyFault])


def as_json(plan: Plan) -> bytes:
    """Return a plan as text, one fault per line."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, plan)) + b"\n]\n"


def from_json(text: bytes) -> Plan:
    return list(_decoder.decode(text))


class Drawing:
    """Draws a plan: a few kinds, each a few times."""

    def __init__(
        self, random: Random, groups: list[list[str]], hosts: list[str], gateways: list[str], calm_at: int
    ) -> None:
        self._random = random
        self._groups = groups
        self._nodes = [name for group in groups for name in group]
        self._gateways = gateways
        self._hosts = hosts + gateways
        self._calm_at = calm_at
        # One disk of a group may break the promises that it made: who comes back without one needs all the others.
        self._breakable = [random.choice(group) for group in groups if len(group) > 1]

    def lost(self) -> tuple[str, ...]:
        """Draw who stays away for ever: of those whose disks may fail, so that a quorum of the others is left."""
        return tuple([name for name in self._breakable if self._random.random() < 0.7])

    def plan(self) -> Plan:
        random = self._random
        known = DRAWN + [Drawing.stop_gateway] * 2 if self._gateways else DRAWN
        kinds = random.sample(known, random.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4)))
        plan: Plan = []
        for draw in kinds:
            for _ in range(random.choice((1, 1, 2, 2, 3, 5))):
                fault = draw(self)
                if fault is not None:
                    plan.append(fault)
        return sorted(plan, key=lambda fault: fault.at)

    def time(self, before: int = 0) -> int:
        """Draw when something begins that takes so long."""
        return self._random.randrange(200, max(201, self._calm_at - before))

    def length(self) -> int:
        """Draw a time: mostly short, sometimes most of the run."""
        random = self._random
        longest = random.choice((100, 500, 1000, 2000, self._calm_at * 3 // 4))
        return random.randrange(10, max(11, min(longest, self._calm_at * 3 // 4)))

    def node(self) -> str:
        if self._random.random() < 0.25:
            return LEADER + f"g{self._random.randrange(len(self._groups))}"
        return self._random.choice(self._nodes)

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def stop(self) -> Fault:
        down = self.length()
        return Stop(self.time(down), self.node(), down)

    def kill(self) -> Fault:
        down = self.length()
        return Kill(self.time(down), self.node(), down)

    def power_cut(self) -> Fault:
        down = self.length()
        return PowerCut(self.time(down), "" if self.chance(25) else self.node(), down)

    def die_at_call(self) -> Fault:
        down = self.length()
        call = 1 + int(self._random.expovariate(1 / 30))
        return DieAtCall(self.time(down), self.node(), call, self.chance(50), down)

    def pause(self) -> Fault:
        length = self.length()
        return Pause(self.time(length), self.node(), length)

    def cut(self) -> Fault:
        length = self.length()
        source = self._random.choice(self._hosts)
        target = "" if self.chance(40) else self._random.choice([host for host in self._hosts if host != source])
        return Cut(self.time(length), source, target, self.chance(40), length)

    def reset(self) -> Fault:
        one, other = self._random.sample(self._hosts, 2)
        return Reset(self.time(), one, other)

    def slow_way(self) -> Fault:
        length = self.length()
        one, other = self._random.sample(self._hosts, 2)
        return SlowWay(self.time(length), one, other, self._random.choice((10, 100, 1000)), length)

    def slow_disk(self) -> Fault:
        length = self.length()
        return SlowDisk(self.time(length), self.node(), self._random.choice((10, 10, 100)), length)

    def full_disk(self) -> Fault:
        length = self.length()
        return FullDisk(self.time(length), self.node(), self.chance(50), length)

    def fail_sync(self) -> Fault:
        return FailSync(self.time(1000), self.node())

    def flip(self) -> Fault | None:
        down = self.length()
        node = self.breakable()
        return Flip(self.time(down), node, self.chance(50), down) if node else None

    def lose_name(self) -> Fault | None:
        down = self.length()
        node = self.breakable()
        return LoseName(self.time(down), node, self.chance(50), down) if node else None

    def old_folder(self) -> Fault | None:
        down, age = self.length(), self.length()
        node = self.breakable()
        # Nothing on a disk can tell an older copy of itself. Until replicas ask others at a start, who puts one back
        # must say so; plans that are written by hand may say otherwise.
        return OldFolder(self.time(down + age), node, age, True, down) if node else None

    def lose_disk(self) -> Fault | None:
        down = self.length()
        node = self.breakable()
        return LoseDisk(self.time(down), node, self.chance(50), down) if node else None

    def broken_rejoin(self) -> Fault | None:
        down, after = self.length(), self.length()
        node = self.breakable()
        call = 1 + int(self._random.expovariate(1 / 15)) if self.chance(50) else 0
        return BrokenRejoin(self.time(2 * down + after), node, call, after, self.chance(50), down) if node else None

    def jump_clock(self) -> Fault:
        by = self._random.choice((10, 1000, 60_000, 3_600_000, 400 * 86_400_000))
        return JumpClock(self.time(), self._random.choice(self._hosts), by if self.chance(50) else -by)

    def stop_gateway(self) -> Fault | None:
        down = self.length()
        return StopGateway(self.time(down), self._random.choice(self._gateways), self.chance(50), down)

    def breakable(self) -> str:
        return self._random.choice(self._breakable) if self._breakable else ""


DRAWN: Final[list[Callable[[Drawing], Fault | None]]] = [
    Drawing.stop, Drawing.kill, Drawing.power_cut, Drawing.die_at_call, Drawing.pause, Drawing.cut, Drawing.reset,
    Drawing.slow_way, Drawing.slow_disk, Drawing.full_disk, Drawing.fail_sync, Drawing.flip, Drawing.lose_name,
    Drawing.old_folder, Drawing.lose_disk, Drawing.broken_rejoin, Drawing.jump_clock,
]  # fmt: skip
