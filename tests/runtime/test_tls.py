"""Mutual TLS on real sockets: only members of the cluster get in, and others leave the listener as it was."""

import asyncio
import os
import signal
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from nodes import Raw
from tests.pace import until

from amcast.errors import IdentityRefused, UsageError
from amcast.local.trial import Trial
from amcast.runtime import certificates
from amcast.runtime.certificates import make_certificates, ready_ca, write_pair
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.tls import client_context, identity_of, server_context

NAMES = ("g0/0", "g0/1", "client/alice")
FILE = """
[cluster]
name = "{name}"
protocol = "white_box"
[tls]
ca = "certs/ca.crt"
folder = "certs"
[clients.alice]
"""
REPLICA = """
[[replica]]
id = "g0/{rank}"
peer = "127.0.0.1:{rank}0001"
client = "127.0.0.1:{rank}0002"
admin = "127.0.0.1:{rank}0003"
"""


def cluster(folder: Path, name: str = "one", replicas: int = 2, clients: tuple[str, ...] = ()) -> ClusterConfig:
    folder.mkdir(exist_ok=True)
    text = FILE.format(name=name) + "".join(f"[clients.{client}]\n" for client in clients)
    text += "".join(REPLICA.format(rank=rank + 1).replace(f"g0/{rank + 1}", f"g0/{rank}") for rank in range(replicas))
    (folder / "cluster.toml").write_text(text)
    return load_config(folder / "cluster.toml")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ClusterConfig:
    folder = tmp_path_factory.mktemp("one")
    make_certificates(folder / "certs", "one", NAMES)
    return cluster(folder)


def met(config: ClusterConfig, *contexts: ssl.SSLContext | None) -> list[str]:
    """What a listener of g0/0 says of each that connects, one after the other."""

    async def meet() -> list[str]:
        said: list[str] = []

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                said.append(identity_of(writer.get_extra_info("ssl_object"), config))
                writer.write(b"welcome")
            except IdentityRefused as error:
                said.append(f"refused: {error}")
            writer.close()

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=server_context(config, "g0/0"))
        port = server.sockets[0].getsockname()[1]
        for context in contexts:
            before = len(said)
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname="" if context else None
                )
                if context is None:
                    writer.write(b"GET / HTTP/1.1\r\n\r\n")
                else:
                    assert identity_of(writer.get_extra_info("ssl_object"), config, "g0/0") == "g0/0"
                await reader.read()
                writer.close()
            except (ssl.SSLError, ConnectionError):
                pass
            if len(said) == before:
                said.append("no handshake")
        server.close()
        return said

    return asyncio.run(meet())


def test_members_are_known_by_name(config: ClusterConfig) -> None:
    members = [client_context(config, name) for name in NAMES]
    assert met(config, *members) == list(NAMES)


Change = Callable[[x509.CertificateBuilder], x509.CertificateBuilder]


