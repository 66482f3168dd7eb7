"""What the site takes from the code, for MkDocs (`make docs`): pages of protocols, interface and errors.

Documents that stand outside of docs/ become pages, and files that pages link to are attached. A page per protocol has
its description, what its paper claims, one message as a picture, and its code beside the pseudocode.
"""

import ast
import posixpath
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import amcast
from amcast import errors
from amcast.claims.table import CLAIMS, Claim, run_claims
from amcast.core.protocol import Protocol
from amcast.core.trace import ListRecorder
from amcast.protocols import PROTOCOLS
from amcast.sim.simulation import Simulation
from amcast.web.runs import RunRows, about_message, picture_of
from amcast.web.svg import draw_svg

ROOT = Path(__file__).parent.parent
OUTSIDE = {  # file -> its page
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "deploy/README.md": "deploying.md",
}
PAGES = [*OUTSIDE, *(file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "docs").rglob("*.md")))]
PSEUDOCODE = ROOT / "docs" / "pseudocode"
PROTOCOL_SOURCES = ROOT / "src" / "amcast" / "protocols"
NAMED = re.compile(r'(#\s*|""")(l\.\d+(?:-\d+)?(?:, l\.\d+(?:-\d+)?)*)[,:]?\s*(.*)$')  # lines of the paper, in code
LABELLED = re.compile(r"(l\.\d+)  (.+)")  # a line of them, in docs/pseudocode
LINK = re.compile(r"(?<=\]\()(?!https?://|#|mailto:)([^)#\s]+)")
HEADS = re.compile(r"(?m)^(Paper|Latency[^,:]*|How it works|Departures[^,:]*)(?=[,:.])")
INTERFACE = {  # what `import amcast` offers, by what one wants to do
    "Be part of a cluster": ("connect", "connect_sync", "Client", "SyncClient", "run_node", "StateMachine", "Delivery"),
    "Study protocols": ("simulate", "check", "explore"),
}


class BrokenLink(PluginError):
    """A page links to something that does not exist."""


class WrongPseudocode(PluginError):
    """The code names other lines of a paper than docs/pseudocode has."""


# What MkDocs calls


def on_config(config: MkDocsConfig) -> None:
    """List the pages of protocols and of decisions."""
    made = {
        "protocols": ["protocols/index.md", *({t.title: f"protocols/{name}.md"} for name, t in PROTOCOLS.items())],
        "decisions": [f"decisions/{file.name}" for file in sorted((ROOT / "docs" / "decisions").glob("*.md"))],
    }
    config.nav = [filled(entry, made) for entry in config.nav or []]


