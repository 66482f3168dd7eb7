"""The tables of a trace say what its rows say: the same numbers as the in-memory summary, and right on small traces."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from amcast.checks.optimistic import count_mistakes
from amcast.cli import run
from amcast.core.trace import Event
from amcast.errors import UsageError
from amcast.protocols import protocol
from amcast.sim.network import MILLISECOND
from amcast.sim.simulation import Crash, Simulation
from amcast.sim.summary import Summary, SummaryRecorder
from amcast.spark.metric_tables import LOAD, TABLES
from amcast.spark.metrics import TIMED, Collected, collect, collect_from, metrics, save
from amcast.spark.tables import read_rows
from amcast.swarm.seeds import make_trial
from amcast.tracefile import ParquetRecorder, write_csv, write_jsonl

Row = Mapping[str, Any]

# ---------------------------------------------------------------- the same numbers as the summary

SIMULATIONS = (
    Simulation("white_box", messages=300, clients=12, crashes=(Crash("g0/0", 20 * MILLISECOND),)),
    Simulation("white_box", messages=200, network="uniform:1ms,9ms", dest_groups=3, seed=2),
    Simulation("skeen", replicas=1, messages=200, rate=300.0, network="exponential:0.5ms,0.15ms"),
)
SWARM = [("white_box", seed) for seed in range(1, 41)] + [("skeen", seed) for seed in range(1, 11)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Summary]]:
    """Runs of all kinds in one trace, faulty ones among them, and the summaries made while they ran."""
    folder = tmp_path_factory.mktemp("traces") / "trace"
    summaries = {}
    with ParquetRecorder(folder) as writer:
        for number, simulation in enumerate(SIMULATIONS):
            recorder = SummaryRecorder(forward_to=writer)
            world = simulation.world(recorder, run=f"simulation-{number}")
            world.run()
            summaries[f"simulation-{number}"] = recorder.summary(world.network.delta)
        for name, seed in SWARM:
            recorder = SummaryRecorder(forward_to=writer)
            make_trial(protocol(name), seed, recorder).world.run()
            summaries[f"{name}-{seed}"] = recorder.summary(MILLISECOND)
    return folder, summaries


@pytest.fixture(scope="module")
def measured(spark: SparkSession, recorded: tuple[Path, dict[str, Summary]]) -> dict[str, list[dict[str, Any]]]:
    found = collect(spark, read_rows(spark, str(recorded[0])))
    assert found.notes == ()
    return {name: table.to_pylist() for name, table in found.tables.items()}


def by_run(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["run"]: row for row in rows}


def test_faults_and_restarts_happened(
    recorded: tuple[Path, dict[str, Summary]], measured: dict[str, list[Row]]
) -> None:
    """Else the comparisons below would prove little."""
    assert sum(len(summary.recoveries) for summary in recorded[1].values()) > 5
    assert sum(row["crashes"] for row in measured["runs"]) > 20


def test_totals_are_those_of_the_summary(
    recorded: tuple[Path, dict[str, Summary]], measured: dict[str, list[dict[str, Any]]]
) -> None:
    rows = by_run(measured["runs"])
    assert rows.keys() == recorded[1].keys() and len(rows) > 5
    for name, summary in recorded[1].items():
        row = rows[name]
        for column in ("multicasts", "delivered_messages", "deliveries", "crashes", "leader_changes", "duration_ms"):
            assert row[column] == getattr(summary, column), (name, column)
        assert round(row["messages_per_second"] or 0.0, 3) == summary.messages_per_second


@pytest.mark.parametrize(("role", "field"), [("leader", "first_delivery"), ("follower", "last_delivery")])
def test_latencies_are_those_of_the_summary(
    recorded: tuple[Path, dict[str, Summary]], measured: dict[str, list[dict[str, Any]]], role: str, field: str
) -> None:
    rows = by_run(row for row in measured["latency"] if row["role"] == role and row["group"] is None)
    assert len(rows) > 5
    for name, summary in recorded[1].items():
        latency = getattr(summary, field)
        assert (latency is None) == (name not in rows)
        if latency is None:
            continue
        assert rows[name]["samples"] == latency.samples
        for quantity, value in asdict(latency.ms).items():
            assert round(rows[name][f"{quantity}_ms"], 6) == value, (name, quantity)
        for quantity, value in asdict(latency.delta).items() if name.startswith("simulation") else ():
            assert round(rows[name][f"{quantity}_delta"], 6) == value, (name, quantity)


def test_recoveries_are_those_of_the_summary(
    recorded: tuple[Path, dict[str, Summary]], measured: dict[str, list[dict[str, Any]]]
) -> None:
    expected = {
        (name, recovery.process, recovery.group, recovery.crash_ms, recovery.recovery_ms)
        for name, summary in recorded[1].items()
        for recovery in summary.recoveries
    }
    columns = ("run", "process", "group", "crash_ms", "recovery_ms")
    assert {tuple(row[column] for column in columns) for row in measured["recovery"]} == expected


def test_the_timeline_adds_up(measured: dict[str, list[dict[str, Any]]]) -> None:
    runs = by_run(measured["runs"])
    assert len(runs) > 5
    for name, row in runs.items():
        bins = [each for each in measured["timeline"] if each["run"] == name and each["group"] is None]
        assert [each["bin"] for each in bins] == list(range(len(bins))) and len(bins) <= 100
        for column, total in (
            ("multicasts", "multicasts"),
            ("messages", "delivered_messages"),
            ("deliveries", "deliveries"),
        ):
            assert sum(each[column] for each in bins) == row[total], (name, column)
        if row["delivered_messages"] == row["multicasts"]:
            assert bins[-1]["queue_depth"] == 0


def test_runs_that_differ_in_the_seed_are_pooled_by_load(measured: dict[str, list[dict[str, Any]]]) -> None:
    rows = [row for row in measured["latency_by_load"] if row["role"] == "leader"]
    assert {(row["protocol"], row["clients"], row["rate"], row["network"]) for row in rows} == {
        ("white_box", 12, None, "constant:1ms"),
        ("white_box", 10, None, "uniform:1ms,9ms"),
        ("skeen", 10, 300.0, "exponential:0.5ms,0.15ms"),
        (None, None, None, None),  # the swarm does not say what it ran
    }
    pooled = next(row for row in rows if row["protocol"] is None)
    of_runs = [row for row in measured["latency"] if row["role"] == "leader" and row["group"] is None]
    assert pooled["samples"] == sum(row["samples"] for row in of_runs if row["protocol"] is None)
    assert pooled["max_ms"] == max(row["max_ms"] for row in of_runs if row["protocol"] is None)


def test_the_cdf_meets_the_percentiles(measured: dict[str, list[dict[str, Any]]]) -> None:
    assert measured["latency_by_load"]
    for row in measured["latency_by_load"]:
        key = {name: row[name] for name in (*LOAD, "role")}
        points = [each for each in measured["latency_cdf"] if key.items() <= each.items()]
        assert [point["percent"] for point in points] == [step / 2 for step in range(201)]
        at = {point["percent"]: point["ms"] for point in points}
        assert (at[50], at[95], at[99], at[100]) == (row["p50_ms"], row["p95_ms"], row["p99_ms"], row["max_ms"])
        assert sorted(at.values()) == [point["ms"] for point in points]


# ---------------------------------------------------------------- small traces, by hand


class Script:
    """Two groups of two, events at times in milliseconds."""

    def __init__(self, run: str, *processes: str) -> None:
        self.run = run
        self.events: list[Event] = []
        self.seqs: dict[str, int] = {}
        self(0, "start", "sim", detail='{"protocol": "by_hand", "clients": 1, "delta": 2000000}')
        for process in processes or ("g0/0", "g0/1", "g1/0", "g1/1"):
            self(0, "start", process)

    def __call__(
        self, ms: float | None, kind: str, process: str, message: str | None = None, *dest: str, **more: Any
    ) -> None:
        self.seqs[process] = self.seqs.get(process, 0) + 1
        group = process.partition("/")[0] if "/" in process else None
        time = None if ms is None else round(ms * MILLISECOND)
        sender = process if kind == "multicast" else None
        self.events.append(
            Event(self.run, kind, process, group, self.seqs[process], time, message, sender, dest or None, **more)
        )

    def everybody_delivers(self, ms: float, message: str, *groups: str) -> None:
        for group in groups:
            self(ms, "deliver", f"{group}/0", message)
            self(ms + 1, "deliver", f"{group}/1", message)


def undisturbed() -> Script:
    at = Script("undisturbed")
    at(1, "multicast", "c0", "a", "g0")
    at(2, "multicast", "c0", "b", "g0", "g1")
    at(3, "multicast", "c0", "c", "g0", "g1")
    at(3, "send", "c0", peer="g0/0", type="Multicast", size=40)
    at(4, "send", "c0", peer="g1/0", type="Multicast", size=40)
    at(4, "send", "g0/0", peer="g0/1", type="Accept", size=100)
    at.everybody_delivers(4, "a", "g0")
    at.everybody_delivers(6, "b", "g0", "g1")
    at.everybody_delivers(12, "c", "g0", "g1")
    at(20, "end", "sim")
    return at


def with_a_crash() -> Script:
    at = Script("crash")
    at(0, "leader", "g0/0")
    at(1, "multicast", "c0", "a", "g0")
    at(2, "deliver", "g0/0", "a")
    at(3, "crash", "g0/0")
    at(4, "multicast", "c0", "b", "g0")
    at(5, "deliver", "g0/1", "a")
    at(9, "deliver", "g0/1", "b")
    at(10, "restart", "g0/0")
    at(30, "deliver", "g0/0", "b")  # it was down at the multicast: too late to be the last one
    at(31, "multicast", "c0", "c", "g1")
    return at


def all_killed() -> Script:
    """g0 goes down as a whole; what it had to deliver is delivered after its restart."""
    at = Script("killed")
    at(1, "multicast", "c0", "a", "g0")
    at(1, "multicast", "c0", "b", "g0", "g1")
    at(2, "multicast", "c0", "never", "g0")
    for member in ("g0/0", "g0/1"):
        at(3, "crash", member)
    at(4, "multicast", "c0", "c", "g0")
    for member in ("g1/0", "g1/1"):
        at(5, "deliver", member, "b")
    for member in ("g0/0", "g0/1"):
        at(10, "restart", member)
        for message in ("a", "b", "c"):
            at(11, "deliver", member, message)
    return at


def of_another_system() -> Script:
    """The time of day, and no start rows."""
    at = Script("elsewhere")
    at.events.clear()
    now = 1_700_000_000_000
    at(now + 1, "multicast", "c0", "a", "g0")
    at(now + 3, "deliver", "g0/0", "a")
    at(now + 4, "leader", "g0/0")
    at(now + 5, "deliver", "g0/1", "a")
    at(now + 7, "crash", "g0/0")
    return at


def with_clocks_that_differ() -> Script:
    at = Script("skewed")
    at(5, "multicast", "c0", "a", "g0")
    at(4, "deliver", "g0/0", "a")
    return at


def rollbacks(steps: list[tuple[bool, int]], mistakes: set[int]) -> int:
    """By definition: deliveries that are mistakes while another message is guessed and not yet delivered."""
    guessed: set[int] = set()
    delivered: set[int] = set()
    found = 0
    for is_delivery, message in steps:
        if is_delivery:
            found += message in mistakes and bool(guessed - delivered - {message})
            delivered.add(message)
        else:
            guessed.add(message)
    return found


def optimistic() -> tuple[Script, dict[str, tuple[int, ...]]]:
    """Random guesses and deliveries, and of each process what is to be found."""
    random = Random(1)
    at = Script("optimistic", "g0/0")
    expected = {}
    for number in range(60):
        guesses = random.sample(range(8), random.randint(1, 8))
        final = random.sample(range(8), random.randint(0, 8))
        steps = sorted(
            [(place + random.random() * 3, False, message) for place, message in enumerate(guesses)]
            + [(place + random.random() * 3, True, message) for place, message in enumerate(final)]
        )
        order = [message for _, is_delivery, message in steps if is_delivery]
        guessed = [message for _, is_delivery, message in steps if not is_delivery]
        for ms, is_delivery, message in steps:
            at(ms, "deliver" if is_delivery else "optdeliver", f"g0/{number}", f"m{message}")
        wrong = {
            message
            for place, message in enumerate(order)
            if count_mistakes(guessed, order[: place + 1]) > count_mistakes(guessed, order[:place])
        }
        found = rollbacks([(is_delivery, message) for _, is_delivery, message in steps], wrong)
        expected[f"g0/{number}"] = (len(guesses), len(final), count_mistakes(guessed, order), found)
    return at, expected


@pytest.fixture(scope="module")
def scripted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """All of them in one trace: runs are never mixed."""
    scripts = [
        undisturbed(),
        with_a_crash(),
        all_killed(),
        of_another_system(),
        with_clocks_that_differ(),
        optimistic()[0],
    ]
    trace = tmp_path_factory.mktemp("scripts") / "trace.jsonl"
    write_jsonl(trace, [event for script in scripts for event in script.events])
    return collect(spark, read_rows(spark, str(trace)), bin_ns=5 * MILLISECOND)


def rows_of(found: Collected, run: str, table: str) -> list[dict[str, Any]]:
    return [row for row in found.tables[table].to_pylist() if row["run"] == run]


def test_a_run_by_hand(scripted: Collected) -> None:
    (row,) = rows_of(scripted, "undisturbed", "runs")
    assert (row["protocol"], row["outcome"], row["delta_ms"]) == ("by_hand", "quiescent", 2)
    assert (row["multicasts"], row["delivered_messages"], row["deliveries"]) == (3, 3, 10)
    assert (row["sends"], row["bytes"], row["duration_ms"]) == (3, 180, 20)
    assert row["messages_per_second"] == 3 / 0.012
    assert rows_of(scripted, "undisturbed", "recovery") == rows_of(scripted, "undisturbed", "incidents") == []


def test_time_in_bins(scripted: Collected) -> None:
    bins = [each for each in rows_of(scripted, "undisturbed", "timeline") if each["group"] is None]
    assert [(each["start_ms"], each["end_ms"]) for each in bins] == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 25)]
    assert [each["multicasts"] for each in bins] == [3, 0, 0, 0, 0]
    assert [each["messages"] for each in bins] == [0, 2, 1, 0, 0], "a is through at 5 ms, b at 7, c at 13"
    assert [each["queue_depth"] for each in bins] == [3, 1, 0, 0, 0]
    assert [each["messages_per_second"] for each in bins] == [0, 400, 200, 0, 0]
    of_g1 = [each for each in rows_of(scripted, "undisturbed", "timeline") if each["group"] == "g1"]
    assert [each["messages"] for each in of_g1] == [0, 1, 1, 0, 0] and of_g1[0]["queue_depth"] == 2


def test_who_waited_for_others(scripted: Collected) -> None:
    rows = rows_of(scripted, "undisturbed", "convoy")
    assert [(row["dest_groups"], row["samples"], row["delayed"]) for row in rows] == [(1, 1, 0), (2, 4, 2)]
    late = rows[1]
    assert (late["collision_free_ms"], late["collision_free_delta"], late["share"]) == (4, 2, 0.5)
    assert (late["share_over_delta"], late["mean_extra_ms"]) == (0.5, 2.5), "c took 9 ms where b took 4, δ is 2"


def test_protocol_messages_by_type(scripted: Collected) -> None:
    rows = rows_of(scripted, "undisturbed", "messages")
    counts = {row["type"]: (row["sends"], row["bytes"], row["sends_per_multicast"]) for row in rows}
    assert counts == {None: (3, 180, 1), "Multicast": (2, 80, 2 / 3), "Accept": (1, 100, 1 / 3)}


def test_nobody_waits_for_who_is_down(scripted: Collected) -> None:
    (row,) = rows_of(scripted, "crash", "runs")
    assert (row["multicasts"], row["delivered_messages"], row["outcome"], row["restarts"]) == (3, 2, "cut off", 1)
    rows = rows_of(scripted, "crash", "latency")
    latency = {(row["role"], row["group"]): (row["samples"], row["max_ms"]) for row in rows}
    assert latency["follower", "g0"] == (2, 5) and latency["leader", "g0"] == (2, 5)
    (row,) = rows_of(scripted, "crash", "recovery")
    assert (row["process"], row["crash_ms"], row["recovery_ms"], row["recovery_delta"]) == ("g0/0", 3, 6, 3)
    incidents = [(row["kind"], row["time_ms"]) for row in rows_of(scripted, "crash", "incidents")]
    assert incidents == [("leader", 0), ("crash", 3), ("restart", 10)]
    timeline = [row for row in rows_of(scripted, "crash", "timeline") if row["group"] is None]
    assert timeline[-1]["queue_depth"] == 1, "c"


def test_what_is_delivered_after_a_whole_group_was_killed_is_delivered(scripted: Collected) -> None:
    script = all_killed()
    recorder = SummaryRecorder()
    for event in script.events:
        recorder.record(event)
    summary = recorder.summary(MILLISECOND)
    (row,) = rows_of(scripted, "killed", "runs")
    assert (row["multicasts"], row["delivered_messages"]) == (4, 3), "never is not delivered"
    assert (summary.multicasts, summary.delivered_messages) == (4, 3)
    latency = {(each["role"], each["group"]): each["samples"] for each in rows_of(scripted, "killed", "latency")}
    assert ("leader", "g0") not in latency and latency["leader", "g1"] == 1
    timeline = [each for each in rows_of(scripted, "killed", "timeline") if each["group"] is None]
    assert sum(each["messages"] for each in timeline) == 3 and timeline[-1]["queue_depth"] == 1


def test_the_clock_need_not_start_at_zero_nor_the_processes(scripted: Collected) -> None:
    timeline = rows_of(scripted, "elsewhere", "timeline")
    assert timeline[0]["start_ms"] == 0 and timeline[-1]["end_ms"] == 10
    assert {(row["role"], row["max_ms"], row["max_delta"]) for row in rows_of(scripted, "elsewhere", "latency")} == {
        ("leader", 2, None),
        ("follower", 4, None),
    }
    assert [(row["crash_ms"], row["recovery_ms"]) for row in rows_of(scripted, "elsewhere", "recovery")] == [(6, None)]


def test_clocks_that_differ_are_noticed(scripted: Collected) -> None:
    assert scripted.notes == ("some latencies are negative: the clocks of the processes differ",)


def test_mistakes_and_rollbacks(scripted: Collected) -> None:
    expected = optimistic()[1]
    rows = rows_of(scripted, "optimistic", "optimistic")
    columns = ("optimistic_deliveries", "deliveries", "mistakes", "rollbacks")
    assert {row["process"]: tuple(row[column] for column in columns) for row in rows} == expected
    assert sum(mistakes for _, _, mistakes, _ in expected.values()) > sum(found for *_, found in expected.values()) > 20


# ---------------------------------------------------------------- sizes, other systems


def test_beyond_some_size_percentiles_are_approximate_and_say_so(
    spark: SparkSession,
    recorded: tuple[Path, dict[str, Summary]],
    measured: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {name: TABLES[name] for name in ("latency", "latency_cdf")}  # of the others no number is approximate
    monkeypatch.setattr("amcast.spark.metrics.TABLES", asked)
    rows = read_rows(spark, str(recorded[0])).where("run = 'simulation-0'")
    found = collect(spark, rows, exact_rows=100)
    assert [note for note in found.notes if "approximate" in note]
    exact = {(row["role"], row["group"]): row for row in measured["latency"] if row["run"] == "simulation-0"}
    for row in found.tables["latency"].to_pylist():
        assert row == exact[row["role"], row["group"]], "of so few samples percentile_approx forgets none"
    assert found.tables["latency_cdf"].num_rows == 402


def test_metrics_are_lazy_tables_with_the_promised_names(spark: SparkSession, tmp_path: Path) -> None:
    at = Script("r")
    at(1, "multicast", "c0", "a", "g0")
    write_jsonl(tmp_path / "trace.jsonl", at.events)
    tables = metrics(spark, read_rows(spark, str(tmp_path / "trace.jsonl")).drop("ts", "peer", "type", "size", "about"))
    assert tuple(tables) == tuple(TABLES)
    assert tables["runs"].select("multicasts", "delivered_messages").first() == (1, 0)


def test_without_time_there_is_no_latency_but_all_the_rest(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = Script("r")
    for event in at.events:
        event.time = None
    at(None, "multicast", "c0", "a", "g0")
    at(None, "deliver", "g0/0", "a")
    at(None, "deliver", "g0/1", "a")
    at(None, "multicast", "c0", "b", "g0")
    at(None, "deliver", "g0/0", "b")
    write_csv(tmp_path / "log.csv", at.events)
    assert run(["metrics", str(tmp_path / "log.csv"), "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (
        err.count("\n") == 1 and "no time column" in err and document["notes"] == [err.strip().removeprefix("amcast: ")]
    )
    assert {name for name, rows in document["tables"].items() if not rows} == {
        *TIMED,
        "messages",
        "optimistic",
        "incidents",
    }
    (row,) = document["tables"]["runs"]
    assert (row["multicasts"], row["delivered_messages"], row["deliveries"], row["duration_ms"]) == (2, 1, 3, None)


def test_the_log_of_another_system(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "run,event,node,group,seq,nanos,msg,sender,dest\n"
        "r,multicast,c0,,1,1000000,a,c0,g0\n"
        "r,deliver,n1,g0,1,4000000,a,,\n"
        "r,deliver,n2,g0,1,9000000,a,,\n"
    )
    out = tmp_path / "tables"
    columns = "event=kind,node=process,nanos=time,msg=message"
    assert run(["metrics", str(log), "--columns", columns, "--out", str(out)]) == 0
    printed, err = capsys.readouterr()
    assert "1 message, 2 deliveries in 8.00 ms" in printed and err == ""
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{n}.{s}" for n in TABLES for s in ("csv", "parquet"))
    rows = pyarrow.parquet.read_table(out / "latency.parquet").to_pylist()
    assert {(row["role"], row["p50_ms"]) for row in rows} == {("leader", 3), ("follower", 8)}
    assert pyarrow.csv.read_csv(out / "latency.csv").column("p50_ms").to_pylist() == [row["p50_ms"] for row in rows]


# ---------------------------------------------------------------- nothing


MULTICAST, DELIVER, START, END = (
    '{"run": "r", "kind": "multicast", "process": "c0", "group": null, "seq": 1, "time": 0, "message": "a", '
    '"sender": "c0", "dest": ["g0"]}\n',
    '{"run": "r", "kind": "deliver", "process": "g0/0", "group": "g0", "seq": 1, "time": 5, "message": "a"}\n',
    '{"run": "r", "kind": "start", "process": "g0/0", "group": "g0", "seq": 0, "time": 0}\n',
    '{"run": "r", "kind": "end", "process": "log", "group": null, "seq": 1, "time": 9}\n',
)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((END,), "no replica is in the trace (0 multicasts, 0 deliveries)"),
        pytest.param(
            (MULTICAST, END), "no replica is in the trace (1 multicast, 0 deliveries)", marks=pytest.mark.slow
        ),
        pytest.param(
            (START, MULTICAST, END),
            "nothing was delivered (1 multicast, 0 deliveries of 0 of 1 replica)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            (START, DELIVER, END),
            "nothing was multicast (0 multicasts, 1 delivery of 1 of 1 replica)",
            marks=pytest.mark.slow,
        ),
        pytest.param((START, MULTICAST, DELIVER, END), "", marks=pytest.mark.slow),  # test_the_log_of_another_system
    ],
)
def test_numbers_of_nothing_are_written_and_said_to_be_that(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: tuple[str, ...], said: str
) -> None:
    (tmp_path / "log.jsonl").write_text("".join(rows))
    code = run(["metrics", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "tables"), "--json"])
    out, err = capsys.readouterr()
    assert code == (3 if said else 0) and said in err and err.count("\n") == bool(said)
    assert json.loads(out)["evidence"]["deliveries"] == (DELIVER in rows)
    assert len(list((tmp_path / "tables").iterdir())) == 2 * len(TABLES)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        ("", (), "is empty"),
        ('{"run": "r"}\n', (), "line 1"),
        ("GOOD", ("--columns", "nod=process"), "no column 'nod'"),
        ("GOOD", ("--columns", "process"), "expected theirs=ours"),
        ("GOOD", ("--columns", "process=prozess"), "no column of a trace"),
        ("GOOD", ("--bin", "0ms"), "positive time"),
        ("GOOD", ("--bin", "5"), "expected a number and a unit"),
        ("GOOD", ("--bin", "1ns"), "use a wider --bin"),
        ("GOOD", ("--spark-conf", "driver.memory=1g"), "--spark-conf"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: tuple[str, ...],
    complaint: str,
) -> None:
    good = (
        '{"run": "r", "kind": "multicast", "process": "c0", "group": null, "seq": 1, "time": 0, "message": "a", '
        '"sender": "c0", "dest": ["g0"]}\n{"run": "r", "kind": "end", "process": "log", "group": null, "seq": 1, '
        '"time": 1000000000}\n'
    )
    trace = tmp_path / "trace.jsonl"
    trace.write_text(good if text == "GOOD" else text)
    assert run(["metrics", str(trace), "--out", str(tmp_path / "out"), *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and complaint in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.jsonl"]


def test_a_trace_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        collect_from(str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no \.parquet file"):
        collect_from(str(tmp_path / "empty"))


def test_tables_replace_nothing_but_older_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pyarrow.table({"run": ["r"]})
    out = tmp_path / "new" / "out"
    save({"runs": table}, out)
    with pytest.raises(UsageError, match="--force"):
        save({"runs": table}, out)
    save({"latency": table}, out, force=True)
    assert sorted(path.name for path in out.iterdir()) == ["latency.csv", "latency.parquet"]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.csv, "write_csv", full)
    with pytest.raises(UsageError, match="No space left"):
        save({"runs": table}, out, force=True)
    assert sorted(path.name for path in out.iterdir()) == ["latency.csv", "latency.parquet"], "the older ones are whole"
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    (out / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        save({"runs": table}, out, force=True)
    with pytest.raises(UsageError, match="is a file"):
        save({"runs": table}, out / "thesis.tex")
