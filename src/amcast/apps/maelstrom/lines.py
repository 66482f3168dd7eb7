"""The lines that Maelstrom and its nodes exchange: an envelope with a body, and the codes of errors."""

from typing import Any, Final

import msgspec

NOT_SUPPORTED: Final = 10
UNAVAILABLE: Final = 11
MALFORMED: Final = 12
CRASH: Final = 13
NO_SUCH_KEY: Final = 20
PRECONDITION_FAILED: Final = 22

Body = dict[str, Any]


class Envelope(msgspec.Struct, frozen=True):
    src: str
    dest: str
    body: msgspec.Raw


class Head(msgspec.Struct, frozen=True):
    """What every body has, whatever it is about."""

    type: str
    msg_id: int | None = None


class Init(msgspec.Struct, frozen=True):
    node_id: str
    node_ids: list[str]


class Salvage(msgspec.Struct, frozen=True):
    """As much of a malformed line as an answer needs."""

    src: str
    body: dict[str, Any]


encode = msgspec.json.Encoder().encode
envelope_decoder: Final = msgspec.json.Decoder(Envelope)
head_decoder: Final = msgspec.json.Decoder(Head)
init_decoder: Final = msgspec.json.Decoder(Init)

BAD: Final = (msgspec.MsgspecError, ValueError, RecursionError)  # what decoders raise; the last for a deep nest


def error(code: int, text: str) -> Body:
    return {"type": "error", "code": code, "text": text}


def line(src: str, dest: str, body: object) -> bytes:
    return encode({"src": src, "dest": dest, "body": body}) + b"\n"


def asker_of(malformed: bytes) -> tuple[str, int] | None:
    """Return who waits for an answer to this line, if that can be read."""
    try:
        found = msgspec.json.decode(malformed, type=Salvage)
    except BAD:
        return None
    number = found.body.get("msg_id")
    return (found.src, number) if isinstance(number, int) else None
