"""Every tile and every cell of a report says what the tables and the verdicts say that it was made from."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from amcast.checks import ALWAYS
from amcast.checks.verdict_file import OTHER_TRACE, Verdicts
from amcast.cli import run
from amcast.report import page
from amcast.report import report as report_module
from amcast.report import verdicts as report_verdicts
from amcast.report.report import Report, verdicts_on, write_report
from amcast.report.sections import Material
from amcast.spark.row import RUN_SCHEMA
from tests.spark.page_cells import Page, check_page

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Mapping[str, Any]]]

PROPERTIES = ALWAYS
QUANTITIES = ("p50", "p95", "p99", "max", "mean")


def run_row(name: str, **other: Any) -> Row:
    return {
        "run": name, "protocol": "white_box", "groups": 2, "replicas": 3, "dest_groups": 2, "network": "lan",
        "payload": 20, "skew_ms": 0.0, "crash_plan": "", "senders_to": 0, "window_ms": None, "rounds": 0,
        "batch": 1, "clients": 4, "rate": None, "seed": 7, "delta_ms": 5.0,
        "outcome": "quiescent", "rows": 900, "multicasts": 60, "delivered_messages": 60, "deliveries": 1350,
        "optimistic_deliveries": 0, "replicas_seen": 6, "replicas_expected": 6, "sends": 2400, "bytes": 96_000,
        "crashes": 1, "restarts": 0, "leader_changes": 1, "duration_ms": 1234.5, "messages_per_second": 48.6,
    } | other  # fmt: skip


def latency_row(role: str, scale: float, delta: float | None = 5.0, **other: Any) -> Row:
    ms = dict(zip(QUANTITIES, (3.04, 7.25, 11.68, 23.9, 4.125), strict=True))
    return {
        **other,
        "role": role,
        "samples": 120,
        **{f"{name}_ms": scale * value for name, value in ms.items()},
        **{f"{name}_delta": None if delta is None else scale * value / delta for name, value in ms.items()},
    }


def tables_of_one() -> dict[str, list[Row]]:
    """One run, with something in every table that the page shows."""
    roles = {"leader": 1.0, "follower": 1.5, "optimistic": 0.5}
    return {
        "runs": [run_row("r")],
        "latency": [
            latency_row(role, scale * (1 if group is None else 1.1), run="r", group=group)
            for group in (None, "g0", "g1")
            for role, scale in roles.items()
        ],
        "convoy": [
            {"run": "r", "dest_groups": k, "samples": 10 * k, "collision_free_ms": 2.5 * k,
             "collision_free_delta": 0.5 * k, "delayed": 4 * k, "share": 0.4, "delayed_over_delta": k,
             "share_over_delta": 0.1, "mean_extra_ms": 0.0123 * k}
            for k in (1, 2)
        ],
        "optimistic": [
            {"run": "r", "process": f"g0/{n}", "group": "g0", "optimistic_deliveries": 1000 + n, "deliveries": 990 + n,
             "mistakes": 33, "rollbacks": 5, "share": 33 / (990 + n)}
            for n in range(3)
        ],
        "messages": [
            {"run": "r", "type": name, "sends": many, "bytes": 40 * many, "sends_per_multicast": many / 60,
             "bytes_per_multicast": 40 * many / 60}
            for name, many in ((None, 2400), ("Accept", 1500), ("AcceptAck", 900))
        ],
        "recovery": [
            {"run": "r", "protocol": "white_box", "process": f"g{g}/0", "group": f"g{g}", "crash_ms": 20.0 + g,
             "recovery_ms": 180.5 if g else None, "recovery_delta": 36.1 if g else None}
            for g in (0, 1)
        ],
    }  # fmt: skip


def tables_of_two() -> dict[str, list[Row]]:
    """Two runs that differ in the clients."""
    tables = tables_of_one()
    clients = {"a": 4, "b": 40}
    return {
        "runs": [
            run_row(name, clients=many, delivered_messages=60 - (name == "b"), replicas_seen=6 - (name == "b"))
            for name, many in clients.items()
        ],
        "latency": [row | {"run": name} for name in clients for row in tables["latency"]],
        "latency_by_load": [
            run_row(name, clients=many) | latency_row(role, many)
            for name, many in clients.items()
            for role in ("follower", "leader")
        ],
        **{
            name: [row | {"run": of} for of in clients for row in tables[name]]
            for name in ("convoy", "optimistic", "messages", "recovery")
        },
    }


def evidence(**other: int) -> dict[str, int]:
    seen = {"runs": 1, "replicas": 6, "expected": 6, "multicasts": 60, "deliveries": 1350, "pairs": 360}
    return seen | {"states": 0, "faults": 1} | other


def verdict(name: str, of: str = "r", status: str = "ok", reason: str = "", **other: Any) -> Row:
    return {
        "property": name, "run": of, "status": status, "reason": reason, "counterexample": [], "figure": None,
        "evidence": evidence(),
    } | other  # fmt: skip


def violated(name: str, of: str = "r") -> Row:
    rows = [
        {"run": of, "kind": "deliver", "process": f"g0/{n}", "group": "g0", "seq": n, "message": f"m{n}"}
        for n in (1, 2)
    ]
    return verdict(name, of, "violated", "m1 before m2 and m2 before m1", counterexample=rows)


def written(tmp_path: Path, tables: Tables, verdicts: Sequence[Row] | Verdicts | None = None, *notes: str) -> Report:
    """The report on these tables, without Spark."""
    given = verdicts if verdicts is None or isinstance(verdicts, Verdicts) else Verdicts(verdicts)
    arrow = {
        name: pa.Table.from_pylist([dict(row) for row in rows], RUN_SCHEMA if name == "sweep" else None)
        for name, rows in tables.items()
    }
    return write_report(Material(tmp_path / "r", arrow, notes, given), tmp_path / "p.html", tmp_path / "p")


def checked(tmp_path: Path, tables: Tables, verdicts: Sequence[Row] | None = None, *notes: str) -> tuple[Report, Page]:
    done = written(tmp_path, tables, verdicts, *notes)
    return done, check_page(done.page.read_text(), tables, verdicts, (*done.doubts, *notes))


# ---------------------------------------------------------------- all cells


def test_every_cell_of_one_run(tmp_path: Path) -> None:
    judged = [verdict(name) for name in PROPERTIES]
    done, shown = checked(tmp_path, tables_of_one(), judged, "the clocks differ")
    assert not done.doubts and len(shown.tables) == 7
    assert str(done.evidence) == "1,350 deliveries of 6 of 6 replicas, 1 fault"
    assert done.verified == "verified ok: 5 of 5 verdicts ok"
    assert shown.tiles["verified"].text == "ok" and shown.notes == ["the clocks differ"]
    properties = shown.tables["Each property, judged from the trace alone"]
    assert properties.rows[2][2].text == "1,350 deliveries of 6 of 6 replicas, 360 pairs compared, 1 fault"
    with (done.folder / "runs.csv").open() as file:
        assert next(csv.DictReader(file))["deliveries"] == "1350"


def test_every_cell_of_several_runs(tmp_path: Path) -> None:
    tables = tables_of_two()
    judged = [verdict(name, of) for of in ("a", "b") for name in PROPERTIES]
    judged[2:3] = [violated("order", "a")]
    judged[9:10] = [verdict("termination", "b", "unknown", "the run was cut off")]
    done, shown = checked(tmp_path, tables, judged)
    assert shown.tiles["messages"].remark == "119 delivered everywhere"
    assert shown.tiles["deliveries"].remark == "of 11 of 12 replicas"
    assert shown.tiles["verified"].text == "violated" and shown.tiles["verified"].classes == "status bad"
    assert done.verified == "verified violated: 8 of 10 verdicts ok; order violated; termination unknown"
    assert not done.doubts, "the report is no judge: it shows what there is"


def sweep_line(name: str, status: str = "ok", **other: Any) -> Row:
    empty = dict.fromkeys(RUN_SCHEMA.names)
    seen = {"multicasts": 60, "delivered_messages": 60, "deliveries": 360, "virtual_ms": 220.0, "crashes_seen": 0}
    seen |= {"messages_per_second": 272.7, "first_ms_p50": 3.5, "first_ms_p99": 9.75}
    config = {"run": name, "protocol": "skeen", "groups": 2, "replicas": 1, "clients": 3, "seed": 1, "crashes": []}
    return empty | config | {"status": status} | (seen if status == "ok" else {}) | other


def test_every_cell_of_a_sweep(tmp_path: Path) -> None:
    lines = [sweep_line("a"), sweep_line("b", clients=9), sweep_line("c", "failed", error="two gts", clients=9)]
    done, shown = checked(tmp_path, {"sweep": lines})
    assert shown.tiles["runs"].remark == "1 failed" and "verified" not in shown.tiles
    assert done.doubts == ("nothing was delivered in 1 of 3 runs: c",) and done.verified == ""


def test_long_tables_say_how_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_ROWS", 2)
    _, shown = checked(tmp_path, tables_of_one(), [verdict(name) for name in PROPERTIES])
    assert {table.more for table in shown.tables.values()} == {0, 1, 3, 7}
    said = "and 1 more row in p/messages.csv"
    assert said in shown.paragraphs and len(shown.tables["Protocol messages by type"].rows) == 2


def test_counter_examples_that_are_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = [violated(name) for name in PROPERTIES]
    _, shown = checked(tmp_path, tables_of_one(), judged)
    assert "2 more counter-examples are in the verdicts." in shown.paragraphs
    monkeypatch.setattr(report_verdicts, "MOST_COUNTEREXAMPLES", 4)
    text = written(tmp_path, tables_of_one(), judged).page.read_text()
    assert "1 more counter-example is in the verdicts." in Page(text).paragraphs


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0, "0"), (7, "7"), (1_234_567, "1,234,567"), (0.0, "0.00"), (0.0123, "0.0123"),
        (0.98765, "0.9877"), (1.234, "1.23"), (99.987, "99.99"), (123.46, "123.5"), (999.94, "999.9"),
        (1234.56, "1,235"), (-2.5, "-2.50"), (True, "yes"), ("cut off", "cut off"),
    ],
)  # fmt: skip
def test_numbers_keep_their_digits(value: Any, shown: str) -> None:
    assert page.number(value) == shown


def test_colours_of_words() -> None:
    def words(colour: str) -> set[str]:
        return {word for word, of in page.STATUS_CLASSES.items() if of == colour}

    assert words("good") == {"ok"} and words("bad") == {"violated", "failed", "crashed"}


# ---------------------------------------------------------------- nothing, or verdicts on something else


@pytest.mark.parametrize(
    ("other", "said", "messages", "deliveries"),
    [
        ({"deliveries": 0, "delivered_messages": 0, "replicas_seen": 0}, "nothing was delivered",
         "none delivered everywhere", "nothing was delivered"),
        ({"multicasts": 0, "delivered_messages": 0}, "nothing was multicast",
         "nothing was multicast", "of 6 of 6 replicas"),
        ({"multicasts": 0, "delivered_messages": 0, "deliveries": 0, "replicas_seen": 0, "replicas_expected": 0},
         "no replica is in the trace", "nothing was multicast", "nothing was delivered"),
    ],
)  # fmt: skip
def test_a_run_that_shows_nothing(
    tmp_path: Path, other: dict[str, int], said: str, messages: str, deliveries: str
) -> None:
    done, shown = checked(tmp_path, {"runs": [run_row("r", **other)]})
    assert done.doubts == (said,) and shown.notes == [said]
    assert shown.tiles["messages"].remark == messages and shown.tiles["deliveries"].remark == deliveries


def without_evidence(found: Row) -> Row:
    return {name: value for name, value in found.items() if name != "evidence"}


@pytest.mark.parametrize(
    ("verdicts", "status", "doubt"),
    [
        ([], "unknown", "the verdicts are none at all"),
        ([without_evidence(verdict(name)) for name in PROPERTIES], "unknown", "say ok, but not on what: 5 of 5"),
        ([verdict("order", evidence=evidence(deliveries=0, pairs=0))], "unknown", "say ok, but not on what: 1 of 1"),
        ([verdict("order", "s")], "unknown", "verdicts on runs that are not here: s"),
        ([verdict("order", "r", evidence=evidence(deliveries=12))], "unknown", "judged on 12 deliveries, but 1,350"),
        ([without_evidence(violated("order"))], "violated", None),
        ([verdict("order", status="unknown", reason="cut off")], "unknown", None),
    ],
)
def test_verdicts_that_do_not_hold_are_not_green(
    tmp_path: Path, verdicts: list[Row], status: str, doubt: str | None
) -> None:
    asked = list(dict.fromkeys(found["property"] for found in verdicts)) or None
    done = written(tmp_path, tables_of_one(), Verdicts(verdicts, asked))
    shown = Page(done.page.read_text())
    assert shown.tiles["verified"].text == status and "good" not in shown.tiles["verified"].classes
    assert (doubt in " ".join(done.doubts)) if doubt else not done.doubts
    assert shown.notes == list(done.doubts)
    assert done.verified.startswith(f"verified {status}: ")
    for table in shown.tables.values():
        for row in table.rows if "verdict" in table.headings else ():
            assert row[1].text == status


def test_a_run_without_a_verdict_is_not_verified(tmp_path: Path) -> None:
    done, shown = checked(tmp_path, tables_of_two(), [verdict(name, "a") for name in PROPERTIES])
    assert done.doubts[0] == "integrity was not judged in 1 of 2 runs: b" and len(done.doubts) == 5
    assert shown.tiles["verified"].text == "unknown" and shown.tiles["verified"].remark.endswith("see the notes")


def test_properties_that_were_not_judged_are_named(tmp_path: Path) -> None:
    some = [verdict("order"), verdict("validity")]
    done = written(tmp_path, tables_of_one(), some)
    assert done.doubts == ("not judged: integrity, agreement, termination; verify this trace",)
    assert done.verified == "verified unknown: 2 of 2 verdicts ok"
    done = written(tmp_path, tables_of_one(), Verdicts(some, ["order", "validity"]))
    assert done.doubts == () and done.verified == "verified ok: 2 of 2 verdicts ok, order, validity only"
    tile = Page(done.page.read_text()).tiles["verified"]
    assert (tile.text, tile.remark) == ("ok", "2 of 2 verdicts ok, order, validity only")
    done = written(tmp_path, tables_of_one(), Verdicts(some, ["order", "fifo"]))
    assert done.doubts == ("not judged: fifo; verify this trace",) and "verified unknown" in done.verified


def test_verdicts_of_another_trace_are_not_green(tmp_path: Path) -> None:
    good = [verdict(name) for name in PROPERTIES]
    done = written(tmp_path, tables_of_one(), Verdicts([*good, violated("fifo")], doubt=OTHER_TRACE))
    shown = Page(done.page.read_text())
    assert done.doubts == (OTHER_TRACE,) and shown.notes == [OTHER_TRACE]
    rows = shown.tables["Each property, judged from the trace alone"].rows
    assert [row[1].text for row in rows] == ["unknown"] * 5 + ["violated"], "what is wrong is not hidden"
    assert shown.tiles["verified"].text == "violated"


def test_where_verdicts_are_looked_for(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    assert verdicts_on(trace, trace, None, None) is None
    assert verdicts_on(trace, trace, [], None) == Verdicts([]), "those that are handed over are of this trace"
    for place in (tmp_path / "trace-verdicts.json", trace / "verdicts.json"):
        place.write_text("{}")
        with pytest.raises(report_module.UsageError, match=f"{place}: holds no verdicts"):
            verdicts_on(trace, trace, None, None)


def test_the_exit_code_is_that_of_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exit_code(tables: Tables, verdicts: Sequence[Row] | Verdicts | None) -> tuple[int, str, str]:
        monkeypatch.setattr(report_module, "report", lambda *_, **__: written(tmp_path, tables, verdicts))
        return run(["report", str(tmp_path)]), *capsys.readouterr()

    good = [verdict(name) for name in PROPERTIES]
    code, out, err = exit_code(tables_of_one(), good)
    assert (code, err) == (0, "") and "it shows 1,350 deliveries of 6 of 6 replicas" in out and "verified ok" in out
    code, out, err = exit_code(tables_of_one(), None)
    assert (code, err) == (0, "") and "not verified" in out
    code, out, err = exit_code(tables_of_one(), [violated("order"), *good[:2], *good[3:]])
    assert (code, err) == (0, "") and "verified violated: 4 of 5 verdicts ok; order violated" in out
    code, out, err = exit_code({"runs": [run_row("r", deliveries=0)]}, good)
    assert code == 3 and err.splitlines()[0] == "amcast: nothing was delivered"
    code, out, err = exit_code(tables_of_one(), [without_evidence(found) for found in good])
    assert code == 3 and "verified unknown: 0 of 5 verdicts ok" in out and "not on what: 5 of 5" in err
    code, out, err = exit_code(tables_of_one(), Verdicts(good, doubt=OTHER_TRACE))
    assert code == 3 and err == "amcast: these verdicts are of another trace: verify again\n"
    assert "verified unknown: 0 of 5 verdicts ok" in out
