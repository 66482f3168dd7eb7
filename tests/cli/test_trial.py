"""The judge of real processes, without processes: what it is shown by hand is what a broken cluster would leave."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from amcast.apps.teller import Outcomes
from amcast.core.trace import Event
from amcast.errors import AmcastError, TraceError
from amcast.local import trial as module
from amcast.local.level import Statuses
from amcast.local.trial import Trial, problems_of
from amcast.protocols import PROTOCOLS
from amcast.runtime.config import file_name
from amcast.runtime.tracing import TraceWriter
from amcast.study import promises

WHERE = {"c1:0": (0,), "c1:1": (0, 1), "c1:2": (1,)}


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Of two groups; nothing runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "SECONDS_TO_CATCH_UP", 0.3)
    monkeypatch.setattr(module, "LOOK_EVERY", 0.0)
    return Trial(Path("cluster"), groups=2, secure=False)


def test_nodes_are_told_where_to_write_whatever_folder_they_run_in(trial: Trial, tmp_path: Path) -> None:
    """The trial was given a relative path, and nodes run in the folder of the cluster."""
    (tmp_path / "shows.py").write_text("import sys; open(sys.argv[2].replace('/', '-'), 'w').write(' '.join(sys.argv))")
    trial.processes.command = (sys.executable, str(tmp_path / "shows.py"))
    member = trial.config.members[0]
    with trial.processes.alone():
        trial.processes.start(member)
    assert trial.processes.children[member.name].wait(30) == 0
    typed = (trial.folder / "g0-0").read_text().split()
    assert typed[-2:] == ["--trace", str(tmp_path / "cluster" / "trace")]


# Level


def statuses(trial: Trial, position: int = 3) -> Statuses:
    facts = {"position": position, "unfinished": False, "clients": 0, "role": "follower"}
    return {member.name: {"id": member.name, **facts} for member in trial.config.members}


def test_level_is_what_two_looks_agree_on(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_CATCH_UP", 30.0)
    looks = [statuses(trial, 1), statuses(trial, 2), statuses(trial, 2)]
    trial.statuses = lambda: looks.pop(0)  # type: ignore[method-assign]
    assert trial.wait_until_level(alone=True) and not looks


NOT_LEVEL: dict[str, Callable[[Trial, Statuses], object]] = {
    "g0/0 does not answer": lambda trial, said: said.clear(),
    "g1/2 does not answer": lambda trial, said: said.pop("g1/2"),
    "g0/1 has work under way": lambda trial, said: said["g0/1"].update(unfinished=True),
    "g0/2 has work under way": lambda trial, said: said["g0/2"].update(position=None),
    "g1/0 is at position 3, g1/1 at 4": lambda trial, said: said["g1/1"].update(position=4),
    "g1/1 should not be up": lambda trial, said: trial.killed.append(trial.config.member("g1/1")),
    "no member is up": lambda trial, said: (said.clear(), trial.killed.extend(trial.config.members)),
    "clients are connected to g0/0": lambda trial, said: said["g0/0"].update(clients=2),
}


@pytest.mark.parametrize("reason", NOT_LEVEL)
def test_what_is_not_level(trial: Trial, reason: str) -> None:
    said = statuses(trial)
    NOT_LEVEL[reason](trial, said)
    trial.statuses = lambda: said  # type: ignore[method-assign]
    assert not trial.wait_until_level(alone=True)
    assert reason in trial.not_level


def test_replicas_that_never_stop_delivering_are_not_level(trial: Trial) -> None:
    count = iter(range(10**9))
    trial.statuses = lambda: statuses(trial, next(count))  # type: ignore[method-assign]
    assert not trial.wait_until_level()
    assert trial.not_level == "they still deliver"


# The judge


def write(trial: Trial, *without: str) -> Outcomes:
    """What a run leaves in which everybody delivered everything; but of these members there is no file."""
    client = TraceWriter(trial.traces / "client.jsonl", trial.config.name, "c1", None)
    for name, dest in WHERE.items():
        client.row("multicast", message=name, sender="c1", dest=[f"g{g}" for g in dest])
    client.close()
    for member in trial.config.members:
        if member.name not in without:
            path = trial.traces / f"{file_name(member.name)}.jsonl"
            writer = TraceWriter(path, trial.config.name, member.name, f"g{member.group}")
            writer.begin(3)
            for name, dest in WHERE.items():
                if member.group in dest:
                    writer.row("deliver", message=name)
            writer.close()
    return Outcomes(dict(WHERE))


def test_a_good_run_is_judged_with_evidence(trial: Trial, tmp_path: Path) -> None:
    trial.statuses = lambda: statuses(trial, 2)  # type: ignore[method-assign]
    trial.injected["kill"] += 2
    evidence = trial.judge(tmp_path / "out", write(trial))
    assert str(evidence) == "12 deliveries of 6 of 6 replicas, 12 pairs compared, 2 faults"


def test_rows_that_were_delivered_and_not_traced(trial: Trial, tmp_path: Path) -> None:
    trial.statuses = lambda: statuses(trial, 3)  # type: ignore[method-assign]
    with pytest.raises(AmcastError, match="not all caught up: g0/0 delivered 3 messages, its file has 2"):
        trial.judge(tmp_path / "out", write(trial))


def test_nodes_that_wrote_no_trace(trial: Trial, tmp_path: Path) -> None:
    trial.statuses = lambda: statuses(trial, 2)  # type: ignore[method-assign]
    with pytest.raises(TraceError, match="no start row of g0/1, g1/2; expected files of all 6"):
        trial.judge(tmp_path / "out", write(trial, "g0/1", "g1/2"))


def test_a_killed_node_that_wrote_no_trace(trial: Trial, tmp_path: Path) -> None:
    """The row of its crash, which the trial writes, is not one of its own."""
    said = statuses(trial, 2)
    del said["g1/2"]
    trial.statuses = lambda: said  # type: ignore[method-assign]
    trial.killed.append(trial.config.member("g1/2"))
    with pytest.raises(TraceError, match="no start row of g1/2;"):
        trial.judge(tmp_path / "out", write(trial, "g1/2"))


def events(trial: Trial) -> list[Event]:
    run = trial.config.name
    found = [
        Event(run, "multicast", "c1", None, seq, seq, name, "c1", tuple(f"g{g}" for g in dest))
        for seq, (name, dest) in enumerate(WHERE.items())
    ]
    for member in trial.config.members:
        group = f"g{member.group}"
        found.append(Event(run, "start", member.name, group, 0, 0, detail='{"members": 3}'))
        for seq, (name, dest) in enumerate(WHERE.items(), start=1):
            if member.group in dest:
                found.append(Event(run, "deliver", member.name, group, seq, seq, name))
    return [*found, Event(run, "end", "cluster", None, 1, 9)]


def without(events: list[Event], **columns: object) -> None:
    """Take out the rows with these values."""
    events[:] = [e for e in events if any(getattr(e, name) != value for name, value in columns.items())]


WRONG: dict[str, Callable[[list[Event], Outcomes], object]] = {
    "c1:1 to ('g0', 'g1') was acknowledged, but it was delivered by ['g0/0', 'g0/1', 'g0/2', 'g1/0', 'g1/1']":
        lambda events, load: without(events, kind="deliver", process="g1/2", message="c1:1"),
    "c1:2 to ('g1',) was acknowledged, but it was delivered by []":
        lambda events, load: without(events, kind="deliver", message="c1:2"),
    "c1:2 to ('g1',) was acknowledged, but the trace has it to None":
        lambda events, load: without(events, message="c1:2"),
    "c1:0 to ('g1',) was acknowledged, but the trace has it to ('g0',)":
        lambda events, load: load.acknowledged.update({"c1:0": (1,)}),
    "c1:0 was delivered, but its client was told that it was not":
        lambda events, load: load.acknowledged.pop("c1:0"),
    "g0/1 delivered nothing": lambda events, load: without(events, kind="deliver", process="g0/1"),
    "g0/1 has no rows": lambda events, load: without(events, process="g0/1"),
    "agreement is unknown": lambda events, load: without(events, kind="end"),
    "agreement is violated": lambda events, load: without(events, kind="deliver", process="g1/0", message="c1:2"),
    "order is unknown: nothing was delivered": lambda events, load: without(events, kind="deliver"),
    "nothing was acknowledged": lambda events, load: load.acknowledged.clear(),
    "3 multicasts were refused": lambda events, load: setattr(load, "failed", 3),
    "a multicast ended with ValueError('x')": lambda events, load: load.unexpected.append("ValueError('x')"),
}  # fmt: skip


@pytest.mark.parametrize("problem", WRONG)
def test_what_is_wrong_is_said(trial: Trial, problem: str) -> None:
    found, load = events(trial), Outcomes(dict(WHERE))
    assert problems_of(trial.config, found, [], [load])[0] == []
    WRONG[problem](found, load)
    problems, _ = problems_of(trial.config, found, [], [load])
    assert [said for said in problems if said.startswith(problem)], problems


def test_who_was_killed_for_good_may_lack_deliveries_but_not_make_them_up(trial: Trial) -> None:
    found, load = events(trial), Outcomes(dict(WHERE))
    gone = trial.config.member("g1/2")
    without(found, kind="deliver", process="g1/2", message="c1:2")
    found.append(Event(trial.config.name, "crash", "g1/2", "g1", 99, 9))
    problems, evidence = problems_of(trial.config, found, [gone], [load])
    assert problems == [] and (evidence.deliveries, evidence.pairs) == (11, 10)
    found.append(Event(trial.config.name, "deliver", "g1/2", "g1", 98, 9, "c1:0"))
    problems, _ = problems_of(trial.config, found, [gone], [load])
    assert any("c1:0 to ('g0',) was acknowledged, but it was delivered by" in said for said in problems)


def test_what_has_no_outcome_may_be_delivered(trial: Trial) -> None:
    load = Outcomes({name: dest for name, dest in WHERE.items() if name != "c1:2"}, {"c1:2"}, 1)
    assert problems_of(trial.config, events(trial), [], [load])[0] == []


def test_what_a_protocol_promises_its_clients() -> None:
    """Members of OAM keep fifo order between themselves; clients are no members."""
    atomic = ["integrity", "validity", "order", "agreement", "termination"]
    assert promises(PROTOCOLS["white_box"]) == promises(PROTOCOLS["optimistic"]) == atomic
    assert promises(PROTOCOLS["causal"])[2] == "causal"
    assert promises(PROTOCOLS["allconcur_plus"])[2:4] == ["order", "agreement-nonuniform"]
    for table in PROTOCOLS.values():
        assert len(promises(table)) == 5


def test_a_trial_names_no_more_problems_than_fit_in_a_line(trial: Trial, tmp_path: Path) -> None:
    trial.statuses = lambda: statuses(trial, 2)  # type: ignore[method-assign]
    load = write(trial)
    load = replace(load, unexpected=[f"error {number}" for number in range(8)])
    with pytest.raises(AmcastError, match=r"error 4 \(and 3 more\)$"):
        trial.judge(tmp_path / "out", load)
