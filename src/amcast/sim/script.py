"""Runs under full control: which message takes how long, who crashes when. For claims and scenarios.

Times in a script are in δ. Rules say how long the messages that they match take; the newest match wins, everything
else takes exactly δ, and a message that is LOST belongs to a sender that crashes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from amcast.core.capabilities import Dynamic
from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Mid, Topology
from amcast.core.trace import Event, ListRecorder
from amcast.core.wire import Message
from amcast.sim.choices import Choices, Seeded
from amcast.sim.faults import Detect, Refuse
from amcast.sim.network import LOST, MILLISECOND, Network
from amcast.sim.world import World

DELTA = MILLISECOND
MOST = 20_000  # messages: a script that takes more goes on for ever
NEVER = -1.0  # as a delay: the message is lost


@dataclass
class Rule:
    sender: str | None
    dest: str | None
    type: str | None
    delay: int

    def matches(self, sender: str, dest: str, type: str) -> bool:
        return self.sender in (None, sender) and self.dest in (None, dest) and self.type in (None, type)


class Scripted(Network):
    """δ for every message, but for what the rules say."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(DELTA)
        self.names = topology.names
        self.rules: list[Rule] = []

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        for rule in reversed(self.rules):
            if rule.matches(self.names[sender], self.names[dest], type(msg).__name__):
                return rule.delay
        return DELTA


class Script:
    """A world to be told what to do. Nothing happens by itself: heartbeats are rare unless asked for."""

    def __init__(
        self,
        protocol: Protocol,
        sizes: tuple[int, ...],
        clients: int = 3,
        heartbeat: float = 10_000,
        full: bool = True,
        durable: bool = False,
        spare: int = 0,
        ahead: dict[int, float] | None = None,
        tail_bytes: int = 0,
        tells_clients: bool = False,  # who begins to lead does, at once
        founders: int = 0,  # of each group that may come later
        more_groups: int = 0,
    ) -> None:
        self.topology = Topology(sizes, clients, 0, more_groups, founders + spare)
        self.network = Scripted(self.topology)
        self.recorder = ListRecorder(full=full)
        params = Params(
            DELTA, heartbeat=int(heartbeat * DELTA), checked=True, durable=durable, spare=spare, tail_bytes=tail_bytes,
            founders=founders,
        )  # fmt: skip
        skew = [int((ahead or {}).get(g, 0) * DELTA) for g in self.topology.group_of]  # clocks of groups
        self.world = World(
            protocol, self.topology, self.network, Seeded(0), params=params, recorder=self.recorder, run="script",
            skew=skew,
        )  # fmt: skip
        self.world.tells_clients = tells_clients

    def at(self, time: float, act: Callable[[], object]) -> None:
        """Do this at that time, before anything else that happens then and was planned later."""
        self.world.call(int(time * DELTA), lambda _: (act(), None)[1])

    def delay(self, sender: str | None, dest: str | None, type: str | None, delay: float) -> Rule:
        """Let these messages take so many δ from now on (NEVER: they are lost)."""
        rule = Rule(sender, dest, type, LOST if delay == NEVER else int(delay * DELTA))
        self.network.rules.append(rule)
        return rule

    def normal(self, rule: Rule) -> None:
        """End a rule."""
        self.network.rules.remove(rule)

    def multicast(self, client: str, *groups: int) -> Mid:
        return self.world.multicast(self.topology.pid(client), tuple(groups), b"")

    def crash(self, *names: str, lose: bool = True) -> None:
        """Stop these processes; what they have under way is lost, or arrives."""
        for name in names:
            self.world.crash(self.topology.pid(name), (lambda _: -1) if lose else (lambda _: 1 << 62))

    def restart(self, *names: str) -> None:
        """Start these processes again, from their disks or without."""
        for name in names:
            self.world.restart(self.topology.pid(name))

    def recover(self, name: str) -> None:
        """Let this process start to recover its group as leader."""
        self.world.suspect(self.topology.pid(name))

    def refuse(self, name: str, target: str) -> None:
        """Let this process find that nobody listens where another one of its group did."""
        Refuse(self.topology.pid(name), self.topology.pid(target)).act(self.world)

    def detect(self, name: str, *targets: str, suspected: bool = True) -> None:
        """Let the failure detector of this process suspect these, or trust them again."""
        for target in targets:
            pid = self.topology.pid(target)
            Detect(self.topology.pid(name), pid, suspected).act(self.world)

    def change_members(self, name: str, *members: int) -> None:
        """Let this process propose other members."""
        pid = self.topology.pid(name)
        self.world.tell(pid, Dynamic, lambda process, now: process.change_members(now, members))

    def join_group(self, name: str) -> None:
        self.world.tell(self.topology.pid(name), Dynamic, lambda process, now: process.join_group(now))

    def leave_group(self, name: str) -> None:
        self.world.tell(self.topology.pid(name), Dynamic, lambda process, now: process.leave_group(now))

    def run(self, until: float | None = None) -> None:
        if until is not None:
            self.at(until, self.world.stop)
        self.world.run(MOST)

    def sent(self, type: str, sender: str | None = None) -> list[Event]:
        """Return the messages of this type that anybody sent, or this process."""
        events = [e for e in self.recorder.events if e.kind == "send" and e.type == type]
        return [e for e in events if sender in (None, e.process)]

    def deliveries(self, process: str) -> list[str]:
        """Return what a process delivered, in order."""
        return [e.message or "" for e in self.recorder.events if e.kind == "deliver" and e.process == process]

    def event(self, kind: str, process: str, message: str) -> Event:
        """Return the one event of this kind."""
        found = [e for e in self.recorder.events if (e.kind, e.process, e.message) == (kind, process, message)]
        assert len(found) == 1, f"{len(found)} {kind} events of {message} at {process}"
        return found[0]

    def latency(self, process: str, message: str) -> float:
        """Return the δ from the multicast of a message to its delivery at a process."""
        client = message.split(":")[0]
        start = self.event("multicast", client, message).time
        end = self.event("deliver", process, message).time
        assert start is not None and end is not None
        return (end - start) / DELTA
