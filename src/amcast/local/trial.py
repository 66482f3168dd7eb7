"""A cluster on this machine that is run for a while, disturbed, and judged by the trace it leaves."""

import signal
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from amcast.apps.teller import Outcomes
from amcast.checks import check
from amcast.checks.evidence import Evidence
from amcast.core.trace import Event
from amcast.errors import AmcastError
from amcast.local import level
from amcast.local.files import create_cluster
from amcast.local.gather import gather
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig, Member, file_name
from amcast.runtime.tracing import TraceWriter
from amcast.service import connect
from amcast.service import load as load_cluster
from amcast.study import promises
from amcast.tracefile import read_events

SECONDS_TO_START = 180.0  # ample: a busy machine starts nine processes slowly
SECONDS_TO_CATCH_UP = 180.0
SECONDS_TO_STOP = 60.0
LOOK_EVERY = 0.1
MOST_PROBLEMS = 5  # in one line


class Trial:
    """`with Trial(folder) as trial`: the nodes run inside the block, and none is left behind after it."""

    def __init__(
        self,
        folder: Path,
        *,
        groups: int = 3,
        replicas: int = 3,
        app: str = "bank",
        secure: bool = True,
        durable: bool = True,
        traced: bool = True,
        protocol_name: str = "white_box",
        spare: int = 0,
    ) -> None:
        self.folder = folder.absolute()
        self.config: ClusterConfig = create_cluster(
            self.folder, protocol(protocol_name), groups, replicas, app, secure=secure, durable=durable, spare=spare
        )
        self.traces = self.folder / "trace"
        self.killed: list[Member] = []  # and not started again
        self.paused: list[Member] = []
        self.quorum_lost = False  # in a group, once: multicasts may have failed for that
        self.outside = [member for member in self.config.members if self.config.is_spare(member)]
        self.injected: Counter[str] = Counter()  # faults that did happen, by kind
        self.not_level = ""  # what was wrong when somebody looked last
        self.processes = Processes(self.config, trace=self.traces if traced else None)

    def __enter__(self) -> "Trial":
        try:
            with self.processes.alone():
                for member in self.inside():
                    self.processes.start(member)
            self.wait_until_ready(self.inside())
        except BaseException:
            self.processes.stop(self.config.members, seconds=0)
            raise
        return self

    def look_again(self) -> None:
        """Go by what is known now of who the members are; those who are no members any more will do nothing more."""
        before = self.config.members
        self.config = self.processes.config = load_cluster(self.config.path)
        self.killed += [member for member in before if member not in self.config.members and member not in self.killed]

    def inside(self) -> list[Member]:
        return [member for member in self.config.members if member not in self.outside]

    def alive(self) -> list[Member]:
        return [member for member in self.inside() if member not in self.killed]

    def __exit__(self, *error: object) -> None:
        self.processes.stop(self.config.members)

    def wait_until_ready(self, members: "tuple[Member, ...] | list[Member]") -> None:
        state = self.processes.wait_until_ready(members, SECONDS_TO_START)
        wrong = {name: reason for name, reason in state.items() if reason is not None}
        if wrong:
            name, reason = next(iter(wrong.items()))
            raise AmcastError(f"{len(wrong)} nodes did not start; {name}: {reason}; see {self.folder / 'logs'}")

    def client(self, **options: float) -> Client:
        return connect(self.config.path, trace=self.traces / f"client-{time.monotonic_ns()}.jsonl", **options)  # type: ignore[arg-type]

    # Disturbances

    def leader(self, g: int) -> Member:
        """Return who leads a group, as far as anybody there knows."""
        found = [status for name, status in self.statuses().items() if name.startswith(f"g{g}/")]
        leading = [status for status in found if status.get("leads") is True]
        name = leading[0]["id"] if leading else found[0]["id"] if found else f"g{g}/0"
        return self.config.member(str(name))

    def kill(self, *members: Member) -> None:
        for member in members:
            self.injected["kill"] += self.processes.signal(member, signal.SIGKILL)
        late = self.processes.wait_until_gone(members, 10)
        assert not late, f"{late[0].name} was killed and still runs"
        self.killed += [member for member in members if member not in self.killed]
        self._look_for_quorums()

    def stop(self, *members: Member) -> None:
        """Ask members to stop, and wait until they have: an ordinary restart, which must cost nothing."""
        self.injected["stop"] += sum(self.processes.running(member) is not None for member in members)
        late = self.processes.stop(members, SECONDS_TO_STOP)
        assert not late, f"{late[0].name} was asked to stop and did not"
        self.killed += [member for member in members if member not in self.killed]
        self._look_for_quorums()

    def start(self, *members: Member, wait: bool = True, rejoin: bool = False) -> None:
        self.killed = [member for member in self.killed if member not in members]
        self.outside = [member for member in self.outside if member not in members]
        with self.processes.alone():
            for member in members:
                if self.processes.running(member) is None:
                    self.processes.start(member, *(["--rejoin"] if rejoin else []))
        if wait:
            self.wait_until_ready(list(members))

    def pause(self, *members: Member) -> None:
        for member in members:
            self.injected["pause"] += self.processes.signal(member, signal.SIGSTOP)
        self.paused += [member for member in members if member not in self.paused]
        self._look_for_quorums()

    def _look_for_quorums(self) -> None:
        away = [*self.killed, *self.paused, *self.outside]
        for g in self.config.groups:
            group = self.config.group(g)
            self.quorum_lost |= len([member for member in group if member not in away]) <= len(group) // 2

    def resume(self, *members: Member) -> None:
        for member in members:
            self.processes.signal(member, signal.SIGCONT)
        self.paused = [member for member in self.paused if member not in members]

    # The end

    def statuses(self) -> level.Statuses:
        return level.statuses_of(self.config)

    def wait_until_level(self, alone: bool = False) -> bool:
        """Wait until all replicas that were not killed for good have delivered the same as their group, and stay there.

        `alone`: and until no client is connected. If they do not in time, `not_level` says why.
        """
        end = time.monotonic() + SECONDS_TO_CATCH_UP
        before = None
        while True:
            said = self.statuses()
            self.not_level = level.why_not_level(self.alive(), said) or (level.who_is_served(said) if alone else "")
            now = None if self.not_level else level.positions(said)
            if now is not None and now == before:  # what was on its way at the first look has arrived
                return True
            if time.monotonic() > end:
                self.not_level = self.not_level or "they still deliver"
                return False
            before = now
            time.sleep(LOOK_EVERY)

    def finish(self, out: Path, force: bool = False) -> bool:
        """Let all catch up, stop, and gather the trace; return whether all caught up and traced what they delivered."""
        self.wait_until_level(alone=True)
        said = self.statuses()
        for member in self.killed:
            file = self.traces / f"{file_name(member.name)}.jsonl"
            writer = TraceWriter(file, self.config.name, member.name, f"g{member.group}")
            writer.row("crash", time=writer.stopped)
            writer.close()
        self.processes.stop(self.config.members)
        found = gather(
            self.config,
            self.traces,
            out,
            why_not_ended=lambda found: self.not_level or level.why_not_whole(said, found.deliveries),
            force=force,
        )
        self.not_level = found.not_ended
        return not found.not_ended

    def judge(self, out: Path, *loads: Outcomes, force: bool = False) -> Evidence:
        """Finish, and return what shows that the run kept every promise; AmcastError says which ones it broke."""
        self.finish(out, force)
        events = list(read_events(out))
        problems, evidence = problems_of(self.config, events, self.killed, loads, may_fail=self.quorum_lost)
        if self.not_level:
            problems.insert(0, f"not all caught up: {self.not_level}")
        if problems:
            more = f" (and {len(problems) - MOST_PROBLEMS} more)" if len(problems) > MOST_PROBLEMS else ""
            raise AmcastError("; ".join(problems[:MOST_PROBLEMS]) + more)
        return replace(evidence, faults=self.injected.total())


