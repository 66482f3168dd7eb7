"""Redis' glob patterns, without the backtracking of regular expressions: a pattern of a client runs in every replica.

Only the last star is ever tried again, so matching takes at most |pattern| × |text| steps. With both of 500 kB that
takes hours, so it is given up where a text takes many steps for each of its bytes.
"""

from collections.abc import Callable
from typing import Final

from amcast.errors import CommandRefused

STEPS: Final = 8  # for nothing, for each byte of a text; a short text has …
STEPS_AT_LEAST: Final = 10_000
TOO_COSTLY: Final = "-ERR pattern takes too long for a key; make what stands behind its star shorter"

ANY = (True, frozenset[int]())  # the negation of an empty class
Token = tuple[bool, frozenset[int]] | None  # None is a star; else whether the class is negated, and its bytes


def parse(pattern: bytes) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        if byte == 0x2A:  # *
            if not tokens or tokens[-1] is not None:
                tokens.append(None)
        elif byte == 0x3F:  # ?
            tokens.append(ANY)
        elif byte == 0x5B:  # [
            token, at = parse_class(pattern, at + 1)
            tokens.append(token)
        else:
            if byte == 0x5C and at + 1 < len(pattern):  # \
                at += 1
            tokens.append((False, frozenset((pattern[at],))))
        at += 1
    return tokens


def parse_class(pattern: bytes, at: int) -> tuple[Token, int]:
    """Read a class up to its closing bracket, or to the end of the pattern; return where that is."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    members: set[int] = set()
    while at < len(pattern) and pattern[at] != 0x5D:
        if pattern[at] == 0x5C and at + 1 < len(pattern):
            at += 1
            members.add(pattern[at])
        elif at + 2 < len(pattern) and pattern[at + 1] == 0x2D:  # a-z, also written z-a
            low, high = sorted((pattern[at], pattern[at + 2]))
            members.update(range(low, high + 1))
            at += 2
        else:
            members.add(pattern[at])
        at += 1
    return (negated, frozenset(members)), at


def matcher(pattern: bytes) -> Callable[[bytes], bool]:
    """Return what tells whether a text matches. Raises CommandRefused if that takes too long."""
    if pattern == b"*":
        return lambda text: True
    tokens = parse(pattern)
    return lambda text: matches(tokens, text)


def matches(tokens: list[Token], text: bytes) -> bool:
    left = max(STEPS_AT_LEAST, STEPS * len(text))
    at = token = 0
    star = retry = -1
    while at < len(text):
        if token < len(tokens) and (wanted := tokens[token]) is not None:
            if (text[at] in wanted[1]) != wanted[0]:
                at += 1
                token += 1
                continue
        elif token < len(tokens):
            star, retry = token, at
            token += 1
            continue
        if star < 0:
            return False
        left -= at - retry  # steps that were for nothing
        if left < 0:
            raise CommandRefused(TOO_COSTLY)
        retry += 1
        at, token = retry, star + 1
    return all(rest is None for rest in tokens[token:])
