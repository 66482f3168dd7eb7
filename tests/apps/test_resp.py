"""Guards the Redis protocol: what is cut anywhere is read the same, and no bytes do harm."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amcast.apps.kv.resp import LONGEST_LINE, MOST_ARGUMENTS, NIL_ARRAY, Parser, Reply, encode_reply

requests = st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=5), max_size=8)


def packed(commands: list[list[bytes]]) -> bytes:
    return b"".join(
        b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)
        for command in commands
    )


def feed_in_pieces(parser: Parser, data: bytes, choose: random.Random) -> list[list[bytes]]:
    found = []
    while data:
        cut = choose.randint(1, len(data))
        found += parser.feed(data[:cut])
        data = data[cut:]
    return found


@given(requests, st.randoms(use_true_random=False))
def test_requests_arrive_as_sent_however_they_are_cut(commands: list[list[bytes]], choose: random.Random) -> None:
    parser = Parser()
    assert feed_in_pieces(parser, packed(commands), choose) == commands
    assert parser.error is None and parser._buffer == b""


pieces = st.sampled_from([b"*", b"$", b"\r\n", b"1", b"3", b"-1", b"a", b'"', b"'", b"\\", b"\\x", b" ", b"\0", b"99"])


@given(st.lists(st.one_of(pieces, st.binary(max_size=5)), max_size=60).map(b"".join), st.randoms(use_true_random=False))
def test_any_bytes_give_requests_or_an_error(data: bytes, choose: random.Random) -> None:
    whole, cut = Parser(200), Parser(200)
    commands = whole.feed(data)
    assert feed_in_pieces(cut, data, choose) == commands
    assert cut.error == whole.error
    assert all(command for command in commands)
    assert len(whole._buffer) <= len(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"*%d\r\n" % (MOST_ARGUMENTS + 1), "invalid multibulk length"),
        (b"*1000000\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n:5\r\n", "expected '$', got ':'"),
        (b"*" + b"1" * LONGEST_LINE, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * LONGEST_LINE, "too big bulk count string"),
        (b"a" * LONGEST_LINE, "too big inline request"),
        (b'get "a\r\n', "unbalanced quotes in request"),
        (b'get "a"b\r\n', "unbalanced quotes in request"),
    ],
)
def test_errors_are_those_of_redis(data: bytes, error: str) -> None:
    parser = Parser()
    assert parser.feed(packed([[b"PING"]]) + data) == [[b"PING"]]
    assert parser.error == error
    assert parser.feed(packed([[b"PING"]])) == []


def test_a_request_in_many_small_arguments_is_bounded_too() -> None:
    parser = Parser(10_000)
    parser.feed(b"*10000\r\n" + b"$1\r\nx\r\n" * 5000)
    assert parser.error == "invalid bulk length"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"set a 1\r\n", [b"set", b"a", b"1"]),
        (b"  get\ta \n", [b"get", b"a"]),
        (rb'set "a b" "\x41\n\"" x' + b"\n", [b"set", b"a b", b'A\n"', b"x"]),
        (rb"set 'a\'b' ''" + b"\n", [b"set", b"a'b", b""]),
        (b'foo"bar"\n', [b"foobar"]),
    ],
)
def test_lines_as_people_type_them(line: bytes, words: list[bytes]) -> None:
    assert Parser().feed(line) == [words]


def test_empty_requests_are_skipped() -> None:
    assert Parser().feed(b"\r\n*0\r\n*-1\r\n\r\nPING\r\n") == [[b"PING"]]


@pytest.mark.parametrize(
    ("reply", "resp2", "resp3"),
    [
        ("OK", b"+OK\r\n", b"+OK\r\n"),
        ("-ERR a\r\n+b", b"-ERR a  +b\r\n", b"-ERR a  +b\r\n"),
        (5, b":5\r\n", b":5\r\n"),
        (b"a\r\n", b"$3\r\na\r\n\r\n", b"$3\r\na\r\n\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (NIL_ARRAY, b"*-1\r\n", b"_\r\n"),
        ([1, [None]], b"*2\r\n:1\r\n*1\r\n$-1\r\n", b"*2\r\n:1\r\n*1\r\n_\r\n"),
        ({b"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
    ],
)
def test_replies(reply: Reply, resp2: bytes, resp3: bytes) -> None:
    assert encode_reply(reply) == resp2
    assert encode_reply(reply, resp3=True) == resp3