def signed(config: ClusterConfig, uris: list[str], change: Change) -> ssl.SSLContext:
    """A certificate of the cluster's own CA with these URIs, as a client would use it without checks of its own."""
    assert config.tls is not None
    folder = config.tls.folder
    ca, ca_key = ready_ca(folder, "one")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "g0/1")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    names: list[x509.GeneralName] = [x509.DNSName("g0-1"), *map(x509.UniformResourceIdentifier, uris)]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    write_pair(folder, "stranger", change(builder).sign(ca_key, hashes.SHA256()), key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_cert_chain(folder / "stranger.crt", folder / "stranger.key")
    context.load_verify_locations(config.tls.ca)
    return context


def in_date(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    return builder.not_valid_after(datetime.now(UTC) + timedelta(days=2))


def expired(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    return builder.not_valid_after(datetime.now(UTC) - timedelta(days=1))


def for_servers(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    return in_date(builder).add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)


STRANGERS: dict[str, tuple[list[str], Change, str]] = {
    "sound": (["amcast://one/g0/1"], in_date, "g0/1"),
    "expired": (["amcast://one/g0/1"], expired, "no handshake"),
    "not for clients": (["amcast://one/g0/1"], for_servers, "no handshake"),
    "no URI": ([], in_date, "refused: a certificate with 0 URIs (none); expected exactly one"),
    "two URIs": (["amcast://one/g0/1", "amcast://one/g0/0"], in_date, "refused: a certificate with 2 URIs"),
    "twice the same": (["amcast://one/g0/1"] * 2, in_date, "refused: a certificate with 2 URIs"),
    "other cluster": (["amcast://two/g0/1"], in_date, "which is not of this cluster, one"),
    "longer cluster": (["amcast://one.two/g0/1"], in_date, "which is not of this cluster, one"),
    "unknown replica": (["amcast://one/g0/2"], in_date, "which is not a member"),
    "unknown client": (["amcast://one/client/bob"], in_date, "which is not a member"),
    "a client that is called like a replica": (["amcast://one/client/g0/1"], in_date, "which is not a member"),
    "prefix": (["amcast://one/g0/1/"], in_date, "which is not a member"),
    "other case": (["amcast://one/G0/1"], in_date, "which is not a member"),
    "no name": (["amcast://one/"], in_date, "which is not a member"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_certificate_of_our_ca_is_not_enough(config: ClusterConfig, stranger: str) -> None:
    uris, change, said = STRANGERS[stranger]
    first, second = met(config, signed(config, uris, change), client_context(config, "g0/1"))
    assert said in first and second == "g0/1"


def test_other_ca_old_tls_no_certificate_and_plaintext_find_no_way_in(config: ClusterConfig, tmp_path: Path) -> None:
    make_certificates(tmp_path / "two" / "certs", "one", NAMES)
    other_ca = client_context(cluster(tmp_path / "two"), "g0/1")
    assert config.tls is not None
    other_ca.load_verify_locations(config.tls.ca)
    old = client_context(config, "g0/1")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname = False
    nobody.load_verify_locations(config.tls.ca)
    sound = client_context(config, "g0/1")
    assert met(config, other_ca, sound, old, sound, nobody, sound, None, sound) == ["no handshake", "g0/1"] * 4


def test_whoever_connects_refuses_another_server(config: ClusterConfig, tmp_path: Path) -> None:
    """With other than the expected name, and with a client's certificate although its name is as expected."""
    make_certificates(tmp_path / "two" / "certs", "one", NAMES)
    impostor = cluster(tmp_path / "two")

    async def meet(server_side: ssl.SSLContext, expected: str) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=server_side)
        try:
            port = server.sockets[0].getsockname()[1]
            context = client_context(config, "client/alice")
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="")
            identity_of(writer.get_extra_info("ssl_object"), config, expected)
            writer.close()
        finally:
            server.close()

    asyncio.run(meet(server_context(config, "g0/1"), "g0/1"))
    with pytest.raises(IdentityRefused, match="found g0/1 where g0/0 was expected"):
        asyncio.run(meet(server_context(config, "g0/1"), "g0/0"))
    with pytest.raises(ssl.SSLError):
        asyncio.run(meet(server_context(impostor, "g0/0"), "g0/0"))
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        asyncio.run(meet(server_context(config, "client/alice"), "client/alice"))


# Files


def refused(config: ClusterConfig, name: str) -> str:
    with pytest.raises(UsageError) as raised:
        server_context(config, name)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_is_wrong_with_the_own_certificate_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = cluster(tmp_path), tmp_path / "certs"
    assert "g0-0.crt: cannot be read (No such file or directory); 'amcast certs'" in refused(config, "g0/0")
    make_certificates(folder, "one", NAMES)
    server_context(config, "g0/0")
    assert "'g0/7' is not in" in refused(config, "g0/7")

    os.chmod(folder / "g0-0.key", 0o640)
    assert "mode 0640: others may read this private key; expected 0600" in refused(config, "g0/0")
    if os.geteuid() == 0:  # a secret that root mounts for a group
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 1000)
            server_context(config, "g0/0")
    os.chmod(folder / "g0-0.key", 0o644)
    assert "mode 0644: others may read this private key" in refused(config, "g0/0")
    os.chmod(folder / "g0-0.key", 0o600)

    (folder / "g0-0.key").write_bytes((folder / "g0-1.key").read_bytes())
    assert "g0-0.key: is not the key of the certificate" in refused(config, "g0/0")
    (folder / "g0-0.crt").write_bytes((folder / "g0-1.crt").read_bytes())
    assert "certificate of amcast://one/g0/1, expected amcast://one/g0/0" in refused(config, "g0/0")
    (folder / "g0-0.crt").write_text("junk")
    assert "g0-0.crt: is not a certificate in PEM" in refused(config, "g0/0")
    (folder / "g0-1.key").write_text("junk")
    assert "g0-1.key: is not a private key" in refused(config, "g0/1")

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "CLOCKS_DIFFER", timedelta(days=2))
        make_certificates(folder, "one", ["g0/0"], days=-1)
    assert "certificate of g0/0 expired on 20" in refused(config, "g0/0")
    assert refused(config, "g0/0").endswith("make new ones with 'amcast certs'")
    make_certificates(tmp_path / "other", "one", ["g0/0"])
    for suffix in ("crt", "key"):
        (folder / f"g0-0.{suffix}").write_bytes((tmp_path / "other" / f"g0-0.{suffix}").read_bytes())
    assert "g0-0.crt: is not from the CA in" in refused(config, "g0/0")


def test_certificates_are_made_once_and_renewed_when_asked_or_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "certs"
    assert make_certificates(folder, "one", NAMES) == list(NAMES)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == dict.fromkeys(
        ["ca.key", "g0-0.key", "g0-1.key", "client-alice.key"], 0o600
    )
    assert folder.stat().st_mode & 0o777 == 0o700
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert make_certificates(folder, "one", NAMES) == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert make_certificates(folder, "one", [*NAMES, "client/bob"]) == ["client/bob"]
    assert make_certificates(folder, "one", NAMES[:1], renew=True) == ["g0/0"]
    assert (folder / "ca.crt").read_bytes() == before["ca.crt"]
    assert (folder / "g0-0.crt").read_bytes() != before["g0-0.crt"]
    monkeypatch.setattr(certificates, "CLOCKS_DIFFER", timedelta(days=2))
    assert make_certificates(folder, "one", ["g0/1"], days=-1, renew=True) == ["g0/1"]
    assert make_certificates(folder, "one", NAMES, days=10) == ["g0/1"]
    assert make_certificates(folder, "one", NAMES) == []
    assert make_certificates(folder, "one", ["g0/1"], days=1, renew=True) == ["g0/1"]
    assert make_certificates(folder, "one", NAMES) == ["g0/1"], "the last third of its life is the time to renew it"
    serials = {certificates.read_certificates(path)[0].serial_number for path in folder.glob("*.crt")}
    assert len(serials) == 5


def test_a_ca_is_never_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, "one", NAMES)
    with pytest.raises(UsageError, match="CA of one, expected CN=CA of two"):
        make_certificates(tmp_path, "two", NAMES)
    (tmp_path / "ca.key").rename(tmp_path / "kept.key")
    with pytest.raises(UsageError, match=r"ca.key: is missing; certificates are made where the CA is whole"):
        make_certificates(tmp_path, "one", NAMES)
    (tmp_path / "g0-0.key").rename(tmp_path / "ca.key")
    with pytest.raises(UsageError, match=r"ca.key: is not the key of the CA"):
        make_certificates(tmp_path, "one", NAMES)


def test_a_node_takes_up_new_certificates_and_keeps_the_old_ones_if_they_are_broken(tmp_path: Path) -> None:
    """On SIGHUP, which would end a process that does not expect it."""
    with Trial(tmp_path, groups=1, replicas=1, app="log", traced=False) as trial:
        member, tls = trial.config.members[0], trial.config.tls
        assert tls is not None
        log = trial.processes.log(member)

        def shown() -> bytes | None:
            with Raw(member.client, client_context(trial.config, "client/dev")) as raw:
                assert isinstance(raw.socket, ssl.SSLSocket)
                return raw.socket.getpeercert(binary_form=True)

        def hang_up(expected: str) -> None:
            trial.processes.signal(member, signal.SIGHUP)
            assert until(lambda: expected in log.read_text(), 20), log.read_text()

        first = shown()
        make_certificates(tls.folder, trial.config.name, [member.name], renew=True)
        assert shown() == first, "read at the start"
        hang_up("certificates read again")
        second = shown()
        assert second not in (None, first)
        (tls.folder / "g0-0.key").write_bytes(b"nonsense")
        hang_up("certificates not read again")
        assert "Traceback" not in log.read_text()
        assert shown() == second, "the old ones stay"
