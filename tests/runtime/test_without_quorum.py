"""A group without a quorum: who asks for it is told within a second, and nothing is begun that cannot be finished."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from nodes import cluster, running
from tests.pace import allow, until
from tests.tools import some_now

from amcast.core.requests import REQUESTS, Multicast
from amcast.core.topology import Topology, seq_of
from amcast.core.wire import Codec
from amcast.errors import MulticastFailed, OutcomeUnknown
from amcast.local.trial import Trial
from amcast.runtime import frames
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.frames import Condition, Refusal, Welcome
from amcast.runtime.framing import FrameReader, frame
from amcast.runtime.inquiry import Inquiry
from amcast.runtime.serving import ServingHost, _Served
from amcast.service import connect, connect_sync

SECONDS = 30.0
AT_ONCE = 1.0


async def told(client: Client, dest: Sequence[str], payload: bytes, deadline: float = SECONDS) -> tuple[str, float]:
    """Return how a multicast ended, and after how many seconds."""
    began = time.monotonic()
    try:
        await client.multicast(dest, payload, deadline)
    except (MulticastFailed, OutcomeUnknown) as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "delivered", time.monotonic() - began


async def delivered_in_the_end(client: Client, dest: Sequence[str], payload: bytes) -> None:
    """Multicast again while it is refused: all groups have to hear that one of them is back."""
    began, outcome = time.monotonic(), ""
    while outcome != "delivered":
        outcome, _ = await told(client, dest, payload)
        assert outcome.startswith(("delivered", "MulticastFailed: ")), outcome
        assert time.monotonic() - began < allow(SECONDS), outcome
        await asyncio.sleep(0.1)


def why_not_ready(trial: Trial, member: Member) -> str:
    return trial.processes.why_not_ready(member) or ""


@pytest.mark.parametrize("how", some_now(("killed", "stopped"), ("stopped",)))  # which nobody is told of
def test_a_group_loses_its_quorum_and_gets_it_back(tmp_path: Path, how: str) -> None:
    with Trial(tmp_path, groups=2, secure=False, app="log") as trial:
        g0, g1 = trial.config.members[:3], trial.config.members[3:]
        gone = g1[:2]  # its leader among them
        lose, bring_back = (trial.kill, trial.start) if how == "killed" else (trial.pause, trial.resume)

        async def calls() -> None:
            async with connect(trial.config.path, "dev") as client, connect(trial.config.path, "dev") as fresh:
                assert (await told(client, ["g0", "g1"], b"before"))[0] == "delivered"
                lose(*gone)
                # Sent just before anybody knew. It is never known what becomes of it; the answer comes by its deadline.
                outcome, seconds = await told(client, ["g1"], b"race", deadline=2.0)
                assert outcome.startswith(("OutcomeUnknown", "MulticastFailed")) and seconds < 2.0 + allow(0.5)
                noticed = "g1 has no quorum: nothing is heard of g1/0, g1/1"
                wait = asyncio.to_thread(until, lambda: why_not_ready(trial, g1[2]) == noticed, SECONDS)
                assert await wait, why_not_ready(trial, g1[2])
                await asyncio.sleep(allow(1.0))  # g1 has told g0
                for one in (client, fresh):
                    for dest in (["g1"], ["g0", "g1"]):
                        outcome, seconds = await told(one, dest, b"lost")
                        assert outcome.startswith("MulticastFailed: g1 has no quorum"), (outcome, seconds)
                        assert seconds < allow(AT_ONCE), (outcome, seconds)
                    assert (await told(one, ["g0"], b"other groups go on"))[0] == "delivered"
                assert not why_not_ready(trial, g0[0])
                await asyncio.to_thread(bring_back, *gone)
                ready = asyncio.to_thread(until, lambda: not any(why_not_ready(trial, m) for m in g1), SECONDS)
                assert await ready
                for one in (client, fresh):
                    await delivered_in_the_end(one, ["g0", "g1"], b"after")  # when g0 has heard of it
                await asyncio.to_thread(until, lambda: level(trial, "g1/"), SECONDS)
                seen = [row.payload async for row in until_end(client, trial)]
            assert b"lost" not in seen and seen.count(b"after") == 2, "what failed was delivered nowhere"

        asyncio.run(calls())


def level(trial: Trial, prefix: str) -> bool:
    """Return whether the replicas of a group have delivered the same: any of them may be read."""
    return len({said["position"] for name, said in trial.statuses().items() if name.startswith(prefix)}) == 1


async def until_end(client: Client, trial: Trial):  # type: ignore[no-untyped-def]
    """The log of g1 up to its last message."""
    end = trial.statuses()["g1/0"]["position"]
    assert isinstance(end, int)
    async for row in client.deliveries("g1"):
        yield row
        if row.position + 1 >= end:
            return


# Replicas as a client meets them: each greets, and does with requests what the test says


class Puppet(asyncio.Protocol):
    """One replica. It says why each group is refused, and refuses requests, or keeps them and is silent."""

    def __init__(self, config: ClusterConfig, pid: int, refusals: tuple[str, ...], refuses: bool) -> None:
        self.config = config
        self.member = config.members[pid]
        self.refusals = refusals
        self.refuses = refuses
        self.requests: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.reader = FrameReader(2**24)

    def data_received(self, data: bytes) -> None:
        for kind, number, body in self.reader.feed(data):
            if kind == frames.HELLO:
                self.say(frames.WELCOME, Welcome(self.member.name, 1, 0, self.refusals))
            elif kind == frames.ASK and (self.refuses or not self.requests):  # who keeps a request stands still
                self.say(frames.CONDITION, Condition(0, None, refusals=self.refusals), number)
            elif kind == frames.REQUESTS:
                for request in Codec(REQUESTS, len(self.config.topology.groups)).read(body):
                    assert isinstance(request, Multicast)
                    self.requests.append(seq_of(request.m.mid))
                    if self.refuses:
                        reason = next(filter(None, self.refusals))
                        self.say(frames.FAILED, Refusal(seq_of(request.m.mid), reason, kind=frames.UNAVAILABLE))

    def say(self, kind: int, what: object, number: int = 0) -> None:
        self.transport.write(frame(kind, frames.encode(what), number))

    async def start(self) -> "Puppet":
        address = self.member.client
        await asyncio.get_running_loop().create_server(lambda: self, address.host, address.port)
        return self


NO_QUORUM = "g0 has no quorum: nothing is heard of g0/1, g0/2"


def asked_puppets(
    folder: Path, *puppets: tuple[str, bool], deadline: float, again: bool = False
) -> tuple[str, float, list[list[int]]]:
    """Return how a multicast to the replicas of one group ends, after how long, and the numbers that each has seen.

    With `again`, there is a second one while the first waits, which fails.
    """
    config = cluster(folder, replicas=3)

    async def run() -> tuple[str, float, list[list[int]]]:
        made = [await Puppet(config, pid, (why,), refuses).start() for pid, (why, refuses) in enumerate(puppets)]
        async with connect(config.path, "dev") as client:
            first = asyncio.ensure_future(told(client, ["g0"], b"x", deadline))
            if again:
                await asyncio.sleep(0.5)
                assert (await told(client, ["g0"], b"y", deadline))[0] == f"MulticastFailed: {NO_QUORUM}"
            outcome, seconds = await first
            seen = [list(puppet.requests) for puppet in made]
            await asyncio.sleep(0.5)  # longer than the client waits before it sends something again
            if outcome.startswith("MulticastFailed"):
                assert seen == [puppet.requests for puppet in made], "what has failed is not sent again"
            return outcome, seconds, seen

    return asyncio.run(run())


def test_refused_by_all_is_refused_at_once(tmp_path: Path) -> None:
    outcome, seconds, _ = asked_puppets(tmp_path, (NO_QUORUM, True), (NO_QUORUM, True), deadline=allow(5.0))
    assert outcome == f"MulticastFailed: {NO_QUORUM}" and seconds < allow(AT_ONCE)


def test_what_one_replica_may_have_taken_is_not_said_to_have_failed(tmp_path: Path) -> None:
    """The first one is silent, as one that stands still or was cut off is: it may deliver the message later."""
    puppets = [("", False), (NO_QUORUM, True), (NO_QUORUM, True)]
    deadline = allow(3.0)  # within it everybody has to be asked, twice
    outcome, seconds, seen = asked_puppets(tmp_path, *puppets, deadline=deadline, again=True)
    assert outcome.startswith("OutcomeUnknown: no answer") and deadline - 0.1 < seconds < deadline + allow(0.5)
    assert seen[0] and all(seen), "everybody was asked"


def test_a_node_without_a_quorum_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cluster(tmp_path, replicas=3)
    with running(config, ["g0/0"]) as nodes, connect_sync(config.path, "dev") as client:
        node = nodes["g0/0"]
        monkeypatch.setattr(node.pulses, "_judges_from", 0)  # as if it had been up for a while
        assert until(lambda: any(node.pulses.refusals), SECONDS)
        with pytest.raises(MulticastFailed, match=NO_QUORUM):
            client.multicast(["g0"], b"x")
        assert node.metrics.requests == 0 and node.readiness() == NO_QUORUM


@pytest.mark.parametrize(("groups", "refused"), [(3, 1), (100, 100), (499, 499), (5000, 5000)])
def test_a_greeting_is_small_however_much_is_refused(groups: int, refused: int) -> None:
    served = object.__new__(_Served)
    reasons = ["g0 has no quorum: " + "nothing is heard of g0/1, " * 20] * refused + [""] * (groups - refused)
    served.host = cast(ServingHost, SimpleNamespace(pulses=SimpleNamespace(refusals=reasons)))
    assert len(frames.encode(Welcome("g0/0", 2**62, 2**62, served.refusals()))) < frames.LARGEST_HELLO
    if groups < 500:
        assert [bool(reason) for reason in served.refusals()] == [bool(reason) for reason in reasons]


# Whom a client believes


def verdict(dest: tuple[int, ...], said: dict[int, tuple[str, ...] | None], *, at_once: bool = False) -> str | None:
    """Of an inquiry in two groups of three. None stands for a replica that cannot be reached."""
    topology = Topology((3, 3))
    groups = [[SimpleNamespace(pid=pid) for pid in pids] for pids in topology.groups]
    inquiry = Inquiry(dest, cast(ClusterConfig, SimpleNamespace(topology=topology, group=groups.__getitem__)))
    for pid, conditions in said.items():
        if conditions is None:
            inquiry.unreachable(pid, "hung up")
        else:
            inquiry.told(pid, conditions)
    return inquiry.verdict(at_once=at_once)


OK = ("", "")
DEAD = ("", "g1 has no quorum")


def test_one_replica_that_is_cut_off_does_not_speak_for_its_group() -> None:
    assert verdict((1,), {3: DEAD}) is None, "the others may know better"
    assert verdict((1,), {3: DEAD, 4: None}) is None
    assert verdict((1,), {3: DEAD, 4: OK}) == ""
    assert verdict((1,), {3: DEAD, 4: None, 5: DEAD}) == "g1 has no quorum"
    assert verdict((1,), {3: DEAD}, at_once=True) == "g1 has no quorum"


def test_every_group_must_see_all_of_them_serve() -> None:
    assert verdict((0, 1), {0: OK, 1: OK, 2: OK}) is None, "nobody of g1 has said anything"
    assert verdict((0, 1), {0: OK, 3: OK}) == ""
    assert verdict((0, 1), {0: DEAD, 1: DEAD, 2: DEAD, 3: OK}) == "g1 has no quorum", "for g0 cannot reach it"
    assert verdict((0,), {0: DEAD}) == "", "other groups do not matter"


def test_a_group_that_cannot_be_reached_is_named() -> None:
    nobody = "nobody of g1 can be reached: g1/0 hung up, g1/1 does not answer, g1/2 hung up"
    assert verdict((0, 1), {0: OK, 3: None, 5: None}, at_once=True) == nobody
