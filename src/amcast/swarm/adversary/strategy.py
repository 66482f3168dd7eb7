"""How chance plays against a protocol: phases in which some channels are frozen and the others served in a drawn way.

Uniform noise hardly ever keeps one message back while everything else goes on, and that is what breaks protocols. So a
seed draws a strategy. In every phase a few channels, or all of one process, or those whose next message is of one type,
stand still. The others are served eagerly until they are empty, or for a few steps, by one of several rules: the oldest
first, the newest first, any, one until it is empty, or by priorities that change now and then. In between come the
moves that are nobody's answer: multicasts, timers, elections, suspicions, crashes, restarts. Which of them a seed has,
and how often, is drawn as well, and so are the processes that most of them fall upon.
"""

from collections.abc import Callable

from amcast.core.capabilities import Dynamic, Electing, Reconfigurable, Seated
from amcast.sim.choices import Choices
from amcast.swarm.adversary.machine import Machine
from amcast.swarm.adversary.moves import Move
from amcast.swarm.adversary.setup import Setup

MOST_MOVES = 3000  # before the calm
MOST_AT_ONCE = 300  # deliveries between two moves of other kinds: heartbeats may go on for ever
DRAWS = 1 << 30
EARLY = -1


Ice = tuple[list[int], str]  # channels that stand still; if there is a type, when their next message is of it


