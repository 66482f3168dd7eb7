"""Messages and their bytes.

A protocol message is a dataclass: from the types of its fields alone a `Codec` encodes it as msgpack and validates what
it decodes. No class is ever named by the bytes: a message starts with its place in the protocol's own table.

Two things differ in compiled modules. Of a type with brackets mypyc keeps the name alone, so it is also `wired`. And it
leaves the constructor of a dataclass to the interpreter (200 ns instead of 23; reading a field takes the same time): so
the few messages that carry the load are plain classes, with an `__init__` of their own and the table `wire`. They also
`pack` and `unpack` themselves, which is several times faster than msgpack: integers of fixed width, little-endian,
behind the same tag.
"""

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any, ClassVar, Final, final, get_args, get_origin, get_type_hints

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

from amcast.core.topology import SEQ_BITS, Mid, message_id, sender_of, seq_of
from amcast.errors import WireError

MOST_IN_BATCH: Final = 1024  # messages of a client that travel as one
FRAME_OVERHEAD = 16  # length, checksum and link sequence number in front of every message on a channel


@final
@mypyc_attr(acyclic=True)
class AppMessage:
    """What an application multicasts: an id, the destination groups in increasing order, opaque bytes.

    `done` is a promise of the sender: it knows that its messages with a lower seq are delivered, and no process needs
    to remember them one by one.

    It may be a client batch: `count` messages of one sender to the same groups, ordered and delivered as one. Their ids
    are consecutive and `mid` is the first; the payload holds theirs, each behind its length.
    """

    def __init__(self, mid: Mid, dest: tuple[int, ...], payload: bytes, done: int = 0, count: int = 1) -> None:
        self.mid = mid
        self.dest = dest
        self.payload = payload
        self.done = done
        self.count = count

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AppMessage)
            and self.mid == other.mid
            and self.dest == other.dest
            and self.payload == other.payload
            and self.done == other.done
            and self.count == other.count
        )

    def __hash__(self) -> int:
        return hash(self.mid)

    def __repr__(self) -> str:
        return f"AppMessage({self.mid}, {self.dest}, {self.payload!r}, {self.done}, {self.count})"

    def messages(self) -> "list[AppMessage]":
        """Return the messages of a client batch; of any other message, itself."""
        if self.count == 1:
            return [self]
        sender = sender_of(self.mid)
        payloads = enumerate(split(self.payload, self.count), seq_of(self.mid))
        return [AppMessage(message_id(sender, seq), self.dest, payload, self.done) for seq, payload in payloads]


def joined(parts: list[bytes]) -> bytes:
    """Return several payloads as one, each behind its length."""
    w = BytesWriter()
    for part in parts:
        pack_blob(w, part)
    return w.getvalue()


def split(data: bytes, count: int) -> list[bytes]:
    """Return the payloads that `joined` has put together. Raises WireError."""
    r = Reader(data, 0)
    try:
        found = [r.blob() for _ in range(count)]
    except (ValueError, IndexError) as error:
        raise WireError(f"malformed client batch of {count}: {error}") from None
    if r.at != r.size:
        raise WireError(f"a client batch of {count} with {r.size - r.at} bytes behind it")
    return found


def check_batch(m: AppMessage, largest: int) -> None:
    """Raise WireError unless this client batch is well-formed, each of its messages with at most so many bytes."""
    count: i64 = m.count
    if count < 2 or count > MOST_IN_BATCH or seq_of(m.mid) + m.count > 1 << SEQ_BITS:
        raise WireError(f"a client batch of {count} messages: expected 2 to {MOST_IN_BATCH}")
    data = m.payload
    size: i64 = len(data)
    most: i64 = largest
    at: i64 = 0
    while count > 0:
        if at + 4 > size:
            raise WireError(f"a client batch of {m.count} messages ends early")
        part = i64(read_i32_le(data, at))
        if part < 0 or part > most:
            raise WireError(f"a message of {part} bytes in a client batch: expected at most {largest}")
        at += 4 + part
        count -= 1
    if at != size:
        raise WireError(f"a client batch of {m.count} messages with {size - at} bytes too many")


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
        """Take group numbers, which must be in increasing order."""
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
        m = AppMessage(self.mid(), self.dest(), self.blob(), self.long(), self.short())
        if m.count != 1:
            check_batch(m, len(m.payload))
        return m


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


