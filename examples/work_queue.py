"""A work queue: each job is given to one worker, and back to the queue if that worker is said to be dead.

amcast cluster init jobs --groups 1 --app work_queue:Queue      # with PYTHONPATH=examples
"""

import json

from amcast import Client, Delivery, Rejected
from amcast.core.application import AllOrNothing


class Queue(AllOrNothing):
    """The state machine of a group. A job's number is the position of what put it there."""

    def __init__(self, group: int, groups: int) -> None:
        self.waiting: list[tuple[int, str]] = []
        self.taken: dict[str, list[tuple[int, str]]] = {}  # by worker

    def apply(self, delivery: Delivery) -> bytes:
        what, *words = json.loads(delivery.payload)
        match what, *words:
            case "put", str(job):
                self.waiting.append((delivery.position, job))
                return json.dumps(delivery.position).encode()
            case "take", str(worker):
                if not self.waiting:
                    return b"null"
                self.taken.setdefault(worker, []).append(self.waiting.pop(0))
                return json.dumps(self.taken[worker][-1]).encode()
            case "done", str(worker), int(number):
                kept = [job for job in self.taken.get(worker, []) if job[0] != number]
                if len(kept) == len(self.taken.get(worker, [])):
                    raise Rejected(f"job {number} is not with {worker}: it was done, or given back")
                self.taken[worker] = kept
                return b"true"
            case "dead", str(worker):
                back = self.taken.pop(worker, [])
                self.waiting = sorted([*back, *self.waiting])
                return json.dumps(len(back)).encode()
        raise Rejected(f"{what}: expected put, take, done or dead")

    def snapshot(self) -> bytes:
        return json.dumps([self.waiting, {worker: self.taken[worker] for worker in sorted(self.taken)}]).encode()

    def restore(self, state: bytes) -> None:
        waiting, taken = json.loads(state)
        self.waiting = [(number, job) for number, job in waiting]
        self.taken = {worker: [(number, job) for number, job in jobs] for worker, jobs in taken.items()}


async def ask(client: Client, *words: str | int) -> object:
    """Ask the queue, and return its answer."""
    answers = await client.multicast(["g0"], json.dumps(words).encode())
    return json.loads(answers["g0"])


async def put(client: Client, job: str) -> object:
    return await ask(client, "put", job)


async def take(client: Client, worker: str) -> object:
    """Return a job's number and text; None if there is none."""
    return await ask(client, "take", worker)
