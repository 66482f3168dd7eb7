"""Messages that are never delivered because a protocol refuses them, and how many of the others must be delivered.

Baseline and Optimistic refuse what a member sent to a group that its own group had left meanwhile. No other protocol
refuses anything. A trace shows the reason of every refusal: the process that refuses has learnt before that its group
left a destination, and the sender had not learnt of a later return when it multicast.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from amcast.core.trace import Event

MAY_REFUSE = ("baseline", "optimistic")


@dataclass(frozen=True)
class Change:
    """A process learns that a group left another one or joined it, at a time of the group that says so."""

    joined: bool
    group: str
    other: str
    time: int
    seq: int


def is_refusal(event: Event) -> bool:
    return event.kind == "reconfigure" and event.message is not None


def refused(events: Sequence[Event]) -> set[str]:
    return {event.message for event in events if event.message is not None and is_refusal(event)}


def without_refused(events: list[Event]) -> list[Event]:
    """Return the trace as if refused messages had not been multicast."""
    gone = refused(events)
    return [e for e in events if e.message not in gone or e.message is None] if gone else events


def wrong_refusal(protocol: str, events: Sequence[Event]) -> str:
    """Say in one line which refusal has no reason in the trace; empty if all have one."""
    rows = [event for event in events if is_refusal(event)]
    if not rows:
        return ""
    if protocol not in MAY_REFUSE:
        return f"{rows[0].process} refused {rows[0].message}: {protocol} never refuses a message"
    multicasts = {event.message: event for event in events if event.kind == "multicast"}
    delivered = {event.message: event.process for event in events if event.kind == "deliver"}
    changes: dict[str, list[Change]] = {}
    for event in events:
        if event.kind == "reconfigure" and event.message is None:
            changes.setdefault(event.process, []).extend(changes_of(event))
    for row in rows:
        what = f"{row.process} refused {row.message}"
        sent = multicasts.get(row.message)
        if sent is None:
            return f"{what}, which nobody multicast"
        if row.message in delivered:
            return f"{what}, which {delivered[row.message]} delivered"
        if not is_justified(row, sent, changes):
            return f"{what} to {', '.join(sent.dest or ())}, but {row.group} had left none of them, or was back"
    return ""


def is_justified(row: Event, sent: Event, changes: dict[str, list[Change]]) -> bool:
    """Return whether the refusing group had left a destination by the membership that the sender knew."""
    known = [change for change in changes.get(sent.process, ()) if change.joined and change.seq < sent.seq]
    for left in changes.get(row.process, ()):
        about = (left.group, left.other)
        if not left.joined and left.seq < row.seq and left.group == row.group and left.other in (sent.dest or ()):
            if not any((joined.group, joined.other) == about and joined.time > left.time for joined in known):
                return True
    return False


def changes_of(event: Event) -> list[Change]:
    detail = json.loads(event.detail or "{}")
    return [
        Change(what == "joined", detail[what][0], detail[what][1], detail["time"], event.seq)
        for what in ("joined", "left")
        if what in detail and "time" in detail
    ]


# What share of the multicasts somebody must deliver, in percent: five or more below the least that any 50 of 600 seeds
# in a row delivered (skeen 98.7, optimistic 89.7, allconcur_plus_ea 72.9). The rest was lost with its sender, refused
# by Baseline and Optimistic, or multicast in the wild weather of the last two.
LEAST_DELIVERED = {
    "skeen": 93,
    "white_box": 94,
    "ft_skeen": 94,
    "ft_skeen_eager": 94,
    "fastcast": 94,
    "fastcast_eager": 94,
    "multi_paxos": 92,
    "paxos_amcast": 94,
    "baseline": 85,
    "optimistic": 84,
    "fifo": 90,
    "causal": 90,
    "causal_stable": 85,
    "allgather": 100,  # nothing goes wrong in its seeds
    "lcr": 90,
    "allconcur": 92,
    "allconcur_plus": 90,
    "allconcur_plus_uniform": 90,
    "allconcur_plus_rerun": 90,
    "allconcur_plus_merge": 90,
    "allconcur_ea": 65,
    "allconcur_plus_ea": 60,
}
OTHERS = 50  # a protocol that was not measured
ENOUGH = 50  # seeds: fewer may be bad luck


def least_delivered(protocol: str) -> int:
    return LEAST_DELIVERED.get(protocol, OTHERS)


def too_few_delivered(protocol: str, seeds: int, multicasts: int, delivered: int) -> str:
    """Say that less was delivered than the protocol delivers in any weather; empty if not, or if the seeds are few."""
    least = least_delivered(protocol)
    if seeds < ENOUGH or 100 * delivered >= least * multicasts:
        return ""
    return f"only {100 * delivered / multicasts:.1f} % of the multicasts were delivered, expected at least {least} %"
