"""The shapes that faults have. A kind of fault fills one of them in."""

from collections.abc import Callable
from typing import ClassVar, Self

import msgspec

from amcast.swarm.cluster.calendar import MILLISECOND
from amcast.swarm.cluster.faults.drawing import LEADER, Drawing
from amcast.swarm.cluster.world import Seat, World


class Fault(msgspec.Struct, frozen=True, tag_field="fault"):
    """Something that happens once, at its time."""

    at: int

    def act(self, world: World) -> None:
        raise NotImplementedError

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        """Draw one of this kind; None if there is nobody whom it could befall."""
        raise NotImplementedError

    def harms(self) -> str:
        """Return the replica whose disk loses or changes what it had promised to keep, if any."""
        return ""


class Absence(Fault, frozen=True):
    """A replica ends and, after `down` ms, starts again."""

    node: str
    down: int

    def act(self, world: World) -> None:
        for seat in self.seats(world):
            self.end(world, seat)
            restart(world, seat, self.down)

    def seats(self, world: World) -> list[Seat]:
        return [seat_of(world, self.node)]

    def end(self, world: World, seat: Seat) -> None:
        raise NotImplementedError

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        details = cls.details(drawing)
        down = drawing.length()
        node = cls.whom(drawing)
        return cls(drawing.time(down), node, down, **details) if node is not None else None

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        """Draw the fields that this kind has besides."""
        return {}

    @classmethod
    def whom(cls, drawing: Drawing) -> str | None:
        return drawing.node()


class Damage(Absence, frozen=True):
    """A replica ends hard, something happens to its disk, and it starts again."""

    def end(self, world: World, seat: Seat) -> None:
        end_hard(world, seat, self.with_power())
        world.write_down(seat.name, self.spoil(seat))
        seat.reasons.add("harmed")

    def with_power(self) -> bool:
        """Return whether the power of the machine goes, too."""
        return True

    def spoil(self, seat: Seat) -> str:
        """Do harm to the disk; return what to write down."""
        raise NotImplementedError

    def harms(self) -> str:
        return self.node

    @classmethod
    def whom(cls, drawing: Drawing) -> str | None:
        return drawing.one_of(drawing.breakable) if drawing.breakable else None


class Spell(Fault, frozen=True):
    """Something is in force for `length` ms."""

    length: int

    def act(self, world: World) -> None:
        later(world, self.length, self.begin(world))

    def begin(self, world: World) -> Callable[[], None]:
        """Put it in force; return what ends it."""
        raise NotImplementedError

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        details = cls.details(drawing)
        length = drawing.length()
        return cls(drawing.time(length), length, **details)

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        raise NotImplementedError


class Aimed(Fault, frozen=True):
    """Something happens, `times` times, as soon as the world is in a certain state; from `at` until the calm.

    The state is looked at after every event: what takes microseconds is met as well.
    """

    PAUSE: ClassVar[int] = 20  # ms until it is looked for again

    times: int

    def act(self, world: World) -> None:
        self._watch(world, self.times)

    def _watch(self, world: World, left: int) -> None:
        def look() -> bool:
            if world.calm:
                return True
            seat = self.target(world)
            if seat is None:
                return False
            world.write_down(seat.name, f"is aimed at: {type(self).__name__}")
            self.strike(world, seat)
            if left > 1:
                later(world, self.PAUSE, lambda: self._watch(world, left - 1))
            return True

        world.calendar.watch(look)

    def target(self, world: World) -> Seat | None:
        """Return whom it strikes if the world is as it should be; None if it is not. Called often."""
        raise NotImplementedError

    def strike(self, world: World, seat: Seat) -> None:
        raise NotImplementedError


def seats_of(world: World, node: str) -> list[Seat]:
    """Return the replica of this name, or all that may be meant by 'leader of …'."""
    if not node.startswith(LEADER):
        return [world.seats[node]]
    return world.groups[node.removeprefix(LEADER)]


def seat_of(world: World, node: str) -> Seat:
    """Return the replica of this name, or who leads the group that is named, or else its first."""
    seats = seats_of(world, node)
    for seat in seats if len(seats) > 1 else ():
        if seat.node is not None and seat.node.leading.leads:
            return seat
    return seats[0]


def later(world: World, delay: int, act: Callable[[], None]) -> None:
    world.calendar.after(delay * MILLISECOND, act)


def restart(world: World, seat: Seat, down: int, *, rejoin: bool = False) -> None:
    """Start a replica after a while."""
    later(world, down, lambda: world.start(seat, rejoin=rejoin))


def end_hard(world: World, seat: Seat, power: bool) -> None:
    if power:
        world.cut_power(seat.host)
    else:
        world.kill(seat)
