"""The end of a run: nothing goes wrong any more, messages take δ, timers come in time, and all must be delivered.

Who may come back does. Failure detectors tell the truth. Everybody who wants to be a member is asked to join, and every
group that must send to another joins it. Somebody multicasts once more to all, so that a group that does not work any
more shows even where nothing was under way.
"""

import heapq

from amcast.core.capabilities import Detecting, Dynamic, Reconfigurable
from amcast.sim.choices import Choices
from amcast.swarm.adversary.machine import TICK, Machine
from amcast.swarm.trial import DELTA

BOUND = 500  # δ until everything is delivered
MOST = 100_000  # messages: time may stand still in a broken protocol
ROUND = 10 * DELTA  # how often failure detectors and members look around


class Calm:
    def __init__(self, machine: Machine, choices: Choices) -> None:
        self.machine = machine
        self.choices = choices
        self.time = 0
        self.began = machine.now
        self.behind = list(machine.clock)
        self.queue: list[tuple[int, int, int, object]] = []  # time, number, process, what
        self.count = 0
        self.scheduled: dict[int, int] = {}  # channel -> messages that have a time to arrive
        self.probed = False

    def run(self) -> None:
        machine = self.machine
        for pid in range(machine.n):
            machine.make_resume(pid)
        machine.rates = [0] * machine.n  # clocks go by the time from now on
        machine.falters = [-1] * machine.n
        self.look_around()
        waits = 2 * max(machine.clock) if machine.setup.table.guesses else 0  # for as long as delays seemed to be
        deadline = BOUND * DELTA + waits
        handled = machine.handled
        while self.queue and self.queue[0][0] <= deadline and machine.handled - handled < MOST:
            if machine.obligations.open == 0 and self.is_over():
                break
            self.time, _, pid, what = heapq.heappop(self.queue)
            machine.now = self.began + TICK + self.time
            if pid < 0:
                self.look_around()
            elif isinstance(what, int):
                self.scheduled[what] -= 1
                if machine.up[pid] and machine.channels[what]:
                    self.tick(pid)
                    machine.arrive(what // machine.n, pid)
            elif machine.up[pid]:
                self.tick(pid)
                machine.fire(pid, str(what))
            self.schedule(pid)
        if machine.setup.members_change:
            self.stop_removed(late=True)
        machine.tracer.end(machine.now, machine.obligations.open > 0)

    def is_over(self) -> bool:
        """Return whether nobody owes anything, even when all that is recorded has become durable."""
        self.sync()
        machine = self.machine
        if machine.setup.table.guesses and any(
            machine.up[p] and not machine.processes[p].idle() for p in range(machine.n)
        ):
            return False  # what was delivered optimistically is not settled
        return self.probed and machine.obligations.open == 0 and not machine.waiting_clients()

    def sync(self) -> None:
        for pid in range(self.machine.topology.replicas):
            if self.machine.up[pid]:
                self.machine.sync(pid)

    def tick(self, pid: int) -> None:
        self.machine.clock[pid] = max(self.machine.clock[pid], self.behind[pid] + self.time)

    def push(self, time: int, pid: int, what: object) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, pid, what))

    def schedule(self, pid: int) -> None:
        """Give a time to what the last step of this process, or of anybody, sent, and to its timers."""
        machine = self.machine
        n = machine.n
        channels = list(machine.busy) if pid < 0 else [pid * n + dest for dest in range(n)]
        for channel in channels:
            known = self.scheduled.get(channel, 0)
            new = len(machine.channels[channel]) - known
            if new > 0 and machine.up[channel % n]:  # who is down gets it when it is back
                self.scheduled[channel] = known + new
                delay = DELTA if channel // n != channel % n else 0
                for _ in range(new):
                    self.push(self.time + delay, channel % n, channel)
        for who in range(n) if pid < 0 else (pid,):
            if machine.timers[who]:
                for name, earliest, latest in machine.timers[who]:
                    due = self.choices.between(earliest, latest) - self.behind[who]
                    self.push(max(self.time, due), who, name)
                machine.timers[who] = []

    # What happens now and then

    def look_around(self) -> None:
        machine = self.machine
        for pid in range(machine.n):
            self.tick(pid)
        if machine.setup.durable:
            self.sync()
            for pid in range(machine.topology.replicas):
                draw = self.choices.below(1 << 30)
                if machine.up[pid]:
                    machine.make_pull(pid, draw)
                elif not machine.make_restart(pid, draw):
                    machine.make_rejoin(pid, draw)
        if machine.setup.members_change and self.time >= 5 * ROUND:
            self.stop_removed(self.time >= 30 * ROUND)
        if machine.setup.table.detector:
            self.tell_the_truth()
        if machine.setup.spare:
            self.join()
        if machine.setup.reconfigures and self.time >= 5 * ROUND:
            self.join_all()
        if not self.probed:
            self.probe()
        self.push(self.time + ROUND, -1, None)
        self.schedule(-1)

    def tell_the_truth(self) -> None:
        """Let everybody trust who is up; and suspect who is not, when what that one sent has arrived."""
        machine = self.machine
        for pid, other in list(machine.suspicions):
            machine.make_trust(pid, other)
        if not machine.setup.accurate:
            return  # its own time-outs tell
        for pid in range(machine.n):  # clients may count on a detector, too
            for other in range(machine.topology.replicas):
                process = machine.able(pid, Detecting)
                if not machine.up[other] and process is not None and not machine.channels[other * machine.n + pid]:
                    process.detect(machine.clock[pid], other, True)
                    machine.flush(pid)

    def stop_removed(self, late: bool) -> None:
        """Stop who was removed as soon as all know who took over; in the end everybody who is no member."""
        machine = self.machine
        for g, group in enumerate(machine.topology.groups):
            _, seats = machine.seating.newest(g)
            for seat, pid in enumerate(group):
                if not machine.make_stop(pid) and late and seat not in seats and machine.up[pid]:
                    machine.stop(pid)

    def join(self) -> None:
        for pid in self.machine.setup.spare:
            process = self.machine.able(pid, Dynamic)
            if process is not None and not process.members:
                self.machine.make_join(pid)

    def join_all(self) -> None:
        """Let every group join every other: what waits for a membership gets it."""
        machine = self.machine
        if self.time % (5 * ROUND):
            return
        for members in machine.topology.groups:
            first = next(pid for pid in members if machine.up[pid])
            for h in range(len(machine.topology.groups)):
                process = machine.able(first, Reconfigurable)
                if process is not None and (h not in process.may_send_to() or process.has_unanswered_joins()):
                    machine.make_reconfigure(first, "join", h)

    def probe(self) -> None:
        machine = self.machine
        senders = [p for p in machine.setup.senders if machine.up[p] and p not in machine.setup.leavers]
        if not senders:
            self.probed = True
            return
        pid = senders[self.choices.below(len(senders))]
        process = machine.able(pid, Reconfigurable)
        dest = tuple(machine.seating.there()) if process is None else tuple(process.may_send_to())
        self.probed = True
        if dest:
            machine.make_multicast(pid, dest)