def pack_app(w: BytesWriter, m: AppMessage) -> None:
    pack_mid(w, m.mid)
    write_i16_le(w, i16(len(m.dest)))
    for g in m.dest:
        write_i16_le(w, i16(g))
    pack_blob(w, m.payload)
    write_i64_le(w, i64(m.done))
    write_i16_le(w, i16(m.count))


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Message:
    """Base of all protocol messages."""

    wire: ClassVar[dict[str, object]] = {}  # of a class that is no dataclass: its fields and their types

    def may_wait(self) -> bool:
        """Return True if nobody waits for this message: it can travel with the next batch to the same process."""
        return False

    def pack(self, w: BytesWriter) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no packed form")

    def unpack(self, r: Reader) -> "Message":
        """Return another message of this class, from what `pack` wrote."""
        raise NotImplementedError(f"{type(self).__name__} has no packed form")

    def about(self) -> tuple[Mid, ...]:
        """Return the application messages that this one helps to order: the one in its field `m` or `mid`."""
        m = getattr(self, "m", None)
        if isinstance(m, AppMessage):
            return (m.mid,)
        mid = getattr(self, "mid", None)
        return () if mid is None else (Mid(mid),)

    def fields(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in wire_of(type(self))])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and type(self) is type(other) and self.fields() == other.fields()

    def __hash__(self) -> int:
        raise TypeError("messages are not hashable")

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.fields()!r}"


@mypyc_attr(allow_interpreted_subclasses=True)
class Background(Message):
    """A message that flows for ever, such as a heartbeat: a run can be over although one is under way."""


_wire_of: dict[type[Message], dict[str, object]] = {}


def wire_of(cls: type[Message]) -> dict[str, object]:
    """Return the names of the fields that travel, in order, with their types."""
    found = _wire_of.get(cls)
    if found is None:
        declared: Any = cls
        if is_dataclass(declared):
            kinds = get_type_hints(cls)
            sent = [field for field in dataclass_fields(declared) if field.init]
            found = {field.name: _wire_type(field.metadata.get("wire", kinds[field.name])) for field in sent}
            lost = [name for name, kind in found.items() if kind is tuple or kind is type]
            assert not lost, f"{cls.__name__}.{lost[0]}: a compiled type loses its brackets, so it must be `wired`"
        else:
            found = cls.wire
        _wire_of[cls] = found
    return found


def wired(kind: object) -> dict[str, object]:
    """Return the metadata of a field whose type has brackets, in a module that is compiled."""
    return {"wire": kind}


def _wire_type(kind: object) -> object:
    if kind is Mid:
        return int
    if get_origin(kind) is tuple:
        return tuple[tuple([_wire_type(part) for part in get_args(kind)])]  # type: ignore[misc]
    return kind


def _empty(kind: object) -> object:
    if kind is AppMessage:
        return AppMessage(Mid(0), (0,), b"")
    return b"" if kind is bytes else False if kind is bool else 0 if kind is int else ()


def _to_builtin(value: object) -> object:
    if isinstance(value, AppMessage):
        fields = (sender_of(value.mid), seq_of(value.mid), value.dest, value.payload, value.done)
        return fields if value.count == 1 else (*fields, value.count)
    raise TypeError(f"cannot put {type(value).__name__} on the wire")


def _from_builtin(kind: type, value: object) -> object:
    if kind is AppMessage:
        fields = msgspec.convert(value, list[object])
        count = msgspec.convert(fields.pop(), int) if len(fields) > 5 else 1
        sender, seq, dest, payload, done = msgspec.convert(fields, tuple[int, int, tuple[int, ...], bytes, int])
        if not (0 <= sender < 2**63 and 0 <= seq < 2**SEQ_BITS and -(2**63) <= done < 2**63):
            raise ValueError(f"message {seq} of sender {sender}, all delivered below {done}")
        if not dest or dest[0] < 0 or list(dest) != sorted(set(dest)):
            raise ValueError(f"destination groups {dest}: expected one or more, in increasing order")
        m = AppMessage(message_id(sender, seq), dest, payload, done, count)
        if count != 1:
            check_batch(m, len(payload))
        return m
    raise TypeError(f"cannot take {kind.__name__} from the wire")


@final
class Layout:
    """How messages of a class are packed where a certain format is in use, other than the class itself does it.

    It has a place of its own in a table, so that whoever reads need not know what was in use. Bytes that were written
    once keep their place for as long as they may be read: where a class changes, its old layout stays there, `until`
    the format in which it changed, and the class gets a new place at the end.
    """

    def __init__(
        self,
        cls: type[Message],
        pack: Callable[[Message, BytesWriter], None],
        unpack: Callable[[Reader], Message],
        since: int = 0,
        until: int = 1 << 30,
    ) -> None:
        self.cls = cls
        self.pack = pack
        self.unpack = unpack
        self.since = since
        self.until = until


