"""`amcast sim`: what it runs, prints and writes."""

import json
import shlex
from pathlib import Path

import pytest
from calling import Amcast

from amcast.core.trace import Recorder
from amcast.errors import InvariantViolation
from amcast.sim.network import MILLISECOND
from amcast.sim.simulation import Crash, Simulation
from amcast.tracefile import read_events


def test_the_report_has_throughput_latency_and_recovery(amcast: Amcast) -> None:
    done = amcast("sim", "white_box", "--messages", 200, "--crash", "g0/0@20ms")
    assert done.code == 0 and done.err == ""
    assert "White-Box atomic multicast · 3 groups of 3 · 10 clients · constant:1ms · seed 1" in done.out
    assert "200 messages" in done.out and "messages/s" in done.out
    assert "p50" in done.out and "δ" in done.out
    assert "leader g0/0 crashed at 20.0 ms; g0 delivered again after" in done.out


def test_json_is_one_document(amcast: Amcast) -> None:
    done = amcast("sim", "white_box", "--messages", 30, "--clients", 1, "--json")
    document = json.loads(done.out)
    assert done.code == 0 and done.err == ""
    assert document["outcome"] == "quiescent" and document["config"]["messages"] == 30
    assert document["summary"]["first_delivery"]["delta"]["max"] == 3
    assert document["summary"]["last_delivery"]["ms"]["p99"] == 4


def test_a_protocol_of_single_replicas_needs_no_option(amcast: Amcast) -> None:
    document = json.loads(amcast("sim", "skeen", "--messages", 10, "--json").out)
    assert document["config"]["replicas"] == 1 and document["summary"]["multicasts"] == 10


