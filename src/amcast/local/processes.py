"""The processes of a cluster on this machine: started, watched and stopped, each known by its pid file.

A pid file holds when its process began besides its number, so that a number that the system has given to another
process since is never taken for the node; and a signal goes through a descriptor of the process that was looked at.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from amcast.errors import UsageError
from amcast.runtime.config import Address, ClusterConfig, Member, file_name

NODE: Final = (sys.executable, "-P", "-m", "amcast", "node")  # -P: the current folder holds no modules of ours
SECONDS_TO_STOP: Final = 10.0  # from SIGTERM to SIGKILL
POLL: Final = 0.05
ANSWER: Final = 2.0  # seconds
LARGEST_ANSWER: Final = 2**20


class Processes:
    """The nodes of one cluster. `command` is what starts one, before cluster and replica; `trace` is a folder."""

    def __init__(self, config: ClusterConfig, command: Sequence[str] = NODE, trace: Path | None = None) -> None:
        if not Path("/proc/self/stat").exists():
            raise UsageError(
                "there is no /proc here, without which processes are not told apart; start each node with "
                f"'amcast node {config.path} ID'"
            )
        self.config = config
        self.command = command
        self.trace = trace.absolute() if trace is not None else None  # nodes run in another folder than this process
        self.folder = config.path.parent
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, member: Member) -> Path:
        return self.folder / "logs" / f"{file_name(member.name)}.log"

    def pid_file(self, member: Member) -> Path:
        return self.folder / "run" / f"{file_name(member.name)}.pid"

    @contextmanager
    def alone(self, what: str = "lock") -> Iterator[None]:
        """Keep other commands from starting or stopping nodes of this cluster, or from doing the same as this one."""
        try:
            for name in ("run", "logs"):
                (self.folder / name).mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self.folder / "run" / what, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"{error.filename}: cannot be written ({error.strerror})") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def start(self, member: Member, *options: str) -> int:
        """Start a node that does not run, in a session of its own; return its pid."""
        traced = ["--trace", str(self.trace)] if self.trace is not None else []
        path = os.environ.get("PYTHONPATH")  # an application may be found by it, and the node runs in another folder
        here = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))} if path else {}
        with open(self.log(member), "ab") as log:
            process = subprocess.Popen(
                [*self.command, str(self.config.path), member.name, *traced, *options],
                cwd=self.folder,
                env=os.environ | here,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.children[member.name] = process
        life = life_of(process.pid)
        try:
            new = self.pid_file(member).with_suffix(".new")
            new.write_text(json.dumps({"pid": process.pid, "began": life[1] if life else "", "boot": boot_id()}))
            os.replace(new, self.pid_file(member))
        except OSError as error:
            process.kill()  # nobody would know of it
            raise UsageError(f"{error.filename}: cannot be written ({error.strerror})") from error
        return process.pid

    def running(self, member: Member) -> int | None:
        """Return the pid of a node; None if it does not run."""
        if member.name in self.children:
            self.children[member.name].poll()  # one of ours that ended is not to linger
        try:
            document = json.loads(self.pid_file(member).read_text())
            pid, began, boot = int(document["pid"]), str(document["began"]), str(document["boot"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        life = life_of(pid)
        return pid if life is not None and life[0] not in "ZX" and life[1] == began and boot == boot_id() else None

    def signal(self, member: Member, *signals: signal.Signals) -> bool:
        """Send signals to a node; return whether it ran."""
        pid = self.running(member)
        if pid is None:
            return False
        try:
            descriptor = os.pidfd_open(pid)
            try:
                if self.running(member) != pid:
                    return False
                for each in signals:
                    signal.pidfd_send_signal(descriptor, each)
            finally:
                os.close(descriptor)
        except ProcessLookupError:
            return False
        return True

    def stop(self, members: Sequence[Member], seconds: float = SECONDS_TO_STOP) -> list[Member]:
        """Ask these nodes to stop, and kill those that do not in time; return whom it killed."""
        asked = [member for member in members if self.signal(member, signal.SIGTERM, signal.SIGCONT)]
        late = self.wait_until_gone(asked, seconds)
        for member in late:
            self.signal(member, signal.SIGKILL)
        self.wait_until_gone(late, seconds)
        for member in members:
            if self.running(member) is None:
                self.pid_file(member).unlink(missing_ok=True)
        return late

    def wait_until_gone(self, members: Sequence[Member], seconds: float) -> list[Member]:
        """Wait for so many seconds at most; return those that still run."""
        end = time.monotonic() + seconds
        left = list(members)
        while (left := [member for member in left if self.running(member) is not None]) and time.monotonic() < end:
            time.sleep(POLL)
        return left

    def why_not_ready(self, member: Member) -> str | None:
        """Return why a node does not serve yet; None if it does."""
        answer = ask(member.admin, "/readyz")
        if answer is None:
            return "no answer yet"
        return None if answer[0] == 200 else answer[1].decode(errors="replace").strip()

    def wait_until_ready(self, members: Sequence[Member], seconds: float) -> dict[str, str | None]:
        """Wait until all serve or have stopped, for so many seconds at most; return what is wrong or None, by name.

        Two looks must agree: a node may be ready, and then stop over what the others still tell it.
        """
        end = time.monotonic() + seconds
        before: dict[str, str | None] = {}
        while True:
            state: dict[str, str | None] = {}
            waiting = False
            for member in members:
                runs = self.running(member) is not None
                state[member.name] = self.why_not_ready(member) if runs else f"stopped: {self.last_words(member)}"
                waiting = waiting or (runs and state[member.name] is not None)
            if (not waiting and state == before) or time.monotonic() > end:
                return state
            before = state
            time.sleep(POLL)

    def last_words(self, member: Member) -> str:
        """Return the last line of a node's log."""
        lines = last_lines(self.log(member), 1)
        return lines[0].strip()[:300] if lines else "it said nothing"


def life_of(pid: int) -> tuple[str, str] | None:
    """Return the state of a process and when it began, in ticks since the boot."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, of which no more is read than is needed."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            window = 1 << 13
            while True:
                start = max(0, size - window)
                file.seek(start)
                lines = file.read(size - start).decode(errors="replace").splitlines()
                if start == 0 or len(lines) > count:
                    return lines[-count:] if count else []
                window *= 4
    except OSError:
        return []


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def new_lines(path: Path, places: dict[str, int], name: str) -> list[str]:
    """Return whole lines since the last look; from the start if the file was cut."""
    size = size_of(path)
    if size < places[name]:
        places[name] = 0
    with open(path, "rb") as file:
        file.seek(places[name])
        whole = file.read(size - places[name]).rpartition(b"\n")[0]
    if whole:
        places[name] += len(whole) + 1
    return whole.decode(errors="replace").splitlines()


def ask(address: Address, path: str) -> tuple[int, bytes] | None:
    """Return what an admin listener answers; None if it does not."""
    connection = HTTPConnection(address.host, address.port, timeout=ANSWER)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(LARGEST_ANSWER)
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
