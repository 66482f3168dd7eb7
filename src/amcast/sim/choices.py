"""All nondeterminism of a run goes through one object: a seeded source, or one that a test makes."""

from random import Random

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Choices:
    """A source of decisions."""

    def below(self, n: int) -> int:
        """Return a number from 0 to n-1."""
        raise NotImplementedError

    def between(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return low if low >= high else low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def pick(self, items: tuple[int, ...]) -> int:
        return items[self.below(len(items))]

    def sample(self, n: int, k: int) -> tuple[int, ...]:
        """Return k different numbers below n, in increasing order."""
        taken: list[int] = []
        for i in range(k):
            number = self.below(n - i)  # of those that are left: past each that is taken before it
            at = 0
            while at < i and taken[at] <= number:
                number += 1
                at += 1
            taken.insert(at, number)
        return tuple(taken)


class Seeded(Choices):
    """The same seed makes the same choices, on every machine and in every version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, n: int) -> int:
        return int(self._random.random() * n)
