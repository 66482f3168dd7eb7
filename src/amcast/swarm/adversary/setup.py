"""What a seed of the adversary draws before its run begins: who takes part, what is promised, what may go wrong.

Everything follows from the capabilities and the row of a protocol.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Event
from amcast.sim.choices import Choices
from amcast.sim.relation import configured
from amcast.swarm.optimistic import draw_options
from amcast.swarm.trial import DELTA, judge_always, lost_with_sender

NEVER = 1 << 50  # ns: a time-out that does not run out
HEARTBEAT = 5 * DELTA
# How late a timer fires: in time mostly, else later than every time-out.
DELAYS = (0, 0, 0, 0, 0, DELTA, 30 * DELTA, 200 * DELTA, 3000 * DELTA)
RATES = (0, DELTA // 100, DELTA // 10, DELTA, 10 * DELTA)  # by which a clock grows in a step


@dataclass
class Setup:
    """The surroundings of one run."""

    table: Protocol
    seed: int
    topology: Topology
    params: Params
    messages: int  # that are multicast before the calm
    senders: tuple[int, ...]
    uniform: bool = True
    durable: bool = False
    at_once: bool = True  # what a process sends to itself is part of the same step
    accurate: bool = True  # nobody suspects who is up, but for `false_edges`
    early: bool = False  # who crashed may be suspected before all that it sent has arrived
    pauses: bool = False  # somebody may stand still until it is taken for crashed
    anchors: tuple[int, ...] = ()  # who never crashes, and is never suspected
    false_edges: tuple[tuple[int, int], ...] = ()  # who may suspect whom for no reason
    may_be_down: list[int] = field(default_factory=list)  # per group: how many at once
    clients_crash: bool = False
    # Clients are those of a cluster: no process knows them beforehand, and they hear nothing but answers.
    strangers: bool = False
    withdraws: bool = False  # clients give up what nobody has
    reconfigures: bool = False
    spare: tuple[int, ...] = ()  # who may join
    leavers: tuple[int, ...] = ()
    members_change: bool = False  # by messages of administrators, who are clients
    groups_come: bool = False  # likewise
    delays: tuple[int, ...] = DELAYS
    rates: list[int] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    excuse: Callable[[Sequence[Event]], str] = judge_always

    @property
    def run(self) -> str:
        return f"{self.table.name}-{self.seed}"

    def may_err(self, pid: int, other: int) -> bool:
        """Return whether this process may suspect one that is up."""
        if other in self.anchors:
            return False
        return not self.accurate or (pid, other) in self.false_edges

    def properties(self) -> list[str]:
        """Return what must hold, by what the protocol promises."""
        table = self.table
        names = ["integrity", "validity", *["order" if order == "total" else order for order in table.orders]]
        if "causal" in table.orders:
            names.append("fifo")
        if table.guesses:
            names.append("optimistic")
        if table.reconfigures and self.topology.clients:  # a client is served by any member
            names = [name for name in names if name not in ("fifo", "optimistic")]
        if table.genuine:
            names.append("genuine")
        return [*names, "agreement" if self.uniform else "agreement-nonuniform", "termination"]

    def describe(self) -> str:
        sizes = " ".join(str(len(members)) for members in self.topology.groups)
        words = [f"groups of {sizes}", f"{len(self.topology.clients)} clients", f"{self.messages} messages"]
        words += ["disks"] if self.durable else []
        words += [f"up to {' '.join(map(str, self.may_be_down))} down"] if any(self.may_be_down) else []
        words += [f"{len(self.spare)} more may join"] if self.spare else []
        words += [f"{len(self.leavers)} may leave"] if self.leavers else []
        words += [f"members change, {self.params.spare} of each group spare"] if self.members_change else []
        more = len(self.topology.groups) - len(self.topology.sizes)
        words += [f"{more} of these groups may come later"] if self.groups_come else []
        words += ["groups join and leave"] if self.reconfigures else []
        words += ["one is paused"] if self.pauses else []
        words += ["crashes noticed early"] if self.early else []
        words += ["anybody may be suspected"] if not self.accurate else []
        words += [f"{len(self.false_edges)} wrong suspicions"] if self.false_edges else []
        words += ["clients of a cluster"] if self.strangers else []
        words += ["clients give up"] if self.withdraws else []
        words += [] if self.at_once else ["words to oneself wait"]
        return ", ".join(words)


def draw_setup(table: Protocol, seed: int, choices: Choices) -> Setup:
    if table.broadcast:
        setup = draw_broadcast(table, seed, choices)
    elif table.detector == "Θ":
        setup = draw_open_groups(table, seed, choices)
    elif table.reconfigures:
        setup = draw_relation(table, seed, choices)
    else:
        setup = draw_groups(table, seed, choices)
    n = setup.topology.size
    same = choices.chance(50)
    rates: tuple[int, ...] = RATES
    if table.guesses:  # it measures delays, and waits for as long as it has seen them take
        rates = RATES[:3]
        setup.delays = tuple([delay for delay in DELAYS if delay <= 30 * DELTA])
    rate = rates[choices.below(len(rates))]
    setup.rates = [rate if same else rates[choices.below(len(rates))] for _ in range(n)]
    setup.clocks = [choices.below(5 * DELTA) for _ in range(n)]
    setup.at_once = choices.chance(60)
    if not setup.may_be_down:
        setup.may_be_down = [0] * len(setup.topology.groups)
    return setup


def draw_messages(choices: Choices) -> int:
    return 1 + choices.below(choices.below(12) + 1)


def draw_sizes(table: Protocol, choices: Choices) -> tuple[int, ...]:
    groups = 1 if table.single_group else (1, 1, 2, 2, 3)[choices.below(5)]
    if table.single_replica:
        return (1,) * groups
    size = (3, 3, 3, 3, 3, 3, 1, 5)[choices.below(8)]
    return tuple([size if choices.chance(85) else 1 + 2 * choices.below(2) for _ in range(groups)])


def draw_groups(table: Protocol, seed: int, choices: Choices) -> Setup:
    """Clients multicast to groups that elect leaders, or to single processes that never fail."""
    sizes, clients = draw_sizes(table, choices), 1 + choices.below(3)
    durable = table.durable and choices.chance(50)
    tail_bytes = choices.pick((0, 300, 700)) if durable else 0
    messages = draw_messages(choices)
    spare = 2 + choices.below(3) if durable and table.change is not None and choices.chance(50) else 0
    # By the seed: nothing is drawn for it, so that all other seeds stay what they were.
    more = 1 + seed % 2 if spare and table.found is not None and seed % 7 in (3, 5, 6) else 0
    founders = (3, 3, 1)[seed % 3] if more else 0
    topology = Topology(tuple([size + spare for size in sizes]), clients, 0, more, founders + spare)
    params = Params(DELTA, checked=True, durable=durable, tail_bytes=tail_bytes, spare=spare, founders=founders)
    setup = Setup(table, seed, topology, params, messages, topology.clients)
    setup.durable = durable
    setup.members_change = spare > 0
    setup.groups_come = more > 0
    setup.clients_crash = choices.chance(40)
    if durable:
        setup.may_be_down = [len(members) for members in topology.groups]
    elif table.elects:
        setup.may_be_down = [table.bears(len(members)) for members in topology.groups]
    if table.blocks or not table.elects:
        setup.excuse = lost_with_sender
    return setup


def draw_relation(table: Protocol, seed: int, choices: Choices) -> Setup:
    """Members or clients multicast; groups begin and end to send to each other."""
    clients = 1 + choices.below(3) if choices.chance(25) else 0
    topology = Topology(draw_sizes(table, choices), clients)
    variant = configured(table, draw_options(choices, len(topology.groups), clients > 0))
    senders = topology.clients or tuple(range(topology.replicas))
    setup = Setup(variant, seed, topology, Params(DELTA, checked=True), draw_messages(choices), senders)
    setup.clients_crash = choices.chance(40)
    setup.reconfigures = len(topology.groups) > 1 and choices.chance(70 if not clients else 40)
    if choices.chance(70):
        setup.may_be_down = [table.bears(len(members)) for members in topology.groups]
    return setup


def draw_open_groups(table: Protocol, seed: int, choices: Choices) -> Setup:
    """Everybody multicasts; any number may crash, and Θ distrusts anybody but the anchor of a group."""
    sizes = tuple([1 + choices.below(3) for _ in range(1 + choices.below(3))])
    topology = Topology(sizes, 1 + choices.below(2))
    params = Params(DELTA, heartbeat=HEARTBEAT, suspect_after=NEVER, checked=True)
    setup = Setup(table, seed, topology, params, draw_messages(choices), tuple(range(topology.size)))
    setup.clients_crash = choices.chance(40)
    edges: list[tuple[int, int]] = []
    for members in topology.groups:
        anchor = members[choices.below(len(members))] if choices.chance(80) else -1
        if anchor >= 0:
            setup.anchors += (anchor,)
            edges += [(q, p) for p in members for q in range(topology.replicas) if p != anchor and q != p]
    setup.false_edges = tuple(edges)
    setup.may_be_down = [len(members) for members in topology.groups]
    setup.strangers = choices.chance(50)
    setup.withdraws = choices.chance(50)
    if table.blocks:
        setup.excuse = lost_with_sender
    return setup


def draw_broadcast(table: Protocol, seed: int, choices: Choices) -> Setup:
    """Servers broadcast, crash, join and leave; with ◇P some are suspected wrongly."""
    n = (1, 2, 3, 3, 4, 5, 5, 6, 7)[choices.below(9)]
    eons = table.joins and choices.chance(50)
    spare = (0, 1, 1, 2)[choices.below(4)] if eons else 0
    leave = choices.below(2) if eons and n > 1 else 0
    f = bearable(table, n, spare, leave) if table.detector else 0
    crashes = choices.below(f + 1)
    if leave > (f - crashes if table.uniform else n - 1):
        leave = 0
    wild = table.detector == "◇P" and choices.chance(40)
    early = table.detector == "P" and choices.chance(40)
    uniform = table.uniform and not early
    clients = 0 if crashes and not uniform else choices.below(3)
    topology = Topology((n + spare,), clients)
    params = Params(DELTA, heartbeat=HEARTBEAT, suspect_after=0 if wild else NEVER, checked=True, spare=spare)
    setup = Setup(table, seed, topology, params, draw_messages(choices), tuple(range(topology.size)))
    if table.durable and choices.chance(50):
        setup.durable = params.durable = True
        params.tail_bytes = choices.pick((1 << 30, 600, 1500))
        crashes = n + spare  # all, and they come back
    setup.uniform = uniform
    setup.early = early
    setup.accurate = not wild
    setup.may_be_down = [crashes]
    setup.spare = tuple(range(n, n + spare))
    setup.leavers = choices.sample(n, leave)
    if table.detector == "◇P" and n > 1 and not wild:
        count = choices.below(f - crashes - leave + 1) if f - crashes > leave else 0
        setup.false_edges = tuple([choices.sample(n, 2)[:: 1 - 2 * choices.below(2)] for _ in range(count)])  # type: ignore[misc]
    setup.clients_crash = choices.chance(40)
    if table.detector == "P" and crashes and not clients and choices.chance(30):
        setup.pauses = True
        setup.uniform = False  # what it delivers before it knows that the others went on counts as little
    return setup


def bearable(table: Protocol, members: int, join: int, leave: int) -> int:
    """Return how many crashes are borne whatever the members are meanwhile: some join, leave, or are removed."""
    most = table.bears(members)
    while most > 0:
        sizes = range(members - leave, members + join + 1)
        if all(most - gone <= table.bears(max(1, size - gone)) for size in sizes for gone in range(most)):
            break
        most -= 1
    return most
