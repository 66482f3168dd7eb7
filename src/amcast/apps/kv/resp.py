"""The Redis protocol: requests in, replies out, RESP2 and RESP3. No I/O."""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from amcast.apps.kv.strings import Command
from amcast.errors import RespError

Reply: TypeAlias = "bytes | int | str | Sequence[Reply] | dict[bytes, Reply] | NilArray | None"

LARGEST_REQUEST: Final = 2**20 - 1024  # with its lengths; so that it fits in a multicast of 1 MiB
LONGEST_LINE: Final = 64 * 1024
MOST_ARGUMENTS: Final = 128 * 1024
# First words of a line that only HTTP has: a web page can make a browser send commands here in the body of a request.
WORDS_OF_HTTP: Final = (b"POST", b"HOST:")


# Of somebody who has not logged in, as in Redis.
STRANGERS_ARGUMENTS: Final = 10
STRANGERS_REQUEST: Final = 16 * 1024


class NilArray:
    """What EXEC answers when a watched key has changed; RESP3 has only one nil."""


NIL_ARRAY: Final = NilArray()


class Parser:
    """Requests from bytes as they come. After an error, `error` says which, and nothing more is read."""

    def __init__(self, largest_request: int = LARGEST_REQUEST) -> None:
        self.error: str | None = None
        self.http = False  # the error is that a browser speaks here
        self.guarded = False  # against a stranger: small requests, and one at a time, for the next may be allowed more
        self._largest = largest_request
        self._buffer = b""
        self._missing = 0  # arguments of the request that is half read
        self._args: Command = []
        self._size = 0

    def feed(self, data: bytes) -> list[Command]:
        """Return the requests that these bytes complete."""
        commands: list[Command] = []
        if self.error is None:
            self._buffer = self._buffer + data if self._buffer else data
            try:
                at = self._read(self._buffer, commands)
                self._buffer = self._buffer[at:]
            except RespError as error:
                self.error = str(error)
                self._buffer, self._args = b"", []
        return commands

    def _read(self, buffer: bytes, commands: list[Command]) -> int:
        """Take requests from the start of the buffer; return how far it was read."""
        at, size, find = 0, len(buffer), buffer.find
        while at < size and not (self.guarded and commands):
            inline = not self._missing and buffer[at] != 0x2A  # *
            end = find(b"\n" if inline else b"\r\n", at, at + LONGEST_LINE)
            if end < 0:
                if size - at >= LONGEST_LINE:
                    raise RespError(f"too big {self._kind(inline)}")
                break
            if inline:
                self._refuse_http(buffer[at:end], commands)
                if words := split_inline(buffer[at:end]):
                    commands.append(words)
                at = end + 1
            elif not self._missing:
                self._missing = argument_count(buffer[at + 1 : end])
                if self.guarded and self._missing > STRANGERS_ARGUMENTS:
                    raise RespError("unauthenticated multibulk length")
                self._size = end + 2 - at
                at = end + 2
            else:
                length = buffer[at + 1 : end]
                if buffer[at] != 0x24:  # $
                    raise RespError(f"expected '$', got '{chr(buffer[at])}'")
                if not length.isdigit() or len(length) > 10:
                    raise RespError("invalid bulk length")
                stop = end + 2 + int(length)
                if stop + 2 - at + self._size > self._largest:
                    raise RespError("invalid bulk length")
                if self.guarded and stop + 2 - at + self._size > STRANGERS_REQUEST:
                    raise RespError("unauthenticated bulk length")
                if size < stop + 2:
                    break
                self._args.append(buffer[end + 2 : stop])
                self._size += stop + 2 - at
                at = stop + 2
                self._missing -= 1
                if not self._missing:
                    commands.append(self._args)
                    self._args = []
        return at

    def _refuse_http(self, line: bytes, commands: list[Command]) -> None:
        """Refuse a line of HTTP, and with it what came in the same breath: line breaks in a path look like commands."""
        first = line.split(None, 1)[:1]
        if first and first[0].upper() in WORDS_OF_HTTP:
            self.http = True
            commands.clear()
            raise RespError("this is HTTP")

    def _kind(self, inline: bool) -> str:
        return "inline request" if inline else "bulk count string" if self._missing else "mbulk count string"


def argument_count(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 10 or int(text) > MOST_ARGUMENTS:
        raise RespError("invalid multibulk length")
    return max(0, int(text))


# Up to a blank or the end; a quoted part may only come last. At a character that is no blank it takes one or fails.
WORD: Final = re.compile(rb"""([^\s"']*)(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')?(?=\s|\Z)\s*""", re.DOTALL)
ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_inline(line: bytes) -> Command:
    """Return the words of a line as a person types it, with quotes."""
    words: Command = []
    line = line.strip()
    at = 0
    while at < len(line):
        found = WORD.match(line, at)
        if found is None:
            raise RespError("unbalanced quotes in request")
        plain, double, single = found.groups()
        if double is not None:
            plain += ESCAPE.sub(unescape, double)
        elif single is not None:
            plain += single.replace(b"\\'", b"'")
        words.append(plain)
        at = found.end()
    return words


def unescape(found: re.Match[bytes]) -> bytes:
    text = found[1]
    return bytes((int(text[1:], 16),)) if len(text) == 3 else ESCAPED.get(text, text)


def encode_reply(reply: Reply, resp3: bool = False) -> bytes:
    out: list[bytes] = []
    write(reply, resp3, out)
    return b"".join(out)


def write(reply: Reply, resp3: bool, out: list[bytes]) -> None:
    if isinstance(reply, bytes):
        out.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
    elif isinstance(reply, str):
        line = one_line(reply)
        out.append(b"%b\r\n" % line if line.startswith(b"-") else b"+%b\r\n" % line)
    elif isinstance(reply, int):
        out.append(b":%d\r\n" % reply)
    elif isinstance(reply, list):
        out.append(b"*%d\r\n" % len(reply))
        for item in reply:
            write(item, resp3, out)
    elif isinstance(reply, dict):
        out.append(b"%%%d\r\n" % len(reply) if resp3 else b"*%d\r\n" % (2 * len(reply)))
        for key, item in reply.items():
            write(key, resp3, out)
            write(item, resp3, out)
    elif resp3:
        out.append(b"_\r\n")
    else:
        out.append(b"$-1\r\n" if reply is None else b"*-1\r\n")


def one_line(text: str) -> bytes:
    """Return a status or an error as one line: what a client sent must not break out of it."""
    return text.replace("\r", " ").replace("\n", " ").encode(errors="surrogateescape")
