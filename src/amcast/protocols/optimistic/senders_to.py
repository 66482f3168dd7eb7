"""Which groups may send to which, and how it changes: sendersTo of "Optimistic Atomic Multicast", sections 3.1 and 5.

A group g that sends to h counts for a message at h only if the message is above g's activation; g's own messages to h
carry its epoch, the timestamp of the answer that let it in. A group that left and joined again keeps its old activation
at h until h has learnt that it left. The group h itself always counts at h: else a member of h that has not learnt yet
that g joined would not wait for g.
"""

from typing import final

from amcast.core.order import BOTTOM


@final
class Sender:
    """A group that may send to another: since when it must be waited for, and in which membership it sends."""

    def __init__(self, activation: int, epoch: int) -> None:
        self.activation = activation
        self.epoch = epoch


@final
class SendersTo:
    """What one process knows of the relation; `initial` has the senders of each group, None lets all send to all."""

    def __init__(self, groups: int, initial: tuple[tuple[int, ...], ...] | None) -> None:
        everybody = tuple(range(groups))
        relation = initial if initial is not None else (everybody,) * groups
        self.of: list[dict[int, Sender]] = [{g: Sender(BOTTOM, BOTTOM) for g in senders} for senders in relation]
        self.left: list[dict[int, int]] = [{} for _ in range(groups)]  # per group h: who left it, when last

    def epochs(self, g: int, dest: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return in which membership g sends to each of these groups, None if it may not send to all."""
        return tuple([self.of[h][g].epoch for h in dest]) if all(g in self.of[h] for h in dest) else None

    def asked(self, h: int) -> list[int]:
        """Return who else must give h a barrier."""
        return sorted([g for g in self.of[h] if g != h])

    def required(self, h: int) -> list[tuple[int, int]]:
        """Return who must give h a barrier, as h sees it, with activations."""
        found = [(g, sender.activation) for g, sender in self.of[h].items() if g != h]
        return [(h, BOTTOM), *sorted(found)]

    def joined(self, h: int, g: int, ts: int) -> None:
        """Let g send to h, with this timestamp."""
        known = self.of[h].get(g)
        self.of[h][g] = Sender(known.activation if known is not None else ts, ts)

    def is_told(self, h: int, members: list[tuple[int, int]]) -> None:
        """Take over what h says: who sends to it, and in which membership."""
        left = self.left[h]
        self.of[h] = {g: Sender(epoch, epoch) for g, epoch in members if epoch >= left.get(g, BOTTOM)}

    def leaves(self, h: int, g: int, ts: int) -> None:
        """Take note that g left h, with this timestamp. It may have joined again meanwhile."""
        self.left[h][g] = ts
        known = self.of[h].get(g)
        if known is not None:
            if known.epoch < ts:
                del self.of[h][g]
            else:
                known.activation = known.epoch
