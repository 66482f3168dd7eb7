"""Every protocol message survives its bytes, and bytes that are no message are refused cleanly."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.core.topology import Mid, message_id
from amcast.core.wire import FRAME_OVERHEAD, AppMessage, Codec, Message, wire_of
from amcast.errors import WireError
from amcast.protocols import PROTOCOLS
from tests.tools import examples

app_messages = st.builds(
    lambda sender, seq, dest, payload, done: AppMessage(message_id(sender, seq), tuple(sorted(dest)), payload, done),
    st.integers(0, 2**20),
    st.integers(0, 2**31),
    st.sets(st.integers(0, 100), min_size=1, max_size=4),
    st.binary(max_size=40),
    st.integers(0, 2**31),
)


def values(kind: object) -> st.SearchStrategy[object]:
    """Values of a wire type."""
    if kind is int:
        return st.integers(-1, 2**62)
    if kind is bool:
        return st.booleans()
    if kind is bytes:
        return st.binary(max_size=40)
    if kind is AppMessage:
        return app_messages
    if getattr(kind, "__origin__", None) is tuple:
        parts = kind.__args__  # type: ignore[attr-defined]
        if parts[-1] is Ellipsis:
            return st.lists(values(parts[0]), max_size=4).map(tuple)
        return st.tuples(*[values(part) for part in parts])
    raise AssertionError(f"no values for {kind}")


ALL = [(name, cls) for name, table in PROTOCOLS.items() for cls in table.messages]


@pytest.mark.parametrize(("name", "cls"), ALL, ids=[f"{name}-{cls.__name__}" for name, cls in ALL])
def test_message_survives_its_bytes(name: str, cls: type[Message]) -> None:
    codec = Codec(PROTOCOLS[name].messages)

    @settings(max_examples=examples(30), deadline=None)
    @given(st.tuples(*[values(kind) for kind in wire_of(cls).values()]))
    def round_trip(fields: tuple[object, ...]) -> None:
        msg = cls(*fields)
        assert msg.fields() == fields
        data = codec.encode(msg)
        again = codec.decode(data)
        assert type(again) is cls and again == msg
        assert codec.size(msg) == len(data) + FRAME_OVERHEAD

    round_trip()


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    codec = Codec(PROTOCOLS["white_box"].messages)
    try:
        msg = codec.decode(data)
    except WireError:
        return
    assert codec.decode(codec.encode(msg)) == msg


@settings(max_examples=examples(100), deadline=None)
@given(app_messages, st.data())
def test_damaged_bytes_never_raise_anything_else(m: AppMessage, data: st.DataObject) -> None:
    table = PROTOCOLS["white_box"]
    codec = Codec(table.messages)
    whole = bytearray(codec.encode(table.messages[1](m, 1, 2, 3)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        codec.decode(bytes(whole))
    except WireError as error:
        assert "\n" not in str(error)


def test_messages_differ_by_type_and_field() -> None:
    multicast, accept = PROTOCOLS["white_box"].messages[:2]
    m = AppMessage(message_id(1, 2), (0,), b"x")
    assert accept(m, 1, 2, 3) == accept(m, 1, 2, 3)
    assert accept(m, 1, 2, 3) != accept(m, 1, 2, 4)
    assert multicast(m) != accept(m, 1, 2, 3)


@dataclass
class Ping(Message):
    """A message as somebody else's package writes it."""

    mid: Mid
    hops: tuple[tuple[int, AppMessage], ...]


@dataclass
class Lossy(Message):
    """What is left of a type with brackets in a compiled module."""

    hops: tuple  # type: ignore[type-arg]


def test_a_dataclass_is_a_message() -> None:
    m = AppMessage(message_id(1, 2), (0,), b"x")
    ping = Ping(m.mid, ((1, m), (2, m)))
    codec = Codec((Ping,))
    assert codec.decode(codec.encode(ping)) == ping and ping.about() == (m.mid,)
    assert ping.fields() == (m.mid, ((1, m), (2, m)))
    with pytest.raises(WireError, match="malformed message"):
        codec.decode(msgspec.msgpack.encode((0, (5, ((1, "m"),)))))


def test_a_type_without_its_brackets_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"Lossy\.hops"):
        Codec((Lossy,))
