"""Shrinks a schedule: leaves out moves until none can be left out without losing the violation."""

from collections.abc import Sequence

from amcast.errors import PropertyViolation
from amcast.explorer.model import Move
from amcast.explorer.properties import Properties
from amcast.explorer.run import RealRun
from amcast.explorer.search import Found


def retrace(properties: Properties, moves: Sequence[Move], calm: bool) -> Found | None:
    """Make the possible ones of these moves on real processes. Return what goes wrong, and after which of them."""
    try:
        run = RealRun(properties.setting)
    except PropertyViolation as violation:
        return Found(violation.property, violation.problem, (), False)
    at_rest = False
    try:
        for move in moves:
            if move in run.possible() and run.make(move).rows:
                properties.at_moment(run.actors)
        if calm:
            at_rest = True
            run.calm()
            properties.at_end(run.actors)
    except PropertyViolation as violation:
        return Found(violation.property, violation.problem, tuple(run.moves), at_rest)
    return None


def shrink(properties: Properties, found: Found) -> Found:
    """Leave out pieces of the schedule, large ones first, as long as the same property is still violated.

    On real processes an invariant may be violated earlier than what was found. Then that is what is shown.
    """
    shown = retrace(properties, found.moves, found.calm)
    if shown is None and found.property == "genuine":  # of a message, and not of the logs that are judged here
        return found
    assert shown is not None, f"real processes do not show this after {len(found.moves)} moves: {found.problem}"
    best = shown
    size = max(1, len(best.moves) // 2)
    while True:
        at = 0
        before = len(best.moves)
        while at < len(best.moves):
            tried = retrace(properties, best.moves[:at] + best.moves[at + size :], shown.calm)
            if tried is not None and tried.property == shown.property and len(tried.moves) < len(best.moves):
                best = tried
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(best.moves) == before:
            return best
