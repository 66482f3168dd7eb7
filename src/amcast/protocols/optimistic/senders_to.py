"""Which groups may send to which, and how it changes: sendersTo of "Optimistic Atomic Multicast", sections 3.1 and 5.

A group g that joins the senders to h has a membership from then on: it is known by the place of the request in the log
of g, and it counts since the answer in the log of h. Messages of g to h carry the membership in which they are sent,
and have timestamps above its beginning. A leave stands in the log of g, too, and ends all memberships that g asked for
before it, whether they are answered or not. So a request and a leave are compared within one log, never by the clocks
of two groups.

A process of h may hear of a new membership of g before it hears of the leave that ended the one before. It keeps both,
and waits for g from the beginning of the first one on. When the leave comes, all messages of the memberships that it
ends have come as well, so these need not be waited for any more. The group h itself always counts at h: else a member
of h that has not learnt yet that g joined would not wait for g.
"""

from typing import final

from amcast.core.order import BOTTOM


@final
class Membership:
    """A group may send to another: asked for at this place of its own log, answered at that one of the other's."""

    def __init__(self, asked: int, since: int) -> None:
        self.asked = asked
        self.since = since


@final
class SendersTo:
    """What one process knows of the relation; `initial` has the senders of each group, None lets all send to all."""

    def __init__(self, groups: int, initial: tuple[tuple[int, ...], ...] | None) -> None:
        everybody = tuple(range(groups))
        relation = initial if initial is not None else (everybody,) * groups
        # Per group h: who sends to it, with its memberships, the oldest first; there is at least one.
        self.of: list[dict[int, list[Membership]]] = [
            {g: [Membership(BOTTOM, BOTTOM)] for g in senders} for senders in relation
        ]
        self.left: list[dict[int, int]] = [{} for _ in range(groups)]  # per group h: who left it, when last

    def newest(self, g: int, dest: tuple[int, ...]) -> list[Membership] | None:
        """Return the membership in which g sends to each of these groups, None if it may not send to all."""
        return [self.of[h][g][-1] for h in dest] if all(g in self.of[h] for h in dest) else None

    def asked(self, h: int) -> list[int]:
        """Return who else must give h a barrier."""
        return sorted([g for g in self.of[h] if g != h])

    def required(self, h: int) -> list[tuple[int, int]]:
        """Return who must give h a barrier, as h sees it, and for messages since when."""
        found = [(g, memberships[0].since) for g, memberships in self.of[h].items() if g != h]
        return [(h, BOTTOM), *sorted(found)]

    def ended(self, h: int, g: int, asked: int) -> bool:
        """Return whether g has left h since it asked for this membership."""
        return asked < self.left[h].get(g, BOTTOM)

    def joined(self, h: int, g: int, asked: int, since: int) -> None:
        """Let g send to h."""
        if self.ended(h, g, asked):
            return
        known = self.of[h].setdefault(g, [])
        if not known or known[-1].asked < asked:
            known.append(Membership(asked, since))

    def is_told(self, h: int, g0: int, members: list[tuple[int, int]]) -> None:
        """At a process of g0, which is not h: take over who sends to h. What g0 itself may do, it knows better."""
        told = {g: [Membership(asked, asked)] for g, asked in members if g != g0 and not self.ended(h, g, asked)}
        if g0 in self.of[h]:
            told[g0] = self.of[h][g0]
        self.of[h] = told

    def leaves(self, h: int, g: int, ts: int) -> None:
        """Take note that g left h, with this timestamp. It may have joined again meanwhile."""
        self.left[h][g] = ts
        going_on = [membership for membership in self.of[h].pop(g, []) if membership.asked > ts]
        if going_on:
            self.of[h][g] = going_on
