"""Transcripts of scenarios, kept as files: `pytest --rewrite` writes them anew."""

from pathlib import Path


def compare(name: str, text: str, rewrite: bool) -> None:
    golden = Path(__file__).with_name(f"{name}.txt")
    if rewrite:
        golden.write_text(text)
    assert golden.exists(), f"no {golden.name}: run pytest --rewrite and read what it wrote"
    assert text == golden.read_text()
