"""Servers of AllConcur with eventual accuracy that come back: what they ask first, and whom they believe."""

from collections import deque
from collections.abc import Callable

import pytest

from amcast.core.capabilities import Durable
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage, Message
from amcast.protocols import protocol

SERVERS = 3
NAMES = ("allconcur_ea", "allconcur_plus_ea")


class Servers:
    """Three servers with disks; every message arrives, in order."""

    def __init__(self, table: Protocol) -> None:
        self.table = table
        self.records: list[list[bytes]] = [[] for _ in range(SERVERS)]
        self.delivered: list[list[int]] = [[] for _ in range(SERVERS)]
        self.said: list[str] = []  # names of messages
        self.under_way: deque[tuple[int, int, Message]] = deque()
        self.processes = [self.made(pid) for pid in range(SERVERS)]
        for pid in range(SERVERS):
            self.process(pid).start(0)
            self.act(pid)

    def made(self, pid: int) -> tuple[Process, Effects]:
        out = Effects()
        return self.table.make(pid, Topology((SERVERS,)), Params(1_000_000, durable=True), out), out

    def process(self, pid: int) -> Process:
        return self.processes[pid][0]

    def durable(self, pid: int) -> Durable:
        process: object = self.process(pid)
        assert isinstance(process, Durable)
        return process

    def act(self, pid: int) -> Effects:
        out = self.processes[pid][1]
        self.records[pid] += out.records
        for to, msg in out.sends:
            self.said.append(type(msg).__name__)
            self.under_way.extend((pid, dest, msg) for dest in to)
        self.delivered[pid] += [m.mid for m, _ in out.deliveries]
        seen = Effects(forgot=out.forgot, pulls=list(out.pulls))
        out.clear()
        return seen

    def settle(self, without: str = "") -> str:
        """Let all arrive but messages of this name; return why somebody must have forgotten something, if one has."""
        forgot = ""
        for _ in range(10_000):
            if not self.under_way:
                break
            sender, dest, msg = self.under_way.popleft()
            if type(msg).__name__ == without:
                continue
            self.process(dest).receive(1, sender, msg)
            forgot = forgot or self.act(dest).forgot
        return forgot

    def multicast(self, pid: int, seq: int) -> None:
        self.process(pid).multicast(1, AppMessage(message_id(pid, seq), (0,), b"payload"))
        self.act(pid)
        self.settle()

    def restart(self, pid: int, records: list[bytes], starts: int, clean: bool = True) -> None:
        """Replace a server by one with these records. It has said nothing that any other could hear yet."""
        self.processes[pid] = self.made(pid)
        self.delivered[pid] = []
        self.said = []
        self.durable(pid).recover(2, records, starts, clean)
        self.act(pid)

    def lose_disk(self, pid: int) -> None:
        """Replace a server by one that knows nothing."""
        self.processes[pid] = self.made(pid)
        self.delivered[pid] = []
        self.durable(pid).rejoin(2, 2)
        self.act(pid)


def asks_first(table: Protocol) -> None:
    """A server that restarts says nothing but its question before the others have answered."""
    servers = Servers(table)
    servers.multicast(0, 0)
    servers.restart(1, servers.records[1], 2)
    assert set(servers.said) == {"Back"}, servers.said
    assert servers.settle() == ""
    assert "Prepare" in servers.said, "it ends the eon in which it stopped"


def doubt_waits_for_all(table: Protocol) -> None:
    """A majority is enough after a suspicion time, but not for a server whose records may lack their end."""
    for clean in (True, False):
        servers = Servers(table)
        servers.multicast(0, 0)
        servers.restart(1, servers.records[1], 2, clean)
        servers.under_way = deque(some for some in servers.under_way if some[1] == 0)  # the third one is away
        servers.settle()
        assert servers.durable(1).rejoining()
        servers.process(1).timer(10**12, "beat")
        assert servers.durable(1).rejoining() != clean


def older_folder_is_found_out(table: Protocol) -> None:
    servers = Servers(table)
    older = list(servers.records[1])
    servers.multicast(0, 0)
    servers.multicast(2, 0)
    servers.restart(1, older, 2)
    assert "remembers eon 1, round" in servers.settle()


def snapshot_is_believed(table: Protocol) -> None:
    """What a snapshot says of rounds that were delivered is what others remember."""
    servers = Servers(table)
    servers.multicast(0, 0)
    servers.multicast(2, 0)
    servers.restart(1, servers.durable(1).snapshot(), 2)
    assert servers.settle() == ""


def all_come_back(table: Protocol) -> None:
    servers = Servers(table)
    servers.multicast(0, 0)
    servers.multicast(1, 0)
    before = list(servers.delivered[0])
    servers.under_way.clear()
    for pid in range(SERVERS):
        servers.restart(pid, servers.records[pid], 2)
    assert servers.settle() == ""
    servers.multicast(2, 0)
    servers.multicast(2, 1)
    assert before and servers.delivered[0][: len(before)] == before
    assert servers.delivered[0] == servers.delivered[1] == servers.delivered[2]
    assert message_id(2, 0) in servers.delivered[0]


def welcome_outlives_a_snapshot(table: Protocol) -> None:
    """A newcomer that copies what came before the eon to which it is welcome takes part in that eon."""
    servers = Servers(table)
    servers.multicast(0, 0)
    servers.multicast(1, 0)
    servers.lose_disk(2)
    servers.settle(without="Past")
    servers.process(2).timer(3, "beat")
    servers.act(2)
    servers.settle(without="Past")
    assert "Welcome" in servers.said
    assert servers.durable(2).rejoining()
    servers.durable(2).install(4, servers.durable(0).snapshot())
    servers.act(2)
    servers.settle()
    assert not servers.durable(2).rejoining(), "it is a member"
    servers.multicast(1, 1)
    assert servers.delivered[2] == [message_id(1, 1)]


def one_of_two_goes_on(table: Protocol) -> None:
    """Of two members one decides alone when the other one is out for good, and keeps what both delivered."""
    servers = Servers(table)
    servers.multicast(0, 0)
    servers.lose_disk(2)
    servers.settle(without="Past")  # now there are two
    servers.multicast(1, 0)
    servers.lose_disk(1)
    for _ in range(6):  # it asks one after the other
        servers.settle()
        servers.process(1).timer(3, "beat")
        servers.act(1)
    servers.settle()
    servers.multicast(0, 1)
    servers.multicast(1, 1)
    assert servers.delivered[0] == [message_id(0, 0), message_id(1, 0), message_id(0, 1), message_id(1, 1)]
    assert servers.delivered[1] == servers.delivered[0], "it is a member again"


STEPS = (
    asks_first,
    doubt_waits_for_all,
    older_folder_is_found_out,
    snapshot_is_believed,
    all_come_back,
    welcome_outlives_a_snapshot,
    one_of_two_goes_on,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", STEPS)
def test_steps(step: Callable[[Protocol], None], name: str) -> None:
    step(protocol(name))
