"""How a claim of a paper is measured."""

from collections.abc import Callable
from dataclasses import dataclass

from amcast.core.process import Protocol

WHITE_BOX = "White-Box Atomic Multicast (extended)"


@dataclass(frozen=True)
class Scenario:
    claim: str
    section: str
    expected: str
    measure: Callable[[Protocol], str]
    paper: str = WHITE_BOX


def deltas(*values: float) -> str:
    """3δ / 4δ"""
    return " / ".join(f"{int(v)}δ" if v == int(v) else f"{v}δ" for v in values)
