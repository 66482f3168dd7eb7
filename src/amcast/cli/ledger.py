"""`amcast ledger`: a hash-chained ledger on a cluster whose nodes run it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.naming import Cluster, cluster_at
from amcast.cli.output import plain_table, report_console
from amcast.errors import UsageError

if TYPE_CHECKING:
    from amcast.runtime.client import SyncClient
    from amcast.runtime.config import ClusterConfig

BATCH = 200  # transactions that are appended together
EXIT_CODES = {"ok": 0, "violated": 1, "unknown": 3}
ledger_commands = typer.Typer(help="A hash-chained ledger on a cluster.", no_args_is_help=True)


def open_ledger(config: "ClusterConfig") -> "SyncClient":
    from amcast.apps import LEDGER, application
    from amcast.service import connect_sync

    if application(config.app) is not LEDGER:
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
def tail(cluster: Cluster, last: Annotated[int, typer.Option(min=1, help="How many transactions.")] = 10) -> int:
    """Print the last transactions: height, hash, text."""
    from amcast.apps.chains import first_log, servers
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
def found(
    cluster: Cluster, data: Annotated[Path, typer.Argument(metavar="FOLDER", help="A server's data folder.")]
) -> int:
    """Found a ledger anew: append all transactions of a stopped server to this ledger, which must be empty.

    Heights and hashes are those of the old ledger.
    """
    import msgspec

    from amcast.apps.chains import longest_log, servers, transactions_in
    from amcast.apps.ledger import chain

    config = cluster_at(cluster)
    payloads = transactions_in(data)
    if not payloads:
        raise UsageError(f"{data}: no transaction there; expected the data folder of a server with some")
    with open_ledger(config) as client:
        if there := longest_log(client, len(servers(config))):
            raise UsageError(f"{config.path}: {there} messages are there; expected a ledger with none: make a new one")
        *others, last = payloads
        batches = (((0,), others[i : i + BATCH]) for i in range(0, len(others), BATCH))
        client.multicast_batches(batches, most_open=1)
        # The answer stands for the order. A server whose log is read may not have come so far.
        height, head = msgspec.msgpack.decode(client.multicast(["g0"], last)["g0"], type=tuple[int, bytes])
    print(f"{height} {head.hex()}")
    if (height, head) != chain(payloads):
        print(f"the chain of {data} ends with {len(payloads)} {chain(payloads)[1].hex()}: somebody else appended, too")
        return 1
    return 0


@ledger_commands.command()
def verify(cluster: Cluster) -> int:
    """Compute the chain of every server anew, and compare them.

    Exit code 1 if one differs, 3 if there are not two or a member does not answer.
    """
    from amcast.apps.chains import compare, logs_of, outsiders, servers
    from amcast.apps.ledger import chain
    from amcast.local.level import statuses_of

    config = cluster_at(cluster)
    with open_ledger(config) as client:
        logs, silent = logs_of(client, servers(config))
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
    status, said = compare(seen, len(servers(config)) - len(out))
    print(said)
    unheard = [name for name in silent if name not in out]
    if status == "ok" and unheard:
        print(f"unknown: {', '.join(unheard)} {'does' if len(unheard) == 1 else 'do'} not answer")
        return 3
    return EXIT_CODES[status]
