"""A cluster's file: what it says is what the node gets, and whatever it cannot mean is one clear line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from amcast.errors import UsageError
from amcast.runtime.config import LATER_GROUPS, Address, ClusterConfig, Grant, Tls, load_config

GOOD = """
[cluster]
name = "amcast-7f3a91"
protocol = "white_box"
app = "kv"
durable = true

[tls]
ca = "certs/ca.crt"
folder = "certs"

[[replica]]
id = "g1/0"
peer = "[2001:db8::1]:4100"
client = "host.example:4101"
admin = "10.0.0.1:4102"

[[replica]]
id = "g0/1"
peer = "127.0.0.1:4103"
client = "127.0.0.1:4104"
admin = "127.0.0.1:4105"
data = "/var/lib/amcast"

[[replica]]
id = "g0/0"
peer = "127.0.0.1:4106"
client = "127.0.0.1:4107"
admin = "127.0.0.1:4108"

[clients.alice]
read = ["*"]
write = ["g1"]

[clients.bob]
"""

Load = Callable[[str], ClusterConfig]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.delenv("AMCAST_DATA", raising=False)

    def write_and_load(text: str) -> ClusterConfig:
        (tmp_path / "cluster.toml").write_text(text)
        return load_config(tmp_path / "cluster.toml", ("skeen", "white_box"), ("log", "kv"))

    return write_and_load


def test_what_a_file_says(load: Load, tmp_path: Path) -> None:
    config = load(GOOD)
    assert config.path == tmp_path / "cluster.toml"
    assert (config.name, config.protocol, config.app, config.durable) == ("amcast-7f3a91", "white_box", "kv", True)
    assert config.topology.groups == ((0, 1), (2,)) and not config.topology.clients
    assert [(m.name, m.pid, m.group, m.rank) for m in config.members] == [
        ("g0/0", 0, 0, 0),
        ("g0/1", 1, 0, 1),
        ("g1/0", 2, 1, 0),
    ]
    assert [m.data for m in config.members] == [
        tmp_path / "data/g0-0",
        Path("/var/lib/amcast"),
        tmp_path / "data/g1-0",
    ]
    assert config.member("g1/0").peer == Address("2001:db8::1", 4100)
    assert str(config.member("g1/0").peer) == "[2001:db8::1]:4100"
    assert str(config.member("g1/0").client) == "host.example:4101"
    assert config.clients == {
        "alice": Grant("alice", frozenset(range(2 + LATER_GROUPS)), frozenset({1})),
        "bob": Grant("bob", frozenset(), frozenset()),
    }
    assert config.tls == Tls(tmp_path / "certs/ca.crt", tmp_path / "certs")
    assert config.largest_message == 2**20


def test_times_are_nanoseconds_for_the_protocol(load: Load) -> None:
    params = load(GOOD).params()
    assert (params.delta, params.heartbeat, params.suspect_after) == (20_000_000, 100_000_000, 800_000_000)
    assert params.durable
    params = load(GOOD + "[timing]\ndelta_ms = 0.5\nheartbeat_ms = 2\nsuspect_ms = 9.5").params()
    assert (params.delta, params.heartbeat, params.suspect_after) == (500_000, 2_000_000, 9_500_000)


def test_the_environment_moves_all_data(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMCAST_DATA", str(tmp_path / "elsewhere"))
    assert [m.data.relative_to(tmp_path).as_posix() for m in load(GOOD).members] == [
        "elsewhere/g0-0",
        "elsewhere/g0-1",
        "elsewhere/g1-0",
    ]


def test_an_unknown_replica_is_named_with_those_there_are(load: Load) -> None:
    with pytest.raises(UsageError, match=r"no replica 'g0/2' .*: expected one of g0/0, g0/1, g1/0$"):
        load(GOOD).member("g0/2")


NO_TLS = ('[tls]\nca = "certs/ca.crt"\nfolder = "certs"', "")
MISTAKES: dict[str, tuple[str, str, str]] = {
    # what is wrong: what is replaced, by what, and what the line must say
    "no TOML": ("[cluster]", "[cluster", "is not TOML"),
    "unknown table": ("[tls]", "[tsl]", "unknown key 'tsl': did you mean tls?"),
    "unknown key": ("protocol =", "protcol =", "[cluster]: unknown key 'protcol': did you mean protocol?"),
    "unknown key of a replica": ("peer =", "pear =", "[[replica]] 1: unknown key 'pear': did you mean peer?"),
    "unknown key of a client": ("read =", "reads =", "[clients.alice]: unknown key 'reads': did you mean read?"),
    "no cluster": (GOOD.partition("[tls]")[0], "", "there is no [cluster]"),
    "no name": ('name = "amcast-7f3a91"', "", "name is missing"),
    "slash in a name": ("amcast-7f3a91", "a/b", "name = 'a/b'"),
    "unknown protocol": ("white_box", "whitebox", "did you mean white_box?"),
    "strange protocol": ("white_box", "zzz", "expected one of skeen, white_box"),
    "unknown app": ('"kv"', '"kw"', "app = 'kw': there is no such application; did you mean kv?"),
    "not a flag": ("durable = true", "durable = 1", "durable = 1: expected true or false"),
    "not a text": ('app = "kv"', "app = 3", "app = 3: expected a text"),
    "too large": ("durable = true", "largest_message = 0", "expected a whole number from 1 to"),
    "no replicas": (GOOD[GOOD.index("[[replica]]") : GOOD.index("[clients.alice]")], "", "there is no [[replica]]"),
    "no id": ('id = "g0/1"', "", "[[replica]] 2: id is missing"),
    "odd id": ('id = "g0/1"', 'id = "g0/01"', "id = 'g0/01': expected group and rank"),
    "same id": ('id = "g0/1"', 'id = "g0/0"', "id = 'g0/0': there is another"),
    "gap in ranks": ('id = "g0/1"', 'id = "g0/2"', "there is a replica g0/2 but no g0/1"),
    "no first replica": ('id = "g0/0"', 'id = "g1/1"', "there is a replica g0/1 but no g0/0"),
    "gap in groups": ('id = "g1/0"', 'id = "g2/0"', "there is a replica g2/0 but no g1/0"),
    "same port": (":4103", ":4108", "127.0.0.1:4108 is admin of g0/0 and peer of g0/1"),
    "same port by name": ("127.0.0.1:4103", "localhost:4108", "localhost:4108 is admin of g0/0 and peer of g0/1"),
    "same data": ('id = "g0/0"', 'id = "g0/0"\ndata = "/var/lib/../lib/amcast"', "is of g0/0 and g0/1"),
    "no port": ("127.0.0.1:4103", "127.0.0.1", "expected host:port"),
    "large port": (":4103", ":65536", "expected host:port"),
    "bare v6": ("127.0.0.1:4103", "::1:4103", "expected host:port"),
    "no host": ("127.0.0.1:4103", ":4103", "expected host:port"),
    "wildcard": ("127.0.0.1:4103", "0.0.0.0:4103", "others cannot reach"),
    "plaintext outside": (*NO_TLS, "client of g1/0 is host.example:4101, and there is no [tls]"),
    "unknown group": ('write = ["g1"]', 'write = ["g2"]', "there is no group 'g2'; expected some of g0, g1, or *"),
    "not a list": ('write = ["g1"]', 'write = "g1"', "expected a list of groups"),
    "client's name": ("clients.bob", 'clients."b/b"', "'b/b' is no name"),
    "slow heartbeat": ("[tls]", "[timing]\nheartbeat_ms = 900\n[tls]", "expected several heartbeats before"),
    "no time": ("[tls]", "[timing]\ndelta_ms = 0\n[tls]", "delta_ms = 0: expected milliseconds"),
    "not a time": ("[tls]", "[timing]\ndelta_ms = nan\n[tls]", "delta_ms = nan: expected milliseconds"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_file(load: Load, tmp_path: Path, mistake: str) -> None:
    there, instead, said = MISTAKES[mistake]
    assert there in GOOD
    text = GOOD.replace(there, instead, 1)
    if mistake == "plaintext outside":
        text = text.replace("[2001:db8::1]", "[::1]")
    with pytest.raises(UsageError) as raised:
        load(text)
    line = str(raised.value)
    assert said in line and line.startswith(str(tmp_path / "cluster.toml")) and "\n" not in line


def test_plaintext_on_loopback_is_taken(load: Load) -> None:
    text = GOOD.replace(*NO_TLS)
    for address, loopback in {"[2001:db8::1]": "[::1]", "host.example": "localhost", "10.0.0.1": "127.0.0.2"}.items():
        text = text.replace(address, loopback)
    assert load(text).tls is None


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read .* 'amcast cluster init DIR' makes a cluster"):
        load_config(tmp_path / "cluster.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(tmp_path)
