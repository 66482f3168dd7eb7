"""`amcast cluster backup`, `backup-verify` and `restore`: the state of a whole cluster in one file, and back."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from amcast.cli.naming import Cluster, cluster_at, folder_named, protocol_named
from amcast.cli.output import progress_bar
from amcast.core.plural import count
from amcast.errors import UsageError

if TYPE_CHECKING:
    from amcast.runtime.backup import Backup

BackupFile = Annotated[Path, Argument(metavar="FILE", help="What 'amcast cluster backup' wrote.", parser=folder_named)]


def backup(
    cluster: Cluster,
    out: Annotated[Path, Option(metavar="FILE", help="The backup: a new file.", parser=folder_named)],
    client: Annotated[
        str | None, Option(help="Who takes it: a client that may read and write all groups. Default: the only one.")
    ] = None,
    timeout: Annotated[float, Option(min=0, help="Seconds to wait until all groups have taken their state.")] = 60.0,
) -> int:
    """Back up a running cluster: the state of all groups at one place of the order, while it goes on."""
    from amcast.local.backup import take_backup

    config = cluster_at(cluster)
    with progress_bar("{task.completed:,.0f} of {task.total:,.0f} parts") as bar:
        task = bar.add_task("copying", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        found = take_backup(config, protocol_named(config.protocol), out, client, timeout, progress)
    print(said_of(found))
    return 0


def backup_verify(file: BackupFile) -> int:
    """Check every byte of a backup, and say what it is of."""
    from amcast.runtime.backup import Backup

    refuse_missing(file)
    with progress_bar() as bar:
        task = bar.add_task("reading", total=file.stat().st_size)
        found = Backup(file, lambda size: bar.advance(task, size))
        heads = [state.head for state in found.groups(states=False)]
    print(said_of(found))
    print(f"whole: {', '.join(f'g{head.group} at {head.position:,}' for head in heads)}")
    if not any(head.position for head in heads):
        print("nothing had been delivered when it was taken: is this the cluster that you meant?")
    return 0


def restore(
    file: BackupFile,
    folder: Annotated[Path, Argument(metavar="NEWCLUSTER", help="A new folder.", parser=folder_named)],
    groups: Annotated[
        int | None,
        Option(min=1, max=1000, help="Number of groups, where the application can do that. Default: as it was."),
    ] = None,
    replicas: Annotated[int | None, Option(min=1, max=99, help="Replicas per group, odd. Default: as it was.")] = None,
    insecure_dev: Annotated[bool, Option("--insecure-dev", help="Plaintext instead of TLS.")] = False,
    base_port: Annotated[int | None, Option(min=1, max=65535, help="First port. Default: any that are free.")] = None,
) -> int:
    """Found a new cluster with the state that a backup has."""
    from amcast.local.restore import restore_cluster

    refuse_missing(file)
    with progress_bar() as bar:
        task = bar.add_task("reading", total=file.stat().st_size)
        config = restore_cluster(
            file,
            folder,
            protocol_named,
            groups,
            replicas,
            not insecure_dev,
            base_port,
            lambda size: bar.advance(task, size),
        )
    each = count(len(config.group(0)), "replica")
    print(f"{config.path}: {config.name}, {count(len(config.groups), 'group')} of {each}")
    print(f"start it with: amcast cluster up {folder}")
    return 0


def refuse_missing(file: Path) -> None:
    if not file.is_file():
        raise UsageError(f"{file}: no such file; expected what 'amcast cluster backup' wrote")


def said_of(backup: "Backup") -> str:
    found = backup.manifest
    taken = datetime.fromtimestamp(found.wall_ms / 1000).isoformat(" ", "seconds")
    what = f"{found.app} of {found.cluster}, {count(found.groups, 'group')}, {found.protocol}"
    return f"{backup.path}: {what}, taken {taken}, {backup.path.stat().st_size:,} bytes"
