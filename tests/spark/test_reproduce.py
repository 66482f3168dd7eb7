"""A figure of a paper is one small file: it is run, drawn, and its claims stand beside what was measured."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amcast.cli import run
from amcast.core.topology import Topology
from amcast.errors import UsageError
from amcast.report import figure as figure_module
from amcast.report.figure import SCALES, FigureClaim, figure_names, figure_of, load_figure
from amcast.report.reproduce import KINDS, measure
from amcast.sim.network import Sites, parse_network
from amcast.spark.recovery import crashes, delivery_bins, settled_s, with_empty_bins
from amcast.spark.sweep import read_runs

TINY = """
    title = "A tiny figure"
    paper = "none"
    notes = ["a note"]
    [sweep.curves]
    protocol = ["skeen", "white_box"]
    groups = 3
    network = "constant:1ms"
    seeds = [1]
    trace = "none"
    [sweep.run]
    protocol = "white_box"
    groups = 2
    clients = 6
    network = "constant:10ms"
    crashes = ["g1/0@1s"]
    seeds = [1]
    [scale.small.curves]
    dest_groups = [1, 2]
    clients = [1, 3]
    messages = 30
    [scale.small.run]
    duration = "8s"
    [plot]
"""
CURVES = """
    kind = "curves"
    sweep = "curves"
    x = "messages_per_second"
    y = "complete_ms_mean"
    panel = "dest_groups"
    line = "protocol"
    along = "clients"
    [[claim]]
    what = "latency without load"
    paper = "3δ"
    expected = 3.0
    sweep = "curves"
    column = "complete_delta_mean"
    where = { protocol = "white_box", clients = "least", dest_groups = 2 }
    unit = "δ"
    [[claim]]
    what = "over FastCast"
    paper = "2 ×"
    sweep = "curves"
    column = "messages_per_second"
    where = { protocol = "white_box" }
    over = { protocol = "fastcast" }
"""
TIMELINE = """
    kind = "timeline"
    sweep = "run"
    bin = "200ms"
    places = ["g0", "g1", "clients"]
    [[claim]]
    what = "recovery"
    paper = "1 s"
    sweep = "run"
    column = "pause_s"
    unit = "s"
    [[claim]]
    what = "steady again"
    paper = "2 s"
    sweep = "run"
    column = "settled_s"
    unit = "s"
