"""`amcast cluster trace`: who should be there is in cluster.toml, and the end row is written by who knows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Amcast

from amcast.runtime.config import Address, ClusterConfig, file_name, load_config
from amcast.runtime.tracing import TraceWriter
from amcast.tracefile import read_events

MESSAGES = 4
Status = dict[str, object]


@pytest.fixture
def config(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    """A cluster whose nodes all delivered what a client sent, and stopped."""
    monkeypatch.chdir(tmp_path)
    assert amcast("cluster", "init", "bank", "--groups", 2, "--insecure-dev").code == 0
    config = load_config("bank/cluster.toml")
    client = TraceWriter(Path("bank/trace/client.jsonl"), config.name, "c1", None)
    for number in range(MESSAGES):
        client.row("multicast", message=f"c1:{number}", sender="c1", dest=["g0", "g1"])
    client.close()
    for member in config.members:
        path = Path("bank/trace") / f"{file_name(member.name)}.jsonl"
        writer = TraceWriter(path, config.name, member.name, f"g{member.group}")
        writer.begin(3)
        for number in range(MESSAGES):
            writer.row("deliver", message=f"c1:{number}")
        writer.close()
    return config


def kinds(out: str) -> list[str]:
    return [event.kind for event in read_events(out)]


MISSING = {
    "one replica": ["g1-2"],
    "a group": ["g0-0", "g0-1", "g0-2"],
    "all but clients": ["g0-0", "g0-1", "g0-2", "g1-0", "g1-1", "g1-2"],
}


@pytest.mark.parametrize("what", MISSING)
def test_missing_members_are_named(amcast: Amcast, config: ClusterConfig, what: str) -> None:
    for name in MISSING[what]:
        Path(f"bank/trace/{name}.jsonl").unlink()
    done = amcast("cluster", "trace", "bank", "--out", "out", "--ended")
    names = ", ".join(name.replace("-", "/") for name in MISSING[what])
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1 and not Path("out").exists()
    assert f"no start row of {names}; expected files of all 6 members" in done.err and "--partial" in done.err

    done = amcast("cluster", "trace", "bank", "--out", "out", "--partial")
    assert done.code == 3 and f"of {6 - len(MISSING[what])} of 6 replicas in out" in done.out
    assert f"no end row, so agreement and termination stay unknown: no start row of {names}; copy their" in done.err
    starts = [event for event in read_events("out") if event.kind == "start"]
    assert {(event.process, event.detail) for event in starts} == {(m.name, '{"members": 3}') for m in config.members}
    assert "end" not in kinds("out")
    assert amcast("verify", "out").code == 3


def test_a_file_that_begins_in_the_middle_is_missing(amcast: Amcast, config: ClusterConfig) -> None:
    file = Path("bank/trace/g0-1.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    done = amcast("cluster", "trace", "bank", "--out", "out", "--ended")
    assert done.code == 2 and "no start row of g0/1;" in done.err


@pytest.mark.parametrize(("file", "name"), [("g0-1", "g0/1"), ("client", "c1")])
def test_a_file_that_is_there_twice_is_named(amcast: Amcast, config: ClusterConfig, file: str, name: str) -> None:
    Path("bank/trace/zz.jsonl").write_bytes(Path(f"bank/trace/{file}.jsonl").read_bytes())
    done = amcast("cluster", "trace", "bank", "--out", "out", "--ended")
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1 and not Path("out").exists()
    assert f"bank/trace: two files hold rows of {name}: {file}.jsonl and zz.jsonl; expected one" in done.err


def test_whether_stopped_nodes_were_done_only_the_user_knows(amcast: Amcast, config: ClusterConfig) -> None:
    done = amcast("cluster", "trace", "bank", "--out", "out")
    assert done.code == 3 and done.out == "34 events of 6 of 6 replicas in out; now: amcast verify out\n"
    assert done.err == (
        "amcast: no end row, so agreement and termination stay unknown: no node answers; "
        "gather again when all are up and idle, or use --ended if you know that nothing was under way\n"
    )
    assert "end" not in kinds("out") and amcast("verify", "out").code == 3
    done = amcast("cluster", "trace", "bank", "--out", "out", "--ended", "--force")
    assert (done.code, done.err) == (0, "") and kinds("out").count("end") == 1
    assert amcast("verify", "out").code == 0


def answering(config: ClusterConfig, change: Callable[[str, int, Status], None]) -> Callable[[Address, str], object]:
    """As admin listeners do; `change` gets the name, how often it was asked, and what it is about to say."""
    asked: dict[str, int] = {}

    def ask(address: Address, path: str) -> tuple[int, bytes] | None:
        assert path == "/status"
        name = next(member.name for member in config.members if member.admin == address)
        said: Status = {
            "cluster": config.name, "id": name, "position": MESSAGES, "unfinished": False, "clients": 0,
        }  # fmt: skip
        change(name, asked.setdefault(name, 0), said)
        asked[name] += 1
        return (200, json.dumps(said).encode()) if said else None

    return ask


RESTLESS: dict[str, Callable[[str, int, Status], None]] = {
    "g0/1 does not answer": lambda name, nth, said: said.clear() if name == "g0/1" else None,
    "g1/0 does not answer": lambda name, nth, said: said.update(cluster="another") if name == "g1/0" else None,
    "g1/1 does not answer": lambda name, nth, said: said.update(id="g0/1") if name == "g1/1" else None,
    "g0/2 has work under way": lambda name, nth, said: said.update(unfinished=True) if name == "g0/2" else None,
    "g0/0 has work under way": lambda name, nth, said: said.pop("unfinished", None) and None,
    "g1/0 is at position 4, g1/2 at 3": lambda name, nth, said: said.update(position=3) if name == "g1/2" else None,
    "clients are connected to g1/2": lambda name, nth, said: said.update(clients=1) if name == "g1/2" else None,
    "messages were delivered meanwhile": lambda name, nth, said: said.update(position=MESSAGES - 1 + nth),
    "g0/0 delivered 5 messages, its file has 4": lambda name, nth, said: said.update(position=5),
    "no node answers": lambda name, nth, said: said.clear(),
    "g1/2 does not answer": lambda name, nth, said: said.clear() if nth and name == "g1/2" else None,
}


@pytest.mark.parametrize("reason", RESTLESS)
def test_a_cluster_that_is_not_at_rest_gets_no_end(
    amcast: Amcast, config: ClusterConfig, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr("amcast.local.level.ask", answering(config, RESTLESS[reason]))
    done = amcast("cluster", "trace", "bank", "--out", "out")
    assert done.code == 3 and f"stay unknown: {reason}" in done.err and done.err.count("\n") == 1
    assert "end" not in kinds("out")


def test_a_cluster_at_rest_gets_an_end(amcast: Amcast, config: ClusterConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amcast.local.level.ask", answering(config, lambda name, nth, said: None))
    done = amcast("cluster", "trace", "bank", "--out", "out")
    assert (done.code, done.err) == (0, "") and kinds("out").count("end") == 1
    assert amcast("verify", "out").code == 0


def test_spares_are_members_once_they_began(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--groups 1 --replicas 4 --spare 2 --protocol allconcur --app ledger --memory-only --insecure-dev".split()
    amcast("cluster", "init", "books", *options)
    config = load_config("books/cluster.toml")
    for member in config.members[:5]:
        writer = TraceWriter(Path(f"books/trace/{file_name(member.name)}.jsonl"), config.name, member.name, "g0")
        writer.begin(4)
        writer.close()
    assert amcast("cluster", "trace", "books", "--out", "out").code == 3
    assert [event.detail for event in read_events("out") if event.kind == "start"] == ['{"members": 5}'] * 5


MISTAKES = {
    "--out out": "Missing argument 'CLUSTER'",
    "nowhere --out out": "nowhere: cannot be read",
    "bank": "--out",
    "bank --out out --from nowhere": "nowhere: no such folder; say with --from",
    "bank --out out --from empty": "empty: no .jsonl file there",
    "bank --out out --ended --partial": "--ended and --partial exclude each other",
    "other --out out --from bank/trace": "rows of ",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line(amcast: Amcast, config: ClusterConfig, typed: str) -> None:
    Path("empty").mkdir()
    amcast("cluster", "init", "other", "--groups", 2, "--insecure-dev")
    done = amcast("cluster", "trace", *typed.split())
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1 and MISTAKES[typed] in done.err
    assert not Path("out").exists()
