"""Who may do what: every request of every role over mutual TLS, allowed or refused as cluster.toml says."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from librt.strings import BytesWriter
from nodes import SESSION, Raw, cluster, connected, greeting, multicast_works, running
from tests.pace import allow

from amcast.core.requests import REQUESTS, Multicast
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage, Codec
from amcast.errors import AmcastError, MulticastFailed
from amcast.runtime import frames
from amcast.runtime.certificates import make_certificates
from amcast.runtime.config import ClusterConfig
from amcast.runtime.frames import Read
from amcast.runtime.framing import frame
from amcast.runtime.serving import session_of
from amcast.runtime.tls import client_context
from amcast.service import connect, load

GRANTS = """
[clients.alice]
read = ["g0"]
write = ["g0"]
[clients.bob]
read = ["*"]
[clients.carol]
read = ["*"]
write = ["*"]
[clients.nobody]
"""
ROLES = ("alice", "bob", "carol", "nobody")
LARGEST = 1000


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterConfig]:
    folder = tmp_path_factory.mktemp("tls")
    made = cluster(folder, groups=2, replicas=1, secure=True)
    text = made.path.read_text().replace("[timing]", f"largest_message = {LARGEST}\n[timing]")
    made.path.write_text(text + GRANTS)
    make_certificates(folder / "certs", made.name, [f"client/{name}" for name in ROLES])
    config = load(made.path)
    with running(config):
        yield config
        assert multicast_works(config), "after all that was tried"


numbers = iter(range(10**6))


def multicast(role: str, dest: tuple[int, ...], size: int = 1) -> bytes:
    w = BytesWriter()
    m = AppMessage(message_id(session_of(f"client/{role}", SESSION), next(numbers)), dest, bytes(size))
    Codec(REQUESTS, 2).write(w, Multicast(m))
    return frame(frames.REQUESTS, w.getvalue())


def read(position: int) -> bytes:
    return frame(frames.READ, frames.encode(Read(1, position, 1000, 0)))


# Request, group that is asked -> who may; what the others, or all, are told.
KINDS: dict[str, tuple[Callable[[str], bytes], int, tuple[str, ...], str]] = {
    "multicast to g0": (lambda role: multicast(role, (0,)), 0, ("alice", "carol"), "may not multicast to g0"),
    "multicast to g1": (lambda role: multicast(role, (1,)), 1, ("carol",), "may not multicast to g1"),
    "multicast to both, at g0": (lambda role: multicast(role, (0, 1)), 0, ("carol",), "may not multicast to g0, g1"),
    "multicast to both, at g1": (lambda role: multicast(role, (0, 1)), 1, ("carol",), "may not multicast to g0, g1"),
    "multicast to g1, at g0": (lambda role: multicast(role, (1,)), 0, (), "may not multicast to g1 here"),
    "too large": (lambda role: multicast(role, (0,), LARGEST + 1), 0, (), ""),
    "of another session": (lambda role: multicast("somebody", (0,)), 0, (), "in session"),
    "read g0": (lambda role: read(0), 0, ("alice", "bob", "carol"), "nobody may not read g0"),
    "read g1": (lambda role: read(0), 1, ("bob", "carol"), "may not read g1"),
    "read before the start": (lambda role: read(-1), 0, (), ""),
    "frames of members": (lambda role: frame(frames.BATCH, b"", 1), 0, (), "kind 5, expected requests or reads"),
    "start of a member": (lambda role: frame(frames.START, b"", 1), 0, (), "kind 4, expected requests or reads"),
}
REFUSALS = {  # of a request alone, and with the connection
    "of another session": frames.REFUSED,
    "frames of members": frames.REFUSED,
    "start of a member": frames.REFUSED,
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_request_of_every_role(config: ClusterConfig, kind: str, role: str) -> None:
    request, group, allowed, reason = KINDS[kind]
    member = next(member for member in config.members if member.group == group)
    if kind.startswith("multicast to both") and role in allowed:  # answered when both groups have it
        assert list(asyncio.run(multicast_of(config, role, ["g0", "g1"], b"x"))) == ["g0", "g1"]
        return
    with connected(config, member.client, f"client/{role}") as raw:
        welcome = raw.receive()
        assert welcome is not None and welcome[0] == frames.WELCOME
        answer = raw.send(request(role)).receive()
        assert answer is not None
        if role in allowed:
            assert answer[0] == (frames.ROWS if kind.startswith("read") else frames.ANSWERS)
        else:
            assert answer[0] == REFUSALS.get(kind, frames.FAILED)
            text = answer[1].decode(errors="replace")
            assert reason in text


async def multicast_of(config: ClusterConfig, role: str, dest: list[str], payload: bytes) -> dict[str, bytes]:
    async with connect(config.path, role, deadline=allow(10)) as client:
        return await client.multicast(dest, payload)


async def read_of(config: ClusterConfig, role: str, group: str) -> object:
    async with connect(config.path, role, deadline=allow(10)) as client:
        return await client.rows(group, 0)


@pytest.mark.parametrize("role", ROLES)
def test_the_client_says_it_in_one_line(config: ClusterConfig, role: str) -> None:
    for dest, writers in ((["g0"], ("alice", "carol")), (["g1"], ("carol",)), (["g0", "g1"], ("carol",))):
        if role in writers:
            assert list(asyncio.run(multicast_of(config, role, dest, b"x"))) == dest
            continue
        with pytest.raises(MulticastFailed, match=f"^{role} may not multicast to {', '.join(dest)} here$"):
            asyncio.run(multicast_of(config, role, dest, b"x"))
    for group, readers in (("g0", ("alice", "bob", "carol")), ("g1", ("bob", "carol"))):
        if role in readers:
            asyncio.run(read_of(config, role, group))
            continue
        with pytest.raises(AmcastError, match=f"^{role} may not read {group}$"):
            asyncio.run(read_of(config, role, group))


def test_what_is_forbidden_is_delivered_nowhere(config: ClusterConfig) -> None:
    async def tried() -> list[bytes]:
        async with connect(config.path, "carol", deadline=allow(10)) as carol:
            ends = [(await carol.rows(group, 2**40)).end for group in ("g0", "g1")]
            for dest in (["g1"], ["g0", "g1"]):
                with pytest.raises(MulticastFailed):
                    await multicast_of(config, "alice", dest, b"forbidden")
            await carol.multicast(["g0", "g1"], b"last")
            found = []
            for group, end in zip(("g0", "g1"), ends, strict=True):
                async for delivery in carol.deliveries(group, end):
                    found.append(delivery.payload)
                    if delivery.payload == b"last":
                        break
            return found

    assert asyncio.run(tried()) == [b"last", b"last"]


# Who is at the wrong door, or is somebody else

DOORS = {
    "a client at the door of members": ("peer", "client/carol", None, "'client/carol' is no other member"),
    "a member at the door of clients": ("client", "g1/0", None, "'g1/0' is no client"),
    "a client as a member": ("peer", "client/carol", "g1/0", "client/carol says that it is g1/0"),
    "a client as another": ("client", "client/bob", "client/carol", "client/bob says that it is client/carol"),
    "a member as a client": ("client", "g1/0", "client/carol", "g1/0 says that it is client/carol"),
    "a member as another": ("peer", "g1/0", "g0/0", "g1/0 says that it is g0/0"),
    "a member as itself here": ("peer", "g0/0", None, "'g0/0' is no other member"),
    "a session that is a process": ("client", "client/carol", None, "session 3 is not of client/carol"),
}


@pytest.mark.parametrize("what", DOORS)
def test_the_wrong_door_or_name(config: ClusterConfig, what: str) -> None:
    listener, name, as_, reason = DOORS[what]
    session = 3 if "session" in what else None
    with connected(config, getattr(config.members[0], listener), name, as_=as_, session=session) as raw:
        answer = raw.receive()
        assert answer is not None and answer[0] == frames.REFUSED, "let in"
        assert reason in answer[1].decode()


def test_a_client_that_is_no_longer_known(config: ClusterConfig) -> None:
    """It has a certificate of the cluster, and is in no list."""
    assert config.tls is not None
    make_certificates(config.tls.folder, config.name, ["client/former"])
    context = bare_context(config.tls.folder, "client-former")
    for address in (config.members[0].peer, config.members[0].client):
        with Raw(address, context) as raw:
            assert "which is not a member" in raw.send(greeting(config, "client/former", SESSION)).refusal()


def bare_context(folder: Path, name: str) -> ssl.SSLContext:
    """Without any check of ours."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


