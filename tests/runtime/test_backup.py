"""Backups of a running cluster: one cut through all groups, whole or nothing, and a new cluster founded with it."""

import asyncio
import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from nodes import Raw, connected, multicast_works, running, until
from tests.pace import allow

from amcast.apps.bank import Bank
from amcast.apps.bank import group_of as bank_group
from amcast.apps.kv import KV, wire
from amcast.apps.kv.slots import even, slot_of
from amcast.cli import run
from amcast.core.application import AllOrNothing, Delivery
from amcast.core.process import Params
from amcast.core.requests import Multicast
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage
from amcast.errors import AmcastError, AnswerGone, UsageError
from amcast.local.backup import Taking, take_backup
from amcast.local.files import create_cluster
from amcast.local.restore import memory_of, restore_cluster
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime import frames
from amcast.runtime.backup import NUMBER, PREFIX, Backup, CutHead, GroupState
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.cuts import MARKER
from amcast.runtime.engine import Engine
from amcast.runtime.framing import frame
from amcast.runtime.machine import REAL, Files
from amcast.runtime.snapshots import Pieces, SnapshotWriter
from amcast.service import connect, connect_sync
from amcast.study import check


class Seen(AllOrNothing):
    """Its state is what it executed, in order; each answer is how much that was."""

    def __init__(self, group: int, groups: int) -> None:
        self.seen: list[str] = []

    def apply(self, delivery: Delivery) -> bytes:
        self.seen.append(delivery.message)
        return b"%d" % len(self.seen)

    def snapshot(self) -> bytes:
        return json.dumps(self.seen).encode()

    def restore(self, state: bytes) -> None:
        self.seen = json.loads(state)


SEEN = "tests.runtime.test_backup:Seen"


def a_cluster(
    folder: Path, app: str, groups: int = 2, replicas: int = 3, protocol_name: str = "white_box"
) -> ClusterConfig:
    return create_cluster(folder, protocol(protocol_name), groups, replicas, app, secure=False)


def restored(path: Path, folder: Path, **wanted: int) -> ClusterConfig:
    return restore_cluster(path, folder, protocol, secure=False, **wanted)


def states_in(path: Path) -> list[GroupState]:
    return list(Backup(path).groups())


@contextmanager
def load(
    config: ClusterConfig, requests: "Iterator[tuple[tuple[int, ...], bytes]]", clients: int = 4
) -> Iterator[list[int]]:
    """Multicast these, several at a time, until the end; count what was answered."""
    answered = [0]
    over = threading.Event()
    failed: list[BaseException] = []

    async def one(session: int) -> None:  # a session of its own choice: then each message travels alone
        async with connect(config.path, deadline=allow(20), session=session) as client:
            while not over.is_set():
                batch = [next(requests) for _ in range(10)]
                await asyncio.gather(*[client.submit(dest, payload) for dest, payload in batch])
                answered[0] += len(batch)

    async def main() -> None:
        await asyncio.gather(*[one(1000 + n) for n in range(clients)])

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert until(lambda: answered[0] > 100 or failed)
        yield answered
    finally:
        over.set()
        thread.join()
    assert not failed, failed


def transfers(seed: int = 1) -> Iterator[tuple[tuple[int, ...], bytes]]:
    chance = random.Random(seed)
    accounts = [f"a{n}" for n in range(12)]
    while True:
        one, other = chance.sample(accounts, 2)
        dest = {bank_group(one, 2), bank_group(other, 2)}
        yield tuple(sorted(dest)), msgspec.msgpack.encode(("transfer", one, other, chance.randrange(1000)))


def total(states: Sequence[GroupState]) -> int:
    return sum(sum(msgspec.msgpack.decode(state.app).values()) for state in states)


