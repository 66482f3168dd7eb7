"""A trace of one process survives its kills: no row is lost, none is torn, and `seq` goes on."""

import json
from pathlib import Path

from amcast.runtime.tracing import START_SHIFT, TraceWriter


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_process_that_comes_back_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "g0-1.jsonl"
    writer = TraceWriter(path, "run", "g0/1", "g0")
    writer.begin(3)
    for number in range(5):
        writer.row("deliver", message=f"c1:{number}")
    writer.flush()
    before = rows(path)
    assert before[0]["kind"] == "start" and before[0]["detail"] == '{"members": 3}'
    with open(path, "a") as file:
        file.write('{"kind":"deliver","run":"ru')  # killed in the middle of a write

    again = TraceWriter(path, "run", "g0/1", "g0")
    assert (again.deliveries, again.starts, again.stopped) == (5, 1, before[-1]["time"])
    again.begin(3)
    again.row("optdeliver", message="c1:5")
    again.row("deliver", message="c1:5")
    again.close()
    found = rows(path)
    assert found[: len(before)] == before
    assert [row["kind"] for row in found[len(before) :]] == ["crash", "restart", "optdeliver", "deliver"]
    assert found[6]["time"] == before[-1]["time"], "it crashed after the last thing it wrote"
    seqs = [int(str(row["seq"])) for row in found]
    assert seqs == sorted(set(seqs)) and seqs[6] == (1 << START_SHIFT) + 1
    third = TraceWriter(path, "run", "g0/1", "g0")
    assert (third.deliveries, third.starts) == (6, 2)
    third.close()