def filled(entry: Any, made: dict[str, list[Any]]) -> Any:
    if isinstance(entry, dict):
        return {title: filled(below, made) for title, below in entry.items()}
    if isinstance(entry, list):
        return [filled(below, made) for below in entry]
    return made.get(entry, entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the files that pages link to."""
    texts = {page: (ROOT / file).read_text("utf-8") for file, page in OUTSIDE.items()}
    texts |= {"api.md": interface_page(), "errors.md": errors_page(), "protocols/index.md": protocols_page()}
    measured: Sequence[str] = config.extra.get("claims", CLAIMS)  # all claims take a minute
    for name, table in PROTOCOLS.items():
        texts[f"protocols/{name}.md"] = protocol_page(table, run_claims([name]) if name in measured else [])
    for uri, text in texts.items():
        files.append(File.generated(config, uri, content=text))
    attached = {target for file in PAGES for target in LINK.findall((ROOT / file).read_text("utf-8"))}
    for name in sorted({found(file, target) for file in PAGES for target in attached if exists(file, target)}):
        if name not in PAGES and not name.startswith("docs/"):
            files.append(File.generated(config, attachment(name), content=(ROOT / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    uri = page.file.src_uri
    file = next((file for file, outside in OUTSIDE.items() if outside == uri), f"docs/{uri}")
    return relinked(markdown, file, uri)


# Links


def relinked(text: str, file: str, uri: str) -> str:
    """Return the text of a file with links that hold on its page `uri`."""
    if file not in PAGES:  # made of the code
        return text

    def relink(target: re.Match[str]) -> str:
        if not exists(file, target[1]):
            raise BrokenLink(f"{file}: links to {target[1]}, which there is not")
        name = found(file, target[1])
        if name in OUTSIDE:
            to = OUTSIDE[name]
        elif name.startswith("docs/"):
            to = name.removeprefix("docs/")
        else:
            to = attachment(name)
        return posixpath.relpath(to, posixpath.dirname(uri) or ".")

    return LINK.sub(relink, text)


def found(file: str, target: str) -> str:
    """Return what a link of a file leads to, as a path in the repository."""
    path = (ROOT / file).parent.joinpath(target).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""


def exists(file: str, target: str) -> bool:
    name = found(file, target)
    made = ("docs/api.md", "docs/errors.md", "docs/protocols/")
    return bool(name) and ((ROOT / name).is_file() or name.startswith(made))


def attachment(name: str) -> str:
    return f"files/{Path(name).name}.txt"


# Protocols


def protocols_page() -> str:
    rows = [
        f"| [{table.title}]({name}.md) | {table.order} | {table.tolerates} | {table.latency} |"
        for name, table in PROTOCOLS.items()
    ]
    heads = "| protocol | order | tolerates | delays, leader / follower |\n|---|---|---|---|"
    return "\n".join(["# Protocols\n", heads, *rows])


def protocol_page(table: Protocol, claims: Sequence[Claim]) -> str:
    parts = [
        f"---\nhide: [toc]\n---\n# {table.title}",  # code beside pseudocode takes the whole width
        f"`{table.name}`: order {table.order}; tolerates {table.tolerates}; "
        f"latency in message delays: {table.latency}.",
        prose(docstring_of(source_of(table.replica.__module__))),
    ]
    if claims:
        rows = [f"| {claim.claim} | {claim.section} | {claim.expected} | {claim.measured} |" for claim in claims]
        heads = "| claim | section of the paper | stated | measured |\n|---|---|---|---|"
        parts += ["## Stated and measured", "\n".join([heads, *rows])]
    parts += ["## One message", "Every delay is 1 ms.", f'<div class="picture">{life_of_a_message(table)}</div>']
    return "\n\n".join([*parts, *(code_of(file) for file in sources(table))])


def prose(docstring: str) -> str:
    """Return a docstring as Markdown: what it says of latency, paper and departures begins a paragraph."""
    text = HEADS.sub(r"\n**\1**", escape(docstring, quote=False))
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("- ") and lines and not lines[-1].startswith(("- ", "  ")):
            lines.append("")  # else no list begins here
        lines.append(line)
    return "\n".join(lines)


def life_of_a_message(table: Protocol) -> str:
    """Draw what one multicast makes happen."""
    recorder = ListRecorder(full=True)
    groups = 1 if table.single_group else 2
    replicas = 1 if table.single_replica else 3
    run = Simulation(table.name, groups=groups, replicas=replicas, clients=1, messages=1, dest_groups=groups)
    run.world(recorder).run()
    message = next(event.message for event in recorder.events if event.kind == "multicast")
    picture = picture_of(about_message(RunRows(recorder.events, 0), message or ""))
    return draw_svg(picture, f"{table.title}: one message").replace("\n", "")


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
    code = "\n".join(code for _, code in lines)
    if not used:
        return f"## Pseudocode\n\n```text\n{pseudocode.rstrip()}\n```\n\n## {module}.py\n\n```python\n{code}\n```"
    rows = []
    coloured = highlight(code, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).split("\n")
    for (labels, _), shown in zip(lines, coloured, strict=False):
        for label in labels[:-1]:
            rows.append(f"<tr><td>{label}</td><td>{escape(meanings[label])}</td><td></td></tr>")
        last = labels[-1] if labels else ""
        rows.append(f"<tr><td>{last}</td><td>{escape(meanings.get(last, ''))}</td><td>{shown or '&nbsp;'}</td></tr>")
    heads = "<th>line</th><th>what the paper does there</th><th>code</th>"
    table = f'<table class="beside highlight"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f"## {module}.py\n\n{table}"


# Interface and errors


def interface_page() -> str:
    parts = ["# Interface\n\nWhat `import amcast` offers. Errors have [a page of their own](errors.md)."]
    for title, names in INTERFACE.items():
        parts.append(f"## {title}")
        parts += [described(name) for name in names]
    return "\n\n".join(parts)


def described(name: str) -> str:
    """Return what a public function, or a class with its methods, says of itself."""
    module = source_of(amcast._HOMES[name])
    node = next(node for node in ast.parse(module.read_text("utf-8")).body if getattr(node, "name", "") == name)
    return "\n\n".join(entry(node, 3))


def entry(node: ast.stmt, depth: int) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        parameters = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
        shown = [f"```python\n{kind} {node.name}({parameters}){returns}\n```"]
        return [f"{'#' * depth} {node.name}", *shown, ast.get_docstring(node) or ""]
    assert isinstance(node, ast.ClassDef)
    parts = [f"{'#' * depth} {node.name}", ast.get_docstring(node) or ""]
    fields = [
        f"- `{ast.unparse(field)}`"
        for field in node.body
        if isinstance(field, ast.AnnAssign) and not ast.unparse(field.target).startswith("_")
    ]
    if fields:
        parts.append("\n".join(fields))
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
            parts += entry(method, depth + 1)
    return parts


def errors_page() -> str:
    """Return the catalogue of errors: what each says, and what to do."""
    tree = ast.parse(source_of("amcast.errors").read_text("utf-8"))
    drawn = (ast.get_docstring(tree) or "").partition("\n\n")[2].partition("\n\n")[0]
    parts = [
        "# Errors\n\nEvery exception that amcast raises on purpose. A command that ends with one prints one line, and "
        f"has the exit code that stands here.\n\n```text\n{drawn}\n```",
    ]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            said = (ast.get_docstring(node) or "").replace("What to do:", "**What to do:**")
            code = getattr(getattr(errors, node.name), "exit_code", 130)
            parts.append(f"## {node.name}\n\n{said}\n\nBase: `{ast.unparse(node.bases[0])}`; exit code {code}.")
    return "\n\n".join(parts)
