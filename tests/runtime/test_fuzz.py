"""Any bytes, to any decoder: a message, or the documented error; and never more memory than the limit."""

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter
from tests.tools import examples

from amcast.core.process import Params
from amcast.core.requests import ANSWERS, REQUESTS, Hint, Multicast, Reply, replica_codec
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage, Codec, Message, joined, pack_blob
from amcast.errors import StorageCorrupt, UsageError, WireError
from amcast.protocols import PROTOCOLS
from amcast.protocols.ordering.fifo import ASKED, Again, Cast, Numbered
from amcast.protocols.parts.leader_candidate import Heartbeat
from amcast.protocols.white_box.messages import Accept, AcceptAck, Deliver, NewLeaderAck, NewState
from amcast.protocols.white_box.records import RECORDS, Accepted, Adopted, Delivered, Held, Summary
from amcast.runtime import frames, old_frames, sectors
from amcast.runtime.client_engine import ClientEngine
from amcast.runtime.config import load_config
from amcast.runtime.data_of_0_1 import read_old
from amcast.runtime.engine import Engine
from amcast.runtime.frames import Hello, Read, Refusal, Rows, Welcome
from amcast.runtime.framing import HEADER, FrameReader, frame
from amcast.runtime.history import History
from amcast.runtime.machine import REAL
from amcast.runtime.rows import pack_rows, unpack_rows
from amcast.runtime.seal import Seal, record_of, seal_in
from amcast.runtime.storage import Storage

GROUPS = 2
SESSION = 2**40
TOPOLOGY = Topology((3, 3))
PARAMS = Params(20_000_000, 100_000_000, 800_000_000)
APP = AppMessage(message_id(SESSION, 7), (0, 1), b"some payload", 3)
MID = APP.mid
RUN = AppMessage(message_id(SESSION, 8), (0, 1), joined([b"one", b"", b"three"]), 3, 3)
NESTED = b"\x91" * 20_000  # arrays in arrays

SMALLER = struct.pack("<qq", SESSION, 7), struct.pack("<qq", 9, 7)  # msgpack has 64 bits for an id
MESSAGES: list[Message] = [
    Multicast(APP),
    Multicast(RUN),
    Accept(RUN, 1, 5, 6),
    AcceptAck(MID, 0, (5, 6), 7),
    Deliver(RUN, 5, 6, 7),
    NewLeaderAck(5, 4, 9, 3, 2, 0, 1, ((APP, 1, 2, 3),)),
    NewState(5, 5, 9, 3, 2, 0, 1, ((APP, 1, 2, 3), (RUN, 2, 2, 2))),
    Heartbeat(5, 6, 7, 8),
]
RECORDED: list[Message] = [
    Accepted(APP, 5, 6),
    Delivered(MID, 5, 6),
    Adopted(5, 6, ((APP, 1, 2, 3),)),
    Summary(1, 2, 3, 4, 5, 6, 7, 8, True, 9, (5, 6), (1,), (1, 2), (3, 4), 1, ((0, 1, (0, 1), True, b"x"),)),
    Held(APP, 1, 2, 3),
]


def batch(codec: Codec, messages: list[Message]) -> bytes:
    w = BytesWriter()
    for msg in messages:
        codec.write(w, msg)
    return w.getvalue()