@pytest.mark.parametrize("as_cluster", ["same name", "its own name"])
def test_a_certificate_of_another_cluster(config: ClusterConfig, tmp_path: Path, as_cluster: str) -> None:
    make_certificates(tmp_path, config.name if as_cluster == "same name" else "another", ["client/carol", "g1/0"])
    for address, name in ((config.members[0].client, "client-carol"), (config.members[0].peer, "g1-0")):
        refused_by_tls(lambda address=address, name=name: Raw(address, bare_context(tmp_path, name)))


def test_no_certificate_and_no_tls(config: ClusterConfig) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for address in (config.members[0].client, config.members[0].peer):
        refused_by_tls(lambda address=address: Raw(address, context))
        with Raw(address) as raw:
            assert raw.send(greeting(config, "client/carol", SESSION)).refusal() == "", "there is nobody to answer to"


def refused_by_tls(dial: Callable[[], Raw]) -> None:
    """In TLS 1.3 the dialling end learns of it with what it reads first."""
    try:
        with dial() as raw:
            assert raw.send(b"x").receive() is None
    except (ssl.SSLError, ConnectionError):
        pass


def test_an_older_tls_is_refused(config: ClusterConfig) -> None:
    context = client_context(config, "client/carol")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Raw(config.members[0].client, context)
