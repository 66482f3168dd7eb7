"""`make bench`: a real cluster on loopback beside PySyncObj and a naive chain, its memory, and its Redis side.

    python bench/cluster_bench.py                              all of it, 5 s per point
    python bench/cluster_bench.py --quick --only amcast        2 s per point, one part
    python bench/cluster_bench.py --only memory --messages 5000000

A closed loop keeps so many operations of 20 bytes under way; every process is real, on the cores of one machine, and a
client is a process of its own (PySyncObj has none: its leader calls itself, in its favour). The naive chain is client →
leader → two followers → leader → client on asyncio streams, one frame and one write per message. Ratios are of figures
of one run: compare these, not the absolute values. etcd and NATS are measured where their servers are installed.
"""

import argparse
import json
import os
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import amcast
from amcast.local.files import create_cluster, free_ports
from amcast.local.processes import Processes, ask
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig

LOAD: Final = str(Path(__file__).with_name("cluster_load.py"))
OUTSTANDING: Final = (1, 64, 256, 1000)
TO_SEVERAL: Final = 200  # outstanding, to two and three groups
PARTS: Final = ("amcast", "peers", "memory", "kv")
MEMORY, DURABLE, TLS = "amcast, memory-only", "amcast, durable", "amcast, memory-only, TLS"
NAIVE, NAIVE_UVLOOP = "naive chain", "naive chain on uvloop"
STOCK, TUNED = "PySyncObj, stock", "PySyncObj, tuned"
AIMS: Final = {
    (MEMORY, 1): ("p50", 250),
    (MEMORY, 256): ("ops", 100_000),
    (MEMORY, 1000): ("ops", 300_000),
    ("amcast, 2 of 2 groups", TO_SEVERAL): ("ops", 60_000),
    ("amcast, 3 of 3 groups", TO_SEVERAL): ("ops", 30_000),
}
RATIOS: Final = {NAIVE: 10, STOCK: 20, TUNED: 5}  # aims, at 64 and more outstanding
BENCHMARK: Final = "-t set,get,incr,mset -n 20000 -c 50 -P 16 -q".split()
PATIENCE: Final = 90.0  # seconds for a line beyond what was asked to be measured

Found = dict[tuple[str, int], dict[str, Any]]
console = Console(width=140)


