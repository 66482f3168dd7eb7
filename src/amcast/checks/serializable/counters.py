"""Is one counter linearizable? Answers say in which order the increments happened, so there is nothing to search.

Let t(n) be the moment at which the counter became n. An increment that answered n says that t(n) is between its
beginning and its end. A read of n says that t(n) is not after its end, and t(n+1) not before its beginning. These
moments never decrease. A total that was passed and that no increment answered was that of an increment whose outcome
is unknown: of each such one, at most once, and not before it began.
"""

from collections.abc import Sequence

from amcast.checks.serializable.calls import Call, Get, Increment, Outcome
from amcast.errors import Anomaly


def check_counter(key: str, calls: Sequence[Call]) -> None:
    """Raise Anomaly if these calls of one `Get` or `Increment` each cannot have happened one after the other."""
    answered: dict[int, Call] = {}
    earliest: dict[int, Call] = {}  # t(n) is not before the beginning of this call …
    latest: dict[int, Call] = {}  # … and not after the end of this one
    for call in calls:
        step = call.steps[0]
        if not call.heard:
            continue
        if isinstance(step, Increment) and step.total is not None:
            if step.total in answered:
                text = f"two increments of {key} answered {step.total}"
                raise Anomaly("lost update", text, [answered[step.total], call])
            if step.total < 1:
                raise Anomaly("value from nowhere", f"an increment of {key} answered {step.total}", [call])
            answered[step.total] = call
            _note(earliest, latest, step.total, call)
        elif isinstance(step, Get):
            found = 0 if step.found is None else step.found
            if not isinstance(found, int) or found < 0:
                raise Anomaly("value from nowhere", f"{key} is no count", [call])
            _note(earliest, latest, found + 1, call, ends=False)
            _note(earliest, latest, found, call, begins=False)
    last = max(latest, default=0)
    by: list[Call | None] = [None] * (last + 2)  # the call by whose end the counter has become n
    for n in range(last, 0, -1):
        by[n] = min((c for c in (latest.get(n), by[n + 1]) if c is not None), key=lambda call: call.ended, default=None)
    unknown = [call for call in calls if call.outcome is Outcome.UNKNOWN and isinstance(call.steps[0], Increment)]
    unknown.sort(key=lambda call: call.began)
    unused = iter(unknown)
    after: Call | None = earliest.get(0)
    for n in range(1, last + 1):
        begun = earliest.get(n)
        if begun is not None and (after is None or begun.began > after.began):
            after = begun
        due = by[n]
        assert due is not None, "every total up to the last was seen, or a later one"
        if after is not None and after.began > due.ended:
            text = f"{key} cannot have become {n} before the end of the first call and after the beginning of the last"
            raise Anomaly("stale read", text, [due, after])
        if n not in answered:
            filler = next(unused, None)
            if filler is None or filler.began > due.ended:
                text = f"{key} became {n}, and no increment that had begun can have done it"
                raise Anomaly("repeated update", text, [due])


def _note(
    earliest: dict[int, Call], latest: dict[int, Call], n: int, call: Call, *, begins: bool = True, ends: bool = True
) -> None:
    if begins and (n not in earliest or call.began > earliest[n].began):
        earliest[n] = call
    if ends and (n not in latest or call.ended < latest[n].ended):
        latest[n] = call
