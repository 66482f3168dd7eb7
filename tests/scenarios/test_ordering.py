"""The adversarial scenarios of fifo and causal multicast, with golden transcripts."""

import tracemalloc
from collections.abc import Callable

import pytest

from amcast.checks import check
from amcast.checks.refusals import without_withdrawn
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Reply
from amcast.core.topology import Mid, Topology, message_id, sender_of
from amcast.core.wire import AppMessage, Background
from amcast.protocols import protocol
from amcast.runtime.serving import session_of
from amcast.sim.script import NEVER, Script
from amcast.swarm.adversary.seeds import run_adversary_seed
from tests.scenarios.golden import compare, transcript

UNDER_TEST: dict[str, Protocol] = {name: protocol(name) for name in ("fifo", "causal", "causal_stable")}
SENDERS_CRASH = ("fifo_copy_in_an_ok", "fifo_refused_and_void_reaches_one")  # of all messages: nothing is due
# What the adversary found of issue 18, P-13: seeds at which a client was silenced by a refusal (fifo, causal), made
# others wait (causal 35), multicast what was given up (causal_stable 5), or waited for a group that was gone (654).
MENDED = [
    ("fifo", 5),
    ("fifo", 94),
    ("causal", 35),
    ("causal_stable", 5),
    ("causal_stable", 20),
    ("causal_stable", 654),
]
SCENARIOS: dict[str, tuple[str, Callable[[Protocol], Script]]] = {}
STEPS: dict[str, Callable[[Protocol], None]] = {}  # of one process alone


def scenario(name: str) -> Callable[[Callable[[Protocol], Script]], Callable[[Protocol], Script]]:
    """A scenario of this protocol."""

    def put(build: Callable[[Protocol], Script]) -> Callable[[Protocol], Script]:
        SCENARIOS[build.__name__] = (name, build)
        return build

    return put


@scenario("fifo")
def fifo_lost_predecessor(table: Protocol) -> Script:
    """Figure 1: m1 to g1 is lost, m2 to both reaches g0 only. Everybody learns of m2, nobody may deliver it."""
    s = Script(table, (2, 2), heartbeat=5)
    s.delay("c0", "g1/0", None, NEVER)
    s.delay("c0", "g1/1", None, NEVER)
    s.at(1, lambda: (s.multicast("c0", 1), s.multicast("c0", 0, 1), s.crash("c0", lose=False)))
    s.at(2, lambda: s.multicast("c1", 0, 1))
    s.run()
    assert all(s.deliveries(p) == ["c1:0"] for p in ("g0/0", "g0/1", "g1/0", "g1/1"))
    assert s.world.processes[2].footprint() == 1
    return s


@scenario("fifo")
def fifo_overtaken(table: Protocol) -> Script:
    """m2 arrives before m1: it is relayed, and gets its OKs when m1 is delivered."""
    s = Script(table, (2, 1))
    s.delay("c0", "g0/0", "Cast", 10)
    s.delay("c0", "g0/1", "Cast", 10)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(2, lambda: (s.network.rules.clear(), s.multicast("c0", 0, 1)))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["c0:0", "c0:1"]
    return s


@scenario("fifo")
def fifo_group_dies(table: Protocol) -> Script:
    """A destination group dies as a whole: the other one delivers when Θ trusts nobody there."""
    s = Script(table, (2, 2), heartbeat=5)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(1.5, lambda: s.crash("g1/0", "g1/1"))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["c0:0"]
    assert s.latency("g0/0", "c0:0") > 20
    return s


@scenario("fifo")
def fifo_copy_in_an_ok(table: Protocol) -> Script:
    """Only one member receives m before its sender crashes, and says OK to one: that is enough."""
    s = Script(table, (3,), heartbeat=5)
    s.delay("c0", "g0/1", None, NEVER)
    s.delay("c0", "g0/2", None, NEVER)
    s.delay("g0/0", "g0/2", "Ok", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0), s.crash("c0", lose=False)))
    s.at(2.5, lambda: s.crash("g0/0", lose=False))
    s.run()
    assert s.deliveries("g0/1") == s.deliveries("g0/2") == ["c0:0"]
    return s


