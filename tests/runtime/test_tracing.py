"""A trace of one process survives its kills: no row is lost, none is torn, and `seq` goes on."""

import asyncio
import json
from pathlib import Path

from nodes import cluster, running
from tests.pace import allow

from amcast.runtime.tracing import START_SHIFT, TraceWriter
from amcast.service import connect


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_process_that_comes_back_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "g0-1.jsonl"
    writer = TraceWriter(path, "run", "g0/1", "g0")
    writer.begin(3)
    for number in range(5):
        writer.row("deliver", message=f"c1:{number}", position=number)
    writer.flush()
    before = rows(path)
    assert before[0]["kind"] == "start" and before[0]["detail"] == '{"members": 3}'
    with open(path, "a") as file:
        file.write('{"kind":"deliver","run":"ru')  # killed in the middle of a write

    again = TraceWriter(path, "run", "g0/1", "g0")
    assert (again.position, again.starts, again.stopped) == (5, 1, before[-1]["time"])
    again.begin(3)
    again.row("optdeliver", message="c1:5")
    again.row("deliver", message="c1:5", position=8)
    again.close()
    found = rows(path)
    assert found[: len(before)] == before
    assert [row["kind"] for row in found[len(before) :]] == ["crash", "restart", "optdeliver", "deliver"]
    assert found[6]["time"] == before[-1]["time"], "it crashed after the last thing it wrote"
    seqs = [int(str(row["seq"])) for row in found]
    assert seqs == sorted(set(seqs)) and seqs[6] == (1 << START_SHIFT) + 1
    third = TraceWriter(path, "run", "g0/1", "g0")
    assert (third.position, third.starts) == (9, 2), "positions are said, and not counted"
    third.close()


def test_a_client_that_ends_before_it_was_answered_says_so(tmp_path: Path) -> None:
    """It sends its multicasts again for as long as it lives: those that it leaves open need not be delivered."""
    config = cluster(tmp_path, replicas=1)

    async def ask(path: Path, answered: bool) -> None:
        async with connect(config.path, "dev", trace=path, deadline=allow(20)) as client:
            future = client.submit((0,), b"x")
            await (future if answered else asyncio.sleep(0))

    asyncio.run(ask(tmp_path / "open.jsonl", answered=False))
    assert [row["kind"] for row in rows(tmp_path / "open.jsonl")] == ["multicast", "crash"]
    with running(config):
        asyncio.run(ask(tmp_path / "answered.jsonl", answered=True))
    assert [row["kind"] for row in rows(tmp_path / "answered.jsonl")] == ["multicast"]
