"""How long to wait for messages that were sent earlier: the wait window of Optimistic Atomic Multicast, section 4.2.

For each sender, the estimate is the mean (or a percentile) of `local clock − initial timestamp` over its last 100
messages: the delay and the skew of the two clocks together, so it may be negative. The window is the largest estimate.

The paper leaves open what an outage or a wrong clock does to that: everybody would wait for the worst sender, for as
long as it is silent. So a value counts as `most` at most, a sender whose estimate reaches that is not waited for at all
(its messages come too late for any guess), and who has been silent for long, or is suspected, does not count.
"""

from typing import Final, final

LAST: Final = 100
ENDLESS: Final = 1 << 62


@final
class Estimate:
    """The estimate of one sender."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.oldest = 0  # where the next value goes
        self.total = 0
        self.estimate = 0
        self.heard_at = 0

    def add(self, value: int, percentile: int) -> None:
        if len(self.values) < LAST:
            self.values.append(value)
        else:
            self.total -= self.values[self.oldest]
            self.values[self.oldest] = value
            self.oldest = (self.oldest + 1) % LAST
        self.total += value
        count = len(self.values)
        if percentile == 0:
            self.estimate = self.total // count
        elif count < 10 or self.oldest % 10 == 0:
            self.estimate = sorted(self.values)[min(count - 1, count * percentile // 100)]


@final
class WaitWindow:
    """How long to wait. `fixed` never changes, `percentile` 0 is the mean, `start` counts until somebody is heard."""

    def __init__(self, start: int, percentile: int = 0, fixed: int = -1, most: int = ENDLESS) -> None:
        self.percentile = percentile
        self.fixed = fixed
        self.most = most
        self.start = start
        self.length = fixed if fixed >= 0 else start
        self._of: dict[int, Estimate] = {}

    def heard(self, sender: int, delay: int, now: int = 0) -> None:
        """Take note of a message that came straight from its sender, so long after its initial timestamp."""
        if self.fixed >= 0:
            return
        estimate = self._of.get(sender)
        if estimate is None:
            estimate = self._of[sender] = Estimate()
        estimate.add(min(delay, self.most), self.percentile)
        estimate.heard_at = now
        self.measure()

    def measure(self) -> None:
        waited_for = [each.estimate for each in self._of.values() if each.estimate < self.most]
        self.length = max(waited_for) if waited_for else self.start

    def forget(self, before: int, suspected: list[int]) -> None:
        """Forget senders that were not heard since then, or that are suspected."""
        over = [p for p, each in self._of.items() if each.heard_at < before or p in suspected]
        for p in over:
            del self._of[p]
        if over:
            self.measure()
