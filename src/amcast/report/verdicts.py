"""What a report says about verdicts: what they are, what they rest on, and whether they are about the same runs.

A verdict that says ok without saying on what, or on something else than is shown, is `unknown` on the page.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from amcast.checks import ALWAYS
from amcast.checks.evidence import Evidence, total
from amcast.checks.verdict_file import STATUSES, Verdicts, evidence_in
from amcast.core.plural import count
from amcast.report.page import paragraph, table
from amcast.spark.seen import named

MOST_COUNTEREXAMPLES: Final = 3
UNFOUNDED: Final = "it says ok, but not on what; verify again"
ELSEWHERE: Final = "it is about other deliveries than these; verify this trace"

Row = Mapping[str, Any]
Deliveries = Mapping[str, int]  # of each run that is shown


@dataclass(frozen=True)
class Judged:
    """A verdict as far as it can be believed."""

    property: str
    run: str
    status: str
    reason: str
    evidence: Evidence
    says: bool  # what it rests on: those of older files do not
    counterexample: Sequence[Row]

    def is_about(self, deliveries: Deliveries) -> bool:
        """Return whether the run is here, with as many deliveries."""
        here = deliveries.get(self.run)
        return here is not None and (not self.says or here == self.evidence.deliveries)


def judged(verdict: Row, deliveries: Deliveries, doubt: str = "") -> Judged:
    """Judge a verdict of a file. If it is about another trace (`doubt` says so), it is not ok here."""
    evidence = evidence_in(verdict)
    status, reason = verdict["status"], verdict.get("reason") or ""
    if status == "ok" and (doubt or not evidence):
        status, reason = "unknown", doubt or UNFOUNDED
    found_out = Judged(
        verdict["property"],
        verdict["run"],
        status,
        reason or _figure(verdict),
        evidence,
        bool(verdict.get("evidence")),
        verdict.get("counterexample") or (),
    )
    if found_out.status == "ok" and not found_out.is_about(deliveries):
        return replace(found_out, status="unknown", reason=ELSEWHERE)
    return found_out


def _figure(verdict: Row) -> str:
    values = verdict.get("figure")
    return ", ".join(f"{name} {value}" for name, value in values.items()) if isinstance(values, dict) else ""


def doubts(given: Verdicts, verdicts: Sequence[Judged], deliveries: Deliveries) -> list[str]:
    """Say why these verdicts cannot stand for these runs; empty if they can."""
    found = [given.doubt] if given.doubt else []
    seen = {verdict.property for verdict in verdicts}
    if missing := [name for name in given.asked if name not in seen]:
        found.append(f"not judged: {', '.join(missing)}; verify this trace")
    strangers = sorted({verdict.run for verdict in verdicts} - deliveries.keys())
    if strangers:
        found.append(f"there are verdicts on runs that are not here: {named(strangers)}; verify this trace")
    of_property: dict[str, set[str]] = defaultdict(set)
    for verdict in verdicts:
        of_property[verdict.property].add(verdict.run)
    for name, judged_runs in of_property.items():
        left = sorted(deliveries.keys() - judged_runs)
        if left:
            found.append(f"{name} was not judged in {len(left):,} of {len(deliveries):,} runs: {named(left)}")
    silent = [verdict for verdict in verdicts if verdict.reason == UNFOUNDED]
    if silent:
        found.append(f"verdicts that say ok, but not on what: {len(silent):,} of {len(verdicts):,}; verify again")
    others = [verdict for verdict in verdicts if verdict.run in deliveries and not verdict.is_about(deliveries)]
    for verdict in others[:1]:
        found.append(
            f"{verdict.property} of run {verdict.run} was judged on {verdict.evidence.deliveries:,} deliveries, "
            f"but {deliveries[verdict.run]:,} are here ({len(others):,} of {count(len(verdicts), 'verdict')} differ); "
            f"verify this trace"
        )
    return found


def worst_of(verdicts: Sequence[Judged]) -> str:
    return max((verdict.status for verdict in verdicts), key=STATUSES.index, default="unknown")


def tile(given: Verdicts, verdicts: Sequence[Judged], deliveries: Deliveries) -> tuple[str, str]:
    """Return `ok` only if every verdict is, none that was asked for is missing, and all are about these runs."""
    status, remark = worst_of(verdicts), tally(given, verdicts)
    if doubts(given, verdicts, deliveries):
        return ("unknown" if status == "ok" else status), f"{remark}; see the notes"
    return status, remark


def tally(given: Verdicts, verdicts: Sequence[Judged]) -> str:
    """Count the verdicts: `4 of 5 verdicts ok`, or `1 of 1 verdict ok, order only`."""
    text = f"{Counter(verdict.status for verdict in verdicts)['ok']:,} of {count(len(verdicts), 'verdict')} ok"
    return text if set(ALWAYS) <= set(given.asked) else f"{text}, {', '.join(given.asked)} only"


def summary(given: Verdicts, verdicts: Sequence[Judged], deliveries: Deliveries) -> str:
    """Return one line for the terminal, with the properties that are not ok."""
    status, _ = tile(given, verdicts, deliveries)
    said = [f"verified {status}: {tally(given, verdicts)}"]
    for name in ("violated", "unknown"):
        wrong = sorted({verdict.property for verdict in verdicts if verdict.status == name})
        said += [f"{', '.join(wrong)} {name}"] if wrong else []
    return "; ".join(said)


def section(verdicts: Sequence[Judged]) -> Iterator[str]:
    """Yield a row per property, with its worst verdict and what its verdicts rest on, then counter-examples."""
    by_property: dict[str, list[Judged]] = defaultdict(list)
    for verdict in verdicts:
        by_property[verdict.property].append(verdict)
    if not by_property:
        return
    one_run = len({verdict.run for verdict in verdicts}) == 1
    rows: list[dict[str, Any]] = []
    for name, found in by_property.items():
        worst = max(found, key=lambda verdict: STATUSES.index(verdict.status))
        counts = Counter(verdict.status for verdict in found)
        reason = worst.reason if one_run or not worst.reason else f"run {worst.run}: {worst.reason}"
        rests_on = str(total(verdict.evidence for verdict in found)) if any(v.says for v in found) else "not said"
        tallies = {status: counts[status] for status in STATUSES}
        rows.append({"property": name, "worst": worst.status, **tallies, "rests_on": rests_on, "reason": reason})
    columns = {"property": "property", "worst": "verdict"}
    if not one_run:
        columns |= {status: status for status in STATUSES}
    columns["rests_on"] = "rests on"
    columns |= {"reason": "why"} if any(row["reason"] for row in rows) else {}
    yield table("Each property, judged from the trace alone", columns, rows)
    shown = [verdict for verdict in verdicts if verdict.counterexample]
    for verdict in shown[:MOST_COUNTEREXAMPLES]:
        example = [{name: _text(value) for name, value in row.items()} for row in verdict.counterexample]
        names = list(dict.fromkeys(name for row in example for name in row if name != "run"))
        caption = f"Counter-example: {verdict.property} in run {verdict.run}"
        yield table(caption, {name: name for name in names}, example)
    left = len(shown) - MOST_COUNTEREXAMPLES
    if left > 0:
        yield paragraph(f"{left:,} more counter-example{'s are' if left > 1 else ' is'} in the verdicts.")


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and {"time", "tie"} <= value.keys():
        return f"{value['time']}, {value['tie']}"
    return str(value)
