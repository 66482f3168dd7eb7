"""Numbers of things, as a person would say them."""


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 run`, `2,000 runs`: a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
