"""What becomes of optimistic deliveries: at the end of a calm run each is delivered, or undone.

A process that is up has delivered optimistically what it will deliver, but for messages of senders that crashed. Of
these it must say that they will not come (a `reconfigure` row with `undone`), so that an application can take back what
it did with them.
"""

import json
from collections.abc import Sequence

from amcast.core.trace import Event


def open_guess(events: Sequence[Event]) -> str:
    """Say which optimistic delivery was neither confirmed nor undone; empty if all were, or the run did not end."""
    if not any(event.kind == "end" for event in events):
        return ""
    down: set[str] = set()
    guessed: dict[tuple[str, str], bool] = {}
    for event in sorted(events, key=lambda event: event.seq):
        if event.kind == "crash":
            down.add(event.process)
        elif event.kind == "restart":
            down.discard(event.process)
        elif event.kind == "optdeliver" and event.message is not None:
            guessed[event.process, event.message] = True
        elif event.kind == "deliver" and event.message is not None:
            guessed.pop((event.process, event.message), None)
        elif event.kind == "reconfigure" and event.message is None:
            undone = json.loads(event.detail or "{}").get("undone", "")
            guessed.pop((event.process, undone), None)
    for process, message in guessed:
        if process not in down:
            return f"{process} optimistically delivered {message}, and neither delivered nor undid it"
    return ""
