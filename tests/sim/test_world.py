"""Channels, faults and costs of the simulator, seen through a protocol that only counts."""

from typing import ClassVar

import pytest

from amcast.core.capabilities import Durable
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology, message_id
from amcast.core.trace import ListRecorder
from amcast.core.wire import AppMessage, Message
from amcast.errors import UsageError
from amcast.sim.choices import Seeded
from amcast.sim.faults import Crash, Heal, Partition, Pause, Restart, SlowLink
from amcast.sim.network import (
    MILLISECOND,
    Constant,
    Costs,
    ExponentialTail,
    Network,
    Sites,
    Uniform,
    nanoseconds,
    parse_network,
)
from amcast.sim.world import World

MS = MILLISECOND


class Number(Message):
    wire: ClassVar[dict[str, object]] = {"n": int}

    def __init__(self, n: int) -> None:
        self.n = n


class Counter(Process, Durable):
    """Sends its next number to everybody each millisecond, keeps what it hears, makes each number durable."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.sent = 0
        self.heard: list[tuple[int, int, int]] = []  # when, sender, number
        self.peers = tuple(p for p in range(topology.replicas) if p != pid)

    def on_start(self) -> None:
        self.set_timer("next", MS, MS)

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        self.sent = len(records)
        self.on_start()

    def position(self) -> int:
        return 0

    def on_timer(self, name: str) -> None:
        if self.sent < 20:
            self.sent += 1
            self.out.records.append(b"%d" % self.sent)
            self.out.urgent = True
            self.send(self.peers, Number(self.sent))
            self.set_timer("next", MS, MS)

    def on_message(self, sender: int, msg: Message) -> None:
        assert isinstance(msg, Number)
        self.heard.append((self.now, sender, msg.n))

    def idle(self) -> bool:
        return False


def world(network: Network | None = None, replicas: int = 3, costs: Costs | None = None, seed: int = 1) -> World:
    table = Protocol(name="counter", title="", replica=Counter, client=Counter, messages=(Number,))
    topology = Topology((replicas,), 0)
    return World(table, topology, network or Constant(MS), Seeded(seed), costs=costs, skew=[0] * replicas)


def heard(w: World, pid: int, sender: int) -> list[int]:
    process = w.processes[pid]
    assert isinstance(process, Counter)
    return [n for _, s, n in process.heard if s == sender]


def times(w: World, pid: int, sender: int) -> list[int]:
    process = w.processes[pid]
    assert isinstance(process, Counter)
    return [when // MS for when, s, _ in process.heard if s == sender]


EVERY = list(range(1, 21))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("network", [Uniform(0, 9 * MS), ExponentialTail(MS, 3 * MS)], ids=["uniform", "tail"])
def test_channels_are_fifo_and_lose_nothing(network: Network, seed: int) -> None:
    w = world(network, seed=seed)
    w.run()
    for p in range(3):
        for q in range(3):
            if p != q:
                assert heard(w, p, q) == EVERY


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mid_step", [False, True])
def test_a_crash_loses_a_suffix_on_each_channel(seed: int, mid_step: bool) -> None:
    w = world(Uniform(0, 9 * MS), replicas=5, seed=seed)
    w.at(10 * MS, Crash(0, mid_step))
    w.run()
    for p in range(1, 5):
        got = heard(w, p, 0)
        assert got == EVERY[: len(got)]
    assert not w.up(0)


def test_crashes_in_a_broadcast_reach_some_and_not_others() -> None:
    """Sometimes: over the seeds, the last broadcast of a crashing process arrives at a proper subset."""
    partial = 0
    for seed in range(20):
        w = world(replicas=5, seed=seed)
        w.at(10 * MS + 1, Crash(0, mid_step=True))
        w.run()
        lengths = {len(heard(w, p, 0)) for p in range(1, 5)}
        partial += len(lengths) > 1
    assert partial > 5


def test_a_paused_process_catches_up_when_it_resumes() -> None:
    w = world()
    w.at(5 * MS + 1, Pause(1, 10 * MS))
    w.run()
    assert heard(w, 1, 0) == EVERY
    assert times(w, 1, 0)[4:14] == [15] * 10


def test_what_arrives_at_the_moment_of_the_resume_is_handled_after_what_waited() -> None:
    w = world()
    w.at(5 * MS + 1, Pause(1, 10 * MS - 1))
    w.run()
    assert heard(w, 1, 0) == EVERY


def test_a_crash_and_a_restart_lose_a_suffix_of_what_was_sent_before_also_of_what_a_partition_held() -> None:
    w = world()
    w.at(5 * MS + 1, SlowLink(0, 1, 20 * MS))  # 6 and 7 are under way for long
    w.at(7 * MS + 1, Partition((0,)))  # 8 and 9 are held back
    w.at(9 * MS + 1, Crash(0))
    w.at(9 * MS + 2, Restart(0))
    w.at(10 * MS, Heal())
    w.run()
    assert heard(w, 1, 0) == [1, 2, 3, 4, 5, *range(10, 21)]


def test_a_run_does_not_end_while_an_action_is_to_come() -> None:
    """Messages that a partition holds back, heartbeats among them, hide nothing that is still planned."""
    done: list[int] = []
    w = world(replicas=2)
    w.at(MS, Partition((0,)))
    w.call(500 * MS, lambda w: done.append(int(w.now)))
    w.run()
    assert done == [500 * MS]


def test_a_partition_holds_messages_back_until_it_heals() -> None:
    w = world()
    w.at(5 * MS + 1, Partition((0,)))
    w.at(12 * MS + 1, Heal())
    w.run()
    assert heard(w, 1, 0) == heard(w, 0, 1) == EVERY
    assert times(w, 1, 0)[5:12] == [13] * 7
    assert times(w, 0, 1)[5:12] == [13] * 7
    assert times(w, 1, 2) == list(range(2, 22))


def test_a_one_way_partition_leaves_the_other_way_open() -> None:
    w = world()
    w.at(5 * MS + 1, Partition((0,), one_way=True))
    w.at(12 * MS + 1, Heal())
    w.run()
    assert times(w, 1, 0)[5:12] == [13] * 7
    assert times(w, 0, 1) == list(range(2, 22))


def test_a_slow_link_stays_fifo() -> None:
    w = world()
    w.at(5 * MS + 1, SlowLink(0, 1, 7 * MS))
    w.at(9 * MS + 1, Heal())
    w.run()
    assert heard(w, 1, 0) == EVERY
    assert times(w, 1, 0)[5] == 14
    assert times(w, 1, 0) == sorted(times(w, 1, 0))


def test_a_restarted_process_goes_on_from_what_it_made_durable() -> None:
    w = world()
    w.at(5 * MS + 1, Crash(0))
    w.at(30 * MS, Restart(0))
    w.run()
    got = heard(w, 1, 0)
    assert got[-15:] == list(range(6, 21))
    assert times(w, 1, 0)[-15] == 32


def test_what_arrives_while_busy_is_handled_together() -> None:
    """Natural batching: with 3 ms of CPU per message from two senders, a process handles what piled up as one."""
    w = world(costs=Costs(receive=3 * MS, send=0, bytes_per_second=0))
    w.run()
    arrivals = times(w, 0, 1)
    assert heard(w, 0, 1) == EVERY
    assert len(set(arrivals)) < 10
    assert w.deepest_inbox > 10


def test_the_network_card_serialises_what_it_transmits() -> None:
    fast = world(costs=Costs(0, 0, 10**9))
    slow = world(costs=Costs(0, 0, 4_000))
    fast.run()
    slow.run()
    assert times(fast, 1, 0) == list(range(2, 22))
    assert times(slow, 1, 0)[-1] > 100


def test_sites_have_their_own_delays() -> None:
    w = world(Sites([0, 0, 1], [[MS, 5 * MS], [5 * MS, MS]]))
    w.run()
    assert times(w, 1, 0)[0] == 2
    assert times(w, 2, 0)[0] == 6


def test_a_skewed_clock_shifts_what_a_process_sees() -> None:
    table = Protocol(name="counter", title="", replica=Counter, client=Counter, messages=(Number,))
    w = World(table, Topology((2,)), Constant(MS), Seeded(1), skew=[0, 40 * MS])
    w.run()
    assert times(w, 1, 0)[0] == 42
    assert times(w, 0, 1)[0] == 2


def test_a_message_to_oneself_is_an_event_of_its_own_without_delay() -> None:
    class Selfish(Counter):
        def on_start(self) -> None:
            self.send((self.pid,), Number(1))
            self.heard.append((self.now, -1, 0))

    table = Protocol(name="selfish", title="", replica=Selfish, client=Selfish, messages=(Number,))
    w = World(table, Topology((2,)), Constant(MS), Seeded(1), recorder=ListRecorder(full=True))
    w.run()
    process = w.processes[0]
    assert isinstance(process, Counter)
    assert process.heard == [(0, -1, 0), (0, 0, 1)]


@pytest.mark.parametrize(
    ("text", "expected"), [("50ms", 50 * MS), ("1.5s", 1500 * MS), ("200us", 200_000), ("7ns", 7), ("0s", 0)]
)
def test_times(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "ms", "-1ms", "5 minutes", "1e400s", "nans", "infs", "1.2.3ms"])
def test_bad_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a number and a unit"):
        nanoseconds(text)


@pytest.mark.parametrize(
    "text", ["", "constant", "constant:1ms,2ms", "uniform:1ms", "lan:1ms", "token-ring", "constant:0ms"]
)
def test_bad_networks_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse_network(text, Topology((3,), 1))


def test_application_messages_compare_by_value() -> None:
    assert AppMessage(message_id(1, 2), (0,), b"x") == AppMessage(message_id(1, 2), (0,), b"x")
    assert AppMessage(message_id(1, 2), (0,), b"x") != AppMessage(message_id(1, 2), (0,), b"y")
