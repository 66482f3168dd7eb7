"""Numbers, sweeps and figures of nothing are no success: the exit code says so, and a line says what is missing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from amcast.checks.evidence import NOTHING, Evidence
from amcast.cli.metrics import document
from amcast.cli.metrics import exit_code as code_of_metrics
from amcast.cli.reproduce import exit_code as code_of_figures
from amcast.cli.reproduce import problems
from amcast.cli.sweep import exit_code as code_of_sweep
from amcast.report.figure import Figure, FigureClaim, Plot, figure_names, load_figure
from amcast.report.reproduce import Measured, Reproduced, measure
from amcast.spark.metrics import Collected
from amcast.spark.row import STATUSES, Output, run_batch
from amcast.spark.seen import evidence_of, silences
from amcast.spark.spec import load_spec
from amcast.spark.sweep import Sweep, read_runs

# ---------------------------------------------------------------- metrics


def a_run(name: str = "r", **other: int) -> dict[str, Any]:
    seen = {"multicasts": 3, "delivered_somewhere": 3, "deliveries": 18, "crashes": 0}
    seen |= {"replicas_seen": 6, "replicas_expected": 6}
    return {"run": name, **seen, **other}


@pytest.mark.parametrize(
    ("runs", "code", "said"),
    [
        ([a_run()], 0, ""),
        ([a_run("a"), a_run("b")], 0, ""),
        ([], 3, "there is no run"),
        ([a_run(deliveries=0, replicas_seen=0)], 3,
         "nothing was delivered (3 multicasts, 0 deliveries of 0 of 6 replicas)"),
        ([a_run(multicasts=0)], 3, "nothing was multicast (0 multicasts, 18 deliveries of 6 of 6 replicas)"),
        ([a_run(multicasts=0, deliveries=0, replicas_seen=0, replicas_expected=0)], 3, "no replica is in the trace"),
        ([a_run(replicas_seen=0)], 3,
         "no delivery is by a replica (3 multicasts, 18 deliveries of 0 of 6 replicas)"),
        ([a_run(delivered_somewhere=0)], 3,
         "no delivered message was multicast (3 multicasts, 18 deliveries of 6 of 6 replicas)"),
        ([a_run(delivered_somewhere=1)], 0, ""),
        ([a_run(name, deliveries=18 * (name == "a")) for name in "abcdef"], 3,
         "nothing was delivered in 5 of 6 runs: b, c, d and 2 more"),
    ],
)  # fmt: skip
def test_metrics_of_nothing(
    runs: list[dict[str, Any]], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Collected({"runs": pa.Table.from_pylist(runs)}, ())
    assert code_of_metrics("log.csv", found) == code
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == bool(said)
    assert bool(silences(runs)) == bool(code)
    assert document("log.csv", None, found)["evidence"] == evidence_of(runs).as_dict()


# ---------------------------------------------------------------- sweep


def a_sweep(evidence: Evidence = NOTHING, **statuses: int) -> Sweep:
    return Sweep(Path("out"), sum(statuses.values()), 0, statuses, 1.0, evidence)


SEEN = Evidence(runs=3, multicasts=30, deliveries=90)


@pytest.mark.parametrize(
    ("done", "code"),
    [
        (a_sweep(SEEN, ok=3), 0),
        (a_sweep(NOTHING, ok=3), 3),
        (a_sweep(NOTHING), 3),
        (a_sweep(NOTHING, empty=3), 3),
        (a_sweep(SEEN, ok=3, stalled=1), 3),
        (a_sweep(SEEN, ok=3, failed=1), 1),
        (a_sweep(SEEN, ok=3, crashed=1, stalled=1), 1),
        *((a_sweep(NOTHING, **{status: 2}), 1 if status in ("failed", "crashed") else 3) for status in STATUSES),
    ],
)
def test_sweeps_of_nothing(done: Sweep, code: int) -> None:
    assert code_of_sweep(done) == code
    assert done.document()["evidence"] == done.evidence.as_dict()


def test_a_row_in_which_nothing_is_delivered_is_not_ok(tmp_path: Path) -> None:
    text = 'protocol = "skeen"\nduration = "1ns"\nrate = 0.001\ntrace = "none"\nseeds = [1]'
    (tmp_path / "spec.toml").write_text(text)
    (row,) = load_spec(tmp_path / "spec.toml").rows()
    assert run_batch(row.run, [(row.run, row.config)], Output(tmp_path, "none")) is None
    (line,) = read_runs(tmp_path).to_pylist()
    assert (line["status"], line["deliveries"]) == ("empty", 0) and line["error"].startswith("nothing was delivered")


# ---------------------------------------------------------------- figures


def figure(*claims: Measured, evidence: Evidence = SEEN, not_ok: int = 0) -> Reproduced:
    described = Figure("tiny", "Tiny", "", (), {}, Plot("curves"), tuple(claim.claim for claim in claims))
    return Reproduced(described, "small", Path("out"), [{}], claims, not_ok, evidence)


def claim(**other: Any) -> FigureClaim:
    return FigureClaim("latency", "", "ms", unit="ms", **other)


MET, SHOWN = Measured(claim(expected=3.0), 3.1), Measured(claim(), 7.0)
NOT_MET, DIFFERS = Measured(claim(expected=3.0), 4.0), Measured(claim(expected=3.0, differs="CPU"), 4.0)
NOT_MEASURED = Measured(claim(), why_not="not measured: no such run")
ELSEWHERE = Measured(claim(scale="paper"), why_not="only with --scale paper", elsewhere=True)


@pytest.mark.parametrize(
    ("done", "code", "said"),
    [
        ([figure(MET, SHOWN, DIFFERS, ELSEWHERE)], 0, ""),
        ([figure(MET, NOT_MET)], 1, "tiny: not met: latency: 4.00 ms; expected 3.00 ms"),
        ([figure(MET), figure(NOT_MET, NOT_MEASURED)], 1, "tiny: latency: not measured: no such run"),
        ([figure(MET, NOT_MEASURED)], 3, "tiny: latency: not measured: no such run"),
        ([figure(MET, evidence=NOTHING)], 3, "tiny: nothing was delivered"),
        ([figure(MET, not_ok=1)], 1, "tiny: 1 run not ok"),
        ([figure()], 3, "tiny: has no claims"),
        ([], 3, ""),
    ],
)
def test_figures_that_are_not_reproduced(done: Sequence[Reproduced], code: int, said: str) -> None:
    assert code_of_figures(done) == code
    complaints = [line for figure in done for line in problems(figure)]
    assert any(said in line for line in complaints) if said else not complaints


@pytest.mark.parametrize(
    ("of", "met", "unmet"),
    [
        (claim(expected=3.0), (2.7001, 3.0, 3.2999), (2.69, 3.31)),
        (claim(expected=3.0, within=0.0), (3.0,), (2.999, 3.001)),
        (claim(expected=-2.0), (-2.0, -1.81), (2.0, -1.7)),
        (claim(at_least=2.0), (2.0, 99.0), (1.999,)),
        (claim(at_most=2.0), (0.0, 2.0), (2.001,)),
        (claim(at_least=1.0, at_most=2.0, within=0.05), (0.951, 2.099), (0.94, 2.11)),
    ],
)
def test_when_a_claim_is_met(of: FigureClaim, met: tuple[float, ...], unmet: tuple[float, ...]) -> None:
    assert {Measured(of, value).status for value in met} == {"met"}
    assert {Measured(of, value).status for value in unmet} == {"not met"}


def test_a_claim_of_another_scale_is_said_and_not_missed() -> None:
    of = claim(at_most=1.0, scale="paper")
    assert measure(of, {"runs": [{"ms": 2.0}]}, "small").status == "other scale"
    assert measure(of, {"runs": [{"ms": 2.0}]}, "paper").status == "not met"
    assert measure(of, {"runs": []}, "paper").status == "not measured"
    assert measure(of, {}, "paper").why_not == "not measured: no run is ok"


def test_a_ratio_of_two_columns() -> None:
    runs = [{"protocol": "a", "x": 2.0, "y": None}, {"protocol": "b", "x": None, "y": 8.0}]
    of = FigureClaim("", "", "x", where={"protocol": "a"}, over={"protocol": "b"}, over_column="y")
    assert measure(of, {"runs": runs}).value == 0.25


OF_CURVES = ("not given as a number", "read off a curve")


@pytest.mark.parametrize("name", figure_names())
def test_what_a_paper_says_is_compared_with_what_is_measured(name: str) -> None:
    claims = load_figure(name, "small").claims
    silent = [claim.what for claim in claims if claim.paper and not claim.compares]
    assert all(any(words in claim.paper for words in OF_CURVES) for claim in claims if claim.what in silent), silent
    assert any(claim.compares and not claim.differs for claim in claims) or name in ("wb-fig9", "wb-fig11")
