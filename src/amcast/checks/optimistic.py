"""Optimistic delivery: how often the guess was wrong (a figure), and whether the guesses keep the rules (the verdict).

A mistake is a delivery that is not the next undelivered one in the order in which the same process delivered
optimistically. A message that was never delivered optimistically is a mistake too. The rules are integrity, validity
and fifo, of `optdeliver` rows.
"""

from collections.abc import Sequence
from typing import Final

from amcast.checks.fifo import fifo_fault
from amcast.checks.history import History
from amcast.checks.integrity import integrity_fault
from amcast.checks.validity import validity_fault
from amcast.checks.verdict import Verdict

NO_GUESSES: Final = "the run has no optdeliver rows"


def check_optimistic(history: History) -> Verdict:
    guesses = sum(len(log.messages) for log in history.optimistic)
    if not guesses:
        return history.unknown("optimistic", NO_GUESSES)
    figure = _figure(history)
    for fault_of in (integrity_fault, validity_fault, fifo_fault):
        fault = fault_of(history, "optdeliver")
        if fault is not None:
            return history.violated("optimistic", *fault, figure)
    return history.ok("optimistic", guesses, figure)


def _figure(history: History) -> dict[str, int | float]:
    mistakes = 0
    delivered = 0
    for guessed, log in zip(history.optimistic, history.delivered, strict=True):
        if len(guessed.messages):
            final = log.firsts()
            delivered += len(final)
            mistakes += count_mistakes(guessed.firsts(), final)
    share = {"share": mistakes / delivered} if delivered else {}  # of nothing there is none
    return {"mistakes": mistakes, "delivered": delivered, **share}


def count_mistakes(guessed: Sequence[int], final: Sequence[int]) -> int:
    mistakes = 0
    place = 0
    done: set[int] = set()
    for message in final:
        while place < len(guessed) and guessed[place] in done:
            place += 1
        if place == len(guessed) or guessed[place] != message:
            mistakes += 1
        done.add(message)
    return mistakes