class Children:
    """Processes beside the nodes of a cluster; none outlives its block."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, out: int = subprocess.PIPE, **options: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, start_new_session=True, **options)
        self.running.append(child)
        return child

    def load(self, role: str, out: int = subprocess.PIPE, **arguments: object) -> subprocess.Popen[bytes]:
        return self.start(sys.executable, LOAD, role, json.dumps(arguments), out=out)

    def point(self, role: str, seconds: float, **arguments: object) -> dict[str, Any]:
        child = self.load(role, seconds=seconds, **arguments)
        assert child.stdout is not None
        result: dict[str, Any] = next_line(child.stdout.fileno(), 2 * seconds + PATIENCE)
        child.wait(10)
        return result

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *error: object) -> None:
        for child in reversed(self.running):
            child.kill()
        for child in self.running:
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def next_line(out: int, patience: float) -> Any:
    """What a child says next."""
    line = b""
    until = time.monotonic() + patience
    while not line.endswith(b"\n"):
        if not select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
            raise SystemExit(f"no result within {patience:.0f} s")
        if not (byte := os.read(out, 1)):
            raise SystemExit("a load ended without a result; see above")
        line += byte
    return json.loads(line)


# ---------------------------------------------------------------- amcast


@contextmanager
def cluster(groups: int, *, durable: bool = False, secure: bool = False, app: str = "log") -> Iterator[ClusterConfig]:
    """Nodes that run inside the block."""
    with tempfile.TemporaryDirectory(prefix="amcast-bench-") as name:
        config = create_cluster(Path(name), protocol("white_box"), groups, 3, app, secure=secure, durable=durable)
        nodes = Processes(config)
        try:
            with nodes.alone():
                for member in config.members:
                    nodes.start(member)
            wrong = {name: why for name, why in nodes.wait_until_ready(config.members, 60).items() if why is not None}
            if wrong:
                raise SystemExit(f"nodes did not start: {wrong}")
            yield config
        finally:
            nodes.stop(config.members, seconds=5 if sys.exc_info()[0] is None else 0)


def measure(children: Children, found: Found, name: str, outstanding: int, role: str, **arguments: object) -> None:
    with console.status(f"{name}, {outstanding} outstanding"):
        found[name, outstanding] = children.point(role, outstanding=outstanding, **arguments)  # type: ignore[arg-type]


def amcast_points(seconds: float) -> Found:
    found: Found = {}
    with Children() as children:
        for name, durable, secure in ((MEMORY, False, False), (TLS, False, True), (DURABLE, True, False)):
            with cluster(1, durable=durable, secure=secure) as config:
                for outstanding in OUTSTANDING:
                    to = {"config": str(config.path), "dest": [0], "seconds": seconds}
                    measure(children, found, name, outstanding, "amcast", **to)
        for groups in (2, 3):
            with cluster(groups) as config:
                to = {"config": str(config.path), "dest": list(range(groups)), "seconds": seconds}
                measure(children, found, f"amcast, {groups} of {groups} groups", TO_SEVERAL, "amcast", **to)
    return found


def fsync_ms() -> float:
    """The median of a few, in the folder where clusters are made."""
    with tempfile.NamedTemporaryFile(prefix="amcast-bench-") as file:
        taken = []
        for _ in range(20):
            os.write(file.fileno(), bytes(4096))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


# ---------------------------------------------------------------- peers


def peer_points(seconds: float) -> Found:
    found: Found = {}
    for name, on_uvloop in ((NAIVE, False), (NAIVE_UVLOOP, True)):
        with Children() as children:
            naive(children, found, name, on_uvloop, seconds)
    for name, tuned in ((STOCK, False), (TUNED, True)):
        with Children() as children:
            syncobj(children, found, name, tuned, seconds)
    for name, server, measured in (("etcd", "etcd", etcd), ("NATS", "nats-server", nats)):
        if shutil.which(server) is None:
            console.print(f"{name}: not installed (Debian: {'etcd-server' if name == 'etcd' else server})")
            continue
        with Children() as children, tempfile.TemporaryDirectory(prefix="amcast-bench-") as folder:
            measured(children, found, Path(folder), seconds)
    return found


def naive(children: Children, found: Found, name: str, on_uvloop: bool, seconds: float) -> None:
    first = free_ports(3, None)
    for role, port, more in (
        ("naive-follower", first + 1, {}),
        ("naive-follower", first + 2, {}),
        ("naive-leader", first, {"followers": [first + 1, first + 2]}),
    ):
        server = children.load(role, port=port, uvloop=on_uvloop, **more)
        assert server.stdout is not None
        next_line(server.stdout.fileno(), PATIENCE)
    for outstanding in OUTSTANDING:
        measure(
            children, found, name, outstanding, "naive-client", port=first, seconds=seconds, uvloop=on_uvloop
        )  # fmt: skip


def syncobj(children: Children, found: Found, name: str, tuned: bool, seconds: float) -> None:
    """Three processes write to one pipe: whoever leads makes the load and says what came of it."""
    first = free_ports(3, None)
    addresses = [f"127.0.0.1:{first + number}" for number in range(3)]
    out, into = os.pipe()
    try:
        for me in addresses:
            others = [address for address in addresses if address != me]
            children.load(
                "pysyncobj", into, me=me, others=others, tuned=tuned, seconds=seconds, outstanding=OUTSTANDING
            )  # fmt: skip
        os.close(into)
        for outstanding in OUTSTANDING:
            with console.status(f"{name}, {outstanding} outstanding"):
                found[name, outstanding] = next_line(out, 2 * seconds + PATIENCE)
    finally:
        os.close(out)


def etcd(children: Children, found: Found, folder: Path, seconds: float) -> None:
    """Through the HTTP gateway, to the leader; it syncs every write."""
    first = free_ports(6, None)
    peers = [f"http://127.0.0.1:{first + number}" for number in range(3)]
    clients = [f"http://127.0.0.1:{first + 3 + number}" for number in range(3)]
    everybody = ",".join(f"n{number}={url}" for number, url in enumerate(peers))
    for number in range(3):
        children.start(
            "etcd", "--name", f"n{number}", "--data-dir", str(folder / f"n{number}"),
            "--listen-peer-urls", peers[number], "--initial-advertise-peer-urls", peers[number],
            "--listen-client-urls", clients[number], "--advertise-client-urls", clients[number],
            "--initial-cluster", everybody, "--log-level", "error", stderr=subprocess.DEVNULL,
        )  # fmt: skip
    port = etcd_leader(list(range(first + 3, first + 6)))
    for outstanding in OUTSTANDING:
        measure(children, found, "etcd, durable, HTTP gateway", outstanding, "etcd", port=port, seconds=seconds)


def etcd_leader(ports: list[int]) -> int:
    from urllib.request import Request, urlopen

    until = time.monotonic() + 30
    while time.monotonic() < until:
        for port in ports:
            with suppress(OSError, KeyError):
                asked = Request(f"http://127.0.0.1:{port}/v3/maintenance/status", b"{}")
                with urlopen(asked, timeout=2) as answer:
                    status = json.load(answer)
                if status["leader"] == status["header"]["member_id"]:
                    return port
        time.sleep(0.2)
    raise SystemExit("etcd: no leader within 30 s")


def nats(children: Children, found: Found, folder: Path, seconds: float) -> None:
    """A JetStream stream of three replicas in memory; publications are acknowledged."""
    first = free_ports(6, None)
    routes = ",".join(f"nats://127.0.0.1:{first + 3 + number}" for number in range(3))
    for number in range(3):
        children.start(
            "nats-server", "-a", "127.0.0.1", "-p", str(first + number), "-n", f"n{number}", "-js",
            "-sd", str(folder / f"n{number}"), "--cluster_name", "bench", "--routes", routes,
            "--cluster", f"nats://127.0.0.1:{first + 3 + number}", stderr=subprocess.DEVNULL,
        )  # fmt: skip
    wait_for_port(first)
    for outstanding in OUTSTANDING:
        measure(children, found, "NATS JetStream, memory", outstanding, "nats", port=first, seconds=seconds)


def wait_for_port(port: int) -> None:
    import socket

    until = time.monotonic() + 30
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port} after 30 s")


# ---------------------------------------------------------------- what came out


def points_table(found: Found, compiled: bool) -> Table:
    modes = {point.get("compiled", compiled) for point in found.values()} | {compiled}
    mode = "COMPILED ONLY FOR A PART OF THE RUN" if len(modes) > 1 else "compiled" if compiled else "interpreted"
    title = f"closed loop, 20 bytes, 3 replicas, {os.cpu_count()} cores (amcast {mode}; fdatasync {fsync_ms():.1f} ms)"
    table = Table(title=title)
    for column in ("system", "outstanding", "ops/s", "p50 µs", "p99 µs", "aim or note"):
        table.add_column(column, justify="left" if column in ("system", "aim or note") else "right")
    before = ""
    for (name, outstanding), point in found.items():
        if before not in ("", name):
            table.add_section()
        before = name
        aim = str(point.get("note", ""))
        if (name, outstanding) in AIMS:
            what, wanted = AIMS[name, outstanding]
            met = point["ops"] >= wanted if what == "ops" else point["p50"] < wanted
            aim = f"{wanted:,} ops/s" if what == "ops" else f"p50 < {wanted} µs"
            aim += ": met" if met else ": MISSED"
        figures = [f"{point[key]:,.0f}" for key in ("ops", "p50", "p99")]
        table.add_row(name, f"{outstanding:,}", *figures, aim)
    return table


def ratios_table(found: Found) -> Table:
    table = Table(title="amcast, memory-only, to each peer: ratios of ops/s (aim)")
    peers = list(dict.fromkeys(name for name, _ in found if not name.startswith("amcast")))
    for column in ("outstanding", *peers):
        table.add_column(column, justify="right")
    for outstanding in OUTSTANDING:
        cells = []
        for peer in peers:
            ratio = found[MEMORY, outstanding]["ops"] / found[peer, outstanding]["ops"]
            aim = RATIOS.get(peer) if outstanding >= 64 else None
            verdict = "" if aim is None else f" ({aim}×: {'met' if ratio >= aim else 'MISSED'})"
            cells.append(f"{ratio:.1f}×{verdict}")
        table.add_row(f"{outstanding:,}", *cells)
    return table


# ---------------------------------------------------------------- memory of a node


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def memory_table(messages: int, steps: int = 5) -> Table:
    """Of each node, after every fifth of one client's multicasts."""
    table = Table(
        title=f"resident MB of each node over {messages:,} multicasts, 256 outstanding, memory-only",
        caption="a node keeps the newest 16 MB of rows for readers: full after some 250,000 multicasts",
        min_width=90,
    )
    with cluster(1) as config, Children() as children:
        pids = {}
        for member in config.members:
            answer = ask(member.admin, "/status")
            assert answer is not None
            pids[member.name] = int(json.loads(answer[1])["pid"])
        for column in ("multicasts", *pids, "s"):
            table.add_column(column, justify="right")
        start = time.monotonic()
        table.add_row("0", *[f"{resident_mb(pid):.1f}" for pid in pids.values()], "0")
        to = {"config": str(config.path), "dest": [0], "outstanding": 256}
        child = children.load("amcast", count=messages, parts=steps, **to)
        assert child.stdout is not None
        for _ in range(steps):
            with console.status(f"memory over {messages:,} multicasts"):
                number = next_line(child.stdout.fileno(), PATIENCE + messages / 1000)
            now = [resident_mb(pid) for pid in pids.values()]
            table.add_row(f"{number:,}", *[f"{mb:.1f}" for mb in now], f"{time.monotonic() - start:.0f}")
        child.wait(10)
    return table


