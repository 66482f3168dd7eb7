"""Messages and their bytes.

A protocol message is a plain final class whose constructor takes its fields in order; `wire` names them with their
types, and from that alone a `Codec` encodes it as msgpack and validates what it decodes. No class is ever named by
the bytes: a message starts with its place in the protocol's own table.

The few messages that carry the load may also `pack` and `unpack` themselves, which is several times faster: integers
of fixed width, little-endian, behind the same tag.
"""

from typing import ClassVar, final

import msgspec
from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i16, i32, i64, mypyc_attr

from amcast.core.errors import WireError
from amcast.core.topology import SEQ_BITS, Mid, message_id, sender_of, seq_of

FRAME_OVERHEAD = 16  # length, checksum and link sequence number in front of every message on a channel


@final
@mypyc_attr(acyclic=True)
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


@final
@mypyc_attr(acyclic=True)
class Reader:
    """Takes packed values from bytes, in the order in which they were written."""

    def __init__(self, data: bytes, groups: int) -> None:
        self.data = data
        self.at: i64 = 0
        self.size: i64 = len(data)
        self._groups: i64 = groups
        self._sender: i64 = -1  # of the last id, and what all its ids start with
        self._base = 0

    def short(self) -> int:
        at = self.at
        self.at = at + 2
        return read_i16_le(self.data, at)

    def long(self) -> int:
        at = self.at
        self.at = at + 8
        return read_i64_le(self.data, at)

    def blob(self) -> bytes:
        start = self.at + 4
        size = i64(read_i32_le(self.data, self.at))
        if size < 0 or start + size > self.size:
            raise WireError(f"{size} bytes announced where {self.size - start} follow")
        self.at = start + size
        return self.data[start : start + size]

    def mid(self) -> Mid:
        at = self.at
        self.at = at + 16
        sender = read_i64_le(self.data, at)
        if sender != self._sender:
            if sender < 0:
                raise WireError(f"sender {sender}: expected a number of a process")
            self._sender = sender
            self._base = int(sender) << SEQ_BITS
        seq = read_i64_le(self.data, at + 8)
        if seq < 0 or seq >> SEQ_BITS:
            raise WireError(f"message number {seq}: expected 0 to {2**SEQ_BITS - 1}")
        return Mid(self._base + int(seq))

    def group(self) -> int:
        g = self.short()
        if g < 0 or g >= self._groups:
            raise WireError(f"group {g}: expected 0 to {self._groups - 1}")
        return g

    def dest(self) -> tuple[int, ...]:
        """Group numbers in increasing order."""
        count = self.short()
        if count == 1:
            return (self.group(),)
        if count < 1 or count > self._groups:
            raise WireError(f"{count} destination groups: expected 1 to {self._groups}")
        groups = [self.group() for _ in range(count)]
        for i in range(1, count):
            if groups[i] <= groups[i - 1]:
                raise WireError(f"destination groups {groups}: expected each once, in increasing order")
        return tuple(groups)

    def app(self) -> AppMessage:
        return AppMessage(self.mid(), self.dest(), self.blob(), self.long())


def pack_short(w: BytesWriter, n: int) -> None:
    write_i16_le(w, i16(n))


def pack_long(w: BytesWriter, n: int) -> None:
    write_i64_le(w, i64(n))


def pack_blob(w: BytesWriter, data: bytes) -> None:
    write_i32_le(w, i32(len(data)))
    w.write(data)


def pack_mid(w: BytesWriter, mid: Mid) -> None:
    write_i64_le(w, i64(sender_of(mid)))
    write_i64_le(w, i64(seq_of(mid)))


def pack_dest(w: BytesWriter, dest: tuple[int, ...]) -> None:
    write_i16_le(w, i16(len(dest)))
    for g in dest:
        write_i16_le(w, i16(g))


def pack_app(w: BytesWriter, m: AppMessage) -> None:
    pack_mid(w, m.mid)
    pack_dest(w, m.dest)
    pack_blob(w, m.payload)
    write_i64_le(w, i64(m.done))


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Message:
    """Base of all protocol messages."""

    wire: ClassVar[dict[str, object]] = {}

    def pack(self, w: BytesWriter) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no packed form")

    def unpack(self, r: Reader) -> "Message":
        """Another message of this class, from what `pack` wrote."""
        raise NotImplementedError(f"{type(self).__name__} has no packed form")

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
        return (sender_of(value.mid), seq_of(value.mid), value.dest, value.payload, value.done)
    raise TypeError(f"cannot put {type(value).__name__} on the wire")


def _from_builtin(kind: type, value: object) -> object:
    if kind is AppMessage:
        sender, seq, dest, payload, done = msgspec.convert(value, tuple[int, int, tuple[int, ...], bytes, int])
        if not (0 <= sender < 2**63 and 0 <= seq < 2**SEQ_BITS and -(2**63) <= done < 2**63):
            raise ValueError(f"message {seq} of sender {sender}, all delivered below {done}")
        if not dest or dest[0] < 0 or list(dest) != sorted(set(dest)):
            raise ValueError(f"destination groups {dest}: expected one or more, in increasing order")
        return AppMessage(message_id(sender, seq), dest, payload, done)
    raise TypeError(f"cannot take {kind.__name__} from the wire")


@final
class Codec:
    """Messages of one protocol to bytes and back. `packed` has one message of each class that packs itself."""

    def __init__(self, messages: tuple[type[Message], ...], packed: tuple[Message, ...] = (), groups: int = 0) -> None:
        self._messages = messages
        self._groups = groups
        self._packed: list[Message | None] = [None] * len(messages)
        for prototype in packed:
            self._packed[messages.index(type(prototype))] = prototype
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
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise WireError(f"malformed message of {len(data)} bytes: {error}") from None

    def size(self, msg: Message) -> int:
        """Bytes on the wire, the frame's overhead included."""
        return len(self.encode(msg)) + FRAME_OVERHEAD

    def write(self, w: BytesWriter, msg: Message) -> None:
        """Append one message to a batch."""
        tag = self._tags[type(msg)]
        w.append(tag)
        if self._packed[tag] is not None:
            msg.pack(w)
        else:
            pack_blob(w, self._encoder.encode(msg.fields()))

    def read(self, data: bytes) -> list[Message]:
        """All messages of a batch; WireError if it is not well-formed to its last byte."""
        r = Reader(data, self._groups)
        found: list[Message] = []
        while r.at < r.size:
            found.append(self.read_one(r))
        return found

    def read_one(self, r: Reader) -> Message:
        """The next message; WireError if there is none."""
        try:
            tag: i64 = r.data[r.at]
            r.at += 1
            if tag >= len(self._packed):
                raise WireError(f"message type {tag}: expected 0 to {len(self._packed) - 1}")
            prototype = self._packed[tag]
            if prototype is not None:
                return prototype.unpack(r)
            return self._messages[tag](*self._bodies[tag].decode(r.blob()))
        except (msgspec.MsgspecError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise WireError(f"malformed batch of {r.size} bytes: {error}") from None