"""


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", figure_names())
def test_every_figure_can_be_run(name: str, scale: str) -> None:
    figure = load_figure(name, scale)
    for spec in figure.sweeps.values():
        for row in (spec.rows()[0], spec.rows()[-1]):
            row.simulation.world()
    assert figure.claims and figure.paper
    assert figure.plot.kind in KINDS and (figure.sweeps or figure.digraphs)


def test_what_the_papers_used_is_what_the_paper_scale_runs() -> None:
    recovery = load_figure("wb-fig11", "paper").sweeps["run"].rows()[0].simulation
    assert (recovery.clients, recovery.groups, recovery.replicas, recovery.dest_groups) == (6000, 10, 3, 4)
    assert [crash.process for crash in recovery.crashes] == ["g3/0"] and recovery.network == "wan"
    lan = [row.simulation for row in load_figure("wb-fig7", "paper").sweeps["curves"].rows()]
    assert {row.payload for row in lan} == {20} and max(row.clients for row in lan) == 1000
    wan = [row.simulation for row in load_figure("wb-fig8", "paper").sweeps["curves"].rows()]
    assert {row.network for row in wan} == {"wan", "wan-spread"} and max(row.clients for row in wan) == 8000


def test_leaders_are_together_or_spread_over_the_sites() -> None:
    topology = Topology((3,) * 4, 3)
    together, spread = (parse_network(name, topology)[0] for name in ("wan", "wan-spread"))
    assert isinstance(together, Sites) and isinstance(spread, Sites)
    assert [together.site_of[members[0]] for members in topology.groups] == [0, 0, 0, 0]
    assert [spread.site_of[members[0]] for members in topology.groups] == [0, 1, 2, 0]
    for members in topology.groups:
        assert {spread.site_of[p] for p in members} == {0, 1, 2}, "one replica at each"
    assert [spread.site_of[client] for client in topology.clients] == [0, 1, 2]


def test_mistakes_in_a_figure_are_named() -> None:
    document = tomllib.loads(TINY + CURVES)
    with pytest.raises(UsageError, match="unknown key 'clam'; did you mean claim"):
        figure_of({**document, "clam": []}, "tiny", "small")
    scaled = {"small": {"curve": {"clients": 3}}}
    with pytest.raises(UsageError, match=r"scale\.small\.curve: did you mean curves"):
        figure_of({**document, "scale": scaled}, "tiny", "small")
    with pytest.raises(UsageError, match=r"2 ×: differs from nothing; expected at_least"):
        claim = {"what": "2 ×", "paper": "", "column": "x", "differs": "why"}
        figure_of({**document, "claim": [claim]}, "tiny", "small")
    with pytest.raises(UsageError, match="has neither sweeps nor digraphs"):
        figure_of({name: document[name] for name in ("title", "paper", "plot")}, "tiny", "small")


# ---------------------------------------------------------------- claims

RUNS = [
    {"protocol": protocol, "clients": clients, "dest_groups": k, "rate_": rate}
    for protocol, clients, k, rate in (
        ("white_box", 10, 1, 100.0),
        ("white_box", 10, 2, 80.0),
        ("white_box", 99, 1, 300.0),
        ("white_box", 99, 2, 120.0),
        ("fastcast", 99, 1, 100.0),
        ("fastcast", 99, 2, 60.0),
    )
]


@pytest.mark.parametrize(
    ("where", "how", "over", "found"),
    [
        ({"protocol": "white_box"}, "mean", None, (150.0, 80.0, 300.0)),
        ({"protocol": "white_box"}, "max", None, (300.0, None, None)),
        ({"protocol": "white_box", "clients": "least", "dest_groups": 2}, "mean", None, (80.0, None, None)),
        ({"protocol": "white_box", "clients": "most"}, "mean", {"protocol": "fastcast"}, (2.5, 2.0, 3.0)),
    ],
)
def test_claims_are_measured_on_the_runs_that_they_are_about(
    where: dict[str, Any], how: str, over: dict[str, Any] | None, found: tuple[float, float | None, float | None]
) -> None:
    done = measure(FigureClaim("", "", "rate_", how=how, where=where, over=over), {"curves": RUNS})
    assert (done.value, done.low, done.high) == found


def test_a_claim_about_what_was_not_run_says_so() -> None:
    absent = FigureClaim("", "", "rate_", where={"protocol": "skeen"})
    assert measure(absent, {"curves": RUNS}).why_not == "not measured: no such run"
    compared = FigureClaim("", "", "rate_", where={"protocol": "white_box"}, over={"protocol": "ft_skeen"})
    assert measure(compared, {"curves": RUNS}).why_not == "not measured: no run with ft_skeen"


# ---------------------------------------------------------------- recovery


def test_bins_and_crashes_of_a_trace(spark: SparkSession) -> None:
    columns = "run string, kind string, process string, group string, time long, message string, dest array<string>"
    rows = [
        ("r", "multicast", "c0", None, 0, "a", ["g0", "g1"]),
        ("r", "deliver", "g0/0", "g0", 30, "a", None),
        ("r", "deliver", "g0/1", "g0", 40, "a", None),
        ("r", "deliver", "g1/0", "g1", 60, "a", None),
        ("r", "crash", "g1/0", "g1", 100, None, None),
        ("r", "multicast", "c0", None, 110, "b", ["g0", "g1"]),
        ("r", "deliver", "g0/0", "g0", 140, "b", None),
        ("r", "leader", "g1/1", "g1", 250, None, None),
        ("r", "multicast", "c1", None, 251, "c", ["g1"]),
        ("r", "deliver", "g1/1", "g1", 260, "c", None),
        ("r", "deliver", "g1/1", "g1", 270, "b", None),
    ]
    trace = spark.createDataFrame([(*row[:4], row[4] * 10**6, *row[5:]) for row in rows], columns)
    bins = with_empty_bins([row.asDict() for row in delivery_bins(trace, 100 * 10**6).collect()], 100 * 10**6)
    seen = {(row["place"], row["bin"]): (row["messages_per_second"], row["latency_ms"]) for row in bins}
    assert seen["g0", 0] == (10.0, 30.0) and seen["g0", 1] == (10.0, 30.0) and seen["g0", 2] == (0.0, None)
    assert seen["g1", 1] == (0.0, None) and seen["g1", 2] == (20.0, (9 + 160) / 2)
    assert seen["clients", 0] == (10.0, 60.0) and seen["clients", 2] == (20.0, (9 + 160) / 2)
    (crash,) = (row.asDict() for row in crashes(trace).collect())
    assert crash["crash_s"] == 0.1 and crash["leader_s"] == 0.15 and crash["pause_s"] == 0.16
    assert crash["cleared_s"] == 0.02, "b is from before the new leader, c is not"


def latencies(*values: float | None) -> list[dict[str, Any]]:
    return [{"start_s": float(second), "latency_ms": value} for second, value in enumerate(values)]


def test_a_run_has_settled_when_its_latency_is_steady() -> None:
    steady = [100.0] * 8
    found = settled_s(latencies(50, 50, 50, None, 900, None, 300, *steady), 1.0, 3.0, 4.0, 15.0)
    assert found == 3.0, "seconds 4 to 6 are not steady"
    assert settled_s(latencies(50, 50, 50, None, *steady), 1.0, 3.0, 4.0, 12.0) == 0.0
    assert settled_s(latencies(50, 50, 50, None, *[900.0] * 9), 1.0, 3.0, 4.0, 13.0) is None, "it never recovers"
    assert settled_s(latencies(50, 50, 50, None, *[900.0] * 5), 1.0, 3.0, 4.0, 9.0) is None, "too short to say"


# ---------------------------------------------------------------- all of it


def test_a_figure_is_run_drawn_and_compared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = {"curves": tomllib.loads(TINY + CURVES), "timeline": tomllib.loads(TINY + TIMELINE)}
    monkeypatch.setattr(figure_module, "read_figure", documents.__getitem__)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["reproduce", "curves", "timeline", "--out", str(tmp_path / "out"), "--json"]) == 3
    out, err = capsys.readouterr()
    assert err == "amcast: curves: over FastCast: not measured: no run with fastcast\n"
    curves, timeline = json.loads(out)
    assert curves["evidence"]["runs"] == 8 + 1 and curves["evidence"]["deliveries"] > 8 * 30
    assert [claim["status"] for claim in curves["claims"]] == ["met", "not measured"]
    latency, ratio = curves["claims"]
    assert latency["measured"] == latency["expected"] == 3.0 and latency["paper"] == "3δ"
    assert ratio["measured"] is None and ratio["note"] == "not measured: no run with fastcast"
    recovery, steady = timeline["claims"]
    (summarised,) = read_runs(tmp_path / "out" / "timeline-small" / "run", ["recoveries"]).to_pylist()
    assert recovery["measured"] == pytest.approx(summarised["recoveries"][0]["recovery_ms"] / 1000)
    assert steady["measured"] is not None
    for name, rows in (("curves", 8), ("timeline", None)):
        folder = tmp_path / "out" / f"{name}-small"
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        points = list(csv.DictReader((folder / f"{name}.csv").open()))
        assert len(points) == rows if rows else {row["place"] for row in points} == {"g0", "g1", "clients"}
        assert len(list(csv.DictReader((folder / "claims.csv").open()))) == 2
    # What was run is not run again; what is printed for people says the same.
    assert run(["reproduce", "timeline", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "steady again" in out and "a note" in out and "2 claims: 2 shown; from 9 runs, " in out
    # What is claimed and not met is an error, unless it is known to differ.
    latency = documents["curves"]["claim"][0]
    documents["curves"]["claim"] = [latency | {"expected": 4.0}]
    assert run(["reproduce", "curves", "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert err == "amcast: curves: not met: latency without load: 3.00 δ; expected 4.00 δ\n"
    documents["curves"]["claim"] = [latency | {"expected": 4.0, "differs": "it is 3δ"}]
    assert run(["reproduce", "curves", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "differs: latency without load: it is 3δ" in out and "1 claim: 1 differs" in out


@pytest.mark.slow
def test_a_figure_of_which_no_run_is_ok_is_not_drawn(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tomllib.loads(TINY + CURVES)
    nothing = {"duration": "1ns", "rate": 0.001}  # too short for a message
    document["scale"]["small"] = {"curves": {"clients": [1, 3], **nothing}, "run": {"crashes": [], **nothing}}
    monkeypatch.setattr(figure_module, "read_figure", {"curves": document}.__getitem__)
    assert run(["reproduce", "curves", "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert "2 claims: 2 not measured; from 0 runs" in out and "no picture" in out
    assert "curves: 5 runs not ok" in err and "nothing was delivered" in err
    assert "latency without load: not measured: no run is ok" in err
    assert not (tmp_path / "out" / "curves-small" / "curves.png").exists()


def test_figures_are_listed_and_a_wrong_name_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in figure_names())
    assert run(["reproduce", "wb-fig12"]) == 2
    out, err = capsys.readouterr()
    assert "unknown figure 'wb-fig12': did you mean wb-fig11?" in err and err.count("\n") == 1 and not out
