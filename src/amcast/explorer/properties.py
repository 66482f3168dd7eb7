"""What must hold in every state of an exploration, and what has to be seen in some."""

from collections.abc import Sequence
from itertools import permutations

from amcast.checks import check
from amcast.checks.evidence import Evidence
from amcast.checks.guesses import open_guess
from amcast.checks.refusals import without_refused, wrong_refusal
from amcast.core.protocol import Protocol
from amcast.core.topology import Mid, message_id, sender_of
from amcast.core.trace import Event, ListRecorder
from amcast.core.tracer import Tracer
from amcast.core.wire import Codec
from amcast.errors import PropertyViolation
from amcast.explorer.actor import Actor, LogEntry, Setting, Step
from amcast.explorer.liveness import Liveness
from amcast.explorer.model import Model, State
from amcast.explorer.run import record_entry

EVERYTHING = "everything is delivered everywhere"


def safety_of(table: Protocol) -> list[str]:
    """Return what must hold at every moment, by what the protocol promises."""
    return ["integrity", "validity", *["order" if order == "total" else order for order in table.orders]]


class Properties:
    """The judge of the states of one model. What depends on the logs alone is judged once for equal logs."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.topology = setting.topology
        self.safety = safety_of(setting.protocol)
        self.genuine = setting.protocol.genuine
        self.uniform = setting.protocol.uniform and not setting.scope.early
        self.dests: dict[Mid, tuple[int, ...]] = {
            message_id(pid, seq): dest
            for pid in range(self.topology.size)
            for seq, dest in enumerate(setting.works(pid))
        }
        self.sometimes: dict[str, bool] = dict.fromkeys(self.expected(), False)
        self._histories = self._multicasts = self._deliveries = self._pairs = 0  # of what was judged
        self._delivered_at: set[int] = set()
        self._judged: set[tuple[int, ...]] = set()
        self._judged_logs: set[tuple[tuple[LogEntry, ...], ...]] = set()
        self._looked: set[tuple[int, int, tuple[Mid, ...]]] = set()
        self.model = Model(setting, self.look)

    # Always

    def at_state(self, state: State) -> None:
        key = tuple(self.model.locals[local].log for local in state[: self.model.size])
        if key in self._judged:
            return
        self._judged.add(key)
        self.at_logs([self.model.logs[log] for log in key])

    def at_logs(self, logs: Sequence[Sequence[LogEntry]]) -> None:
        self.sometimes |= dict.fromkeys(self.sometimes.keys() & self.seen(logs), True)
        self.count(logs)
        self.judge(self.events(logs), self.safety)

    def count(self, logs: Sequence[Sequence[LogEntry]]) -> None:
        self._histories += 1
        for pid, log in enumerate(logs):
            kinds = [kind for kind, _, _ in log]
            self._multicasts += kinds.count("multicast")
            if delivered := kinds.count("deliver"):
                self._deliveries += delivered
                self._delivered_at.add(pid)

    def evidence(self, states: int) -> Evidence:
        """Count what was judged: the histories of states, and of what followed without faults."""
        return Evidence(
            runs=self._histories,
            replicas=len(self._delivered_at),
            expected=self.topology.replicas,
            multicasts=self._multicasts,
            deliveries=self._deliveries,
            pairs=self._pairs,
            states=states,
            faults=self.model.faults,
        )

    def at_moment(self, actors: Sequence[Actor]) -> None:
        """Judge what real processes have done so far. A history that was judged and found right is not judged again."""
        key = tuple(tuple(actor.log) for actor in actors)
        if key not in self._judged_logs:
            self.at_logs(key)
            self._judged_logs.add(key)

    def at_rest(self, state: State) -> None:
        """Judge a state without messages under way: if nothing goes wrong any more, everything must be delivered."""
        actors = self.model.actors(state)
        Liveness(actors, {}).run()
        self.count([actor.log for actor in actors])
        self.at_end(actors)

    def at_edge(self, state: State) -> None:
        """Judge a state where the search stops: if nothing goes wrong any more, everything must be delivered."""
        actors = self.model.actors(state)
        Liveness(actors, self.model.under_way(state)).run()
        self.at_calm(actors)

    def at_calm(self, actors: Sequence[Actor]) -> None:
        """Judge processes to which nothing went wrong any more until now."""
        logs = [actor.log for actor in actors]
        self.count(logs)
        if EVERYTHING in self.seen(logs):
            self.sometimes[EVERYTHING] = True
        self.at_end(actors)

    def at_end(self, actors: Sequence[Actor]) -> None:
        """Judge a run to which nothing more will happen."""
        events = self.events([actor.log for actor in actors], ended=True)
        agreement = "agreement" if self.uniform else "agreement-nonuniform"
        self._pairs += self.judge(events, [*self.safety, agreement, "termination"])
        if guess := open_guess(without_refused(events)):
            raise PropertyViolation("optimistic", guess)
        for actor in actors:
            if actor.left and not self.setting.scope.whenever:
                who = self.topology.names[actor.pid]
                problem = f"{who} never learns that its {actor.seq}. multicast is delivered"
                raise PropertyViolation("completion", problem)

    def look(self, pid: int, step: Step) -> None:
        """Judge whether only senders and destinations of a message have work with it."""
        if not self.genuine:
            return
        for dest, msg in step.sends:
            about = msg.about()
            key = (pid, dest, about)
            if about and dest != pid and key not in self._looked:
                self._looked.add(key)
                recorder = ListRecorder(full=True)
                tracer = self.tracer(recorder)
                tracer.start(None)
                for mid in about:
                    tracer.record(0, sender_of(mid), "multicast", mid, dest=self.dests[mid])
                tracer.message(0, pid, "send", dest, msg)
                self.judge(recorder.events, ["genuine"])

    def judge(self, events: list[Event], properties: list[str]) -> int:
        """Raise PropertyViolation if one of these does not hold; else return how many pairs were compared."""
        if wrong := wrong_refusal(self.setting.protocol, events):
            raise PropertyViolation("refusal", wrong)
        events = without_refused(events)
        if not self.uniform:  # what a process delivered that crashed later does not count
            crashed = {e.process for e in events if e.kind == "crash"}
            events = [e for e in events if e.kind != "deliver" or e.process not in crashed]
        if any(event.kind == "optdeliver" for event in events):
            properties = [*properties, "optimistic"]
        verdicts = check(events, properties)
        for verdict in verdicts:
            if verdict.status == "violated":
                raise PropertyViolation(verdict.property, verdict.reason)
        return sum(verdict.evidence.pairs for verdict in verdicts)

    def tracer(self, recorder: ListRecorder) -> Tracer:
        return Tracer(recorder, self.topology, Codec(self.setting.protocol.messages), "explore", "explore")

    def events(self, logs: Sequence[Sequence[LogEntry]], ended: bool = False) -> list[Event]:
        """Make a trace of these logs."""
        recorder = ListRecorder()
        tracer = self.tracer(recorder)
        tracer.start(None)
        for pid, log in enumerate(logs):
            for entry in log:
                record_entry(tracer, 0, pid, entry)
        if ended:
            tracer.end(0, False)
        return recorder.events

    # Sometimes

    def expected(self) -> list[str]:
        name = self.topology.message_name
        found = [EVERYTHING]
        for a, b in permutations(self.dests, 2) if self.setting.scope.orders else ():
            if sender_of(a) != sender_of(b) and set(self.dests[a]) & set(self.dests[b]):
                found.append(f"{name(a)} is delivered before {name(b)}")
        if any(who in self.topology.names[: self.topology.replicas] for who in self.setting.scope.elections):
            found += ["a new leader takes over", "a new leader delivers"]
        if self.setting.scope.crashes or self.setting.scope.falters:
            found.append("a message is delivered although a process crashed")
        return found

    def seen(self, logs: Sequence[Sequence[LogEntry]]) -> list[str]:
        name = self.topology.message_name
        found: list[str] = []
        delivered = [[mid for kind, mid, _ in log if kind == "deliver"] for log in logs]
        members = self.topology.members_of
        if all(mid in delivered[pid] for mid, dest in self.dests.items() for pid in members(dest)):
            found.append(EVERYTHING)
        for mids in delivered:
            found += [f"{name(a)} is delivered before {name(b)}" for i, a in enumerate(mids) for b in mids[i + 1 :]]
        for pid, log in enumerate(logs):
            kinds = [kind for kind, _, _ in log]
            first = 1 if self.topology.rank_of[pid] == 0 else 0  # who leads from the start says so, too
            if kinds.count("leader") > first:
                found.append("a new leader takes over")
                if "deliver" in kinds[kinds.index("leader") :]:
                    found.append("a new leader delivers")
        if any("crash" in [kind for kind, _, _ in log] for log in logs) and any(delivered):
            found.append("a message is delivered although a process crashed")
        return found
