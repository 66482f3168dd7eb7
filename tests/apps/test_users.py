"""Guards the port for Redis clients: HTTP, passwords, permissions, TLS, and where it may listen."""

import asyncio
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError

from amcast.apps.kv import gateway as gateway_module
from amcast.apps.kv.commands import SPECS
from amcast.apps.kv.gateway import Gateway, Port, refuse_open_port
from amcast.apps.kv.server_commands import ANYBODY, COMMANDS
from amcast.apps.kv.users import User, Users
from amcast.apps.kv.users_file import hashed, is_right, read_users, write_users
from amcast.cli import run
from amcast.errors import UsageError
from amcast.runtime.certificates import HERE, make_certificates, read_certificates
from amcast.runtime.config import ClusterConfig, Grant, load_config
from amcast.runtime.machine import REAL, Limits, Machine
from amcast.runtime.tls import store_context
from tests.apps.in_process import InProcess, gateway, gateway_in_thread
from tests.apps.test_gateway import talk
from tests.pace import allow, until

CHEAP = (4, 1, 1)
ALL = frozenset(("read", "write", "admin"))


NO_RETRY = redis.retry.Retry(redis.backoff.NoBackoff(), 0)


def user(name: str, may: str = "read write admin", *keys: str) -> User:
    return User(name, hashed(f"secret of {name}", CHEAP), frozenset(may.split()), keys or ("*",))


USERS = {
    one.name: one
    for one in (
        user("default"), user("reader", "read"), user("writer", "write"), user("some", "read write", "some:*", "a?"),
        user("nothing", ""),
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[Gateway]:
    with gateway_in_thread(3, users=USERS, log=io.StringIO()) as found:
        yield found


def login(found: Gateway, name: str, password: str | None = None, protocol: int = 3) -> "redis.Redis[bytes]":
    password = f"secret of {name}" if password is None else password
    return redis.Redis(port=found.server.port, username=name, password=password, protocol=protocol)


# HTTP

POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\nSET stolen yes\r\n"
HTTP = {
    "post": POST,
    "host_first": b"PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET stolen yes\r\n",
    "small_letters": b"post / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nSET stolen yes\r\n",
    "line_breaks_in_the_path": b"GET /\r\nSET stolen yes\r\n HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "quote_in_the_path": b"POST /' HTTP/1.1\r\nSET stolen yes\r\n",
    "blank_in_front": b"\r\n POST / HTTP/1.1\r\nSET stolen yes\r\n",
}


@pytest.mark.parametrize("request_of", HTTP)
def test_a_web_page_cannot_write(request_of: str) -> None:
    async def go() -> None:
        log = io.StringIO()
        async with gateway(1, log=log) as found:
            reader, writer = await asyncio.open_connection("127.0.0.1", found.server.port)
            writer.write(HTTP[request_of])
            try:
                said = await asyncio.wait_for(reader.read(1), allow(10))
            except ConnectionError:
                said = b""
            assert said == b""
            cluster = found.batcher.client
            assert isinstance(cluster, InProcess) and cluster.position == 0, "something was executed"
            (line,) = log.getvalue().splitlines()
            assert "cross-protocol attack" in json.loads(line)["event"] and "127.0.0.1" in json.loads(line)["peer"]
            writer.close()

    asyncio.run(go())


def test_a_value_may_say_post() -> None:
    async def go() -> None:
        async with gateway(1) as found:
            assert (
                await talk(found.server.port, b"SET a POST\r\nSET host: x\r\nGET a\r\n")
                == b"+OK\r\n+OK\r\n$4\r\nPOST\r\n"
            )

    asyncio.run(go())


# Passwords


@pytest.mark.parametrize("protocol", [2, 3])
def test_who_has_not_logged_in_may_do_nothing(running: Gateway, protocol: int) -> None:
    with redis.Redis(port=running.server.port, protocol=protocol, retry=NO_RETRY) as stranger:
        with pytest.raises(AuthenticationError, match=r"Authentication required|already authenticated"):
            stranger.set("a", "1")
    with login(running, "default", protocol=protocol) as known:
        assert known.set("a", "1") is True and known.acl_whoami() in ("default", b"default")
    with redis.Redis(port=running.server.port, password="secret of default", protocol=protocol) as known:
        assert known.get("a") == b"1"


def test_every_command_needs_a_login(running: Gateway) -> None:
    """Default deny: no command but those that log in, or leave, is answered with anything else."""

    async def go() -> None:
        for name in [*SPECS, *COMMANDS]:
            if name not in (b"AUTH", b"HELLO", b"QUIT", b"RESET"):
                said = await talk(running.server.port, name + b" a b c\r\n")
                assert said == b"-NOAUTH Authentication required.\r\n", name
        assert (await talk(running.server.port, b"HELLO 3\r\n")).startswith(b"-NOAUTH HELLO must be called")
        assert await talk(running.server.port, b"MULTI\r\nEXEC\r\n") == b"-NOAUTH Authentication required.\r\n" * 2

    asyncio.run(go())


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("default", "secret of default "),
        ("default", ""),
        ("nobody", "secret of nobody"),
        ("reader", "secret of default"),
    ],
)
def test_a_wrong_password(running: Gateway, name: str, password: str) -> None:
    line = f"AUTH {name} '{password}'\nGET a\n".encode()
    assert asyncio.run(talk(running.server.port, line)).splitlines() == [
        b"-WRONGPASS invalid username-password pair or user is disabled.", b"-NOAUTH Authentication required.",
    ]  # fmt: skip


