"""The documentation: every link leads somewhere, every command can be given, every page of a protocol shows it."""

import re
import shlex
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from build_site import (  # noqa: E402
    PAGES,
    PROTOCOL_SOURCES,
    PSEUDOCODE,
    BrokenLink,
    WrongPseudocode,
    beside,
    build,
    rendered,
    sources,
)

from amcast.claims.table import run_claims  # noqa: E402
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
        if tag in ("script", "link", "img", "iframe") or found.get("src"):
            self.loads.append(tag)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    build(out, measure=lambda names: run_claims(["skeen"]) if names == ["skeen"] else [])
    return out


def test_every_protocol_says_what_it_is(site: Path) -> None:
    for name in PROTOCOLS:
        said = re.search("<pre>(.*?)</pre>", (site / f"protocol-{name}.html").read_text("utf-8"), re.DOTALL)
        assert said and len(said[1]) > 60, name


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {file.name: Page(file) for file in site.glob("*.html")}
    assert len(pages) == len(PAGES) + 1 + len(PROTOCOLS) > 20
    assert all(page.links for page in pages.values()), "every page leads to another one"
    for name, page in pages.items():
        assert page.loads == [], f"{name} loads something"
        for link in page.links:
            if not link.startswith("https://"):
                target, _, place = link.partition("#")
                assert (site / (target or name)).is_file(), f"{name}: {link}"
                assert not place or place in pages[target or name].anchors, f"{name}: {link}"


def test_a_broken_link_is_an_error() -> None:
    for wrong in ("[x](nothing.md)", "[x](../../etc/passwd)"):
        with pytest.raises(BrokenLink):
            rendered("docs/kv.md", wrong, set())


def test_a_protocol_has_its_picture_its_claims_and_its_lines(site: Path) -> None:
    for name in PROTOCOLS:
        page = (site / f"protocol-{name}.html").read_text(encoding="utf-8")
        assert "delivers c0:0" in page and page.count("<svg") == 1
    skeen = (site / "protocol-skeen.html").read_text(encoding="utf-8")
    assert "latency at worst, convoy of Figure 2" in skeen
    assert re.search(r"<td>l\.9</td><td> *raise clock by one</td><td> *self\.clock \+= 1</td>", skeen)
    assert "<h2>white_box/client.py</h2>" in (site / "protocol-white_box.html").read_text(encoding="utf-8")
    lcr = (site / "protocol-lcr.html").read_text(encoding="utf-8")
    assert "<h2>Pseudocode</h2><pre>C, the vector clock" in lcr and "<table" not in lcr.partition("lcr.py")[2]


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
    shown = beside("some", "\n".join(lines), code)
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
        whole = text.replace("…", "...")
        if whole.startswith(" "):  # a method
            whole = f"class Shown:\n{whole}"
        body = "\n".join(f"    {line}" for line in whole.splitlines())
        compile(f"async def program():\n{body}\n", "document", "exec")
