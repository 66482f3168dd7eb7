"""Guards the claims of chain.py and comparison.py: replicas that applied the same have equal chains whatever happened
to them, and one that differs is noticed; who differs from a majority stops, without one all stop, others never do."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pace import allow
from tests.runtime.nodes import SECONDS, cluster, logged, running, until

from amcast.core.application import Delivery
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage, joined
from amcast.errors import ReplicasDiffer
from amcast.runtime import chain as chains
from amcast.runtime.chain import Chain, Link
from amcast.runtime.comparison import MOST_AHEAD, TICKS_TO_AGREE, TICKS_TO_ARRIVE, Comparison, Statement
from amcast.runtime.config import ClusterConfig
from amcast.runtime.machine import Limits, Machine
from amcast.runtime.node import Node
from amcast.service import connect_sync


def message(number: int, payload: bytes = b"x") -> AppMessage:
    return AppMessage(message_id(7, number), (0,), payload)


def extended(chain: Chain, count: int, answer: Callable[[int], bytes] = lambda position: b"ok") -> Chain:
    for _ in range(count):
        chain.add(message(chain.position), chain.position, answer(chain.position))
    return chain


def test_the_same_deliveries_give_the_same_chain_also_over_snapshots() -> None:
    one, other = extended(Chain(), 50), extended(Chain(), 20)
    end = other.end
    other = extended(Chain(end.position, end.since, end.value), 30)
    assert one.end == other.end == Link(50, 0, one.value)
    assert one.at(33) == other.at(33) != one.at(34)
    assert one.at(51) is None and other.at(19) is None and other.at(20) == one.at(20)


@pytest.mark.parametrize(
    "change",
    [
        lambda chain: chain.add(message(5), 5, b"no"),
        lambda chain: chain.add(message(6), 5, b"ok"),
        lambda chain: chain.add(message(5, b"y"), 5, b"ok"),
        lambda chain: chain.add(message(5), 6, b"ok"),
        lambda chain: chain.add(message(5, b"xo"), 5, b"k"),
    ],
    ids=["answer", "message", "payload", "place", "where the payload ends"],
)
def test_whatever_differs_changes_the_chain_for_good(change: Callable[[Chain], None]) -> None:
    one, other = extended(Chain(), 6), extended(Chain(), 5)
    change(other)
    assert one.position == other.position and one.value != other.value
    assert extended(one, 100).value != extended(other, 100).value


def test_what_travelled_as_one_is_one_link() -> None:
    one, other = Chain(), Chain()
    batch = AppMessage(message_id(7, 0), (0,), joined([b"a", b"b", b"c"]), count=3)
    one.add(batch, 1, b"")
    extended(other, 3)
    assert one.position == 3
    assert [one.at(position) for position in (1, 2)] == [Link(1, 0, 0), Link(2, 0, 0)]
    assert one.at(1) != other.at(1)


def test_chains_from_data_without_one_can_be_compared_from_some_position_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "ANEW", 100)
    whole, some = Chain(), [Chain(17), Chain(60), Chain(130)]
    extended(whole, 350)
    for chain in some:
        extended(chain, 350 - chain.position)
    assert {chain.end for chain in some} == {Link(350, 300, some[0].value)} and whole.since == 0
    first, second, third = some
    assert first.at(90) != second.at(90) and first.at(200) == second.at(200) != third.at(200)
    assert [chain.at(201) for chain in some] == [first.at(201)] * 3


def test_only_the_newest_links_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "KEPT", 64)
    monkeypatch.setattr(chains, "ANEW", 32)
    chain = extended(Chain(5), 1000)
    assert 64 <= chain.position - chain.earliest <= 128 and chain.at(chain.earliest - 1) is None
    fresh = extended(Chain(900), 105)
    assert chain.at(1000) == fresh.at(1000) and chain.at(chain.earliest) is not None
    assert len(chain._beginnings) < 8


# Comparisons among simulated members


class Group:
    """Members that tell each other what they have, at moments drawn at random."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.choose = random.Random(seed)
        self.mail: list[tuple[int, int, Statement]] = []
        self.up = set(range(size))
        self.stopped: dict[int, str] = {}
        self.named: set[tuple[int, str]] = set()
        self.members = [Peer(self, pid) for pid in range(size)]
        names = {pid: f"g0/{pid}" for pid in range(size)}
        for peer in self.members:
            peer.comparison = Comparison(peer, "g0", peer.pid, names, size // 2 + 1)

    def act(self, pid: int, what: Callable[[Comparison], None]) -> None:
        if pid in self.up:
            try:
                what(self.members[pid].comparison)
            except ReplicasDiffer as error:
                self.stopped[pid] = str(error)
                self.up.discard(pid)

    def run(self, ticks: int = TICKS_TO_AGREE + 3) -> None:
        for _ in range(ticks):
            pids = list(range(len(self.members)))
            self.choose.shuffle(pids)
            for pid in pids:
                self.act(pid, lambda comparison: comparison.tick())
                while self.mail and self.choose.random() < 0.8:
                    self.deliver()
            while self.mail:
                self.deliver()

    def deliver(self) -> None:
        sender, to, statement = self.mail.pop(self.choose.randrange(len(self.mail)))
        self.act(to, lambda comparison: comparison.hear(sender, statement))


class Peer:
    comparison: Comparison

    def __init__(self, group: Group, pid: int) -> None:
        self.group = group
        self.pid = pid
        self.chain = Chain()

    def state(self, pid: int, statement: Statement) -> bool:
        if pid in self.group.up:
            self.group.mail.append((self.pid, pid, statement))
        return pid in self.group.up

    def differs(self, name: str, position: int) -> None:
        self.group.named.add((self.pid, name))


def grown(seed: int, size: int, odd: dict[int, bytes]) -> Group:
    """Members at different positions, of which some answered otherwise at position 10."""
    group = Group(size, seed)
    for peer in group.members:
        wrong = odd.get(peer.pid, b"ok")
        extended(peer.chain, 20 + group.choose.randrange(30), lambda position, a=wrong: a if position == 10 else b"ok")  # type: ignore[misc]
    return group


@pytest.mark.parametrize("seed", range(30))
def test_who_differs_from_a_majority_stops_and_nobody_else(seed: int) -> None:
    for size, odd in ((3, {1: b"no"}), (5, {0: b"no", 3: b"nay"}), (5, {2: b"no", 4: b"no"}), (3, {}), (2, {})):
        group = grown(seed, size, odd)
        group.run(TICKS_TO_ARRIVE + 5)
        assert set(group.stopped) == set(odd), (size, group.stopped)
        assert all("a majority" in text and "--rejoin" in text for text in group.stopped.values())
        assert {name for _, name in group.named} <= {f"g0/{pid}" for pid in odd}


@pytest.mark.parametrize("seed", range(10))
def test_without_a_majority_all_stop(seed: int) -> None:
    for size, odd in ((2, {0: b"no"}), (3, {0: b"no", 1: b"nay"}), (4, {0: b"no", 1: b"no"})):
        group = grown(seed, size, odd)
        group.run()
        assert set(group.stopped) == set(range(size))
        assert all("no majority agrees" in text for text in group.stopped.values())


@pytest.mark.parametrize("seed", range(10))
def test_two_that_differ_wait_for_the_third_but_not_for_ever(seed: int) -> None:
    group = grown(seed, 3, {1: b"no"})
    group.up.discard(2)
    group.run(TICKS_TO_AGREE - 2)
    assert not group.stopped
    group.up.add(2)
    group.members[0].comparison.connected(2)
    group.run()
    assert set(group.stopped) == {1}
    group = grown(seed, 3, {1: b"no"})
    group.up.discard(2)
    group.run()
    assert set(group.stopped) == {0, 1} and "g0/2 unknown" in group.stopped[0]


@pytest.mark.parametrize("seed", range(10))
def test_who_is_behind_is_judged_when_it_gets_there(seed: int) -> None:
    group = grown(seed, 3, {})
    late = group.members[1]
    late.chain = extended(Chain(), 5)
    group.run()
    assert not group.stopped
    extended(late.chain, 60, lambda position: b"no" if position == 6 else b"ok")
    group.run()
    assert set(group.stopped) == {1}


def test_a_new_connection_is_told_again() -> None:
    group = grown(0, 3, {})
    group.run(2)
    assert not group.mail
    group.members[0].comparison.tick()
    assert not group.mail
    group.members[0].comparison.connected(1)
    group.members[0].comparison.tick()
    assert [(sender, to) for sender, to, _ in group.mail] == [(0, 1)]


def test_what_cannot_be_compared_is_let_be() -> None:
    group = Group(3)
    comparison = group.members[0].comparison
    extended(group.members[0].chain, 10)
    comparison.hear(1, Statement(Link(5, 3, 99)))  # a chain that begins elsewhere
    comparison.hear(9, Statement(Link(5, 0, 99)))  # nobody of this group
    for position in range(20, 20 + 3 * MOST_AHEAD):
        comparison.hear(1, Statement(Link(position, 0, 99)))
    assert not comparison._disputes and len(comparison._ahead[1]) == MOST_AHEAD
    comparison.hear(1, Statement(Link(5, 0, 99)))
    assert list(comparison._disputes) == [5]


# In a real cluster


class Counting:
    """An application that answers how much it applied; `odd` makes it answer otherwise from a position on."""

    def __init__(self, group: int, groups: int) -> None:
        self.count = 0
        self.odd: int | None = None
        self.answer = b""

    def apply(self, delivery: Delivery) -> bytes:
        self.count += 1
        return self.answer if self.odd is not None and delivery.position >= self.odd else b"%d" % self.count

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, state: bytes) -> None:
        self.count = int(state)


