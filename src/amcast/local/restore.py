"""Founds a new cluster with the state that a backup has, in a folder that nobody has used.

All of it is made beside that folder, in NAME.restoring, and gets its name when it is on disk: so there is a cluster or
none. What an interrupted run left is removed by the next one, and by nothing else.
"""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from amcast.apps import application
from amcast.core.application import Spread, StateMachine, made
from amcast.core.capabilities import Durable
from amcast.core.plural import count
from amcast.core.process import Effects, Memory
from amcast.core.protocol import Protocol
from amcast.errors import AmcastError, UsageError
from amcast.local.convert import held, sync_all
from amcast.local.files import create_cluster, refuse_impossible
from amcast.runtime.backup import Backup, GroupState
from amcast.runtime.config import ClusterConfig, Member, load_config
from amcast.runtime.cuts import why_no_backup
from amcast.runtime.durability import NodeSnapshot
from amcast.runtime.execution import Executor
from amcast.runtime.formats import rewritten
from amcast.runtime.identity import OLDEST
from amcast.runtime.machine import REAL
from amcast.runtime.seats import seated
from amcast.runtime.storage import Storage

UNFINISHED: Final = ".restoring"
ORIGIN: Final = "restored"  # a file: from what
T_ROWS = list[tuple[int, int, bytes]]


def restore_cluster(
    path: Path,
    folder: Path,
    protocols: Callable[[str], Protocol],
    groups: int | None = None,
    replicas: int | None = None,
    secure: bool = True,
    base_port: int | None = None,
    progress: Callable[[int], None] = lambda size: None,
) -> ClusterConfig:
    """Write a new cluster, with as many groups and replicas as the old one had unless said otherwise."""
    folder = folder.absolute()
    refuse_target(folder)
    backup = Backup(path, progress)
    manifest = backup.manifest
    protocol = protocols(manifest.protocol)
    if reason := why_no_backup(protocol):
        raise UsageError(f"{path}: {reason}")
    states = list(backup.groups())  # all is read and checked before anything is written
    version, apps = application_states(path, manifest.app, states, groups or manifest.groups)
    each = replicas or manifest.replicas - (1 - manifest.replicas % 2)  # where members came or went it may be even
    refuse_impossible(protocol, len(apps), each, durable=True, spare=0)
    unfinished = folder.with_name(folder.name + UNFINISHED)
    remove_unfinished(unfinished)
    REAL.files.make_folder(unfinished)
    (unfinished / ORIGIN).write_text(origin_text(backup), encoding="utf-8")
    with held(unfinished):
        config = create_cluster(
            unfinished,
            protocol,
            len(apps),
            each,
            manifest.app,
            secure,
            base_port=base_port,
            app_version=version,
        )
        config = seated(config, protocol)
        for member in config.members:
            found_member(config, protocol, member, memory_of(states, member, len(apps)), apps[member.group], version)
        sync_all(unfinished)
    (unfinished / "lock").unlink()
    try:
        os.rename(unfinished, folder)  # over a folder that is empty, and no other
    except OSError as error:
        raise UsageError(f"{folder}: cannot get its name ({error.strerror}); all of it is in {unfinished}") from error
    REAL.files.sync_folder(folder.parent)
    return load_config(folder)


def refuse_target(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise UsageError(f"{folder}: is there already; a cluster is restored to a new folder: give another name")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder.parent}: no such folder; make it first")


def remove_unfinished(folder: Path) -> None:
    """Remove what an interrupted run left. Raises UsageError for what is something else."""
    if not folder.exists():
        return
    names = sorted(os.listdir(folder))
    if names and ORIGIN not in names:
        raise UsageError(f"{folder}: is in the way, and no restore left it; move it away")
    with held(folder):
        shutil.rmtree(folder)


def origin_text(backup: Backup) -> str:
    taken = datetime.fromtimestamp(backup.manifest.wall_ms / 1000, UTC).isoformat(timespec="seconds")
    return f"from {backup.path.absolute()}\nof {backup.manifest.cluster}, taken {taken}\n"


def application_states(path: Path, name: str, states: list[GroupState], groups: int) -> tuple[int, list[bytes]]:
    """Return the version of the application, and its state for each group of the new cluster.

    The code that is here must take each of them: so another application, or an older one, is refused.
    """
    factory = application(name).machine
    apps = [state.app for state in states]
    if factory is None:
        return 1, apps if groups == len(apps) else [b""] * groups
    versions = sorted({state.head.app_version for state in states})
    if len(versions) != 1:
        raise UsageError(f"{path}: application {name} in versions {versions}: expected one; use another backup")
    try:
        old = [executor_of(name, made(factory, name, g, len(apps)), versions[0], apps[g]) for g in range(len(apps))]
        if groups != len(apps):
            app = old[0].app
            if not isinstance(app, Spread):
                raise UsageError(
                    f"{path}: application {name} cannot go from {count(len(apps), 'group')} to {groups}: it has no "
                    f"method spread; leave out --groups"
                )
            apps = app.spread(apps, groups)
            for g, state in enumerate(apps):
                executor_of(name, made(factory, name, g, groups), versions[0], state)
    except UsageError as error:
        raise UsageError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    except AmcastError as error:
        raise UsageError(f"{path}: {error}; is this the application that wrote it?") from error
    return versions[0], apps


def executor_of(name: str, app: StateMachine, version: int, state: bytes) -> Executor:
    """Return an application that has taken over a state."""
    executor = Executor(app, name)
    executor.begin(version)
    executor.restore(state)
    return executor


def memory_of(states: list[GroupState], member: Member, groups: int) -> tuple[Memory, T_ROWS]:
    """Return what a replica remembers of clients, and the answers that it keeps.

    With another number of groups a message may go to others than before, so all know what any group has delivered.
    Answers were those of groups that are no more, so nobody has them: who asks again hears that it was delivered.
    """
    if groups == len(states):
        head = states[member.group].head
        return head.memory, head.results
    done: dict[int, tuple[int, set[int]]] = {}
    for state in states:
        sessions, idle = state.head.memory
        for sender, low, above in [*sessions, *[(sender, low, ()) for sender, low in idle]]:
            before, more = done.get(sender, (0, set()))
            done[sender] = max(before, low), more | set(above)
    rows = [(sender, low, tuple(sorted(seq for seq in above if seq >= low))) for sender, (low, above) in done.items()]
    return (rows, []), []


def found_member(
    config: ClusterConfig,
    protocol: Protocol,
    member: Member,
    remembered: tuple[Memory, T_ROWS],
    app: bytes,
    version: int,
) -> None:
    """Write the folder of a replica that begins with this state, and with an empty log."""
    process = protocol.make(member.pid, config.topology, config.params(), Effects())
    assert isinstance(process, Durable)
    memory, results = remembered
    process.recall(memory)
    storage = Storage(member.data, f"{config.name} {member.name}", new=False)
    try:
        storage.recover()
        pieces = [app] if app else []
        records = protocol.records
        oldest = rewritten(process.snapshot(), records, records.at(OLDEST) if records is not None else None)
        storage.snapshot(NodeSnapshot(0, oldest, pieces, results, None, version).pieces())
    finally:
        storage.close()
