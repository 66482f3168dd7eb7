"""Whatever strangers say to the listeners of a running node: a clear refusal or the end, and others are served on."""

import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from librt.strings import BytesWriter
from nodes import SESSION, Raw, cluster, connected, greeting, logged, multicast_works, running, until
from tests.pace import allow

from amcast.core.requests import REQUESTS, Multicast
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage, Codec
from amcast.errors import LostMessages
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig
from amcast.runtime.frames import Read
from amcast.runtime.framing import HEADER, frame
from amcast.runtime.node import Node
from amcast.runtime.serving import session_of

Running = tuple[ClusterConfig, dict[str, Node]]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    config = cluster(tmp_path_factory.mktemp("live"))
    with running(config) as nodes:
        yield config, nodes
        assert multicast_works(config), "after all that was said"


def requests(*messages: AppMessage) -> bytes:
    w = BytesWriter()
    codec = Codec(REQUESTS, 1)
    for m in messages:
        codec.write(w, Multicast(m))
    return w.getvalue()


SOUND = requests(AppMessage(message_id(SESSION, 0), (0,), b"x"))
PEER, CLIENT = "g0/1", "client/dev"
SAYINGS: dict[str, tuple[Callable[[ClusterConfig, str], bytes], str]] = {
    "garbage": (lambda config, name: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200, "a frame of"),
    "zeros": (lambda config, name: bytes(10_000), "a frame of kind 0, expected a greeting"),
    "too long": (lambda config, name: HEADER.pack(2**32 - 1, 0, frames.HELLO, 0), "expected at most 4096"),
    "long greeting": (lambda config, name: frame(frames.HELLO, bytes(5000)), "expected at most 4096"),
    "wrong checksum": (lambda config, name: greeting(config, name, SESSION)[:-1] + b"\xff", "wrong checksum"),
    "no greeting": (lambda config, name: frame(frames.REQUESTS, SOUND), "a frame of kind 7, expected a greeting"),
    "malformed": (lambda config, name: frame(frames.HELLO, b"\x91" * 3000), "malformed frame"),
    "not text": (lambda config, name: frame(frames.HELLO, b"\x95\x01\xa1\xff\xa1a\x01\x01"), "malformed frame"),
    "version": (
        lambda config, name: greeting(config, name, SESSION, 99),
        " knows formats 99 to 99, g0/0 3 to 3; run",
    ),
    "cluster": (
        lambda config, name: greeting(config, name, SESSION).replace(b"amcast-", b"amcust-"),
        "wrong checksum",
    ),
    "nobody": (lambda config, name: greeting(config, "client/eve", SESSION), "'client/eve' is no"),
    "itself": (lambda config, name: greeting(config, "g0/0", SESSION), "'g0/0' is no"),
    "twice": (lambda config, name: greeting(config, name, SESSION) * 2, "kind 1, expected"),
    "answers": (lambda config, name: greeting(config, name, SESSION) + frame(frames.ANSWERS, b""), "kind 8, expected"),
}


@pytest.mark.parametrize("listener", ["peer", "client"])
@pytest.mark.parametrize("what", SAYINGS)
def test_a_stranger_is_told_why_and_let_go(live: Running, what: str, listener: str) -> None:
    config, nodes = live
    say, reason = SAYINGS[what]
    name = PEER if listener == "peer" else CLIENT
    with Raw(getattr(config.members[0], listener)) as raw:
        assert reason in raw.send(say(config, name)).refusal()
    assert reason in logged(nodes["g0/0"]), "the operator is told too"


def test_a_greeting_of_another_cluster(live: Running) -> None:
    config, _ = live
    hello = frames.Hello(frames.VERSION, "another", CLIENT, 5, SESSION)
    for address in (config.members[0].peer, config.members[0].client):
        with Raw(address) as raw:
            refusal = raw.send(frame(frames.HELLO, frames.encode(hello))).refusal()
        assert refusal == f"greeting of cluster 'another', expected {config.name!r}"


CLIENT_SAYINGS = {
    "peer frames": (frame(frames.START, b"", 0), "a frame of kind 4, expected requests or reads"),
    "unknown kind": (frame(200, b"x"), "a frame of kind 200"),
    "too long": (HEADER.pack(2**22, 0, frames.REQUESTS, 0), "expected at most"),
    "malformed batch": (frame(frames.REQUESTS, SOUND[:-3]), "malformed batch"),
    "unknown request": (frame(frames.REQUESTS, b"\x09" + SOUND[1:]), "message type 9"),
    "another session": (
        frame(frames.REQUESTS, requests(AppMessage(message_id(SESSION + 1, 0), (0,), b"x"))),
        "a message of session",
    ),
    "unknown group": (
        frame(frames.REQUESTS, SOUND.replace(struct.pack("<hh", 1, 0), struct.pack("<hh", 1, 77))),
        "group 77: expected 0 to 16",
    ),
    "malformed read": (frame(frames.READ, b"\x91" * 2000), "malformed frame"),
}


@pytest.mark.parametrize("what", CLIENT_SAYINGS)
def test_a_client_that_talks_nonsense(live: Running, what: str) -> None:
    config, _ = live
    said, reason = CLIENT_SAYINGS[what]
    with connected(config, config.members[0].client, CLIENT) as raw:
        assert raw.receive() is not None
        assert reason in raw.send(said).refusal()


