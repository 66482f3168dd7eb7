"""Guards what one group does: clocks, expiry, versions, locks, bounded memory, snapshots, bad requests."""

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amcast.apps.kv import commands as kv_commands
from amcast.apps.kv import machine as machine_module
from amcast.apps.kv.commands import TOO_MUCH
from amcast.apps.kv.glob import matcher
from amcast.apps.kv.machine import KV
from amcast.apps.kv.slots import SLOTS, even, slot_of
from amcast.apps.kv.store import ROOM
from amcast.apps.kv.wire import (
    MALFORMED,
    Answer,
    Decide,
    Done,
    Execute,
    Fetch,
    Lost,
    Prepare,
    StoreRequest,
    Unit,
    Versions,
    Waits,
    decode_answers,
    encode,
)
from amcast.errors import CommandRefused
from tests.apps.in_process import delivery


def ask(kv: KV, *units: Unit, now: int = 0) -> list[Answer]:
    return decode_answers(kv.apply(delivery(kv.group, (kv.group,), encode(StoreRequest(now, list(units))))))


def run(kv: KV, line: str, now: int = 0) -> Any:
    (answer,) = ask(kv, Execute([line.encode().split()]), now=now)
    assert isinstance(answer, Done)
    return answer.value[0]


def version(kv: KV, key: bytes, now: int = 0) -> int:
    (answer,) = ask(kv, Versions([key]), now=now)
    assert isinstance(answer, Done)
    found: int = answer.value[0]
    return found


def prepare(txn: bytes, *keys: bytes) -> Prepare:
    return Prepare(txn, [0], [[b"MSET", *(word for key in keys for word in (key, txn))]], [], list(keys))


# Slots


def test_slots_are_those_of_redis() -> None:
    """The values of CLUSTER KEYSLOT."""
    assert slot_of(b"123456789") == 0x31C3 % SLOTS
    assert slot_of(b"foo") == 12182
    assert slot_of(b"{user1000}.following") == slot_of(b"{user1000}.followers") == slot_of(b"user1000")
    assert slot_of(b"foo{}{bar}") == 8363
    assert slot_of(b"foo{{bar}}zap") == slot_of(b"{bar")
    assert slot_of(b"foo{bar}{zap}") == slot_of(b"bar")


@pytest.mark.parametrize("groups", [1, 2, 3, 7, 100])
def test_every_slot_has_one_group(groups: int) -> None:
    slots = even(groups)
    for group in range(groups):
        own = [slot for slot in range(SLOTS) if slots.of_slot(slot) == group]
        assert own == list(range(own[0], own[-1] + 1))


# Time


def test_the_clock_never_goes_back() -> None:
    kv = KV(0, 1)
    run(kv, "SET a 1 PX 100", now=1000)
    assert run(kv, "PTTL a", now=500) == 100
    assert run(kv, "PTTL a", now=1099) == 1
    assert run(kv, "GET a", now=1100) is None
    assert run(kv, "GET a", now=1000) is None


def test_expired_keys_take_no_memory() -> None:
    kv = KV(0, 1)
    for n in range(3000):
        run(kv, f"SET k{n} x PX 10", now=n)
    assert len(kv.store.data) < 100
    run(kv, "GET z", now=10_000)
    assert len(kv.store.data) == len(kv.store._heap) == 0


def test_a_deadline_that_moves_takes_no_memory() -> None:
    kv = KV(0, 1)
    for n in range(5000):
        run(kv, "SET a x PX 1000000", now=n)
    assert len(kv.store._heap) < 1100


def test_whole_store_commands_see_no_expired_key() -> None:
    kv = KV(0, 1)
    for n in range(500):
        run(kv, f"SET k{n} x PX 10")
    assert run(kv, "DBSIZE") == 500
    assert run(kv, "DBSIZE", now=10) == 0


# Versions


def test_every_change_is_a_new_version() -> None:
    kv = KV(0, 1)
    assert version(kv, b"a") == 0
    seen = [0]
    for line in ("SET a 1", "INCR a", "APPEND a 1", "EXPIRE a 100", "PERSIST a", "MSET a 1", "DEL a", "SETNX a 1",
                 "FLUSHALL", "SET a 1 PX 5"):  # fmt: skip
        run(kv, line)
        seen.append(version(kv, b"a"))
    seen.append(version(kv, b"a", now=5))
    assert len(set(seen)) == len(seen), seen
    for line in ("GET a", "DEL a", "EXISTS a", "PERSIST a", "SET a 1 XX", "SET b 1", "FLUSHALL"):
        run(kv, line, now=6)
        assert version(kv, b"a") == seen[-1], line


