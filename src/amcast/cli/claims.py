"""`amcast claims`: what the papers promise in numbers, measured."""

from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.naming import protocol_named
from amcast.cli.output import count, plain_table, print_json, report_console

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.lab.claims import Claim


def claims(
    protocol: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL]...", help="Default: all that have claims.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run every quantitative claim of the papers as a scenario. Exit code 1 if one is not met."""
    names = [protocol_named(name).name for name in protocol or ()]
    from amcast.lab.claims import run_claims

    found = run_claims(names or None)
    if as_json:
        fields = ("protocol", "claim", "paper", "section", "expected", "measured", "ok")
        print_json({"claims": [{name: getattr(claim, name) for name in fields} for claim in found]})
    else:
        print_claims(report_console(), found)
    return 0 if all(claim.ok for claim in found) else 1


def print_claims(console: "Console", found: "list[Claim]") -> None:
    """A table per paper."""
    from rich.text import Text

    for paper in dict.fromkeys(claim.paper for claim in found):
        console.print(Text(paper, style="bold"))
        table = plain_table("protocol", "claim", "section", "expected", "measured", "", right=("expected", "measured"))
        for claim in found:
            if claim.paper == paper:
                mark = Text("ok", style="green") if claim.ok else Text("not met", style="bold red")
                table.add_row(claim.protocol, claim.claim, claim.section, claim.expected, claim.measured, mark)
        console.print(table)
    met = sum(claim.ok for claim in found)
    console.print(f"\n{met} of {count(len(found), 'claim')} met")
