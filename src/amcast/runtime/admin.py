"""What machines and operators ask a node, on a listener of its own: plain HTTP, read only.

The paths:
    /livez     200 while the event loop runs
    /readyz    200 when the node serves, else 503 and the reason
    /metrics   Prometheus text
    /status    JSON
    /fingerprint?at=POSITION   JSON: hashes of what the node has applied up to there, and of its state
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from amcast.runtime.http import TIMEOUT, Answer, HttpServer, text

PATHS: Final = ("/livez", "/readyz", "/metrics", "/status", "/fingerprint")
POSITION: Final = re.compile("[0-9]{0,18}")


class Admin(HttpServer):
    """`ready` says why the node does not serve yet, or None; `status` is any JSON; `metrics` is Prometheus text."""

    name = "admin"

    def __init__(
        self,
        status: Callable[[], dict[str, object]],
        ready: Callable[[], str | None],
        metrics: Callable[[], bytes],
        timeout: float = TIMEOUT,
        fingerprint: Callable[[int | None], Awaitable[dict[str, object]]] | None = None,
    ) -> None:
        super().__init__(timeout)
        self._status = status
        self._ready = ready
        self._metrics = metrics
        self._fingerprint = fingerprint

    async def answer(self, target: str, headers: Mapping[str, str]) -> Answer:
        match target.partition("?")[0]:
            case "/livez":
                return text(HTTPStatus.OK, "ok")
            case "/readyz":
                reason = self._ready()
                return text(HTTPStatus.OK, "ok") if reason is None else text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, self._metrics()
            case "/status":
                return HTTPStatus.OK, "application/json", json.dumps(self._status()).encode() + b"\n"
            case "/fingerprint" if self._fingerprint is not None:
                position = target.partition("?at=")[2]
                if not POSITION.fullmatch(position):
                    return text(HTTPStatus.BAD_REQUEST, "expected /fingerprint, or /fingerprint?at=POSITION")
                said = await self._fingerprint(int(position) if position else None)
                return HTTPStatus.OK, "application/json", json.dumps(said).encode() + b"\n"
        return text(HTTPStatus.NOT_FOUND, f"expected one of {', '.join(PATHS)}")
