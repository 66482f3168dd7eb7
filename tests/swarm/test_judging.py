"""How a seed is judged: what it rests on, what excuses it, which refusals have a reason, how much must be delivered."""

import pytest

from amcast.checks.evidence import NOTHING, Evidence
from amcast.checks.refusals import too_few_delivered, wrong_refusal
from amcast.core.trace import Event, ListRecorder
from amcast.protocols import PROTOCOLS, protocol
from amcast.swarm.seeds import Outcome, make_trial, run_seed
from amcast.swarm.trial import lost_with_sender

REFUSED = '{"refused": true}'


def row(kind: str, process: str, seq: int, message: str | None = None, dest: str = "", detail: str = "") -> Event:
    event = Event("run", kind, process, process.split("/")[0] if "/" in process else None, seq, seq)
    event.message = message
    event.dest = tuple(dest.split()) if dest else None
    event.detail = detail or None
    return event


def change(process: str, seq: int, what: str, time: int, group: str = "g0", other: str = "g1") -> Event:
    return row("reconfigure", process, seq, detail=f'{{"{what}": ["{group}", "{other}"], "time": {time}}}')


def test_a_seed_without_evidence_is_never_ok() -> None:
    with pytest.raises(AssertionError, match="seed 1 is ok on nothing"):
        Outcome(1, "", "", 0, 0.0, 0.0)
    excused = Outcome(1, "", "", 0, 0.0, 0.0, excuse="every sender crashed")
    assert not excused.ok and excused.evidence == NOTHING


def test_a_seed_says_what_its_verdict_rests_on() -> None:
    outcome = run_seed("white_box", 7)
    recorder = ListRecorder(full=True)
    trial = make_trial(protocol("white_box"), 7, recorder)
    trial.world.run()
    kinds = [event.kind for event in recorder.events]
    crashes = kinds.count("crash")
    evidence = outcome.evidence
    assert evidence.deliveries == kinds.count("deliver") == trial.world.delivered > 0
    assert evidence.multicasts == kinds.count("multicast") == outcome.delivered
    assert evidence.replicas == evidence.expected == trial.world.topology.replicas
    assert evidence.pairs >= evidence.deliveries
    assert evidence.faults == crashes + trial.acted.total() > crashes


def test_faults_are_counted_when_they_happen() -> None:
    """All kinds, over some seeds; what is done to a process that is down is none."""
    seen = {"partition", "slow link", "pause", "wrong suspicion"}
    for seed in range(40):
        recorder = ListRecorder()
        trial = make_trial(protocol("white_box"), seed, recorder)
        assert not trial.acted
        trial.world.run()
        seen -= {what for what, times in trial.acted.items() if times}
    assert seen == set()


@pytest.mark.parametrize(
    ("name", "seed", "excuse"),
    [
        ("white_box", 8, "every sender or every destination crashed"),
        ("fifo", 79, "every sender or every destination crashed"),
        ("baseline", 113, "every message was refused"),
        ("skeen", 25, "a message was lost with its sender, and others wait for it"),
        ("causal", 102, "a message was lost with its sender, and others wait for it"),
        ("allconcur_ea", 3, "wrong suspicions in wild weather"),
    ],
)
def test_a_seed_that_cannot_be_judged_says_why(name: str, seed: int, excuse: str) -> None:
    outcome = run_seed(name, seed)
    assert not outcome.ok and not outcome.problem and outcome.excuse == excuse


def test_only_what_is_lost_with_its_sender_excuses() -> None:
    started = [row("start", name, 1) for name in ("g0/0", "g1/0", "c0", "c1")]
    sent = [row("multicast", "c0", 2, "c0:0", "g0 g1"), row("crash", "c0", 3)]
    everywhere = [row("deliver", name, 2, "c0:0") for name in ("g0/0", "g1/0")]
    assert lost_with_sender([*started, *sent, *everywhere]) == ""
    assert lost_with_sender([*started, *sent, everywhere[0]])
    assert lost_with_sender([*started, sent[0], everywhere[0]]) == "", "the sender is up: it is no excuse"


def test_a_refusal_needs_a_reason() -> None:
    sent = row("multicast", "g0/1", 2, "g0/1:0", "g1")
    left, refused = change("g0/0", 2, "left", 50), row("reconfigure", "g0/0", 3, "g0/1:0", detail=REFUSED)
    assert wrong_refusal(PROTOCOLS["baseline"], [sent, left, refused]) == ""
    reason = "g0/0 refused g0/1:0 to g1, but g0 had left none of them, or was back"
    late = change("g0/0", 4, "left", 50)
    back = change("g0/1", 1, "joined", 60)  # the sender knew of it
    for rows in (
        [sent, refused],
        [sent, late, refused],
        [sent, change("g0/0", 2, "left", 50, "g2"), refused],
        [sent, change("g0/0", 2, "left", 50, "g0", "g2"), refused],
        [sent, change("g0/1", 1, "left", 50), refused],
        [sent, back, left, refused],
    ):
        assert wrong_refusal(PROTOCOLS["baseline"], rows) == reason
    assert wrong_refusal(PROTOCOLS["baseline"], [sent, change("g0/1", 1, "joined", 40), left, refused]) == ""
    assert wrong_refusal(PROTOCOLS["white_box"], [sent, left, refused]).endswith("white_box never refuses a message")
    delivered = [sent, left, refused, row("deliver", "g1/0", 1, "g0/1:0")]
    assert wrong_refusal(PROTOCOLS["baseline"], delivered) == "g0/0 refused g0/1:0, which g1/0 delivered"
    assert wrong_refusal(PROTOCOLS["baseline"], [left, refused]) == "g0/0 refused g0/1:0, which nobody multicast"


def test_refusals_happen_and_are_counted() -> None:
    outcomes = [run_seed("baseline", seed) for seed in range(12)]
    assert [outcome.problem for outcome in outcomes if outcome.problem] == []
    assert sum(outcome.refused for outcome in outcomes) >= 5
    assert all(outcome.refused + outcome.delivered <= outcome.evidence.multicasts for outcome in outcomes)


def test_every_protocol_has_a_floor() -> None:
    assert min(row.least_delivered for row in PROTOCOLS.values()) >= 60, "the default is for those not measured"
    assert too_few_delivered(PROTOCOLS["white_box"], 50, 100, 94) == ""
    told = "only 93.0 % of the multicasts were delivered, expected at least 94 %"
    assert too_few_delivered(PROTOCOLS["white_box"], 50, 100, 93) == told
    assert too_few_delivered(PROTOCOLS["white_box"], 49, 100, 0) == "", "a few seeds may be bad luck"


def test_evidence_adds_up() -> None:
    assert sum([run_seed("skeen", seed).evidence for seed in (1, 2)], Evidence()).runs == 2
