"""Optimistic delivery: how often the guess was wrong (a figure), and whether the guesses keep the rules (the verdict).

A mistake is a delivery that is not the next undelivered one in the order in which the same process delivered
optimistically; a message that was never delivered optimistically is a mistake too. The rules are integrity, validity
and fifo, of `optdeliver` rows.
"""

from collections.abc import Sequence

from amcast.checks.fifo import first_overtaking, overtaking_sentence
from amcast.checks.history import NOBODY, History
from amcast.checks.integrity import first_repeated
from amcast.checks.validity import first_not_addressed, not_addressed
from amcast.checks.verdict import Verdict
from amcast.core.trace import Event

_VERB = "optimistically delivered"


def check_optimistic(history: History) -> Verdict:
    guesses = sum(len(log.messages) for log in history.optimistic)
    if not guesses:
        return history.unknown("optimistic", "the run has no optdeliver rows")
    figure = _figure(history)
    fault = _integrity_or_validity_fault(history) or _fifo_fault(history)
    if fault is None:
        return history.ok("optimistic", guesses, figure)
    return history.violated("optimistic", fault[0], fault[1], figure)


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


def _integrity_or_validity_fault(history: History) -> tuple[str, tuple[Event, ...]] | None:
    for process, log in enumerate(history.optimistic):
        name = history.processes[process]
        unsent = next((message for message in log.messages if history.sender[message] == NOBODY), None)
        if unsent is not None:
            what = f"{name} {_VERB} {history.messages[unsent]}, which nobody multicast"
            return what, (history.optdeliver_row(process, unsent),)
        if len(log.firsts()) < len(log.messages):
            again = first_repeated(log.messages)
            rows = (history.optdeliver_row(process, again), history.optdeliver_row(process, again, nth=1))
            return f"{name} {_VERB} {history.messages[again]} twice", rows
        stray = first_not_addressed(history, process, log)
        if stray is not None:
            what = f"{name} {_VERB} {not_addressed(history, process, stray)}"
            return what, (history.multicast_row(stray), history.optdeliver_row(process, stray))
    return None


def _fifo_fault(history: History) -> tuple[str, tuple[Event, ...]] | None:
    sequences = [log.firsts() for log in history.optimistic]
    found = first_overtaking(history, sequences)
    if found is None:
        return None
    rows = [history.multicast_row(found.earlier), history.multicast_row(found.later)]
    rows.append(history.optdeliver_row(found.process, found.later))
    if found.earlier in sequences[found.process]:
        rows.append(history.optdeliver_row(found.process, found.earlier))
    return overtaking_sentence(history, found, _VERB), tuple(rows)