def test_the_memory_is_that_of_the_mark_although_more_is_delivered_in_the_same_step() -> None:
    for name in ("white_box", "primcast", "ft_skeen", "fastcast", "multi_paxos"):
        engine = Engine(protocol(name), 0, Topology((1,)), Params(20_000_000))
        engine.process.start(0)
        for timer in list(engine.drain(0).timers) * 3:
            engine.process.timer(10**9, timer[0])
        client, mark = 5 << 42, message_id(MARKER, 7)
        engine.out.marks.add(mark)
        for mid, done in ((message_id(client, 3), 3), (mark, 0), (message_id(client, 9), 9)):
            engine.handle(10**9, client, [Multicast(AppMessage(mid, (0,), b"", done))])
        delivered, memories = [], {}
        for _ in range(5):
            tick = engine.drain(10**9)
            delivered += [m.mid for m, _ in tick.deliveries]
            memories |= tick.memories
        assert delivered == [message_id(client, 3), mark, message_id(client, 9)], name
        sessions, _ = memories[mark]
        assert [row for row in sessions if row[0] == client] == [(client, 3, (3,))], name


def told(raw: Raw) -> tuple[int, bytes] | None:
    """The next frame that is not for all clients: these hear at any time who leads."""
    while (got := raw.receive()) is not None and got[0] == frames.ANSWERS:
        pass
    return got


