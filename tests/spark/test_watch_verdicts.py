"""`amcast watch` says ok only of what it saw, names who was missing, and its exit code is its verdict."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.spark.stream import watch
from amcast.spark.stream.seen import Seen
from amcast.verify.online import ColumnWatcher
from tests.spark.watching import Rows, Watched, delivered, event, multicast, watched

__all__ = ["watched"]
ALL = ("g0/0", "g0/1", "g0/2")
LEVEL = dict.fromkeys(ALL, 3)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return cluster(tmp_path / "c")


def cluster(folder: Path, groups: int = 1, spare: int = 0) -> Path:
    made = create_cluster(
        folder,
        protocol("allconcur" if spare else "white_box"),
        groups,
        3,
        "log",
        secure=False,
        spare=spare,
        durable=not spare,
    )
    text = made.path.read_text(encoding="utf-8")
    made.path.write_text(text.replace(f'"{made.name}"', '"r"'), encoding="utf-8")
    return made.path


def all_deliver(messages: str = "abc", first: int = 0, by: tuple[str, ...] = ALL) -> Rows:
    return [row for process in by for row in delivered(process, messages, first)]


# A cluster


def test_a_clean_watch_says_what_it_rests_on(watched: Watched, config: Path) -> None:
    watched.answers(LEVEL)
    code, said = watched(config, "--once", batches=[all_deliver()])
    assert (code, said[-1]) == (
        0,
        "order, integrity, validity ok: 9 deliveries of 3 of 3 replicas, 9 pairs compared",
    )
    code, said = watched(config, batches=[all_deliver("de", 3)])
    assert code == 0 and "6 deliveries of 3 of 3 replicas, 6 pairs" in said[-1], "and only of its own time"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (all_deliver(by=ALL[:2]) + delivered("g0/2", "bac"), "order violated: a cycle: "),
        (all_deliver(by=ALL[:2]) + delivered("g0/2", "ab") + delivered("g0/2", "b", 2), "integrity violated: g0/2"),
        (all_deliver(by=ALL[:2]) + delivered("g0/2", "abc", dest=["g1"]), "validity violated: 3 times, first: g0/2"),
    ],
)
def test_whatever_is_wrong_is_exit_code_1(watched: Watched, config: Path, rows: Rows, said: str) -> None:
    watched.answers(LEVEL)
    code, lines = watched(config, "--once", batches=[rows])
    assert code == 1 and any(line.startswith(said) for line in lines)
    assert sum("VIOLATED in batch 0" in line for line in lines) > 0


def test_positions_that_a_replica_has_not_are_a_violation(watched: Watched, config: Path) -> None:
    """Also if all of them have the same gap, so that their orders agree."""
    watched.answers(LEVEL)
    gap = [row for process in ALL for row in delivered(process, "ab") + delivered(process, "c", 7)]
    code, said = watched(config, "--once", batches=[gap])
    assert code == 1 and "order violated: 3 times, first: g0/0 has nothing at positions 2 to 6" in said[-2]


def test_the_dead_are_named(watched: Watched, config: Path) -> None:
    watched.answers({"g0/0": 3})
    code, said = watched(config, "--once", batches=[delivered("g0/0", "abc")])
    assert code == 3
    assert said[-2:] == [
        "order unknown: g0/1 and g0/2 gave no rows: they do not answer; no delivery was compared with one of another "
        "process (3 deliveries of 1 of 3 replicas)",
        "integrity, validity unknown: g0/1 and g0/2 gave no rows: they do not answer (3 deliveries of 1 of 3 replicas)",
    ]
    watched.states.clear()
    watched.answers({"g0/0": 3, "g0/2": 3})
    code, said = watched(config, "--once", batches=[all_deliver(by=("g0/0", "g0/2"))])
    assert code == 3 and "g0/1 gave no rows: it does not answer (6 deliveries of 2 of 3 replicas, 6 pairs" in said[-1]


def test_every_replica_has_a_row_and_the_silent_ones_say_so(watched: Watched, config: Path) -> None:
    watched.answers({"g0/0": 3, "g0/2": 3})
    _, said = watched(config, "--once", batches=[all_deliver(by=("g0/0", "g0/2"))])
    (row,) = (line for line in said if line.startswith("g0/1 ") and "silent for" in line)
    assert row.split()[:3] == ["g0/1", "0", "0"] and row.rstrip().endswith(" s")
    assert sum(line.startswith(("g0/0 ", "g0/2 ")) and "silent" not in line for line in said) == 2
    watched.states.clear()
    watched.answers(LEVEL)
    _, said = watched(config, "--once", batches=[all_deliver()])
    assert not any("silent for" in line for line in said)


def test_who_dies_during_the_watch_is_named(watched: Watched, config: Path) -> None:
    watched.answers(LEVEL, {"g0/0": 3, "g0/1": 3})
    code, said = watched(config, batches=[all_deliver()])
    assert code == 3 and "order, integrity, validity unknown: g0/2 does not answer any more (9 deliveries" in said[-1]


def test_who_lives_and_gives_nothing_is_named(watched: Watched, config: Path) -> None:
    for end in (0, 3):
        watched.states.clear()
        watched.answers({**LEVEL, "g0/2": end})
        code, said = watched(config, "--once", batches=[all_deliver(by=ALL[:2])])
        assert code == 3 and "g0/2 gave no rows, others of its group did (6 deliveries of 2 of 3" in said[-1]


def test_a_group_that_has_nothing_to_deliver(watched: Watched, tmp_path: Path) -> None:
    watched.answers({**LEVEL, **dict.fromkeys(("g1/0", "g1/1", "g1/2"), 0)})
    code, said = watched(cluster(tmp_path / "c", 2), "--once", batches=[all_deliver()])
    assert code == 0 and said[-2] == "g1 delivered nothing" and "9 deliveries of 3 of 6 replicas" in said[-1]


def test_a_group_of_which_nobody_answers_is_an_error(watched: Watched, tmp_path: Path) -> None:
    watched.answers(LEVEL)
    code, said = watched(cluster(tmp_path / "c", 2), "--once", batches=[all_deliver()])
    assert code == 2 and "no replica of g1 answers (g1/0, g1/1, g1/2)" in said[-1]


def test_a_spare_is_expected_when_it_has_joined(watched: Watched, tmp_path: Path) -> None:
    spare = cluster(tmp_path / "c", spare=1)
    watched.answers(LEVEL)
    code, said = watched(spare, "--once", batches=[all_deliver()])
    assert code == 0 and "9 deliveries of 3 of 3 replicas" in said[-1]
    watched.states.clear()
    watched.answers({**LEVEL, "g0/3": 3})
    code, said = watched(spare, "--once", batches=[all_deliver()])
    assert code == 3 and "g0/3 gave no rows, others of its group did (9 deliveries of 3 of 4 replicas" in said[-1]


def test_an_idle_cluster(watched: Watched, config: Path) -> None:
    watched.answers(dict.fromkeys(ALL, 0))
    for once in (["--once"], []):
        code, said = watched(config, *once)
        assert code == 3
        assert said[-1] == "order, integrity, validity unknown: nothing was delivered (0 deliveries of 0 of 3 replicas)"


def test_rows_that_could_not_be_read(watched: Watched, config: Path) -> None:
    """They are no violation, and not forgotten."""
    watched.answers(dict.fromkeys(ALL, 9))
    hole = [*delivered("g0/2", "abc"), event("lost", "g0/2", 3), *delivered("g0/2", "hi", 7)]
    code, said = watched(config, "--once", batches=[all_deliver("abcdefghi", by=ALL[:2]) + hole])
    assert code == 3
    assert "order, integrity, validity unknown: g0/2 has rows that could not be read (23 deliveries of 3" in said[-1]


def test_what_was_there_and_not_read(watched: Watched, config: Path) -> None:
    watched.answers(dict.fromkeys(ALL, 7))
    code, said = watched(config, "--once", batches=[all_deliver()])
    assert code == 3 and "unknown: g0/0 was read up to 3 of 7; g0/1 was read up to 3 of 7" in said[-1]


def test_who_is_behind_does_not_hide_what_others_did(watched: Watched, config: Path) -> None:
    watched.answers({**LEVEL, "g0/0": 1})
    rows = delivered("g0/0", "a")
    code, _ = watched(config, "--once", batches=[rows + delivered("g0/1", "abc") + delivered("g0/2", "acb")])
    assert code == 1
    watched.states.clear()
    code, said = watched(config, "--once", batches=[rows + all_deliver(by=ALL[1:])])
    assert code == 0 and "7 deliveries of 3 of 3 replicas, 7 pairs" in said[-1]
    watched.states.clear()
    code, said = watched(config, batches=[rows + all_deliver(by=ALL[1:])])
    assert said[-2] == "4 deliveries still wait for those of others, and are not compared"
    assert code == 0 and "7 deliveries of 3 of 3 replicas, 3 pairs" in said[-1]


# How the query ends


@pytest.mark.parametrize(
    ("once", "active", "error", "said"),
    [
        (
            True,
            False,
            "x\n  File y\namcast.core.errors.OutcomeUnknown: late\nSQLSTATE: 1",
            "the query ended: amcast.core",
        ),
        (False, False, "", "the query ended by itself, before it was told to"),
        (True, True, "", "stopped before all that is there was read"),
    ],
)
def test_a_query_that_ends_too_early(
    watched: Watched, config: Path, once: bool, active: bool, error: str, said: str
) -> None:
    watched.answers(LEVEL)
    arguments = [config, *(["--once", "--seconds", "0"] if once else [])]
    code, lines = watched(*arguments, batches=[all_deliver()], active=active, error=error)
    assert code == 3 and f"order, integrity, validity unknown: {said}" in lines[-1]
    wrong = all_deliver(by=ALL[:2]) + delivered("g0/2", "bac")
    watched.states.clear()
    code, lines = watched(*arguments, batches=[wrong], active=active, error=error)
    assert code == 1 and said in lines[-1], "what was found before counts"


def test_the_cause_is_found_in_what_spark_says() -> None:
    assert (
        watch.cause("[STREAM_FAILED] x\n  at y\namcast.errors.AmcastError: no\n+- ~Scan[run#0]\n")
        == "amcast.errors.AmcastError: no"
    )
    assert watch.cause("one line") == "one line"


# A checkpoint


def test_what_an_earlier_watch_saw_is_no_evidence(watched: Watched, config: Path, tmp_path: Path) -> None:
    watched.answers(LEVEL)
    again = [config, "--once", "--checkpoint", tmp_path / "p"]
    assert watched(*again, batches=[all_deliver()])[0] == 0
    code, said = watched(*again)
    assert code == 3 and "nothing was read in this watch, though g0/2 has 3 deliveries" in said[-1]
    watched.answers({**LEVEL, "g0/0": 4, "g0/1": 4})
    code, said = watched(*again, batches=[all_deliver("d", 3, ALL[:2])])
    assert code == 0 and "2 deliveries of 2 of 3 replicas, 2 pairs" in said[-1], "g0/2 was read to its end before"


def test_an_order_that_was_broken_before_is_not_ok(watched: Watched, config: Path, tmp_path: Path) -> None:
    watched.answers(LEVEL)
    again = [config, "--once", "--checkpoint", tmp_path / "p"]
    assert watched(*again, batches=[all_deliver(by=ALL[:2]) + delivered("g0/2", "bac")])[0] == 1
    watched.answers(dict.fromkeys(ALL, 4))
    code, said = watched(*again, batches=[all_deliver("d", 3)])
    assert code == 3 and any("the order is not compared since a violation" in line for line in said)


# Files


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        ([], "holds no trace, it is empty; expected .jsonl files or kind=…/*.parquet"),
        (["notes.txt", "run/notes.md"], "holds no trace, there is notes.txt and 1 more; expected .jsonl"),
        (["kind=deliver/_SUCCESS"], "holds no trace, there is kind=deliver/; expected"),
    ],
)
def test_a_folder_without_traces(watched: Watched, tmp_path: Path, names: list[str], seen: str) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    code, said = watched(folder, "--once")
    assert code == 2 and seen in " ".join(said)
    code, said = watched(folder)
    assert code == 3 and "waiting for .jsonl files" in " ".join(said[:3])
    assert said[-1] == "order, integrity, validity unknown: nothing was delivered (0 deliveries)"


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (["a.jsonl", "kind=deliver/0.parquet"], "a.jsonl would not be read"),
        (["a.jsonl", "run/b.jsonl"], "run/b.jsonl would not be read"),
        (["a.jsonl", "b.csv", "c.parquet"], "b.csv and 1 more would not be read"),
        (["a.jsonl", "_b.jsonl"], "_b.jsonl would not be read"),
        (["a.jsonl", "b.jsonl.gz"], "b.jsonl.gz would not be read"),
        (["kind=deliver/0.parquet", "1.parquet"], "1.parquet would not be read"),
        (["kind=deliver/0.parquet", "kind=deliver/more/1.parquet"], "kind=deliver/more/1.parquet would not be read"),
        (["kind=deliver/part.csv"], "kind=deliver/part.csv would not be read; expected only .jsonl files directly in"),
    ],
)
def test_what_looks_like_a_trace_is_not_passed_over(
    watched: Watched, tmp_path: Path, names: list[str], seen: str
) -> None:
    folder = tmp_path / "traces"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for once in (["--once"], []):
        code, said = watched(folder, *once, batches=[all_deliver()])
        assert code == 2 and seen in " ".join(said)


def test_what_comes_later_and_is_not_read(watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter(["", "b.csv"])
    monkeypatch.setattr(watch, "unread", lambda folder, parquet: next(found))
    code, said = watched(tmp_path, batches=[all_deliver()])
    assert code == 3 and "order, integrity, validity unknown: b.csv came and was not read (9 deliveries" in said[-1]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "g0-0.jsonl").touch()
    return [str(tmp_path), "--once"]


def started(*processes: str, members: int = 3) -> Rows:
    return [event("start", process, -1, detail=json.dumps({"members": members})) for process in processes]


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        (all_deliver(), 0, "order, integrity, validity ok: 9 deliveries of 3 of 3 replicas, 9 pairs compared"),
        (started(*ALL) + all_deliver(by=ALL[:2]), 3, "g0/2 gave no rows, others of its group did (6 deliveries of 2"),
        (started("g0/0") + all_deliver(by=ALL[:2]), 3, "of g0 only 2 of 3 members have rows (6 deliveries of 2 of 3"),
        (
            [{**row, "dest": ["g0", "g1"][: 1 + (row["message"] == "c")]} for row in all_deliver()],
            3,
            "messages are addressed to g1, of which no process is in the trace (9 deliveries of 3 of 3 replicas, 6",
        ),
        (started(*ALL), 3, "nothing was delivered (0 deliveries of 0 of 3 replicas)"),
        ([event("multicast", "c1", 0, message="a")], 3, "nothing was delivered"),
        ([event("end", "driver", 0)], 3, "nothing was delivered"),
        ([{**event("deliver", "g0/0", 0), "process": None}], 3, "rows that lack process, group, place or message: 1"),
        (
            [*all_deliver(), {**event("deliver", "g0/0", 9), "message": None}],
            3,
            "rows that lack process, group, place or message: 1",
        ),
    ],
)
def test_what_a_trace_shows(watched: Watched, files: list[str], rows: Rows, code: int, said: str) -> None:
    found, lines = watched(*files, batches=[rows])
    assert found == code and said in lines[-1]


def test_one_process_is_compared_with_nobody(watched: Watched, files: list[str]) -> None:
    code, said = watched(*files, batches=[delivered("g0/0", "abc")])
    assert code == 3
    assert said[-2].startswith("order unknown: no delivery was compared with one of another process (3 deliveries of 1")
    assert said[-1] == "integrity, validity ok: 3 deliveries of 1 of 1 replica"


def test_a_member_that_is_known_from_an_earlier_watch(watched: Watched, files: list[str]) -> None:
    assert watched(*files, batches=[started(*ALL) + all_deliver()])[0] == 0
    code, said = watched(*files, batches=[all_deliver("d", 3, ALL[:2])])
    assert code == 3 and "g0/2 gave no rows, others of its group did (2 deliveries of 2 of 3" in said[-1]


def test_each_run_has_its_verdict(watched: Watched, files: list[str]) -> None:
    good = [{**row, "run": run} for run in ("one", "two") for row in all_deliver()]
    code, said = watched(*files, batches=[good])
    assert code == 0 and said[-1] == (
        "order, integrity, validity ok: 2 runs, 18 deliveries of 6 of 6 replicas, 18 pairs compared"
    )
    watched.states.clear()
    bad = [{**row, "run": "bad"} for row in started(*ALL)]
    code, said = watched(*files, batches=[good, bad])
    assert code == 3 and said[-2].startswith("order, integrity, validity ok in 2 runs: 2 runs, 18 deliveries")
    assert said[-1].startswith("order, integrity, validity unknown in run bad: nothing was delivered")


def test_one_json_document(watched: Watched, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, said = watched(*files, "--json", batches=[all_deliver(by=ALL[:2]) + delivered("g0/2", "bac")])
    document, _ = json.JSONDecoder().raw_decode("\n".join(said))
    assert code == 1 and document["batches"] == 1
    order, integrity, _ = document["verdicts"]
    assert (order["property"], order["status"]) == ("order", "violated") and len(order["counterexample"]) == 2
    assert integrity["status"] == "ok" and integrity["evidence"]["deliveries"] == 9


# What was not compared


STUCK = [multicast("a", "g0", "g1"), *(multicast(m, "g0", seq=i) for i, m in enumerate("cxy", 1))]


def without_dest(process: str, messages: str) -> Rows:
    return delivered(process, messages, dest=None)


def test_a_message_that_waits_for_a_silent_group_hides_nothing(watched: Watched, files: list[str]) -> None:
    rows = started("g0/0", "g0/1", "g1/0", "g1/1", members=2) + STUCK
    code, said = watched(*files, batches=[rows + without_dest("g0/0", "caxy") + without_dest("g0/1", "cayx")])
    assert code == 1 and any(line.startswith("order violated: a cycle: g0/") for line in said)


def test_what_still_waits_is_not_ok(watched: Watched, files: list[str]) -> None:
    rows = started("g0/0", "g0/1", "g1/0", "g1/1", members=2) + STUCK
    rows += without_dest("g0/0", "caxy") + without_dest("g0/1", "caxy")
    waits = "6 deliveries still wait for those of others, and are not compared"
    code, said = watched(*files, batches=[rows])
    assert code == 3 and said[-2].startswith(f"order unknown: {waits} (8 deliveries of 2 of 4 replicas, 2 pairs")
    assert said[-1].startswith("integrity, validity ok") and said[-3] == "g1 delivered nothing"
    watched.states.clear()
    code, said = watched(*files[:1], batches=[rows])
    assert code == 0 and waits in said, "they may be under way"
    watched.states.clear()
    code, said = watched(*files[:1], batches=[[*rows, event("end", "driver", 0)]])
    assert code == 3 and said[-2].startswith(f"order unknown: {waits}"), "the run is over"


def test_what_waits_for_long_is_not_under_way() -> None:
    def process(head: int, behind: int = 1) -> SimpleNamespace:
        return SimpleNamespace(
            kind="process", name="g0/0", text="g0", amount=1, behind=behind, place=9, head=head, since=5
        )

    for rows, late in (
        ([(process(3), 0.0), (process(3), 20.0)], True),
        ([(process(3), 0.0), (process(4), 20.0)], False),
        ([(process(3), 0.0), (process(9, 0), 20.0)], False),
    ):
        seen = Seen("r")
        for row, now in rows:
            seen.add(row, now)
        assert bool(seen.open_ends(21.0)["order"]) == late
    assert Seen.open_ends(seen, None)["order"] == []


def test_a_busy_cluster_that_is_read_once_has_something_under_way(watched: Watched, tmp_path: Path) -> None:
    level = {f"g{g}/{i}": 3 for g in (0, 1) for i in range(3)}
    watched.answers(level)
    config = cluster(tmp_path / "c", 2)
    others = all_deliver(by=("g1/0", "g1/1", "g1/2"), messages="def")
    for time, code in ((1, 3), (2**62, 0)):
        watched.states.clear()
        rows = [{**row, "dest": ["g0", "g1"], "time": time} if row["message"] == "c" else row for row in all_deliver()]
        found, said = watched(config, "--once", batches=[rows + others])
        assert found == code and any("3 deliveries still wait" in line for line in said)


# Multicasts

CROSSED = [
    row for p, m in (("g0/0", "ab"), ("g0/1", "ab"), ("g1/0", "ba"), ("g1/1", "ba")) for row in without_dest(p, m)
]
LATER = [multicast("a", "g0", "g1"), multicast("b", "g0", "g1", seq=1)]


def test_multicasts_that_come_after_the_deliveries(watched: Watched, files: list[str]) -> None:
    for batches in ([CROSSED, LATER], [CROSSED[:4], CROSSED[4:], LATER], [CROSSED[:4], LATER, CROSSED[4:]], [CROSSED]):
        watched.states.clear()
        code, said = watched(*files, batches=batches)
        assert code == 1 and any(line.startswith("order violated: a cycle") for line in said)
    good = [row for p in ("g0/0", "g0/1", "g1/0", "g1/1") for row in without_dest(p, "ab")]
    for batches in ([good, LATER], [good[:5], LATER, good[5:]], [good[:2], good[2:5], LATER[:1], good[5:], LATER[1:]]):
        watched.states.clear()
        code, said = watched(*files, batches=batches)
        assert (code, said[-1]) == (
            0,
            "order, integrity, validity ok: 8 deliveries of 4 of 4 replicas, 8 pairs compared",
        )


def test_a_trace_without_multicasts(watched: Watched, files: list[str]) -> None:
    code, said = watched(*files, batches=[[{**row, "dest": None} for row in all_deliver()]])
    unknown = "delivered messages whose destinations no row names: 3 (9 deliveries"
    assert code == 3 and said[-2].startswith(
        "integrity unknown: nothing was multicast, so only repetitions can be seen"
    )
    assert said[-1].startswith(f"validity unknown: {unknown}") and said[-3].startswith(
        "order unknown: 9 deliveries still"
    )


def test_a_message_without_a_multicast(watched: Watched, files: list[str]) -> None:
    some = [multicast("a", "g0"), multicast("c", "g0", seq=1)]
    code, said = watched(*files, batches=[some + all_deliver()])
    assert code == 3 and said[-1].startswith(
        "integrity unknown: delivered messages without a multicast row: 1 (9 deliv"
    )
    assert said[-2].startswith("order, validity ok"), "the deliveries say where they go"
    watched.states.clear()
    code, said = watched(*files, batches=[some + all_deliver(), [multicast("b", "g0", seq=2)]])
    assert code == 0


def test_deliveries_that_come_too_late_to_be_compared(
    watched: Watched, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ColumnWatcher", partial(ColumnWatcher, window=2))
    code, said = watched(*files, batches=[all_deliver("abcdef", by=ALL[:2]), delivered("g0/2", "abcdef")])
    assert code == 3 and "deliveries came too late to be compared with others" in said[-2]


def test_too_many_messages_without_destinations(
    watched: Watched, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not kept without end: the groups are judged one by one, and that is said."""
    monkeypatch.setattr(watch, "ColumnWatcher", partial(ColumnWatcher, window=2))
    rows = [row for p in ("g0/0", "g0/1", "g1/0") for row in without_dest(p, "abcdef")]
    late = [multicast(m, "g0", "g1", seq=i) for i, m in enumerate("abcdef")]
    code, said = watched(*files, batches=[rows, late])
    assert code == 3 and any("each group is judged by itself, for too many" in line for line in said)
    watched.states.clear()
    wrong = delivered("g0/0", "xy", 6, dest=None) + delivered("g0/1", "yx", 6, dest=None)
    code, said = watched(*files, batches=[rows, late, wrong])
    assert code == 1 and any(line.startswith("order violated: a cycle: g0/0 delivers x (g0)") for line in said)
