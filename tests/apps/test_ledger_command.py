"""`amcast ledger` on three servers in this process: all that is appended is compared, and a changed chain is seen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amcast.apps.chains import outsiders
from amcast.apps.ledger import Ledger, chain
from amcast.cli import run
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig
from amcast.runtime.history import History
from amcast.runtime.node import Node
from tests.runtime.nodes import running, until

PAYMENTS = [b"alice pays bob %d" % number for number in range(12)]


@pytest.fixture
def books(tmp_path: Path) -> ClusterConfig:
    return create_cluster(tmp_path, protocol("white_box"), 1, 3, "ledger", secure=False, durable=False)


@pytest.fixture
def live(books: ClusterConfig) -> Iterator[tuple[ClusterConfig, dict[str, Node]]]:
    with running(books, app=Ledger) as nodes:
        yield books, nodes


def ledger(config: ClusterConfig, *words: str) -> int:
    return run(["ledger", words[0], str(config.path), *words[1:]])


def log(payloads: list[bytes]) -> History:
    """A server's log with these transactions in it."""
    history = History(None)
    for number, payload in enumerate(payloads):
        history.append([(AppMessage(message_id(2**50, number), (0,), payload), number << 8)], 0)
    return history


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_what_is_appended_is_told_again_and_compared(
    live: tuple[ClusterConfig, dict[str, Node]], capsys: pytest.CaptureFixture[str]
) -> None:
    config, nodes = live
    assert ledger(config, "append", *(payment.decode() for payment in PAYMENTS)) == 0
    expected = [f"{height} {chain(PAYMENTS[:height])[1].hex()}" for height in range(1, 13)]
    assert capsys.readouterr().out.splitlines() == expected
    assert until(lambda: {node.history.end for node in nodes.values()} == {12})
    assert ledger(config, "tail", "--last", "2") == 0
    told = [f"{line} {payment.decode()}" for line, payment in zip(expected, PAYMENTS, strict=True)]
    assert capsys.readouterr().out.splitlines() == told[-2:]
    assert ledger(config, "verify") == 0
    *rows, end = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows[1:]] == [[name, *expected[-1].split()] for name in nodes]
    assert end == "the chains agree: 36 deliveries of 3 of 3 replicas"


OTHER = [*PAYMENTS[:7], b"alice pays mallory 7", *PAYMENTS[8:]]
AGREE = "the chains agree: {} deliveries of {} of 3 replicas"
DIFFER = "the chains differ: that of {} is not how that of {} begins"
UNKNOWN = "unknown: {} of 3 servers showed a transaction, expected two or more to compare"
LOGS = {  # of the three servers: what is said, and the exit code
    "all the same": (PAYMENTS, PAYMENTS, PAYMENTS, AGREE.format(36, 3), 0),
    "one behind": (PAYMENTS, PAYMENTS[:5], PAYMENTS, AGREE.format(29, 3), 0),
    "one with nothing": (PAYMENTS, [], PAYMENTS, AGREE.format(24, 2), 0),
    "one that differs": (PAYMENTS, PAYMENTS, OTHER, DIFFER.format("g0/2", "g0/0"), 1),
    "two that differ after the end of a third": (PAYMENTS[:3], PAYMENTS, OTHER, DIFFER.format("g0/2", "g0/1"), 1),
    "one has all": (PAYMENTS, [], [], UNKNOWN.format(1), 3),
    "none has any": ([], [], [], UNKNOWN.format(0), 3),
}


def test_verify_says_what_it_compared(
    live: tuple[ClusterConfig, dict[str, Node]], capsys: pytest.CaptureFixture[str]
) -> None:
    config, nodes = live
    for what, (*logs, line, code) in LOGS.items():
        for node, payloads in zip(nodes.values(), logs, strict=True):
            node.durability.history = log(payloads)
        assert (ledger(config, "verify"), last_line(capsys)) == (code, line), what


def test_servers_that_do_not_answer_are_named(books: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> None:
    with running(books, ["g0/1"], app=Ledger) as nodes:
        nodes["g0/1"].durability.history = log(PAYMENTS)
        assert ledger(books, "verify") == 3
        _, first, second, third, end = capsys.readouterr().out.splitlines()
    assert (first.split(), third.split()) == (["g0/0", "-", "no", "answer"], ["g0/2", "-", "no", "answer"])
    assert second.split()[:2] == ["g0/1", "12"]
    assert end == UNKNOWN.format(1)


def test_a_server_that_does_not_answer_may_differ(books: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> None:
    with running(books, ["g0/0", "g0/1"], app=Ledger) as nodes:
        for payloads, line, code in ((PAYMENTS, AGREE.format(24, 2), 3), (OTHER, DIFFER.format("g0/1", "g0/0"), 1)):
            nodes["g0/0"].durability.history, nodes["g0/1"].durability.history = log(PAYMENTS), log(payloads)
            assert ledger(books, "verify") == code
            said = capsys.readouterr().out.splitlines()[4:]
            assert said == [line, "unknown: g0/2 does not answer"][: 1 + (code == 3)]


class Standstill(History):
    """The log of a server that has not come to what the others deliver."""

    def append(self, deliveries: list[tuple[AppMessage, int]], time: int) -> None:
        pass


def test_a_ledger_is_founded_though_a_server_is_behind(
    live: tuple[ClusterConfig, dict[str, Node]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, nodes = live
    old = tmp_path / "old"
    (old / "history").mkdir(parents=True)
    history = History(old / "history")
    history.append([(AppMessage(message_id(2**50, n), (0,), text), n << 8) for n, text in enumerate(PAYMENTS)], 0)
    history.write(history.take_unwritten())
    history.close()
    nodes["g0/0"].durability.history = Standstill(None)
    assert ledger(config, "found", str(old)) == 0
    assert last_line(capsys) == f"12 {chain(PAYMENTS)[1].hex()}"
    assert until(lambda: nodes["g0/1"].history.end == 12)
    assert ledger(config, "found", str(old)) == 2, "only one that is behind is empty"
    assert "12 messages are there; expected a ledger with none" in capsys.readouterr().err
    assert nodes["g0/1"].history.end == 12


STATED: dict[str, tuple[dict[str, object], list[str], set[str]]] = {  # what servers say, who answers, and who is out
    "all are members": ({"members": 3}, ["g0/0", "g0/1"], set()),
    "one left": ({"members": 2}, ["g0/0", "g0/1"], {"g0/2"}),
    "membership is fixed": ({}, ["g0/0", "g0/1"], set()),
    "one more is silent": ({"members": 2}, ["g0/0"], set()),
    "nobody answers": ({"members": 0}, [], set()),
}


@pytest.mark.parametrize("what", STATED)
def test_who_left_is_known_if_the_others_are_all_there(what: str) -> None:
    said, answering, out = STATED[what]
    names = ["g0/0", "g0/1", "g0/2"]
    statuses = {name: {**said, "id": name} for name in names}
    assert outsiders(names, answering, statuses) == out
    assert outsiders(names, answering, {}) == set(), "the admin ports may be out of reach"
