"""Converts the data folders of a stopped cluster that amcast 0.1 wrote.

For each replica a new folder is written beside the old one, `g0-1.converting`, and synced. Then the old one is called
`g0-1.0.1`, and stays as a backup, and the new one gets its name. A conversion that was interrupted is begun again, or
finished, by the same command: where no folder has the name, the new one is beside it, whole.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amcast.core.plural import count
from amcast.core.protocol import Protocol
from amcast.core.topology import Mid
from amcast.errors import UsageError
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.data_of_0_1 import is_old, read_old
from amcast.runtime.durability import NodeSnapshot
from amcast.runtime.history import History
from amcast.runtime.identity import Described
from amcast.runtime.machine import REAL
from amcast.runtime.rows import unpack_rows
from amcast.runtime.storage import Storage

BACKUP: Final = ".0.1"
UNFINISHED: Final = ".converting"
AT_ONCE: Final = 2**20  # bytes of rows


@dataclass(frozen=True)
class Conversion:
    """What became of the folder of one replica."""

    line: str
    converted: bool


def convert_cluster(config: ClusterConfig, protocol: Protocol) -> list[Conversion]:
    """Convert the data of all replicas, none of which may run. Raises UsageError and StorageCorrupt."""
    if protocol.convert is None:
        raise UsageError(f"{config.path}: protocol {protocol.name} of 0.1 kept nothing on disk that could be converted")
    with ExitStack() as locked:
        for member in config.members:
            finish(member)
            locked.enter_context(held(member.data))
        # All are read before any is changed: one that cannot be read is said first. Those of an earlier run count, too,
        # for the members of a group must agree on where their digests begin.
        positions = [position_of(member) for member in config.members]
        return [convert(config, protocol, member, common(config, positions, member)) for member in config.members]


def position_of(member: Member) -> int | None:
    """Return the position of the newest snapshot that 0.1 wrote of a replica; None if it wrote none of it."""
    for folder in (member.data, beside(member, BACKUP)):
        if is_old(REAL.files, folder):
            return read_old(REAL.files, folder).snapshot.position
    return None


def common(config: ClusterConfig, positions: list[int | None], member: Member) -> int:
    """Return a position that all replicas of this one's group had reached."""
    group = [at for other, at in zip(config.members, positions, strict=True) if other.group == member.group]
    return min([position for position in group if position is not None], default=0)


def finish(member: Member) -> None:
    """Give the new folder its name, if an earlier run ended just before that."""
    new = beside(member, UNFINISHED)
    if not member.data.exists() and beside(member, BACKUP).exists() and new.exists():
        REAL.files.replace(new, member.data)
        REAL.files.sync_folder(member.data.parent)


def held(folder: Path) -> ExitStack:
    """Lock a data folder, as a node does. Raises UsageError if one runs there."""
    stack = ExitStack()
    if folder.is_dir():
        lock = REAL.files.open(folder / "lock")
        stack.callback(REAL.files.close, lock)
        try:
            REAL.files.lock(lock)
        except OSError:
            stack.close()
            raise UsageError(f"{folder}: a process uses this data folder; stop all nodes first") from None
    return stack


def beside(member: Member, suffix: str) -> Path:
    return member.data.with_name(member.data.name + suffix)


def convert(config: ClusterConfig, protocol: Protocol, member: Member, since: int) -> Conversion:
    """Convert the data of one replica, if it is of 0.1; all of its group were at this position."""
    if not is_old(REAL.files, member.data):
        return Conversion(f"{member.name}: nothing of 0.1", converted=False)
    if beside(member, BACKUP).exists():
        raise UsageError(
            f"{beside(member, BACKUP)}: a backup is there already, but {member.data} is of 0.1; move one of them away"
        )
    assert protocol.convert is not None
    old = read_old(REAL.files, member.data)
    position = old.snapshot.position
    new = beside(member, UNFINISHED)
    if new.exists():  # of a run that was interrupted
        shutil.rmtree(new)
    if (member.data / "history").is_dir():
        shutil.copytree(member.data / "history", new / "history")
    before = rows_before(config, new / "history", since, position)
    records = protocol.convert(old.records, position, before, config.topology)
    storage = Storage(new, f"{config.name} {member.name}")
    storage.count_start(by=old.starts)
    storage.describe(Described(cluster=config.identity, app_version=1).encoded())
    storage.recover()
    if records:
        storage.snapshot(NodeSnapshot(position, records, old.snapshot.app, old.snapshot.results).pieces())
    storage.close()
    sync_all(new)
    REAL.files.replace(member.data, beside(member, BACKUP))
    REAL.files.sync_folder(member.data.parent)
    REAL.files.replace(new, member.data)
    REAL.files.sync_folder(member.data.parent)
    return Conversion(
        f"{member.name}: converted, {count(len(old.records), 'record')} from position {position}; the old data is in "
        f"{beside(member, BACKUP)}",
        converted=True,
    )


def rows_before(config: ClusterConfig, folder: Path, since: int, position: int) -> Iterator[tuple[Mid, int]]:
    """Yield what was delivered from one position up to another: ids and timestamps of messages that travelled alone, or
    of the first of those that travelled as one."""
    if since == position:
        return
    history = History(folder, position)
    try:
        if history.earliest > since:
            raise UsageError(
                f"{folder}: rows from {since} on are needed, those from {history.earliest} on are kept; move away the "
                "folder of the replica that is farthest behind, convert the others, and start that one with --rejoin"
            )
        while since < position:
            first, after, rows = history.read(since, AT_ONCE)
            for ts, index, _, m in unpack_rows(rows, len(config.topology.groups))[since - first :]:
                if not index:
                    yield m.mid, ts
            since = after
    finally:
        history.close()


def sync_all(folder: Path) -> None:
    """Wait until a folder is on disk, with all that is in it."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            REAL.files.sync_folder(path)
        else:
            file = REAL.files.open(path, append=True)
            REAL.files.sync(file)
            REAL.files.close(file)
