"""`make bench`: verification of one large run in memory and on Spark, beside DuckDB on the same trace.

    python bench/verify_bench.py             833,334 multicasts to 2 of 10 groups of 3: 5 million deliveries
    python bench/verify_bench.py --more      and 20 and 60 million, to see how time and memory grow
    python bench/verify_bench.py --planted   violations hidden in 5 million deliveries must be found

Traces are made with numpy and not simulated: all groups deliver in the order of the messages' numbers, so that every
property holds until a violation is planted. Each measurement runs in a process of its own. What counts is CPU seconds,
user and system, of all processes: the whole command (cold) and, on Spark, the same job once more in the same session
(warm). Judged are the default properties and fifo; with --black-box all but optimistic, without a look at `ts`.

DuckDB runs `verify_duckdb.py`. amcast does not depend on it: the Python in BENCH_DUCKDB must have it, else it is left
out, and the table says so.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from amcast.tracefile.schema import FILE_SCHEMA

MESSAGES = 833_334
PROPERTIES = "integrity validity order agreement agreement-nonuniform termination fifo causal genuine".split()
USUAL = "integrity validity order agreement termination fifo".split()
IN_FLIGHT = 200  # a replica multicasts message i when it has delivered what it must of the messages up to i - IN_FLIGHT
SLOTS = 4  # of time per message, so that an event can be put between others
ROWS_PER_GROUP = 131_072


class MadeTrace:
    """A run of `messages` multicasts, each to two groups, by clients and (one in ten) by replicas."""

    def __init__(
        self, messages: int, *, groups: int = 10, replicas: int = 3, clients: int = 100, seed: int = 1, ts: bool = True
    ) -> None:
        random = np.random.default_rng(seed)
        self.messages, self.groups, self.replicas, self.clients, self.ts = messages, groups, replicas, clients, ts
        self.members = groups * replicas
        first = random.integers(0, groups, messages)
        second = (first + random.integers(1, groups, messages)) % groups
        self.dest = np.sort(np.stack([first, second], axis=1), axis=1)
        self.sender = self.members + random.integers(0, clients, messages)
        by_replica = random.random(messages) < 0.1
        self.sender[by_replica] = random.integers(0, self.members, int(by_replica.sum()))
        self.multicast_slot = SLOTS * np.arange(messages, dtype=np.int64)
        self.swapped: dict[int, list[tuple[int, int]]] = {}  # group -> pairs that it delivers in the other order
        self.dropped: dict[int, list[int]] = {}  # process -> messages that it never delivers
        self.repeated: dict[int, list[int]] = {}  # process -> messages that it delivers again, a little later
        self.strangers: list[tuple[int, int]] = []  # a process that sends something about a message

    # -- planting

    def set_message(self, number: int, sender: int, *dest: int) -> None:
        self.sender[number] = sender
        self.dest[number] = sorted(dest)

    def client_sends_around(self, number: int, distance: int = 3 * IN_FLIGHT) -> None:
        """No replica multicasts near this message, so that what is planted there has no side effects."""
        near = slice(max(0, number - distance), number + distance)
        is_replica = self.sender[near] < self.members
        self.sender[near][is_replica] = self.members + np.arange(int(is_replica.sum())) % self.clients

    def plant_duplicate(self, number: int) -> None:
        self.repeated.setdefault(self._replica(number), []).append(number)

    def plant_gap(self, number: int) -> None:
        self.dropped.setdefault(self._replica(number), []).append(number)

    def plant_three_group_cycle(self, number: int) -> None:
        """a < b in group 1, b < c in group 2, c < a in group 0, and no two groups disagree on two messages."""
        for offset, dest in enumerate([(0, 1), (1, 2), (0, 2)]):
            self.set_message(number + offset, self.members + offset, *dest)
        self.swapped.setdefault(0, []).append((number, number + 2))

    def plant_late_fifo(self, number: int) -> None:
        """One client multicasts the second message before the first, which the groups deliver in their order."""
        self.set_message(number, self.members, 3, 4)
        self.set_message(number + 1, self.members, 3, 4)
        slots = self.multicast_slot
        slots[number], slots[number + 1] = slots[number + 1], slots[number]

    def plant_causal_chain(self, number: int) -> None:
        """The last message is delivered by a replica of group 1, which then multicasts the first; that is delivered by
        a replica of group 2, which then multicasts the second; group 0 delivers the second before the last."""
        self.client_sends_around(number)
        self.set_message(number, self.replicas * 1, 2, 3)
        self.set_message(number + 1, self.replicas * 2, 0, 3)
        self.set_message(number + 2, self.members, 0, 1)
        self.multicast_slot[number] = SLOTS * (number + 2 + IN_FLIGHT) + 1
        self.multicast_slot[number + 1] = SLOTS * (number + IN_FLIGHT) + 1

    def plant_stranger(self, number: int) -> None:
        outside = next(group for group in range(self.groups) if group not in self.dest[number])
        self.strangers.append((outside * self.replicas, number))

    def _replica(self, number: int) -> int:
        return int(self.dest[number][0]) * self.replicas + 1

    # -- writing

    def process_name(self, process: int) -> str:
        if process >= self.members:
            return f"c{process - self.members}"
        return f"g{process // self.replicas}/{process % self.replicas}"

    def message_name(self, number: int) -> str:
        return f"{self.process_name(int(self.sender[number]))}:{number}"

    def write(self, folder: Path) -> None:
        processes = pa.array([self.process_name(process) for process in range(self.members + self.clients)])
        numbers = pa.array(np.arange(self.messages))
        self._names = pc.binary_join_element_wise(processes.take(pa.array(self.sender)), numbers.cast("string"), ":")
        self._multicast_seq = np.empty(self.messages, dtype=np.int64)
        for group in range(self.groups):
            sequence = self._sequence(group)
            for process in range(group * self.replicas, (group + 1) * self.replicas):
                self._write_deliveries(folder, process, sequence)
        for process in range(self.members, self.members + self.clients):
            mine = np.flatnonzero(self.sender == process)
            mine = mine[np.argsort(self.multicast_slot[mine], kind="stable")]
            self._multicast_seq[mine] = np.arange(1, len(mine) + 1)
        self._write_multicasts(folder, processes)
        self._write_sends(folder, processes)
        names = [self.process_name(process) for process in range(self.members)]
        groups = [name.split("/")[0] for name in names]
        self._write(
            folder, "start", "part-0", process=pa.array(names), group=pa.array(groups), seq=np.zeros(len(names))
        )
        self._write(folder, "end", "part-0", process=pa.array(["driver"]), seq=np.zeros(1))

    def _sequence(self, group: int) -> np.ndarray:
        sequence = np.flatnonzero((self.dest == group).any(axis=1))
        for one, other in self.swapped.get(group, ()):
            places = np.searchsorted(sequence, [one, other])
            sequence[places] = sequence[places[::-1]]
        return sequence

    def _write_deliveries(self, folder: Path, process: int, sequence: np.ndarray) -> None:
        slots = SLOTS * (np.sort(sequence) + IN_FLIGHT)
        if process in self.dropped:
            kept = ~np.isin(sequence, self.dropped[process])
            sequence, slots = sequence[kept], slots[kept]
        for number in self.repeated.get(process, ()):
            place = int(np.flatnonzero(sequence == number)[0]) + 3
            sequence, slots = np.insert(sequence, place, number), np.insert(slots, place, slots[place])
        mine = np.flatnonzero(self.sender == process)
        every_slot = np.concatenate([slots, self.multicast_slot[mine]])
        seq = np.empty(len(every_slot), dtype=np.int64)
        seq[np.argsort(every_slot, kind="stable")] = np.arange(1, len(every_slot) + 1)
        self._multicast_seq[mine] = seq[len(slots) :]
        name = self.process_name(process)
        columns: dict[str, object] = {
            "process": pa.array([name]).take(pa.array(np.zeros(len(slots), dtype=np.int32))),
            "group": pa.array([name.split("/")[0]]).take(pa.array(np.zeros(len(slots), dtype=np.int32))),
            "seq": seq[: len(slots)],
            "time": slots * 1000,
            "message": self._names.take(pa.array(sequence)),
        }
        if self.ts:
            times = np.maximum.accumulate(sequence) if process in self.repeated else sequence
            ties = pa.array(["g"]).take(pa.array(np.zeros(len(slots), dtype=np.int32)))
            columns["ts"] = pa.StructArray.from_arrays([pa.array(times.astype(np.int64)), ties], ["time", "tie"])
        self._write(folder, "deliver", name.replace("/", "-"), **columns)

    def _write_multicasts(self, folder: Path, processes: pa.Array) -> None:
        by_time = np.argsort(self.multicast_slot, kind="stable")
        senders = processes.take(pa.array(self.sender[by_time]))
        names = pa.array([f"g{group}" for group in range(self.groups)])
        groups = names.take(pa.array(np.minimum(self.sender[by_time] // self.replicas, self.groups - 1)))
        is_replica = pa.array(self.sender[by_time] < self.members)
        dest = names.take(pa.array(self.dest[by_time].reshape(-1)))
        offsets = pa.array(np.arange(0, 2 * self.messages + 1, 2, dtype=np.int32))
        self._write(
            folder, "multicast", "part-0", process=senders, sender=senders,
            group=pc.if_else(is_replica, groups, None), seq=self._multicast_seq[by_time],
            time=self.multicast_slot[by_time] * 1000, message=self._names.take(pa.array(by_time)),
            dest=pa.ListArray.from_arrays(offsets, dest),
        )  # fmt: skip

    def _write_sends(self, folder: Path, processes: pa.Array) -> None:
        """One row for each message, to the first replica of its first group; `seq` is not looked at in these rows."""
        numbers = np.concatenate([np.arange(self.messages), np.array([m for _, m in self.strangers], dtype=np.int64)])
        senders = np.concatenate([self.sender, np.array([p for p, _ in self.strangers], dtype=np.int64)])
        offsets = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
        self._write(
            folder, "send", "part-0", process=processes.take(pa.array(senders)), seq=np.arange(len(numbers)),
            peer=processes.take(pa.array(self.dest[numbers, 0] * self.replicas)),
            about=pa.ListArray.from_arrays(offsets, self._names.take(pa.array(numbers))),
        )  # fmt: skip

    def _write(self, folder: Path, kind: str, part: str, **columns: object) -> None:
        rows = len(columns["process"])  # type: ignore[arg-type]
        columns["run"] = pa.array(["r"]).take(pa.array(np.zeros(rows, dtype=np.int32)))
        arrays = [
            pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in FILE_SCHEMA
        ]
        path = folder / f"kind={kind}" / f"{part}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_arrays(arrays, schema=FILE_SCHEMA)
        pq.write_table(table, path, compression="zstd", compression_level=1, row_group_size=ROWS_PER_GROUP)


# ---------------------------------------------------------------- planted violations


def planted(messages: int, ts: bool = True) -> list[tuple[MadeTrace, dict[str, set[str]]]]:
    """Two runs with violations, and for each property that they break the messages that a counter-example must name."""
    first = MadeTrace(messages, ts=ts)
    places = {
        name: messages * tenth // 10 for tenth, name in ((1, "twice"), (3, "cycle"), (5, "chain"), (7, "stranger"))
    }
    first.plant_duplicate(places["twice"])
    first.plant_three_group_cycle(places["cycle"])
    first.plant_causal_chain(places["chain"])
    first.plant_stranger(places["stranger"])
    second = MadeTrace(messages, seed=2, ts=ts)
    gap, late = messages // 3, messages * 2 // 3
    second.plant_gap(gap)
    second.plant_late_fifo(late)

    def names(trace: MadeTrace, start: int, count: int) -> set[str]:
        return {trace.message_name(number) for number in range(start, start + count)}

    return [
        (
            first,
            {
                "integrity": names(first, places["twice"], 1),
                "order": names(first, places["cycle"], 3),
                "causal": names(first, places["chain"], 3),
                "genuine": names(first, places["stranger"], 1),
            },
        ),
        (
            second,
            {
                "order": names(second, gap, 1),
                "agreement": names(second, gap, 1),
                "agreement-nonuniform": names(second, gap, 1),
                "termination": names(second, gap, 1),
                "fifo": names(second, late, 2),
                "causal": names(second, late, 2),
            },
        ),
    ]


def hunt(messages: int) -> bool:
    """Whether the Spark engine finds all that was planted, and nothing else."""
    table = Table(title=f"violations planted among {6 * messages:,} deliveries")
    for column in ("property", "verdict", "messages in the counter-example", "as planted"):
        table.add_column(column)
    all_found = True
    for trace, expected in planted(messages):
        with tempfile.TemporaryDirectory(prefix="amcast-bench-") as folder:
            trace.write(Path(folder) / "trace")
            found = measured("spark", Path(folder) / "trace")
        for name, verdict in found["verdicts"].items():
            seen = {row["message"] for row in verdict["counterexample"] if "message" in row}
            right = expected.get(name, set()) <= seen and (verdict["status"] == "violated") == (name in expected)
            all_found &= right
            table.add_row(name, verdict["status"], ", ".join(sorted(seen)), "yes" if right else "NO")
        table.add_section()
    Console().print(table)
    return all_found


# ---------------------------------------------------------------- measurements


def measured(engine: str, trace: Path, black_box: bool = True) -> dict[str, object]:
    """What `measure` prints in a process of its own."""
    command = [sys.executable, __file__, "--measure", engine, str(trace), "black box" if black_box else "usual"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure(engine: str, trace: str, how: str) -> None:
    asked = {"trust_nothing": True} if how == "black box" else {}
    properties = PROPERTIES if asked else USUAL
    again = None
    if engine == "memory":
        from amcast.verify import verify_trace as verify_here

        start = time.perf_counter()
        verdicts = verify_here(trace, properties, **asked)
        seconds = time.perf_counter() - start
        cpu = cpu_of(os.getpid())
        mb = peak_mb(os.getpid())
    else:
        from amcast.spark.session import open_session
        from amcast.spark.verify import verify_trace

        with open_session("amcast verify bench", master="local[2,3]", brief=True) as spark:
            start = time.perf_counter()
            verdicts = verify_trace(spark, trace, properties, **asked)
            seconds = time.perf_counter() - start
            jvm = spark.sparkContext._gateway.proc.pid
            cpu = cpu_of(os.getpid())  # Spark kills its workers at the end, and nobody counts what they used
            if engine == "spark twice":
                verify_trace(spark, trace, properties, **asked)
                again = cpu_of(os.getpid()) - cpu
            mb = sum(peak_mb(process) for process in (os.getpid(), *below(jvm)))
    document = {
        "seconds": seconds,
        "cpu": cpu,
        "again": again,
        "mb": mb,
        "verdicts": {verdict.property: verdict.as_dict() for verdict in verdicts},
    }
    print(json.dumps(document))


def below(process: int) -> list[int]:
    """The process and all that it started, and these in turn."""
    children = Path(f"/proc/{process}/task")
    found = [process]
    for task in children.iterdir():
        with suppress(OSError):  # a thread that has ended
            for child in (task / "children").read_text().split():
                found += below(int(child))
    return found


def cpu_of(process: int) -> float:
    """CPU seconds of a process and of all below it, those that ended included."""
    ticks = 0
    for one in below(process):
        ticks += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mb(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


def by_duckdb(trace: Path) -> dict[str, object] | None:
    """CPU seconds and memory of DuckDB; None where it is not installed."""
    python = os.environ.get("BENCH_DUCKDB", sys.executable)
    command = [python, str(Path(__file__).with_name("verify_duckdb.py")), str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named 'duckdb'" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not any(found["found"].values()), found
    return found


def compare(sizes: list[int], black_box: bool) -> None:
    """Measure all engines on traces of these numbers of multicasts."""
    what = "all properties but optimistic, without ts" if black_box else "default properties and fifo"
    table = Table(title=f"verification: {what}, 2 cores")
    for column in ("deliveries", "engine", "seconds", "CPU s", "to DuckDB", "peak MB"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for messages in sizes:
        with tempfile.TemporaryDirectory(prefix="amcast-bench-") as folder:
            trace = Path(folder) / "trace"
            MadeTrace(messages).write(trace)
            duck = None if black_box else by_duckdb(trace)
            found = {engine: measured(engine, trace, black_box) for engine in ("memory", "spark twice")}
        if duck is None:
            table.add_row(f"{6 * messages:,}", "DuckDB: left out" if black_box else "DuckDB: not installed")
        else:
            table.add_row(f"{6 * messages:,}", "DuckDB", "", f"{duck['cpu']:.1f}", "1.00", f"{duck['mb']:,}")
        for engine, of in found.items():
            assert all(verdict["status"] == "ok" for verdict in of["verdicts"].values()), of["verdicts"]
            name = "memory" if engine == "memory" else "Spark, cold"
            rows = [(name, f"{of['seconds']:.1f}", of["cpu"], f"{of['mb']:,}")]
            if of["again"] is not None:
                rows.append(("Spark, warm", "", of["again"], ""))
            for label, seconds, cpu, mb in rows:
                ratio = "" if duck is None else f"{cpu / duck['cpu']:.2f}"
                table.add_row(f"{6 * messages:,}", label, seconds, f"{cpu:.1f}", ratio, mb)
        table.add_section()
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description="verification in memory and on Spark, beside DuckDB")
    parser.add_argument("--more", action="store_true", help="20 and 60 million deliveries as well (minutes)")
    parser.add_argument("--planted", action="store_true", help="find what is planted in 5 million deliveries")
    parser.add_argument("--black-box", action="store_true", help="all properties, without a look at timestamps")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"multicasts (default: {MESSAGES:,})")
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "TRACE", "HOW"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(*asked.measure)
        return 0
    if asked.planted:
        return 0 if hunt(asked.messages) else 1
    compare([asked.messages * times for times in ((1, 4, 12) if asked.more else (1,))], asked.black_box)
    return 0


if __name__ == "__main__":
    sys.exit(main())
