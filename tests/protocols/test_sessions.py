"""What is remembered of delivered messages: exact, and bounded by what senders have under way."""

from hypothesis import given
from hypothesis import strategies as st

from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.protocols.parts.sessions import DeliveredMessages


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=60))
def test_knows_exactly_what_was_delivered_or_declared_done(steps: list[tuple[int, bool, bool]]) -> None:
    delivered = DeliveredMessages()
    next_seq = [0, 0, 0]
    under_way: list[list[int]] = [[], [], []]
    known: set[tuple[int, int]] = set()
    for sender, here, oldest_first in steps:
        seq = next_seq[sender]
        next_seq[sender] += 1
        under_way[sender].append(seq)
        finished = under_way[sender].pop(0 if oldest_first else -1)
        done = min(under_way[sender], default=next_seq[sender])
        if here:  # addressed to this group, delivered here
            delivered.add(AppMessage(message_id(sender, finished), (0,), b"", min(done, finished)))
            known.add((sender, finished))
            known |= {(sender, seq) for seq in range(min(done, finished))}
        for s in range(3):
            for q in range(next_seq[s] + 2):
                assert delivered.contains(message_id(s, q)) == ((s, q) in known)
        assert {tuple(divmod(int(mid), 2**48)) for mid in delivered.mids()} == known  # type: ignore[call-overload]


def test_memory_is_bounded_by_the_open_messages_not_by_the_length_of_a_run() -> None:
    delivered = DeliveredMessages()
    for seq in range(0, 30_000, 3):  # two of three messages go to other groups
        delivered.add(AppMessage(message_id(5, seq), (0,), b"", max(0, seq - 10)))
        assert delivered.size() <= 11
