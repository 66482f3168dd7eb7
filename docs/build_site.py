"""`make docs`: the documentation as a site of plain HTML in build/docs, with a page per protocol made from its code.

A link that leads nowhere is an error. Nothing is loaded from anywhere else.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from amcast.claims.table import CLAIMS, Claim, run_claims
from amcast.core.protocol import Protocol
from amcast.core.trace import ListRecorder
from amcast.protocols import PROTOCOLS
from amcast.report.page import style
from amcast.sim.simulation import Simulation
from amcast.web.runs import RunRows, about_message, picture_of
from amcast.web.svg import draw_svg

ROOT = Path(__file__).parent.parent
PAGES = {  # file -> what the list of pages calls it
    "README.md": "Getting started",
    "docs/cluster.md": "Operating a cluster",
    "docs/kv.md": "The store",
    "docs/guarantees.md": "What is promised",
    "docs/pipeline.md": "The pipeline",
    "docs/spark.md": "A cluster in Spark",
    "docs/results.md": "Results explained",
    "docs/other-systems.md": "Logs of other systems",
    "docs/view.md": "Seeing a run",
    "docs/explore.md": "Every schedule",
    "docs/optimistic.md": "Optimistic delivery",
    "docs/maelstrom.md": "Maelstrom",
    "docs/adding-a-protocol.md": "Adding a protocol",
    "docs/security.md": "Security",
    "docs/faq.md": "Questions",
    "ARCHITECTURE.md": "Architecture",
    "deploy/README.md": "Deploying",
    "CHANGELOG.md": "Changes",
}
for document in sorted((ROOT / "docs").glob("*.md")):  # what is not in the list comes last, by its heading
    PAGES.setdefault(f"docs/{document.name}", document.read_text(encoding="utf-8").splitlines()[0].lstrip("# "))
PSEUDOCODE = ROOT / "docs" / "pseudocode"
PROTOCOL_SOURCES = ROOT / "src" / "amcast" / "protocols"
NAMED = re.compile(r'(#\s*|""")(l\.\d+(?:-\d+)?(?:, l\.\d+(?:-\d+)?)*)[,:]?\s*(.*)$')  # lines of the paper, in code
LABELLED = re.compile(r"(l\.\d+)  (.+)")  # a line of them, in docs/pseudocode
MORE_STYLE = """
body{max-width:76rem}
main h1{margin-top:1.2rem}
pre{overflow-x:auto;padding:.7rem .9rem;background:var(--raised);border:1px solid var(--line);border-radius:.4rem;
 font-size:.82rem}
code{font-size:.9em}
.beside{width:min(94rem,100vw - 2.5rem);margin-left:50%;transform:translateX(-50%)}
.beside td{padding:0 .8rem 0 0;border:0;font:.8rem/1.45 ui-monospace,monospace;white-space:pre;max-width:none}
.beside td:first-child{color:var(--muted);text-align:right}
.beside td:nth-child(2){min-width:25rem;font-family:inherit;white-space:pre-wrap}
@media (max-width:72rem){
 .beside thead{display:none}
 .beside table,.beside tbody{display:block;width:max-content;min-width:100%}
 .beside tr{display:grid;grid-template-columns:2.6rem 1fr}
 .beside td:empty{display:none}
 .beside td:nth-child(2){min-width:0;max-width:calc(100vw - 5.9rem);color:var(--muted)}
 .beside td:nth-child(3){grid-column:1/-1}
}
.picture svg{max-width:100%;height:auto;background:#fff;border-radius:.4rem}
"""


class BrokenLink(Exception):
    """A page links to something that does not exist."""


class WrongPseudocode(Exception):
    """The code names other lines of a paper than docs/pseudocode has."""


def page_of(file: str) -> str:
    """Return the name of a page: docs/kv.md is kv.html."""
    if file == "README.md":
        return "index.html"
    path = Path(file)
    return f"{path.parent.name if path.stem == 'README' else path.stem.lower()}.html"


