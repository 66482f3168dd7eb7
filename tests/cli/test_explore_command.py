"""`amcast explore` and `amcast replay`: counts, violations that can be replayed, stepping through them."""

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from calling import Amcast
from tests.mutants import test_skeen

from amcast.protocols import PROTOCOLS


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skeen's protocol without line 15."""
    mutant = next(mutant for mutant in test_skeen.MUTANTS if mutant.name == "clock_not_raised")
    monkeypatch.setitem(PROTOCOLS.own, "skeen", test_skeen.table(mutant))


@pytest.fixture
def replay_file(broken: None, amcast: Amcast, tmp_path: Path) -> Path:
    amcast("explore", "skeen", "--out", tmp_path / "found")
    return tmp_path / "found" / "replay.json"


def test_every_schedule_of_a_scope(amcast: Amcast) -> None:
    done = amcast("explore", "skeen", "--json")
    document = json.loads(done.out)
    assert done.code == 0 and done.err == ""
    assert document["complete"] and document["states"] == 543 and document["violation"] is None
    assert document["sometimes"]["everything is delivered everywhere"] is True
    told = amcast("explore", "skeen")
    assert "skeen, scope small (two messages to the same two groups): every schedule\n543 unique states" in told.out
    assert told.out.endswith("no violation; 112 deliveries of 2 of 2 replicas in 43 histories, 0 faults\n")
    assert document["verdict"] == "ok" and document["evidence"]["deliveries"] == 112
    assert document["evidence"]["states"] == 543 and document["evidence"]["replicas"] == 2


def test_a_line_says_where_invariants_were_not_asserted(amcast: Amcast) -> None:
    every = json.loads(amcast("explore", "skeen", "--json").out)
    assert every["ways"] == every["schedules"] > 1
    for follow in (0, 1, 5):
        done = amcast("explore", "skeen", "--follow", follow)
        document = json.loads(amcast("explore", "skeen", "--follow", follow, "--json").out)
        assert 0 < document["schedules"] < document["ways"] == every["ways"]
        many = f"{document['schedules']} of {document['ways']} schedules"
        end = done.out.splitlines()[-1]
        assert done.code == 0 and end.startswith("no violation; ")
        assert end.endswith(f"; invariants were asserted along {many}"), end
    assert "invariants" not in amcast("explore", "skeen", "--walks", 3, "--follow", 0).out, "walks assert them all"


def test_scopes_are_listed(amcast: Amcast) -> None:
    assert "leader-change" in amcast("explore", "white_box", "--list").out
    done = amcast("explore", "white_box", "--scope", "nonsense")
    assert done.code == 2 and "unknown scope 'nonsense' of white_box: expected one of small," in done.err


def test_limits_and_random_schedules(amcast: Amcast) -> None:
    part = amcast("explore", "skeen", "--scope", "cycle", "--states", 200, "--delayed", 0)
    assert part.code == 3 and "(three messages whose destinations form a cycle): a part of the schedules\n" in part.out
    assert "unknown: never seen in this part of the scope: c0:0 is delivered before c1:0; " in part.out
    assert "425 deliveries of 3 of 3 replicas in 80 histories" in part.out and "schedules ended in calm" in part.out
    assert part.err.startswith("amcast: never seen in this part of the scope: c0:0 is delivered before c1:0; c0:0 is ")
    every = json.loads(amcast("explore", "skeen", "--scope", "all", "--states", 100, "--delayed", 9, "--json").out)
    assert [found["scope"] for found in every] == ["small", "cycle", "overlap", "repeated", "large"]
    assert [found["delayed"] for found in every] == [9] * 5
    walks = json.loads(amcast("explore", "skeen", "--scope", "large", "--walks", 5, "--seed", 3, "--json").out)
    assert walks["schedules"] == 5 and not walks["complete"]


def test_a_search_that_is_cut_goes_on_with_slow_channels_and_has_an_exit_code_of_its_own(amcast: Amcast) -> None:
    part = amcast("explore", "skeen", "--scope", "cycle", "--states", 200, "--delayed", 300)
    assert part.code == 4 and part.err == "", "walks saw what the search did not come to"
    assert re.search(r"\nthe search was cut: 300 walks with slow channels followed, up to \d+ moves long\n", part.out)
    assert "no violation in a part of the schedules; " in part.out and "every schedule" not in part.out


