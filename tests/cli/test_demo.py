"""`amcast demo`: typed as the README has it, and what it says when the replicas did not deliver what they should."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import Amcast, Program
from rich.console import Console

from amcast.apps.teller import Takings
from amcast.checks import Verdict
from amcast.checks.evidence import Evidence
from amcast.cli.demo import Story, check_books, clear, outcome
from amcast.core.trace import Event
from amcast.errors import UsageError
from amcast.local.trial import Trial
from amcast.runtime.config import load_config

ROOT = Path(__file__).parents[2]
OK = Verdict("order", "run", "ok", evidence=Evidence(deliveries=1))


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found, f"{pattern} in {text}"
    return int(found[1].replace(",", ""))


def tiles(page: str) -> dict[str, str]:
    """The numbers at the top of a report, without their markup."""
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    return {name: " ".join(re.sub("<[^>]*>", " ", value).split()) for name, value in found}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_as_the_readme_has_it(amcast: Amcast, program: Program, tmp_path: Path) -> None:
    """In a fresh folder, with relative paths; the numbers on the page are those that the transfers imply."""
    assert "make demo" in (ROOT / "README.md").read_text()
    assert "\ndemo: compile\n\t@$(BIN)/amcast demo\n" in (ROOT / "Makefile").read_text()
    process = program("demo")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, ""), out
    transfers = number(r"([\d,]+) transfers between partitions", out)
    assert f"as {transfers:,} transfers, 60 openings and 1 total imply" in out
    assert "9 of 9 replicas, " in out and "60,000 of 60,000: nothing lost" in out
    deliveries = number(r"9 of 9 replicas, ([\d,]+) deliveries: as ", out)
    assert deliveries >= 3 * transfers + 3 * 60 + 9 > 1000
    assert [line[:2] for line in out.splitlines() if re.match(r"\d\. ", line)] == ["1.", "2.", "3.", "4.", "5.", "6."]
    for part in ("p99", "leader of g0, killed", "all nine serve again", "g1 restarted", "verified on Spark"):
        assert part in out
    page = tiles((tmp_path / "demo" / "trace-report.html").read_text())
    assert page["messages"] == f"{transfers + 60 + 1:,} all delivered"
    assert page["deliveries"].split()[0] == f"{deliveries:,}" and "9 of 9 replicas" in page["deliveries"]
    assert page["verified"] == "ok 5 of 5 verdicts ok"
    assert amcast("verify", tmp_path / "demo" / "trace").code == 0
    assert sorted(path.name for path in (tmp_path / "demo" / "cluster" / "trace").iterdir())[1:] == [
        f"g{g}-{rank}.jsonl" for g in range(3) for rank in range(3)
    ]
    assert not (tmp_path / "demo" / "cluster" / "demo").exists()


def test_only_what_an_earlier_demo_left_is_replaced(tmp_path: Path) -> None:
    for name in ("cluster/cluster.toml", "trace/kind=end", "trace-report.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "letters").touch()
    with pytest.raises(UsageError, match="holds other things than an earlier demo"):
        clear(tmp_path)
    (tmp_path / "letters").unlink()
    clear(tmp_path)
    assert not tmp_path.exists()


# A run of two transfers, by hand


def run(events: list[Event], takings: Takings, quorum_lost: bool = False) -> tuple[str, list[str]]:
    """What check_books prints and returns."""
    said = io.StringIO()
    facts: dict[str, Any] = {"killed": [], "not_level": "", "folder": Path(), "quorum_lost": quorum_lost}
    trial = cast(Trial, SimpleNamespace(**facts, config=load_config("c/cluster.toml")))
    problems = check_books(Console(file=said, width=200), trial, takings, events)
    return said.getvalue(), problems


@pytest.fixture
def done(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Event], Takings]:
    monkeypatch.chdir(tmp_path)
    amcast("cluster", "init", "c", "--groups", 2, "--insecure-dev")
    name = load_config("c/cluster.toml").name
    where = {"c1:0": (0,), "c1:1": (0, 1)}
    events = [
        Event(name, "multicast", "c1", None, seq, seq, message, "c1", tuple(f"g{g}" for g in dest))
        for seq, (message, dest) in enumerate(where.items())
    ]
    for g in range(2):
        for rank in range(3):
            who = f"g{g}/{rank}"
            events.append(Event(name, "start", who, f"g{g}", 0, 0, detail='{"members": 3}'))
            for seq, (message, dest) in enumerate(where.items(), start=1):
                if g in dest:
                    events.append(Event(name, "deliver", who, f"g{g}", seq, seq, message))
    events.append(Event(name, "end", "cluster", None, 1, 9))
    return events, Takings(where, done=2, expected=10, total=10)


def test_all_is_well(done: tuple[list[Event], Takings]) -> None:
    said, problems = run(*done)
    assert problems == []
    assert said.strip() == "6 of 6 replicas, 9 deliveries: as 2 transfers, 60 openings and 1 total imply"


WRONG: dict[str, Callable[[list[Event], Takings], object]] = {
    "1 transfers have an unknown outcome": lambda events, takings: setattr(takings, "unknown", 1),
    "the bank holds 11, expected 10": lambda events, takings: setattr(takings, "total", 11),
    "a multicast ended with KeyError": lambda events, takings: takings.unexpected.append("KeyError"),
    "imply 9 of 6": lambda events, takings: events.remove(next(e for e in events if e.kind == "deliver")),
    "0 deliveries of 0 of 6 replicas": lambda events, takings: events.__setitem__(
        slice(None), [event for event in events if event.kind != "deliver"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem", WRONG)
def test_deliveries_that_do_not_match_the_transfers(done: tuple[list[Event], Takings], problem: str) -> None:
    WRONG[problem](*done)
    said, problems = run(*done)
    assert "WRONG" in said and any(problem in line for line in problems), problems


def test_what_was_under_way_when_all_were_killed_may_be_unknown(done: tuple[list[Event], Takings]) -> None:
    events, takings = done
    takings.unknown, takings.undecided = 1, {"c1:9"}
    assert run(events, takings)[1] == ["1 transfers have an unknown outcome"]
    assert run(events, takings, quorum_lost=True)[1] == []
    takings.failed = 2
    assert "2 multicasts were refused" in run(events, takings)[1]
    assert run(events, takings, quorum_lost=True)[1] == []


def test_the_story_waits_for_enter_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    trial = cast(Trial, SimpleNamespace())
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    story = Story(trial, said.append, step=True)
    story.chapter("one")
    story.chapter("two")
    assert said == ["Enter: one", "Enter: two"] and not sys.stdin.read()


def test_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome([], [OK]) == 0
    assert outcome(["g0/1 delivered nothing"], [OK]) == 1
    assert capsys.readouterr().err == "amcast: g0/1 delivered nothing\n"
    assert outcome([], [OK, Verdict("agreement", "run", "unknown", "no end row")]) == 3
    assert outcome([], [OK, Verdict("order", "run", "violated", "a cycle")]) == 1
    assert outcome([], []) == 3
    outcome([str(number) for number in range(8)], [OK])
    assert capsys.readouterr().err.splitlines()[-1] == "amcast: and 3 more"
