"""`amcast cluster init` and `amcast certs`: what they write can be run as it is, and nothing is ever overwritten."""

import socket
from pathlib import Path

import pytest
from calling import Amcast

from amcast.runtime.config import LATER_GROUPS, load_config
from amcast.runtime.tls import client_context, names_of, server_context


def test_a_cluster_can_be_run_as_it_is_written(amcast: Amcast, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cluster"
    done = amcast("cluster", "init", folder, "--groups", 2)
    assert (done.code, done.err) == (0, "")
    config = load_config(folder / "cluster.toml")
    assert (
        config.name in done.out and "2 groups of 3 replicas" in done.out and f"amcast cluster up {folder}" in done.out
    )
    assert (config.protocol, config.app, config.durable) == ("white_box", "kv", True)
    assert config.topology.groups == ((0, 1, 2), (3, 4, 5))
    assert all(member.data.is_dir() and member.data.is_relative_to(folder) for member in config.members)
    assert config.clients["dev"].read == config.clients["dev"].write == frozenset(range(2 + LATER_GROUPS))
    for name in names_of(config):
        client_context(config, name)
    server_context(config, "g1/2")
    for member in config.members:
        for address in (member.peer, member.client, member.admin):
            with socket.create_server((address.host, address.port)):
                pass


def test_options_are_written_down(amcast: Amcast, tmp_path: Path) -> None:
    options = "--groups 1 --replicas 1 --protocol skeen --app bank --insecure-dev --memory-only".split()
    assert amcast("cluster", "init", tmp_path, *options).code == 0
    config = load_config(tmp_path / "cluster.toml")
    assert (config.protocol, config.app, config.durable, config.tls) == ("skeen", "bank", False, None)
    assert not (tmp_path / "certs").exists()
    done = amcast("certs", tmp_path)
    assert done.code == 2 and "there is no [tls]" in done.err


def test_ports_in_a_row_from_where_it_is_wanted(amcast: Amcast, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = amcast("cluster", "init", tmp_path / "a", "--insecure-dev", "--base-port", port)
        assert done.code == 2 and f"port {port} is in use" in done.err and not (tmp_path / "a").exists()
    from amcast.local.files import free_ports

    base = free_ports(9, None)
    assert amcast("cluster", "init", tmp_path, "--groups", 1, "--insecure-dev", "--base-port", base).code == 0
    config = load_config(tmp_path / "cluster.toml")
    assert [getattr(m, key).port for m in config.members for key in ("peer", "client", "admin")] == [
        *range(base, base + 9)
    ]


def test_certificates_are_kept_renewed_and_added(amcast: Amcast, tmp_path: Path) -> None:
    amcast("cluster", "init", tmp_path, "--groups", 1)
    done = amcast("certs", tmp_path)
    assert done.code == 0 and done.out.startswith("0 made, 4 kept")
    done = amcast("certs", tmp_path, "--client", "bob")
    assert done.code == 2 and "there is no client 'bob'; add [clients.bob]" in done.err
    with open(tmp_path / "cluster.toml", "a") as file:
        file.write('\n[clients.bob]\nread = ["g0"]\n')
    done = amcast("certs", tmp_path, "--client", "bob")
    assert done.code == 0 and "client-bob.crt" in done.out and "1 made, 0 kept" in done.out
    done = amcast("certs", tmp_path, "--renew")
    assert done.code == 0 and "5 made, 0 kept" in done.out
    client_context(load_config(tmp_path / "cluster.toml"), "client/bob")


def test_the_steps_to_a_new_ca_say_what_comes_next(amcast: Amcast, tmp_path: Path) -> None:
    amcast("cluster", "init", tmp_path, "--groups", 1)
    done = amcast("certs", tmp_path, "--new-ca", "use")
    assert done.code == 2 and "1 CA is trusted, expected the old and the new; 'trust' comes first" in done.err
    done = amcast("certs", tmp_path, "--new-ca", "trust", "--renew")
    assert done.code == 2 and "--new-ca with --renew, --client or --kv: expected it alone" in done.err
    for step, made, then in (
        ("trust", 0, "then --new-ca use"), ("use", 4, "then --new-ca drop"), ("drop", 0, "then it is done"),
    ):  # fmt: skip
        done = amcast("certs", tmp_path, "--new-ca", step)
        assert done.code == 0 and f"{made} made" in done.out and then in done.out
    config = load_config(tmp_path / "cluster.toml")
    for name in names_of(config):
        client_context(config, name)


MISTAKES = {
    # what is typed: what the line must say
    "init": "Missing argument 'DIR'",
    "init OLD": "cluster.toml: there is a cluster already",
    "init LEFT": "LEFT/data: is there, without a cluster.toml beside it",
    "init FILE": "FILE: is a file; expected a folder, or a name that is free",
    "init NEW --groups 0": "--groups",
    "init NEW --groups 1000 --replicas 99": "ports",
    "init NEW --replicas 2": "odd",
    "init NEW --protocol whitebox": "did you mean white_box?",
    "init NEW --protocol skeen": "use --replicas 1",
    "init NEW --protocol skeen --replicas 1": "add --memory-only",
    "init NEW --protocol lcr --groups 1": "add --memory-only",
    "init NEW --protocol multi_paxos --memory-only": "use --groups 1",
    "init NEW --app kw": "unknown application 'kw': did you mean kv?",
    "init NEW --base-port 0": "--base-port",
    "init NEW --base-port 65535": "--base-port 65535: 27 ports from there end above 65535; expected 65509 or less",
    "up": "Missing argument 'CLUSTER'",
    "up .": "cluster.toml: cannot be read",
    "up OLD/cluster.tom": "cluster.tom: cannot be read",
    "up FILE": "there is no [cluster]; add it",
    "up NOTHING": "'amcast cluster init DIR' makes a cluster",
    "up BROKEN": "unknown key 'protcol': did you mean protocol?",
    "status NOTHING": "cannot be read",
    "logs OLD g7/0": "no replica 'g7/0'",
    "logs OLD --lines -1": "--lines",
    "kill OLD": "Missing argument 'ID'",
    "kill OLD g0/0": "g0/0 is not running; start it with",
    "kill OLD g0/0 --signal HURT": "there is no signal 'HURT'",
    "kill OLD g7/0": "no replica 'g7/0'",
    "restart OLD g7/0": "no replica 'g7/0'",
    "down NOTHING": "cannot be read",
    "nonsense": "No such command 'nonsense'",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.chdir(tmp_path)
    amcast("cluster", "init", "OLD", "--groups", 1, "--insecure-dev")
    (tmp_path / "FILE").touch()
    (tmp_path / "LEFT" / "data" / "g0-2").mkdir(parents=True)
    (tmp_path / "BROKEN").mkdir()
    (tmp_path / "BROKEN" / "cluster.toml").write_text('[cluster]\nprotcol = "skeen"\n')
    done = amcast("cluster", *typed.split())
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("amcast: ") and done.err.count("\n") == 1 and MISTAKES[typed] in done.err
    assert not (tmp_path / "NEW").exists() and len(list(tmp_path.glob("LEFT/**/*"))) == 2


def test_spare_replicas(amcast: Amcast, tmp_path: Path) -> None:
    options = "--groups 1 --replicas 4 --spare 2 --protocol allconcur --app ledger --memory-only --insecure-dev".split()
    done = amcast("cluster", "init", tmp_path / "a", *options)
    assert done.code == 0 and "1 group of 4 replicas and 2 to join" in done.out
    config = load_config(tmp_path / "a" / "cluster.toml")
    assert [member.name for member in config.members if config.is_spare(member)] == ["g0/4", "g0/5"]
    done = amcast("cluster", "init", tmp_path / "b", "--spare", 1)
    assert done.code == 2 and "white_box has fixed members" in done.err and not (tmp_path / "b").exists()
    done = amcast("cluster", "join", tmp_path / "a", "g0/1")
    assert done.code == 2 and "g0/1 is a member from the start" in done.err
    done = amcast("cluster", "leave", tmp_path / "a", "g0/1")
    assert done.code == 2 and "g0/1 is not running" in done.err
    amcast("cluster", "init", tmp_path / "c", "--groups", 1)
    done = amcast("cluster", "leave", tmp_path / "c", "g0/1")
    assert done.code == 2 and "white_box has fixed members" in done.err
    done = amcast("cluster", "status", tmp_path / "a")
    assert done.code == 1 and done.out.count("stopped") == 4 and done.out.count("spare") == 2
