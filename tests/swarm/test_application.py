"""An application of one's own under the cluster simulator: a right one passes, and each way to be wrong is found."""

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from amcast import Client, Delivery, StateMachine
from amcast.errors import Alarm, MulticastFailed, OutcomeUnknown, UsageError
from amcast.swarm.cluster.application import try_application


class Sum:
    """Adds numbers up."""

    made = 0

    def __init__(self, group: int, groups: int) -> None:
        self.sum = 0
        Sum.made += 1
        self.number = Sum.made

    def apply(self, delivery: Delivery) -> bytes:
        self.sum += int(delivery.payload)
        return b"%d" % self.sum

    def snapshot(self) -> bytes:
        return b"%d" % self.sum

    def restore(self, state: bytes) -> None:
        self.sum = int(state)


class Different(Sum):
    """Answers otherwise at each replica."""

    def apply(self, delivery: Delivery) -> bytes:
        return super().apply(delivery) + b" of %d" % self.number


class Forgetful(Sum):
    """Leaves something out of its snapshot."""

    def restore(self, state: bytes) -> None:
        self.sum = int(state) // 2


async def use(client: Client, random: Random) -> None:
    for _ in range(5):
        await asyncio.sleep(random.random() / 5)
        groups = random.sample(range(client.groups), random.randint(1, client.groups))
        try:
            await client.submit(tuple(sorted(groups)), b"1")
        except (MulticastFailed, OutcomeUnknown):
            pass


def positive(machines: Mapping[str, StateMachine]) -> None:
    for machine in machines.values():
        assert isinstance(machine, Sum)
        assert machine.sum > 0


def test_a_right_application_passes_and_something_was_seen() -> None:
    tried = try_application(Sum, use, judge=positive, seeds=3)
    assert tried.seeds == 3 and tried.applied > 100 and tried.faults > 3


@pytest.mark.parametrize(("machine", "kind"), [(Different, "answers differ"), (Forgetful, "snapshot changes")])
def test_an_application_that_is_wrong_is_found(machine: type[Sum], kind: str) -> None:
    with pytest.raises(Alarm, match=rf"^{kind}: .*\(seed \d+: ") as found:
        try_application(machine, use, seeds=10)
    assert found.value.kind == kind


def test_what_users_and_judges_do_not_accept_is_found() -> None:
    async def complaining(client: Client, random: Random) -> None:
        await use(client, random)
        raise AssertionError("not as I wished")

    def refusing(machines: Mapping[str, StateMachine]) -> None:
        assert not machines, "there are states"

    with pytest.raises(Alarm, match="not as I wished"):
        try_application(Sum, complaining, seeds=1)
    with pytest.raises(Alarm, match="there are states"):
        try_application(Sum, use, judge=refusing, seeds=1)


def test_a_use_that_does_nothing_is_no_test() -> None:
    async def idle(client: Client, random: Random) -> None:
        await asyncio.sleep(0)

    with pytest.raises(UsageError, match="nothing was applied"):
        try_application(Sum, idle, seeds=1)
