"""Variants of Baseline and Optimistic Atomic Multicast."""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass
class Options:
    """Variants of Baseline and Optimistic. Times are in the unit of the clocks, nanoseconds in a simulation."""

    senders_to: tuple[tuple[int, ...], ...] | None = None  # per group who may send to it; None: all
    direct: bool = True  # 2B to the destinations; else decisions are passed on, l.31
    on_final: bool = False  # request barriers when the final timestamp is known
    null_after: int = 0  # a null message to whom nothing was sent for so long; 0: only when asked
    window: int = -1  # of Optimistic: a fixed one
    window_start: int = -1  # or what to use before anything was heard; -1: δ
    percentile: int = 0  # or of which percentile of the delays; 0: their mean


DEFAULTS: Final = Options()
