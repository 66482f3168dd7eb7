"""The bytes of one message of each class are those of the version that last changed them.

What 0.1.0 says is pinned in its file, in the order of the classes. What has changed or come since, for recovery, for
servers that join AllConcur and with PrimCast, is in the other one, by name. A change of either is a change of what
peers and folders read.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from librt.strings import BytesWriter

from amcast.core.requests import ANSWERS, REQUESTS, replica_codec
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage, Codec, Message, wire_of
from amcast.protocols import PROTOCOLS
from amcast.protocols.primcast import records as primcast
from amcast.protocols.white_box import records

DATA = Path(__file__).parent.parent / "data"
PINNED = DATA / "wire-0.1.0.json"
CHANGED = DATA / "wire-0.2.0.json"
GROUPS = 8
SAMPLES = (7, 3, 258, -1, 5, 6, 0x7001)  # some beyond one byte
GROUP_FIELDS = ("g", "h")


def sample(kind: object, place: int, name: str = "") -> object:
    """A value of a wire type: another one at each place."""
    if kind is int:
        if name == "mid":
            return message_id(700 + place, 9 + place)
        return place % GROUPS if name in (*GROUP_FIELDS, "kind") else SAMPLES[place % len(SAMPLES)]
    if kind is bool:
        return place % 2 == 0
    if kind is bytes:
        return bytes(range(place + 2))
    if kind is AppMessage:
        return AppMessage(message_id(300 + place, 40 + place), (1, 4), b"\x00payload" * (place + 1), 17 + place)
    parts = kind.__args__  # type: ignore[attr-defined]
    if parts[-1] is Ellipsis:
        return tuple(sample(parts[0], place + i) for i in range(2))
    return tuple(sample(part, place + i) for i, part in enumerate(parts))


def made(cls: type[Message]) -> Message:
    return cls(*[sample(kind, place, name) for place, (name, kind) in enumerate(wire_of(cls).items())])


def codecs() -> Iterator[tuple[str, tuple[type[Message], ...], Codec]]:
    for name, table in PROTOCOLS.items():
        yield name, table.messages, replica_codec(table.messages, GROUPS)
        yield f"{name} requests", table.requests, Codec(table.requests, GROUPS)
    yield "requests", REQUESTS, Codec(REQUESTS, GROUPS)
    yield "answers", ANSWERS, Codec(ANSWERS, GROUPS)
    kinds = (records.Promised, records.Adopted, records.Accepted, records.Delivered, records.Summary, records.Held,
             records.Remembered, records.Rejoining, records.Heard, records.Idle, records.Outcomes,
             records.Listed)  # fmt: skip
    yield "white_box records", kinds, records.RECORDS
    yield "primcast records", (*kinds[:-1], primcast.Ceiling), primcast.RECORDS


def in_a_batch(codec: Codec, msg: Message) -> bytes:
    w = BytesWriter()
    codec.write(w, msg)
    return w.getvalue()


CODECS = list(codecs())


@pytest.mark.parametrize(("name", "classes", "codec"), CODECS, ids=[name for name, _, _ in CODECS])
def test_bytes_are_those_of_the_first_version(name: str, classes: tuple[type[Message], ...], codec: Codec) -> None:
    pinned = json.loads(PINNED.read_text()).get(name, [])
    changed = json.loads(CHANGED.read_text()).get(name, {})
    assert {cls.__name__ for cls in classes[len(pinned) :]} <= set(changed) <= {cls.__name__ for cls in classes}
    for i, cls in enumerate(classes):
        alone, batched = changed.get(cls.__name__) or pinned[i]
        msg = made(cls)
        assert (codec.encode(msg).hex(), in_a_batch(codec, msg).hex()) == (alone, batched), cls.__name__
        assert codec.read(bytes.fromhex(batched)) == [msg] and codec.decode(bytes.fromhex(alone)) == msg
