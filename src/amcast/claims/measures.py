"""How the claims about latency, messages and genuineness of the Skeen family are measured."""

from amcast.checks import check
from amcast.claims.scenario import Script, deltas, measuring
from amcast.core.protocol import Protocol


def replicas_of(table: Protocol) -> int:
    return 1 if table.single_replica else 3


def latencies(script: Script, message: str, groups: tuple[int, ...]) -> str:
    """Return the first (leader's) and last (follower's) delivery of a message, in the slowest of its groups."""
    members = script.topology.groups
    found = [[script.latency(script.topology.name(p), message) for p in members[g]] for g in groups]
    first, last = max(map(min, found)), max(map(max, found))
    return deltas(first, last) if len(members[0]) > 1 else deltas(first)


@measuring
def collision_free(table: Protocol, k: int, first: int = 0) -> str:
    """Send one message to k groups, beginning with `first`, with nothing else under way."""
    groups = tuple(range(first, first + k))
    script = Script(table, (replicas_of(table),) * max(2, first + k))
    script.at(1, lambda: script.multicast("c0", *groups))
    script.run()
    return latencies(script, "c0:0", groups)


@measuring
def convoy(table: Protocol, clock_rises: float) -> str:
    """Measure the worst case without failures.

    The clock of g1 is ahead, so a message m to both groups gets its timestamp there. Just before that raises the clock
    of g0, another message m' reaches the leader of g0 without delay. Its timestamp there is still low, so m has to wait
    until m' is committed.
    """
    script = Script(table, (replicas_of(table),) * 2)
    leaders = [members[0] for members in script.topology.groups]
    ahead = script.topology.name(leaders[0])
    for i in range(5):
        script.at(1 + 20 * i, lambda: script.multicast("c0", 1))
    start = 200.0

    def collide() -> None:
        script.multicast("c2", 0, 1)
        script.delay(None, ahead, None, 0)
        script.world.heal()
        script.network.rules.clear()

    def hold_back() -> None:
        for p in range(script.topology.replicas):  # to arrive δ later, just behind m'
            if p != leaders[0]:
                script.world.block(p, leaders[0])

    script.delay("c2", ahead, "Multicast", 0)
    script.at(start, lambda: script.multicast("c1", 0, 1))
    script.at(start + clock_rises - 1, hold_back)
    script.at(start + clock_rises, collide)
    script.run()
    return latencies(script, "c1:0", (0,))


def interrupted(table: Protocol) -> str:
    """Crash a leader whose group has accepted a message. Measure from recover() to the delivery at the new leader."""
    script = Script(table, (3, 3))
    script.at(1, lambda: script.multicast("c0", 0, 1))
    script.at(3.5, lambda: script.crash("g0/0"))
    script.at(4, lambda: script.recover("g0/1"))
    script.run()
    delivered = script.event("deliver", "g0/1", "c0:0").time
    assert delivered is not None
    return deltas(delivered / script.network.delta - 4)


@measuring
def message_count(table: Protocol, k: int, n: int, first: int = 0) -> str:
    """Count the messages about one multicast to k groups of n, without replies and messages to oneself."""
    script = Script(table, (n,) * (first + k))
    script.at(1, lambda: script.multicast("c0", *range(first, first + k)))
    script.run()
    return messages_sent(script)


def messages_sent(script: Script) -> str:
    """Count the messages about multicasts, without replies. A trace shows none that a process sends to itself."""
    return str(len([e for e in script.recorder.events if e.kind == "send" and e.about and e.type != "Reply"]))


def outsiders(table: Protocol) -> str:
    """Count the processes that help to order a message although they are neither its sender nor a destination."""
    script = Script(table, (replicas_of(table),) * 4, clients=4)
    for i, dest in enumerate(((0, 1), (1, 2), (2,), (0, 3))):
        script.at(1 + i, lambda i=i, dest=dest: script.multicast(f"c{i}", *dest))  # type: ignore[misc]
    if table.elects:
        script.at(2.5, lambda: script.crash("g1/0"))
        script.at(6, lambda: script.recover("g1/1"))
    script.run()
    return strangers(script)


def strangers(script: Script) -> str:
    verdict = check(script.recorder.events, ["genuine"])[0]
    return "0" if verdict.status == "ok" else verdict.reason
