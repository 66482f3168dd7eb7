"""Random runs, good and broken in every way that a property can be broken, small enough to make thousands of them."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from amcast.core.trace import Event

# What a start row says of its group: mostly its size, and sometimes something that is none.
STATED = ['{"members": N}'] * 20 + [
    '{"members": "N"}', " {'members': N}", '{"members": N} x', "[" * 3000, '{"members": 99999999999999999999}', "", "N",
    '{"members": true}', '{"members": -N}', '{"members": N.0}', '{"members": 9, "members": N}',
]  # fmt: skip


@dataclass
class Step:
    """An event without its place: what a process did."""

    kind: str
    message: str | None = None
    dest: tuple[str, ...] | None = None
    ts: tuple[int, str] | None = None
    peer: str | None = None
    about: tuple[str, ...] | None = None
    detail: str | None = None


@dataclass
class Run:
    """The history of each process, before `seq` is given out."""

    name: str
    chance: random.Random
    group_of: dict[str, str | None] = field(default_factory=dict)
    dest: dict[str, tuple[str, ...]] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    ended: bool = True

    def places(self, *kinds: str) -> list[tuple[str, int]]:
        return [(p, place) for p, steps in self.steps.items() for place, step in enumerate(steps) if step.kind in kinds]

    def events(self) -> list[Event]:
        """In the order of `seq`; a group is sometimes left out where another row gives it."""
        events = []
        for process, steps in self.steps.items():
            seq = self.chance.randrange(5)
            for step in steps:
                seq += 1 + (self.chance.random() < 0.2) * self.chance.randrange(9)
                sender = process if step.kind == "multicast" else None
                events.append(
                    Event(
                        self.name,
                        step.kind,
                        process,
                        self.group_of.get(process),
                        seq,
                        10 * seq,
                        step.message,
                        sender,
                        step.dest,
                        step.ts,
                        step.peer,
                        None,
                        None,
                        step.about,
                        step.detail,
                    )
                )
        if self.ended:
            events.append(Event(self.name, "end", "driver", None, 1))
        return sorted(events, key=lambda event: event.seq)


def good_run(name: str, chance: random.Random) -> Run:
    """One total order, delivered by all, multicast a little before; with or without guesses, traffic and timestamps."""
    run = Run(name, chance)
    groups = [f"g{number}" for number in range(chance.randint(1, 4))]
    for group in groups:
        run.group_of |= {f"{group}/{replica}": group for replica in range(chance.randint(1, 3))}
    run.group_of |= {f"c{number}": None for number in range(chance.randint(1, 2))}
    with_ts, with_ties, guesses, traffic = (chance.random() < share for share in (0.6, 0.5, 0.4, 0.4))
    lag = None if chance.random() < 0.3 else chance.randrange(4)
    timed: list[tuple[float, str, Step]] = []
    for number in range(chance.randint(1, 9)):
        message = f"m{number}"
        dest = tuple(chance.sample(groups, chance.randint(1, min(3, len(groups)))))
        run.dest[message] = dest
        sender = chance.choice(list(run.group_of))
        sent = number - (chance.random() * 4 if lag is None else lag + 0.5)
        timed.append((sent, sender, Step("multicast", message, dest)))
        ts = ((number // 2, message) if with_ties else (number, "")) if with_ts else None
        for process, group in run.group_of.items():
            if group in dest:
                timed.append((number + 0.1, process, Step("deliver", message, ts=ts)))
                if guesses:
                    timed.append((number - 0.2 - 3 * chance.random() ** 3, process, Step("optdeliver", message)))
                if traffic:
                    timed.append((sent + 0.01, sender, Step("send", peer=process, about=(message,))))
                    timed.append((sent + 0.02, process, Step("receive", peer=sender, about=(message,))))
        if traffic and chance.random() < 0.2:
            timed.append((sent, sender, Step("send", peer=chance.choice(list(run.group_of)))))
    timed.sort(key=lambda entry: entry[0])
    run.steps = {process: [] for process in run.group_of}
    if chance.random() < 0.9:
        sizes = Counter(run.group_of.values()) if chance.random() < 0.5 else {}
        for process, group in run.group_of.items():
            detail = chance.choice(STATED).replace("N", str(sizes[group])) if sizes and group else None
            run.steps[process].append(Step("start", detail=detail))
    for _, process, step in timed:
        run.steps[process].append(step)
    return run


# ---------------------------------------------------------------- what can go wrong


def swap_at_a_process(run: Run) -> None:
    for kind in ("deliver", "optdeliver"):
        for process, place in run.chance.sample(found := run.places(kind), min(1, len(found))):
            _swap(run, process, place, kind)


def _swap(run: Run, process: str, place: int, kind: str) -> None:
    steps = run.steps[process]
    later = [other for other in range(place + 1, len(steps)) if steps[other].kind == kind]
    if later:
        other = run.chance.choice(later)
        steps[place], steps[other] = steps[other], steps[place]


def swap_in_a_group(run: Run) -> None:
    """All replicas of a group deliver two messages in the other order."""
    group = run.chance.choice([group for group in run.group_of.values() if group])
    messages = [message for message, dest in run.dest.items() if group in dest]
    if len(messages) < 2:
        return
    pair = set(run.chance.sample(messages, 2))
    for process in (process for process, of in run.group_of.items() if of == group and process in run.steps):
        places = [
            place for place, step in enumerate(run.steps[process]) if step.kind == "deliver" and step.message in pair
        ]
        if len(places) == 2:
            steps = run.steps[process]
            steps[places[0]], steps[places[1]] = steps[places[1]], steps[places[0]]


def add_a_ring(run: Run) -> None:
    """Three or four messages to two groups each, which every two groups order well and all together do not."""
    groups = list(dict.fromkeys(group for group in run.group_of.values() if group))
    if len(groups) < 3:
        return
    new = len(run.dest)
    ring = [(f"m{new + place}", (groups[place], groups[(place + 1) % len(groups)])) for place in range(len(groups))]
    run.dest |= dict(ring)
    for message, dest in ring:
        run.steps.setdefault(run.chance.choice(list(run.group_of)), []).append(Step("multicast", message, dest))
    for process, group in run.group_of.items():
        mine = [message for message, dest in ring if group in dest]
        if group == groups[0]:
            mine.reverse()
        run.steps.setdefault(process, []).extend(Step("deliver", message) for message in mine)


def drop(run: Run) -> None:
    for process, place in _one(run, "deliver", "deliver", "deliver", "optdeliver", "multicast"):
        del run.steps[process][place]


def repeat(run: Run) -> None:
    for process, place in _one(run, "deliver", "optdeliver", "multicast"):
        steps = run.steps[process]
        steps.insert(run.chance.randint(place + 1, len(steps)), steps[place])


def retarget(run: Run) -> None:
    groups = [group for group in run.group_of.values() if group] + ["nowhere"]
    for process, place in _one(run, "multicast"):
        step = run.steps[process][place]
        dest = tuple(sorted(set(run.chance.sample(groups, run.chance.randint(0, 2)))))
        run.steps[process] = [
            Step("multicast", step.message, dest)
            if other.kind == "multicast" and other.message == step.message
            else other
            for other in run.steps[process]
        ]


def deliver_something_strange(run: Run) -> None:
    process = run.chance.choice(list(run.steps) or ["x"])
    run.steps.setdefault(process, [])
    message = run.chance.choice(["ghost", *run.dest])
    steps = run.steps[process]
    kind = run.chance.choice(["deliver", "deliver", "optdeliver"])
    steps.insert(run.chance.randint(0, len(steps)), Step(kind, message, ts=run.chance.choice([None, (3, "")])))


def multicast_at_another_time(run: Run) -> None:
    for process, place in _one(run, "multicast"):
        steps = run.steps[process]
        steps.insert(run.chance.randint(0, len(steps) - 1), steps.pop(place))


def crash(run: Run) -> None:
    if not run.steps:
        return
    process = run.chance.choice(list(run.steps))
    steps = run.steps[process]
    at = run.chance.randint(0, len(steps))
    rest = steps[at:]
    run.steps[process] = [*steps[:at], Step("crash")]
    if run.chance.random() < 0.4:
        run.steps[process].append(Step("restart"))
        run.steps[process] += rest if run.chance.random() < 0.5 else []


def deliver_only_at_the_dead(run: Run) -> None:
    """One process delivers a message and crashes, and nobody else delivers it: only uniform agreement is broken."""
    places = run.places("deliver")
    if not places:
        return
    process, place = run.chance.choice(places)
    message = run.steps[process][place].message
    run.steps = {
        other: steps if other == process else [s for s in steps if (s.kind, s.message) != ("deliver", message)]
        for other, steps in run.steps.items()
    }
    run.steps[process] = [*run.steps[process][: place + 1], Step("crash")]


def take_part_as_a_stranger(run: Run) -> None:
    process, peer = (run.chance.choice([*run.group_of, "x"]) for _ in range(2))
    about = tuple(run.chance.choices([*run.dest, "ghost"], k=run.chance.randint(0, 2)))
    run.steps.setdefault(process, []).append(
        Step(run.chance.choice(["send", "receive"]), peer=peer, about=about or None)
    )


def cut_off(run: Run) -> None:
    run.ended = False


def lose_a_group(run: Run) -> None:
    group = run.chance.choice(list(run.group_of.values()))  # or the clients
    run.steps = {process: steps for process, steps in run.steps.items() if run.group_of.get(process) != group}


def lose_all_replicas_but_one(run: Run) -> None:
    """Of each group; sometimes what they have in their start rows is lost, too."""
    firsts = {group: process for process, group in reversed(run.group_of.items()) if group}
    run.steps = {p: steps for p, steps in run.steps.items() if not run.group_of.get(p) or p in firsts.values()}
    if run.chance.random() < 0.5:
        lose(run, "start")


def lose_most_multicasts(run: Run) -> None:
    """What is delivered was not multicast, for all but one message that nobody delivers."""
    lose(run, "multicast")
    run.steps.setdefault("c0", []).append(Step("multicast", "other", run.chance.choice(list(run.dest.values()))))


def deliver_nothing(run: Run) -> None:
    lose(run, "deliver", *run.chance.choices(["multicast", "optdeliver", "start"], k=run.chance.randrange(3)))


def lose(run: Run, *kinds: str) -> None:
    run.steps = {process: [step for step in steps if step.kind not in kinds] for process, steps in run.steps.items()}


def wrong_timestamp(run: Run) -> None:
    for process, place in _one(run, "deliver"):
        step = run.steps[process][place]
        run.steps[process][place] = Step(
            "deliver", step.message, ts=run.chance.choice([None, (run.chance.randrange(9), "")])
        )


def wrong_timestamps_everywhere(run: Run) -> None:
    """The same wrong timestamp for a message at all processes."""
    times = {message: run.chance.randrange(9) for message in run.dest}
    for process, place in run.places("deliver"):
        step = run.steps[process][place]
        run.steps[process][place] = Step("deliver", step.message, ts=(times.get(step.message or "", 0), ""))


def _one(run: Run, *kinds: str) -> list[tuple[str, int]]:
    found = run.places(run.chance.choice(kinds))
    return run.chance.sample(found, min(1, len(found)))


MUTATIONS: list[Callable[[Run], None]] = [
    swap_at_a_process, swap_in_a_group, add_a_ring, drop, repeat, retarget, deliver_something_strange,
    multicast_at_another_time, crash, deliver_only_at_the_dead, take_part_as_a_stranger, cut_off, wrong_timestamp,
    wrong_timestamps_everywhere, lose_most_multicasts, lose_a_group, lose_all_replicas_but_one, deliver_nothing,
]  # fmt: skip


def random_runs(count: int, seed: int) -> list[Run]:
    """Runs `r0000` and so on; a quarter of them as good as they were made."""
    runs = []
    for number in range(count):
        chance = random.Random(seed * 1_000_003 + number)
        run = good_run(f"r{number:04}", chance)
        for mutate in chance.choices(MUTATIONS, k=chance.choice([0, 1, 1, 2, 3, 4])):
            mutate(run)
        runs.append(run)
    return runs


def events_of(runs: int, seed: int) -> list[Event]:
    return [event for run in random_runs(runs, seed) for event in run.events()]
