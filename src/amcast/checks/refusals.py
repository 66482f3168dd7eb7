"""Messages that are never delivered because a protocol refuses them, and how many of the others must be delivered.

Baseline and Optimistic refuse a message to a group that the sender's group has left meanwhile. No other protocol
refuses anything. A trace shows the reason of every refusal. The refusing process has learnt before that its group left
a destination, and the sender had not learnt of a later return when it multicast.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from amcast.core.protocol import Protocol
from amcast.core.trace import Event


@dataclass(frozen=True)
class Change:
    """A process learns that a group left another one or joined it; the group asked for it at this time of its log."""

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


def withdrawn(events: Sequence[Event]) -> set[str]:
    """Return the messages that their senders gave up because nobody had them."""
    return {event.message for event in events if event.message is not None and event.kind == "withdraw"}


def without_withdrawn(events: list[Event]) -> list[Event]:
    """Return the trace as if what its sender withdrew had not been multicast: whoever delivers it makes it up."""
    gone = withdrawn(events)
    return [e for e in events if e.kind not in ("multicast", "withdraw") or e.message not in gone] if gone else events


def wrong_refusal(protocol: Protocol, events: Sequence[Event]) -> str:
    """Say in one line which refusal has no reason in the trace; empty if all have one."""
    rows = [event for event in events if is_refusal(event)]
    if not rows:
        return ""
    if not protocol.reconfigures:
        return f"{rows[0].process} refused {rows[0].message}: {protocol.name} never refuses a message"
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


ENOUGH = 50  # seeds: fewer may be bad luck


def too_few_delivered(protocol: Protocol, seeds: int, multicasts: int, delivered: int) -> str:
    """Say that less was delivered than the protocol delivers in any weather; empty if not, or if the seeds are few."""
    least = protocol.least_delivered
    if seeds < ENOUGH or 100 * delivered >= least * multicasts:
        return ""
    return f"only {100 * delivered / multicasts:.1f} % of the multicasts were delivered, expected at least {least} %"
