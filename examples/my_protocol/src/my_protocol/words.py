"""An application: it counts how often each word was multicast."""

import json
from collections import Counter
from typing import Final

from amcast import Delivery, StateMachine
from amcast.core.application import Application


class Words:
    """The state machine of one group: the same deliveries give the same state and the same answers everywhere."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def apply(self, delivery: Delivery) -> bytes:
        word = delivery.payload.decode(errors="replace")
        self.count[word] += 1
        return str(self.count[word]).encode()

    def snapshot(self) -> bytes:
        return json.dumps(self.count).encode()

    def restore(self, state: bytes) -> None:
        self.count = Counter(json.loads(state))


def words(group: int, groups: int) -> StateMachine:
    return Words()


ROW: Final = Application(name="words", title="how often each word was multicast", machine=words)