def test_a_set_up_is_what_other_options_do_not_say(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = described(monkeypatch, "not run")
    amcast("sim", "fastcast", "--setup", "white-box-lan")
    amcast("sim", "ft_skeen", "--setup", "white-box-wan", "--network", "wan-spread", "--clients", 9, "--duration", "1s")
    assert seen == [
        Simulation("fastcast", groups=10, clients=1000, messages=20_000, network="lan"),
        Simulation("ft_skeen", groups=10, clients=9, duration=1000 * MILLISECOND, network="wan-spread"),
    ]


def test_a_zero_is_not_taken_for_nothing(amcast: Amcast) -> None:
    done = amcast("sim", "white_box", "--messages", 5, "--seed", 0, "--payload", 0, "--skew", "0ms", "--json")
    config = json.loads(done.out)["config"]
    assert (config["seed"], config["payload"], config["skew_ns"], config["checked"]) == (0, 0, 0, False)


def test_a_run_ends_with_its_duration_and_not_with_a_message_that_is_never_sent(amcast: Amcast) -> None:
    done = amcast("sim", "white_box", "--clients", 3, "--rate", 0.001, "--duration", "5ms", "--json")
    summary = json.loads(done.out)["summary"]
    assert summary["multicasts"] == 0
    assert summary["duration_ms"] < 1000


def test_every_option_reaches_the_run(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = described(monkeypatch)
    amcast(
        *("sim", "white_box", "--groups", 4, "--replicas", 5, "--clients", 7, "--duration", "20ms"),
        *("--dest-groups", 3, "--network", "uniform:1ms,2ms", "--crash", "g0/0@5ms", "--crash", "c1@6ms"),
        *("--rate", 900, "--skew", "2ms", "--payload", 9, "--checked", "--seed", 42),
    )
    crashes = (Crash("g0/0", 5 * MILLISECOND), Crash("c1", 6 * MILLISECOND))
    assert seen == [
        Simulation(
            "white_box",
            groups=4,
            replicas=5,
            clients=7,
            duration=20 * MILLISECOND,
            dest_groups=3,
            rate=900.0,
            network="uniform:1ms,2ms",
            crashes=crashes,
            skew=2 * MILLISECOND,
            seed=42,
            payload=9,
            checked=True,
        )
    ]


def described(monkeypatch: pytest.MonkeyPatch, problem: str = "") -> list[Simulation]:
    """The descriptions that are run from now on; if there is a problem, every run ends with it."""
    seen: list[Simulation] = []
    real = Simulation.world

    class Broken:
        stopped = False

        def begin(self) -> None:
            raise InvariantViolation(problem)

    def world(self: Simulation, recorder: Recorder | None = None) -> object:
        seen.append(self)
        return Broken() if problem else real(self, recorder)

    monkeypatch.setattr(Simulation, "world", world)
    return seen


@pytest.mark.parametrize(
    "options",
    [
        "white_box --messages 100 --seed 3",
        "skeen --duration 30ms --clients 2 --skew 1us",
        "white_box --groups 2 --replicas 5 --dest-groups 1 --network uniform:1ms,2ms --crash g1/4@5ms --crash c1@1.5ms",
        "white_box --rate 0.5 --payload 0",
    ],
)
def test_a_broken_invariant_is_one_line_with_the_command_that_replays_it(
    amcast: Amcast, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    seen = described(monkeypatch, "Invariant 3 of g0/1 does not hold")
    done = amcast("sim", *options.split(), "--checked")
    assert done.code == 1 and done.out == "" and done.err.count("\n") == 1
    message, _, replay = done.err.partition("; replay with: ")
    assert message == "amcast: Invariant 3 of g0/1 does not hold"
    amcast(*shlex.split(replay)[1:])
    assert seen[0] == seen[1] and seen[0].checked


@pytest.mark.parametrize(("level", "kinds"), [("deliveries", False), ("full", True)])
def test_the_trace_holds_what_was_asked_for(amcast: Amcast, tmp_path: Path, level: str, kinds: bool) -> None:
    out = tmp_path / "trace"
    done = amcast("sim", "white_box", "--messages", 20, "--out", out, "--trace", level)
    assert done.code == 0 and f"trace in {out}" in done.out.replace("\n", "")
    seen = {event.kind for event in read_events(out)}
    assert {"start", "multicast", "deliver", "leader", "end"} <= seen
    assert ("send" in seen) == ("receive" in seen) == kinds


def test_an_older_trace_is_replaced_only_with_force(amcast: Amcast, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    assert amcast("sim", "skeen", "--messages", 20, "--out", out).code == 0
    refused = amcast("sim", "skeen", "--messages", 5, "--out", out)
    assert refused.code == 2 and "--force" in refused.err and refused.err.count("\n") == 1
    assert sum(event.kind == "multicast" for event in read_events(out)) == 20
    assert amcast("sim", "skeen", "--messages", 5, "--out", out, "--force").code == 0
    assert sum(event.kind == "multicast" for event in read_events(out)) == 5


def test_what_cannot_run_replaces_nothing(amcast: Amcast, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    amcast("sim", "skeen", "--messages", 20, "--out", out)
    assert amcast("sim", "skeen", "--dest-groups", 9, "--out", out, "--force").code == 2
    assert sum(event.kind == "multicast" for event in read_events(out)) == 20


def test_a_stalled_run_says_what_is_missing(amcast: Amcast) -> None:
    crashes = ("--crash", "g0/1@5ms", "--crash", "g0/2@5ms")
    done = amcast("sim", "white_box", "--messages", 50, *crashes, "--json")
    assert done.code == 3, "neither well nor violated"
    warning, stalled = done.err.splitlines()
    assert warning.startswith("amcast: warning: 2 of 3 processes of g0 crash, it tolerates 1")
    assert "stalled at" in stalled and "not delivered everywhere" in stalled and "missing at g0/0" in stalled
    document = json.loads(done.out)
    assert document["outcome"] == "stalled" and document["missing_messages"] > 0
    assert "g0/0" in document["missing"][0]["processes"]


def test_the_same_seed_prints_the_same(amcast: Amcast) -> None:
    command = ("sim", "white_box", "--network", "uniform:1ms,9ms", "--messages", 50, "--seed", 7)
    assert amcast(*command) == amcast(*command)
    assert amcast(*command).out != amcast(*command[:-1], 8).out
