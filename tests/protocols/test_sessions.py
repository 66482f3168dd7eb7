"""What is remembered of delivered messages: exact, and bounded by what senders have under way."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.protocols.parts.sessions import DeliveredMessages, IdleSenders
from tests.tools import FULL, examples


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=60))
def test_knows_exactly_what_was_delivered_or_declared_done(steps: list[tuple[int, bool, bool, int]]) -> None:
    """Also of idle senders, after they were put on the shelf, came back, and after a restart."""
    delivered = DeliveredMessages()
    next_seq = [0, 0, 0]
    under_way: list[list[int]] = [[], [], []]
    known: set[tuple[int, int]] = set()
    for sender, here, oldest_first, then in steps:
        seq = next_seq[sender]
        next_seq[sender] += 1
        under_way[sender].append(seq)
        finished = under_way[sender].pop(0 if oldest_first else -1)
        done = min(under_way[sender], default=next_seq[sender])
        if here:  # addressed to this group, delivered here
            delivered.add(AppMessage(message_id(sender, finished), (0,), b"", min(done, finished)))
            known.add((sender, finished))
            known |= {(sender, seq) for seq in range(min(done, finished))}
        if then in (1, 2):
            delivered.shelve({sender: True} if then == 1 else {})
        elif then == 3:
            delivered = restarted(delivered)
        for s in range(3):
            for q in range(next_seq[s] + 2):
                assert delivered.contains(message_id(s, q)) == ((s, q) in known)
        assert {tuple(divmod(int(mid), 2**48)) for mid in delivered.mids()} == known  # type: ignore[call-overload]


def test_memory_is_bounded_by_the_open_messages_not_by_the_length_of_a_run() -> None:
    delivered = DeliveredMessages()
    for seq in range(0, 30_000, 3):  # two of three messages go to other groups
        delivered.add(AppMessage(message_id(5, seq), (0,), b"", max(0, seq - 10)))
        assert delivered.size() <= 11


def restarted(delivered: DeliveredMessages) -> DeliveredMessages:
    """The same, from what is in a snapshot."""
    again = DeliveredMessages()
    for sender, done, above in delivered.rows():
        again.restore(sender, done, above)
    again.restore_idle(tuple(delivered.idle_rows()))
    return again


def test_senders_that_are_gone_cost_little() -> None:
    delivered = DeliveredMessages()
    chance = random.Random(1)
    senders = [chance.getrandbits(62) for _ in range(30_000)]
    for sender in senders:
        delivered.add(AppMessage(message_id(sender, 0), (0,), b"", 0))
        if delivered.crowded():
            delivered.shelve({})
    for _ in range(2):  # those that were used since the last look stay for one more
        delivered.shelve({})
    assert not delivered.rows() and len(delivered.idle_rows()) == len(senders)
    assert delivered._idle.size() <= 10 * len(senders)
    assert all(delivered.contains(message_id(sender, 0)) for sender in senders)
    assert not any(delivered.contains(message_id(sender, 1)) for sender in senders)
    assert not delivered.contains(message_id(7, 0))


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.dictionaries(st.integers(0, 2**62 - 1) | st.integers(0, 400), st.integers(0, 2**48))))
def test_idle_senders_are_a_dictionary_in_order(steps: list[dict[int, int]]) -> None:
    idle, known = IdleSenders(), dict[int, int]()
    for step in steps:
        idle.put(sorted(step.items()))
        known |= step
        assert idle.rows() == sorted(known.items())
    for sender, number in known.items():
        assert idle.get(sender) == number
        assert idle.get(sender + 1) == known.get(sender + 1, 0)


def test_a_million_clients_that_are_gone_cost_less_than_ten_megabytes() -> None:
    """Who comes in the order of chance, a thousand at a time, as clients do; a hundredth of them comes back."""
    idle, chance = IdleSenders(), random.Random(2)
    count = 1_000_000 if FULL else 20_000
    owners = [owner << 42 for owner in range(1, 4)]
    some: dict[int, int] = {}
    for i in range(0, count, 1000):
        step = {chance.choice(owners) | chance.getrandbits(42): chance.randrange(1, 300) for _ in range(1000)}
        idle.put(sorted(step.items()))
        some |= dict(list(step.items())[:10])
        if i % 7000 == 0:
            some |= {sender: number + 1 for sender, number in list(some.items())[-5:]}
            idle.put(sorted(some.items()))
    assert idle.size() < 10 * count
    assert all(idle.get(sender) == number for sender, number in some.items())
    assert len(idle.rows()) == count


def test_a_session_that_somebody_holds_stays() -> None:
    """A message under way holds the session to which it will be added."""
    delivered = DeliveredMessages()
    held = delivered.session(message_id(5, 0))
    for _ in range(3):
        delivered.shelve({5: True})
    held.add(0, 0)
    assert delivered.contains(message_id(5, 0))
