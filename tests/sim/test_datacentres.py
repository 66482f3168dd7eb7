"""The network of the AllConcur+ paper: windows, and queues that serve in the order of arrival."""

from itertools import pairwise
from typing import ClassVar

from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.wire import Background, Codec, Message
from amcast.sim.choices import Seeded
from amcast.sim.datacentres import FIBRE, NS_PER_BYTE, OVERHEAD, WINDOW, DataCentres
from amcast.sim.network import MICROSECOND
from amcast.sim.world import World

US = MICROSECOND
FAR, NEAR, HERE = 8, 1, 0  # servers: the first is in Stockholm, 8.9 ms from the two in Dublin


class Blob(Message):
    wire: ClassVar[dict[str, object]] = {"name": str, "payload": bytes}

    def __init__(self, name: str, payload: bytes) -> None:
        self.name = name
        self.payload = payload


class Beat(Background):
    wire: ClassVar[dict[str, object]] = {"name": str}

    def __init__(self, name: str) -> None:
        self.name = name


class Listener(Process):
    """Keeps what it hears, and when."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.heard: list[tuple[str, int]] = []

    def on_message(self, sender: int, msg: Message) -> None:
        assert isinstance(msg, (Blob, Beat))
        self.heard.append((msg.name, self.now))


class Wires:
    """Ten servers in five data centres, and what each sends when."""

    def __init__(self) -> None:
        table = Protocol(name="listener", title="", replica=Listener, client=Listener, messages=(Blob, Beat))
        self.world = World(table, Topology((10,), 0), DataCentres(10, 5), Seeded(1))

    def at(self, time: int, sender: int, to: tuple[int, ...], msg: Message) -> None:
        def send(world: World) -> None:
            world.processes[sender].send(to, msg)
            world.flush(sender)

        self.world.call(time, send)

    def heard(self, pid: int) -> list[tuple[str, int]]:
        """Run, and return what a server heard and when, in µs."""
        self.world.run()
        assert self.world.background == 0 and not self.world.stalled
        process = self.world.processes[pid]
        assert isinstance(process, Listener)
        return [(name, time // US) for name, time in process.heard]


def wire_us(payload: int) -> int:
    return (payload + OVERHEAD) * NS_PER_BYTE // US


def test_a_local_message_does_not_wait_behind_one_that_is_still_far_away() -> None:
    wires = Wires()
    wires.at(0, FAR, (HERE,), Blob("far", b"x" * 1000))
    wires.at(10 * US, NEAR, (HERE,), Blob("near", b"x" * 1000))
    heard = dict(wires.heard(HERE))
    assert heard["near"] < 100 and heard["far"] > FIBRE[4][0]


def test_who_is_held_up_by_a_window_does_not_hold_up_the_way_out_for_others() -> None:
    wires = Wires()
    for i in range(200):  # three windows: the last of them leave two round trips later
        wires.at(0, HERE, (FAR,), Blob(f"window {i}", b"x" * 1000))
    wires.at(10 * US, NEAR, (2,), Blob("other", b"x" * 1000))  # to London
    assert wires.heard(2)[0][1] < FIBRE[0][1] + 100


def test_a_card_receives_one_message_at_a_time() -> None:
    wires = Wires()
    for sender in range(2, 10):
        wires.at(FIBRE[4][0] * US - FIBRE[sender // 2][0] * US, sender, (HERE,), Blob(f"from {sender}", b"x" * 20_000))
    times = sorted(time for _, time in wires.heard(HERE))
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) == 7 and all(gap >= wire_us(20_000) for gap in gaps), "they arrive together"


def test_messages_of_a_connection_arrive_in_order_of_any_size() -> None:
    wires = Wires()
    for i in range(40):
        msg = Beat(f"{i:02}") if i % 4 == 2 else Blob(f"{i:02}", b"x" * (20_000 if i % 4 == 1 else 1))
        wires.at(0, FAR, (HERE, NEAR), msg)
    names = [name for name, _ in wires.heard(HERE)]
    assert names == sorted(names) and len(names) == 40


def windows(payload: int, count: int) -> list[int]:
    """Return when so many messages sent at once arrive from Dublin in London."""
    wires = Wires()
    for i in range(count):
        wires.at(0, HERE, (2,), Blob(f"{i}", b"x" * payload))
    return [time for _, time in wires.heard(2)]


def test_a_connection_between_data_centres_has_a_window_under_way() -> None:
    one_way = FIBRE[0][1]
    many = windows(1000, 200)
    fit = WINDOW // (Codec((Blob,)).size(Blob("0", b"x" * 1000)) + OVERHEAD)
    assert many[0] < one_way + 100 and many[fit - 1] < one_way + 700, "as fast as the card"
    assert 3 * one_way - 100 < many[2 * fit - 1] < 3 * one_way + 200, "the second window a round trip later"
    (large,) = windows(3 * WINDOW, 1)
    assert 5 * one_way < large < 5 * one_way + 2000, "three windows: two round trips, and one way"
