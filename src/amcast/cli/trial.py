"""A cluster on this machine that is run for a while, disturbed, and judged by the trace it leaves."""

import json
import signal
import time
from pathlib import Path

from amcast.cli.cluster_files import create_cluster
from amcast.cli.cluster_processes import NODE, Processes, ask
from amcast.core.errors import AmcastError
from amcast.lab.gather import gather
from amcast.protocols import protocol
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig, Member, file_name
from amcast.runtime.tracing import TraceWriter
from amcast.service import connect

SECONDS_TO_START = 60.0
SECONDS_TO_CATCH_UP = 60.0


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
        self.folder = folder
        self.config: ClusterConfig = create_cluster(
            folder, protocol(protocol_name), groups, replicas, app, secure=secure, durable=durable, spare=spare
        )
        self.traces = folder / "trace"
        self.killed: list[Member] = []  # and not started again
        self.outside = [member for member in self.config.members if self.config.is_spare(member)]
        self.processes = Processes(self.config, (*NODE, "--trace", str(self.traces)) if traced else NODE)

    def __enter__(self) -> "Trial":
        try:
            with self.processes.alone():
                for member in self.inside():
                    self.processes.start(member)
            self.wait_until_ready(self.inside())
        except BaseException:
            self.processes.stop(self.config.members, patience=0)
            raise
        return self

    def inside(self) -> list[Member]:
        return [member for member in self.config.members if member not in self.outside]

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
        """Who leads a group, as far as anybody there knows."""
        found = [status for status in self.statuses() if str(status.get("id", "")).startswith(f"g{g}/")]
        leading = [status for status in found if status.get("role") == "leader"]
        name = leading[0]["id"] if leading else found[0]["id"] if found else f"g{g}/0"
        return self.config.member(str(name))

    def role(self, member: Member) -> str | None:
        found = [status.get("role") for status in self.statuses() if status.get("id") == member.name]
        return str(found[0]) if found else None

    def kill(self, *members: Member) -> None:
        for member in members:
            self.processes.signal(member, signal.SIGKILL)
        self.processes.wait_until_gone(members, 10)
        self.killed += [member for member in members if member not in self.killed]

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
            self.processes.signal(member, signal.SIGSTOP)

    def resume(self, *members: Member) -> None:
        for member in members:
            self.processes.signal(member, signal.SIGCONT)

    # The end

    def statuses(self) -> list[dict[str, object]]:
        answers = [ask(member.admin, "/status") for member in self.config.members]
        return [json.loads(body) for code, body in filter(None, answers) if code == 200]

    def wait_until_level(self) -> bool:
        """Until all replicas of each group that were not killed for good have delivered the same."""
        end = time.monotonic() + SECONDS_TO_CATCH_UP
        while time.monotonic() < end:
            statuses = self.statuses()
            level = {
                (str(status["id"]).partition("/")[0], status["position"], status["unfinished"]) for status in statuses
            }
            groups = len(self.config.topology.groups)
            everybody = len(statuses) + len(self.killed) == len(self.inside())
            if everybody and len(level) == groups and not any(u for _, _, u in level):
                return True
            time.sleep(0.1)
        return False

    def finish(self, out: Path, force: bool = False) -> bool:
        """Let all catch up, stop, and gather the trace; whether all did catch up."""
        level = self.wait_until_level()
        for member in self.killed:
            file = self.traces / f"{file_name(member.name)}.jsonl"
            writer = TraceWriter(file, self.config.name, member.name, f"g{member.group}")
            writer.row("crash", time=writer.stopped)
            writer.close()
        self.processes.stop(self.config.members)
        gather(self.traces, out, quiescent=level, force=force)
        return level
