"""Certificates and the CA of a cluster are replaced while it serves: no call fails; who is not trusted is cut off."""

import asyncio
import shutil
import signal
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from nodes import SESSION, Load, Raw, greeting
from tests.pace import allow, until

from amcast.errors import UsageError
from amcast.local.trial import Trial
from amcast.runtime import frames
from amcast.runtime.certificates import is_issued_by, make_certificates, read_certificates, replace_ca
from amcast.runtime.config import load_config
from amcast.runtime.serving import session_of
from amcast.runtime.tls import client_context, names_of
from amcast.service import connect

NAMES = ("g0/0", "client/alice")


def test_the_steps_to_a_new_ca(tmp_path: Path) -> None:
    make_certificates(tmp_path, "one", NAMES)
    (old,) = read_certificates(tmp_path / "ca.crt")

    def refused(step: str, why: str) -> None:
        with pytest.raises(UsageError, match=why):
            replace_ca(tmp_path, "one", step)

    for step in ("use", "drop"):
        refused(step, "1 CA is trusted, expected the old and the new; 'trust' comes first")
    replace_ca(tmp_path, "one", "trust")
    refused("trust", "2 CAs are trusted already, expected 1; 'use' comes next")
    refused("drop", "the old CA still signs, expected the new one; 'use' comes first")
    assert make_certificates(tmp_path, "one", ["client/bob"]) == ["client/bob"]
    assert is_issued_by(read_certificates(tmp_path / "client-bob.crt")[0], [old]), "nobody else is trusted by all"
    (tmp_path / "ca-next.key").rename(tmp_path / "away")
    refused("use", "ca-next.key: is not the key of the last CA in ca.crt")
    (tmp_path / "away").rename(tmp_path / "ca-next.key")
    for _ in range(2):  # also after it was interrupted
        replace_ca(tmp_path, "one", "use")
    refused("trust", "2 CAs are trusted already, expected 1; 'drop' comes next")
    assert make_certificates(tmp_path, "one", NAMES) == list(NAMES), "by the new one"
    assert make_certificates(tmp_path, "one", NAMES) == []
    refused("drop", "client-bob.crt: is from the old CA, expected one of the new; 'use' makes it, or remove it")
    make_certificates(tmp_path, "one", ["client/bob"])
    replace_ca(tmp_path, "one", "drop")
    (new,) = read_certificates(tmp_path / "ca.crt")
    assert new != old and is_issued_by(read_certificates(tmp_path / "g0-0.crt")[0], [new])
    assert make_certificates(tmp_path, "one", [*NAMES, "client/bob"]) == []
    assert not (tmp_path / "ca-next.key").exists()


def test_the_ca_is_replaced_under_load(tmp_path: Path) -> None:
    with Trial(tmp_path / "bank", groups=2, replicas=3, app="log", traced=False) as trial:
        config, members = trial.config, trial.config.members
        assert config.tls is not None
        folder = config.tls.folder
        again = 0

        def read_again() -> None:
            nonlocal again
            again += 1
            for member in members:
                trial.processes.signal(member, signal.SIGHUP)
            for member in members:
                log = trial.processes.log(member)
                assert until(lambda log=log: log.read_text().count("certificates read again") == again, 20)  # type: ignore[misc]

        stolen = tmp_path / "stolen"  # the files of a client before the new CA; whoever has them is to be cut off
        stolen.mkdir()
        shutil.copytree(folder, stolen / "certs")
        shutil.copy(config.path, stolen)

        def step(name: str) -> None:
            replace_ca(folder, config.name, name)
            make_certificates(folder, config.name, [] if name == "trust" else names_of(config))

        async def rotate() -> int:
            async with connect(config.path, "dev", deadline=allow(30)) as client:
                load = Load(client, ["g0", "g1"])
                await load.more()
                for name in ("trust", "use"):
                    await asyncio.to_thread(step, name)
                    await load.more()
                    await asyncio.to_thread(read_again)
                    await load.more()
                shutil.copy(folder / "ca.crt", stolen / "certs")
                outsider = client_context(load_config(stolen / "cluster.toml"), "client/dev")
                hello = greeting(config, "client/dev", session_of("client/dev", SESSION))
                with Raw(members[0].client, outsider) as silent, Raw(members[0].client, outsider).send(hello) as said:
                    assert (said.receive() or (0,))[0] == frames.WELCOME
                    await asyncio.to_thread(step, "drop")
                    await load.more()
                    await asyncio.to_thread(read_again)
                    assert silent.send(hello).receive() is None, "it came by what was trusted then"
                    while (told := said.receive()) is not None:
                        assert told[0] == frames.CONDITION
                await load.more(200)
                return await load.stop()

        assert asyncio.run(rotate()) > 400
        (new,) = read_certificates(config.tls.ca)
        with Raw(members[0].client, client_context(config, "client/dev")) as raw:
            assert isinstance(raw.socket, ssl.SSLSocket) and (shown := raw.socket.getpeercert(binary_form=True))
            assert is_issued_by(x509.load_der_x509_certificate(shown), [new])
        with Raw(members[0].client, client_context(load_config(stolen / "cluster.toml"), "client/dev")) as raw:
            assert raw.receive() is None
        for member in members:
            assert trial.processes.why_not_ready(member) is None
            assert "disconnected" in trial.processes.log(member).read_text(), "links of the old CA do not last"
