"""Guards: a replica takes no request whose time is far ahead of its clock, and judges nothing that is delivered."""

import time
from pathlib import Path

import pytest
from nodes import cluster, running

from amcast.apps.kv.machine import KV
from amcast.apps.kv.wire import Done, Execute, StoreRequest, decode_answers, encode
from amcast.core.application import Delivery
from amcast.errors import MulticastFailed
from amcast.service import connect_sync

DAYS_400 = 400 * 86_400 * 1000  # milliseconds


def store_request(line: str, off_by: int) -> bytes:
    return encode(StoreRequest(time.time_ns() // 1_000_000 + off_by, [Execute([line.encode().split()])]))


def test_requests_from_the_future_are_refused(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2, replicas=1)
    with running(config, app=KV), connect_sync(config.path, "dev") as client:

        def said(line: str, off_by: int = 0, deadline: float | None = None) -> object:
            answers = client.multicast(["g0"], store_request(line, off_by), deadline)
            (answer,) = decode_answers(answers["g0"])
            assert isinstance(answer, Done)
            return answer.value[0]

        async def batch(payloads: list[bytes]) -> None:
            await client._client.submit_batch((0,), payloads, 0.3)

        assert said("SET a 1 EX 1000") == "OK"
        reason = r"its time is 345600\d\d s ahead of g[01]/0, expected at most 60; set the clocks"
        with pytest.raises(MulticastFailed, match=reason):
            said("GET a", DAYS_400, deadline=0.3)
        with pytest.raises(MulticastFailed, match=reason):
            both = store_request("GET a", DAYS_400)
            client.multicast(["g0", "g1"], both, 0.3)
        with pytest.raises(MulticastFailed, match=reason):
            client._run(batch([store_request("GET a", DAYS_400)] * 3))
        assert said("TTL a") in range(900, 1001)
        assert said("SET b 1 EX 1000", -DAYS_400) == "OK", "a clock that is behind changes nothing"
        assert said("TTL b") in range(900, 1001)
        assert said("GET a", 50_000) == b"1", "clocks may differ a little"


def test_what_is_delivered_is_not_judged() -> None:
    """Replicas have different clocks, and must do the same."""
    kv = KV(0, 1)
    kv.apply(Delivery("g0", 0, (1, "g0"), "c:1", "c", ("g0",), store_request("GET a", DAYS_400)))
    assert kv.clock > time.time_ns() // 1_000_000 + DAYS_400 - 10_000
