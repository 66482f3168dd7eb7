"""What a seed stands for: the size of a cluster, its limits, its network, its load and the plan of its faults."""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from amcast.protocols import PROTOCOLS
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.machine import Limits
from amcast.runtime.seats import Place
from amcast.swarm.cluster.calendar import MICROSECOND, MILLISECOND
from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.plan import Plan, draw_changes, draw_moves, draw_plan
from amcast.swarm.cluster.faults.upgrades import Upgrade, draw_upgrades
from amcast.swarm.cluster.network import Weather

ECHO, STORE, GATEWAY = LOADS = ("echo", "store", "kv")  # multicasts of many sizes; direct users of the store; Redis
PEER_PORT: Final = 4100
OPERATOR: Final = "operator"
RESP_PORT: Final = 6379
MANY: Final = 40  # users of one client
MOST_BYTES: Final = 6_000_000  # of payloads in a run: each is a dozen times in memory, at every replica
PARTS: Final = {0.8: 20, 0.3: 7, 0.1: 2}  # by the shape of sizes: which part of the largest their mean is, about


@dataclass(frozen=True)
class Scale:
    """How large a run is: what is drawn from for it."""

    calm_at: tuple[int, ...]  # milliseconds
    groups: tuple[int, ...]
    replicas: tuple[int, ...]
    users: tuple[int, ...]  # of each client
    calls: int  # in a run, at most


# What most faults need is a few calls around them, and many ways to fall: a run of a tenth of the size is a tenth of
# the work, and finds most of what the large one does. Some things need time, members or masses, so some runs have them.
SMALL: Final = Scale((1000, 1500, 2000, 3000), (1, 1, 1, 2), (3,), (1, 2, 4), 40)
MIDDLE: Final = Scale((2000, 3000, 4000, 6000), (1, 1, 2, 2, 3), (3, 3, 3, 3, 1, 5), (1, 2, 4, 10), 120)
LARGE: Final = Scale((4000, 6000, 8000, 12_000), (1, 1, 1, 2, 3), (3, 3, 3, 5), (1, 2, 4, 10, MANY, MANY), 400)
SCALES: Final = (*[SMALL] * 12, *[MIDDLE] * 5, *[LARGE])


@dataclass(frozen=True)
class Setup:
    """All that a seed draws. The run that it stands for follows from this, and from the code."""

    seed: int
    protocol: str
    load: str
    groups: int
    replicas: int
    clients: int
    gateways: int
    users: int  # of each client
    wishes: int  # of each user
    think: float  # seconds between them
    deadline: float
    payload: int  # the largest
    shape: float  # of their sizes
    largest_message: int
    suspect_ms: int  # until a silent leader is suspected
    two_rounds: bool
    traced: bool
    turn_cost: int
    calm_at: int  # milliseconds
    limits: Limits
    weather: Weather
    plan: Plan
    lost: tuple[str, ...]  # replicas that stay away when the faults end

    @property
    def upgrades(self) -> bool:
        """Return whether all get the release to come, in the calm at the latest."""
        return any(isinstance(fault, Upgrade) for fault in self.plan)

    def __str__(self) -> str:
        kinds = sorted({type(fault).__name__ for fault in self.plan})
        small = [f"{name} {value:g}" for name, value in changed(self.limits).items()]
        parts = [
            f"{self.load}: {self.groups} groups of {self.replicas}, {self.clients} clients of {self.users} users",
            f"calm at {self.calm_at / 1000:g} s",
            f"{len(self.plan)} faults" + (f" ({', '.join(kinds)})" if kinds else ""),
            f"{', '.join(self.lost)} lost" if self.lost else "",
            f"window {self.weather.window}, largest message {self.largest_message}",
            ", ".join(small),
        ]
        return "; ".join(part for part in parts if part)


def changed(limits: Limits) -> dict[str, float]:
    """Return the limits that are not those of a real node."""
    usual = Limits()
    return {name: value for name, value in vars(limits).items() if value != getattr(usual, name)}


