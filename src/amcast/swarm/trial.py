"""The run that a seed of a swarm stands for, and what all such runs draw alike."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Event, Recorder
from amcast.sim.choices import Choices
from amcast.sim.faults import Detect, Partition, Pause, SlowLink, Suspect, Unstable
from amcast.sim.network import MILLISECOND, Constant, ExponentialTail, Network, Uniform
from amcast.sim.workload import ClosedLoop, Destinations, OpenLoop
from amcast.sim.world import Action, Workload, World

DELTA = MILLISECOND
LONGEST = 30  # δ: no message of a drawn network takes longer


def judge_always(events: Sequence[Event]) -> str:
    return ""


def lost_with_sender(events: Sequence[Event]) -> str:
    """Say that a message of a crashed sender did not reach everybody: where nobody takes over, others wait for it."""
    crashed = {event.process for event in events if event.kind == "crash"}
    sent = [event for event in events if event.kind == "multicast" and event.process in crashed]
    up = [(event.process, event.group) for event in events if event.kind == "start" and event.process not in crashed]
    delivered = {(event.process, event.message) for event in events if event.kind == "deliver"}
    for row in sent:
        if any(group in (row.dest or ()) and (process, row.message) not in delivered for process, group in up):
            return "a message was lost with its sender, and others wait for it"
    return ""


@dataclass(frozen=True)
class Trial:
    world: World
    calm_at: int
    config: str
    properties: tuple[str, ...]
    correct_only: bool = False  # what a process delivered that crashed later does not count
    # Why agreement and termination are not judged on this trace; empty if they are.
    excuse: Callable[[Sequence[Event]], str] = judge_always
    acted: Counter[str] = field(default_factory=Counter)  # faults of the plan that happened; crashes are in the trace

    def follow(self, plan: Iterable[tuple[int, Action]]) -> "Trial":
        """Let these things happen, and count the faults among them."""
        for time, action in plan:
            self.world.at(time, Counted(action, self.acted))
        return self


class Counted(Action):
    """An action that is counted when it does harm: what is done to a process that is down does none."""

    def __init__(self, action: Action, acted: Counter[str]) -> None:
        self.action = action
        self.acted = acted

    def act(self, world: World) -> None:
        action = self.action
        if isinstance(action, Partition):
            self.acted["partition"] += 1
        elif isinstance(action, SlowLink):
            self.acted["slow link"] += world.is_channel(action.sender, action.dest)
        elif isinstance(action, Pause):
            self.acted["pause"] += world.up(action.pid)
        elif isinstance(action, Suspect):
            self.acted["wrong suspicion"] += world.up(action.pid)
        elif isinstance(action, Detect):
            self.acted["wrong suspicion"] += action.suspected and world.up(action.pid) and world.up(action.target)
        action.act(world)


class MixedDestinations(Workload):
    """A closed loop in which every message draws how many groups it goes to."""

    def __init__(self, groups: int, messages: int) -> None:
        self.loops = [ClosedLoop(Destinations(groups, count), messages) for count in range(1, groups + 1)]
        self.left = messages

    def begin(self, world: World) -> None:
        for client in world.senders:
            self.completed(world, client, None)

    def completed(self, world: World, client: int, mid: object) -> None:
        if self.left > 0 and world.up(client):
            self.left -= 1
            loop = self.loops[world.choices.below(len(self.loops))]
            world.multicast(client, loop.destinations.choose(world), b"")

    def finished(self, world: World) -> bool:
        return self.left == 0 or world.senders_up == 0


def draw_workload(choices: Choices, groups: int, messages: int) -> Workload:
    """Draw how clients send: mostly one message after the other."""
    if not choices.chance(30):
        return MixedDestinations(groups, messages)
    rate = 1e9 / (DELTA * (1 + choices.below(10)))
    return OpenLoop(Destinations(groups, 1 + choices.below(groups)), rate, messages, payload=b"")


def draw_world(
    table: Protocol, seed: int, topology: Topology, network: Network, choices: Choices,
    params: Params, workload: Workload, recorder: Recorder | None,
) -> World:  # fmt: skip
    """Return the world of a seed. Its clocks differ by up to 5δ."""
    run, skew = f"{table.name}-{seed}", [choices.below(5 * DELTA) for _ in range(topology.size)]
    return World(
        table, topology, network, choices, params=params, workload=workload, recorder=recorder, run=run, skew=skew
    )


def draw_network(choices: Choices) -> Network:
    kind = choices.below(6)
    if kind == 0:
        return Constant(DELTA)
    if kind == 1:
        return Uniform(DELTA // 10, DELTA)
    if kind == 2:
        return ExponentialTail(DELTA // 2, DELTA // 14)
    return Unstable(DELTA, 2 + choices.below(24))
