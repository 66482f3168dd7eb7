"""What machines and operators ask a node, on a listener of its own: plain HTTP, read only.

The paths:
    /livez     200 while the event loop runs
    /readyz    200 when the node serves, else 503 and the reason
    /metrics   Prometheus text
    /status    JSON
"""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from amcast.runtime.http import TIMEOUT, Answer, HttpServer, text

PATHS: Final = ("/livez", "/readyz", "/metrics", "/status")


class Admin(HttpServer):
    """`ready` says why the node does not serve yet, or None; `status` is any JSON; `metrics` is Prometheus text."""

    name = "admin"

    def __init__(
        self,
        status: Callable[[], dict[str, object]],
        ready: Callable[[], str | None],
        metrics: Callable[[], bytes],
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(timeout)
        self._status = status
        self._ready = ready
        self._metrics = metrics

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
        return text(HTTPStatus.NOT_FOUND, f"expected one of {', '.join(PATHS)}")