def test_no_password_in_the_log() -> None:
    async def go() -> None:
        log = io.StringIO()
        async with gateway(1, users=USERS, log=log) as found:
            lines = b"AUTH hunter2\nAUTH hunter2 default\nAUTH default hunter2\nHELLO 3 AUTH default hunter2\n"
            assert (await talk(found.server.port, lines)).count(b"-WRONGPASS") == 4
            said = [json.loads(line) for line in log.getvalue().splitlines()]
            assert [line["user"] for line in said] == ["default", "unknown", "default", "default"]
            assert "hunter2" not in log.getvalue()

    asyncio.run(go())


def test_a_failed_login_leaves_who_was_there_and_reset_nobody(running: Gateway) -> None:
    lines = b"AUTH reader 'secret of reader'\nAUTH default x\nACL WHOAMI\nHELLO 2\nRESET\nGET a\n"
    said = asyncio.run(talk(running.server.port, lines)).splitlines()
    assert said[0] == b"+OK" and said[1].startswith(b"-WRONGPASS") and said[2:4] == [b"$6", b"reader"]
    assert said[-2:] == [b"+RESET", b"-NOAUTH Authentication required."]


def test_a_password_is_hashed_once_per_gateway() -> None:
    async def go() -> None:
        seen: list[str] = []

        def check(kept: str, password: str) -> bool:
            seen.append(password)
            return is_right(kept, password)

        users = Users(USERS, check, REAL)
        for _ in range(3):
            assert await users.log_in("reader", "secret of reader") is None
        assert len(seen) == 1
        for _ in range(2):
            assert await users.log_in("reader", "wrong") is not None
            assert await users.log_in("nobody", "wrong") is not None
        assert len(seen) == 5, "a wrong password, or an unknown name, is not as dear as a right one"
        users.replace({**USERS, "reader": user("reader")})
        assert await users.log_in("reader", "secret of reader") is None and len(seen) == 6

    asyncio.run(go())


def test_logins_that_wait_are_bounded() -> None:
    async def go() -> None:
        users = Users(USERS, is_right, Machine(limits=Limits(logins_waiting=3)))
        found = await asyncio.gather(*(users.log_in("reader", f"wrong {n}") for n in range(5)))
        assert [str(one)[:5] for one in found] == ["-WRON"] * 3 + ["-BUSY"] * 2

    asyncio.run(go())


# Permissions


