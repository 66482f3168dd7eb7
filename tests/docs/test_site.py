"""The documentation: every link leads somewhere, every command can be given, every page of a protocol shows it."""

import re
import shlex
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from build_site import PAGES, BrokenLink, build, rendered  # noqa: E402

from amcast.cli import app  # noqa: E402
from amcast.lab.claims import run_claims  # noqa: E402
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


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {file.name: Page(file) for file in site.glob("*.html")}
    assert len(pages) == len(PAGES) + 1 + len(PROTOCOLS)
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
    assert "latency at worst, convoy of Figure 2" in skeen and re.search(r"<td>l\.\d+", skeen)


def blocks() -> Iterator[tuple[str, str, str]]:
    for file in PAGES:
        for token in MarkdownIt("commonmark").parse((ROOT / file).read_text(encoding="utf-8")):
            if token.type in ("fence", "code_block"):
                yield file, token.info, token.content


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
        body = "\n".join(f"    {line}" for line in text.splitlines())
        compile(f"async def program():\n{body}\n", "document", "exec")