def problems_of(
    config: ClusterConfig,
    events: Sequence[Event],
    gone: Collection[Member],
    loads: Sequence[Outcomes],
    *,
    may_fail: bool = False,
) -> tuple[list[str], Evidence]:
    """Compare a trace with what the protocol promises and with what clients were told. `gone`: killed for good.

    `may_fail`: multicasts, for a group lost its quorum. Those that did are delivered by nobody.
    Every verdict is ok, everybody delivers; what was acknowledged is delivered once by each member of its groups, and
    by nobody else; of what these clients sent, nothing else is delivered.
    """
    verdicts = check(events, promises(protocol(config.protocol)))
    problems = [f"{v.property} is {v.status}: {v.reason}" for v in verdicts if v.status != "ok"]
    evidence = verdicts[0].evidence
    began = {event.process for event in events if event.kind == "start"}
    dests = {event.message: event.dest for event in events if event.kind == "multicast"}
    delivered: dict[str, list[str]] = {}
    deliverers: Counter[str] = Counter()
    for event in events:
        if event.kind == "deliver":
            delivered.setdefault(str(event.message), []).append(event.process)
            deliverers[event.process] += 1
    members = [member for member in config.members if member.name in began or not config.is_spare(member)]
    problems += [f"{member.name} has no rows" for member in members if member.name not in began]
    up = [member for member in members if member not in gone]
    problems += [f"{member.name} delivered nothing" for member in up if not deliverers[member.name]]

    pairs = 0
    known = set()
    for load in loads:
        known |= load.acknowledged.keys() | load.undecided
        problems += [f"a multicast ended with {error}" for error in load.unexpected]
        if load.failed and not may_fail:
            problems.append(f"{load.failed} multicasts were refused")
        for name, dest in load.acknowledged.items():
            named = tuple(f"g{g}" for g in dest)
            if dests.get(name) != named:
                problems.append(f"{name} to {named} was acknowledged, but the trace has it to {dests.get(name)}")
                continue
            must = {member.name for member in up if member.group in dest}
            may = {member.name for member in gone if member.group in dest}
            by = delivered.get(name, [])
            if not must <= set(by) <= must | may or len(set(by)) < len(by):
                problems.append(f"{name} to {named} was acknowledged, but it was delivered by {sorted(by)}")
            pairs += len(must)
    if not pairs:
        problems.append("nothing was acknowledged")
    senders = {name.partition(":")[0] for name in known}
    for name in delivered:
        if name.partition(":")[0] in senders and name not in known:
            problems.append(f"{name} was delivered, but its client was told that it was not")
    return problems, replace(evidence, pairs=pairs)
