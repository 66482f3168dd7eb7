"""The experiments of the Optimistic paper, as set-ups: what it says of them holds in short runs."""

import pytest

from amcast.errors import TopologyError, UsageError
from amcast.sim.setups import setup
from amcast.sim.simulation import Simulation
from amcast.sim.summary import Summary, SummaryRecorder


def run(protocol: str, name: str, **changes: float) -> Summary:
    recorder = SummaryRecorder()
    world = Simulation(protocol, **{**setup(name), **changes}).world(recorder)
    world.run()
    assert not world.stalled and not world.pending
    return recorder.summary(world.network.delta)


def test_lan() -> None:
    baseline, optimistic, paxos = (
        run(protocol, "oam-lan", messages=300, rate=500.0) for protocol in ("baseline", "optimistic", "paxos_amcast")
    )
    assert optimistic.optimistic and optimistic.last_delivery and baseline.last_delivery and paxos.last_delivery
    assert optimistic.optimistic.ms.p95 < baseline.last_delivery.ms.p95 / 2
    assert paxos.last_delivery.ms.mean < baseline.last_delivery.ms.mean < optimistic.last_delivery.ms.mean
    assert optimistic.mistakes is not None and optimistic.mistakes < 0.5


def test_wan() -> None:
    baseline, optimistic = (run(protocol, "oam-wan", messages=400) for protocol in ("baseline", "optimistic"))
    assert optimistic.optimistic and baseline.last_delivery
    assert optimistic.optimistic.ms.mean < 0.6 * baseline.last_delivery.ms.mean
    assert optimistic.mistakes is not None and optimistic.mistakes < 5


def test_who_sends_to_whom() -> None:
    world = Simulation("optimistic", groups=5, replicas=3, senders_to=3, messages=1).world()
    assert world.senders == tuple(range(15))
    senders = world.processes[0].senders.of  # type: ignore[attr-defined]
    assert [sorted(of) for of in senders] == [[2, 3, 4], [0, 3, 4], [0, 1, 4], [0, 1, 2], [1, 2, 3]]
    with pytest.raises(TopologyError, match="5 groups that send to each: expected 0 to 4"):
        Simulation("optimistic", groups=5, senders_to=5).world()


def test_a_window_is_for_those_who_wait() -> None:
    for senders_to in (0, 1):
        process = Simulation("optimistic", senders_to=senders_to, window=7).world().processes[0]
        assert process.condition()["window"] == 7
    with pytest.raises(UsageError, match="baseline has none"):
        Simulation("baseline", window=7).world()