@pytest.mark.parametrize("seq", [0, 2**48 - 1])
@pytest.mark.parametrize("done", [-(2**63), -1, 0, 2**62, 2**63 - 1])
def test_odd_numbers_of_a_client_harm_only_itself(live: Running, seq: int, done: int) -> None:
    config, _ = live
    session = session_of(CLIENT, random.randrange(2**42))
    batch = requests(AppMessage(message_id(session, seq), (0,), b"odd", done))
    for member in config.members:
        with connected(config, member.client, CLIENT, session=session) as raw:
            assert raw.receive() is not None
            raw.send(frame(frames.REQUESTS, batch))
            for read in (Read(2**63 - 1, 2**63 - 1, -5, 2**62), Read(0, 0, -1, -1), Read(-1, -1, 0, 0)):
                raw.send(frame(frames.READ, frames.encode(read)))
            answers = [raw.receive() for _ in range(3)]
            assert all(answer and answer[0] != frames.REFUSED for answer in answers)
    assert multicast_works(config)


def test_frames_of_a_member_in_a_wrong_order(live: Running) -> None:
    config, _ = live
    address = config.members[0].peer
    batch = frame(frames.BATCH, b"", 5)
    for said, reason in (
        (batch, "frame 5 of kind 5, expected a start"),
        (frame(frames.START, b"", 4) + batch, "frame 5 of kind 5, expected batch 4"),
        (frame(frames.START, b"", 5) + frame(frames.ACK, b"", 5), "frame 5 of kind 6, expected batch 5"),
        (frame(frames.START, b"", 5) + frame(frames.BATCH, b"\xff\xff", 5), "message type 255"),
        (frame(frames.START, b"", 5) + HEADER.pack(2**31, 0, frames.BATCH, 5), "expected at most"),
    ):
        with Raw(address) as raw:
            assert reason in raw.send(greeting(config, PEER) + said).refusal()
    assert multicast_works(config), "the member whose name was used comes back"


def test_a_protocol_without_recovery_stops_when_messages_are_lost(tmp_path: Path) -> None:
    config = cluster(tmp_path, durable=False, protocol_name="baseline")
    with pytest.raises(LostMessages, match="g0/1 gave up"), running(config, ["g0/0"]) as nodes:
        with Raw(config.members[0].peer) as raw:
            raw.send(greeting(config, PEER) + frame(frames.START, b"", 1) + frame(frames.BATCH, b"", 1))
            assert raw.receive() is not None and not nodes["g0/0"]._error
        with Raw(config.members[0].peer) as raw:
            raw.send(greeting(config, PEER) + frame(frames.START, b"", 3))
            assert until(lambda: nodes["g0/0"]._error is not None)


def test_half_a_frame_waits_and_does_no_harm(live: Running) -> None:
    config, _ = live
    with connected(config, config.members[0].client, CLIENT) as raw, Raw(config.members[0].peer) as other:
        whole = frame(frames.REQUESTS, SOUND)
        raw.send(whole[:20])
        other.send(greeting(config, PEER)[:10])
        assert multicast_works(config)
        assert raw.receive() is not None
        raw.send(whole[20:])
        answer = raw.receive()
        assert answer is not None and answer[0] == frames.ANSWERS


def test_random_bytes(live: Running) -> None:
    config, _ = live
    chance = random.Random(1)
    for number in range(60):
        address = config.members[0].peer if number % 2 else config.members[0].client
        start = greeting(config, PEER if number % 2 else CLIENT, SESSION) if number % 3 == 0 else b""
        with Raw(address) as raw:
            raw.send(start + chance.randbytes(chance.randrange(1, 3000)))
    assert multicast_works(config)


def test_who_does_not_greet_in_time_is_dropped(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    config, nodes = live
    seconds = allow(0.5)
    for door in (nodes["g0/0"].serving.door, nodes["g0/0"].incoming.door):
        monkeypatch.setattr(door, "seconds", seconds)
    for address in (config.members[0].peer, config.members[0].client):
        with Raw(address) as silent, Raw(address) as slow:
            began = time.monotonic()
            silent.socket.settimeout(seconds + allow(2.5))
            for byte in greeting(config, PEER)[:20]:
                slow.send(bytes([byte]))
                time.sleep(0.02)
            assert silent.receive() is None and slow.receive() is None
            assert time.monotonic() - began < seconds + allow(2.5)
    node = nodes["g0/0"]
    assert until(lambda: node.serving.door.strangers == node.incoming.door.strangers == 0), "they are counted out"


def test_strangers_are_limited(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    config, nodes = live
    node = nodes["g0/0"]
    for address, door in ((config.members[0].client, node.serving.door), (config.members[0].peer, node.incoming.door)):
        monkeypatch.setattr(door, "most_of_one", 5)
        crowd = [Raw(address) for _ in range(5)]
        assert until(lambda door=door: door.strangers == 5)
        with Raw(address) as late:
            assert crowd.pop(0).receive() is None, "the oldest makes room"
            assert door.strangers == 5
            assert "expected a greeting" in late.send(frame(frames.READ, b"")).refusal()
        for one in crowd:
            one.close()
    assert until(lambda: node.serving.door.strangers == node.incoming.door.strangers == 0)
    assert multicast_works(config)


def test_one_client_cannot_take_the_session_of_another(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    config, _ = live
    grant = config.clients["dev"]
    monkeypatch.setitem(config.clients, "eve", type(grant)("eve", grant.read, grant.write))  # type: ignore[misc]
    with connected(config, config.members[0].client, CLIENT) as mine:
        assert mine.receive() is not None
        with connected(config, config.members[0].client, "client/eve", session=SESSION) as other:
            assert other.refusal() == f"session {SESSION:x} is not of client/eve"
        with connected(config, config.members[0].client, CLIENT) as again:
            assert again.receive() is not None and mine.receive() is None, "the same one that comes back takes over"
