"""Whether the replicas of each group of a running cluster have applied the same, and have the same state.

All replicas of a group are asked for their hashes at one position. If they stand still it is the last one. If they go
on, it is one that all are about to reach, further ahead each time that one of them was there too early.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from amcast.checks.verdict import Status
from amcast.core.protocol import Protocol
from amcast.errors import UsageError
from amcast.local.level import NO_ANSWER, status_of
from amcast.local.processes import ask
from amcast.runtime.config import ClusterConfig, Member

PAUSE: Final = 0.05  # seconds before replicas are asked again
LEAD: Final = 0.2  # seconds that replicas are given to get to a position, and three times as many each time


class Fingerprint(msgspec.Struct, frozen=True):
    """What a replica says of a position: the node makes these in `runtime/fingerprints.py`."""

    position: int  # where it is
    earliest: int
    at: int  # what was asked for
    link: int | None  # where the chain and the state were taken: where the last messages that travelled as one end
    since: int | None
    chain: str | None
    state: str | None  # of its application, if it has one
    passed: bool  # its state there can no longer be had
    pending: bool  # it is not there yet, or hashes


@dataclass(frozen=True)
class Comparison:
    """What was found about one group."""

    group: str
    status: Status
    line: str
    position: int = 0  # up to which its replicas were compared


Ask = Callable[[Member, int | None], Fingerprint | str]
AllSaid = Callable[[int | None], dict[str, Fingerprint | str]]


def fingerprint_of(config: ClusterConfig, member: Member, at: int | None) -> Fingerprint | str:
    """Return what a replica says; a text that says why not if it does not, or if somebody else is at its address."""
    said = status_of(config, member)
    if isinstance(said, str):
        return said
    answer = ask(member.admin, "/fingerprint" if at is None else f"/fingerprint?at={at}")
    if answer is None:
        return NO_ANSWER
    try:
        return msgspec.convert(json.loads(answer[1]), Fingerprint)
    except (ValueError, msgspec.ValidationError):
        return f"no fingerprint but HTTP {answer[0]}"


def why_not_comparable(config: ClusterConfig, protocol: Protocol) -> str:
    """Say why the replicas of a group need not be equal at a position; empty if they must."""
    if "total" not in protocol.orders:
        return f"{protocol.name} promises no total order: its replicas may differ"
    if protocol.joins:
        return f"members of {protocol.name} may join late, so that positions say nothing (see 'amcast ledger verify')"
    return ""


def compare(config: ClusterConfig, protocol: Protocol, seconds: float, question: Ask | None = None) -> list[Comparison]:
    """Compare the replicas of each group; wait so long for those that have not got so far. Raises UsageError."""
    if reason := why_not_comparable(config, protocol):
        raise UsageError(f"{config.path}: {reason}; expected a cluster of a protocol with a total order")
    question = question or partial(fingerprint_of, config)
    groups: dict[int, list[Member]] = {}
    for member in config.members:
        groups.setdefault(member.group, []).append(member)
    with ThreadPoolExecutor(max_workers=len(groups)) as pool:
        return list(pool.map(lambda members: compare_group(members, seconds, question), groups.values()))


def compare_group(members: Sequence[Member], seconds: float, question: Ask) -> Comparison:
    """Compare the replicas of one group."""
    group = members[0].name.partition("/")[0]
    with ThreadPoolExecutor(max_workers=len(members)) as pool:

        def all_said(at: int | None) -> dict[str, Fingerprint | str]:
            answers = pool.map(lambda member: question(member, at), members)
            return dict(zip([member.name for member in members], answers, strict=True))

        said = gathered(all_said, time.monotonic() + seconds)
        there = {name: one for name, one in said.items() if isinstance(one, Fingerprint) and one.chain is not None}
        line = differences(group, there)
        if line:
            first = first_difference(all_said, there)
            since = "" if first is None else f"; they agree up to position {first}"
            return Comparison(group, "violated", line + since)
        missing = [f"{name}: {why_missing(one)}" for name, one in said.items() if name not in there]
        if len(there) < 2:
            return Comparison(group, "unknown", "; ".join([f"{group}: nothing to compare", *missing]))
        some = next(iter(there.values()))
        unknown = any(one.passed or one.pending for one in there.values())
        state = "states not compared" if unknown else f"state {some.state}" if some.state else "no state"
        agree = f"{group}: {len(there)} of {len(members)} replicas agree at position {some.link}"
        comparable = len({one.since for one in there.values()}) == 1
        agree += f": chain {some.chain}, {state}" if comparable else f": chains of different beginnings, {state}"
        whole = len(there) == len(members) and not unknown and (comparable or some.state is not None)
        return Comparison(group, "ok" if whole else "unknown", "; ".join([agree, *missing]), some.link or 0)


def gathered(all_said: AllSaid, until: float) -> dict[str, Fingerprint | str]:
    """Return what all say of one position: the furthest that one is at, or one that all reach."""
    lead = 0.0  # seconds
    began, first = time.monotonic(), furthest(said := all_said(None))
    while True:
        rate = (furthest(said) - first) / max(time.monotonic() - began, PAUSE)
        target = furthest(said) + int(lead * rate)
        said = all_said(target)
        while time.monotonic() < until and any(isinstance(one, Fingerprint) and one.pending for one in said.values()):
            time.sleep(PAUSE)
            before, said = said, all_said(target)
            if furthest(said) == furthest(before) < target:
                break  # they stand still now, and nobody gets there
        early = any(isinstance(one, Fingerprint) and one.passed for one in said.values())
        if not early and furthest(said) >= target:
            return said
        if time.monotonic() >= until:  # where all have been: their chains at least
            return all_said(min((one.position for one in said.values() if isinstance(one, Fingerprint)), default=0))
        lead = 3 * lead or LEAD if early else 0.0


def furthest(said: Mapping[str, Fingerprint | str]) -> int:
    return max((one.position for one in said.values() if isinstance(one, Fingerprint)), default=0)


def differences(group: str, there: Mapping[str, Fingerprint]) -> str:
    """Say in one line how replicas differ at a position; empty if they do not."""
    for what, found in (("chain", by(there, "chain")), ("state", by(there, "state"))):
        if len(found) > 1:
            at = next(iter(there.values())).link
            parts = ", ".join(f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} {what} {value}"
                              for value, names in found.items())  # fmt: skip
            return f"{group}: replicas differ at position {at}: {parts}"
    return ""


def by(there: Mapping[str, Fingerprint], what: str) -> dict[str, list[str]]:
    """Return the values with who has them; chains that begin at different positions are not compared."""
    beginnings = {one.since for one in there.values()}
    found: dict[str, list[str]] = {}
    for name, one in there.items():
        value = getattr(one, what)
        if value is not None and (what == "state" or len(beginnings) == 1):
            found.setdefault(value, []).append(name)
    return found


def first_difference(all_said: AllSaid, there: Mapping[str, Fingerprint]) -> int | None:
    """Return the last position up to which the chains agree; None if they begin to differ before all know theirs."""
    low = max(one.earliest for one in there.values())
    high = next(iter(there.values())).at

    def agree(position: int) -> bool:
        now = all_said(position)
        known = {(one.link, one.chain) for name, one in now.items() if name in there and isinstance(one, Fingerprint)}
        return len(known) == 1

    if len(by(there, "chain")) < 2 or not agree(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if agree(middle) else (low, middle)
    return low


def why_missing(one: Fingerprint | str) -> str:
    if isinstance(one, str):
        return one
    return f"it is at position {one.position}" if one.position < one.at else "it no longer knows this position"


def status_of_all(found: Iterable[Comparison]) -> Status:
    """Return the worst: that some differ, else that some are not known, else that all agree.

    Where no group has delivered anything, there was nothing to agree on.
    """
    rows = list(found)
    seen = {one.status for one in rows}
    if "violated" in seen:
        return "violated"
    return "unknown" if "unknown" in seen or not any(one.position for one in rows) else "ok"
