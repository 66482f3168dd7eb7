"""Slots of the store move between the groups of a running cluster, under load: nobody notices but by latency."""

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amcast.apps.kv import rebalancing
from amcast.apps.kv.gateway import Gateway
from amcast.local.compare import compare
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.service import connect
from amcast.swarm.cluster.load.resp import reply_from, request
from tests.chaos.test_rolling import percentile
from tests.pace import allow

USERS = 8


@dataclass
class Load:
    """What users did, and whether the store did it."""

    counters: Counter[str] = field(default_factory=Counter)
    values: dict[str, str] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def use(self, port: int, number: int, over: threading.Event) -> None:
        """INCR what all share; MSET and GET over all groups what is this user's."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        chance = random.Random(number)

        async def ask(*words: str) -> object:
            began = time.monotonic()
            writer.write(request([word.encode() for word in words]))
            reply = await reply_from(reader)
            self.took.append(time.monotonic() - began)
            return reply

        turn = 0
        while not over.is_set():
            turn += 1
            counter = f"c{chance.randrange(300)}"
            reply = await ask("INCR", counter)
            self.counters[counter] += 1
            names = [f"u{number}-{n}" for n in chance.sample(range(200), 3)]
            said = await ask("MSET", *(word for name in names for word in (name, str(turn))))
            self.values.update(dict.fromkeys(names, str(turn)))
            found = await ask("GET", names[0])
            if not isinstance(reply, int) or said != "OK" or found != str(turn).encode():
                self.wrong.append(f"{counter}: {reply}, MSET: {said}, GET: {found!r}, expected {turn}")
        writer.close()

    async def look(self, port: int) -> None:
        """Read everything: what was acknowledged must be there, once."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for name, value in [*self.values.items(), *((name, str(n)) for name, n in self.counters.items())]:
            writer.write(request([b"GET", name.encode()]))
            found = await reply_from(reader)
            if found != value.encode():
                self.wrong.append(f"{name}: {found!r}, expected {value}")
        writer.close()


async def serve(trial: Trial, load: Load, over: threading.Event) -> None:
    async with connect(trial.config.path) as client:
        gateway = Gateway(client, two_rounds=True)
        port = await gateway.listen("127.0.0.1", 0)
        await asyncio.gather(*[load.use(port, number, over) for number in range(USERS)])
        await load.look(port)
        await gateway.close()


def moved_under_load(tmp_path: Path, quarter: int) -> None:
    trial = Trial(tmp_path / "cluster", groups=3, secure=False, app="kv")
    load, over = Load(), threading.Event()
    with trial:
        serving = threading.Thread(target=lambda: asyncio.run(serve(trial, load, over)))
        serving.start()
        time.sleep(1.0)
        before = len(load.took)
        command = [sys.executable, "-m", "amcast", "cluster", "rebalance", str(trial.config.path.parent)]
        share = 16384 // 3
        onto = [*command, "--onto", "g2", "--slots", str(share + quarter)]
        done = subprocess.run(onto, capture_output=True, text=True)
        during = load.took[before:]
        assert done.returncode == 0 and f"g2: {share + quarter} slots" in done.stdout, done
        stopped = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        stopped.kill()
        stopped.wait()
        again = subprocess.run(command, capture_output=True, text=True)
        over.set()
        serving.join()
        assert again.returncode == 0 and again.stdout.count("5461 slots") == 2, again
        assert trial.wait_until_level(), trial.not_level
        found = compare(trial.config, protocol(trial.config.protocol), allow(20.0))
        assert {one.status for one in found} == {"ok"}, "; ".join(one.line for one in found)
    for name, took in (("before", load.took[:before]), ("while slots moved", during)):
        shown = ", ".join(f"p{percent} {1000 * percentile(took, percent):.0f} ms" for percent in (50, 99, 100))
        print(f"{name}: {len(took)} calls, {shown}")
    assert len(during) > 20 and not load.wrong, load.wrong[:5]
    assert not serving.is_alive() and rebalancing.LARGEST_STEP < quarter


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_quarter_of_the_slots_moves_under_load(tmp_path: Path) -> None:
    moved_under_load(tmp_path, 4096)
