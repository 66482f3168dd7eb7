"""Messages and their bytes.

A protocol message is a plain final class whose constructor takes its fields in order; `wire` names them with their
types, and from that alone a `Codec` encodes it as msgpack and validates what it decodes. No class is ever named by
the bytes: a message starts with its place in the protocol's own table.
"""

from typing import ClassVar, final

import msgspec
from mypy_extensions import mypyc_attr

from amcast.core.errors import WireError
from amcast.core.topology import Mid

FRAME_OVERHEAD = 16  # length, checksum and link sequence number in front of every message on a channel


@final
class AppMessage:
    """What an application multicasts: an id, the destination groups in increasing order, opaque bytes.

    `done` is a promise of the sender: it knows that its messages with a lower seq are delivered, and no process needs
    to remember them one by one.
    """

    def __init__(self, mid: Mid, dest: tuple[int, ...], payload: bytes, done: int = 0) -> None:
        self.mid = mid
        self.dest = dest
        self.payload = payload
        self.done = done

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AppMessage)
            and self.mid == other.mid
            and self.dest == other.dest
            and self.payload == other.payload
            and self.done == other.done
        )

    def __hash__(self) -> int:
        return hash(self.mid)

    def __repr__(self) -> str:
        return f"AppMessage({self.mid}, {self.dest}, {self.payload!r}, {self.done})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Message:
    """Base of all protocol messages."""

    wire: ClassVar[dict[str, object]] = {}

    def about(self) -> tuple[Mid, ...]:
        """The application messages that this one helps to order."""
        return ()

    def fields(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.wire])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and type(self) is type(other) and self.fields() == other.fields()

    def __hash__(self) -> int:
        raise TypeError("messages are not hashable")

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.fields()!r}"


@mypyc_attr(allow_interpreted_subclasses=True)
class Background(Message):
    """A message that flows for ever (heartbeats, collection): a run is quiescent although it is under way."""


def _to_builtin(value: object) -> object:
    if isinstance(value, AppMessage):
        return (value.mid, value.dest, value.payload, value.done)
    raise TypeError(f"cannot put {type(value).__name__} on the wire")


def _from_builtin(kind: type, value: object) -> object:
    if kind is AppMessage:
        mid, dest, payload, done = msgspec.convert(value, tuple[int, tuple[int, ...], bytes, int])
        return AppMessage(Mid(mid), dest, payload, done)
    raise TypeError(f"cannot take {kind.__name__} from the wire")


@final
class Codec:
    """Messages of one protocol to bytes and back."""

    def __init__(self, messages: tuple[type[Message], ...]) -> None:
        self._messages = messages
        self._tags: dict[type[Message], int] = {cls: tag for tag, cls in enumerate(messages)}
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_to_builtin)
        self._head = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
        self._bodies = [
            msgspec.msgpack.Decoder(tuple[tuple(cls.wire.values())], dec_hook=_from_builtin)  # type: ignore[misc]
            for cls in messages
        ]

    def encode(self, msg: Message) -> bytes:
        return self._encoder.encode((self._tags[type(msg)], msg.fields()))

    def decode(self, data: bytes) -> Message:
        """The message in these bytes; WireError if they are not exactly one well-formed message."""
        try:
            tag, body = self._head.decode(data)
            if not 0 <= tag < len(self._messages):
                raise WireError(f"message type {tag}: expected 0 to {len(self._messages) - 1}")
            return self._messages[tag](*self._bodies[tag].decode(body))
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise WireError(f"malformed message of {len(data)} bytes: {error}") from None

    def size(self, msg: Message) -> int:
        """Bytes on the wire, the frame's overhead included."""
        return len(self.encode(msg)) + FRAME_OVERHEAD
