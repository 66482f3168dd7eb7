"""Seeds of the whole cluster: what became of each, what is kept of one that failed, and how its plan is made short."""

from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import msgspec

from amcast.checks.evidence import Evidence
from amcast.core.protocol import Protocol
from amcast.errors import UsageError
from amcast.swarm.cluster.faults.plan import Plan, as_json, from_json
from amcast.swarm.cluster.setup import LOADS, Setup, changed, draw_setup
from amcast.swarm.cluster.trial import Result, Trial
from amcast.swarm.seeds import Outcome

MOST_RUNS: Final = 80  # to make a plan short


def refuse_unsuited(table: Protocol, load: str) -> None:
    """Refuse what cannot be simulated as a whole."""
    if load and load not in LOADS:
        raise UsageError(f"load {load!r}: expected one of {', '.join(LOADS)}, or nothing, and one is drawn")
    if not table.durable:
        raise UsageError(
            f"{table.name} keeps nothing on disk, and --cluster stops and starts replicas; choose a protocol that is "
            "durable: 'amcast protocols' says which are"
        )


def run_cluster_seed(protocol: str, seed: int, load: str = "", known: Collection[str] = (), plan: str = "") -> Outcome:
    """Run and judge one seed; `plan` is the text of a plan to run instead of that which the seed draws."""
    setup = setup_of(protocol, seed, load, plan)
    trial = Trial(setup)
    try:
        return outcome_of(setup, trial.run(), known)
    finally:
        trial.close()


def setup_of(protocol: str, seed: int, load: str, plan: str = "") -> Setup:
    setup = draw_setup(protocol, seed, load)
    return setup if not plan else replace(setup, plan=read_plan(plan))


def read_plan(text: str) -> Plan:
    try:
        return from_json(text.encode())
    except msgspec.MsgspecError as error:
        raise UsageError(f"a plan that cannot be read: {error}; take one that a failing seed left") from error


def outcome_of(setup: Setup, result: Result, known: Collection[str]) -> Outcome:
    kind = result.alarm.kind if result.alarm is not None else ""
    return Outcome(
        setup.seed,
        "" if kind in known else str(result.alarm or ""),
        str(setup),
        result.events,
        result.seconds * 1000,
        result.settled,
        excuse=f"known: {kind}" if kind and kind in known else "",
        evidence=Evidence(
            runs=1,
            replicas=result.replicas,
            expected=setup.groups * setup.replicas,
            multicasts=result.multicasts,
            deliveries=result.applied,
            faults=result.faults,
        ),
        delivered=result.multicasts,
    )


def keep(setup: Setup, folder: Path) -> None:
    """Run a setup once more and write down what there is to see: its plan, all logs, traces and disks."""
    trial = Trial(setup)
    try:
        result = trial.run()
        world = trial.world
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(as_json(setup.plan))
        (folder / "setup.json").write_bytes(msgspec.json.format(msgspec.json.encode(described(setup, result))) + b"\n")
        lines = [f"{time / 1e9:12.6f} {name:8} {text}\n" for time, name, text in world.lines]
        (folder / "log.txt").write_text("".join([*lines, f"{result.alarm or 'no alarm'}\n"]))
        if world.traced:  # of all processes in one file: 'amcast verify' reads it
            (folder / "trace.jsonl").write_bytes(b"".join(world.traces.values()))
        for name, host in world.hosts.items():
            host.disk.write_out(folder / "disks" / name.replace("/", "-"))
    finally:
        trial.close()


def described(setup: Setup, result: Result) -> dict[str, object]:
    facts = {name: value for name, value in asdict(setup).items() if name not in ("plan", "limits")}
    return {
        **facts,
        "limits": changed(setup.limits),
        "alarm": str(result.alarm or ""),
        "digest": f"{result.digest & 2**64 - 1:016x}",
        "seconds": result.seconds,
        "events": result.events,
    }


def shortest(setup: Setup, kind: str, run: Callable[[Setup], Result] | None = None) -> Setup:
    """Return the setup without faults that the alarm does not need: halves first, then one by one."""
    run = run or run_setup
    left = MOST_RUNS

    def still_fails(plan: Plan) -> bool:
        nonlocal left
        left -= 1
        alarm = run(replace(setup, plan=plan)).alarm
        return alarm is not None and alarm.kind == kind

    plan = setup.plan
    size = max(1, len(plan) // 2)
    while plan and left > 0:
        for start in range(0, len(plan), size):
            fewer = plan[:start] + plan[start + size :]
            if left > 0 and still_fails(fewer):
                plan = fewer
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return replace(setup, plan=plan)


def run_setup(setup: Setup) -> Result:
    trial = Trial(setup)
    try:
        return trial.run()
    finally:
        trial.close()


def keep_failing(load: str, plan: str, protocol: str, seed: int, folder: Path) -> str:
    """Keep a failing seed in a folder, and beside it the same with a plan as short as was found; return what to say."""
    setup = setup_of(protocol, seed, load, plan)
    keep(setup, folder)
    alarm = run_setup(setup).alarm
    if alarm is None or not setup.plan:
        return str(folder)
    short = shortest(setup, alarm.kind)
    if len(short.plan) < len(setup.plan):
        keep(short, folder / "short")
    return (
        f"{folder}; {len(short.plan)} of {len(setup.plan)} faults are enough: --plan {folder / 'short' / 'plan.json'}"
    )
