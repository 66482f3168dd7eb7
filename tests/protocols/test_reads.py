"""A leader that answers reads outside of the order is confirmed by a quorum, and waits for what it has inherited."""

from collections import deque

from amcast.core.process import Effects, Params
from amcast.core.requests import Multicast
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage, Message
from amcast.protocols.white_box import replica

UNDER_TEST = replica.WhiteBox


class Group:
    """Three replicas whose messages are moved by hand."""

    def __init__(self) -> None:
        topology = Topology((3,))
        self.outs = [Effects() for _ in range(3)]
        self.replicas = [UNDER_TEST(pid, topology, Params(1_000_000), out) for pid, out in enumerate(self.outs)]
        self.channels: dict[tuple[int, int], deque[Message]] = {(a, b): deque() for a in range(3) for b in range(3)}
        self.confirmed: list[tuple[int, int]] = []
        self.now = 0
        for one in self.replicas:
            one.start(0)
        self.collect()

    def collect(self) -> None:
        for pid, out in enumerate(self.outs):
            for to, msg in out.sends:
                for other in to:
                    if other < 3:
                        self.channels[pid, other].append(msg)
            self.confirmed += [(pid, number) for number in out.confirmed]
            out.clear()

    def run(self, *but: int, without: tuple[str, ...] = ()) -> None:
        """Deliver all, but to and from these, and but such messages, which stay."""
        moved = True
        while moved:
            moved = False
            for (sender, to), channel in self.channels.items():
                if sender in but or to in but:
                    continue
                kept = [msg for msg in channel if type(msg).__name__ in without]
                taken = [msg for msg in channel if type(msg).__name__ not in without]
                channel.clear()
                channel.extend(kept)
                for msg in taken:
                    moved = True
                    self.replicas[to].receive(self.now, sender, msg)
                    self.collect()

    def multicast(self, seq: int) -> None:
        for pid in range(3):
            self.replicas[pid].receive(self.now, 9, Multicast(AppMessage(message_id(9, seq), (0,), b"x")))
        self.collect()

    def ask(self, pid: int, number: int) -> None:
        self.replicas[pid].confirm(self.now, number)
        self.collect()


def test_a_quorum_confirms_and_less_does_not() -> None:
    group = Group()
    group.ask(0, 1)
    assert group.confirmed == []
    group.run(2)
    assert group.confirmed == [(0, 1)]
    group.run()
    group.ask(1, 2)
    sent = [type(msg).__name__ for channel in group.channels.values() for msg in channel]
    assert "Confirm" not in sent, "a follower asks nobody"
    group.run()
    assert group.confirmed == [(0, 1)]


def test_a_leader_that_is_deposed_and_does_not_know_is_not_confirmed() -> None:
    group = Group()
    group.replicas[1].suspect(group.now)
    group.collect()
    group.run(0)
    assert group.replicas[1].leads() and group.replicas[0].leads()
    group.ask(0, 1)
    for _ in range(2):  # the question and the answers overtake what would depose it
        for (sender, to), channel in group.channels.items():
            for msg in [msg for msg in channel if type(msg).__name__ == "Confirm"]:
                channel.remove(msg)
                group.replicas[to].receive(group.now, sender, msg)
        group.collect()
    assert group.confirmed == []
    group.run()
    assert group.confirmed == []
    group.ask(1, 2)
    group.run()
    assert group.confirmed == [(1, 2)]


def test_a_new_leader_waits_for_what_it_has_inherited() -> None:

    group = Group()
    group.multicast(0)
    group.run(without=("Deliver",))  # accepted everywhere; the leader may have answered
    for channel in group.channels.values():
        channel.clear()
    group.replicas[1].suspect(group.now)
    group.collect()
    group.run(0, without=("Accept",))
    assert group.replicas[1].leads() and group.replicas[1].position() == 0
    group.ask(1, 5)
    group.run(0, without=("Accept",))
    assert group.confirmed == [], "what the former leader may have answered is not delivered here"
    group.run(0)
    assert group.replicas[1].position() == 1 and group.confirmed == [(1, 5)]
