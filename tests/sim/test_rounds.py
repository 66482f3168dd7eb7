"""Servers that broadcast in every round, as in the AllConcur+ paper: the workload, the data centres, the measures."""

from itertools import pairwise

import pytest

from amcast.core.trace import ListRecorder
from amcast.errors import UsageError
from amcast.sim.network import MILLISECOND
from amcast.sim.simulation import Crash, Simulation
from amcast.sim.steady import Steady
from amcast.sim.summary import SummaryRecorder

N, ROUNDS = 8, 12


class Watching(SummaryRecorder):
    def __init__(self) -> None:
        super().__init__()
        self.steady = Steady(N, ROUNDS)
        self.forward_to = self.steady  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("protocol", "latency", "per_round"),
    [("allgather", 3, 3), ("allconcur", 2, 2), ("allconcur_plus", 6, 3), ("lcr", 8, None), ("multi_paxos", 3, 3)],
)
def test_every_server_broadcasts_one_message_in_every_round(protocol: str, latency: int, per_round: int | None) -> None:
    recorder = Watching()
    world = Simulation(protocol, groups=1, replicas=N, rounds=ROUNDS).world(recorder)
    world.run()
    assert not world.stalled and world.multicasts == N * ROUNDS and world.delivered == N * N * ROUNDS
    own = recorder.steady.own.latency(MILLISECOND)
    assert own is not None and own.delta.p50 == latency
    if per_round is not None:  # no round is empty: a message of everybody in each
        assert recorder.steady.per_second == pytest.approx(1000 * N / per_round)


@pytest.mark.parametrize("crashes", [(), (Crash("g0/3", 8 * MILLISECOND),)])
def test_servers_broadcast_for_so_long_and_the_others_go_on_when_one_fails(crashes: tuple[Crash, ...]) -> None:
    span = 25 * MILLISECOND
    recorder = ListRecorder()
    world = Simulation(
        *("allconcur_plus", 1, N), rounds=1000, duration=span, network="allconcur-sdc", crashes=crashes, payload=16_000
    ).world(recorder)
    world.run()
    assert not world.stalled and not world.pending and span <= world.now < span + 6 * MILLISECOND
    at_first = [event.time or 0 for event in recorder.events if event.kind == "deliver" and event.process == "g0/0"]
    pauses = [after - before for before, after in pairwise(at_first)]
    if crashes:
        assert 8 * MILLISECOND < max(pauses) < 14 * MILLISECOND, "until its successors miss its heartbeats"
        assert max(at_first) > 24 * MILLISECOND
    else:
        assert max(pauses) < 3 * MILLISECOND


def test_rounds_are_refused_where_there_are_none() -> None:
    with pytest.raises(UsageError, match="3 rounds: skeen has none"):
        Simulation("skeen", replicas=1, rounds=3).world()
    with pytest.raises(UsageError, match="5 messages and 3 rounds exclude each other"):
        Simulation("allgather", groups=1, rounds=3, messages=5).world()
    with pytest.raises(UsageError, match="7 servers in 5 data centres"):
        Simulation("allgather", groups=1, replicas=7, rounds=3, network="allconcur-mdc").world()
