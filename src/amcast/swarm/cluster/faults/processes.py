"""Faults of processes: they stop, die, pause, and read a clock that somebody sets."""

import signal
from collections.abc import Callable
from typing import Self

from amcast.swarm.cluster.calendar import MILLISECOND
from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.shapes import Absence, Fault, Spell, later, seat_of
from amcast.swarm.cluster.world import Host, Seat, World


class Stop(Absence, frozen=True, tag=True):
    """SIGTERM, and a start."""

    def end(self, world: World, seat: Seat) -> None:
        world.stop(seat)
        seat.down_until = world.calendar.now + self.down * MILLISECOND


class Kill(Absence, frozen=True, tag=True):
    """`kill -9`, and a start."""

    def end(self, world: World, seat: Seat) -> None:
        world.kill(seat)


class PowerCut(Absence, frozen=True, tag=True):
    """A machine without power, and a start. Without a name: all machines at once."""

    def seats(self, world: World) -> list[Seat]:
        return [seat_of(world, self.node)] if self.node else list(world.seats.values())

    def end(self, world: World, seat: Seat) -> None:
        world.cut_power(seat.host)

    @classmethod
    def whom(cls, drawing: Drawing) -> str | None:
        return "" if drawing.chance(25) else drawing.node()


class DieAtCall(Absence, frozen=True, tag=True):
    """Death at a system call of the disk, with or without the power. Where the replica is down, in its next start."""

    call: int
    power: bool

    def end(self, world: World, seat: Seat) -> None:
        if seat.life is None:
            world.start(seat)
        assert seat.life is not None or seat.left_alone
        if seat.life is not None:
            world.write_down(seat.name, f"will die at call {self.call}")
            seat.life.files.disk.die_at(self.call, power=self.power)

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"call": drawing.call(30), "power": drawing.chance(50)}


class Pause(Spell, frozen=True, tag=True):
    """SIGSTOP and SIGCONT."""

    node: str

    def begin(self, world: World) -> Callable[[], None]:
        life = seat_of(world, self.node).life
        if life is None:
            return lambda: None
        world.write_down(life.process.name, f"paused for {self.length} ms")
        life.process.pause()
        return life.process.go_on

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"node": drawing.node()}


class JumpClock(Fault, frozen=True, tag=True):
    """Somebody sets the wall clock of a machine."""

    host: str
    by: int

    def act(self, world: World) -> None:
        host: Host = world.hosts[self.host]
        world.write_down(host.name, f"wall clock set by {self.by} ms")
        host.clock.wall += self.by * MILLISECOND

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        by = drawing.one_of((10, 1000, 60_000, 3_600_000, 400 * 86_400_000))
        return cls(drawing.time(), drawing.one_of(drawing.hosts), by if drawing.chance(50) else -by)


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

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        if not drawing.gateways:
            return None
        down = drawing.length()
        return cls(drawing.time(down), drawing.one_of(drawing.gateways), drawing.chance(50), down)
