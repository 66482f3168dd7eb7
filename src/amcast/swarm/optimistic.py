"""Swarms of Baseline and Optimistic Atomic Multicast: members that multicast and crash, groups that join and leave."""

from amcast.core.capabilities import Reconfigurable
from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Recorder
from amcast.protocols.optimistic.options import Options
from amcast.sim.choices import Choices, Seeded
from amcast.sim.faults import Reconfigure, Storm, storm
from amcast.sim.relation import configured
from amcast.sim.world import Action, Workload, World
from amcast.swarm.trial import DELTA, Trial, draw_network, draw_workload, draw_world


def member(world: World, pid: int) -> Reconfigurable:
    process = world.processes[pid]
    assert isinstance(process, Reconfigurable)
    return process


class Members(Workload):
    """Members multicast, each a few messages at random moments, to groups that theirs may send to.

    Some ask to join another group, send to it at once, and leave again.
    """

    def __init__(self, choices: Choices, messages: int, duration: int, reconfigure: bool) -> None:
        self.choices = choices
        self.left = messages
        self.duration = duration
        self.reconfigure = reconfigure

    def begin(self, world: World) -> None:
        for _ in range(self.left):
            world.call(self.choices.below(self.duration), self.step)

    def step(self, world: World) -> None:
        self.left -= 1
        up = [pid for pid in range(world.topology.replicas) if world.up(pid)]
        pid = up[self.choices.below(len(up))]
        groups = len(world.topology.groups)
        if self.reconfigure and self.choices.chance(15):
            self.reconfigure_something(world, pid, self.choices.below(groups))
        if may := member(world, pid).may_send_to():
            count = 1 + self.choices.below(len(may))
            dest = tuple([may[i] for i in self.choices.sample(len(may), count)])
            world.multicast(pid, dest, b"")

    def reconfigure_something(self, world: World, pid: int, h: int) -> None:
        join = h not in member(world, pid).may_send_to()
        Reconfigure(pid, join, h).act(world)
        if join and self.choices.chance(50):
            world.multicast(pid, (h,), b"")  # waits until it may

    def finished(self, world: World) -> bool:
        return self.left == 0


class JoinAll(Action):
    """Every group joins every other: what waits for a membership gets it."""

    def act(self, world: World) -> None:
        for members in world.topology.groups:
            first = next(pid for pid in members if world.up(pid))
            for h in range(len(world.topology.groups)):
                if h not in member(world, first).may_send_to() or member(world, first).has_unanswered_joins():
                    Reconfigure(first, True, h).act(world)
        if any(member(world, pid).holds_back() for pid in range(world.topology.replicas) if world.up(pid)):
            world.at(int(world.now) + 50 * DELTA, self)

    def __repr__(self) -> str:
        return "join all"


def draw_options(choices: Choices, groups: int, everything: bool) -> Options:
    """A variant; `everything`: clients send too, so somebody must be able to send to any groups."""
    relation = tuple([choices.sample(groups, 1 + choices.below(groups)) for _ in range(groups)])
    return Options(
        senders_to=None if everything or choices.chance(30) else relation,
        direct=choices.chance(70),
        on_final=choices.chance(20),
        null_after=(5 + choices.below(20)) * DELTA if choices.chance(20) else 0,
        window=choices.below(2 * DELTA) if choices.chance(30) else -1,
        percentile=(0, 0, 50, 95)[choices.below(4)],
    )


def optimistic_trial(table: Protocol, seed: int, recorder: Recorder | None) -> Trial:
    """Members or clients send; members crash in the middle of it; groups join and leave meanwhile."""
    choices = Seeded(seed)
    groups = 1 + choices.below(4)
    replicas = (3, 3, 3, 5, 1)[choices.below(5)]
    clients_send = choices.chance(30)
    topology = Topology((replicas,) * groups, 1 + choices.below(5) if clients_send else 0)
    calm_at = (20 + choices.below(400)) * DELTA
    options = draw_options(choices, groups, clients_send)
    reconfigure = not clients_send and choices.chance(50)
    kinds = Storm(
        restarts=False,
        replicas_crash=choices.chance(70),
        clients_crash=clients_send and choices.chance(40),
        elections=choices.chance(60),
        disturbances=choices.chance(60),
    )
    network = draw_network(choices)
    messages = 5 + choices.below(60)
    workload: Workload = Members(choices, messages, calm_at + calm_at // 4, reconfigure)
    if clients_send:
        workload = draw_workload(choices, groups, messages)
    variant, params = configured(table, options), Params(DELTA, checked=True)
    world = draw_world(variant, seed, topology, network, choices, params, workload, recorder)
    plan = storm(topology, choices, calm_at, DELTA, kinds)
    if reconfigure:
        plan.append((calm_at + calm_at // 4 + 50 * DELTA, JoinAll()))
    properties = ["integrity", "validity", "order", "agreement", "termination"]
    if not clients_send:
        properties += ["fifo", "optimistic"] if table.guesses else ["fifo"]
    config = (
        f"{groups} groups of {replicas}, {len(topology.clients)} clients, {messages} messages, "
        f"{type(network).__name__} network, calm at {calm_at // DELTA}δ, {len(plan) - 1} faults"
        + (", reconfiguration" if reconfigure else "")
        + ("" if options.direct else ", decisions passed on")
        + (", requests on final timestamps" if options.on_final else "")
    )
    return Trial(world, calm_at, config, tuple(properties)).follow(plan)
