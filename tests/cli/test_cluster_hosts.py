"""`amcast cluster init --hosts`: a bundle per machine is all that a machine needs, and no more than it may have."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from calling import Amcast
from tests.pace import allow, until

import amcast as library
from amcast.local.processes import ask
from amcast.runtime.config import load_config

HOSTS = "127.0.71.1,127.0.71.2,127.0.71.3"  # loopback, as if they were three machines


def test_each_machine_gets_its_own_keys_and_no_other(amcast: Amcast, tmp_path: Path) -> None:
    done = amcast("cluster", "init", tmp_path / "c", "--groups", 2, "--hosts", "a, b,c,d")
    assert done.code == 0, done.err
    assert f"{tmp_path}/c/bundles/b: g0/1, g1/0" in done.out
    keys = {}
    for bundle in (tmp_path / "c" / "bundles").iterdir():
        keys[bundle.name] = sorted(path.stem for path in (bundle / "certs").glob("*.key"))
        assert (bundle / "cluster.toml").read_text() == (tmp_path / "c" / "cluster.toml").read_text()
        assert (bundle / "certs" / "ca.crt").exists()
        for path in (bundle / "certs").glob("*.key"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys == {
        "a": ["g0-0"],
        "b": ["g0-1", "g1-0"],
        "c": ["g0-2", "g1-1"],
        "d": ["g1-2"],
        "client": ["client-dev"],
    }
    addresses = {member.name: str(member.peer) for member in load_config(tmp_path / "c").members}
    assert addresses["g0/1"] == "b:4100" and addresses["g1/0"] == "b:4103"
    assert (tmp_path / "c" / "certs" / "ca.key").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--hosts", "a,b"], "2 machines for groups of 3; expected at least 3"),
        (["--hosts", "a,b,a"], "a machine stands there twice"),
        (["--hosts", "a,b,c/d"], "'c/d' is no name"),
        (["--hosts", "a,b,client"], "'client' is no name"),
        (["--hosts", "a,b,"], "'' is no name"),
        (["--hosts", "a,b,c", "--insecure-dev"], "loopback only"),
        (["--hosts", "a,b,c", "--base-port", 65530], "ports up to 65538"),
        (["--hosts", "a,b,c", "--protocol", "skeen"], "use --replicas 1"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_and_nothing_is_written(
    amcast: Amcast, tmp_path: Path, options: list[object], why: str
) -> None:
    done = amcast("cluster", "init", tmp_path / "c", *options)
    assert done.code == 2 and why in done.err and done.err.count("\n") == 1, done.err
    assert not (tmp_path / "c").exists()


def test_a_folder_with_something_in_it_is_left_alone(amcast: Amcast, tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    done = amcast("cluster", "init", tmp_path, "--hosts", "a,b,c")
    assert done.code == 2 and "is not empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


@pytest.mark.slow
def test_three_machines_serve_from_their_bundles_alone(amcast: Amcast, tmp_path: Path) -> None:
    """What was made is moved away, each bundle into a folder of its own, and started by the documented command."""
    assert amcast("cluster", "init", tmp_path / "c", "--groups", 2, "--hosts", HOSTS).code == 0
    shutil.rmtree(tmp_path / "c" / "certs")
    bundles = {
        bundle.name: shutil.move(bundle, tmp_path / bundle.name) for bundle in (tmp_path / "c/bundles").iterdir()
    }
    config = load_config(tmp_path / "client")
    nodes = {}
    try:
        for member in config.members:
            command = [sys.executable, "-m", "amcast", "node", "cluster.toml", member.name, "--new"]
            nodes[member] = subprocess.Popen(command, cwd=bundles[member.peer.host], stderr=subprocess.DEVNULL)
        for member in nodes:
            assert until(lambda member=member: (ask(member.admin, "/readyz") or [0])[0] == 200, 120), member.name
        with library.connect_sync(tmp_path / "client", deadline=allow(30)) as client:
            assert set(client.multicast(["g0", "g1"], b"hello")) == {"g0", "g1"}
            nodes[config.member("g0/0")].kill()
            assert set(client.multicast(["g0", "g1"], b"again")) == {"g0", "g1"}
    finally:
        for node in nodes.values():
            node.kill()
            node.wait()
    assert not os.path.exists(tmp_path / "c" / "data")
