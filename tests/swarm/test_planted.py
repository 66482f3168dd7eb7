"""Guards what only the histories of clients can show: faults at which all replicas do the same, and wrong.

Each is planted above the replicas, where the chain of hashes sees nothing, and has to be found within a few seeds.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from amcast.apps.kv.machine import KV
from amcast.runtime.client import Client
from amcast.swarm.cluster.seeds import run_cluster_seed


def sends_twice(patch: pytest.MonkeyPatch) -> None:
    """A gateway that sends one multicast in fifty as two: executed twice, answered once."""
    chance, real = random.Random(1), Client.submit

    def submit(self: Client, dest: tuple[int, ...], payload: bytes, *rest: Any, **more: Any) -> Any:
        if chance.random() < 0.02:
            again = real(self, dest, payload, *rest, **more)
            again.add_done_callback(lambda done: done.cancelled() or done.exception())
        return real(self, dest, payload, *rest, **more)

    patch.setattr(Client, "submit", submit)


def watches_nothing(patch: pytest.MonkeyPatch) -> None:
    """A store that never finds a watched key changed."""
    patch.setattr(KV, "_unchanged", lambda self, watched, several: True)


def locks_nothing(patch: pytest.MonkeyPatch) -> None:
    """A store in which a transaction that is prepared keeps nobody out."""
    patch.setattr(KV, "_hold", lambda self, keys: None)


def never_asks_again(patch: pytest.MonkeyPatch) -> None:
    """A client that sends nothing again by itself: what was lost once stays open for ever."""
    patch.setattr(Client, "_on_timer", lambda self, name: None)


Plant = Callable[[pytest.MonkeyPatch], None]
TWICE = {"repeated update", "duplicate append", "own append", "orders differ", "not serializable", "aborted read"}
PLANTS: list[tuple[Plant, range, set[str]]] = [
    (sends_twice, range(400, 424), TWICE),
    (never_asks_again, range(436, 444), {"no answer in the calm"}),
    (watches_nothing, range(400, 480), {"lost update", "write skew", "fractured read"}),
    (locks_nothing, range(400, 480), {"write skew", "fractured read", "lost update", "not serializable"}),
]


@pytest.mark.parametrize(
    ("plant", "seeds", "kinds"),
    [pytest.param(*plant, id=plant[0].__name__) for plant in PLANTS[:2]]
    + [pytest.param(*plant, id=plant[0].__name__, marks=pytest.mark.slow) for plant in PLANTS[2:]],
)
def test_a_planted_fault_is_found(plant: Plant, seeds: range, kinds: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    problems = []
    for seed in seeds:
        problems.append(run_cluster_seed("white_box", seed, "kv").problem)
        if problems[-1].partition(":")[0] in kinds:
            return
    pytest.fail("\n".join(["not found; seen were", *problems]))
