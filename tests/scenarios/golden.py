"""Transcripts of scenarios, kept as files `<protocol>_<scenario>.txt`: `pytest --rewrite` writes them anew."""

from pathlib import Path


def golden_file(protocol: str, scenario: str) -> Path:
    """Return where the transcript is; a scenario of one protocol only may begin with its name already."""
    return Path(__file__).with_name(f"{protocol}_{scenario.removeprefix(f'{protocol}_')}.txt")


def compare(protocol: str, scenario: str, text: str, rewrite: bool) -> None:
    golden = golden_file(protocol, scenario)
    if rewrite:
        golden.write_text(text)
    assert golden.exists(), f"no {golden.name}: run pytest --rewrite and read what it wrote"
    assert text == golden.read_text()
