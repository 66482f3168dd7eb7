"""The machine that a process runs on: its clock, chance, files, listeners, and the limits that go with its size.

Nodes, clients and gateways reach the world by this object and by their event loop, and by nothing else: whoever gives
them another machine and another loop decides what they see. `tests/test_tidy.py` keeps the other ways closed.
"""

import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

Socket = socket.socket


class Clock:
    """The time, in nanoseconds."""

    def monotonic_ns(self) -> int:
        """Return a time that never goes back, and means nothing to other machines."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """Return the time since 1970. Somebody may set it to anything at any moment."""
        return time.time_ns()


class Files:
    """The file system, one method per system call, so that a machine may stop between any two of them.

    All raise OSError with the number and the name that the system gives. Files belong to their owner alone.
    """

    def make_folder(self, path: Path) -> None:
        """Make a folder, and those above it, where they are missing."""
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:  # `parents=True` would leave those above open to everybody
            self.make_folder(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)

    def names(self, folder: Path) -> list[str]:
        """Return the names of the files and folders in a folder, in order."""
        return sorted(os.listdir(folder))

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or a folder of this name."""
        return os.path.exists(path)

    def open(self, path: Path, *, append: bool = False, new: bool = False) -> int:
        """Open a file for writing, made if it is missing; return its descriptor.

        Writes go to its end with `append`, else from its beginning on. With `new` it is emptied.
        """
        how = os.O_APPEND if append else 0
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | how | (os.O_TRUNC if new else 0), 0o600)

    def close(self, fd: int) -> None:
        """Close a descriptor, and give up the lock that it holds."""
        os.close(fd)

    def lock(self, fd: int) -> None:
        """Lock a file. Raises OSError at once if another process has it; a process that ends gives it up."""
        os.lockf(fd, os.F_TLOCK, 0)

    def read(self, path: Path) -> bytes:
        """Return a whole file."""
        return path.read_bytes()

    def read_at(self, path: Path, at: int, length: int) -> bytes:
        """Return so many bytes from this place on; fewer where the file ends before."""
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), length, at)

    def place(self, path: Path) -> tuple[int, int]:
        """Return two numbers of a file that no copy of it has, wherever that is put: inode, and time of last change."""
        found = os.stat(path)
        return found.st_ino, found.st_ctime_ns

    def kept_time(self, path: Path) -> float:
        """Return for how many seconds a file was written before it was changed last: a copy may keep that time."""
        found = os.stat(path)
        return (found.st_ctime_ns - found.st_mtime_ns) / 1e9

    def size(self, fd: int) -> int:
        """Return how many bytes a file has."""
        return os.fstat(fd).st_size

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write the first bytes of these; return how many were written. They may be lost until `sync`."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Wait until the content of a file, and its length, are on disk. Its name may still be lost."""
        os.fdatasync(fd)

    def truncate(self, fd: int, length: int) -> None:
        """Cut a file behind this length."""
        os.ftruncate(fd, length)

    def replace(self, old: Path, new: Path) -> None:
        """Give a file or a folder another name, and drop the file that has it, in one step."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Remove the name of a file."""
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in a folder are on disk."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free(self, path: Path) -> int:
        """Return how many bytes this process may still write where this file or folder is."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


@dataclass(frozen=True)
class Limits:
    """How much, how many and for how long. Whoever changes one looks at its neighbours: they are chosen together."""

    # A node
    congested: int = 6 * 2**20  # bytes of messages under way in the group above which clients must wait …
    seconds_congested: float = 1.0  # … and after so long they are told that it is busy
    pulse_every: float = 0.2  # seconds between what it tells the others about itself
    seconds_without_progress: float = 3.0  # after which something that waits is not only slow
    seconds_unready: float = 5.0  # after which a group without a quorum or a leader refuses requests
    hold: float = 0.001  # how long a message that may wait is held for the next batch, in seconds
    seconds_to_stop: float = 5.0
    seconds_of_pull: float = 5.0  # of silence, from a member whose snapshot or rows are copied
    seconds_pinned: float = 60.0  # that a snapshot is kept for whoever copies it, after the last part
    window: int = 4  # parts that are asked for ahead
    slow_commits: int = 3  # in a row, each longer than half of `suspect_ms`: then a leader gives up the lead …
    seconds_of_lead: float = 30.0  # … but not again so soon
    compare_every: float = 1.0  # seconds between statements of what was applied, to the others of the group
    rows_at_once: int = 2**20  # bytes of rows for the trace of another member

    # Its connections to members
    # Bytes for one member that does not acknowledge; it asks again for what it lacks. Well above twice `congested`: a
    # vote has all that is under way, and the rest of its channel may be full of it.
    most_kept: int = 16 * 2**20
    most_kept_for_good: int = 64 * 2**20  # the same, of a protocol that cannot ask again: a member stops then
    seconds_of_silence: float = 3.0  # without an acknowledgement that is due
    ack_every: int = 16  # batches …
    ack_after: float = 0.03  # … or seconds
    first_pause: float = 0.02  # before dialling again, in seconds; twice as long each time …
    longest_pause: float = 1.0  # … up to this
    seconds_to_greet: float = 5.0  # from the connection on
    most_strangers: int = 128  # connections to one listener that have not said who they are …
    most_of_one_address: int = 64  # … and from one address

    # Its clients
    most_clients: int = 1000
    most_read: int = 4 * 2**20  # bytes of rows in one answer
    most_waiting: int = 64  # reads of one client
    longest_wait_ms: int = 60_000  # of a read
    answer_bytes: int = 64 * 2**20  # of answers that clients may ask for again

    # Its disk
    segment_bytes: int = 64 * 2**20  # of the log
    snapshot_every: int = 64 * 2**20  # bytes of records
    part_bytes: int = 2**20  # of a snapshot
    written_at_once: int = 4 * 2**20  # bytes of a snapshot between two commits
    alarm: int = 2**30  # bytes free below which operators are told …
    reserve: int = 256 * 2**20  # … and those below which clients are refused, for what the node has taken on already
    measure_every: float = 1.0  # seconds between looks at the room on a disk that has little
    sync_after: float = 0.1  # seconds that records may wait for others before they are committed alone
    file_bytes: int = 64 * 2**20  # of the ordered log for readers
    kept_in_memory: int = 16 * 2**20  # of the same
    kept_on_disk: int = 4 * 2**30

    # A client
    read_wait_ms: int = 5_000  # that a read waits for new rows
    sweep_every: float = 0.05  # seconds between looks at deadlines
    seconds_to_inquire: float = 0.6  # whether groups serve: who has not said so by then does not
    seconds_of_doubt: float = 0.3  # for which it is taken as known that groups do not serve …
    seconds_of_trust: float = 1.0  # … or that they do, although somebody says otherwise

    # The gateway of the key-value store
    gateway_batch_bytes: int = 256 * 1024
    under_way: int = 8  # multicasts to the same groups; while there are so many, the next one grows
    lock_seconds: float = 2.0  # a lock that is seen for longer belongs to a gateway that is gone
    look_every: float = 5.0  # seconds between questions to all replicas, how they are …
    look_again: float = 0.5  # … and while a group cannot be used
    seconds_to_look: float = 1.0  # that their answers are waited for
    clocks_differ: float = 60.0  # seconds above which a clock is off, and a request from the future is refused
    longest_backoff: float = 1.0  # seconds, after nodes were busy
    most_connections: int = 10_000
    commands_read_ahead: int = 4096  # of one connection, while earlier ones are executed
    bytes_read_ahead: int = 4 * 2**20
    reply_bytes: int = 2**20  # at once: after more, a connection gets fewer commands executed together
    commands_together: int = 1024
    most_not_logged_in: int = 256  # connections, where users must log in
    seconds_to_log_in: float = 20.0
    bytes_of_a_stranger: int = 64 * 1024  # read ahead, before a login
    logins_waiting: int = 64  # for their turn to have a password checked
    grace_seconds: float = 5.0  # for what is under way when it stops


@dataclass(frozen=True)
class Machine:
    """What a process runs on. The real one is `REAL`, everywhere unless said otherwise."""

    clock: Clock = field(default_factory=Clock)
    # Sessions, boots and transactions need numbers that nobody else draws, also not a process forked from this one;
    # they are no secrets. So the system is asked each time: there is no state to copy.
    random: Random = field(default_factory=SystemRandom)
    files: Files = field(default_factory=Files)
    limits: Limits = Limits()

    def listen_at(self, host: str, port: int) -> Socket:
        """Listen at a numerical address; return what `sock_accept` of the event loop takes. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024)
        listening.setblocking(False)
        return listening


def write_all(files: Files, fd: int, data: bytes) -> None:
    """Write all of these bytes, in as many calls as it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(fd, rest) :]


REAL: Final = Machine()