# ---------------------------------------------------------------- the Redis-speaking store


def kv_table() -> Table | None:
    if shutil.which("redis-benchmark") is None:
        console.print("redis-benchmark: not installed (Debian: redis-tools)")
        return None
    table = Table(title=f"amcast kv, 3 groups of 3: redis-benchmark {' '.join(BENCHMARK)}")
    table.add_column("cluster")
    columns = False
    kinds = (("memory-only", False, False), ("durable", True, False), ("durable, TLS", True, True))
    for name, durable, secure in kinds:
        with cluster(3, durable=durable, secure=secure, app="kv") as config, Children() as children:
            port = free_ports(1, None)
            gateway = children.start(
                sys.executable, "-P", "-m", "amcast", "kv", str(config.path), "--port", str(port)
            )  # fmt: skip
            assert gateway.stdout is not None
            gateway.stdout.readline()  # it listens
            with console.status(f"redis-benchmark, {name}"):
                rates = redis_benchmark(children, port)
        if not columns:
            for command in rates:
                table.add_column(f"{command.split()[0]} ops/s", justify="right")
            columns = True
        table.add_row(name, *[f"{ops:,.0f} (p50 {p50:.0f} ms)" for ops, p50 in rates.values()])
    return table


def redis_benchmark(children: Children, port: int) -> dict[str, tuple[float, float]]:
    child = children.start("redis-benchmark", "-p", str(port), *BENCHMARK, stderr=subprocess.STDOUT)
    out = child.communicate(timeout=600)[0].decode(errors="replace")
    lines = [line for line in re.split(r"[\r\n]+", out) if "requests per second" in line]
    if child.returncode or not lines:
        raise SystemExit(f"redis-benchmark failed: {out[-500:]}")
    found = [re.match(r"(.+?): ([\d.]+) requests per second, p50=([\d.]+)", line) for line in lines]
    return {match[1]: (float(match[2]), float(match[3])) for match in found if match is not None}


def stop(number: int, stack: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    parser = argparse.ArgumentParser(description="a real cluster on loopback, beside peers")
    parser.add_argument("--seconds", type=float, default=5, help="per point")
    parser.add_argument("--quick", action="store_true", help="2 seconds per point")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--messages", type=int, default=200_000, help="multicasts of the memory part")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    seconds = 2 if options.quick else options.seconds
    parts = PARTS if options.only is None else (options.only,)
    found: Found = {}
    compiled = amcast.compiled()
    try:
        if "amcast" in parts:
            found |= amcast_points(seconds)
        if "peers" in parts:
            found |= peer_points(seconds)
        if found:
            console.print(points_table(found, compiled))
        if "amcast" in parts and "peers" in parts:
            console.print(ratios_table(found))
        if "memory" in parts:
            console.print(memory_table(options.messages))
        if "kv" in parts and (table := kv_table()) is not None:
            console.print(table)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None


if __name__ == "__main__":
    main()