OFTEN = Machine(limits=Limits(compare_every=0.05))
NEVER = Machine(limits=Limits(compare_every=3600.0))


def multicast(config: ClusterConfig, count: int) -> None:
    with connect_sync(config.path, "dev", deadline=allow(SECONDS)) as client:
        for number in range(count):
            client.multicast(["g0"], b"%d" % number)


def make_odd(node: Node, position: int, answer: bytes = b"odd") -> None:
    app = node.app.app if node.app is not None else None
    assert isinstance(app, Counting)
    app.odd, app.answer = position, answer


def test_a_replica_whose_application_differs_stops_and_the_others_go_on(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    with pytest.raises(ReplicasDiffer, match=r"g0/1 stopped: .* something else than g0/0 and g0/2, a majority"):
        with running(config, app=Counting, machine=OFTEN) as nodes:
            multicast(config, 5)
            make_odd(nodes["g0/1"], 7)
            multicast(config, 5)
            assert until(lambda: all(node.chain.position > 7 for node in nodes.values()))
            assert nodes["g0/0"].chain.at(7) == nodes["g0/1"].chain.at(7)
            assert nodes["g0/0"].chain.at(8) == nodes["g0/2"].chain.at(8) != nodes["g0/1"].chain.at(8)
            assert until(lambda: "stopping" in logged(nodes["g0/1"]))
            multicast(config, 5)
            assert until(lambda: any("replica differs" in logged(nodes[name]) for name in ("g0/0", "g0/2")))
            assert nodes["g0/0"].history.end == 15
            assert not any("stopping" in logged(nodes[name]) for name in ("g0/0", "g0/2"))


def test_what_was_applied_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """The replica that differed is in order again after a restart, but what it has on disk is not."""
    config = cluster(tmp_path / "c")
    with running(config, app=Counting, machine=NEVER) as nodes:
        make_odd(nodes["g0/2"], 2)
        multicast(config, 5)
        assert until(lambda: {node.history.end for node in nodes.values()} == {5})
    with pytest.raises(ReplicasDiffer, match="g0/2 stopped: up to position 5 of g0"):
        with running(config, app=Counting, machine=OFTEN) as nodes:
            assert until(lambda: "stopping" in logged(nodes["g0/2"]))
            assert not any("stopping" in logged(nodes[name]) for name in ("g0/0", "g0/1"))


def test_where_no_two_agree_all_stop(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    with pytest.raises(ReplicasDiffer, match="no majority agrees"):
        with running(config, app=Counting, machine=OFTEN) as nodes:
            for number, node in enumerate(nodes.values()):
                make_odd(node, 0, b"odd %d" % number)
            multicast(config, 1)
            assert until(lambda: all("stopping" in logged(node) for node in nodes.values()))


def test_equal_replicas_go_on_through_restarts(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    for life in range(3):
        with running(config, app=Counting, machine=OFTEN) as nodes:
            multicast(config, 20)
            assert until(lambda: {node.history.end for node in nodes.values()} == {20 + 20 * life})  # noqa: B023
            assert until(lambda: all(node.exchange._told_on for node in nodes.values()))
            assert len({node.chain.end for node in nodes.values()}) == 1
            assert nodes["g0/0"].chain.since == 0, "the chain began anew"
