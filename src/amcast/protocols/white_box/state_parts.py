"""A state travels in parts, so that no message of recovery is much larger than one of them."""

from typing import final

from amcast.core.wire import AppMessage
from amcast.protocols.white_box.messages import StatePart, StateRows
from amcast.protocols.white_box.recent import ROW_BYTES


def in_parts(rows: list[tuple[AppMessage, int, int, int]], most_bytes: int) -> list[tuple[int, int, StateRows]]:
    """Return rows in parts of about so many bytes: number of the part, of how many, rows. There is at least one."""
    parts: list[list[tuple[AppMessage, int, int, int]]] = [[]]
    size = 0
    for row in rows:
        if size + len(row[0].payload) > most_bytes and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += len(row[0].payload) + ROW_BYTES
    return [(i, len(parts), tuple(part)) for i, part in enumerate(parts)]


@final
class Parts:
    """The parts of a state that have come so far."""

    def __init__(self, first: StatePart) -> None:
        self.first = first
        self.part = -1
        self.rows: list[tuple[AppMessage, int, int, int]] = []

    def goes_on_with(self, msg: StatePart) -> bool:
        same = type(msg) is type(self.first) and (msg.b, msg.parts) == (self.first.b, self.first.parts)
        return same and msg.part == self.part + 1


@final
class IncomingStates:
    """What has come of the states that others send to one replica, by sender."""

    def __init__(self) -> None:
        self.parts: dict[int, Parts] = {}

    def rows_of(self, sender: int, msg: StatePart) -> StateRows | None:
        """Return the rows of a state when its last part is here. Parts come in order, or not at all."""
        if msg.parts == 1:
            return msg.rows
        known = self.parts.get(sender)
        if msg.part == 0:
            known = self.parts[sender] = Parts(msg)
        elif known is None or not known.goes_on_with(msg):
            self.parts.pop(sender, None)
            return None
        known.rows += msg.rows
        known.part = msg.part
        if msg.part + 1 < msg.parts:
            return None
        del self.parts[sender]
        return tuple(known.rows)

    def forget(self, sender: int) -> None:
        self.parts.pop(sender, None)
