"""The competitors of White-Box in its wide-area set-up: with leaders spread, fewer message delays are less time."""

import pytest

from amcast.sim.setups import setup
from amcast.sim.simulation import Simulation
from amcast.sim.summary import SummaryRecorder


def mean_latency(protocol: str, dest_groups: int, network: str) -> float:
    """Without load: every client multicasts equally often, and seldom."""
    recorder = SummaryRecorder()
    fields = {**setup("white-box-wan"), "network": network, "clients": 30, "messages": 45}
    world = Simulation(protocol, **fields, dest_groups=dest_groups, rate=2.0).world(recorder)
    world.run()
    latency = recorder.summary(world.network.delta).first_delivery
    assert latency is not None
    return latency.ms.mean


@pytest.mark.parametrize("dest_groups", range(2, 11))
def test_white_box_below_fastcast_below_fault_tolerant_skeen(dest_groups: int) -> None:
    white_box, fastcast, ft_skeen = (
        mean_latency(protocol, dest_groups, "wan-spread") for protocol in ("white_box", "fastcast", "ft_skeen")
    )
    assert 1.2 * white_box < fastcast < ft_skeen / 1.2


def test_fastcast_hides_a_delay_where_leaders_share_a_site() -> None:
    white_box, fastcast, ft_skeen = (mean_latency(name, 4, "wan") for name in ("white_box", "fastcast", "ft_skeen"))
    assert white_box == pytest.approx(91.8, rel=0.03)
    assert fastcast == pytest.approx(92.0, rel=0.03)
    assert ft_skeen == pytest.approx(152, rel=0.03)
