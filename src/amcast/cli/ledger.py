"""`amcast ledger`: a hash-chained ledger on a cluster whose nodes run it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.output import plain_table, report_console
from amcast.core.errors import AmcastError, UsageError

if TYPE_CHECKING:
    from amcast.runtime.client import SyncClient

Config = Annotated[Path, typer.Option(help="The file that describes the cluster.")]
ledger = typer.Typer(help="A hash-chained ledger on a cluster.", no_args_is_help=True)


def open_ledger(config: Path) -> "SyncClient":
    from amcast.service import connect_sync, load

    loaded = load(config)
    if loaded.app != "ledger":
        raise UsageError(f"{config}: its nodes run {loaded.app!r}, expected 'ledger': amcast cluster init --app ledger")
    return connect_sync(config)


@ledger.command()
def append(config: Config, transactions: Annotated[list[str], typer.Argument(metavar="TEXT...")]) -> int:
    """Append transactions of up to 250 bytes, one after the other; print height and hash of each."""
    import msgspec

    from amcast.apps.ledger import LONGEST, is_transaction

    payloads = [text.encode() for text in transactions]
    for payload in payloads:
        if not is_transaction(payload):
            raise UsageError(f"a transaction of {len(payload)} bytes: expected 1 to {LONGEST}")
    with open_ledger(config) as client:
        for payload in payloads:
            answer = client.multicast(["g0"], payload)["g0"]
            height, head = msgspec.msgpack.decode(answer, type=tuple[int, bytes])
            print(f"{height} {head.hex()}", flush=True)
    return 0


@ledger.command()
def tail(config: Config, last: Annotated[int, typer.Option(min=1, help="How many.")] = 10) -> int:
    """Print the last transactions: height, hash, text."""
    from amcast.apps.ledger import GENESIS, is_transaction, link

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


@ledger.command()
def verify(config: Config) -> int:
    """Compute the chain of every server that is up anew, and compare them. Exit code 1 if one differs."""
    from amcast.apps.ledger import chain

    table = plain_table("server", "height", "hash", right=("height",))
    found: dict[str, list[bytes]] = {}
    with open_ledger(config) as client:
        for rank, name in enumerate(servers(config)):
            try:
                found[name] = log_of(client, rank)
            except (TimeoutError, AmcastError):
                continue
    shortest = min((len(payloads) for payloads in found.values()), default=0)
    heads = set()
    for name in servers(config):
        payloads = found.get(name)
        if payloads is None:
            table.add_row(name, "-", "no answer")
            continue
        height, head = chain(payloads)
        heads.add(chain(payloads[:shortest]))
        table.add_row(name, str(height), head.hex())
    report_console().print(table)
    print("the chains agree" if len(heads) == 1 else "the chains differ" if heads else "no server answered")
    return 0 if len(heads) == 1 else 1


def log_of(client: "SyncClient", rank: int) -> list[bytes]:
    """All that this server has delivered, in order."""
    from amcast.core.engine import unpack_rows

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


def servers(config: Path) -> list[str]:
    from amcast.service import load

    topology = load(config).topology
    return [topology.name(pid) for pid in topology.groups[0]]