def test_watched_in_one_group_is_one_request() -> None:
    kv = KV(0, 1)
    seen = version(kv, b"a")
    assert ask(kv, Execute([[b"SET", b"a", b"1"]], [(b"a", seen)])) == [Done(["OK"])]
    assert ask(kv, Execute([[b"SET", b"a", b"2"]], [(b"a", seen)])) == [Done(None)]
    assert run(kv, "GET a") == b"1"


# Locks


def test_what_meets_a_lock_waits_and_keeps_its_place() -> None:
    kv = KV(0, 1)
    assert ask(kv, prepare(b"t", b"a", b"b")) == [Done(True)]
    first, second, other = ask(kv, Execute([[b"APPEND", b"a", b"1"], [b"SET", b"c", b"1"]]), Execute([[b"GET", b"c"]]),
                               Execute([[b"GET", b"d"]]))  # fmt: skip
    assert first == Waits(1, b"t", [0]) and second == Waits(2, b"t", [0]) and other == Done([None])
    assert ask(kv, Fetch(1)) == [Waits(1, b"t", [0])]
    assert ask(kv, Decide(b"t", commit=True)) == [Done([True, ["OK"]])]
    assert ask(kv, Fetch(2), Fetch(1), Fetch(1)) == [Done([b"1"]), Done([2, "OK"]), Lost()]
    assert run(kv, "GET a") == b"t1"


def test_the_first_decision_counts() -> None:
    kv = KV(0, 1)
    ask(kv, prepare(b"t", b"a"))
    assert ask(kv, Decide(b"t", False), Decide(b"t", True)) == [Done([False, None]), Done([False, None])]
    ask(kv, prepare(b"u", b"a"))
    assert ask(kv, Decide(b"u", True), Decide(b"u", False)) == [Done([True, ["OK"]]), Done([True, None])]
    assert ask(kv, Decide(b"never", True)) == [Done([None, None])]


def test_an_abort_that_came_first_is_remembered() -> None:
    kv = KV(0, 1)
    assert ask(kv, Decide(b"t", False), prepare(b"t", b"a")) == [Done([False, None]), Done(None)]
    assert run(kv, "SET a 1") == "OK"


def test_memory_of_decisions_and_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "DECISIONS_KEPT", 10)
    monkeypatch.setattr(machine_module, "ANSWERS_KEPT", 10)
    kv = KV(0, 1)
    for n in range(50):
        ask(kv, prepare(b"t%d" % n, b"a"), Execute([[b"GET", b"a"]]), Decide(b"t%d" % n, False))
    assert len(kv._decided) == len(kv._answers) == 10
    assert ask(kv, Fetch(1), Fetch(50)) == [Lost(), Done([None])]
    assert kv._answer_bytes == sum(map(len, kv._answers.values()))


# Groups


def test_each_group_executes_its_part() -> None:
    groups = 3
    keys = [b"k%d" % n for n in range(10)]
    unit = Execute([[b"MSET", *(word for key in keys for word in (key, b"1"))], [b"EXISTS", *keys], [b"GET", b"k0"]])
    payload = encode(StoreRequest(0, [unit]))
    counts = []
    for group in range(groups):
        kv = KV(group, groups)
        (answer,) = decode_answers(kv.apply(delivery(group, (0, 1, 2), payload)))
        assert isinstance(answer, Done)
        assert set(kv.store.data) == {key for key in keys if even(groups).of_key(key) == group}
        assert answer.value[2] == (b"1" if even(groups).of_key(b"k0") == group else None)
        counts.append(answer.value[1])
    assert sum(counts) == len(keys)