def draw_setup(protocol: str, seed: int, load: str) -> Setup:
    """Draw everything; `load` is empty where that is drawn as well."""
    random = Random(f"{seed} setup")
    load = load or random.choice((ECHO, STORE))
    scale = random.choice(SCALES)
    groups = random.choice(scale.groups)
    groups = 1 if PROTOCOLS[protocol].single_group else groups
    replicas = random.choice(scale.replicas)
    clients = random.choice((1, 2, 2, 3))
    gateways = random.choice((1, 2)) if load == GATEWAY else 0
    calm_at = random.choice(scale.calm_at)
    think = random.choice((0.02, 0.05, 0.1, 0.2))
    users = random.choice(scale.users)
    limits, window, largest = draw_limits(random)
    payload = min(random.choice((100, 1000, 10_000, 60_000)), largest // 2)
    if (
        window < 20_000
    ):  # what takes dozens of round trips is sent again before it has arrived, and nothing else is seen
        payload = min(payload, 4 * window)
    shape = random.choice((0.8, 0.8, 0.3, 0.1))
    deadline = random.choice((2.0, 2.0, 5.0, 10.0))
    if users == MANY:  # what is under way, and what was given up, is more than one frame may hold
        payload, shape, deadline = min(60_000, largest // 2), 0.1, 2.0
        window = max(window, 2 * payload)  # in smaller pieces it takes too long
    most = scale.calls * 3 // max(3, groups * replicas)
    if load == ECHO:
        most = min(most, MOST_BYTES * PARTS[shape] // payload)
    wishes = max(3, min(int(calm_at / 1000 * 0.8 / think), most // (clients * users)))
    weather = Weather(
        shortest=random.choice((20, 50, 200)) * MICROSECOND,
        longest=random.choice((300 * MICROSECOND, MILLISECOND, 5 * MILLISECOND)),
        window=window,
        splits=random.choice((0, 4, 16)),
    )
    names = [[f"g{g}/{r}" for r in range(replicas)] for g in range(groups)]
    hosts = [name for group in names for name in group] + [f"c{n}" for n in range(clients)]
    gates = [f"gateway{n}" for n in range(gateways)]
    drawing = Drawing(Random(f"{seed} plan"), names, hosts, gates, calm_at)
    changes: Plan = []
    if PROTOCOLS[protocol].change is not None:
        changes = draw_changes(Drawing(Random(f"{seed} members"), names, hosts, gates, calm_at))
    upgrades: Plan = []
    if PROTOCOLS[protocol].elects:
        own_chance = Drawing(Random(f"{seed} upgrades"), names, hosts, gates, calm_at)
        upgrades = [*draw_upgrades(own_chance, back=not changes)]
    suspect_ms = random.choice((300, 800))
    two_rounds = random.random() < 0.7
    moves: Plan = []
    if load == STORE or (load == GATEWAY and two_rounds):  # else which groups a command had cannot be told afterwards
        moves = draw_moves(Drawing(Random(f"{seed} slots"), names, hosts, gates, calm_at))
    return Setup(
        seed=seed,
        protocol=protocol,
        load=load,
        groups=groups,
        replicas=replicas,
        clients=clients,
        gateways=gateways,
        users=users,
        wishes=wishes,
        think=think,
        deadline=deadline,
        payload=payload,
        shape=shape,
        largest_message=largest,
        suspect_ms=suspect_ms,
        two_rounds=two_rounds,
        traced=random.random() < 0.7,
        turn_cost=random.choice((5, 40, 200)) * MICROSECOND,
        calm_at=calm_at,
        limits=limits,
        weather=weather,
        plan=draw_plan(drawing) + changes + moves + upgrades,
        lost=drawing.lost() if random.random() < 0.2 else (),
    )


def draw_limits(random: Random) -> tuple[Limits, int, int]:
    """Draw the limits of nodes, the window of connections and the largest message: what goes together, together.

    A window is well below what a node keeps for a member, and so is a message: else a limit finds only itself.
    """
    limits = Limits()
    window, largest = 256 * 1024, random.choice((2**20, 2**16))
    if random.random() < 0.3:
        return limits, window, largest

    def some(**values: float) -> None:
        nonlocal limits
        if random.random() < 0.5:
            limits = replace(limits, **values)  # type: ignore[arg-type]

    every = random.choice((3_000, 10_000, 50_000))
    some(
        snapshot_every=every, part_bytes=max(500, every // 20), written_at_once=max(1000, every // 10)
    )  # many commits fall into one
    some(segment_bytes=random.choice((1_000, 4_000, 20_000)))
    rows = random.choice((1_000, 8_000))
    some(file_bytes=rows, kept_on_disk=rows * random.choice((4, 1000)))
    some(kept_in_memory=random.choice((2_000, 16_000)))
    some(sync_after=random.choice((0.01, 0.5)))
    some(rows_at_once=random.choice((20_000, 60_000)), most_read=random.choice((2_000, 20_000)))
    some(seconds_of_silence=1.0, seconds_to_greet=2.0)
    some(seconds_of_pull=2.0)
    some(gateway_batch_bytes=4_000, under_way=2)
    if random.random() < 0.5:
        kept = random.choice((30_000, 50_000, 100_000, 300_000))
        limits = replace(limits, most_kept=kept, congested=kept // 4)
        window, largest = kept // 8, kept // 8
    elif random.random() < 0.5:
        window = random.choice((4_000, 16_000))
    return limits, window, largest


def other_config(setup: Setup, other: str, replica: str) -> ClusterConfig:
    """Return a configuration that is not that of a cluster, but has this replica in it."""
    last = int(replica.partition("/")[2]) + 1
    if other == "app":
        return config_of(replace(setup, load=STORE if setup.load == ECHO else ECHO))
    if other == "group":
        return config_of(replace(setup, groups=setup.groups + 1))
    fewer = other == "fewer" and setup.replicas - 2 >= last
    return config_of(replace(setup, replicas=setup.replicas + (-2 if fewer else 2)))


def place_of_seat(group: int, seat: int) -> Place:
    """Return where a replica is: it has a host of its own."""
    host = f"127.0.{1 + group}.{1 + seat}"
    return Place(seat, *[f"{host}:{PEER_PORT + n}" for n in range(3)])


def config_of(setup: Setup) -> ClusterConfig:
    """Return the cluster's configuration, read from a file as everywhere; every replica has a host of its own."""
    lines = ["[cluster]", 'name = "simulated"', f'protocol = "{setup.protocol}"']
    lines += [f'app = "{"log" if setup.load == ECHO else "kv"}"', f"largest_message = {setup.largest_message}"]
    lines += ["[timing]", f"suspect_ms = {setup.suspect_ms}"]
    for g in range(setup.groups):
        for r in range(setup.replicas):
            host = f"127.0.{1 + g}.{1 + r}"
            lines += ["[[replica]]", f'id = "g{g}/{r}"']
            lines += [f'{key} = "{host}:{PEER_PORT + n}"' for n, key in enumerate(("peer", "client", "admin"))]
    for name in [f"c{n}" for n in range(setup.clients)] + [f"gateway{n}" for n in range(setup.gateways)]:
        lines += [f"[clients.{name}]", 'read = ["*"]', 'write = ["*"]']
    lines += [f"[clients.{OPERATOR}]", 'read = ["*"]', 'write = ["*"]', "operate = true"]
    with TemporaryDirectory() as folder:
        (Path(folder) / "cluster.toml").write_text("\n".join(lines))
        config = load_config(folder)
    members = [replace(m, data=Path("/data") / m.name.replace("/", "-")) for m in config.members]
    return replace(config, path=Path("/cluster.toml"), members=tuple(members))