@final
class Codec:
    """Messages of one protocol to bytes and back. Classes with a `pack` use it in batches, but for those in `plain`.

    It reads all that is in its table, and writes the layouts of one `format`; without one, those of the classes.
    """

    def __init__(
        self,
        table: tuple[type[Message] | Layout, ...],
        groups: int = 0,
        plain: tuple[type[Message], ...] = (),
        format: int = 0,
    ) -> None:
        messages: list[type[Message]] = [entry.cls if isinstance(entry, Layout) else entry for entry in table]
        self.table = table
        self._messages = messages
        self.groups = groups
        self._plain = plain
        self._layouts: list[Layout | None] = [entry if isinstance(entry, Layout) else None for entry in table]
        self.has_layouts = len([layout for layout in self._layouts if layout is not None]) > 0
        self._packed: list[Message | None] = [None] * len(messages)  # one of each class that packs itself
        self._tags: dict[type[Message], int] = {}
        for tag, cls in enumerate(messages):
            layout = self._layouts[tag]
            if layout is None:
                self._tags[cls] = tag
                if getattr(cls, "pack", None) is not getattr(Message, "pack", None) and cls not in plain:
                    self._packed[tag] = cls(*[_empty(kind) for kind in wire_of(cls).values()])  # for its `unpack`
        for tag, layout in enumerate(self._layouts):
            if layout is not None and layout.since <= format < layout.until and format:
                self._tags[layout.cls] = tag
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_to_builtin)
        self._head = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
        self._bodies = [
            msgspec.msgpack.Decoder(tuple[tuple(wire_of(cls).values())], dec_hook=_from_builtin)  # type: ignore[misc]
            for cls in messages
        ]

    def at(self, format: int) -> "Codec":
        """Return a codec that writes what whoever knows this format can read."""
        return Codec(self.table, self.groups, self._plain, format) if self.has_layouts else self

    def encode(self, msg: Message) -> bytes:
        return self._encoder.encode((self._tags[type(msg)], msg.fields()))

    def decode(self, data: bytes) -> Message:
        """Return the message in these bytes. Raises WireError if they are not exactly one well-formed message."""
        try:
            tag, body = self._head.decode(data)
            if not 0 <= tag < len(self._messages):
                raise WireError(f"message type {tag}: expected 0 to {len(self._messages) - 1}")
            return self._messages[tag](*self._bodies[tag].decode(body))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise WireError(f"malformed message of {len(data)} bytes: {error}") from None

    def size(self, msg: Message) -> int:
        """Return how many bytes a message takes on the wire, with the overhead of its frame."""
        return len(self.encode(msg)) + FRAME_OVERHEAD

    def write(self, w: BytesWriter, msg: Message) -> None:
        """Append one message to a batch."""
        tag = self._tags[type(msg)]
        w.append(tag)
        layout = self._layouts[tag]
        if layout is not None:
            layout.pack(msg, w)
        elif self._packed[tag] is not None:
            msg.pack(w)
        else:
            pack_blob(w, self._encoder.encode(msg.fields()))

    def written(self, messages: list[Message]) -> bytes:
        """Return a batch of these."""
        w = BytesWriter()
        for msg in messages:
            self.write(w, msg)
        return w.getvalue()

    def read(self, data: bytes) -> list[Message]:
        """Return all messages of a batch. Raises WireError if it is not well-formed to its last byte."""
        r = Reader(data, self.groups)
        found: list[Message] = []
        while r.at < r.size:
            found.append(self.read_one(r))
        return found

    def read_one(self, r: Reader) -> Message:
        """Return the next message. Raises WireError if there is none."""
        try:
            tag: i64 = r.data[r.at]
            r.at += 1
            if tag >= len(self._packed):
                raise WireError(f"message type {tag}: expected 0 to {len(self._packed) - 1}")
            layout = self._layouts[tag]
            if layout is not None:
                return layout.unpack(r)
            prototype = self._packed[tag]
            if prototype is not None:
                return prototype.unpack(r)
            return self._messages[tag](*self._bodies[tag].decode(r.blob()))
        except (msgspec.MsgspecError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise WireError(f"malformed batch of {r.size} bytes: {error}") from None
