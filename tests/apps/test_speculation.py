"""An application that sees optimistic deliveries answers early, undoes what was wrong, and ends as if it had waited."""

from amcast.apps.auction import Auction
from amcast.core.application import Delivery, Speculator
from amcast.core.process import Params
from amcast.core.topology import Topology
from amcast.core.trace import Event, Recorder
from amcast.protocols import protocol
from amcast.protocols.optimistic.options import Options
from amcast.sim.choices import Seeded
from amcast.sim.network import MILLISECOND, ExponentialTail
from amcast.sim.relation import configured
from amcast.sim.world import World

LOTS = 3


def bid(message: str, payload: bytes) -> Delivery:
    return Delivery("g0", 0, (0, "g0"), message, message.split(":")[0], ("g0",), payload)


class Replicas(Recorder):
    """Every process runs the auction twice: one speculates, one waits for the order."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: dict[str, bytes] = {}
        self.speculating: dict[str, Speculator] = {}
        self.waiting: dict[str, Auction] = {}
        self.answers: dict[str, list[tuple[bytes, bytes]]] = {}

    def record(self, event: Event) -> None:
        if event.kind not in ("optdeliver", "deliver") or event.message is None:
            return
        delivery = bid(event.message, self.payloads[event.message])
        speculator = self.speculating.setdefault(event.process, Speculator(Auction()))
        if event.kind == "optdeliver":
            speculator.optimistic(delivery)
        else:
            right = self.waiting.setdefault(event.process, Auction()).apply(delivery)
            self.answers.setdefault(event.process, []).append((speculator.apply(delivery), right))
            assert not speculator.guesses or len(speculator.guesses) < 200


def auction(window: int, bids: int = 300) -> Replicas:
    replicas = Replicas()
    choices = Seeded(5)
    topology = Topology((3, 3))
    world = World(
        configured(protocol("optimistic"), Options(window=window)), topology,
        ExponentialTail(MILLISECOND // 2, MILLISECOND // 5), choices, params=Params(MILLISECOND), recorder=replicas,
    )  # fmt: skip

    def make_bid(world: World) -> None:
        pid = choices.below(6)
        payload = f"{choices.below(LOTS)}:{1 + choices.below(50)}".encode()
        replicas.payloads[f"{topology.name(pid)}:{world.next_seq[pid]}"] = payload
        world.multicast(pid, (0, 1), payload)

    for _ in range(bids):
        world.call(choices.below(bids * MILLISECOND), make_bid)
    world.run()
    assert not world.stalled
    return replicas


def test_speculation_ends_as_if_there_were_none() -> None:
    replicas = auction(window=MILLISECOND // 4)
    assert len(replicas.speculating) == 6
    for process, speculator in replicas.speculating.items():
        assert [early for early, _ in replicas.answers[process]] == [right for _, right in replicas.answers[process]]
        assert speculator.snapshot() == replicas.waiting[process].snapshot()
        assert speculator.confirmed > 200 and 0 < speculator.rollbacks <= speculator.executed_again


def test_a_wider_window_spares_rollbacks() -> None:
    narrow, wide = (
        sum(speculator.rollbacks for speculator in auction(window).speculating.values())
        for window in (MILLISECOND // 4, 2 * MILLISECOND)
    )
    assert wide < narrow / 4


def test_undone_and_executed_again() -> None:
    speculator = Speculator(Auction())
    assert speculator.optimistic(bid("a:0", b"x:5")) == b"leads"
    assert speculator.optimistic(bid("b:0", b"x:5")) == b"too low"
    certain = Speculator(Auction()).snapshot()
    assert speculator.snapshot() == certain
    assert speculator.apply(bid("b:0", b"x:5")) == b"leads"
    assert (speculator.rollbacks, speculator.executed_again, speculator.confirmed) == (1, 1, 0)
    assert speculator.guesses[0].answer == b"too low"
    assert speculator.apply(bid("a:0", b"x:5")) == b"too low"
    assert (speculator.rollbacks, speculator.confirmed) == (1, 1)


def test_delivered_without_a_guess() -> None:
    speculator = Speculator(Auction())
    assert speculator.apply(bid("a:0", b"x:5")) == b"leads"
    assert (speculator.rollbacks, speculator.confirmed) == (0, 0)


def test_a_guess_that_will_never_come_is_undone() -> None:
    """As if it had never been executed: what follows it is executed again."""
    speculator, waits = Speculator(Auction()), Auction()
    first, lost, last = bid("g0/0:0", b"0:5"), bid("g0/1:0", b"0:9"), bid("g0/2:0", b"0:7")
    for guess in (first, lost, last):
        speculator.optimistic(guess)
    speculator.undo("g0/1:0")
    speculator.undo("g0/1:9")  # never guessed
    assert (speculator.rollbacks, speculator.executed_again) == (1, 1)
    assert [speculator.apply(delivery) for delivery in (first, last)] == [waits.apply(first), waits.apply(last)]
    assert speculator.confirmed == 2 and not speculator.guesses and speculator.snapshot() == waits.snapshot()