def anchor(title: str) -> str:
    """Return the anchor that GitHub makes of a heading, so that links hold in both places."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def rendered(file: str, text: str, attached: set[str]) -> str:
    """Return the HTML of a page, with links to the site's own pages. Files that it links to are added to `attached`."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            token.attrSet("id", anchor(following.content))
        for child in token.children or ():
            relink(file, child, attached)
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def relink(file: str, token: Token, attached: set[str]) -> None:
    target = str(token.attrGet("href") or "")
    if token.type != "link_open" or target.startswith(("#", "http://", "https://")):
        return
    path, mark, place = target.partition("#")
    found = (ROOT / file).parent.joinpath(path).resolve()
    name = found.relative_to(ROOT).as_posix() if found.is_relative_to(ROOT) else path
    if name in PAGES:
        token.attrSet("href", page_of(name) + mark + place)
    elif found.is_file() and found.is_relative_to(ROOT):
        attached.add(name)
        token.attrSet("href", f"files/{found.name}.txt")
    else:
        raise BrokenLink(f"{file}: links to {target}, which there is not")


def framed(title: str, body: str, here: str) -> str:
    names = {page_of(file): name for file, name in PAGES.items()}
    names = {"index.html": names["index.html"], "protocols.html": "Protocols", **names}
    links = "".join(
        f'<a href="{page}"{" aria-current=page" if page == here else ""}>{escape(name)}</a>'
        for page, name in names.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{escape(title)} – amcast</title>
<style>{style()}{MORE_STYLE}</style></head>
<body><nav aria-label="Pages">{links}</nav><main>{body}</main></body></html>
"""


def protocol_page(table: Protocol, claims: Sequence[Claim]) -> str:
    rows = "".join(
        f"<tr><td>{escape(claim.claim)}</td><td>{escape(claim.section)}</td><td>{escape(claim.expected)}</td>"
        f"<td>{escape(claim.measured)}</td></tr>"
        for claim in claims
    )
    heads = "".join(f"<th>{head}</th>" for head in ("claim", "section of the paper", "stated", "measured"))
    return "".join(
        (
            f"<h1>{escape(table.title)}</h1>",
            f"<p><code>{table.name}</code>: order {escape(table.order)}; tolerates {escape(table.tolerates)}; ",
            f"latency in message delays: {escape(table.latency)}.</p>",
            f"<pre>{escape(docstring_of(source_of(table.replica.__module__)))}</pre>",
            f"<h2>Stated and measured</h2><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
            if claims
            else "",
            "<h2>One message</h2><p>Every delay is 1 ms.</p>",
            f'<div class="picture scroll">{life_of_a_message(table)}</div>',
            *(code_of(file) for file in sources(table)),
        )
    )


def life_of_a_message(table: Protocol) -> str:
    """Draw what one multicast makes happen."""
    recorder = ListRecorder(full=True)
    groups = 1 if table.single_group else 2
    replicas = 1 if table.single_replica else 3
    run = Simulation(table.name, groups=groups, replicas=replicas, clients=1, messages=1, dest_groups=groups)
    run.world(recorder).run()
    message = next(event.message for event in recorder.events if event.kind == "multicast")
    return draw_svg(
        picture_of(about_message(RunRows(recorder.events, 0), message or "")), f"{table.title}: one message"
    )


def sources(table: Protocol) -> list[Path]:
    """Return the file of a protocol, and those of its clients and its parts if they name lines of its paper too."""
    own = table.replica.__module__
    modules = dict.fromkeys((own, table.client.__module__))
    if names_lines(source_of(own)):
        used = [getattr(value, "__module__", "") for value in vars(sys.modules[own]).values()]
        modules |= dict.fromkeys(module for module in used if str(module).startswith("amcast.protocols.parts."))
    files = [source_of(module) for module in modules]
    return files[:1] + [file for file in files[1:] if names_lines(file)]


def source_of(module: str) -> Path:
    return ROOT / "src" / f"{module.replace('.', '/')}.py"


def docstring_of(file: Path) -> str:
    """Return what a module says of itself; a compiled one has no docstring."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").strip()


def names_lines(file: Path) -> bool:
    return any(labels for labels, _ in code_lines(file.read_text("utf-8")))


def code_of(source: Path) -> str:
    module = source.relative_to(PROTOCOL_SOURCES).with_suffix("").as_posix()
    file = PSEUDOCODE / f"{module}.txt"
    if not file.is_file():
        raise WrongPseudocode(f"{source.name}: has no pseudocode, expected {file.relative_to(ROOT)}")
    return beside(module, file.read_text("utf-8"), source.read_text("utf-8"))


