"""One sender with a wrong clock or an outage costs the others of an optimistic cluster little (simulated)."""

import pytest

from amcast.core.process import Params
from amcast.core.topology import Topology
from amcast.core.trace import ListRecorder
from amcast.protocols import protocol
from amcast.sim.choices import Seeded
from amcast.sim.faults import Pause
from amcast.sim.network import MILLISECOND, ExponentialTail
from amcast.sim.world import World

DELTA = MILLISECOND
SECOND = 1000 * DELTA
OUTLIER = 4  # g1/1: a follower
LEADER = 3


def latencies(skewed: int = OUTLIER, skew: int = 0, pause: int = 0, sends_after: bool = True) -> tuple[float, float]:
    """Return the median and the 99th percentile, in δ, of the last delivery of what the others multicast."""
    topology = Topology((3, 3, 3))
    recorder = ListRecorder()
    choices = Seeded(3)
    skews = [skew if pid == skewed else 0 for pid in range(9)]
    world = World(
        protocol("optimistic"), topology, ExponentialTail(DELTA // 2, DELTA // 10), choices,
        params=Params(DELTA, checked=True), recorder=recorder, skew=skews,
    )  # fmt: skip

    def send(pid: int) -> None:
        def act(world: World) -> None:
            if world.up(pid):
                world.multicast(pid, choices.sample(3, 1 + choices.below(2)), b"")

        world.call(choices.below(3 * SECOND) if pid != skewed or sends_after else choices.below(SECOND), act)

    for i in range(900):
        send(i % 9)
    if pause:
        world.at(SECOND, Pause(skewed, pause))
    world.run(2_000_000)
    sent: dict[str | None, int] = {}
    last: dict[str | None, int] = {}
    for event in recorder.events:
        if event.kind == "multicast" and event.process != topology.name(skewed):
            sent[event.message] = event.time or 0
        elif event.kind == "deliver" and event.process != topology.name(skewed) and event.message in sent:
            last[event.message] = (event.time or 0) - sent[event.message]
    assert len(last) == len(sent) > 700
    found = sorted(last.values())
    return found[len(found) // 2] / DELTA, found[len(found) * 99 // 100] / DELTA


NORMAL = latencies()


@pytest.mark.parametrize("who", [OUTLIER, LEADER])
@pytest.mark.parametrize("skew", [-SECOND, SECOND, -20 * DELTA, 20 * DELTA])
def test_a_wrong_clock(who: int, skew: int) -> None:
    median, high = latencies(who, skew)
    print(NORMAL, median, high)
    assert high <= 3 * NORMAL[1]


@pytest.mark.parametrize("sends_after", [True, False])
def test_an_outage(sends_after: bool) -> None:
    """A follower stands still for a second. What it missed, and what it sends then, delays nobody else."""
    median, high = latencies(pause=SECOND, sends_after=sends_after)
    print(NORMAL, median, high)
    assert high <= 3 * NORMAL[1]
