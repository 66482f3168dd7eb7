"""Faults of disks: slow, full, failing, and those that lose or change what had been synced."""

from collections.abc import Callable
from typing import Final, Self

from amcast.protocols.white_box.probation import Probation
from amcast.swarm.cluster.calendar import MILLISECOND
from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.shapes import Damage, Fault, Spell, end_hard, later, restart, seat_of
from amcast.swarm.cluster.world import Seat, World

LOOK_EVERY: Final = 10  # ms, for whether the folder has become newer than its copy
OLDER_THAN_HEARD: Final = "older than others heard"
SLACK: Final = 200 * MILLISECOND  # after which others have surely heard of what was synced, if they hear anything


class SlowDisk(Spell, frozen=True, tag=True):
    """Every call of a disk takes much longer."""

    node: str
    factor: int

    def begin(self, world: World) -> Callable[[], None]:
        disk = seat_of(world, self.node).host.disk
        disk.slow = self.factor
        return lambda: setattr(disk, "slow", 1.0)

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"node": drawing.node(), "factor": drawing.one_of((10, 10, 100))}


class FullDisk(Spell, frozen=True, tag=True):
    """There is no room for bytes, or for names, for a while; then an operator makes some, and starts what stopped."""

    node: str
    names: bool

    def begin(self, world: World) -> Callable[[], None]:
        seat = seat_of(world, self.node)
        disk = seat.host.disk
        world.write_down(seat.name, "no room for another file" if self.names else "disk full")
        if self.names:
            disk.nameless = True
        else:
            disk.full = True
        seat.reasons.add("full")

        def make_room() -> None:
            world.write_down(seat.name, "room again")
            disk.full = disk.nameless = False
            world.start(seat)

        return make_room

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"node": drawing.node(), "names": drawing.chance(50)}


class FailSync(Fault, frozen=True, tag=True):
    """The next sync fails."""

    node: str

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        seat.host.disk.failing_sync += 1
        seat.reasons.add("failing")

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        return cls(drawing.time(1000), drawing.node())


class Flip(Damage, frozen=True, tag=True):
    """A bit flips on the disk of a replica that was killed, or whose power was cut."""

    power: bool

    def with_power(self) -> bool:
        return self.power

    def spoil(self, seat: Seat) -> str:
        return f"flipped {seat.host.disk.flip_bit()}"

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"power": drawing.chance(50)}


class LoseName(Damage, frozen=True, tag=True):
    """A file is gone from the disk of a replica that was killed, or whose power was cut."""

    power: bool

    def with_power(self) -> bool:
        return self.power

    def spoil(self, seat: Seat) -> str:
        return f"lost {seat.host.disk.lose_name()}"

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"power": drawing.chance(50)}


class LoseDisk(Damage, frozen=True, tag=True):
    """A machine gets an empty disk; its operator knows what to do, or is told."""

    knows: bool

    def spoil(self, seat: Seat) -> str:
        seat.host.disk.lose()
        seat.must_rejoin = seat.must_rejoin or self.knows
        return "disk lost"

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"knows": drawing.chance(50)}


class BrokenRejoin(Damage, frozen=True, tag=True):
    """A machine gets an empty disk; its `--rejoin` is killed, and what starts next is a plain start."""

    call: int  # of the disk, at which it dies; 0: after a time
    after: int
    power: bool

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        self.end(world, seat)
        later(world, self.down, lambda: self._rejoin(world, seat))

    def spoil(self, seat: Seat) -> str:
        seat.host.disk.lose()
        return "disk lost"

    def _rejoin(self, world: World, seat: Seat) -> None:
        world.start(seat, rejoin=True)
        if self.call and seat.life is not None:
            seat.life.files.disk.die_at(self.call, power=self.power)
        later(world, self.after, lambda: self._forget(world, seat))

    def _forget(self, world: World, seat: Seat) -> None:
        end_hard(world, seat, self.power)
        restart(world, seat, self.down)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        down, after = drawing.length(), drawing.length()
        node = cls.whom(drawing)
        call = drawing.call(15) if drawing.chance(50) else 0
        power = drawing.chance(50)
        return cls(drawing.time(2 * down + after), node, down, call, after, power) if node is not None else None


class OldFolder(Damage, frozen=True, tag=True):
    """An operator puts an older copy of the data folder back, after a crash, and says so with --rejoin, or does not."""

    age: int
    told: bool

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        disk, folder = seat.host.disk, seat.member.data
        try:
            copy = disk.copy(folder)
        except OSError:  # there is none yet
            return
        void = takes_no_part_yet(seat)
        was_older = OLDER_THAN_HEARD in seat.reasons
        synced = disk.shadow.promised(folder)
        promised = promised_by(seat)  # in the copy, so far as that can be told
        newer_at = -1  # when the replica had promised, and synced, something that the copy lacks
        told = False  # whether others have heard of it since then
        gone = False

        def look() -> None:
            nonlocal promised, newer_at, told
            now_promised = promised_by(seat)
            promised = now_promised if promised < 0 else promised
            if newer_at < 0 and now_promised > promised and disk.shadow.promised(folder) > synced:
                newer_at = world.calendar.now
            elif newer_at >= 0 and (probation := probation_of(seat)) is not None and probation.active:
                newer_at = world.calendar.now  # it asks others what they remember, and tells them nothing to remember
            if newer_at >= 0 and now_promised >= 0:
                heard = max(world.network.heard_at(seat.host.address, s.host.address) for s in world.seats.values())
                told = told or newer_at < heard - SLACK
            if not gone and not told:
                later(world, LOOK_EVERY, look)

        def put_back() -> None:
            nonlocal gone
            gone = True
            end_hard(world, seat, power=False)
            world.write_down(seat.name, f"data folder of {self.age} ms ago put back")
            disk.put_back(copy)
            seat.reasons |= {"harmed", "older"}
            seat.reasons.discard(OLDER_THAN_HEARD)  # what counts is the folder that is there now
            if not void and (told or was_older):
                seat.reasons.add(OLDER_THAN_HEARD)
            seat.must_rejoin = seat.must_rejoin or self.told
            restart(world, seat, self.down)

        look()
        later(world, self.age, put_back)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        down, age = drawing.length(), drawing.length()
        node = cls.whom(drawing)
        told = drawing.chance(50)  # else the operator forgets to say --rejoin, and others have to notice
        return cls(drawing.time(down + age), node, down, age, told) if node is not None else None


def promised_by(seat: Seat) -> int:
    """Return how many records of a replica others may count on; -1 while it does not run, or takes no part.

    Not all that it syncs is of that kind: what it heard of others it promised to nobody.
    """
    probation = probation_of(seat)
    if probation is None or seat.node is None or seat.node.durable_process().rejoining():
        return -1
    return probation.mark


def doubt_of(seat: Seat) -> set[int]:
    """Return whom a replica waits for, which must say that it forgot nothing. Empty if it does not."""
    probation = probation_of(seat)
    return set(probation.unanswered) if probation is not None and probation.active and not probation.void else set()


def probation_of(seat: Seat) -> Probation | None:
    process = seat.node.durable_process() if seat.node is not None else None
    probation = getattr(process, "probation", None)
    return probation if isinstance(probation, Probation) else None


def takes_no_part_yet(seat: Seat) -> bool:
    """Return whether a replica was started with --rejoin and has not taken part since.

    That is on its disk: whoever starts from there begins once more as one that lost its disk, and counts on nothing.
    """
    life = seat.life
    return life is not None and life.rejoins and life.node is not None and bool(life.node.durable_process().rejoining())
