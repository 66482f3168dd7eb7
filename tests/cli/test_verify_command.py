"""`amcast verify`: exit codes, verdicts and counter-examples."""

import json
from pathlib import Path

import pytest
from calling import Amcast

from amcast.cli.verify import MOST_COUNTEREXAMPLES

TRACES = Path(__file__).parent.parent / "traces"
MULTICAST = (
    '{"run": "RUN", "kind": "multicast", "process": "c0", "group": null, "seq": 1, '
    '"message": "a", "sender": "c0", "dest": ["g0"]}'
)
DELIVER = '{"run": "RUN", "kind": "deliver", "process": "g0/0", "group": "g0", "seq": 1, "message": "a"}'
START = '{"run": "RUN", "kind": "start", "process": "g0/0", "group": "g0", "seq": 0}'
AGAIN = DELIVER.replace('"seq": 1', '"seq": 2')
END = '{"run": "RUN", "kind": "end", "process": "sim", "group": null, "seq": 1}'
CUT_OFF = (START, MULTICAST, DELIVER)
GOOD, TWICE = (*CUT_OFF, END), (*CUT_OFF, AGAIN, END)
ELSEWHERE = MULTICAST.replace('"a"', '"b"').replace('"seq": 1', '"seq": 2').replace('["g0"]', '["g0", "g1"]')
NOTHING = {
    "only an end row": (END,),
    "only start and end": (START, END),
    "no delivery": (START, END, START.replace("g0/0", "g0/1")),
    "client rows only": (MULTICAST, ELSEWHERE, END),
    "a group is missing": (*GOOD, ELSEWHERE, DELIVER.replace('"a"', '"b"').replace('"seq": 1', '"seq": 2')),
    "one replica per group": (MULTICAST, DELIVER, END),
    "one of three members": (START.replace("}", ', "detail": "{\\"members\\": 3}"}'), *GOOD[1:]),
}


def trace(folder: Path, *runs: tuple[str, ...]) -> Path:
    file = folder / "trace.jsonl"
    rows = [row.replace("RUN", f"r{number}") for number, run in enumerate(runs) for row in run]
    file.write_text("\n".join(rows))
    return file


@pytest.mark.parametrize(
    ("runs", "properties", "code"),
    [
        ([GOOD], None, 0),
        ([CUT_OFF], None, 3),
        ([CUT_OFF], "order,integrity", 0),
        ([TWICE], None, 1),
        ([TWICE], "order", 0),
        ([GOOD, CUT_OFF], None, 3),
        ([GOOD, CUT_OFF, TWICE], None, 1),
        ([GOOD], "genuine", 3),
        ([GOOD], "order, fifo", 0),
    ],
)
def test_exit_codes(
    amcast: Amcast, tmp_path: Path, runs: list[tuple[str, ...]], properties: str | None, code: int
) -> None:
    asked = () if properties is None else ("--properties", properties)
    plain = amcast("verify", trace(tmp_path, *runs), *asked)
    as_json = amcast("verify", trace(tmp_path, *runs), *asked, "--json")
    assert plain.code == as_json.code == code
    assert plain.err == as_json.err == ""
    json.loads(as_json.out)


@pytest.mark.parametrize("what", NOTHING)
def test_nothing_is_not_ok(amcast: Amcast, tmp_path: Path, what: str) -> None:
    done = amcast("verify", trace(tmp_path, NOTHING[what]))
    assert done.code == 3, done.out
    assert "unknown" in done.out and done.err == ""
    named = {"a group is missing": "g1, of which no process", "one of three members": "of g0 only 1 of 3 members"}
    assert named.get(what, "") in done.out


def test_a_verdict_says_what_it_rests_on(amcast: Amcast, tmp_path: Path) -> None:
    lines = amcast("verify", trace(tmp_path, GOOD)).out.splitlines()
    assert [line.split() for line in lines if line.startswith("order")] == [
        ["order", "ok", "1", "delivery", "of", "1", "of", "1", "replica"]
    ]
    twice = amcast("verify", trace(tmp_path, GOOD, GOOD)).out
    assert "2 runs, 2 deliveries of 2 of 2 replicas, 2 pairs compared" in twice
    (verdict,) = json.loads(amcast("verify", trace(tmp_path, GOOD), "--properties", "order", "--json").out)["verdicts"]
    assert verdict["evidence"]["deliveries"] == verdict["evidence"]["replicas"] == verdict["evidence"]["expected"] == 1


def test_json_has_the_rows_of_the_counterexample(amcast: Amcast, tmp_path: Path) -> None:
    file = trace(tmp_path, TWICE)
    document = json.loads(amcast("verify", file, "--properties", "integrity,order", "--json").out)
    assert document["trace"] == str(file)
    integrity, order = document["verdicts"]
    assert (integrity["property"], integrity["run"], integrity["status"]) == ("integrity", "r0", "violated")
    assert [(row["process"], row["message"], row["seq"]) for row in integrity["counterexample"]] == [
        ("g0/0", "a", 1),
        ("g0/0", "a", 2),
    ]
    assert (order["status"], order["counterexample"]) == ("ok", [])


def test_a_person_reads_who_did_what(amcast: Amcast, tmp_path: Path) -> None:
    out = amcast("verify", trace(tmp_path, TWICE)).out
    (line,) = [line for line in out.splitlines() if line.startswith("integrity  ")]
    assert line.rstrip().split(maxsplit=2) == ["integrity", "violated", "g0/0 delivered a twice"]
    assert "integrity in run r0, counter-example:" in out
    assert [line.split() for line in out.splitlines() if line.startswith("deliver")] == [
        ["deliver", "g0/0", "g0", "1", "a"],
        ["deliver", "g0/0", "g0", "2", "a"],
    ]


def test_many_runs_are_counted_and_few_counterexamples_shown(amcast: Amcast, tmp_path: Path) -> None:
    out = amcast("verify", trace(tmp_path, GOOD, CUT_OFF, *[TWICE] * 8)).out
    assert "8 violated, 2 ok" in out
    assert "1 unknown, 9 ok" in out
    assert "run r2: g0/0 delivered a twice" in out
    assert out.count("counter-example:") == MOST_COUNTEREXAMPLES == 5
    assert "and 3 more counter-examples; --json shows all" in out


@pytest.mark.parametrize(
    ("name", "properties", "code"),
    [
        ("good", "order,integrity,fifo,causal,termination", 0),
        ("duplicate", "integrity", 1),
        ("unsent", "integrity", 1),
        ("cycle3", "order", 1),
        ("crashed_gap", "order", 1),
        ("fifo", "fifo", 1),
        ("causal", "causal", 1),
    ],
)
def test_hand_written_traces(amcast: Amcast, name: str, properties: str, code: int) -> None:
    done = amcast("verify", TRACES / f"{name}.jsonl", "--properties", properties)
    assert done.code == code and done.err == ""
    assert ("counter-example:" in done.out) == (code == 1)


def test_what_sim_writes_verifies(amcast: Amcast, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    amcast("sim", "white_box", "--messages", 60, "--crash", "g0/0@10ms", "--trace", "full", "--out", out)
    done = amcast("verify", out, "--json")
    assert done.code == 0
    assert [(v["property"], v["status"]) for v in json.loads(done.out)["verdicts"]] == [
        (name, "ok") for name in ("integrity", "validity", "order", "agreement", "termination", "genuine")
    ]
