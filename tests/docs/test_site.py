"""The documentation: it builds without a warning, needs nothing from elsewhere, and every command can be given."""

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from textwrap import dedent, indent
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from markdown_it import MarkdownIt
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from tests.pace import allow
from tests.tools import tool

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from site_pages import (  # noqa: E402
    INTERFACE,
    PAGES,
    PROTOCOL_SOURCES,
    PSEUDOCODE,
    BrokenLink,
    WrongPseudocode,
    beside,
    prose,
    relinked,
    sources,
)

import amcast  # noqa: E402
from amcast.cli import app  # noqa: E402
from amcast.protocols import PROTOCOLS  # noqa: E402


class Page(HTMLParser):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.text = file.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        if found.get("id"):
            self.anchors.add(found["id"] or "")
        if found.get("src") or (tag == "link" and found.get("href")):
            self.loads.append(found.get("src") or found.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, with the claims of one protocol."""
    out = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out))
    config.extra["claims"] = ["skeen"]
    build(config)
    return out


def text_of(site: Path, page: str) -> str:
    """Return what one reads on a page."""
    return unescape(re.sub(r"<[^>]+>", "", (site / page).read_text(encoding="utf-8")))


def test_a_page_for_each_document_and_each_protocol(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) >= len(PAGES) + len(PROTOCOLS) + 3
    for page in ("index", "changes", "deploying", "api", "errors", "protocols/index", "decisions/0001-outbox"):
        assert (site / f"{page}.html").is_file(), page


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {file.relative_to(site).as_posix(): Page(file) for file in site.rglob("*.html")}
    pages.pop("404.html")  # for servers: its links begin at their root
    for name, page in pages.items():
        folder = (site / name).parent
        for link in page.loads:
            assert (folder / link.partition("?")[0]).is_file(), f"{name} loads {link}"
        for link in page.links:
            if not link.startswith("https://"):
                target, _, place = unquote(link).partition("#")
                file = (folder / target).resolve() if target else site / name
                assert file.is_file(), f"{name}: {link}"
                known = pages.get(file.relative_to(site.resolve()).as_posix() if target else name)
                assert not place or known is None or place in known.anchors, f"{name}: {link}"


def test_the_search_needs_no_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = {") and "atomic multicast" in index


@pytest.mark.slow
def test_the_search_finds_pages_when_the_site_is_opened_as_files(site: Path) -> None:
    address = f"file://{site}/index.html?q=leader"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    shown = subprocess.run(
        [tool("chromium"), *options, "--virtual-time-budget=20000", "--dump-dom", address],
        capture_output=True, text=True, check=True, timeout=allow(120),
    ).stdout  # fmt: skip
    assert "md-search-result__item" in shown


def test_lists_are_lists(site: Path) -> None:
    for file in site.rglob("*.html"):
        assert not re.search(r"(?m)^(<p>)?- \w", re.sub(r"(?s)<pre.*?</pre>", "", file.read_text("utf-8"))), file.name


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    for wrong in ("[x](nothing.md)", "[x](../../etc/passwd)"):
        with pytest.raises(BrokenLink):
            relinked(wrong, "docs/kv.md", "kv.md")
    assert relinked("[x](../README.md#start)", "docs/kv.md", "kv.md") == "[x](index.md#start)"
    assert relinked("[x](docs/kv.md)", "README.md", "index.md") == "[x](kv.md)"
    assert relinked("[x](../setup.py)", "docs/kv.md", "kv.md") == "[x](files/setup.py.txt)"


def test_a_link_to_a_place_that_is_gone_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[x](#two)\n")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    settings = settings.partition("nav:\n  -")[0].replace("  - docs/site_pages.py", "  []")
    (tmp_path / "mkdocs.yml").write_text(settings)
    with pytest.raises(Abort):
        build(load_config(str(tmp_path / "mkdocs.yml"), site_dir=str(tmp_path / "out")))


def test_a_protocol_has_its_description_its_picture_its_claims_and_its_lines(site: Path) -> None:
    for name, table in PROTOCOLS.items():
        page = (site / "protocols" / f"{name}.html").read_text(encoding="utf-8")
        assert "delivers c0:0" in page and page.count('viewBox="0 0 960') == 1
        path = ROOT / "src" / f"{table.replica.__module__.replace('.', '/')}.py"
        said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert said and len(said) > 60 and said.split("\n")[0].rstrip(".") in unescape(page), name
    skeen = (site / "protocols" / "skeen.html").read_text(encoding="utf-8")
    assert "latency at worst, convoy of Figure 2" in skeen
    assert re.search(r"<td>l\.9</td><td> *raise clock by one</td><td>.*clock.*</td>", skeen)
    assert "white_box/client.py" in text_of(site, "protocols/white_box.html")
    lcr = (site / "protocols" / "lcr.html").read_text(encoding="utf-8")
    assert "C, the vector clock" in unescape(lcr) and 'class="beside' not in lcr


def test_prose_of_a_docstring() -> None:
    said = "One: a < b.\nPaper: X.\nDepartures from it:\n- first\n  of two\n- second\n"
    assert prose(said) == ("One: a &lt; b.\n\n**Paper**: X.\n\n**Departures from it**:\n\n- first\n  of two\n- second")


def test_the_interface_and_the_errors_are_described(site: Path) -> None:
    api, errors = text_of(site, "api.html"), text_of(site, "errors.html")
    public = {name for name in amcast.__all__ if name not in ("__version__", "compiled")}
    described = {name for names in INTERFACE.values() for name in names}
    assert described == {name for name in public if not issubclass(type(getattr(amcast, name)), type)
                         or not issubclass(getattr(amcast, name), BaseException)}  # fmt: skip
    for name in described:
        assert name in api
    tree = ast.parse((ROOT / "src" / "amcast" / "errors.py").read_text("utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(classes) >= 25
    for node in classes:
        advice = re.search(r"What to do: (.+)", ast.get_docstring(node) or "")
        assert advice, f"{node.name} does not say what to do"
        assert advice[1][:30].split("`")[0] in errors, node.name


def test_the_picture_of_the_front_page_is_what_its_commands_draw(tmp_path: Path) -> None:
    told = re.sub(r"\\\n\s*", "", (ROOT / "README.md").read_text("utf-8"))
    drawn = [line.strip() for line in told.splitlines() if line.startswith(("    amcast sim", "    amcast export"))]
    assert len(drawn) == 2
    for command in drawn:
        words = [sys.executable, "-m", "amcast", *shlex.split(command)[1:]]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "crash.svg").read_bytes() == (ROOT / "docs" / "img" / "crash.svg").read_bytes()


def test_the_figures_of_the_front_page_are_those_that_were_measured() -> None:
    table = (ROOT / "README.md").read_text("utf-8").partition("## How fast")[2].partition("## When")[0]
    figures = set(re.findall(r"\d[\d,.]*\d", table.partition("|---")[2])) - {"1,000", "72"}
    assert len(figures) >= 8
    measured = (ROOT / "docs" / "results.md").read_text("utf-8")
    assert not {figure for figure in figures if figure not in measured}


def test_pseudocode_is_of_a_protocol_and_short() -> None:
    files = sorted(PSEUDOCODE.rglob("*.txt"))
    shown = {file.relative_to(PROTOCOL_SOURCES).with_suffix(".txt") for t in PROTOCOLS.values() for file in sources(t)}
    assert {file.relative_to(PSEUDOCODE) for file in files} == shown
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert lines, file.name
        for line in lines:
            assert len(line) <= 110 and line == line.rstrip(), f"{file.name}: {line}"


def test_every_line_of_a_paper_that_the_code_names_has_pseudocode() -> None:
    code = '"""What."""\n\nx = 1  # l.3, a start\n"""l.4-5: more."""\ny = 2  # l.6, l.9\n'
    lines = ["l.3  x is 1", "l.4    more", "l.5    of it", "l.6  y is 2", "l.9  and so on"]
    shown = re.sub(r"</?span[^>]*>", "", beside("some", "\n".join(lines), code))
    assert "<td>l.3</td><td>x is 1</td><td>x = 1  # a start</td>" in shown
    assert "<td>l.6</td><td>y is 2</td><td></td></tr><tr><td>l.9</td><td>and so on</td><td>y = 2</td>" in shown
    for line in lines:
        with pytest.raises(WrongPseudocode, match=rf"^{re.escape(line.split()[0])}: in only one"):
            beside("some", "\n".join(other for other in lines if other != line), code)
    for wrong, error in (
        ("l.7  nowhere", "l.7: in only one"),
        ("l.3  again", "l.3 is there twice"),
        ("l.7", "expected a"),
    ):
        with pytest.raises(WrongPseudocode, match=error):
            beside("some", "\n".join([*lines, wrong]), code)
    with pytest.raises(WrongPseudocode):
        beside("some", "do this\nl.1  then that", "x = 1\n")


def test_a_label_that_is_lost_in_a_protocol_is_an_error() -> None:
    code = (ROOT / "src" / "amcast" / "protocols" / "skeen.py").read_text(encoding="utf-8")
    lines = (PSEUDOCODE / "skeen.txt").read_text(encoding="utf-8")
    beside("skeen", lines, code)
    with pytest.raises(WrongPseudocode, match=r"l\.9: in only one"):
        beside("skeen", lines, code.replace("  # l.9\n", "\n"))


@cache
def blocks() -> tuple[tuple[str, str, str], ...]:
    """Return what is set as code on the pages: the file, its language, its text."""
    return tuple(
        (file, token.info, token.content)
        for file in PAGES
        for token in MarkdownIt("commonmark").parse((ROOT / file).read_text(encoding="utf-8"))
        if token.type in ("fence", "code_block")
    )


def commands() -> list[tuple[str, str]]:
    found = []
    for file, _, text in blocks():
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            command = re.split(r"\s{2,}|\s#", line.removeprefix("$ "))[0]
            if command.startswith("amcast ") and "…" not in command:
                found.append((file, command))
    return found


@pytest.mark.parametrize(("file", "command"), commands())
def test_every_command_can_be_given(file: str, command: str) -> None:
    """Its name, its arguments and its options exist; what it does is tested elsewhere."""
    group: Any = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    if words == ["--version"]:
        return
    context = group.make_context("amcast", list(words))
    while hasattr(group, "resolve_command"):
        name, group, words = group.resolve_command(context, words)
        context = group.make_context(name, list(words), parent=context)


def test_python_in_the_documents_is_python() -> None:
    programs = [text for _, language, text in blocks() if language == "python"]
    assert len(programs) >= 3
    for text in programs:
        whole = dedent(text.replace("…", "..."))
        if whole.startswith("case "):  # a part of a statement
            whole = f"match shown:\n{indent(whole, '    ')}"
        body = indent(whole, "    ")
        compile(f"async def program():\n{body}\n", "document", "exec")
