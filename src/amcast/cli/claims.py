"""`amcast claims`: what the papers promise in numbers, measured."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.naming import protocol_named, protocols_like
from amcast.cli.output import complain_of_plugins, plain_table, print_json, report_console
from amcast.core.plural import count

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.claims.table import Claim


def claims(
    protocol: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROTOCOL]...", help="Default: all that have claims.", autocompletion=protocols_like),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run every quantitative claim of the papers as a scenario. Exit code 1 if one is not met, 3 if there is none."""
    names = [protocol_named(name).name for name in protocol or ()]
    from amcast.checks.evidence import total
    from amcast.claims.table import all_claims, run_claims

    found = run_claims(names or None)
    if as_json:
        evidence = total(claim.evidence for claim in found)
        print_json({"claims": [asdict(claim) for claim in found], "evidence": evidence.as_dict()})
    else:
        print_claims(report_console(), found)
    if not names and complain_of_plugins(all_claims().broken):
        return 2
    return 3 if not found else 0 if all(claim.ok for claim in found) else 1


def print_claims(console: "Console", found: "list[Claim]") -> None:
    """Print a table per paper."""
    from rich.text import Text

    from amcast.checks.evidence import total

    for paper in dict.fromkeys(claim.paper for claim in found):
        console.print(paper, style="bold")
        table = plain_table("protocol", "claim", "section", "expected", "measured", "", right=("expected", "measured"))
        for claim in found:
            if claim.paper == paper:
                nothing = claim.measured == claim.expected and not claim.ok
                bad = Text("on nothing" if nothing else "not met", style="bold red")
                mark = Text("ok", style="green") if claim.ok else bad
                table.add_row(claim.protocol, claim.claim, claim.section, claim.expected, claim.measured, mark)
        console.print(table)
    met = sum(claim.ok for claim in found)
    evidence = total(claim.evidence for claim in found)
    deliveries = count(evidence.deliveries, "delivery", "deliveries")
    seen = f"{count(evidence.runs, 'run')}, {deliveries}, {count(evidence.faults, 'crash', 'crashes')}"
    computed = sum(claim.computed for claim in found)
    told = f"{met} of {count(len(found), 'claim')} met" if found else "unknown: there are no claims"
    console.print(f"\n{told}; {seen}; {computed} computed without a run", soft_wrap=True)