def test_what_comes_in_the_same_turn_is_not_in_the_cut(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", SEEN, groups=1, replicas=1)
    client = 5 << 42
    before, mark, behind = message_id(client, 3), message_id(MARKER, 5), message_id(client, 9)
    with running(config, app=Seen) as nodes, connected(config, config.members[0].client, "client/dev") as raw:
        node = nodes["g0/0"]
        assert raw.receive() and multicast_works(config)
        assert told(raw.send(frame(frames.CUT, b"", 5))) == (frames.CUT, frames.encode(frames.Made()))

        def all_in_one_turn() -> None:
            rows = [(before, b"a", 3), (mark, b"", 0), (behind, b"b", 9)]
            node.engine.handle(node.now(), client, [Multicast(AppMessage(m, (0,), p, done)) for m, p, done in rows])
            node.act()

        node._loop.call_soon_threadsafe(all_in_one_turn)
        kind, body = told(raw) or (0, b"")
        assert kind == frames.CUT and frames.decode(frames.made_decoder, body) == frames.Made(2, 2)
        kind, part = told(raw.send(frame(frames.WANT, b"", 0))) or (0, b"")
        content = Pieces(5).body(part)
        end = PREFIX.size + PREFIX.unpack_from(content)[1]
        head = msgspec.msgpack.decode(content[PREFIX.size : end], type=CutHead)
        seen = json.loads(content[end:])
        assert len(seen) == 2 and seen[1].endswith(":3"), "nothing of what is behind the mark"
        assert [row for row in head.memory[0] if row[0] == client] == [(client, 3, (3,))]
        assert [row for row in head.results if row[0] == client] == [(client, 3, b"2")]
        assert until(lambda: len(node.executor.app.seen) == 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["white_box", "primcast"])
def test_under_load_all_groups_are_cut_at_one_place(name: str, tmp_path: Path) -> None:
    """What is in the state is exactly what is remembered of clients, and the same in all groups that it went to."""
    config = a_cluster(tmp_path / "c", SEEN, protocol_name=name)
    with running(config, app=Seen), load(config, iter(lambda: ((0, 1), b"x"), None)) as answered:
        for number in range(3):
            path = tmp_path / f"{number}.amb"
            assert until(lambda path=path: not whole_or_busy(config, path))  # a busy machine elects
            assert until(lambda least=answered[0] + 50: answered[0] > least)
    for number in range(3):
        found = []
        for state in states_in(tmp_path / f"{number}.amb"):
            seen = json.loads(state.app)
            assert len(seen) == len(set(seen)) and len(seen) > 50
            sessions, idle = state.head.memory
            known = {f"c{sender:x}:{seq}" for sender, done, above in sessions for seq in [*range(done), *above]}
            known |= {f"c{sender:x}:{seq}" for sender, done in idle for seq in range(done)}
            assert known == set(seen)
            found.append(set(seen))
        assert found[0] == found[1]


def test_money_is_neither_lost_nor_made(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", "bank")
    path = tmp_path / "bank.amb"
    with running(config, app=Bank) as nodes:
        with connect_sync(config.path, session=77, deadline=allow(20)) as client:
            for n in range(12):
                group = f"g{bank_group(f'a{n}', 2)}"
                client.multicast([group], msgspec.msgpack.encode(("open", f"a{n}", 1000)))
        with load(config, transfers()):
            take_backup(config, protocol("white_box"), path, seconds=allow(20))
        assert until(lambda: not [p for node in nodes.values() for p in node.me.data.glob("cut-*")]), "no file stays"
    assert total(states_in(path)) == 12_000
    for groups in (2, 3):
        again = restored(path, tmp_path / f"r{groups}", groups=groups, replicas=1)
        with running(again, app=Bank) as nodes:
            everybody = [f"g{g}" for g in range(groups)]
            with connect_sync(again.path, deadline=allow(20)) as client:
                answers = client.multicast(everybody, msgspec.msgpack.encode(("total",)))
                assert sum(map(msgspec.msgpack.decode, answers.values())) == 12_000
            balances = {account: b for node in nodes.values() for account, b in node.executor.app.balances.items()}  # type: ignore[union-attr]
            with connect_sync(again.path, session=77, deadline=allow(20)) as client:  # a retry: the same numbers
                for n in range(12):
                    payload = msgspec.msgpack.encode(("open", f"a{n}", 1000))
                    with suppress(AnswerGone):  # but only where there are other groups than those that answered
                        client.multicast([f"g{bank_group(f'a{n}', groups)}"], payload)
                        assert groups == 2
            after = {account: b for node in nodes.values() for account, b in node.executor.app.balances.items()}  # type: ignore[union-attr]
            assert after == balances


def test_a_retry_after_the_restore_gets_the_same_answer(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", SEEN, replicas=1)
    path = tmp_path / "seen.amb"
    with running(config, app=Seen), connect_sync(config.path, session=5, deadline=allow(20)) as client:
        first = client.multicast(["g0", "g1"], b"x")
        last = client.multicast(["g0", "g1"], b"x")
        take_backup(config, protocol("white_box"), path, seconds=allow(20))
    again = restored(path, tmp_path / "r")
    with running(again, app=Seen) as nodes:
        with connect_sync(again.path, session=5, first=1, deadline=allow(20)) as client:
            assert client.multicast(["g0", "g1"], b"x") == last != first
        for node in nodes.values():
            assert len(node.executor.app.seen) == 2  # type: ignore[union-attr]
        assert multicast_works(again)


def per_slot(states: Sequence[bytes]) -> dict[int, set[tuple[bytes, bytes, int]]]:
    found: dict[int, set[tuple[bytes, bytes, int]]] = {}
    for group, state in enumerate(states):
        machine = KV(group, len(states))
        machine.restore(state)
        for key, (value, expires, _) in machine.store.data.items():
            found.setdefault(slot_of(key), set()).add((key, value, expires))
    return found


def msets() -> Iterator[tuple[tuple[int, ...], bytes]]:
    left, right = b"left", b"right"
    assert even(2).of_key(left) != even(2).of_key(right)
    number = 0
    while True:
        number += 1
        value = b"%d" % number
        command = [b"MSET", left, value, right, value, b"k%d" % (number % 500), value]
        unit = wire.Execute([command], [])
        yield (0, 1), wire.encode(wire.StoreRequest(number, [unit]))


def test_pairs_are_equal_and_slots_are_the_same_with_another_number_of_groups(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", "kv")
    path = tmp_path / "kv.amb"
    with running(config, app=KV), load(config, msets()):
        take_backup(config, protocol("white_box"), path, seconds=allow(20))
    before = per_slot([state.app for state in states_in(path)])
    values = {key: value for rows in before.values() for key, value, _ in rows}
    assert values[b"left"] == values[b"right"]
    again = restored(path, tmp_path / "r", groups=3, replicas=1)
    with running(again, app=KV) as nodes:
        after = [nodes[f"g{g}/0"].executor.app.snapshot() for g in range(3)]  # type: ignore[union-attr]
        assert per_slot(after) == before
        for g, state in enumerate(after):
            assert {even(3).of_key(key) for rows in per_slot([state]).values() for key, _, _ in rows} <= {g}


# What is refused, and what is left


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A backup of a small cluster."""
    folder = tmp_path_factory.mktemp("small")
    config = a_cluster(folder / "c", SEEN, replicas=1)
    with running(config, app=Seen), connect_sync(config.path, session=5, deadline=allow(20)) as client:
        for _ in range(3):
            client.multicast(["g0", "g1"], b"x")
        take_backup(config, protocol("white_box"), folder / "b.amb", seconds=allow(20))
    return (folder / "b.amb").read_bytes()


def whole(path: Path) -> str:
    """Read all of a backup; return what is wrong with it."""
    try:
        list(Backup(path).groups())
    except UsageError as error:
        return str(error)
    return ""


def test_each_changed_byte_and_each_cut_is_noticed(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "b.amb"
    path.write_bytes(small)
    assert whole(path) == ""
    for at in range(len(small)):
        path.write_bytes(small[:at] + bytes([small[at] ^ 1 << at % 8]) + small[at + 1 :])
        said = whole(path)
        assert said.startswith(f"{path}: ") and "\n" not in said, at
        path.write_bytes(small[:at])
        assert whole(path), at
    path.write_bytes(small + b"x")
    assert whole(path)


def test_a_damaged_backup_changes_nothing(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "b.amb"
    path.write_bytes(small[:-9] + bytes([small[-9] ^ 1]) + small[-8:])
    with pytest.raises(UsageError, match=r"damaged backup.*use another one"):
        restored(path, tmp_path / "r")
    assert [found.name for found in tmp_path.iterdir()] == ["b.amb"]


def written(path: Path, content: bytes) -> Path:
    writer = SnapshotWriter(REAL, path, NUMBER, [content])
    while not writer.write_some():
        pass
    return path


def test_other_files_are_no_backups(small: bytes, tmp_path: Path) -> None:
    newer = written(tmp_path / "newer", b"amb2" + bytes(30))
    with pytest.raises(UsageError, match="a backup of format 'amb2', expected format 'amb1'; run the amcast"):
        restored(newer, tmp_path / "r")
    other = written(tmp_path / "other", b"amn3" + bytes(30))
    with pytest.raises(UsageError, match="no backup of a cluster; expected"):
        restored(other, tmp_path / "r")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UsageError, match="damaged backup"):
        restored(tmp_path / "text", tmp_path / "r")
    with pytest.raises(UsageError, match="cannot be read"):
        restored(tmp_path / "absent", tmp_path / "r")
    assert not (tmp_path / "r").exists() and not (tmp_path / "r.restoring").exists()


def test_an_application_that_does_not_take_the_state_is_refused(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.amb"
    path.write_bytes(small)
    with pytest.raises(UsageError, match="cannot go from 2 groups to 3: it has no method spread"):
        restored(path, tmp_path / "r", groups=3)
    monkeypatch.setattr("tests.runtime.test_backup.Seen", KV)
    with pytest.raises(UsageError, match="is this the application that wrote it"):
        restored(path, tmp_path / "r")
    assert [found.name for found in tmp_path.iterdir()] == ["b.amb"]


def test_what_is_there_is_not_written_over(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "b.amb"
    path.write_bytes(small)
    config = a_cluster(tmp_path / "c", SEEN, replicas=1)
    with pytest.raises(UsageError, match="is there already; a cluster is restored to a new folder"):
        restored(path, tmp_path / "c")
    with pytest.raises(UsageError, match="is there already; a backup is written to a new file"):
        take_backup(config, protocol("white_box"), path)
    (tmp_path / "r.restoring").mkdir()
    (tmp_path / "r.restoring" / "mine").touch()
    with pytest.raises(UsageError, match="is in the way, and no restore left it"):
        restored(path, tmp_path / "r")
    assert (tmp_path / "r.restoring" / "mine").exists() and path.read_bytes() == small
    with pytest.raises(UsageError, match="expected an odd number"):
        restored(path, tmp_path / "even", replicas=2)
    assert not (tmp_path / "even.restoring").exists()
    (tmp_path / "empty").mkdir()
    assert restored(path, tmp_path / "empty").topology.replicas == 2


def test_a_group_that_does_not_serve_is_said_before_anything_is_ordered(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", SEEN)
    with running(config, ["g0/0", "g0/1", "g0/2", "g1/0"], app=Seen) as nodes:
        assert until(lambda: any(nodes["g0/0"].pulses.refusals))
        with pytest.raises(UsageError, match=r"g1.*a backup takes all groups: bring that one back first"):
            take_backup(config, protocol("white_box"), tmp_path / "b.amb", seconds=allow(20))
        with connected(config, config.members[0].client, "client/dev") as raw:
            while (raw.receive() or (0,))[0] != frames.WELCOME:
                pass
            raw.send(frame(frames.MARK, b"", 5))
            while (answer := raw.receive() or (0, b""))[0] in (frames.CONDITION, frames.ANSWERS):
                pass
            assert answer[0] == frames.FAILED and b"g1" in answer[1]
        assert nodes["g0/0"].history.end == 0
    with pytest.raises(UsageError, match=r"no replica of g0 answers: .*start it first"):
        take_backup(config, protocol("white_box"), tmp_path / "b.amb", seconds=allow(20))
    assert not list(tmp_path.glob("b.amb*"))


@pytest.mark.parametrize("name", ["skeen", "fifo", "allconcur_ea"])
def test_protocols_whose_replicas_do_not_come_back_have_no_backups(name: str, tmp_path: Path) -> None:
    single = name == "skeen"
    config = create_cluster(
        tmp_path / "c", protocol(name), 1, 1 if single else 3, "log", secure=False, durable=name == "allconcur_ea"
    )
    with pytest.raises(UsageError, match=f"no backup: .*{name}"):
        take_backup(config, protocol(name), tmp_path / "b.amb")


def test_a_client_that_may_not_do_everything_takes_no_backup(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", SEEN, replicas=1)
    text = config.path.read_text()
    config.path.write_text(text + '[clients.reader]\nread = ["*"]\nwrite = ["g0"]\n')
    config = load_config(config.path)
    with running(config, app=Seen) as nodes:
        with pytest.raises(UsageError, match="reader may not back up the cluster: that takes read and write of all"):
            take_backup(config, protocol("white_box"), tmp_path / "b.amb", "reader", allow(20))
        with connected(config, config.members[0].client, "client/reader") as raw:
            assert raw.receive()
            raw.send(frame(frames.MARK, b"", 5))
            kind, body = raw.receive() or (0, b"")
            assert kind == frames.FAILED and "may not back up" in frames.decode(frames.refusal_decoder, body).reason
        assert nodes["g0/0"].history.end == 0
        with pytest.raises(UsageError, match="has these clients: dev, reader; name one by --client"):
            take_backup(config, protocol("white_box"), tmp_path / "b.amb")


def test_a_replica_that_hangs_up_in_the_middle_is_asked_again_or_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = a_cluster(tmp_path / "c", SEEN)
    copied = Taking._copied
    calls: list[str] = []

    def hanging_up(self: Taking, source, progress):  # type: ignore[no-untyped-def]
        calls.append(source.member.name)
        if len(calls) <= hang_ups:
            source._writer.transport.abort()
        yield from copied(self, source, progress)

    monkeypatch.setattr(Taking, "_copied", hanging_up)
    with running(config, app=Seen) as nodes:
        multicast_works(config)
        hang_ups = 100
        with pytest.raises(AmcastError, match=r"no backup after 3 attempts: .*; try again"):
            take_backup(config, protocol("white_box"), tmp_path / "b.amb", seconds=allow(20))
        assert not list(tmp_path.glob("b.amb*"))
        calls.clear()
        hang_ups = 2
        take_backup(config, protocol("white_box"), tmp_path / "b.amb", seconds=allow(20))
        assert json.loads(states_in(tmp_path / "b.amb")[0].app)
        assert until(lambda: not [path for node in nodes.values() for path in node.me.data.glob("cut-*")])


def test_one_backup_at_a_time_and_none_of_an_earlier_life(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", SEEN, groups=1, replicas=1)
    (config.members[0].data / "cut-7").touch()
    with running(config, app=Seen):
        assert not (config.members[0].data / "cut-7").exists()
        with connected(config, config.members[0].client, "client/dev") as raw:
            assert raw.receive() and multicast_works(config)
            assert (told(raw.send(frame(frames.CUT, b"", 5))) or (0,))[0] == frames.CUT
            with pytest.raises(UsageError, match="another backup is being taken; try again when it is done"):
                take_backup(config, protocol("white_box"), tmp_path / "b.amb", seconds=allow(20))
        assert until(lambda: not whole_or_busy(config, tmp_path / "c.amb"))


def whole_or_busy(config: ClusterConfig, path: Path) -> str:
    try:
        take_backup(config, protocol(config.protocol), path, seconds=allow(20))
    except UsageError as error:
        return str(error)
    return ""


def killed_at(call: int, work: Callable[[], object]) -> bool:
    """Do this in a process that ends at its n-th call to the file system; return whether it did."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] != 0
    try:
        calls = itertools.count()
        for name in ("make_folder", "open", "write", "sync", "sync_folder", "replace", "close"):
            before = getattr(Files, name)

            def counted(*arguments: object, _before: Callable[..., object] = before, **named: object) -> object:
                if next(calls) == call:
                    os._exit(9)
                return _before(*arguments, **named)

            setattr(Files, name, counted)
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize("step", [29, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_restore_that_is_killed_anywhere_leaves_nothing_or_all(small: bytes, tmp_path: Path, step: int) -> None:
    path, folder = tmp_path / "b.amb", tmp_path / "r"
    path.write_bytes(small)
    number = 0
    while killed_at(number, lambda: restored(path, folder)):
        if folder.exists():  # it has its name: then all of it is there
            break
        number += step
    assert number > 60
    if not folder.exists():
        restored(path, folder)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["b.amb", "r"]
    with running(load_config(folder), app=Seen) as nodes:
        assert len(nodes["g0/0"].executor.app.seen) == 3  # type: ignore[union-attr]
        assert multicast_works(load_config(folder))


def test_a_backup_that_is_killed_anywhere_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c", SEEN, replicas=1)
    path = tmp_path / "b.amb"
    with running(config, app=Seen):
        assert multicast_works(config)
        number = 0
        while killed_at(number, lambda: take_backup(config, protocol("white_box"), path, seconds=allow(20))):
            if path.exists():
                break
            number += 1
        assert number > 3
        if not path.exists():
            assert until(lambda: not whole_or_busy(config, path))
        assert len(states_in(path)) == 2 and not path.with_name("b.amb.new").exists()


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = a_cluster(tmp_path / "c", "bank", replicas=1)
    path, folder = tmp_path / "b.amb", tmp_path / "r"
    with running(config, app=Bank):
        assert multicast_works(config)
        assert run(["cluster", "backup", str(config.path), "--out", str(path)]) == 0
        assert f"{path}: bank of {config.name}, 2 groups, white_box, taken" in capsys.readouterr().out
    assert run(["cluster", "backup-verify", str(path)]) == 0
    assert "whole: g0 at 1, g1 at 0" in capsys.readouterr().out
    assert run(["cluster", "restore", str(path), str(folder), "--groups", "1", "--replicas", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 group of 1 replica" in out and f"start it with: amcast cluster up {folder}" in out
    assert run(["cluster", "restore", str(path), str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_was_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_cluster(tmp_path / "c", SEEN, replicas=1)
    path = tmp_path / "b.amb"
    replace = Files.replace

    def damaging(self: Files, old: Path, new: Path) -> None:
        replace(self, old, new)
        if new == path:
            content = bytearray(path.read_bytes())
            content[-1] ^= 1  # in the seal: the manifest is read again in any case
            path.write_bytes(content)

    with running(config, app=Seen):
        assert multicast_works(config)
        monkeypatch.setattr(Files, "replace", damaging)
        with pytest.raises(UsageError, match="damaged backup"):
            take_backup(config, protocol("white_box"), path, seconds=allow(20))


def test_what_is_prepared_and_not_decided_is_dropped_where_slots_go_to_other_groups() -> None:
    machines = [KV(g, 2) for g in range(2)]
    at = 0

    def deliver(unit: object, dest: tuple[int, ...] = (0, 1), now: int = 1000) -> list[object]:
        nonlocal at
        at += 1
        payload = wire.encode(wire.StoreRequest(now, [unit]))  # type: ignore[list-item]
        names = tuple(f"g{g}" for g in dest)
        found = []
        for g in dest:
            answer = machines[g].apply(Delivery(f"g{g}", at, (at, "g0"), f"c1:{at}", "c1", names, payload))
            found.append(msgspec.msgpack.decode(answer))
        return found

    deliver(wire.Execute([[b"MSET", b"left", b"1", b"right", b"1"]]))
    deliver(wire.Execute([[b"SET", b"brief", b"x", b"PX", b"5000"]]), (even(2).of_key(b"brief"),), 2000)
    deliver(wire.Prepare(b"t0", [0, 1], [[b"MSET", b"left", b"2", b"right", b"2"]], [], []))
    deliver(wire.Decide(b"gone", False))
    ticket = deliver(wire.Execute([[b"APPEND", b"right", b"+"]]), (even(2).of_key(b"right"),))
    assert "t" not in str(ticket[0]) or machines[0]._waiting or machines[1]._waiting
    spread = machines[0].spread([machine.snapshot() for machine in machines], 3)
    found = [KV(g, 3) for g in range(3)]
    for machine, state in zip(found, spread, strict=True):
        machine.restore(state)
        assert not machine._locks and not machine._waiting and machine.clock == 2000
        assert machine._tickets == 1 and machine._decided == {b"gone": False, b"t0": False}
    data = {key: (value, expires) for machine in found for key, (value, expires, _) in machine.store.data.items()}
    assert data == {b"left": (b"1", 0), b"right": (b"1+", 0), b"brief": (b"x", 7000)}


def test_a_trace_says_who_sent_a_mark(tmp_path: Path) -> None:
    """Somebody must have multicast what is delivered, also if the cluster did it itself."""
    trial = Trial(tmp_path / "c", groups=2, replicas=1, secure=False)
    with trial:
        take_backup(trial.config, protocol("white_box"), tmp_path / "b.amb", seconds=allow(20))
        assert trial.finish(tmp_path / "trace"), trial.not_level
    assert [verdict.property for verdict in check(tmp_path / "trace") if verdict.status != "ok"] == []


def test_with_another_number_of_groups_all_remember_what_any_has_delivered() -> None:
    def group(*memory: object) -> SimpleNamespace:
        return SimpleNamespace(head=SimpleNamespace(memory=memory, results=["an answer"]))

    one, other = group([(7, 5, (6, 9)), (8, 1, ())], [(9, 4)]), group([(7, 3, (4, 8)), (9, 2, (5,))], [])
    memory, answers = memory_of(cast(Any, [one, other]), cast(Any, None), 3)
    assert memory == ([(7, 5, (6, 8, 9)), (8, 1, ()), (9, 4, (5,))], []) and answers == []
    assert memory_of(cast(Any, [one, other]), cast(Any, SimpleNamespace(group=1)), 2) == (
        other.head.memory,
        ["an answer"],
    )
