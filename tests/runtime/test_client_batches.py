"""Client batches: multicasts that travel, are ordered and are delivered as one, and look like any other."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from librt.strings import BytesWriter
from nodes import cluster, running
from tests.pace import allow

from amcast.core.application import Delivery
from amcast.core.process import Params
from amcast.core.topology import Topology, message_id, seq_of
from amcast.core.wire import MOST_IN_BATCH, AppMessage, check_batch, joined, split
from amcast.errors import AnswerGone, MulticastFailed, OutcomeUnknown, WireError
from amcast.protocols import protocol
from amcast.runtime.client_engine import ClientEngine
from amcast.runtime.config import ClusterConfig
from amcast.runtime.node import Node
from amcast.runtime.rows import pack_rows, rows_behind, unpack_rows
from amcast.runtime.serving import session_of
from amcast.service import connect

COUNT = 40


class Echo:
    """Answers with where it is and what it was told."""

    def apply(self, delivery: Delivery) -> bytes:
        return f"{delivery.group} {delivery.position} ".encode() + delivery.payload

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterConfig, dict[str, Node]]]:
    config = cluster(tmp_path_factory.mktemp("batches"), groups=2, replicas=1)
    with running(config, app=lambda group, groups: Echo()) as nodes:
        yield config, nodes


async def first(client: object, group: str, start: int, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    async for delivery in client.deliveries(group, start):  # type: ignore[attr-defined]
        found.append(delivery)
        if len(found) == count:
            break
    return found


def test_each_message_has_its_place_its_answer_and_its_id(
    live: tuple[ClusterConfig, dict[str, Node]],
) -> None:
    config, nodes = live

    async def tried() -> None:
        async with connect(config.path, "dev", deadline=allow(20)) as client:
            start = nodes["g0/0"].history.end
            handled = nodes["g0/0"].metrics.messages_in
            asked = [client.submit((0, 1), b"%d" % i) for i in range(COUNT)]
            alone = client.submit((0,), b"alone")
            answers = await asyncio.gather(*asked)
            await alone
            rows = await first(client, "g0", start, COUNT + 1)
            together = [row for row in rows if row.payload != b"alone"]
            assert [row.payload for row in together] == [b"%d" % i for i in range(COUNT)]
            assert [answer[0] for answer in answers] == [b"g0 %d %s" % (row.position, row.payload) for row in together]
            assert all(answer[1].endswith(b" %d" % i) for i, answer in enumerate(answers))
            assert [row.position for row in rows] == list(range(start, start + COUNT + 1))
            assert sorted(rows, key=lambda row: row.ts) == rows, "one total order"
            assert [answer.message for answer in answers] == [row.message for row in together]
            assert len({row.ts for row in rows}) == len({row.message for row in rows}) == COUNT + 1
            assert nodes["g0/0"].metrics.messages_in - handled < COUNT, "they did travel as one"
            middle = rows[COUNT // 2].position
            assert (await first(client, "g0", middle, 3)) == rows[COUNT // 2 : COUNT // 2 + 3], "from within a batch"

    asyncio.run(tried())


def test_a_deadline_is_of_one_message(live: tuple[ClusterConfig, dict[str, Node]]) -> None:
    config, _ = live

    async def tried() -> None:
        async with connect(config.path, "dev", deadline=allow(20)) as client:
            one = client.submit((0,), b"in time")
            late = client.submit((0,), b"late", deadline=-1.0)
            long = client.submit((0,), bytes(config.largest_message + 1))
            with pytest.raises(MulticastFailed):
                await long
            assert await one
            assert late.done(), "answered, one way or the other"
            late.exception()

    asyncio.run(tried())


def test_an_unknown_outcome_has_the_id_under_which_it_may_be_delivered(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=1, replicas=3)

    async def tried() -> tuple[str | None, str | None, str]:
        async with connect(config.path, "dev") as client:
            with running(config, ["g0/0"]):  # it takes the message, and is alone
                with pytest.raises(OutcomeUnknown) as first:
                    await client.submit((0,), b"never delivered", deadline=1.0)
            unsent = client.submit((0,), b"closed before it is sent")
        with pytest.raises(OutcomeUnknown) as second:
            await unsent
        return first.value.message, second.value.message, client.sender

    message, none, sender = asyncio.run(tried())
    assert message == f"{sender}:0" and none is None


def test_a_named_session_gives_the_same_ids_whatever_travels_together(
    live: tuple[ClusterConfig, dict[str, Node]],
) -> None:
    config, nodes = live

    async def send(together: bool) -> None:
        async with connect(config.path, "dev", deadline=allow(20), session=77) as client:
            assert client.session == session_of("client/dev", 77)
            if together:
                calls = [client.submit((0,), b"once %d" % i) for i in range(5)]
                *gone, last = await asyncio.gather(*calls, return_exceptions=True)
                assert isinstance(last, dict) and all(isinstance(one, AnswerGone) for one in gone)
            else:
                for i in range(5):
                    await client.submit((0,), b"once %d" % i)

    start = nodes["g0/0"].history.end
    asyncio.run(send(together=False))
    asyncio.run(send(together=True))
    assert nodes["g0/0"].history.end == start + 5, "the second time they are known"


def test_batches_are_cut_where_they_get_long() -> None:
    engine = ClientEngine(protocol("white_box"), 2**40, Topology((1, 1)), Params(1000))
    engine.process.start(0)
    for i in range(MOST_IN_BATCH + 3):
        engine.ask((0,), b"x", i, 1.0)
    engine.ask((1,), bytes(100_000), "long", 1.0)
    engine.ask((1,), b"short", "short", 1.0)
    batches = engine.begin(0)
    assert sorted(len(batch.waiting) for batch in batches) == [1, 1, 3, MOST_IN_BATCH]
    taken = sorted((seq_of(batch.mid), len(batch.waiting)) for batch in batches)
    assert all(one[0] + one[1] == other[0] for one, other in pairwise(taken)), "ids without gaps"
    late = engine.late(1.0)
    assert late == engine.waiting() and sorted(seq_of(mid) for _, mid in late) == list(range(MOST_IN_BATCH + 5))
    assert engine.late(2.0) == [], "each once"


def test_rows_from_the_middle_of_a_batch() -> None:
    m = AppMessage(message_id(9, 4), (0,), joined([b"a", b"", b"ccc"]), 2, 3)
    w = BytesWriter()
    assert pack_rows(w, [(m, 50), (AppMessage(message_id(9, 7), (0,), b"d", 2), 60)], 1) == 4
    rows = unpack_rows(w.getvalue(), 1)
    assert [(ts, index, seq_of(one.mid), one.payload) for ts, index, _, one in rows] == [
        (50, 0, 4, b"a"), (50, 1, 5, b""), (50, 2, 6, b"ccc"), (60, 0, 7, b"d"),
    ]  # fmt: skip
    assert unpack_rows(rows_behind(w.getvalue(), 2, 1), 1) == rows[2:]


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (joined([b"a"]), 1), (joined([b"a"]), 2), (joined([b"a", b"b"]) + b"c", 2), (joined([b"a", b"b"]), 3),
        (b"\xff\xff\xff\xff" + b"abcd", 2), (joined([b"a" * 11, b"b"]), 2), (joined([b""] * 2000), 2000), (b"", 0),
    ],
)  # fmt: skip
def test_a_malformed_batch_is_refused(payload: bytes, count: int) -> None:
    with pytest.raises(WireError):
        check_batch(AppMessage(message_id(9, 0), (0,), payload, 0, count), 10)
    with pytest.raises(WireError):
        check_batch(AppMessage(message_id(9, 2**48 - 1), (0,), joined([b"a", b"b"]), 0, 2), 10)


def test_joined_and_split() -> None:
    parts = [b"", b"one", bytes(1000)]
    assert split(joined(parts), 3) == parts
    for data, count in ((joined(parts), 2), (joined(parts), 4), (joined(parts)[:-1], 3), (b"\xff" * 8, 1)):
        with pytest.raises(WireError):
            split(data, count)