def forbidden(found: Gateway, name: str, line: str) -> bool:
    with login(found, name) as client:
        try:
            client.execute_command(*line.split())
        except NoPermissionError:
            return True
        except redis.ResponseError:
            pass
    return False


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    ids=["reader", "writer", "some", "nothing", "default"],
    argvalues=[
        ("reader", "GET a;MGET a b;KEYS *;SCAN 0;DBSIZE;WATCH a;PING;TTL a",
         "SET a 1;DEL a;INCR a;FLUSHALL;INFO;GETEX a"),
        ("writer", "SET a 1;DEL a;MSET a 1 b 2;EXPIRE a 100;SET a 1 NX",
         "GET a;INCR a;GETDEL a;GETSET a 1;SET a 1 GET;SET a 1 get;FLUSHALL;CONFIG GET save;WATCH a"),
        ("some", "GET some:1;SET ab 1;MGET some:1 ab;WATCH ab some:x",
         "GET b;MGET some:1 b;MSET some:1 1 b 2;KEYS some:*;SCAN 0;DBSIZE;DEL ab abc;FLUSHALL;WATCH ab b;EXISTS ab b"),
        ("nothing", "PING;COMMAND;CLIENT GETNAME;ECHO a", "GET a;SET a 1;INFO;WATCH a;DBSIZE"),
        ("default", "FLUSHALL;INFO;CONFIG GET save;KEYS *;SET a 1;GET a", ""),
    ],
)  # fmt: skip
def test_permissions(running: Gateway, name: str, allowed: str, refused: str) -> None:
    assert [line for line in allowed.split(";") if forbidden(running, name, line)] == []
    assert [line for line in filter(None, refused.split(";")) if not forbidden(running, name, line)] == []


def test_every_command_of_the_store_needs_a_right() -> None:
    """A command that is added later is refused to a user without rights, whatever its kind."""
    nothing = USERS["nothing"]
    from amcast.apps.kv.commands import keys_of, rights_for

    for name in SPECS:
        command = [name, b"a", b"1", b"b"]
        assert nothing.refusal(name, rights_for(command), keys_of(command)) is not None, name
    assert {name for name, local in COMMANDS.items() if local.needs != ANYBODY} == {b"INFO", b"CONFIG", b"WATCH"}


def test_a_transaction_has_no_way_around(running: Gateway) -> None:
    lines = b"AUTH reader 'secret of reader'\nMULTI\nGET a\nSET a 1\nEXEC\nMULTI\nAUTH default x\nEXEC\n"
    said = asyncio.run(talk(running.server.port, lines)).splitlines()
    assert said[1:3] == [b"+OK", b"+QUEUED"] and said[3].startswith(b"-NOPERM") and said[4].startswith(b"-EXECABORT")
    assert said[6] == b"-ERR AUTH inside MULTI is not allowed" and said[7].startswith(b"-EXECABORT")


def test_a_user_who_is_removed_can_do_no_more() -> None:
    async def go() -> None:
        async with gateway(1, users=USERS) as found:
            reader, writer = await asyncio.open_connection("127.0.0.1", found.server.port)

            async def say(line: str) -> bytes:
                writer.write(line.encode() + b"\n")
                return await asyncio.wait_for(reader.readline(), allow(10))

            assert await say("AUTH some 'secret of some'") == b"+OK\r\n"
            assert await say("SET some:1 1") == b"+OK\r\n"
            assert await say("MULTI") == b"+OK\r\n" and await say("SET some:1 2") == b"+QUEUED\r\n"
            assert found.server.users is not None
            found.server.users.replace({"default": USERS["default"], "some": user("some", "read")})
            assert (await say("EXEC")).startswith(b"-EXECABORT")
            assert (await say("SET some:1 1")).startswith(b"-NOPERM")
            found.server.users.replace({})
            assert (await say("GET some:1")).startswith(b"-NOAUTH")
            writer.close()

    asyncio.run(go())


# Strangers


