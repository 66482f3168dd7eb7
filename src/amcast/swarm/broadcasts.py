"""Swarms of atomic broadcast: servers crash, also inside their broadcasts, join, leave, and are suspected wrongly.

With a perfect detector timeouts exceed every delay, or successors learn of a crash at once, before what the crashed
server sent has arrived (then only what correct servers deliver counts). With an eventually perfect one, either a few
wrong suspicions are withdrawn again, and all must go on; or links, pauses and partitions make servers suspect each
other as they like: then nothing need be delivered, but nothing may be delivered differently.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from amcast.core.capabilities import Dynamic
from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Event, Recorder
from amcast.protocols.allconcur.digraphs import reliable_digraph
from amcast.sim.choices import Choices, Seeded
from amcast.sim.faults import CalmDown, Crash, Detect, disturbances
from amcast.sim.world import PAUSED, Action, World
from amcast.swarm.open_groups import Chatter
from amcast.swarm.trial import DELTA, LONGEST, Trial, draw_network, draw_world, judge_always

SIZES = (1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 12)


class Notice(Action):
    """A failure detector suspects a server soon after its crash."""

    def __init__(self, pid: int, target: int) -> None:
        self.pid = pid
        self.target = target

    def act(self, world: World) -> None:
        if not world.up(self.target):
            Detect(self.pid, self.target, True).act(world)
        elif world.now < 300 * DELTA:
            world.at(int(world.now) + DELTA, self)


class Reconfigure(Action):
    """Ask some server for another membership, again and again until it is there."""

    def __init__(self, join: tuple[int, ...], leave: tuple[int, ...]) -> None:
        self.join = join
        self.leave = leave
        self.tries = 20

    def act(self, world: World) -> None:
        others = [p for p in range(world.topology.replicas) if world.up(p) and p not in self.leave]
        inside = [p for p in others if self.members(world, p)]
        if not inside:
            return
        asked = inside[world.choices.below(len(inside))]
        members = self.members(world, asked)
        wanted = tuple(p for p in sorted({*members, *self.join} - set(self.leave)) if world.up(p))
        if wanted != members and wanted:
            world.tell(asked, Dynamic, lambda process, now: process.change_members(now, wanted))
            self.tries -= 1
            if self.tries > 0:
                world.at(int(world.now) + 60 * DELTA, self)

    def members(self, world: World, p: int) -> tuple[int, ...]:
        process = world.processes[p]
        assert isinstance(process, Dynamic)
        return process.members

    def __repr__(self) -> str:
        return f"join {self.join} leave {self.leave}"


class AskTo(Action):
    """A server asks by itself to join or to leave."""

    def __init__(self, pid: int, join: bool) -> None:
        self.pid = pid
        self.join = join

    def act(self, world: World) -> None:
        if world.state[self.pid] == PAUSED:  # it asks when it goes on
            world.at(int(world.now) + DELTA, self)
        ask = Dynamic.join_group if self.join else Dynamic.leave_group
        world.tell(self.pid, Dynamic, ask)

    def __repr__(self) -> str:
        return f"{self.pid} asks to {'join' if self.join else 'leave'}"


@dataclass
class Weather:
    """What kind of faults a trial has."""

    crashes: int
    early: bool
    false_edges: int
    wild: bool
    room: int  # how many more may go


def broadcast_trial(table: Protocol, seed: int, recorder: Recorder | None) -> Trial:
    choices = Seeded(seed)
    n = SIZES[choices.below(len(SIZES))]
    eons = table.joins and choices.chance(30)
    spare = choices.below(3) if eons else 0
    clients = choices.below(4)
    calm_at = (20 + choices.below(200)) * DELTA
    network = draw_network(choices)
    messages = 3 + choices.below(50)
    weather = draw_weather(table, n, choices)
    uniform = table.uniform and not weather.early
    if weather.crashes and not uniform:
        clients = 0  # what a server replies to a client before it crashes binds nobody
    topology = Topology((n + spare,), clients)
    silence = (6 + choices.below(20) if weather.wild else 2 * LONGEST + 6) * DELTA
    params = Params(DELTA, heartbeat=5 * DELTA, suspect_after=silence, checked=True, spare=spare)
    workload = Chatter(messages, calm_at if choices.chance(60) else 20 * DELTA)
    world = draw_world(table, seed, topology, network, choices, params, workload, recorder)
    plan = faults(topology, n, choices, calm_at, weather)
    if eons:
        leave = choices.sample(n, min(n - 1, weather.room, choices.below(2)))
        if choices.chance(50):
            plan.append((choices.below(calm_at), Reconfigure(tuple(range(n, n + spare)), leave)))
        else:
            plan += [(choices.below(calm_at), AskTo(p, True)) for p in range(n, n + spare)]
            plan += [(choices.below(calm_at), AskTo(p, False)) for p in leave]
    world.obligations.uniform = uniform
    agreement = "agreement" if uniform else "agreement-nonuniform"
    properties = ("integrity", "validity", "order", "genuine", agreement, "termination")
    config = (
        f"{n} servers{f' and {spare} more' if spare else ''}, {len(topology.clients)} clients, {messages} messages, "
        f"{type(network).__name__} network, calm at {calm_at // DELTA}δ, {weather.crashes} crashes"
        f"{' noticed early' if weather.early else ''}, {weather.false_edges} wrong suspicions"
        f"{', wild' if weather.wild else ''}{', eons' if eons else ''}"
    )
    excuse = wild_excuse if weather.wild else judge_always
    return Trial(world, calm_at, config, properties, correct_only=not uniform, excuse=excuse).follow(plan)


def wild_excuse(events: Sequence[Event]) -> str:
    """Say that a server was suspected that was up: where anybody may be, nothing need be delivered."""
    down: set[str] = set()
    for event in events:
        if event.kind == "crash":
            down.add(event.process)
        elif event.kind == "suspect" and json.loads(event.detail or "{}").get("process") not in down:
            return "wrong suspicions in wild weather"
    return ""


def draw_weather(table: Protocol, n: int, choices: Choices) -> Weather:
    f = table.bears(n)
    crashes = choices.below(f + 1) if table.detector else 0
    wild = table.detector == "◇P" and choices.chance(40)
    early = table.detector == "P" and choices.chance(40)
    false_edges = choices.below(f - crashes + 1) if table.detector == "◇P" else 0
    return Weather(crashes, early, false_edges, wild, f - crashes if table.uniform else n - 1)


def faults(topology: Topology, n: int, choices: Choices, calm_at: int, weather: Weather) -> list[tuple[int, Action]]:
    plan: list[tuple[int, Action]] = []
    doomed = choices.sample(n, weather.crashes)
    for p in doomed:
        at = choices.below(calm_at)
        plan.append((at, Crash(p, choices.chance(70))))
        for q in range(topology.replicas) if weather.early else ():
            plan.append((at + choices.below(30 * DELTA), Notice(q, p)))
    graph = reliable_digraph(n)
    for _ in range(weather.false_edges):
        p = choices.below(n)
        if graph[p]:
            q = choices.pick(graph[p])
            start = choices.below(calm_at)
            plan.append((start, Detect(q, p, True)))
            plan.append((choices.between(start, calm_at), Detect(q, p, False)))
    if weather.wild:
        plan += disturbances(topology, choices, calm_at, DELTA)
    plan.append((calm_at, CalmDown()))
    return plan