def changed(good: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that are right but for a few: cut, overwritten, put in or taken out. Or any bytes at all."""
    place = st.integers(0, max(0, len(good) - 1))
    odd = st.one_of(st.binary(max_size=9), st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\x80", b"\xcf" + b"\xff" * 8]))

    def edit(edits: list[tuple[int, int, bytes]], end: int) -> bytes:
        data = bytearray(good)
        for at, taken, new in edits:
            data[at : at + taken] = new
        return bytes(data[:end])

    edits = st.lists(st.tuples(place, st.integers(0, 9), odd), min_size=1, max_size=3)
    return st.one_of(st.builds(edit, edits, st.integers(0, len(good) + 9)), st.binary(max_size=60))


WHITE_BOX, SKEEN = (replica_codec(PROTOCOLS[name].messages, GROUPS) for name in ("white_box", "skeen"))
REQUESTED = Codec(REQUESTS, GROUPS)
ANSWERED = Codec(ANSWERS, GROUPS)
CODECS = {
    "white_box": (WHITE_BOX, MESSAGES),
    "skeen": (SKEEN, [Multicast(APP)]),
    "records": (RECORDS, RECORDED),
    "requests": (REQUESTED, [Multicast(APP), Multicast(RUN)]),
    "answers": (ANSWERED, [Reply(MID, 1, 2), Hint(MID, 0, 1)]),
}


@pytest.mark.parametrize("name", CODECS)
def test_batches_of_messages(name: str) -> None:
    codec, messages = CODECS[name]
    good = batch(codec, messages)
    assert codec.read(good) == messages

    @settings(max_examples=examples(300), deadline=None)
    @example(NESTED)
    @example(bytes([len(messages) - 1]) + len(NESTED).to_bytes(4, "little") + NESTED)
    @given(changed(good))
    def any_bytes(data: bytes) -> None:
        try:
            found = codec.read(data)
        except WireError:
            return
        assert batch(codec, found) is not None, "what was taken can be sent on"

    any_bytes()


@pytest.mark.parametrize("name", CODECS)
def test_single_messages(name: str) -> None:
    codec, messages = CODECS[name]
    small = [codec.read(batch(codec, [msg]).replace(*SMALLER))[0] for msg in messages]
    assert small and [codec.decode(codec.encode(msg)) for msg in small] == small

    @settings(max_examples=examples(200), deadline=None)
    @example(NESTED)
    @example(b"\x92\x00" + NESTED)
    @given(st.sampled_from([codec.encode(msg) for msg in small]).flatmap(changed))
    def any_bytes(data: bytes) -> None:
        try:
            found = codec.decode(data)
        except WireError:
            return
        assert codec.encode(found), "what was taken can be sent on"

    any_bytes()


ASKING = batch(REQUESTED, [Multicast(APP), Multicast(RUN)])


@settings(max_examples=examples(300), deadline=None)
@example(ASKING)
@given(changed(ASKING))
def test_requests_of_a_client(data: bytes) -> None:
    engine = Engine(PROTOCOLS["white_box"], 0, TOPOLOGY, PARAMS)
    engine.process.start(0)
    try:
        wanted = engine.requests(data, SESSION, 100)
    except WireError:
        assert data != ASKING
        return
    assert data != ASKING or len(wanted) == 2
    engine.handle(1, SESSION, wanted)
    engine.drain(1)
    assert all(len(m.payload) <= 100 for msg in wanted if msg.m.count > 1 for m in msg.m.messages())


NUMBERED = batch(Codec(ASKED, GROUPS), [Cast(APP, (1, 2), (0, 7, 1)), Again(RUN, (2, 3), ())])


@settings(max_examples=examples(300), deadline=None)
@example(batch(Codec(ASKED, GROUPS), [Cast(APP, (1,), ()), Cast(APP, (1, 0), ()), Cast(APP, (1, 1), (0, 7))]))
@example(batch(Codec(ASKED, GROUPS), [Cast(APP, (1, 1), (GROUPS, 7, 1))]))
@example(NUMBERED)
@given(changed(NUMBERED))
def test_requests_of_a_causal_client(data: bytes) -> None:
    engine = Engine(PROTOCOLS["causal"], 0, TOPOLOGY, PARAMS)
    engine.process.start(0)
    try:
        wanted = engine.requests(data, SESSION, 100)
    except WireError:
        assert data != NUMBERED
        return
    assert data != NUMBERED or len(wanted) == 2
    assert all(isinstance(msg, Numbered) and len(msg.seqs) == 2 and min(msg.seqs) > 0 for msg in wanted)
    engine.handle(1, SESSION, wanted)
    engine.drain(1)


def answers() -> bytes:
    w = BytesWriter()
    run = message_id(SESSION, 0)
    for msg in (Reply(run, 0, 2), Reply(run, 1, 3), Hint(run, 0, 1)):
        ANSWERED.write(w, msg)
        pack_blob(w, joined([b"answer", b"another"]))
    return w.getvalue()


@settings(max_examples=examples(300), deadline=None)
@example(answers())
@example(answers()[:-9])
@given(changed(answers()))
def test_answers_to_a_client(data: bytes) -> None:
    engine = ClientEngine(PROTOCOLS["white_box"], SESSION, TOPOLOGY, PARAMS)
    engine.process.start(0)
    for payload in (b"x", b"y"):
        engine.ask((0, 1), payload, None, 1.0)
    engine.begin(0)
    try:
        engine.receive(1, 0, data)
    except WireError:
        assert data != answers()
        return
    engine.ask((0, 1), b"x", None, 1.0)
    engine.begin(2)
    batches, completed, _ = engine.drain()
    assert batches and (data != answers() or completed)
    assert all(len(run.answers()) == 2 for run in completed)
    assert all(0 <= pid < TOPOLOGY.replicas for pid, _, _ in batches), "sent to a process that there is not"


def rows() -> bytes:
    w = BytesWriter()
    pack_rows(w, [(APP, 5), (RUN, 6)], 99)
    return w.getvalue()


@settings(max_examples=examples(300), deadline=None)
@given(changed(rows()))
@example(rows())
def test_rows(data: bytes) -> None:
    try:
        found = unpack_rows(data, GROUPS)
        assert data != rows() or [m.payload for _, _, _, m in found] == [m.payload for m in (APP, *RUN.messages())]
    except WireError:
        assert data != rows()


GREETINGS = {
    "hello": (frames.hello_decoder, Hello(1, "one", "g0/1", 5, SESSION)),
    "welcome": (frames.welcome_decoder, Welcome("g0/0", 5, 6)),
    "read": (frames.read_decoder, Read(1, 2, 3, 4)),
    "failure": (frames.refusal_decoder, Refusal(1, "no", 2)),
    "rows": (frames.rows_decoder, Rows(1, 2, 3, 4, 5, b"rows")),
}


@pytest.mark.parametrize("name", GREETINGS)
def test_bodies_of_frames(name: str) -> None:
    decoder, good = GREETINGS[name]
    assert frames.decode(decoder, frames.encode(good)) == good

    @settings(max_examples=examples(100), deadline=None)
    @example(b"\x95" + NESTED)
    @given(changed(frames.encode(good)))
    def any_bytes(data: bytes) -> None:
        try:
            frames.decode(decoder, data)
        except WireError:
            pass

    any_bytes()


# Frames


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_frames_however_they_are_cut(sent: list[tuple[int, int, bytes]], choose: random.Random) -> None:
    data = b"".join(frame(kind, body, number) for kind, number, body in sent)
    reader = FrameReader(40)
    found = []
    while data:
        cut = choose.randint(1, len(data))
        found += reader.feed(data[:cut])
        data = data[cut:]
    assert found == sent


@settings(max_examples=examples(200), deadline=None)
@given(changed(frame(1, b"first") + frame(2, b"second")), st.integers(1, 30))
def test_any_bytes_are_frames_or_refused(data: bytes, piece: int) -> None:
    reader = FrameReader(100)
    try:
        for at in range(0, len(data), piece):
            assert all(len(body) <= 100 for _, _, body in reader.feed(data[at : at + piece]))
    except WireError:
        pass


def test_a_frame_that_is_too_long_is_refused_by_its_header_alone() -> None:
    for largest in (frames.LARGEST_HELLO, frames.LARGEST_PEER):
        for announced in (largest + 1, 2**32 - 1):
            with pytest.raises(WireError, match=f"a frame of {announced} bytes: expected at most {largest}"):
                FrameReader(largest).feed(HEADER.pack(announced, 0, 1, 0))
    tracemalloc.start()
    try:
        reader = FrameReader(frames.LARGEST_PEER)
        assert reader.feed(HEADER.pack(frames.LARGEST_PEER, 0, 1, 0) + b"x" * 1000) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000, "memory for bytes that are only announced"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("claim", [b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"])
def test_a_message_that_announces_more_than_there_is(claim: bytes) -> None:
    """A blob, an array and a text of 4 GiB."""
    tracemalloc.start()
    try:
        for prefix in (b"", b"\x92\x08", b"\x92\x08\x94\x01\x01\x01"):
            with pytest.raises(WireError):
                WHITE_BOX.decode(prefix + claim)
            with pytest.raises(WireError):
                WHITE_BOX.read(b"\x08" + struct.pack("<I", len(prefix + claim)) + prefix + claim)
            with pytest.raises(WireError):
                frames.decode(frames.rows_decoder, prefix + claim)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# Disk


@settings(max_examples=examples(200), deadline=None)
@given(changed(sectors.encode_frame(3, b"x" * 600)), st.integers(0, 20))
def test_frames_on_disk(data: bytes, at: int) -> None:
    for decode in (sectors.decode_frame, old_frames.decode_frame):
        found = decode(memoryview(data), at)
        assert found is None or found[2] <= len(data)
    damaged = sectors.damage_in(memoryview(data), at, 3)
    assert damaged is None or at <= damaged < len(data)


@settings(max_examples=examples(200), deadline=None)
@given(changed(Seal(1, 2, 3).encoded() + record_of(4) + record_of(5)))
def test_any_bytes_as_a_seal(data: bytes) -> None:
    found = seal_in(data)
    assert found is None or (found[:2] == (1, 2) and found.frame in (3, 4, 5))


FILES = ("identity", "starts", "seal", "log-2", "snapshot-2")


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_damaged_files_are_recovered_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("disk")
    storage = Storage(folder, "test g0/0")
    storage.count_start()
    storage.recover()
    storage.commit([b"zero"])
    storage.commit([b"one"])
    storage.snapshot([b"state"])
    storage.commit([b"two", b"three"])
    storage.close()
    path = folder / data.draw(st.sampled_from(FILES))
    path.write_bytes(data.draw(changed(path.read_bytes())))
    start_in(folder)


def start_in(folder: Path) -> None:
    try:
        storage = Storage(folder, "test g0/0")
    except (StorageCorrupt, UsageError):
        return
    try:
        assert storage.count_start() > 0
        found = storage.recover()
        assert found.snapshot == [b"state"] and found.records == [b"two", b"three"]
    except StorageCorrupt:
        pass
    finally:
        storage.close()


def test_frames_with_a_good_checksum_and_a_wrong_inside(tmp_path: Path) -> None:
    def sealed(number: int, body: bytes) -> bytes:
        rest = struct.pack("<IQ", len(body), number) + body
        return b"amf1" + struct.pack("<I", zlib.crc32(rest)) + rest

    for number, body in enumerate((b"\xff" * 9, b"\x05", b"\x09\0\0\0short", b"")):
        for name in ("log-0", "snapshot-0"):
            folder = tmp_path / f"{number}-{name}"
            folder.mkdir()
            (folder / "identity").write_bytes(b"test g0/0")
            (folder / "starts").write_bytes(b"1")
            (folder / name).write_bytes(sealed(0, body))
            try:
                read_old(REAL.files, folder)
            except StorageCorrupt as error:
                assert str(folder / name) in str(error)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_damaged_rows_are_cut_off(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("rows")
    history = History(folder)
    for _ in range(3):
        history.append([(APP, 5)], 1)
    history.write(history.take_unwritten())
    history.close()
    path = folder / "rows-0"
    path.write_bytes(data.draw(changed(path.read_bytes())))
    history = History(folder, data.draw(st.integers(0, 3)))
    for position in range(history.earliest, history.end):
        first, after, found = history.read(position, 10**6)
        assert len(unpack_rows(found, GROUPS)) == after - first
    history.close()


# Configuration

GOOD = """
[cluster]
name = "one"
protocol = "white_box"
largest_message = 1000
[timing]
delta_ms = 20
[tls]
ca = "certs/ca.crt"
[[replica]]
id = "g0/0"
peer = "127.0.0.1:4106"
client = "[::1]:4107"
admin = "127.0.0.1:4108"
data = "data/g0-0"
[clients.alice]
read = ["*"]
write = ["g0"]
"""
WORDS = GOOD.split()
values = st.recursive(
    st.one_of(st.integers(-5, 10**30), st.floats(), st.booleans(), st.text(max_size=5), st.just("g0")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)),
    max_leaves=5,
)


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    return msgspec.json.encode(value).decode() if isinstance(value, str) else str(value)


def loads(folder: Path) -> Callable[[bytes], None]:
    def load(text: bytes) -> None:
        (folder / "cluster.toml").write_bytes(text)
        try:
            load_config(folder / "cluster.toml", PROTOCOLS)
        except UsageError as error:
            assert "\n" not in str(error) and str(folder) in str(error)

    return load


def test_any_configuration(tmp_path: Path) -> None:
    load = loads(tmp_path)
    settled = settings(max_examples=examples(200), deadline=None)
    settled(given(changed(GOOD.encode()))(lambda text: load(text)))()

    lines = GOOD.splitlines()
    keys = [number for number, line in enumerate(lines) if "=" in line]

    @settled
    @given(st.sampled_from(keys), values)
    def another_value(number: int, value: object) -> None:
        key = lines[number].partition("=")[0]
        load("\n".join([*lines[:number], f"{key}= {toml(value)}", *lines[number + 1 :]]).encode(errors="surrogatepass"))

    another_value()
    load(b"x = " + b"[" * 5000)
    load(b'[cluster]\nname = "a"\nprotocol = "white_box"\n[timing]\ndelta_ms = nan\n')