# Scanning


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_scan_finds_what_was_there_all_the_time(count: int) -> None:
    kv = KV(0, 1)
    for n in range(200):
        run(kv, f"SET k{n} x")
    found: list[bytes] = []
    cursor, step = b"0", 0
    while step == 0 or cursor != b"0":
        cursor, keys = run(kv, f"SCAN {cursor.decode()} COUNT {count}")
        found += keys
        step += 1
        run(kv, f"SET new{step} x")
        run(kv, f"DEL new{step - 1}")
    stayed = [key for key in found if key.startswith(b"k")]
    assert sorted(stayed) == sorted(b"k%d" % n for n in range(200))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (b"h?llo", b"hello", b"hllo"),
        (b"h*llo", b"heeello", b"hell"),
        (b"h[ae]llo", b"hallo", b"hillo"),
        (b"h[^e]llo", b"hallo", b"hello"),
        (b"h[a-b]llo", b"hbllo", b"hcllo"),
        (b"h[b-a]llo", b"hallo", b"hcllo"),
        (rb"h\*llo", b"h*llo", b"hello"),
        (rb"[\]]", b"]", b"\\"),
        (b"*a*b*c", b"xxaxxbxxc", b"xxaxxbxx"),
        (b"", b"", b"x"),
        (b"**", b"anything", b""),
        (b"[a", b"a", b"b"),
    ],
)
def test_patterns(pattern: bytes, yes: bytes, no: bytes) -> None:
    assert matcher(pattern)(yes)
    assert matcher(pattern)(no) == (pattern == b"**")


def test_no_pattern_takes_for_ever() -> None:
    assert not matcher(b"a*" * 200 + b"b")(b"a" * 5000)
    assert matcher(b"*" + b"a" * 2_000)(b"b" * 10_000 + b"a" * 2_000)
    with pytest.raises(CommandRefused, match="-ERR pattern takes too long"):
        matcher(b"*" + b"a" * 20_000 + b"b")(b"a" * 50_000)  # with a key of 1 MB it took hours
    kv = KV(0, 1)
    run(kv, "SET a" + "a" * 1_000 + " 1")
    assert str(run(kv, "KEYS *" + "a" * 500 + "b")).startswith("-ERR pattern") and run(kv, "KEYS *a") == [b"a" * 1001]


@pytest.mark.parametrize("look", [[b"KEYS", b"c"], [b"SCAN", b"0", b"COUNT", b"1000", b"MATCH", b"c"]])
def test_a_transaction_looks_at_all_keys_only_so_often(look: list[bytes]) -> None:
    """Each replica has to do that, at every start again."""
    kv = KV(0, 1)
    for i in range(10):
        run(kv, f"SET {i} 1")
    kv.store.room = 35
    found = [kv_commands.execute(kv.store, look) for _ in range(5)]
    assert found[0] != TOO_MUCH and found[-1] == TOO_MUCH
    assert kv_commands.execute(kv.store, [b"SET", b"a", b"1"]) == "OK"


# Bad requests


@given(st.binary(max_size=200))
def test_bytes_that_are_no_request_are_refused(payload: bytes) -> None:
    kv = KV(0, 1)
    answer = kv.apply(delivery(0, (0,), payload))
    assert answer == MALFORMED or decode_answers(answer) == []
    assert not kv.store.data


@pytest.mark.parametrize("command", [[], [b"NONSENSE"], [b"GET"], [b"GET", b"a", b"b"], [b"get", b"a"]])
def test_commands_that_are_none_are_refused_as_a_whole(command: list[bytes]) -> None:
    kv = KV(0, 1)
    request = StoreRequest(5, [Execute([[b"SET", b"a", b"1"]]), Execute([command])])
    assert kv.apply(delivery(0, (0,), encode(request))) == MALFORMED
    assert not kv.store.data and kv.clock == 0


# Snapshots


@pytest.mark.parametrize("keys", [0, 1, 15, 16, 31, 32, 33, 65, 65_536])
def test_snapshot_in_pieces_is_the_state_when_it_began(keys: int) -> None:
    kv = KV(0, 1)
    for i in range(keys):
        kv.store.put(b"key %d" % i, b"value %d" % i, expires=i % 3 * 1000)
    ask(kv, prepare(b"txn", b"locked"), Execute([[b"SET", b"locked", b"1"]]))
    pieces = kv.snapshot_parts()
    first = next(pieces)
    whole = kv.snapshot()
    run(kv, "SET new 1")
    run(kv, "DEL key0")
    ask(kv, Decide(b"txn", commit=True))
    kv.store.clear()
    assert first + b"".join(pieces) == whole
    found = msgspec.msgpack.decode(whole, type=machine_module.StoreSnapshot)
    assert msgspec.msgpack.encode(found) == whole, "the same bytes as if it were encoded as one"
    other = KV(0, 1)
    other.restore(whole)
    assert len(other.store.data) == keys and other.snapshot() == whole


