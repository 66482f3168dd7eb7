"""A few verbs to write a trace by hand. A process `g0/1` is in group g0, a process without a slash is a client."""

from collections import Counter

from amcast.checks import Verdict, check
from amcast.core.trace import Event


def group_of(process: str) -> str | None:
    return process.split("/")[0] if "/" in process else None


class Trace:
    def __init__(self, run: str = "r") -> None:
        self.run = run
        self.events: list[Event] = []
        self._seqs: Counter[str] = Counter()

    def add(
        self,
        kind: str,
        process: str,
        message: str | None = None,
        sender: str | None = None,
        dest: tuple[str, ...] | None = None,
        peer: str | None = None,
        about: tuple[str, ...] | None = None,
    ) -> "Trace":
        self._seqs[process] += 1
        seq = self._seqs[process]
        self.events.append(
            Event(
                self.run,
                kind,
                process,
                group_of(process),
                seq,
                message=message,
                sender=sender,
                dest=dest,
                peer=peer,
                about=about,
            )
        )
        return self

    def start(self, *processes: str) -> "Trace":
        for process in processes:
            self.add("start", process)
        return self

    def multicast(self, process: str, message: str, *dest: str) -> "Trace":
        return self.add("multicast", process, message, sender=process, dest=dest)

    def deliver(self, process: str, *messages: str) -> "Trace":
        for message in messages:
            self.add("deliver", process, message)
        return self

    def optdeliver(self, process: str, *messages: str) -> "Trace":
        for message in messages:
            self.add("optdeliver", process, message)
        return self

    def send(self, process: str, peer: str, *about: str) -> "Trace":
        return self.add("send", process, peer=peer, about=about or None)

    def crash(self, process: str) -> "Trace":
        return self.add("crash", process)

    def restart(self, process: str) -> "Trace":
        return self.add("restart", process)

    def end(self) -> "Trace":
        return self.add("end", "driver")

    def verdict(self, name: str) -> Verdict:
        (verdict,) = check(self.events, [name])
        return verdict


def told(verdict: Verdict) -> list[tuple[str, str, str | None]]:
    """The counter-example as (kind, process, message)."""
    return [(row.kind, row.process, row.message) for row in verdict.counterexample]
