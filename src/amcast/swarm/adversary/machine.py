"""A run without time: processes, and between every two of them a queue. It does what it is told, move by move.

A channel is FIFO and reliable while its sender lives. A crash loses a suffix of what the process had under way, on each
channel another one, unless the protocol's row counts on links that lose nothing. Messages wait for a process that is
down and may come back; some of them are gone by then, those that came first. A process has a clock of its own, which
only grows: a bit with every step, and to the time of a timer that fires, or beyond.

A move that is not possible is left out. So any part of a run is a run, which is how failing ones are made shorter.
"""

from collections import deque
from typing import TypeVar

from amcast.core.capabilities import Detecting, Dynamic, Electing, Observed, Reconfigurable, Seated
from amcast.core.process import Effects, Process
from amcast.core.requests import Request
from amcast.core.topology import Mid, Topology, message_id, sender_of
from amcast.core.trace import Recorder
from amcast.core.tracer import Tracer
from amcast.core.wire import AppMessage, Codec, Message
from amcast.sim.choices import Seeded
from amcast.sim.disk import Disk
from amcast.sim.network import cut_short
from amcast.sim.obligations import Obligations
from amcast.swarm.adversary.moves import FAULTS, Move
from amcast.swarm.adversary.recovery import Recovery, Snapshot
from amcast.swarm.adversary.seating import Seating
from amcast.swarm.adversary.setup import NEVER, Setup

Able = TypeVar("Able")

REFUSED = '{"refused": true}'
TICK = 1_000_000  # nanoseconds that a move takes in the trace, for who looks at it