words = st.sampled_from([b"", b"0", b"1", b"-1", b"a", b"\xff", b"EX", b"NX", b"GET", b"9" * 19, b"9" * 30, b"{", b"*"])


@given(st.lists(st.tuples(st.sampled_from(sorted(machine_module.SPECS)), st.lists(words, max_size=6)), max_size=20))
def test_no_arguments_break_a_replica(commands: list[tuple[bytes, list[bytes]]]) -> None:
    kv, twin = KV(0, 1), KV(0, 1)
    for name, arguments in commands:
        payload = encode(StoreRequest(7, [Execute([[name, *arguments]])]))
        assert kv.apply(delivery(0, (0,), payload)) == twin.apply(delivery(0, (0,), payload))
        state = twin.snapshot()
        twin = KV(0, 1)
        twin.restore(state)
    assert kv.snapshot() == twin.snapshot()


def test_the_answer_is_what_the_wire_says() -> None:
    assert msgspec.msgpack.decode(encode([Done([1, b"x", None, "OK"])])) == [[0, [1, b"x", None, "OK"]]]


def test_the_rules_and_the_state_of_version_1() -> None:
    """They are those of 0.1.0. Nodes replay logs and read snapshots: anything else is a new version with `migrate`."""
    kv = KV(0, 1)
    kv.version = 1
    answers = [
        kv.apply(delivery(0, (0,), encode(StoreRequest(now, units)), now))
        for now, units in [
            (1000, [Execute([[b"SET", b"a", b"1"], [b"INCR", b"a"], [b"SET", b"b", b"x", b"PX", b"50"]])]),
            (1020, [Versions([b"a", b"none"]), prepare(b"t", b"c", b"d"), Execute([[b"GET", b"c"]])]),
            (1060, [Execute([[b"DEL", b"a"], [b"GET", b"b"], [b"EXPIRE", b"e", b"9"]]), Decide(b"u", commit=False)]),
        ]
    ]
    found = hashlib.sha256(b"".join([*answers, kv.snapshot()])).hexdigest()
    assert (kv.version, found) == (1, "a86b04e370e4ba3b1bef5a486e080fcd6749d6a34fb43c58f895d4e8d98e36ac")


def test_what_a_request_can_have_told_is_bounded() -> None:
    """One of 1 MiB could ask for 80 GiB: in the log, for all replicas, at every start again."""
    kv = KV(0, 1)
    run(kv, "SETRANGE big 1048575 x")
    fits = ROOM // (2**20 + 5)
    get, many = [b"GET", b"big"], [b"MGET", *[b"big"] * 1000]
    told = Execute([get] * 200)
    last = Execute([[b"GETSET", b"big", b"1"], [b"GETDEL", b"big"], [b"SET", b"small", b"1"], many])
    payload = encode(StoreRequest(0, [Execute([many]), told, last]))
    answer = kv.apply(delivery(0, (0,), payload))
    assert len(answer) < machine_module.ANSWER_BYTES_KEPT
    first, then, end = [found.value for found in decode_answers(answer) if isinstance(found, Done)]
    assert first == [TOO_MUCH] and TOO_MUCH.startswith("-TRYAGAIN not executed: ")
    assert then[fits:] == [TOO_MUCH] * (200 - fits) and all(len(value) == 2**20 for value in then[:fits])
    assert end[1:] == [TOO_MUCH, "OK", TOO_MUCH]  # one that also writes may take a little more than there is
    assert run(kv, "GETDEL big") == b"1" and run(kv, "GET small") == b"1"  # another request has room of its own
    run(kv, "SETRANGE big 1048575 x")
    (one,) = decode_answers(kv.query(encode(StoreRequest(0, [Execute([many, get])]))))
    assert isinstance(one, Done) and one.value == [TOO_MUCH, kv.store.get(b"big")]
    assert kv.query(encode(StoreRequest(0, [told]))).count(TOO_MUCH.encode()) == 200 - fits
