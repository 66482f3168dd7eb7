"""Facts that a process notes for its trace, a class for each kind. A row of a trace has them as JSON."""

import json
from typing import final

from mypy_extensions import mypyc_attr

from amcast.core.order import round_of


@mypyc_attr(allow_interpreted_subclasses=True)
class Note:
    """A fact, of a kind that a row of a trace can have."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def facts(self) -> dict[str, object]:
        """Return what the row says besides, in this order."""
        return {}

    def detail(self) -> str | None:
        """Return the facts as they stand in a trace."""
        facts = self.facts()
        return json.dumps(facts, ensure_ascii=False) if facts else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note) and (self.kind, self.facts()) == (other.kind, other.facts())

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"{self.kind} {self.facts()}"


@final
class Leads(Note):
    """This process leads its group in a ballot from now on."""

    def __init__(self, ballot: int, rank: int) -> None:
        super().__init__("leader")
        self.ballot = ballot
        self.rank = rank

    def facts(self) -> dict[str, object]:
        return {"ballot": [round_of(self.ballot), self.rank]}


@final
class Suspicion(Note):
    """This process suspects another, or trusts it again."""

    def __init__(self, process: str, suspected: bool) -> None:
        super().__init__("suspect" if suspected else "trust")
        self.process = process

    def facts(self) -> dict[str, object]:
        return {"process": self.process}


@final
class Stops(Note):
    """This process stops, because of the suspicions of others."""

    def __init__(self, reason: str) -> None:
        super().__init__("suspect")
        self.reason = reason

    def facts(self) -> dict[str, object]:
        return {self.reason: True}


@final
class GroupsChange(Note):
    """A group begins, or ends, to send to another: it asked for that at this time of its own log."""

    def __init__(self, joined: bool, group: int, other: int, time: int) -> None:
        super().__init__("reconfigure")
        self.joined = joined
        self.group = group
        self.other = other
        self.time = time

    def facts(self) -> dict[str, object]:
        groups = [f"g{self.group}", f"g{self.other}"]
        return {"joined" if self.joined else "left": groups, "time": self.time}


@final
class Undone(Note):
    """What this process delivered optimistically will not be delivered."""

    def __init__(self, message: str) -> None:
        super().__init__("reconfigure")
        self.message = message

    def facts(self) -> dict[str, object]:
        return {"undone": self.message}


@final
class MembersChange(Note):
    """The group has so many members from now on; in AllConcur, with a new eon."""

    def __init__(self, members: int, eon: int = -1) -> None:
        super().__init__("reconfigure")
        self.members = members
        self.eon = eon

    def facts(self) -> dict[str, object]:
        return {"members": self.members} if self.eon < 0 else {"eon": self.eon, "members": self.members}


@final
class EpochBegins(Note):
    """This process has delivered that its group has these members from now on."""

    def __init__(self, epoch: int, members: list[str]) -> None:
        super().__init__("reconfigure")
        self.epoch = epoch
        self.members = members

    def facts(self) -> dict[str, object]:
        return {"epoch": self.epoch, "members": self.members}


@final
class RoundBegins(Note):
    """A round of a broadcast begins."""

    def __init__(self, epoch: int, number: int, reliable: bool, transition: str) -> None:
        super().__init__("round")
        self.epoch = epoch
        self.number = number
        self.reliable = reliable
        self.transition = transition

    def facts(self) -> dict[str, object]:
        kind = "reliable" if self.reliable else "unreliable"
        return {"epoch": self.epoch, "round": self.number, "type": kind, "transition": self.transition}