def test_a_stranger_gets_little_and_not_for_long() -> None:
    async def go() -> None:
        async with gateway(1, users=USERS, limits=Limits(most_not_logged_in=2)) as found:
            port = found.server.port
            assert b"unauthenticated multibulk length" in await talk(port, b"*11\r\n")
            assert b"unauthenticated bulk length" in await talk(port, b"*2\r\n$4\r\nAUTH\r\n$20000\r\n")
            strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            assert await asyncio.wait_for(strangers[0][0].read(), allow(2)) == b"", "the oldest goes"
            for _, writer in strangers:
                writer.close()
        patience = allow(0.1)
        async with gateway(1, users=USERS, limits=Limits(seconds_to_log_in=patience)) as found:
            port = found.server.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(reader.read(), patience + allow(2)) == b""
            writer.close()
            login = b"AUTH 'secret of default'\n"
            large = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n" + b"x" * 20000 + b"\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(login + large + b"PING\r\n")  # without waiting: the login counts for what comes behind it
            assert await asyncio.wait_for(reader.readexactly(17), allow(10)) == b"+OK\r\n+OK\r\n+PONG\r\n"
            await asyncio.sleep(1.5 * patience)  # longer than a stranger has
            writer.write(b"PING\r\n")
            assert await asyncio.wait_for(reader.readline(), allow(10)) == b"+PONG\r\n"
            writer.close()

    asyncio.run(go())


# TLS

