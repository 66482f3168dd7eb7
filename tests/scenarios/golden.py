"""Transcripts of scenarios, kept as files `<protocol>_<scenario>.txt`: `pytest --rewrite` writes them anew."""

from pathlib import Path

from amcast.sim.script import DELTA, Script


def golden_file(protocol: str, scenario: str) -> Path:
    """Return where the transcript is; a scenario of one protocol only may begin with its name already."""
    return Path(__file__).with_name(f"{protocol}_{scenario.removeprefix(f'{protocol}_')}.txt")


def compare(protocol: str, scenario: str, text: str, rewrite: bool) -> None:
    golden = golden_file(protocol, scenario)
    if rewrite:
        golden.write_text(text)
    assert golden.exists(), f"no {golden.name}: run pytest --rewrite and read what it wrote"
    assert text == golden.read_text()


def transcript(script: Script, kinds: tuple[str, ...] = ("multicast", "deliver", "crash", "leader")) -> str:
    """Return the run as text, a line per event."""
    lines = []
    for e in script.recorder.events:
        if e.kind not in kinds:
            continue
        what = e.kind
        if e.message:
            what += f" {e.message}"
        if e.dest:
            what += f" to {' '.join(e.dest)}"
        if e.ts:
            what += f" at ({e.ts[0]}, {e.ts[1]})"
        if e.detail and e.kind != "start":
            what += f" {e.detail}"
        lines.append(f"{(e.time or 0) / DELTA:9.3f}  {e.process:5} {what}")
    return "\n".join(lines) + "\n"
