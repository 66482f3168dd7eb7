"""`amcast ledger`: a hash-chained ledger on a cluster whose nodes run it."""

from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.naming import Cluster, cluster_at
from amcast.cli.output import plain_table, report_console
from amcast.errors import AmcastError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amcast.local.level import Statuses
    from amcast.runtime.client import SyncClient
    from amcast.runtime.config import ClusterConfig

ledger_commands = typer.Typer(help="A hash-chained ledger on a cluster.", no_args_is_help=True)


def open_ledger(config: "ClusterConfig") -> "SyncClient":
    from amcast.service import connect_sync

    if config.app != "ledger":
        seen = f"{config.path}: its nodes run {config.app!r}"
        raise UsageError(f"{seen}, expected 'ledger'; make one with 'amcast cluster init DIR --app ledger'")
    return connect_sync(config.path)


@ledger_commands.command()
def append(cluster: Cluster, transactions: Annotated[list[str], typer.Argument(metavar="TEXT...")]) -> int:
    """Append transactions of up to 250 bytes, one after the other; print height and hash of each."""
    import msgspec

    from amcast.apps.ledger import LONGEST, is_transaction

    payloads = [text.encode() for text in transactions]
    for payload in payloads:
        if not is_transaction(payload):
            raise UsageError(f"a transaction of {len(payload)} bytes: expected 1 to {LONGEST}")
    with open_ledger(cluster_at(cluster)) as client:
        for payload in payloads:
            answer = client.multicast(["g0"], payload)["g0"]
            height, head = msgspec.msgpack.decode(answer, type=tuple[int, bytes])
            print(f"{height} {head.hex()}", flush=True)
    return 0


@ledger_commands.command()
def tail(cluster: Cluster, last: Annotated[int, typer.Option(min=1, help="How many.")] = 10) -> int:
    """Print the last transactions: height, hash, text."""
    from amcast.apps.ledger import GENESIS, is_transaction, link

    config = cluster_at(cluster)
    with open_ledger(config) as client:
        payloads = first_log(client, len(servers(config)))
    head = GENESIS
    lines: list[str] = []
    for payload in payloads:
        if is_transaction(payload):
            head = link(head, payload)
            lines.append(f"{len(lines) + 1} {head.hex()} {payload.decode(errors='replace')}")
    for line in lines[-last:]:
        print(line)
    return 0


@ledger_commands.command()
def verify(cluster: Cluster) -> int:
    """Compute the chain of every server anew, and compare them.

    Exit code 1 if one differs, 3 if there are not two or a member does not answer.
    """
    from amcast.apps.ledger import chain
    from amcast.local.level import statuses_of

    config = cluster_at(cluster)
    logs, silent = logs_of(config)
    table = plain_table("server", "height", "hash", right=("height",))
    heights: dict[str, int] = {}
    for name in servers(config):
        if name in silent:
            table.add_row(name, "-", silent[name])
            continue
        heights[name], head = chain(logs[name])
        table.add_row(name, str(heights[name]), head.hex())
    report_console().print(table)
    out = outsiders(servers(config), list(heights), statuses_of(config)) if silent else set()
    seen = {name: logs[name] for name, height in heights.items() if height}
    code = compared(seen, len(servers(config)) - len(out))
    unheard = [name for name in silent if name not in out]
    if code == 0 and unheard:
        print(f"unknown: {', '.join(unheard)} {'does' if len(unheard) == 1 else 'do'} not answer")
        return 3
    return code


def outsiders(names: "Sequence[str]", answering: "Sequence[str]", statuses: "Statuses") -> set[str]:
    """Those that left, were removed or never joined: known if all who answer say that so many are members."""
    said = {statuses.get(name, {}).get("members") for name in answering}
    return set(names) - set(answering) if said == {len(answering)} else set()


def compared(logs: dict[str, list[bytes]], expected: int) -> int:
    """Print whether all these are beginnings of the longest one; the exit code."""
    from amcast.apps.ledger import chain
    from amcast.checks.evidence import Evidence

    if len(logs) < 2:
        print(f"unknown: {len(logs)} of {expected} servers showed a transaction, expected two or more to compare")
        return 3
    longest = max(logs, key=lambda name: len(logs[name]))
    for name, log in logs.items():
        if chain(log) != chain(logs[longest][: len(log)]):
            print(f"the chains differ: that of {name} is not how that of {longest} begins")
            return 1
    rows = sum(map(len, logs.values()))
    print(f"the chains agree: {Evidence(replicas=len(logs), expected=expected, deliveries=rows)}")
    return 0


def logs_of(config: "ClusterConfig") -> tuple[dict[str, list[bytes]], dict[str, str]]:
    """Return what each server has delivered, and why those that are missing are."""
    logs: dict[str, list[bytes]] = {}
    silent: dict[str, str] = {}
    with open_ledger(config) as client:
        for rank, name in enumerate(servers(config)):
            try:
                logs[name] = log_of(client, rank)
            except TimeoutError:
                silent[name] = "no answer"
            except AmcastError as error:
                silent[name] = str(error)
    return logs, silent


def log_of(client: "SyncClient", rank: int) -> list[bytes]:
    """All that this server has delivered, in order."""
    from amcast.runtime.rows import unpack_rows

    payloads: list[bytes] = []
    while True:
        rows = client.read("g0", len(payloads), replica=rank)
        place = rows.first
        for _, _, _, m in unpack_rows(rows.rows, 1):
            if place == len(payloads):
                payloads.append(m.payload)
            place += 1
        if len(payloads) >= rows.end or not rows.rows:
            return payloads


def first_log(client: "SyncClient", count: int) -> list[bytes]:
    """That of the first server that answers."""
    for rank in range(count):
        try:
            return log_of(client, rank)
        except TimeoutError:
            continue
    raise AmcastError("no server of the ledger answers")


def servers(config: "ClusterConfig") -> list[str]:
    return [config.topology.name(pid) for pid in config.topology.groups[0]]