CLUSTER = """
[cluster]
name = "one"
protocol = "white_box"
app = "kv"
[tls]
ca = "certs/ca.crt"
folder = "certs"
[clients.alice]
[[replica]]
id = "g0/0"
peer = "127.0.0.1:4100"
client = "127.0.0.1:4101"
admin = "127.0.0.1:4102"
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ClusterConfig:
    folder = tmp_path_factory.mktemp("one")
    (folder / "cluster.toml").write_text(CLUSTER, encoding="utf-8")
    make_certificates(folder / "certs", "one", ["g0/0", "client/alice", "kv"], hosts=HERE)
    return load_config(folder)


def secure(found: Gateway, config: ClusterConfig, certificate: str | None = None) -> "redis.Redis[bytes]":
    folder = config.path.parent / "certs"
    own = (
        {"ssl_certfile": f"{folder / certificate}.crt", "ssl_keyfile": f"{folder / certificate}.key"}
        if certificate
        else {}
    )
    return redis.Redis(
        host="localhost", port=found.server.port, ssl=True, ssl_ca_certs=str(folder / "ca.crt"), **own,
        username="default", password="secret of default", retry=NO_RETRY,
    )  # fmt: skip


def test_redis_py_connects_with_tls(config: ClusterConfig) -> None:
    with gateway_in_thread(1, users=USERS, context=store_context(config, False)) as found:
        with secure(found, config) as client:
            assert client.set("a", "1") is True and client.get("a") == b"1"
        for ssl in (False, True):  # in plain text, and who trusts other authorities
            with redis.Redis(port=found.server.port, ssl=ssl, retry=NO_RETRY) as other:
                with pytest.raises(redis.ConnectionError):
                    other.ping()


def test_clients_may_be_asked_for_a_certificate(config: ClusterConfig) -> None:
    options = {"users": USERS, "context": store_context(config, True), "members": config, "log": io.StringIO()}
    with gateway_in_thread(1, **options) as found:
        with secure(found, config, "client-alice") as client:
            assert client.ping() is True
        for other in (None, "g0-0"):
            with secure(found, config, other) as client, pytest.raises(redis.ConnectionError):
                client.ping()


def test_a_certificate_that_is_no_good_any_more_is_hung_up_on(config: ClusterConfig, tmp_path: Path) -> None:
    """At once: when its CA is dropped, and when cluster.toml has its client no more."""
    make_certificates(tmp_path, "one", [])
    options = {"users": USERS, "context": store_context(config, True), "members": config, "log": io.StringIO()}
    with gateway_in_thread(1, **options) as found:

        def look_again(clients: dict[str, Grant], ca: Path) -> bool:
            with secure(found, config, "client-alice") as client:
                assert client.ping() is True
                (task,) = [connection.task for connection in found.connections]
                assert task is not None
                members, authorities = replace(config, clients=clients), read_certificates(ca)
                task.get_loop().call_soon_threadsafe(found.look_again, members, authorities)
                if until(lambda: not found.connections, 0.5):
                    return False
                assert client.ping() is True
            assert until(lambda: not found.connections, 20)
            return True

        assert config.tls is not None
        assert look_again(config.clients, config.tls.ca)
        assert not look_again(config.clients, tmp_path / "ca.crt")
        assert not look_again({}, config.tls.ca)
        with secure(found, config, "client-alice") as client, pytest.raises(redis.ConnectionError):
            client.ping()


def test_a_store_is_no_replica_and_a_client_no_store(config: ClusterConfig) -> None:
    """Its certificate opens no connection, and its name is in no cluster.toml."""
    from cryptography import x509

    read = x509.load_pem_x509_certificate((config.path.parent / "certs" / "kv.crt").read_bytes())
    uses = read.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]


# Where it listens


@pytest.mark.parametrize(
    ("where", "users", "missing"),
    [
        (Port("0.0.0.0", 1), False, "users ('amcast kv-user {} NAME' adds one) and --tls"),
        (Port("0.0.0.0", 1, tls=True), False, "users ('amcast kv-user {} NAME' adds one)"),
        (Port("::", 1), True, "--tls"),
        (Port("10.1.2.3", 1), True, "--tls"),
        (Port("", 1), True, "--tls"),
        (Port("store.example.com", 1, tls=True), True, None),
        (Port("0.0.0.0", 1, tls=True), True, None),
        (Port("127.0.0.1", 1), False, None),
        (Port("::1", 1), False, None),
        (Port("localhost", 1), False, None),
    ],
)
def test_nothing_is_open_to_others_by_mistake(
    where: Port, users: bool, missing: str | None, config: ClusterConfig
) -> None:
    if missing is None:
        refuse_open_port(where, users, config)
        return
    with pytest.raises(UsageError) as refused:
        refuse_open_port(where, users, config)
    expected = missing.format(config.path.parent)
    assert str(refused.value) == (
        f"--host {where.host} can be reached from other machines: expected {expected}, or --host 127.0.0.1"
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--host 0.0.0.0", "can be reached from other machines"),
        ("--host 999.1.1.1", "can be reached from other machines"),
        ("--client-certs", "--client-certs without --tls: expected both"),
        ("--tls", "no certificate of the store; make it: amcast certs"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    options: str, complaint: str, config: ClusterConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER, encoding="utf-8")
    make_certificates(tmp_path / "certs", "one", ["client/alice"])
    assert run(["kv", str(tmp_path), *options.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_an_address_that_is_none() -> None:
    async def go() -> None:
        found = Gateway(InProcess(1))
        for host, why in (("999.1.1.1", "no such host; choose another --host"), ("127.9.9.9.9", "no such host")):
            with pytest.raises(OSError) as refused:
                await found.listen(host, 0)
            assert why in gateway_module.why_not(refused.value)
        with pytest.raises(OSError) as refused:
            await found.listen("192.0.2.1", 0)
        assert gateway_module.why_not(refused.value) == "it is not an address of this machine; choose another --host"

    asyncio.run(go())


# The file and its command


def test_users_are_kept_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "kv-users.toml"
    odd = User("a.b", hashed("x" * 8, CHEAP), frozenset(), ('"\\\n', "ü*", "[a-z]\x7f"))
    write_users(file, {**USERS, "a.b": odd})
    assert read_users(file) == {**USERS, "a.b": odd} and file.stat().st_mode & 0o777 == 0o600
    assert read_users(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x", "is not TOML"),
        ("[alice]\nmay = []", "expected a table with password, may, keys"),
        ("[alice]\npassword = 'plain'\nmay = []\nkeys = []", "set it anew"),
        ("[alice]\npassword = 'scrypt:60:8:5:AA==:AA=='\nmay = []\nkeys = []", "set it anew"),
        ("[alice]\npassword = 'scrypt:4:1:1:AA==:AA=='\nmay = ['reed']\nkeys = []", "did you mean read?"),
        ("[alice]\npassword = 'scrypt:4:1:1:AA==:AA=='\nmay = 'read'\nkeys = []", "expected a list of texts"),
        ("['a b']\npassword = 'scrypt:4:1:1:AA==:AA=='\nmay = []\nkeys = []", "expected a name"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "kv-users.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(UsageError, match=complaint):
        read_users(file)


def test_a_file_that_others_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kv-users.toml"
    write_users(file, USERS)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="mode 0644: others may use it; chmod 0600"):
        read_users(file)


def test_the_command(config: ClusterConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, secret = str(config.path.parent), tmp_path / "secret"
    secret.write_text("correct horse\n", encoding="utf-8")
    added = [
        "kv-user",
        folder,
        "alice",
        "--may",
        "read",
        "--keys",
        "a:*",
        "--keys",
        "b",
        "--password-file",
        str(secret),
    ]
    assert run(added) == 0
    assert "1 user; a gateway that runs goes on without users until it is started again" in capsys.readouterr().out
    assert run(["kv-user", folder, "bob", "--password-file", str(secret)]) == 0
    assert "2 users; a gateway takes up changes on SIGHUP" in capsys.readouterr().out
    found = read_users(config.path.parent / "kv-users.toml")
    assert found is not None and list(found) == ["alice", "bob"]
    assert (found["alice"].may, found["alice"].keys) == ({"read"}, ("a:*", "b")) and found["bob"].keys == ("*",)
    assert is_right(found["alice"].password, "correct horse") and found["alice"].password != found["bob"].password
    assert run(["kv-user", folder, "alice", "--remove"]) == 0
    assert list(read_users(config.path.parent / "kv-users.toml") or ()) == ["bob"]
    capsys.readouterr()
    secret.write_text("short", encoding="utf-8")
    for arguments, complaint in {
        "alice --remove": "there is no user 'alice'; expected one of bob",
        f"alice --password-file {secret}": "a password of 5 bytes: expected 8 to 512",
        "alice --password-file /none": "/none: cannot be read",
        "a/b": "user 'a/b': expected up to 63 letters",
        "alice --may all": "--may: there is no right 'all'",
    }.items():
        assert run(["kv-user", folder, *arguments.split()]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert complaint in line
    asked = subprocess.run(
        [sys.executable, "-m", "amcast", "kv-user", folder, "eve"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 2 and "expected --password-file FILE" in asked.stderr


def test_sighup_takes_up_users(config: ClusterConfig, tmp_path: Path) -> None:
    """As a process, of a cluster that is stopped: users need no quorum. What cannot be read changes nothing."""
    for name in ("cluster.toml", "certs"):
        (tmp_path / name).symlink_to(config.path.parent / name)
    file = tmp_path / "kv-users.toml"
    write_users(file, {"default": USERS["default"]})
    command = [sys.executable, "-m", "amcast", "kv", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as gateway_process:
        assert gateway_process.stdout is not None and gateway_process.stderr is not None
        port = int(gateway_process.stdout.readline().split()[-1])

        def reloaded() -> str:
            gateway_process.send_signal(signal.SIGHUP)
            assert gateway_process.stderr is not None
            events = (str(json.loads(line)["event"]) for line in gateway_process.stderr)
            return next(event for event in events if "read again" in event)

        def logs_in(name: str) -> bool:
            line = f"AUTH {name} 'secret of {name}'\n".encode()
            return asyncio.run(talk(port, line)) == b"+OK\r\n"

        try:
            assert logs_in("default") and not logs_in("reader")
            write_users(file, USERS)
            assert reloaded() == "users and certificates read again"
            assert logs_in("default") and logs_in("reader")
            for broken in ("[", None):
                file.write_text(broken, encoding="utf-8") if broken else file.unlink()
                assert reloaded() == "not read again"
                assert logs_in("reader") and not logs_in("nobody")
        finally:
            gateway_process.terminate()
        assert gateway_process.wait(timeout=allow(20)) == 0