@pytest.mark.parametrize(
    ("reason", "arguments"),
    [
        ("no move was made", ("skeen", "--states", 1, "--delayed", 0)),
        ("nothing was delivered", ("skeen", "--walks", 3, "--depth", 1)),
        ("nothing was delivered", ("white_box", "--scope", "large", "--walks", 1, "--depth", 2)),
        ("never was everything delivered everywhere", ("skeen", "--walks", 20, "--depth", 5)),
    ],
)
def test_a_search_that_saw_too_little_knows_nothing(amcast: Amcast, reason: str, arguments: tuple[object, ...]) -> None:
    done = amcast("explore", *arguments)
    assert done.code == 3, done.out
    assert f"unknown: {reason}; " in done.out
    assert "every schedule" not in done.out and "no violation" not in done.out
    assert "never seen in this part of the scope: " in done.err
    document = json.loads(amcast("explore", *arguments, "--json").out)
    assert (document["verdict"], document["reason"]) == ("unknown", reason) and not document["complete"]
    assert (document["evidence"]["deliveries"] == 0) == (reason == "nothing was delivered")


def test_a_search_that_is_cut_goes_on_in_calm(amcast: Amcast) -> None:
    """What the edge of a search leads to is judged, too: so a short one knows that everything can be delivered."""
    document = json.loads(amcast("explore", "skeen", "--depth", 2, "--delayed", 0, "--json").out)
    assert document["ended"] > 5 and document["verdict"] == "unknown" and not document["complete"]
    assert document["evidence"]["deliveries"] >= 4 * document["ended"]
    assert document["sometimes"]["everything is delivered everywhere"]
    assert not document["sometimes"]["c0:0 is delivered before c1:0"], "seen in no state of the search"


