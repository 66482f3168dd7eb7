"""`make docs`: the documentation as a site of plain HTML in build/docs, with a page per protocol made from its code.

A link that leads nowhere is an error. Nothing is loaded from anywhere else.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from amcast.core.process import Protocol
from amcast.core.trace import ListRecorder
from amcast.lab.claims import CLAIMS, Claim, run_claims
from amcast.lab.simulate import Simulation
from amcast.pipeline.page import STYLE
from amcast.protocols import PROTOCOLS
from amcast.web.runs import Rows, about_message, picture_of
from amcast.web.svg import draw_svg

ROOT = Path(__file__).parent.parent
PAGES = {  # file -> what the list of pages calls it
    "README.md": "Getting started",
    "docs/cluster.md": "Operating a cluster",
    "docs/kv.md": "The store",
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
LINE = re.compile(r"#\s*(l\.[0-9][^#]*)$")
MORE_STYLE = """
body{max-width:76rem}
main h1{margin-top:1.2rem}
pre{overflow-x:auto;padding:.7rem .9rem;background:var(--raised);border:1px solid var(--line);border-radius:.4rem;
 font-size:.82rem}
code{font-size:.9em}
.code td{padding:0 .8rem 0 0;border:0;font:.8rem/1.45 ui-monospace,monospace;white-space:pre;max-width:none}
.code td:first-child{color:var(--muted);text-align:right}
.picture svg{max-width:100%;height:auto;background:#fff;border-radius:.4rem}
"""


class BrokenLink(Exception):
    """A page links to something that there is not."""


def page_of(file: str) -> str:
    """The name of a page: docs/kv.md is kv.html."""
    if file == "README.md":
        return "index.html"
    path = Path(file)
    return f"{path.parent.name if path.stem == 'README' else path.stem.lower()}.html"


def anchor(title: str) -> str:
    """As GitHub makes them, so that links hold in both places."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def rendered(file: str, text: str, attached: set[str]) -> str:
    """The HTML of a page, with its links turned to the site's own; files that it links to are `attached`."""
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
<style>{STYLE}{MORE_STYLE}</style></head>
<body><nav aria-label="Pages">{links}</nav><main>{body}</main></body></html>
"""


def protocol_page(table: Protocol, claims: Sequence[Claim]) -> str:
    source = ROOT / "src" / f"{table.replica.__module__.replace('.', '/')}.py"
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
            f"<pre>{escape((sys.modules[table.replica.__module__].__doc__ or '').strip())}</pre>",
            f"<h2>Stated and measured</h2><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
            if claims
            else "",
            "<h2>One message</h2><p>Every delay is 1 ms.</p>",
            f'<div class="picture scroll">{life_of_a_message(table)}</div>',
            f"<h2>The code</h2><p>{source.name}; where the paper has pseudocode, its lines are on the left.</p>",
            code_beside_lines(source.read_text(encoding="utf-8")),
        )
    )


def life_of_a_message(table: Protocol) -> str:
    """What one multicast makes happen, drawn."""
    recorder = ListRecorder(full=True)
    groups = 1 if table.single_group else 2
    replicas = 1 if table.single_replica else 3
    run = Simulation(table.name, groups=groups, replicas=replicas, clients=1, messages=1, dest_groups=groups)
    run.world(recorder).run()
    message = next(event.message for event in recorder.events if event.kind == "multicast")
    return draw_svg(picture_of(about_message(Rows(recorder.events, 0), message or "")), f"{table.title}: one message")


def code_beside_lines(text: str) -> str:
    rows = []
    for line in text.split('"""', 2)[-1].strip("\n").splitlines():
        found = LINE.search(line)
        code = line[: found.start()].rstrip() if found else line
        rows.append(f"<tr><td>{escape(found[1].strip()) if found else ''}</td><td>{escape(code) or '&nbsp;'}</td></tr>")
    return f'<div class="scroll"><table class="code"><tbody>{"".join(rows)}</tbody></table></div>'


def build(
    out: Path, protocols: Mapping[str, Protocol] = PROTOCOLS, measure: Callable[[list[str]], list[Claim]] = run_claims
) -> list[Path]:
    """Write the site; the pages."""
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