class Machine:
    def __init__(self, setup: Setup, recorder: Recorder) -> None:
        self.setup = setup
        self.table = setup.table
        self.topology = setup.topology
        n = self.n = setup.topology.size
        self.out = Effects()
        self.tracer = Tracer(recorder, self.topology, Codec(self.table.messages), setup.run, "adversary")
        self.full = recorder.full
        self.monitor: object = self.table.monitor(self.topology) if self.table.monitor else None
        self.recovery = Recovery(self)
        self.disks = [Disk() for _ in range(n)]
        self.obligations = Obligations(self.topology, setup.uniform)
        self.channels: list[deque[Message]] = [deque() for _ in range(n * n)]  # sender * n + dest
        self.busy: dict[int, bool] = {}  # the channels that are not empty, in the order in which they became so
        self.inbox: deque[Message] = deque()  # of the process that steps, from itself
        self.timers: list[list[tuple[str, int, int]]] = [[] for _ in range(n)]  # name, earliest and latest time
        self.clock = list(setup.clocks)
        self.up = [True] * n
        self.paused = [False] * n  # takes no step, and what is sent to it waits
        self.were_paused = [False] * n
        self.falters = [-1] * n  # whether it crashes in its next step, and the draw of what it sends before
        self.suspicions: dict[tuple[int, int], bool] = {}  # who was told to suspect whom, and was not told otherwise
        self.restarted = False
        self.seating = Seating(self)
        self.next_seq = [0] * n
        self.dests: dict[Mid, tuple[int, ...]] = {}
        self.taken: dict[Mid, bool] = {}  # messages of clients of which a copy has arrived
        self.seen: set[tuple[int, int, tuple[Mid, ...]]] = set()  # who told whom about which messages
        self.types: dict[type[Message], bool] = {}  # of messages that were sent
        self.moves: list[Move] = []
        self.told: list[str] = []  # with a full trace: what each move brought, for people
        self.faults = 0
        self.now = 0  # of the trace
        self.handled = 0  # messages
        self.rates = list(setup.rates)
        sizes = tuple([len(members) for members in self.topology.groups])
        self.known = Topology(sizes) if setup.strangers else self.topology  # to processes
        self.processes = [self.made(pid) for pid in range(n)]

    def made(self, pid: int) -> Process:
        process = self.table.make(pid, self.known, self.setup.params, self.out)
        if self.monitor is not None and isinstance(process, Observed):
            process.on_observe(self.monitor)
        return process

    def start(self) -> None:
        self.tracer.start(None)
        for pid in range(self.n):
            self.processes[pid].start(self.clock[pid])
            self.flush(pid)

    # Moves

    def make(self, move: Move) -> bool:
        """Make this move, if it is possible here."""
        self.moves.append(move)  # first: it may be the one that fails
        if self.full:
            self.told.append(self.next_message(move))
        self.now += TICK
        done = bool(getattr(self, "make_" + str(move[0]).replace("-", "_"))(*move[1:]))
        if done:
            self.faults += move[0] in FAULTS
        else:
            self.moves.pop()
            self.now -= TICK
            if self.full:
                self.told.pop()
        return done

    def deliver(self, channel: int) -> None:
        """Let the first message of this channel, which is not empty, arrive: the move that most moves are."""
        sender, dest = divmod(channel, self.n)
        self.moves.append(("deliver", sender, dest))
        self.now += TICK
        self.arrive(sender, dest)

    def next_message(self, move: Move) -> str:
        """Say what a delivery would bring."""
        if move[0] != "deliver":
            return ""
        _, sender, dest = move
        assert isinstance(sender, int) and isinstance(dest, int)
        queue = self.channels[sender * self.n + dest]
        return " ".join([type(queue[0]).__name__, *map(self.topology.message_name, queue[0].about())]) if queue else ""

    def make_deliver(self, sender: int, dest: int) -> bool:
        if not self.awake(dest) or not self.channels[sender * self.n + dest]:
            return False
        self.arrive(sender, dest)
        return True

    def arrive(self, sender: int, dest: int) -> None:
        channel = sender * self.n + dest
        queue = self.channels[channel]
        msg = queue.popleft()
        if not queue:
            del self.busy[channel]
        self.handled += 1
        if isinstance(msg, Snapshot):
            self.recovery.install(dest, msg)
            self.flush(dest)
            return
        if sender >= self.topology.replicas and isinstance(msg, Request):
            self.taken[msg.m.mid] = True
        if self.full and sender != dest:
            self.tracer.message(self.now, dest, "receive", sender, msg)
        self.processes[dest].receive(self.pass_time(dest), sender, msg)
        self.flush(dest)

    def pass_time(self, pid: int) -> int:
        now = self.clock[pid] = self.clock[pid] + self.rates[pid]
        return now

    def make_multicast(self, pid: int, dest: tuple[int, ...], payload: bytes = b"") -> bool:
        if not self.awake(pid):
            return False
        mid = message_id(pid, self.next_seq[pid])
        self.next_seq[pid] += 1
        m = AppMessage(mid, dest, payload)
        self.dests[mid] = dest
        self.tracer.record(self.now, pid, "multicast", mid=mid, dest=dest)
        self.obligations.multicast(m, len([p for p in self.topology.members_of(dest) if self.up[p]]))
        self.processes[pid].multicast(self.pass_time(pid), m)
        self.flush(pid)
        return True

    def make_timer(self, pid: int, name: str, delay: int) -> bool:
        """Fire a timer, so much later than its latest time; before any time of its own if the delay is negative."""
        due = [timer for timer in self.timers[pid] if timer[0] == name]
        if not self.awake(pid) or not due:
            return False
        timer = min(due, key=lambda timer: timer[2])
        self.timers[pid].remove(timer)
        if delay >= 0:
            self.clock[pid] = max(self.clock[pid], timer[2]) + delay
        self.fire(pid, name)
        return True

    def fire(self, pid: int, name: str) -> None:
        self.processes[pid].timer(self.clock[pid], name)
        self.flush(pid)

    def make_disconnect(self, pid: int) -> bool:
        if self.up[pid]:
            self.processes[pid].disconnect(self.pass_time(pid))
            self.flush(pid)
        return self.up[pid]

    def make_withdraw(self, pid: int, draw: int) -> bool:
        """Let a client give up one of its messages that nobody has, as one that is refused by all whom it asks."""
        gone = [mid for mid in self.dests if sender_of(mid) == pid and mid not in self.taken]
        if not self.up[pid] or not gone:
            return False
        mid = gone[draw % len(gone)]
        del self.dests[mid]
        for channel in range(pid * self.n, (pid + 1) * self.n):
            queue = self.channels[channel]
            kept = [msg for msg in queue if not isinstance(msg, Request) or msg.m.mid != mid]
            if len(kept) < len(queue):
                self.empty(channel)
                for msg in kept:
                    self.enqueue(pid, channel % self.n, msg)
        self.obligations.refused(mid)
        self.tracer.record(self.now, pid, "withdraw", mid=mid)
        self.processes[pid].abandon(self.pass_time(pid), mid)
        self.flush(pid)
        return True

    def able(self, pid: int, kind: type[Able]) -> Able | None:
        """Return this process if it is up and has the capability."""
        process: object = self.processes[pid]
        return process if self.awake(pid) and isinstance(process, kind) else None

    def awake(self, pid: int) -> bool:
        return self.up[pid] and not self.paused[pid]

    def make_suspect(self, pid: int) -> bool:
        if process := self.able(pid, Electing):
            process.suspect(self.pass_time(pid))
            self.flush(pid)
        return process is not None

    def make_refuse(self, pid: int, other: int) -> bool:
        """Let a process find that nobody listens where another one did, whether that is so or not."""
        if process := self.able(pid, Electing):
            process.gone(self.pass_time(pid), other)
            self.flush(pid)
        return process is not None

    def make_detect(self, pid: int, other: int) -> bool:
        process = self.able(pid, Detecting)
        if process is None or not self.may_detect(pid, other):
            return False
        self.suspicions[pid, other] = True
        process.detect(self.pass_time(pid), other, True)
        self.flush(pid)
        return True

    def may_detect(self, pid: int, other: int) -> bool:
        """Return whether the failure detector that the protocol counts on may suspect this process."""
        setup = self.setup
        if self.up[other] and not self.paused[other]:
            return setup.may_err(pid, other)
        return not setup.accurate or setup.early or not self.channels[other * self.n + pid]

    def make_trust(self, pid: int, other: int) -> bool:
        process = self.able(pid, Detecting)
        if process is None or (pid, other) not in self.suspicions or not self.up[other]:
            return False
        del self.suspicions[pid, other]
        process.detect(self.pass_time(pid), other, False)
        self.flush(pid)
        return True

    def make_reconfigure(self, pid: int, what: str, h: int) -> bool:
        if process := self.able(pid, Reconfigurable):
            process.reconfigure(self.pass_time(pid), what == "join", h)
            self.flush(pid)
        return process is not None

    def make_members(self, pid: int, members: tuple[int, ...]) -> bool:
        process = self.able(pid, Dynamic)
        if process is None or not process.members or not all(self.up[p] for p in members):
            return False
        process.change_members(self.pass_time(pid), members)
        self.flush(pid)
        return True

    def make_change(self, pid: int, dest: tuple[int, ...], epoch: int, members: tuple[int, ...]) -> bool:
        """Let an administrator ask that these be the members of a group when this epoch ends."""
        seats = tuple([self.topology.rank_of[p] for p in members])
        if self.table.change is None or not self.awake(pid) or not self.seating.may_propose(dest[0], seats):
            return False
        self.seating.propose(dest[0], epoch, seats)
        return self.make_multicast(pid, dest, self.table.change(epoch, seats))

    def make_found(self, pid: int, dest: tuple[int, ...], size: int) -> bool:
        """Let an administrator ask that this group be added, with so many members."""
        if self.table.found is None or not self.awake(pid):
            return False
        return self.make_multicast(pid, (0,), self.table.found(dest[0], size))

    def make_stop(self, pid: int) -> bool:
        """Let an administrator stop a replica that was removed, as soon as all who need to know have heard of that."""
        process = self.able(pid, Seated)
        if process is None or self.falters[pid] >= 0 or not self.seating.may_stop(pid, process):
            return False
        self.stop(pid)
        return True

    def stop(self, pid: int) -> None:
        """Stop a replica for good."""
        self.seating.over[pid] = True
        self.crash(pid)

    def make_join(self, pid: int) -> bool:
        if process := self.able(pid, Dynamic):
            process.join_group(self.pass_time(pid))
            self.flush(pid)
        return process is not None

    def make_leave(self, pid: int) -> bool:
        if process := self.able(pid, Dynamic):
            process.leave_group(self.pass_time(pid))
            self.flush(pid)
        return process is not None

    # Pauses

    def make_pause(self, pid: int) -> bool:
        """Stop a process for longer than any time-out: the others may take it for crashed."""
        if any(self.were_paused) or not self.may_crash(pid):
            return False
        self.paused[pid] = self.were_paused[pid] = True
        return True

    def make_resume(self, pid: int) -> bool:
        """Let it go on, with a clock that went on: by its own measure all others were silent."""
        if not self.paused[pid]:
            return False
        self.paused[pid] = False
        self.clock[pid] += 2 * NEVER
        return True

    # Crashes and what comes after them

    def make_crash(self, pid: int, draw: int) -> bool:
        if not self.may_crash(pid):
            return False
        self.crash(pid, draw)
        return True

    def make_falter(self, pid: int, draw: int) -> bool:
        """Let a process crash in the middle of what its next step sends."""
        if not self.may_crash(pid):
            return False
        self.falters[pid] = draw
        return True

    def may_crash(self, pid: int) -> bool:
        """Return whether the protocol bears that crash: it is up, and not too many of its group are down for good."""
        if not self.up[pid] or self.falters[pid] >= 0 or pid in self.setup.anchors:
            return False
        if pid >= self.topology.replicas:
            return True
        if not self.recovery.may_crash():
            return False
        group = self.topology.groups[self.topology.group_of[pid]]
        down = len([p for p in group if not self.up[p] or self.falters[p] >= 0 or self.were_paused[p]])
        return down < self.setup.may_be_down[self.topology.group_of[pid]] and self.may_be_missed(pid)

    def may_be_missed(self, pid: int) -> bool:
        """Return whether more than half of the members are up without this one, as everybody counts them."""
        if not isinstance(self.processes[pid], Dynamic) or self.setup.accurate or self.setup.durable:
            return True
        for other in range(self.topology.replicas):
            process: object = self.processes[other]
            members = process.members if self.up[other] and isinstance(process, Dynamic) else ()
            up = [p for p in members if p != pid and self.up[p] and self.falters[p] < 0]
            if pid in members and 2 * len(up) <= len(members):
                return False
        return True

    def crash(self, pid: int, draw: int = -1) -> None:
        """Stop a process. With a draw, lose what it says of what the process had under way."""
        choices = Seeded(draw)
        self.up[pid] = self.paused[pid] = False
        self.falters[pid] = -1
        self.timers[pid] = []
        self.inbox.clear()
        disk = self.disks[pid]
        if disk.unsynced and draw >= 0 and choices.chance(50):
            self.sync(pid)
        disk.lose()
        self.recovery.crashed(pid)
        for dest in range(self.n):
            if draw >= 0 and not self.table.reliable_links:
                self.cut(pid * self.n + dest, choices.below(3), choices)
            if not self.setup.durable or pid >= self.topology.replicas:
                self.empty(dest * self.n + pid)  # nobody will receive it
        self.tracer.record(self.now, pid, "crash")
        self.obligations.crashed(pid, self.setup.durable)

    def cut(self, channel: int, kind: int, choices: Seeded) -> None:
        """Lose a suffix of what is in a channel: all, none, or some of it."""
        queue = self.channels[channel]
        keep = (0, len(queue), choices.below(len(queue) + 1))[kind]
        while len(queue) > keep:
            queue.pop()
        if not queue:
            self.busy.pop(channel, None)

    def empty(self, channel: int) -> None:
        self.channels[channel].clear()
        self.busy.pop(channel, None)

    def make_sync(self, pid: int) -> bool:
        if not self.up[pid] or not self.disks[pid].unsynced:
            return False
        self.sync(pid)
        return True

    def sync(self, pid: int) -> None:
        for m, ts in self.disks[pid].sync():
            self.on_delivery(pid, m, ts)

    def make_snapshot(self, pid: int) -> bool:
        if self.up[pid]:
            self.recovery.snapshot(pid)
        return self.up[pid]

    def make_copy(self, pid: int) -> bool:
        if self.up[pid]:
            self.recovery.copy(pid)
        return self.up[pid]

    def make_lose_disk(self, pid: int, draw: int) -> bool:
        """Crash, and lose the disk."""
        if self.falters[pid] >= 0 or not self.recovery.may_lose_disk(pid):
            return False
        self.crash(pid, draw)
        self.recovery.lose_disk(pid)
        return True

    def make_roll_back(self, pid: int) -> bool:
        if not self.recovery.may_roll_back(pid):
            return False
        self.recovery.roll_back(pid)
        return True

    def make_restart(self, pid: int, draw: int) -> bool:
        if not self.recovery.may_restart(pid):
            return False
        self.come_back(pid, draw)
        self.recovery.restart(pid)
        self.flush(pid)
        return True

    def make_rejoin(self, pid: int, draw: int) -> bool:
        if not self.recovery.may_rejoin(pid):
            return False
        self.come_back(pid, draw)
        self.recovery.rejoin(pid)
        self.flush(pid)
        return True

    def make_pull(self, pid: int, draw: int) -> bool:
        """Give a replica the snapshot that it asked another member for."""
        if not self.up[pid] or not self.recovery.may_pull(pid):
            return False
        self.recovery.pull(pid, draw)
        self.flush(pid)
        return True

    def come_back(self, pid: int, draw: int) -> None:
        """Make a new process. What it sent before is gone, and of what was sent to it what came first."""
        choices = Seeded(draw)
        self.up[pid] = True
        self.tracer.record(self.now, pid, "restart")
        self.obligations.restarted(pid)
        self.processes[pid] = self.made(pid)
        for other in range(self.n):
            self.empty(pid * self.n + other)
            queue = self.channels[other * self.n + pid]
            for _ in range((0, len(queue), choices.below(len(queue) + 1))[choices.below(3)]):
                queue.popleft()
            if not queue:
                self.busy.pop(other * self.n + pid, None)

    # Effects

    def flush(self, pid: int) -> None:
        """Act on what a step wants done; what a process says to itself may be part of its step."""
        self.act(pid)
        while self.inbox:
            self.processes[pid].receive(self.clock[pid], pid, self.inbox.popleft())
            self.act(pid)
        if self.setup.durable:
            self.recovery.after_step(pid)
        if self.setup.members_change:
            self.seating.after_step(pid)

    def act(self, pid: int) -> None:
        out = self.out
        if out.records or out.urgent:
            self.disks[pid].unsynced.extend(out.records)
            out.records.clear()
            if out.urgent:
                out.urgent = False
                self.sync(pid)
        dies = self.falters[pid] >= 0 and bool(out.sends)
        if dies:
            cut_short(out, pid, self.table.reliable_links, Seeded(self.falters[pid]))
        if out.sends:
            for to, msg in out.sends:
                self.transmit(pid, to, msg)
            out.sends.clear()
        for msg in out.news:
            self.transmit(pid, self.topology.clients, msg)
        out.news.clear()
        if out.timers:
            now = self.clock[pid]
            self.timers[pid] += [(name, now + earliest, now + latest) for name, earliest, latest in out.timers]
            out.timers.clear()
        if out.notes:
            for note in out.notes:
                self.tracer.record(self.now, pid, note.kind, detail=note.detail())
            out.notes.clear()
        if out.optimistic:
            for m in out.optimistic:
                self.tracer.record(self.now, pid, "optdeliver", mid=m.mid)
            out.optimistic.clear()
        out.undone.clear()
        if out.deliveries:
            if self.disks[pid].unsynced:
                self.disks[pid].unsure.extend(out.deliveries)
            else:
                for m, ts in out.deliveries:
                    self.on_delivery(pid, m, ts)
            out.deliveries.clear()
        if out.refused:
            for mid in out.refused:
                self.obligations.refused(mid)
                self.tracer.record(self.now, pid, "reconfigure", mid=mid, detail=REFUSED)
            out.refused.clear()
        out.completed.clear()
        halted = out.halted
        out.halted = False
        if dies or halted:  # what was sent arrives
            self.crash(pid)

    def transmit(self, pid: int, to: tuple[int, ...], msg: Message) -> None:
        about = msg.about()
        self.types[type(msg)] = True
        for dest in to:
            if dest == pid:
                if self.setup.at_once:
                    self.inbox.append(msg)
                    continue
            elif about and (pid, dest, about) not in self.seen:
                self.seen.add((pid, dest, about))
                self.tracer.message(self.now, pid, "send", dest, msg)
            elif self.full:
                self.tracer.message(self.now, pid, "send", dest, msg)
            if not self.up[dest] and not (self.setup.durable and dest < self.topology.replicas):
                continue
            self.enqueue(pid, dest, msg)

    def enqueue(self, pid: int, dest: int, msg: Message) -> None:
        channel = pid * self.n + dest
        queue = self.channels[channel]
        if not queue:
            self.busy[channel] = True
        queue.append(msg)

    def on_delivery(self, pid: int, m: AppMessage, ts: int) -> None:
        if self.setup.durable and not self.disks[pid].deliver(m, ts):
            return
        self.tracer.record(self.now, pid, "deliver", mid=m.mid, ts=ts)
        self.obligations.delivered(pid, m.mid)

    def waiting_clients(self) -> list[int]:
        """Return the clients that wait for an answer, if there is somebody in every group to give one."""
        if not all(any(self.up[p] for p in members) for members in self.topology.groups):
            return []
        return [p for p in self.topology.clients if self.up[p] and not self.processes[p].idle()]

    def ready(self) -> list[int]:
        """Return the channels from which something can be received."""
        n = self.n
        return [channel for channel in self.busy if self.awake(channel % n)]
