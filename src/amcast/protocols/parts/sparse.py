"""Numbers by group or by replica, of which most have never changed: so that state does not grow with all there are."""


def dense(numbers: dict[int, int], count: int, otherwise: int) -> tuple[int, ...]:
    """Return the numbers of all, as they are written down."""
    return tuple([numbers.get(i, otherwise) for i in range(count)])


def sparse(numbers: tuple[int, ...], otherwise: int) -> dict[int, int]:
    """Return those that differ from the others."""
    return {i: number for i, number in enumerate(numbers) if number != otherwise}
