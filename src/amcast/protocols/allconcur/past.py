"""The messages that a server has delivered, in order: all of them, or the last ones. A hash names every prefix."""

import hashlib
from typing import Final, final

from amcast.core.topology import sender_of, seq_of
from amcast.core.wire import AppMessage

HASH: Final = 8  # bytes
OVERHEAD: Final = 250  # bytes that a message takes besides its payload


@final
class PastLog:
    def __init__(self, most: int = 0, most_bytes: int = 1 << 62) -> None:
        """Keep at most twice so many messages, 0: all, and so many bytes; half of what is too much."""
        self.most = most
        self.most_bytes = most_bytes
        self.bytes = 0
        self.first = 0  # the place of the first message that is kept
        self.messages: list[AppMessage] = []
        self.hashes = bytearray(HASH)  # of the prefixes that end at each kept message, and of the one before

    def __len__(self) -> int:
        """Return how many messages there were in all."""
        return self.first + len(self.messages)

    def append(self, m: AppMessage) -> None:
        self.messages.append(m)
        who = (sender_of(m.mid) << 64 | seq_of(m.mid)).to_bytes(16, "little")
        said = bytes(self.hashes[-HASH:]) + who + m.payload
        self.hashes += hashlib.blake2b(said, digest_size=HASH).digest()
        self.bytes += len(m.payload) + OVERHEAD
        if (self.most and len(self.messages) >= 2 * self.most) or self.bytes > self.most_bytes:
            half = len(self.messages) // 2
            self.bytes -= sum([len(old.payload) + OVERHEAD for old in self.messages[:half]])
            del self.messages[:half]
            del self.hashes[: HASH * half]
            self.first += half

    def begin(self, count: int, prefix: bytes) -> None:
        """Go on behind so many messages, with this hash, none of which is here."""
        self.first = count
        self.messages = []
        self.bytes = 0
        self.hashes = bytearray(prefix)

    def prefix(self, count: int) -> bytes:
        """Return the hash of the first messages; nothing if it is not known any more, or not yet."""
        at = HASH * (count - self.first)
        return bytes(self.hashes[at : at + HASH]) if at >= 0 else b""

    def part(self, begin: int, end: int, size: int) -> tuple[AppMessage, ...]:
        """Return messages from one place to another, until their payloads have this size."""
        batch: list[AppMessage] = []
        for i in range(begin - self.first, end - self.first):
            if size <= 0:
                break
            batch.append(self.messages[i])
            size -= len(self.messages[i].payload)
        return tuple(batch)
