"""A short swarm in every test run, proof that it does what it says, and the seeds that once found something."""

import pytest

from amcast.core.trace import ListRecorder
from amcast.protocols import PROTOCOLS, protocol
from amcast.swarm.seeds import make_trial, run_seed

# Seeds that showed a bug when they were found: a monitor that mixed two vectors, a forgotten message
# delivered again, a run that ended before a restarted replica had caught up, a crash that came after the calm.
THOROUGH = ("skeen", "white_box")
REGRESSIONS = {
    "white_box": [392, 891, 1895, 20635, 20829, 21007, 21448],
    "skeen": [],
    "baseline": [3],  # a timestamp used twice
    "optimistic": [14, 50, 146, 348, 1700],  # guesses that overtook others; a long run taken for one without end
    "lcr": [228, 511, 953],  # a client that asked crashed servers one by one for too long; a survivor on its own
    "allgather": [546],  # a server on its own
    "causal_stable": [1120, 1340, 1360],  # a sender held up by a dead group
    "allconcur_plus": [15, 111, 147],  # a proposal of an older eon; a newcomer that did not know who was gone
    "allconcur_plus_ea": [1364],  # delivered only 1,437 δ after the calm
    "allconcur_plus_uniform": [7, 15, 22, 37],  # an eon that began to end in the middle of an unreliable round
}
assert set(REGRESSIONS) <= set(PROTOCOLS)
BLOCKS = [
    pytest.param(name, block, marks=pytest.mark.slow if block else ())
    for name in PROTOCOLS
    for block in range(4 if name in THOROUGH else 1)
]


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_swarm_is_clean(name: str, block: int) -> None:
    """`make swarm` runs more of them."""
    each = 40 if name in THOROUGH else 12
    seeds = range(100_000 + each * block, 100_000 + each * block + each)
    outcomes = [run_seed(name, seed) for seed in seeds]
    assert [outcome for outcome in outcomes if outcome.problem] == []
    assert sum(outcome.ok for outcome in outcomes) >= each // 3, [outcome.excuse for outcome in outcomes]


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, seeds in REGRESSIONS.items() for seed in seeds])
def test_regression(name: str, seed: int) -> None:
    outcome = run_seed(name, seed)
    assert not outcome.problem and outcome.evidence, outcome


def test_things_happen_in_a_swarm() -> None:
    """Sometimes: leaders change, processes and clients crash, links lose recoveries, messages meet."""
    seen: dict[str, int] = {}
    for seed in range(60):
        recorder = ListRecorder(full=True)
        trial = make_trial(protocol("white_box"), seed, recorder)
        trial.world.run()
        kinds = [event.kind for event in recorder.events]
        types = [event.type for event in recorder.events]
        for what, happened in {
            "leader change": kinds.count("leader") > len(trial.world.topology.groups),
            "suspicion": "suspect" in kinds,
            "false suspicion": "trust" in kinds,
            "replica crash": any(e.kind == "crash" and e.group for e in recorder.events),
            "client crash": any(e.kind == "crash" and not e.group for e in recorder.events),
            "nack": "Nack" in types,
            "hint": "Hint" in types,
            "new state": "NewState" in types,
            "collection": "Floor" in types,
            "several groups": any(e.dest and len(e.dest) > 1 for e in recorder.events),
            "skewed clocks": len({int(s) for s in trial.world.skew}) > 1,
        }.items():
            seen[what] = seen.get(what, 0) + happened
    assert len(seen) == 11
    assert {what: n for what, n in seen.items() if n < 3} == {}


def test_things_happen_in_a_swarm_of_broadcasts() -> None:
    """Sometimes: every transition, skips, wrong suspicions withdrawn, joins, removed servers that are told so."""
    seen: dict[str, int] = {}
    for name, seeds in (("allconcur_plus", range(80)), ("allconcur_plus_ea", range(30))):
        for seed in seeds:
            recorder = ListRecorder(full=True)
            make_trial(protocol(name), seed, recorder).world.run()
            details = " ".join(e.detail or "" for e in recorder.events if e.kind == "round")
            types = {e.type for e in recorder.events}
            kinds = {e.kind for e in recorder.events}
            for what in ("T_UU", "T_R▷", "T_UR", "T_▷R", "T_RR", "T_Sk"):
                seen[what] = seen.get(what, 0) + (f'"{what}"' in details)
            for what in ("Fail", "Eon", "Welcome", "Ask", "Past", "Removed", "Vote"):
                seen[what] = seen.get(what, 0) + (what in types)
            for what in ("trust", "crash", "reconfigure"):
                seen[what] = seen.get(what, 0) + (what in kinds)
    assert len(seen) == 16
    assert {what: n for what, n in seen.items() if n < 2} == {}


def test_a_seed_says_what_it_ran() -> None:
    outcome = run_seed("white_box", 7)
    assert outcome.ok and outcome.evidence and outcome.events > 100 and "groups of" in outcome.config
    assert outcome == run_seed("white_box", 7)
