"""The figures of the AllConcur+ paper, small: what is drawn, and what the claims are measured on."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amcast.cli import run
from amcast.report import figure as figure_module
from amcast.report.allconcur import digraph_row, draw_estimates, estimates
from amcast.report.figure import figure_of, load_figure
from amcast.spark.sweep import read_runs

RUNS = """
    title = "Tiny"
    paper = "none"
    [sweep.sdc]
    protocol = ["allconcur_plus", "allconcur", "multi_paxos"]
    network = "allconcur-sdc"
    payload = 250
    batch = 4
    seeds = [1]
    trace = "none"
    [scale.small.sdc]
    replicas = [6, 8]
    rounds = 12
"""
GRID = (
    RUNS
    + """
    [plot]
    kind = "grid"
    x = "replicas"
    ys = ["own_ms_p50", "transactions_per_second"]
    panel = "network"
    line = "protocol"
    log = "xy"
    [[claim]]
    what = "throughput over AllConcur's"
    paper = ""
    column = "transactions_per_second"
    where = { protocol = "allconcur_plus" }
    over = { protocol = "allconcur" }
"""
)
ESTIMATES = (
    RUNS
    + """
    [plot]
    kind = "estimates"
    x = "scenario"
    ys = ["latency_ratio", "throughput_ratio"]
    line = "servers"
"""
)
RATES = """
    title = "Tiny"
    paper = "none"
    [sweep.run]
    protocol = ["allconcur_plus", "allconcur"]
    network = "allconcur-sdc"
    replicas = 6
    payload = 250
    batch = 64
    rounds = 5000
    seeds = [1]
    [scale.small.run]
    duration = "40ms"
    crashes = ["g0/3@10ms"]
    [plot]
    kind = "rates"
    at = "g0/0"
    [[claim]]
    what = "pause"
    paper = ""
    column = "longest_pause_ms"
    where = { protocol = "allconcur_plus" }
    unit = "ms"
"""
DIGRAPHS = """
    title = "Tiny"
    paper = "none"
    digraphs = [18, 8]
    [plot]
    kind = "digraphs"
    x = "servers"
    ys = ["connectivity", "diameter"]
    [[claim]]
    what = "connectivity"
    paper = "4"
    expected = 4
    column = "connectivity"
    where = { servers = 18 }
"""


def test_figures_are_run_drawn_and_compared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = {"grid": GRID, "rates": RATES, "digraphs": DIGRAPHS}
    monkeypatch.setattr(figure_module, "read_figure", lambda name: tomllib.loads(documents[name]))
    assert run(["reproduce", *documents, "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    measured = {figure["figure"]: figure["claims"][0] for figure in found}
    assert {name: claim["status"] for name, claim in measured.items()} == {
        "grid": "shown", "rates": "shown", "digraphs": "met",
    }  # fmt: skip
    assert [figure["evidence"]["runs"] for figure in found] == [6, 2, 0]
    assert [figure["evidence"]["states"] for figure in found] == [0, 0, 2] and all(
        figure["evidence"]["deliveries"] for figure in found[:2]
    )
    points: dict[str, list[dict[str, str]]] = {}
    for name in documents:
        folder = tmp_path / f"{name}-small"
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        with (folder / f"{name}.csv").open() as file:
            points[name] = list(csv.DictReader(file))

    runs = {(row["protocol"], row["replicas"]): row for row in read_runs(tmp_path / "grid-small" / "sdc").to_pylist()}
    assert {row["status"] for row in runs.values()} == {"ok"} and len(points["grid"]) == len(runs) == 6
    ratios = [
        runs["allconcur_plus", n]["transactions_per_second"] / runs["allconcur", n]["transactions_per_second"]
        for n in (6, 8)
    ]
    assert [measured["grid"][key] for key in ("from", "to")] == pytest.approx(sorted(ratios))
    assert {(row["clients"], row["rounds"], row["batch"]) for row in runs.values()} == {(0, 12, 4)}

    assert 8 < measured["rates"]["measured"] < 16, "about the time-out"
    assert {float(row["transactions"]) for row in points["rates"]} == {6 * 64, 5 * 64}, "a round each, of six or five"
    assert [row["servers"] for row in points["digraphs"]] == ["8", "18"]
    assert measured["digraphs"]["measured"] == 4

    expected = figure_of(tomllib.loads(ESTIMATES), "estimates", "small")
    rows, _ = draw_estimates(spark, expected, tmp_path, {"sdc": list(runs.values())})
    assert (tmp_path / "estimates.png").exists() and len(rows) == 2 * 7


def test_estimates_are_those_of_the_paper() -> None:
    plus: dict[str, Any] = {"own_ms_p50": 2.0, "transactions_per_second": 400.0}
    base: dict[str, Any] = {"own_ms_p50": 4.0, "transactions_per_second": 100.0}
    found = {row["scenario"]: row for row in estimates(8, plus, base)}
    assert found["wc"]["latency_ratio"] == (3 * 1 + 2 * 4) / 4 and found["wc"]["throughput_ratio"] == 4 / (2 * 1 + 4)
    assert found["λ=10"]["latency_ratio"] == pytest.approx((2 + 9 / 10) / 4)
    assert found["λ=10"]["latency_ratio_per_message"] == pytest.approx((2 + 9 / 9) / 4)
    assert found["λ=10"]["throughput_ratio"] == pytest.approx(4 * 0.9 / (1 + 0.4))
    assert found["nf"]["latency_ratio"] == 0.5 and found["nf"]["throughput_ratio"] == 4.0


def test_a_digraph_is_judged_by_what_it_is() -> None:
    assert digraph_row(32) == {"servers": 32, "degree": 4, "connectivity": 4, "diameter": 3}
    assert digraph_row(5)["connectivity"] == 4, "too few for G_S: everybody is connected with everybody"


def test_what_the_paper_used_is_what_the_paper_scale_runs() -> None:
    figure = load_figure("ac-fig4", "paper")
    single, several = ([row.simulation for row in figure.sweeps[name].rows()] for name in ("sdc", "mdc"))
    assert {row.replicas for row in single} == {8, 18, 32, 72, 128, 242, 450}
    assert {row.replicas for row in several} == {30, 75, 140, 225, 455}
    assert {(row.rounds, row.payload * row.batch) for row in single + several} == {(120, 1000)}
    failing = load_figure("ac-fig5", "paper").sweeps["run"].rows()[0].simulation
    assert (failing.replicas, len(failing.crashes), failing.duration) == (72, 4, 10**9)
    assert len(load_figure("ac-table2", "paper").digraphs) == 12
