"""The ledgers of a cluster's servers, read and compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from amcast.apps.ledger import chain, is_transaction
from amcast.checks.evidence import Evidence
from amcast.checks.verdict import Status
from amcast.errors import AmcastError, HistoryGone, UsageError
from amcast.runtime.client import SyncClient
from amcast.runtime.config import ClusterConfig
from amcast.runtime.history import rows_in
from amcast.runtime.rows import unpack_rows


def logs_of(client: SyncClient, names: Sequence[str]) -> tuple[dict[str, list[bytes]], dict[str, str]]:
    """Return what each server has delivered, and why those that are missing are."""
    logs: dict[str, list[bytes]] = {}
    silent: dict[str, str] = {}
    behind: list[int] = []  # those that copied a snapshot, and have what follows only
    for rank, name in enumerate(names):
        try:
            logs[name] = log_of(client, rank)
        except HistoryGone:
            behind.append(rank)
        except TimeoutError:
            silent[name] = "no answer"
        except AmcastError as error:
            silent[name] = str(error)
    longest = max(logs.values(), key=len, default=[])
    for rank in behind:
        try:
            logs[names[rank]] = log_of(client, rank, longest)
        except (TimeoutError, AmcastError) as error:
            silent[names[rank]] = str(error) or "no answer"
    return logs, silent


def log_of(client: SyncClient, rank: int, before: Sequence[bytes] = ()) -> list[bytes]:
    """Return all that this server has delivered, in order; what it has no rows of, as another server has it."""
    payloads: list[bytes] = []
    if before:
        earliest = client.rows("g0", len(before), replica=rank).earliest
        if earliest > len(before):
            raise HistoryGone(f"its rows begin at {earliest}, those of others end at {len(before)}")
        payloads = list(before[:earliest])
    while True:
        rows = client.rows("g0", len(payloads), replica=rank)
        behind = unpack_rows(rows.rows, 1)[max(0, len(payloads) - rows.first) :]
        payloads += [m.payload for _, _, _, m in behind]
        if len(payloads) >= rows.end or not rows.rows:
            return payloads


def first_log(client: SyncClient, count: int) -> list[bytes]:
    """Return the log of the first server that answers."""
    for rank in range(count):
        try:
            return log_of(client, rank)
        except (TimeoutError, HistoryGone):
            continue
    raise AmcastError("no server of the ledger answers")


def longest_log(client: SyncClient, count: int) -> int:
    """Return how many messages the server has delivered that has come furthest, of those that answer."""
    ends: list[int] = []
    for rank in range(count):
        try:
            ends.append(client.rows("g0", 2**40, replica=rank).end)
        except TimeoutError:
            continue
    if not ends:
        raise AmcastError("no server of the ledger answers")
    return max(ends)


def transactions_in(data: Path) -> list[bytes]:
    """Return what a server that is stopped has delivered, by the files of its data folder."""
    folder = data / "history"
    if not folder.is_dir():
        raise UsageError(f"{data}: no rows of a ledger; expected the data folder of a server, with 'history' in it")
    payloads = [m.payload for rows in rows_in(folder) for _, _, _, m in unpack_rows(rows, 1)]
    return [payload for payload in payloads if is_transaction(payload)]


def servers(config: ClusterConfig) -> list[str]:
    return [member.name for member in config.group(0)]


def outsiders(names: Sequence[str], answering: Sequence[str], statuses: Mapping[str, Mapping[str, object]]) -> set[str]:
    """Return those that left, were removed or never joined, if all who answer say that so many are members."""
    said = set()
    for name in answering:
        members = statuses.get(name, {}).get("members")  # how many, or who where the members of groups change
        said.add(len(members) if isinstance(members, list) else members)
    return set(names) - set(answering) if said == {len(answering)} else set()


def compare(logs: Mapping[str, list[bytes]], expected: int) -> tuple[Status, str]:
    """Judge whether all these are beginnings of the longest one, and say on what that rests."""
    if len(logs) < 2:
        seen = f"{len(logs)} of {expected} servers showed a transaction"
        return "unknown", f"unknown: {seen}, expected two or more to compare"
    longest = max(logs, key=lambda name: len(logs[name]))
    for name, log in logs.items():
        if chain(log) != chain(logs[longest][: len(log)]):
            return "violated", f"the chains differ: that of {name} is not how that of {longest} begins"
    rows = sum(map(len, logs.values()))
    return "ok", f"the chains agree: {Evidence(replicas=len(logs), expected=expected, deliveries=rows)}"