def code_lines(text: str) -> list[tuple[list[str], str]]:
    """Return for each line of code below the docstring the lines of the paper that it names, and the rest of it."""
    lines: list[tuple[list[str], str]] = []
    for line in text.split('"""', 2)[-1].strip("\n").splitlines():
        found = NAMED.search(line)
        labels: list[str] = []
        for name in found[2].split(", ") if found else ():
            first, _, last = name.removeprefix("l.").partition("-")
            labels += [f"l.{n}" for n in range(int(first), int(last or first) + 1)]
        code = line
        if found:
            code = (line[: found.start()] + (found[1] + found[3] if found[3] else "")).rstrip()
        lines.append((labels, code))
    return lines


def beside(module: str, pseudocode: str, text: str) -> str:
    """Show code beside the lines of the paper, or below our own pseudocode if the paper's has no numbers."""
    lines = code_lines(text)
    used = {label for labels, _ in lines for label in labels}
    meanings: dict[str, str] = {}
    for line in pseudocode.splitlines():
        found = LABELLED.fullmatch(line)
        if found is None and used:
            raise WrongPseudocode(f"{module}.txt: expected a label, two spaces and what happens there, not {line!r}")
        if found and found[1] in meanings:
            raise WrongPseudocode(f"{module}.txt: {found[1]} is there twice")
        if found:
            meanings[found[1]] = found[2]
    if meanings.keys() != used:
        wrong = ", ".join(sorted(meanings.keys() ^ used))
        raise WrongPseudocode(f"{wrong}: in only one of {module}.txt and {module}.py, expected in both")
    if not used:
        code = "\n".join(escape(code) for _, code in lines)
        return f"<h2>Pseudocode</h2><pre>{escape(pseudocode)}</pre><h2>{module}.py</h2><pre>{code}</pre>"
    rows = []
    for labels, code in lines:
        for label in labels[:-1]:
            rows.append(f"<tr><td>{label}</td><td>{escape(meanings[label])}</td><td></td></tr>")
        last = labels[-1] if labels else ""
        rows.append(
            f"<tr><td>{last}</td><td>{escape(meanings.get(last, ''))}</td><td>{escape(code) or '&nbsp;'}</td></tr>"
        )
    heads = "<th>line</th><th>what the paper does there</th><th>code</th>"
    return (
        f'<section class="beside"><h2>{module}.py</h2><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def build(
    out: Path, protocols: Mapping[str, Protocol] = PROTOCOLS, measure: Callable[[list[str]], list[Claim]] = run_claims
) -> list[Path]:
    """Write the site, and return its pages."""
    out.mkdir(parents=True, exist_ok=True)
    pages: dict[str, str] = {}
    attached: set[str] = set()
    for file, title in PAGES.items():
        body = rendered(file, (ROOT / file).read_text(encoding="utf-8"), attached)
        pages[page_of(file)] = framed(title, body, page_of(file))
    items = "".join(
        f'<tr><td><a href="protocol-{name}.html">{escape(table.title)}</a></td><td>{escape(table.order)}</td>'
        f"<td>{escape(table.tolerates)}</td><td>{escape(table.latency)}</td></tr>"
        for name, table in protocols.items()
    )
    heads = "".join(f"<th>{head}</th>" for head in ("protocol", "order", "tolerates", "delays, leader / follower"))
    listed = f"<h1>Protocols</h1><table><thead><tr>{heads}</tr></thead><tbody>{items}</tbody></table>"
    pages["protocols.html"] = framed("Protocols", listed, "protocols.html")
    for name, table in protocols.items():
        claims = measure([name]) if name in CLAIMS else []
        pages[f"protocol-{name}.html"] = framed(table.title, protocol_page(table, claims), "protocols.html")
    for name, page in pages.items():
        (out / name).write_text(page, encoding="utf-8")
    (out / "files").mkdir(exist_ok=True)
    for name in sorted(attached):
        (out / "files" / f"{Path(name).name}.txt").write_bytes((ROOT / name).read_bytes())
    return [out / name for name in pages]


if __name__ == "__main__":
    made = build(ROOT / "build" / "docs")
    print(f"{len(made)} pages: {made[0]}")
