"""The ordered log for readers, with limits so small that every boundary is crossed: no row is lost or comes twice."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import cluster, running

from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.errors import AmcastError, HistoryGone
from amcast.runtime.history import BLOCK, MOST_TOGETHER, History
from amcast.runtime.machine import Limits, Machine
from amcast.runtime.rows import unpack_rows
from amcast.service import connect, connect_sync

ROWS = 300
TINY = Machine(limits=Limits(file_bytes=400, kept_in_memory=300))


def message(number: int) -> AppMessage:
    return AppMessage(message_id(2**50, number), (0,), b"payload %d" % number)


def fill(history: History, count: int = ROWS, written: bool = True) -> None:
    """Append in blocks of one to five rows, as a node does: several blocks with each commit."""
    number = history.end
    while number < count:
        block = range(number, min(number + 1 + number % 5, count))
        history.append([(message(n), n << 8) for n in block], time=10**9 + number)
        number = block.stop
        if written and number % 3:
            history.write(history.take_unwritten())
    if written:
        history.write(history.take_unwritten())


def told(history: History, position: int, most_bytes: int = 200) -> list[tuple[int, bytes]]:
    """Position and payload of every row from a position on, read in pieces as a client does."""
    found: list[tuple[int, bytes]] = []
    while position < history.end:
        place, after, rows = history.read(position, most_bytes)
        for _, _, _, m in unpack_rows(rows, 1):
            if place >= position:
                found.append((place, m.payload))
            place += 1
        assert place == after > position, "a read says how far it went, and goes on"
        position = after
    return found


def expected(start: int, count: int = ROWS) -> list[tuple[int, bytes]]:
    return [(n, b"payload %d" % n) for n in range(start, count)]


@pytest.mark.parametrize("most_bytes", [1, 200, 10**6])
def test_every_row_from_every_position(tmp_path: Path, most_bytes: int) -> None:
    history = History(tmp_path, machine=TINY)
    fill(history)
    assert len(list(tmp_path.glob("rows-*"))) > 10 and history.earliest == 0
    assert history._blocks[0][0] > ROWS // 2, "most of it is only on disk"
    for start in range(ROWS):
        assert told(history, start, most_bytes) == expected(start), start
    assert history.read(ROWS, most_bytes) == history.read(ROWS + 7, most_bytes) == (ROWS, ROWS, b"")
    history.close()


def test_what_is_delivered_together_may_be_long(tmp_path: Path) -> None:
    """After a restart all since the snapshot is delivered at once. Readers get whole blocks, in bounded frames."""
    history = History(tmp_path)
    sizes = [10, 2 * MOST_TOGETHER, *[50_000] * 100, MOST_TOGETHER, 7]
    payloads = [bytes([n]) * size for n, size in enumerate(sizes)]
    messages = [AppMessage(message_id(2**50, n), (0,), payload) for n, payload in enumerate(payloads)]
    history.append([(m, n << 8) for n, m in enumerate(messages)], time=1)
    history.write(history.take_unwritten())
    for found in (history, History(tmp_path, history.end)):
        assert [payload for _, payload in told(found, 0)] == payloads
        lengths = [len(found.read(position, 1)[2]) for position in range(found.end)]
        assert max(lengths) < 2 * MOST_TOGETHER + 1000 and sorted(lengths)[-2] < MOST_TOGETHER + 1000


def test_in_memory_alone() -> None:
    history = History(None, machine=TINY)
    fill(history, written=False)
    assert 0 < history.earliest < ROWS
    for start in range(history.earliest, ROWS):
        assert told(history, start) == expected(start)
    with pytest.raises(HistoryGone, match=f"position 0 is no longer kept: the earliest is {history.earliest}"):
        history.read(0, 100)


def test_what_is_kept_on_disk_is_bounded(tmp_path: Path) -> None:
    history = History(tmp_path, machine=replace(TINY, limits=replace(TINY.limits, kept_on_disk=5 * 400)))
    fill(history)
    assert len(list(tmp_path.glob("rows-*"))) == 5
    assert told(history, history.earliest) == expected(history.earliest) != []
    with pytest.raises(HistoryGone):
        history.read(history.earliest - 1, 100)
    history.close()


def test_a_restart_goes_on_where_its_snapshot_ends(tmp_path: Path) -> None:
    """What lies behind the snapshot is delivered again, and is not there twice."""
    history = History(tmp_path / "whole", machine=TINY)
    fill(history)
    history.close()
    for end in [0, *starts()[-12:], ROWS]:
        shutil.copytree(tmp_path / "whole", tmp_path / str(end))
        again = History(tmp_path / str(end), end, TINY)
        assert again.end == end and again.earliest == 0
        assert told(again, 0) == expected(0, end)
        fill(again)
        for most_bytes in (1, 200, 10**6):
            assert told(again, 0, most_bytes) == expected(0)
        again.close()


def starts() -> list[int]:
    """The first positions of the blocks that `fill` makes."""
    found = [0]
    while found[-1] + 1 + found[-1] % 5 < ROWS:
        found.append(found[-1] + 1 + found[-1] % 5)
    return found


def test_a_damaged_or_missing_block_is_an_error_and_not_a_gap(tmp_path: Path) -> None:
    history = History(tmp_path, machine=TINY)
    fill(history)
    first, second, *_ = sorted(tmp_path.glob("rows-*"), key=lambda path: int(path.name[5:]))
    data = bytearray(first.read_bytes())
    data[BLOCK.size + 3] ^= 1
    first.write_bytes(data)
    with pytest.raises(AmcastError, match="damaged at position 0; repair this node from its peers"):
        told(history, 0)
    os.truncate(second, 0)
    with pytest.raises(AmcastError, match="is missing; repair this node from its peers"):
        told(history, int(second.name[5:]))
    history.close()


def test_a_reader_is_told_that_rows_are_gone(tmp_path: Path) -> None:
    """By the error that has a name: a program that copies deliveries elsewhere must know that it missed some."""
    config = cluster(tmp_path / "c", replicas=1)
    with running(config), connect_sync(config.path, "dev", deadline=20) as client:
        client.multicast(["g0"], b"lost")
    shutil.rmtree(config.members[0].data / "history")

    async def read() -> None:
        async with connect(config.path, "dev") as client:
            async for _ in client.deliveries("g0", start=0):
                return

    with running(config), pytest.raises(HistoryGone, match="position 0 is no longer kept"):
        asyncio.run(read())
