"""One HTML page that needs nothing else: its style, and the few elements that a report is made of.

Whatever comes from outside goes through `text` and is never markup. By its content security policy the page runs no
scripts and loads nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Final

from amcast.report.plots import COLOURS, DARK_COLOURS, Picture

GENERATOR: Final = "amcast report"
MARK: Final = f'<meta name="generator" content="{GENERATOR}">'
MOST_ROWS: Final = 60  # of a table
MANY_COLUMNS: Final = 10  # of a table that takes less room for each
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it."""

    title: str
    body: str
    identifier: str


def text(value: object) -> str:
    """Escape a text for an element or a quoted attribute."""
    return escape(str(value))


def number(value: Cell) -> str:
    """Write a number for people: about four digits, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    decimals = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 or value == 0 else 4
    return f"{value:,.{decimals}f}"


def table(caption: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Cell]], file: str = "") -> str:
    """Return a table. `columns` gives each column of `rows` its heading. A long table says where the rest is."""
    shown = rows[:MOST_ROWS]
    numeric = {name for name in columns if any(_is_number(row.get(name)) for row in shown)}
    head = "".join(f'<th scope="col"{_right(name in numeric)}>{text(title)}</th>' for name, title in columns.items())
    body = "".join(f"<tr>{''.join(_cell(row.get(name), name in numeric) for name in columns)}</tr>" for row in shown)
    left = len(rows) - len(shown)
    more = f"{left:,} more row{'s' if left > 1 else ''}" + (f" in {file}" if file else "") if left else ""
    note = f'<p class="note">and {text(more)}</p>' if more else ""
    return (
        f'<p class="caption" aria-hidden="true">{text(caption)}</p>'  # the real one would scroll away
        f'<div class="scroll{" wide" if len(columns) > MANY_COLUMNS else ""}" tabindex="0" role="region" '
        f'aria-label="{text(caption)}">'
        f"<table><caption>{text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, str):
        return cell.endswith(" %")
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _right(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cell(cell: Cell, is_number: bool) -> str:
    if isinstance(cell, str) and cell in STATUS_CLASSES:
        return f"<td>{_status(cell)}</td>"
    return f"<td{_right(is_number)}>{text(number(cell))}</td>"


def _status(words: str) -> str:
    """Return a status in its colour, and other words as they are."""
    return (
        f'<span class="status {STATUS_CLASSES[words]}">{text(words)}</span>' if words in STATUS_CLASSES else text(words)
    )


STATUS_CLASSES: Final = {
    "ok": "good", "violated": "bad", "failed": "bad", "crashed": "bad", "unknown": "unsure",
    "empty": "unsure", "stalled": "unsure", "timeout": "unsure", "refused": "unsure", "cut off": "unsure",
}  # fmt: skip


def figure(picture: Picture, note: str = "") -> str:
    caption = text(picture.title) + (f' <span class="note">{text(note)}</span>' if note else "")
    return (
        f'<figure><figcaption>{caption}</figcaption><div class="scroll plot" tabindex="0">{picture.svg}</div></figure>'
    )


def paragraph(words: str) -> str:
    return f"<p>{text(words)}</p>"


def notes(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def tiles(figures: Sequence[tuple[str, str, str]]) -> str:
    """Show the few numbers that matter most: what, how much, a word on it."""
    items = "".join(
        f"<div><dt>{text(what)}</dt><dd>{_status(value)}<small>{text(remark)}</small></dd></div>"
        for what, value, remark in figures
    )
    return f'<dl class="tiles">{items}</dl>' if items else ""


def document(title: str, subtitle: str, lead: str, sections: Sequence[Section], footer: str) -> str:
    links = "".join(f'<a href="#{text(section.identifier)}">{text(section.title)}</a>' for section in sections)
    parts = "".join(
        f'<section id="{text(section.identifier)}"><h2>{text(section.title)}</h2>{section.body}</section>'
        for section in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{MARK}
<title>{text(title)}</title>
<style>{style()}</style>
</head>
<body>
<header><h1>{text(title)}</h1><p class="subtitle">{text(subtitle)}</p></header>
<nav aria-label="Sections">{links}</nav>
<main>{lead}{parts}</main>
<footer>{text(footer)}</footer>
</body>
</html>
"""


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def style() -> str:
    """Return the style of the page. Paper is always light."""
    rules = resources.files("amcast.report").joinpath("static", "page.css").read_text(encoding="utf-8")
    dark = f"@media (prefers-color-scheme:dark){{:root{{{DARK}}}}}"
    paper = f"@media print{{:root{{color-scheme:light;{LIGHT}}}}}"
    return f":root{{color-scheme:light dark;{LIGHT}}}{dark}{rules}{paper}"


LIGHT: Final = (
    _variables(COLOURS) + "--page:#fff;--raised:#f5f7f9;--line:#d9dee3;--good:#0a7f5a;--bad:#b42318;--unsure:#8a6100;"
)
DARK: Final = (
    _variables(DARK_COLOURS)
    + "--page:#14171a;--raised:#1d2227;--line:#353c44;--good:#4cc99a;--bad:#ff8a7a;--unsure:#e0b84a;"
)