class Strategy:
    """Plays one run up to its calm."""

    def __init__(self, machine: Machine, choices: Choices) -> None:
        self.machine = machine
        self.setup: Setup = machine.setup
        self.choices = choices
        self.left = self.setup.messages
        topology = machine.topology
        self.n = topology.size
        everybody = tuple(range(topology.size))
        self.focus = tuple([choices.pick(everybody) for _ in range(1 + choices.below(3))])
        self.frozen: list[bool] = [False] * (self.n * self.n)
        self.stuck: dict[tuple[int, str], bool] = {}  # a channel and a type of message at which it stops
        self.ice: list[Ice] = []  # what stands still in this phase
        self.priority: list[int] = [0] * (self.n * self.n)
        self.rule = self.in_turn
        self.last = -1  # the channel that was served last
        self.kinds: list[Callable[[], Move | None]] = []
        self.draw_kinds()

    def draw_kinds(self) -> None:
        """Draw which kinds of moves there are, and how often each."""
        setup, choices = self.setup, self.choices
        kinds: list[tuple[Callable[[], Move | None], int]] = [(self.timer, 8), (self.tick, 2), (self.multicast, 6)]
        possible: list[tuple[bool, Callable[[], Move | None], int]] = [
            (setup.table.elects, self.suspect, 3),
            (bool(setup.table.detector), self.detect, 6),
            (bool(setup.table.detector), self.trust, 2),
            (any(setup.may_be_down), self.crash, 2),
            (setup.pauses, self.pause, 4),
            (setup.clients_crash, self.crash_client, 1),
            (setup.durable, self.restart, 3),
            (setup.durable, self.snapshot, 1),
            (setup.durable, self.sync, 1),
            (setup.durable, self.lose_disk, 1),
            (setup.durable, self.roll_back, 1),
            (setup.durable, self.pull, 3),
            (bool(setup.topology.clients), self.disconnect, 3),
            (setup.withdraws, self.withdraw, 3),
            (setup.reconfigures, self.reconfigure, 5),
            (setup.members_change, self.change, 5),
            (setup.members_change, self.stop, 3),
            (setup.groups_come, self.found, 4),
            (bool(setup.spare), self.join, 4),
            (bool(setup.spare) and any(setup.may_be_down), self.desert, 3),
            (bool(setup.leavers), self.leave, 1),
            (bool(setup.spare or setup.leavers), self.change_members, 2),
        ]
        for is_possible, kind, weight in possible:
            if is_possible and choices.chance(75):
                kinds.append((kind, weight * (1, 1, 2, 4)[choices.below(4)]))
        for kind, weight in kinds:
            self.kinds += [kind] * weight

    # Phases

    def play(self) -> None:
        """Play some phases; or few and long ones, in which the same channels stand still for most of the run."""
        choices = self.choices
        long = choices.chance(30)
        if self.desert in self.kinds and choices.chance(60):
            self.desert()  # later on somebody is out of step mostly
        for _ in range(1 + choices.below(2) if long else 1 + choices.below(8)):
            self.draw_phase()
            eager = choices.chance(75)
            for _ in range(10 + choices.below(40) if long else 2 + choices.below(10)):
                self.own_move()
                self.serve(MOST_AT_ONCE if eager else choices.below(12))
                if len(self.machine.moves) > MOST_MOVES:
                    return

    def draw_phase(self) -> None:
        """Thaw some of what stands still, freeze something else, and draw by which rule the rest is served."""
        choices, n = self.choices, self.n
        self.ice = [frozen for frozen in self.ice if choices.chance(50)]
        for _ in range((0, 1, 1, 2, 2, 3)[choices.below(6)]):
            self.ice.append(self.draw_ice())
        self.frozen = [False] * (n * n)
        self.stuck = {}
        for channels, name in self.ice:
            for channel in channels:
                if name:
                    self.stuck[channel, name] = True
                else:
                    self.frozen[channel] = True
        rules = (self.in_turn, self.in_turn, self.newest, self.any, self.burst, self.by_priority)
        self.rule = rules[choices.below(len(rules))]
        if self.rule == self.by_priority:
            self.priority = [choices.below(DRAWS) for _ in range(n * n)]

    def draw_ice(self) -> Ice:
        """Draw channels that stand still, at any message or when the next one is of some type."""
        choices, n = self.choices, self.n
        kind = choices.below(10)
        pid = self.any_process()
        others = [p for p in range(n) if p != pid]
        incoming, outgoing = [p * n + pid for p in others], [pid * n + p for p in others]
        if kind < 4:
            return [pid * n + self.any_process()], ""
        if kind == 4:
            return incoming, ""
        if kind == 5:
            return outgoing, ""
        if kind == 6:  # between two groups, or inside of one
            groups = self.machine.topology.groups
            senders, receivers = groups[choices.below(len(groups))], groups[choices.below(len(groups))]
            return [p * n + q for p in senders for q in receivers if p != q], ""
        types = list(self.machine.types) or [cls for cls in self.setup.table.messages if isinstance(cls, type)]
        name = types[choices.below(len(types))].__name__
        return (incoming, outgoing, list(range(n * n)))[kind - 7], name

    # Service

    def serve(self, most: int) -> None:
        machine = self.machine
        for _ in range(most):
            ready = self.open_channels()
            if not ready:
                return
            self.last = self.rule(ready)
            machine.deliver(self.last)

    def open_channels(self) -> list[int]:
        frozen, stuck = self.frozen, self.stuck
        ready = [channel for channel in self.machine.ready() if not frozen[channel]]
        if not stuck:
            return ready
        channels = self.machine.channels
        return [channel for channel in ready if (channel, type(channels[channel][0]).__name__) not in stuck]

    def in_turn(self, ready: list[int]) -> int:
        """Return the next channel in the order of their numbers."""
        last = self.last
        following = [channel for channel in ready if channel > last]
        return min(following or ready)

    def newest(self, ready: list[int]) -> int:
        return ready[-1]

    def any(self, ready: list[int]) -> int:
        return ready[self.choices.below(len(ready))]

    def burst(self, ready: list[int]) -> int:
        return self.last if self.last in ready else ready[self.choices.below(len(ready))]

    def by_priority(self, ready: list[int]) -> int:
        best = max(ready, key=lambda channel: self.priority[channel])
        if self.choices.below(40) == 0:
            self.priority[best] = -self.choices.below(DRAWS)
        return best

    # Moves that are nobody's answer

    def own_move(self) -> None:
        """Make one, or a few of the same kind, if one is possible."""
        for _ in range(4):
            move = self.kinds[self.choices.below(len(self.kinds))]()
            if move is not None and self.machine.make(move):
                return

    def any_process(self) -> int:
        if self.choices.chance(50):
            return self.choices.pick(self.focus)
        return self.choices.below(self.n)

    def any_replica(self) -> int:
        pid = self.any_process()
        return pid if pid < self.machine.topology.replicas else self.choices.below(self.machine.topology.replicas)

    def draw(self) -> int:
        return self.choices.below(DRAWS)

    def multicast(self) -> Move | None:
        if self.left == 0:
            return None
        pid = self.choices.pick(self.setup.senders)
        process = self.machine.able(pid, Reconfigurable)
        may: list[int] = self.machine.seating.there()
        if process is not None and not (self.setup.reconfigures and self.choices.chance(10)):
            may = process.may_send_to()  # else it waits until it may
        if not may:
            return None
        self.left -= 1
        chosen = self.choices.sample(len(may), 1 + self.choices.below(len(may)))
        return ("multicast", pid, tuple([may[i] for i in chosen]))

    def timer(self) -> Move | None:
        pid = self.any_process()
        timers = self.machine.timers[pid]
        if not timers:
            return None
        name = timers[self.choices.below(len(timers))][0]
        delay = EARLY if self.choices.chance(8) else self.setup.delays[self.choices.below(len(self.setup.delays))]
        for _ in range(self.choices.below(6) if self.choices.chance(25) else 0):  # again and again
            self.machine.make(("timer", pid, name, delay))
        return ("timer", pid, name, delay)

    def tick(self) -> Move | None:
        """Fire a timer of everybody, as if time passed."""
        for pid in range(self.n):
            if self.machine.timers[pid] and self.machine.up[pid]:
                self.machine.make(("timer", pid, self.machine.timers[pid][0][0], 0))
                self.serve(self.choices.below(3))
        return self.timer()

    def suspect(self) -> Move | None:
        """Let somebody suspect its leader, or find that somebody of its group refuses it: one that crashed mostly."""
        pid = self.any_replica()
        machine, choices = self.machine, self.choices
        if choices.chance(60):
            return ("suspect", pid)
        others = [p for p in machine.topology.groups[machine.topology.group_of[pid]] if p != pid]
        others = [p for p in others if not machine.up[p]] or others
        return ("refuse", pid, others[choices.below(len(others))]) if others else None

    def detect(self) -> Move | None:
        """Let somebody suspect who crashed, or, where that is allowed, somebody else."""
        setup, choices = self.setup, self.choices
        down = [p for p in range(self.machine.topology.replicas) if not self.machine.up[p]]
        if down and choices.chance(70):
            return ("detect", self.any_process(), down[choices.below(len(down))])
        if setup.false_edges:
            return ("detect", *setup.false_edges[choices.below(len(setup.false_edges))])
        return ("detect", self.any_replica(), self.any_replica()) if not setup.accurate else None

    def trust(self) -> Move | None:
        if not self.machine.suspicions:
            return None
        pairs = list(self.machine.suspicions)
        return ("trust", *pairs[self.choices.below(len(pairs))])

    def crash(self) -> Move | None:
        if self.setup.table.guesses and self.choices.chance(30):
            return self.crash_after_multicasts()
        return ("falter" if self.choices.chance(50) else "crash", self.any_replica(), self.draw())

    def pause(self) -> Move | None:
        """Stop somebody; later let some of the others suspect it, and then let it go on."""
        machine, choices = self.machine, self.choices
        paused = [p for p in range(machine.topology.replicas) if machine.paused[p]]
        if not paused:
            return ("pause", self.any_replica())
        if choices.chance(60):
            for pid in range(machine.topology.replicas):
                if choices.chance(80):
                    machine.make(("detect", pid, paused[0]))
                    self.serve(choices.below(12))
            return None
        machine.make(("resume", paused[0]))
        if machine.timers[paused[0]] and choices.chance(70):  # its time-outs come before what waits for it
            machine.make(("timer", paused[0], machine.timers[paused[0]][0][0], 0))
        return None

    def crash_after_multicasts(self) -> Move | None:
        """Let somebody multicast a few times and crash at once: the first messages may be lost and later ones not."""
        pid = self.any_replica()
        process = self.machine.able(pid, Reconfigurable)
        if process is None or pid not in self.setup.senders:
            return None
        own = self.machine.topology.group_of[pid]
        for i in range(2):  # to its own group first, then to another, if it may
            may = [g for g in process.may_send_to() if (g == own) == (i == 0)] or process.may_send_to()
            if may and self.left:
                self.left -= 1
                self.machine.make(("multicast", pid, (may[self.choices.below(len(may))],)))
        return ("crash", pid, self.draw())

    def crash_client(self) -> Move | None:
        clients = [p for p in self.machine.topology.clients if self.machine.up[p]]
        if len(clients) < 2:  # somebody must be left to ask
            return None
        return (
            "falter" if self.choices.chance(60) else "crash",
            clients[self.choices.below(len(clients))],
            self.draw(),
        )

    def restart(self) -> Move | None:
        down = [p for p in range(self.machine.topology.replicas) if not self.machine.up[p]]
        if not down:
            return None
        pid = down[self.choices.below(len(down))]
        return ("rejoin" if self.machine.disks[pid].lost else "restart", pid, self.draw())

    def snapshot(self) -> Move | None:
        return ("snapshot", self.any_replica())

    def sync(self) -> Move | None:
        return ("sync", self.any_replica())

    def lose_disk(self) -> Move | None:
        return ("lose-disk", self.any_replica(), self.draw())

    def pull(self) -> Move | None:
        waiting = [p for p in range(self.machine.topology.replicas) if self.machine.recovery.may_pull(p)]
        return ("pull", waiting[self.choices.below(len(waiting))], self.draw()) if waiting else None

    def roll_back(self) -> Move | None:
        down = [p for p in range(self.machine.topology.replicas) if self.machine.recovery.may_roll_back(p)]
        if down and self.choices.chance(60):
            return ("roll-back", down[self.choices.below(len(down))])
        return ("copy", self.any_replica())

    def disconnect(self) -> Move | None:
        return ("disconnect", self.choices.pick(self.machine.topology.clients))

    def withdraw(self) -> Move | None:
        """Let a client give up one message: often one of a few that it has just multicast, and nobody has yet."""
        pid = self.choices.pick(self.machine.topology.clients)
        for _ in range(self.choices.below(4)):
            if self.left > 0 and self.choices.chance(70):
                groups = len(self.machine.topology.groups)
                self.left -= 1
                self.machine.make(("multicast", pid, self.choices.sample(groups, 1 + self.choices.below(groups))))
        return ("withdraw", pid, self.draw())

    def reconfigure(self) -> Move | None:
        pid = self.any_replica()
        process = self.machine.able(pid, Reconfigurable)
        if process is None:
            return None
        h = self.choices.below(len(self.machine.topology.groups))
        join = h not in process.may_send_to() if self.choices.chance(75) else self.choices.chance(50)
        return ("reconfigure", pid, "join" if join else "leave", h)

    def change(self) -> Move | None:
        """Let an administrator change the members of a group, sometimes two of them at once, or two groups."""
        groups = len(self.machine.seating.there())
        if self.choices.chance(30):
            move = self.change_of(self.choices.below(groups))
            if move is not None:
                self.machine.make(move)
        return self.change_of(self.choices.below(groups))

    def found(self) -> Move | None:
        """Let an administrator add the group that comes next, or one that another administrator is about to add."""
        machine, choices = self.machine, self.choices
        clients = [pid for pid in machine.topology.clients if machine.up[pid]]
        g = len(machine.seating.there()) - (1 if choices.chance(15) else 0)
        if not clients or not len(machine.topology.sizes) <= g < len(machine.topology.groups):
            return None
        return ("found", clients[choices.below(len(clients))], (g,), self.setup.params.founders)

    def change_of(self, g: int) -> Move | None:
        """Add members, remove some, replace one, two or all of them; the leader, or one that is lost, more often."""
        machine, choices = self.machine, self.choices
        epoch, seats = machine.seating.newest(g)
        group = machine.topology.groups[g]
        highest = max([seat for _, proposed in machine.seating.proposed[g] for seat in proposed] + list(seats))
        if choices.chance(25):
            highest = max(seats)  # as another administrator may have chosen
        fresh = list(range(highest + 1, len(group)))
        leaders = [seat for seat in seats if self.leads(group[seat])]
        lost = [seat for seat in seats if machine.seating.is_lost(group[seat])]
        kept = list(seats)
        count = (0, 1, 1, 1, 2, 2, len(seats))[choices.below(7)]
        for _ in range(count):
            first = lost or leaders
            seat = first[0] if first and first[0] in kept and choices.chance(50) else None
            if kept:
                kept.remove(seat if seat is not None else kept[choices.below(len(kept))])
        added = fresh[: count if choices.chance(70) else choices.below(3)] if count else fresh[: 1 + choices.below(2)]
        clients = [pid for pid in machine.topology.clients if machine.up[pid]]
        members = tuple([group[seat] for seat in sorted(kept + added)])
        if not clients or not members or tuple(sorted(kept + added)) == seats:
            return None
        if epoch > 0 and choices.chance(10):
            epoch -= 1  # of one who has not heard of the last change
        return ("change", clients[choices.below(len(clients))], (g,), epoch, members)

    def leads(self, pid: int) -> bool:
        process = self.machine.able(pid, Electing)
        return process is not None and process.leads()

    def stop(self) -> Move | None:
        removed = [p for p in range(self.machine.topology.replicas) if self.is_removed(p)]
        return ("stop", removed[self.choices.below(len(removed))]) if removed else None

    def is_removed(self, pid: int) -> bool:
        process = self.machine.able(pid, Seated)
        return process is not None and process.is_removed()

    def join(self) -> Move | None:
        return ("join", self.choices.pick(self.setup.spare))

    def desert(self) -> Move | None:
        """Let somebody get ahead of all others, answer one that joins, and die; and the others hear of it."""
        machine, choices = self.machine, self.choices
        joiner = choices.pick(self.setup.spare)
        machine.make(("join", joiner))
        asked = [q for q in range(machine.topology.replicas) if machine.channels[joiner * self.n + q]]
        if not asked:
            return ("join", joiner)
        ahead = asked[choices.below(len(asked))]
        if self.left > 0:
            self.left -= 1
            machine.make(("multicast", ahead, (0,)))
        for _ in range(1 + choices.below(4)):
            self.deliver_what_waits(joiner)
        self.serve_only(lambda sender, dest: dest == ahead and sender != joiner)
        self.serve_only(lambda sender, dest: sender in (ahead, joiner) and dest in (ahead, joiner))
        machine.make(("crash", ahead, self.draw()))
        self.serve_only(lambda sender, dest: sender == ahead)
        for pid in range(machine.topology.replicas):
            machine.make(("detect", pid, ahead))
        return None

    def deliver_what_waits(self, but_of: int) -> None:
        """Deliver what is under way, but for what one process sent, and nothing that is sent meanwhile."""
        machine = self.machine
        waiting = [(channel, len(machine.channels[channel])) for channel in machine.ready()]
        for channel, count in waiting:
            sender, dest = divmod(channel, self.n)
            for _ in range(count if sender != but_of else 0):
                machine.make(("deliver", sender, dest))

    def serve_only(self, chosen: Callable[[int, int], bool]) -> None:
        """Serve the channels that are chosen by sender and receiver, whatever stands still."""
        for _ in range(MOST_AT_ONCE):
            ready = [channel for channel in self.machine.ready() if chosen(*divmod(channel, self.n))]
            if not ready:
                return
            self.last = self.rule(ready)
            self.machine.deliver(self.last)

    def leave(self) -> Move | None:
        return ("leave", self.choices.pick(self.setup.leavers))

    def change_members(self) -> Move | None:
        pid = self.any_replica()
        process = self.machine.able(pid, Dynamic)
        if process is None or not process.members:
            return None
        wanted = [p for p in process.members if p not in self.setup.leavers or self.choices.chance(50)]
        wanted += [p for p in self.setup.spare if p not in wanted and self.choices.chance(50)]
        members = tuple(sorted([p for p in wanted if self.machine.up[p]]))
        return ("members", pid, members) if members and members != process.members else None