def test_a_scope_that_does_not_show_what_it_is_made_for_is_unknown(
    amcast: Amcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope in which a client may crash, and never does."""
    never = {"crashes": ("c0",), "most_crashes": 0}
    monkeypatch.setattr("amcast.explorer.scopes.with_time", lambda scope: replace(scope, **never))
    done = amcast("explore", "optimistic", "--scope", "conflict")
    assert done.code == 3 and "every schedule" in done.out and "no violation" not in done.out
    assert "unknown: never seen in this scope: a message is delivered although a process crashed; " in done.out
    assert done.err == "amcast: never seen in this scope: a message is delivered although a process crashed\n"
    monkeypatch.undo()
    done = amcast("explore", "optimistic", "--scope", "conflict")
    assert done.code == 0 and done.err == "" and "every schedule" in done.out


def test_a_violation_that_is_replayed_is_judged_again(
    replay_file: Path, amcast: Amcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = amcast("replay", replay_file)
    assert broken.code == 1 and broken.out.splitlines()[-1].startswith("VIOLATED order: no total order is possible")
    schedule = json.loads(replay_file.read_text())
    part = replay_file.with_name("part.json")
    part.write_text(json.dumps({**schedule, "moves": schedule["moves"][:1]}))
    nothing = amcast("replay", part)
    assert nothing.code == 3 and nothing.out.endswith("unknown: nothing is delivered along this schedule\n")
    monkeypatch.undo()  # the protocol is whole again
    mended = amcast("replay", replay_file)
    assert mended.code == 0
    assert mended.out.splitlines()[-1].startswith("nothing is violated along this schedule with the protocol as it is ")


def test_a_violation_is_shrunk_and_written(broken: None, amcast: Amcast, tmp_path: Path) -> None:
    out = tmp_path / "found"
    done = amcast("explore", "skeen", "--out", out)
    assert done.code == 1
    assert "VIOLATED order: no total order is possible" in done.out
    assert "shortest schedule found (8 moves, from 8):\n    1 deliver c0 g0/0\n" in done.out
    assert f"replay: amcast replay {out / 'replay.json'}" in done.out
    judged = amcast("verify", out / "trace", "--properties", "order")
    assert judged.code == 1 and "violated" in judged.out
    refused = amcast("explore", "skeen", "--out", out)
    assert refused.code == 2 and "--force" in refused.err
    assert amcast("explore", "skeen", "--out", out, "--force").code == 1


def test_exploring_goes_on_from_the_end_of_a_schedule(
    replay_file: Path, amcast: Amcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = json.loads(replay_file.read_text())
    part = replay_file.with_name("part.json")
    part.write_text(json.dumps({**schedule, "moves": schedule["moves"][:5]}))
    found = json.loads(amcast("explore", "skeen", "--after", part, "--json").out)
    assert found["states"] < 30 and found["violation"]["moves"] == schedule["moves"]
    walks = json.loads(amcast("explore", "skeen", "--after", part, "--walks", 100, "--json").out)
    assert walks["violation"]["property"] == "order" and walks["depth"] > 5
    monkeypatch.undo()  # the protocol is whole again
    every = json.loads(amcast("explore", "skeen", "--after", part, "--json").out)
    assert every["complete"] and 30 < every["states"] < 543 and every["violation"] is None
    assert ": every schedule after 5 moves\n" in amcast("explore", "skeen", "--after", part).out
    short = json.loads(amcast("explore", "skeen", "--after", part, "--walks", 1, "--depth", 3, "--json").out)
    assert short["moves"] == 0  # all of them are behind it
    other = amcast("explore", "skeen", "--scope", "cycle", "--after", part)
    assert other.code == 2 and "part.json: of skeen, scope small; expected skeen, scope cycle" in other.err
    other = amcast("explore", "fifo", "--after", part)
    assert other.code == 2 and "expected fifo, scope small" in other.err
    part.write_text(json.dumps({**schedule, "moves": ["deliver c0 g0/0", "deliver c0 g0/0"]}))
    impossible = amcast("explore", "skeen", "--after", part)
    assert impossible.code == 2 and "step 2, deliver c0 g0/0: not possible there" in impossible.err


def test_a_schedule_is_shown_with_messages_and_effects(replay_file: Path, amcast: Amcast) -> None:
    done = amcast("replay", replay_file, "--to", 6)
    assert done.code == 0
    assert "written because order did not hold: no total order is possible" in done.out
    assert " 6 deliver g1/0 g0/0: Propose(mid=c0:0, g=1, lts=(2, g1))\n      delivers c0:0 at (2, g1)\n" in done.out
    assert " 7 deliver" not in done.out
    about = amcast("replay", replay_file, "--message", "c1:0").out
    assert " 3 deliver c1 g1/0: Multicast(m=c1:0)" in about and " 2 deliver" not in about


def test_the_state_of_a_process_beside_the_names_of_the_paper(replay_file: Path, amcast: Amcast) -> None:
    lines = amcast("replay", replay_file, "--to", 3, "--state", "g1/0").out.splitlines()
    table = [line.split() for line in lines[lines.index("g1/0 after move 3:") + 1 :]]
    assert ["clock", "1", "0", "clock"] in table
    assert ["entries[c1:0].slot.lts", "(1,", "g1)", "-", "LocalTS[m]"] in table


def test_stepping(replay_file: Path, amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\nb\nm c1:0\ns g0/0\n6\nc\nl\n99\nm nothing\nwhat\nq\n"))
    done = amcast("replay", replay_file, "--step")
    assert done.code == 0
    parts = re.split(r"\d/8> ", done.out)
    expected = (
        "0 start",
        " 1 deliver c0 g0/0",
        "0 start",
        " 3 deliver c1 g1/0",
        "g0/0 after move 3:",
        " 6 deliver g1/0 g0/0",
        "g0/0 entries[c0:0].",
        "> 6 deliver g1/0 g0/0",
        "move 99: there are 8",
        "no later move is about 'nothing'",
        "Enter, n",
        "",
    )
    assert len(parts) == len(expected)
    assert [text for text, part in zip(expected, parts, strict=True) if text not in part] == []
    assert "g0/0 clock: 0 → 1   (clock)" in parts[1]


def test_bad_files(amcast: Amcast, replay_file: Path, tmp_path: Path) -> None:
    def refused(text: str) -> str:
        path = tmp_path / "bad.json"
        path.write_text(text)
        done = amcast("replay", path)
        assert done.code == 2 and done.err.count("\n") == 1 and done.out == ""
        return done.err

    good = json.loads(replay_file.read_text())
    assert "No such file" in amcast("replay", tmp_path / "absent.json").err
    assert "not JSON" in refused("{")
    assert "not a schedule" in refused("[]")
    assert "expected a list of strings" in refused(json.dumps({**good, "moves": [1]}))
    assert "move 'jump g0/0': expected" in refused(json.dumps({**good, "moves": ["jump g0/0"]}))
    impossible = {**good, "moves": ["deliver g0/0 g1/0"]}
    assert "step 1, deliver g0/0 g1/0: not possible there" in refused(json.dumps(impossible))
    assert "no process 'g7/0'" in refused(json.dumps({**good, "moves": ["crash g7/0"]}))
    assert "unknown protocol" in refused(json.dumps({**good, "protocol": "nix"}))
    assert "scope" in refused(json.dumps({**good, "scope": {"name": 1}}))
    assert "destination groups [5]" in refused(
        json.dumps({**good, "scope": {**good["scope"], "multicasts": [["c0", [5]]]}})
    )
    assert "at most 64 processes" in refused(json.dumps({**good, "scope": {**good["scope"], "groups": [10**9, 1]}}))
    assert "at most 64 processes" in refused(
        json.dumps({**good, "scope": {**good["scope"], "multicasts": [["c999999999", [0]]]}})
    )
    assert "expected join or leave" in refused(
        json.dumps({**good, "scope": {**good["scope"], "reconfigurations": [["g0/0", "visit", "g1"]]}})
    )
    assert "no process 'x'" in amcast("replay", replay_file, "--state", "x").err
    assert "--to 99" in amcast("replay", replay_file, "--to", 99).err
