"""What Baseline and Optimistic Atomic Multicast put into their logs, and the messages that are only theirs."""

from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.requests import Answer, Hint, Multicast, Reply
from amcast.core.topology import Mid
from amcast.core.wire import AppMessage, Message, Reader, pack_long, pack_mid, pack_short
from amcast.protocols.black_box.replicated_log import MESSAGES as LOG_MESSAGES
from amcast.protocols.optimistic.log_learners import MESSAGES as LEARNER_MESSAGES
from amcast.protocols.optimistic.reliable_multicast import Copy

# Kinds of entries. Those that are about no application message are negative.
MESSAGE: Final = 0
REFUSED: Final = 1  # a message that its group may not send any more
NULL: Final = -1
JOIN: Final = -2  # m_rq: the group of this log asks to send to h
JOINED: Final = -3  # m_rp: h, the group of this log, lets a group in, and lists who sends to it
LEAVE: Final = -4  # the group of this log sends nothing more to h
STOP: Final = -5  # nothing more comes of this life of a member of this group


@final
@mypyc_attr(acyclic=True)
class BarrierRequest(Message):
    """To the members of a group: give h a barrier above ts, for the sake of this message."""

    wire: ClassVar[dict[str, object]] = {"ts": int, "h": int, "mid": int}

    def __init__(self, ts: int, h: int, mid: Mid) -> None:
        self.ts = ts
        self.h = h
        self.mid = mid

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.ts)
        pack_short(w, self.h)
        pack_mid(w, self.mid)

    def unpack(self, r: Reader) -> Message:
        return BarrierRequest(r.long(), r.group(), r.mid())


@final
@mypyc_attr(acyclic=True)
class Refusal(Answer):
    """To a client: group g, which was to send the message, may not any more, and nobody will deliver it."""

    def unpack(self, r: Reader) -> Message:
        return Refusal(r.mid(), r.group(), r.long(), r.long())


MESSAGES: Final[tuple[type[Message], ...]] = (
    Multicast,
    Reply,
    Hint,
    Copy,
    BarrierRequest,
    *LEARNER_MESSAGES,
    *LOG_MESSAGES,
    Refusal,
)


def wrap(m: AppMessage, facts: tuple[int, ...]) -> AppMessage:
    """Return the message as it stands in a log, with these facts before its payload. A client batch counts as one."""
    w = BytesWriter()
    pack_short(w, m.count)
    pack_short(w, len(facts))
    for fact in facts:
        pack_long(w, fact)
    w.write(m.payload)
    return AppMessage(m.mid, m.dest, w.getvalue(), m.done)


def facts_of(m: AppMessage) -> list[int]:
    r = Reader(m.payload, 0)
    r.short()
    return [r.long() for _ in range(r.short())]


def unwrap(m: AppMessage, facts: int) -> AppMessage:
    """Return the message without so many facts."""
    return AppMessage(m.mid, m.dest, m.payload[4 + 8 * facts :], m.done, Reader(m.payload, 0).short())