@scenario("fifo")
def fifo_late_copy(table: Protocol) -> Script:
    """The sender's own copy comes when the message is delivered already, thanks to the others' OKs."""
    s = Script(table, (3,))
    s.delay("c0", "g0/1", "Cast", 10)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(20, lambda: s.multicast("c1", 0))
    s.run()
    assert s.deliveries("g0/1") == ["c0:0", "c1:0"] and s.latency("g0/1", "c0:0") == 2
    return s


@scenario("causal")
def causal_blind_chain(table: Protocol) -> Script:
    """Figure 2: m to g0 is slow; m* to g1 makes g1/0 multicast m' to g0, which arrives first and has to wait."""
    s = Script(table, (1, 2, 1))
    s.delay("g2/0", "g0/0", "Cast", 20)
    s.at(1, lambda: (s.multicast("g2/0", 0), s.multicast("g2/0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 0))
    s.run()
    assert s.deliveries("g0/0") == ["g2/0:0", "g1/0:0"]
    return s


@scenario("causal")
def causal_difference_is_enough(table: Protocol) -> Script:
    """The counter of the slow m travels with the first message from g1 only; the second waits behind that one."""
    s = Script(table, (1, 2, 1))
    s.delay("g2/0", "g0/0", "Cast", 20)
    s.at(1, lambda: (s.multicast("g2/0", 0), s.multicast("g2/0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 0))
    s.at(6, lambda: s.multicast("g1/0", 0))
    s.run()
    assert s.deliveries("g0/0") == ["g2/0:0", "g1/0:0", "g1/0:1"]
    return s


@scenario("causal")
def causal_oldest_destination(table: Protocol) -> Script:
    """What g2 was told is told again in a message to g0 and g2, for g0 was not."""
    s = Script(table, (1, 2, 2))
    s.delay("c0", "g0/0", "Cast", 20)
    s.at(1, lambda: (s.multicast("c0", 0), s.multicast("c0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 2))
    s.at(6, lambda: s.multicast("g1/0", 0, 2))
    s.run()
    assert s.deliveries("g0/0") == ["c0:0", "g1/0:1"]
    return s


def blind_loss(table: Protocol) -> Script:
    s = Script(table, (1, 1, 1), heartbeat=5)
    s.delay("c0", "g0/0", "Cast", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0), s.multicast("c0", 1), s.crash("c0", lose=False)))
    s.at(5, lambda: s.multicast("g1/0", 0, 2))
    s.run()
    return s


@scenario("causal")
def causal_blind_loss(table: Protocol) -> Script:
    """The error of the paper: m is lost, m* is not, and what follows from m* is delivered in g2 but never in g0."""
    s = blind_loss(table)
    assert s.deliveries("g0/0") == [] and s.deliveries("g2/0") == ["g1/0:0"]
    return s


@scenario("causal_stable")
def causal_stable_blind_loss(table: Protocol) -> Script:
    """The same with m* held back until m is stable: it never is, and nothing follows from m*."""
    s = blind_loss(table)
    assert s.deliveries("g0/0") == s.deliveries("g2/0") == ["g1/0:0"] and s.deliveries("g1/0") == []
    return s


@scenario("causal_stable")
def causal_stable_dead_group(table: Protocol) -> Script:
    """A message to a group that is dead and known to be so does not hold its sender up."""
    s = Script(table, (2, 2), heartbeat=5)
    s.at(1, lambda: s.crash("g1/0", "g1/1"))
    s.at(60, lambda: (s.multicast("g0/0", 1), s.multicast("g0/0", 0)))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["g0/0:1"]
    return s


def refused(s: Script, mid: Mid) -> None:
    """Let its sender learn that nobody takes a message; the script sees to it that nobody has it."""
    assert s.world.tracer is not None
    s.world.obligations.refused(mid)
    s.world.tracer.record(int(s.world.now), sender_of(mid), "withdraw", mid=mid)
    s.world.tell(sender_of(mid), Process, lambda process, now: process.abandon(now, mid))


def lost(s: Script, client: str, *groups: int) -> Mid:
    """Multicast what reaches nobody."""
    rule = s.delay(client, None, None, NEVER)
    mid = s.multicast(client, *groups)
    s.normal(rule)
    return mid


@scenario("fifo")
def fifo_refused(table: Protocol) -> Script:
    """A multicast is refused by all. The next one gets its number."""
    s = Script(table, (2, 2))
    s.at(1, lambda: refused(s, lost(s, "c0", 0, 1)))
    s.at(2, lambda: s.multicast("c0", 0))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["c0:1"]
    assert not s.sent("Void")
    return s


@scenario("fifo")
def fifo_refused_between_others(table: Protocol) -> Script:
    """Another one was multicast behind it. A void message takes the number, at each group, and nobody delivers it."""
    s = Script(table, (2, 2))
    mids: list[Mid] = []
    s.at(1, lambda: (s.multicast("c0", 0, 1), mids.append(lost(s, "c0", 0, 1)), s.multicast("c0", 0, 1)))
    s.at(9, lambda: refused(s, mids[0]))
    s.run()
    assert all(s.deliveries(p) == ["c0:0", "c0:2"] for p in ("g0/0", "g0/1", "g1/0", "g1/1"))
    assert s.latency("g0/0", "c0:2") == 8 + 2 + 1, (
        "the void message is there after 2δ, its successor has its OKs after 3"
    )
    return s


@scenario("fifo")
def fifo_refused_two(table: Protocol) -> Script:
    """Two are refused, the later one first. One member hears of it from another, who has no OK for it yet."""
    s = Script(table, (2,))
    mids: list[Mid] = []
    s.at(1, lambda: (mids.append(lost(s, "c0", 0)), mids.append(lost(s, "c0", 0)), s.multicast("c0", 0)))
    s.delay("c0", "g0/1", "Void", 20)
    s.at(5, lambda: refused(s, mids[1]))
    s.at(9, lambda: refused(s, mids[0]))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["c0:2"] and s.latency("g0/1", "c0:2") < 15
    return s


@scenario("fifo")
def fifo_refused_and_void_reaches_one(table: Protocol) -> Script:
    """The void message reaches one member only, and its sender crashes: its OK brings it to the others."""
    s = Script(table, (3,), heartbeat=5)
    mids: list[Mid] = []
    s.at(1, lambda: (mids.append(lost(s, "c0", 0)), s.multicast("c0", 0)))
    s.at(4, lambda: (s.delay("c0", "g0/1", None, NEVER), s.delay("c0", "g0/2", None, NEVER)))
    s.at(5, lambda: (refused(s, mids[0]), s.crash("c0", lose=False)))
    s.run()
    assert all(s.deliveries(f"g0/{r}") == ["c0:1"] for r in range(3))
    return s


def follow(table: Protocol, act: Callable[[Script], object]) -> Script:
    """m to g0 is slow; something is refused; what c0 multicast to g1 makes g1/0 multicast m' to g0."""
    s = Script(table, (1, 2))
    s.delay("c0", "g0/0", "Cast", 20)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(2, lambda: act(s))
    s.at(12, lambda: s.multicast("g1/0", 0))
    s.run()
    assert s.deliveries("g0/0") == ["c0:0", "g1/0:0"] and s.deliveries("g1/0") == ["c0:2"]
    return s


@scenario("causal")
def causal_refused_and_told_again(table: Protocol) -> Script:
    """What g1 would have learnt of m by a refused message, it learns by the next one."""
    return follow(table, lambda s: (refused(s, lost(s, "c0", 1)), s.multicast("c0", 1)))


@scenario("causal")
def causal_refused_and_void(table: Protocol) -> Script:
    """The same, but the next one is multicast already: the void message tells g1."""

    def act(s: Script) -> None:
        mid = lost(s, "c0", 1)
        s.multicast("c0", 1)
        s.at(6, lambda: refused(s, mid))

    return follow(table, act)


@scenario("causal")
def causal_refused_and_not_counted(table: Protocol) -> Script:
    """A refused message to g0 is in nobody's past: what follows from the next one does not wait for it in g0."""
    s = Script(table, (1, 1, 1))
    s.at(1, lambda: (refused(s, lost(s, "c0", 0)), s.multicast("c0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 0, 2))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g2/0") == ["g1/0:0"]
    return s


@scenario("causal")
def causal_refused_and_followed(table: Protocol) -> Script:
    """A message that follows from it was multicast already: what follows from that one waits for the void message."""
    s = Script(table, (1, 1, 1))
    mids: list[Mid] = []
    s.at(1, lambda: (mids.append(lost(s, "c0", 0)), s.multicast("c0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 0, 2))
    s.at(9, lambda: refused(s, mids[0]))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g2/0") == ["g1/0:0"]
    assert s.latency("g2/0", "g1/0:0") == 2 and s.latency("g0/0", "g1/0:0") == 5
    return s


@scenario("causal_stable")
def causal_stable_refused(table: Protocol) -> Script:
    """The message that has to become stable is refused, and one that waits for it: the third goes on."""
    s = Script(table, (2, 1))
    mids: list[Mid] = []
    s.at(1, lambda: (mids.append(lost(s, "c0", 0)), mids.append(s.multicast("c0", 0)), s.multicast("c0", 0, 1)))
    s.at(5, lambda: refused(s, mids[1]))
    s.at(9, lambda: refused(s, mids[0]))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == s.deliveries("g1/0") == ["c0:2"]
    return s


def run(name: str) -> Script:
    protocol_name, build = SCENARIOS[name]
    s = build(UNDER_TEST[protocol_name])
    broken = name == "causal_blind_loss"
    assert s.world.stalled == broken, "the run did not finish its work"
    properties = ["integrity", "validity", "fifo"] + ["causal"] * (protocol_name != "fifo")
    properties += [] if broken else ["agreement"]
    properties += [] if broken or name in SENDERS_CRASH else ["termination"]
    assert [v for v in check(without_withdrawn(s.recorder.events), properties) if v.status != "ok"] == []
    left = sum(p.footprint() for p in s.world.processes if s.world.up(p.pid))
    assert left == (4 if name == "fifo_lost_predecessor" else 1 if broken else 0), "what is delivered is forgotten"
    return s


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    kinds = ("multicast", "withdraw", "deliver", "crash", "suspect")
    compare(SCENARIOS[name][0], name, (SCENARIOS[name][1].__doc__ or "") + "\n\n" + transcript(s, kinds), rewrite)


@pytest.mark.parametrize(("name", "seed"), MENDED)
def test_what_the_adversary_found(name: str, seed: int) -> None:
    assert not run_adversary_seed(name, seed).problem


def step(check_one: Callable[[Protocol], None]) -> Callable[[Protocol], None]:
    """What one process must do, whatever the protocol of the family."""
    STEPS[check_one.__name__] = check_one
    return check_one


class Alone:
    """One process of three groups of one, without anybody else. Of a cluster, if it is a client."""

    def __init__(self, table: Protocol, pid: int) -> None:
        self.table = table
        self.pid = pid
        self.count = 0
        self.out = Effects()
        self.process = table.make(pid, Topology((1, 1, 1)), Params(1000), self.out)
        self.process.start(0)

    def multicast(self, *dest: int) -> Mid:
        mid = message_id(self.pid, self.count)
        self.count += 1
        self.process.multicast(0, AppMessage(mid, dest, b""))
        return mid

    def answered(self, mid: Mid, g: int, kind: type[Reply] | type[Hint] = Reply) -> None:
        self.process.receive(0, g, kind(mid, g, g))

    def ok(self, m: AppMessage, seq: int, past: tuple[int, ...] = ()) -> None:
        """Let it receive its own OK of a message: it is alone in its group, and delivers it."""
        self.process.receive(0, self.pid, self.table.messages[1](m, (seq,), past))  # type: ignore[call-arg]

    def said(self) -> list[str]:
        """Return what it has sent since it was last asked: `Cast 1 to g0`."""
        found = []
        for to, msg in self.out.sends:
            if not isinstance(msg, Background):
                seqs = " ".join(map(str, getattr(msg, "seqs", ())))
                found.append(f"{type(msg).__name__} {seqs} to {' '.join(f'g{p}' for p in to)}")
        self.out.clear()
        return found


@step
def voids_are_said_until_a_later_message_is_delivered(table: Protocol) -> None:
    client = Alone(table, 7)
    if hasattr(client.process, "waiting"):  # one at a time: nothing is behind what is refused
        return
    mids = [client.multicast(0, 1) for _ in range(3)]
    client.said()
    client.process.abandon(0, mids[1])
    assert client.said() == ["Void 2 to g0", "Void 2 to g1"]
    client.process.disconnect(0)
    assert client.said() == ["Void 2 to g0", "Void 2 to g1", "Again 1 1 to g0 g1", "Again 3 3 to g0 g1"]
    client.answered(mids[0], 0)
    client.answered(mids[2], 1)
    client.process.disconnect(0)
    assert client.said() == ["Void 2 to g0", "Again 1 1 to g0 g1", "Again 3 3 to g0 g1"]
    client.answered(mids[1], 0, Hint)
    client.process.disconnect(0)
    assert client.said() == ["Again 1 1 to g0 g1", "Again 3 3 to g0 g1"]


@step
def what_a_group_delivered_keeps_its_number(table: Protocol) -> None:
    client = Alone(table, 7)
    mid = client.multicast(0, 1)
    client.answered(mid, 0)
    client.process.abandon(0, mid)
    client.said()
    client.multicast(1)
    assert client.said() == ["Cast 2 to g1"]


@step
def old_counters_are_told(table: Protocol) -> None:
    """A process that delivered messages of thousands of clients knows all of them when it multicasts at last."""
    member = Alone(table, 0)
    if "causal" not in table.orders:
        return
    many = 3000
    for round_ in (1, 2):
        for q in range(100, 100 + many):
            m = AppMessage(message_id(q, round_), (0,), b"")
            member.ok(m, round_)
    assert len(member.out.deliveries) == 2 * many
    member.ok(AppMessage(message_id(99, 0), (0,), b""), 1, (0, 150, 1, 2, 150, 1))
    member.said()
    member.process.multicast(0, AppMessage(message_id(0, 0), (1,), b""))
    past = next(msg.past for _, msg in member.out.sends if not isinstance(msg, Background))  # type: ignore[attr-defined]
    rows = {(past[i], past[i + 1]): past[i + 2] for i in range(0, len(past), 3)}
    assert len(rows) == len(past) // 3 and rows == {(0, q): 2 for q in range(100, 100 + many)} | {
        (0, 99): 1,
        (2, 150): 1,
    }


@pytest.mark.parametrize("name", UNDER_TEST)
@pytest.mark.parametrize("what", STEPS)
def test_step(what: str, name: str) -> None:
    STEPS[what](UNDER_TEST[name])


@pytest.mark.parametrize("name", UNDER_TEST)
def test_a_client_that_is_gone_costs_little(name: str) -> None:
    """Its numbers are kept for ever, in 24 to 48 bytes each: one, and for causal order two more."""
    member, clients = Alone(UNDER_TEST[name], 0), 12_000
    tracemalloc.start()
    for q in range(clients):
        m = AppMessage(message_id(session_of("client/x", hash_of(q)), 0), (0,), b"")
        member.ok(m, 1)
        member.out.clear()
    bytes_each = tracemalloc.get_traced_memory()[0] / clients
    tracemalloc.stop()
    assert bytes_each < (180 if name != "fifo" else 60)


def hash_of(q: int) -> int:
    return q * 0x9E3779B97F4A7C15 & (1 << 42) - 1


@pytest.mark.parametrize("name", UNDER_TEST)
def test_memory_follows_what_is_under_way(name: str) -> None:
    """Nothing of a delivered message is kept."""
    s = Script(UNDER_TEST[name], (2, 2), heartbeat=5)
    for i in range(200):
        sender, dest = ("c0", "g0/0", "g1/1")[i % 3], ((0,), (1,), (0, 1))[i % 3]
        s.at(1 + i, lambda sender=sender, dest=dest: s.multicast(sender, *dest))  # type: ignore[misc]
    s.run()
    assert [p.footprint() for p in s.world.processes] == [0] * s.topology.size


def test_counters_travel_once() -> None:
    """A message carries what changed since the last one to the same group, not the whole matrix."""
    s = Script(UNDER_TEST["causal"], (2, 2))
    for i in range(20):
        s.at(1 + 10 * i, lambda: s.multicast("g0/0", 0, 1))
        s.at(2 + 10 * i, lambda: s.multicast("g1/0", 0, 1))
    s.run()
    sizes = [e.size for e in s.recorder.events if e.kind == "send" and e.type == "Cast" and e.process == "g0/0"]
    assert len(set(sizes)) <= 3 and max(size or 0 for size in sizes) < 60
