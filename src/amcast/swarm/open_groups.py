"""Swarms of fifo and causal multicast: members and outsiders multicast, any number of processes crash, Θ errs.

Of most groups one member, the anchor, never crashes and is never distrusted, others are, for no reason; of
the other groups all members may crash. Timeouts exceed every delay, so heartbeats give Θ.
"""

from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Recorder
from amcast.sim.choices import Choices, Seeded
from amcast.sim.faults import CalmDown, Crash, Detect, SlowLink
from amcast.sim.world import Action, Workload, World
from amcast.swarm.trial import DELTA, LONGEST, Trial, draw_network, draw_world, judge_always, lost_with_sender


class Chatter(Workload):
    """Everybody multicasts, at moments drawn beforehand."""

    def __init__(self, messages: int, until: int) -> None:
        self.messages = messages
        self.until = until

    def begin(self, world: World) -> None:
        for _ in range(self.messages):
            sender = world.choices.below(world.topology.size)
            dest = world.choices.sample(len(world.topology.groups), 1 + world.choices.below(len(world.topology.groups)))

            def say(world: World, sender: int = sender, dest: tuple[int, ...] = dest) -> None:
                if world.up(sender):
                    world.multicast(sender, dest, b"")

            world.call(world.choices.below(self.until), say)


def open_groups_trial(table: Protocol, seed: int, recorder: Recorder | None) -> Trial:
    choices = Seeded(seed)
    groups = 1 + choices.below(4)
    topology = Topology(tuple([1 + choices.below(4) for _ in range(groups)]), 1 + choices.below(3))
    calm_at = (20 + choices.below(200)) * DELTA
    network = draw_network(choices)
    messages = 5 + choices.below(60)
    params = Params(DELTA, heartbeat=5 * DELTA, suspect_after=(2 * LONGEST + 6) * DELTA, checked=True)
    workload = Chatter(messages, calm_at if choices.chance(50) else 20 * DELTA)
    world = draw_world(table, seed, topology, network, choices, params, workload, recorder)
    plan = faults(topology, choices, calm_at)
    crashes = sum(isinstance(action, Crash) for _, action in plan)
    properties = ["integrity", "validity", "fifo", "genuine", "agreement", "termination"]
    if "causal" in table.orders:
        properties.append("causal")
    sizes = " ".join(str(len(members)) for members in topology.groups)
    config = (
        f"groups of {sizes}, {len(topology.clients)} outsiders, {messages} messages, "
        f"{type(network).__name__} network, calm at {calm_at // DELTA}δ, {crashes} crashes, {len(plan) - 1} faults"
    )
    excuse = lost_with_sender if table.blocks else judge_always
    return Trial(world, calm_at, config, tuple(properties), excuse=excuse).follow(plan)


def faults(topology: Topology, choices: Choices, calm_at: int) -> list[tuple[int, Action]]:
    plan: list[tuple[int, Action]] = []
    calm = choices.chance(20)
    for members in () if calm else topology.groups:
        anchor = members[choices.below(len(members))] if choices.chance(80) else -1
        for p in members:
            if p == anchor:
                continue
            if choices.chance(40):
                plan.append((choices.below(calm_at), Crash(p, choices.chance(60))))
            for q in range(topology.replicas):
                if anchor >= 0 and q != p and choices.chance(20):
                    start = choices.below(calm_at)
                    plan.append((start, Detect(q, p, True)))
                    plan.append((choices.between(start, calm_at), Detect(q, p, False)))
    for client in () if calm else topology.clients:
        if choices.chance(30):
            plan.append((choices.below(calm_at), Crash(client, choices.chance(80))))
    for _ in range(choices.below(4)):
        sender, dest = choices.below(topology.size), choices.below(topology.size)
        plan.append((choices.below(calm_at), SlowLink(sender, dest, choices.below(LONGEST * DELTA))))
    plan.append((calm_at, CalmDown()))
    return plan
