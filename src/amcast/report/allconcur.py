"""What the figures of the AllConcur+ paper show: rows for the CSV and for the claims, and the picture."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from amcast.places import Place
from amcast.protocols.allconcur.digraphs import diameter, is_connected, least_degree, reliable_digraph
from amcast.report import drawing
from amcast.report.figure import Figure
from amcast.sim.network import MILLISECOND, SECOND
from amcast.spark.recovery import deliveries_at
from amcast.spark.tables import read_trace

if TYPE_CHECKING:
    from amcast.spark.session import SparkSession

UNRELIABLE_ROUNDS: Final = (3, 5, 10, 20, 50)  # λ
DIGRAPH_SCHEMA: Final = "servers int, degree int, connectivity int, diameter int"
POINT: Final = ("status", "own_ms_p50", "own_ms_p95", "own_samples", "transactions_per_second", "virtual_ms", "events")

Rows = Sequence[Mapping[str, Any]]
Drawn = tuple[Rows, Mapping[str, Rows]]  # what is drawn; what claims are measured on, by the name of their sweep


def draw_runs(session: "SparkSession", figure: Figure, folder: Place, runs: Mapping[str, Rows]) -> Drawn:
    """Draw columns of the runs of all sweeps, such as Figures 3 and 4."""
    plot = figure.plot
    config = ("network", "protocol", "replicas", "rounds", "batch", "payload", "seed")
    columns = dict.fromkeys((*config, *POINT, plot.x, *plot.line, *plot.ys))
    rows = [{name: row[name] for name in columns} for of_sweep in runs.values() for row in of_sweep]
    protocols = protocols_of(figure)
    rows.sort(key=lambda row: (row["network"], protocols.index(row["protocol"]), row["replicas"], row["batch"]))
    rows.sort(key=lambda row: row[plot.x])
    drawing.draw_grid(folder, figure, rows)
    return rows, runs


def protocols_of(figure: Figure) -> list[str]:
    """Return the protocols in the order in which the figure's file names them."""
    axes = (spec.axes["protocol"] for spec in figure.sweeps.values())
    return list(dict.fromkeys(name for axis in axes if isinstance(axis, tuple) for name in axis))


# Figure 6


def draw_estimates(session: "SparkSession", figure: Figure, folder: Place, runs: Mapping[str, Rows]) -> Drawn:
    """Draw the formulas of §V-B, with the measured durations of rounds.

    δ_u is half the latency of AllConcur+, δ_r that of AllConcur. Ratios are to AllConcur. The printed latency averages
    over λ rounds, of which one is counted twice; `latency_ratio_per_message` is that of a message.
    """
    found = {(row["protocol"], row["replicas"]): row for rows in runs.values() for row in rows}
    rows: list[dict[str, Any]] = []
    for n in sorted({n for _, n in found}):
        plus, base = found["allconcur_plus", n], found["allconcur", n]
        if plus["own_ms_p50"] is not None and base["own_ms_p50"] is not None:
            rows += estimates(n, plus, base)
    drawing.draw_grid(folder, figure, rows)
    return rows, {"estimates": rows}


def estimates(n: int, plus: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    u, r = plus["own_ms_p50"] / 2, base["own_ms_p50"]
    known = {"servers": n, "unreliable_ms": u, "reliable_ms": r}
    worst = (3 * u + 2 * r) / r
    scenarios = [("wc", worst, worst, r / (2 * u + r))]
    for length in UNRELIABLE_ROUNDS:
        printed, per_message = ((2 * u + (u + 2 * r) / count) / r for count in (length, length - 1))
        scenarios.append((f"λ={length}", printed, per_message, r * (1 - 1 / length) / (u + r / length)))
    measured = plus["transactions_per_second"] / base["transactions_per_second"]
    scenarios.append(("nf", 2 * u / r, 2 * u / r, measured))
    for scenario, printed, per_message, throughput in scenarios:
        yield {
            **known,
            "scenario": scenario,
            "latency_ratio": printed,
            "latency_ratio_per_message": per_message,
            "throughput_ratio": throughput,
        }


# Figure 5


def draw_rates(session: "SparkSession", figure: Figure, folder: Place, runs: Mapping[str, Rows]) -> Drawn:
    """Draw what one server delivers over time, by the round."""
    protocols = protocols_of(figure)
    rows: list[dict[str, Any]] = []
    totals: list[dict[str, Any]] = []
    failures: set[float] = set()
    for name, of_sweep in runs.items():
        trace = read_trace(session, str((folder / name / "trace").absolute()))
        failures |= {row["time"] / SECOND for row in trace.where("kind = 'crash'").select("time").collect()}
        moments = deliveries_at(trace, figure.plot.at).collect()
        for run in sorted(of_sweep, key=lambda run: protocols.index(run["protocol"])):
            here = [
                {
                    "run": run["run"],
                    "protocol": run["protocol"],
                    "time_s": moment["time"] / SECOND,
                    "pause_ms": moment["pause"] / MILLISECOND,
                    "transactions": run["batch"] * moment["deliveries"],
                    "transactions_per_second": run["batch"] * moment["deliveries"] * SECOND / moment["pause"],
                }
                for moment in moments
                if moment["run"] == run["run"] and moment["time"] <= run["duration_ns"]
            ]
            rows += here
            totals += [{**run, **total_of(here, run["duration_ns"] / SECOND)}] if here else []
    drawing.draw_rates(folder, figure, rows, sorted(failures))
    return rows, {"rates": totals}


def total_of(rounds: Rows, seconds: float) -> dict[str, float]:
    """Sum up a whole run. The median is over rounds."""
    return {
        "mean_rate": sum(row["transactions"] for row in rounds) / seconds,
        "median_rate": median(row["transactions_per_second"] for row in rounds),
        "longest_pause_ms": max(row["pause_ms"] for row in rounds),
    }


# Table II


def draw_digraphs(session: "SparkSession", figure: Figure, folder: Place, runs: Mapping[str, Rows]) -> Drawn:
    """Draw the properties of the reliable digraph of so many servers, a row each."""
    servers = pa.table({"servers": pa.array(figure.digraphs, pa.int32())})
    frame = session.createDataFrame(servers).repartition(len(figure.digraphs))
    rows = [row.asDict() for row in frame.mapInArrow(digraph_batches, DIGRAPH_SCHEMA).orderBy("servers").collect()]
    columns = [{**row, "servers": str(row["servers"])} for row in rows]  # one beside the other, as in the table
    drawing.draw_grid(folder, figure, columns)
    return rows, {"digraphs": rows}


def digraph_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [digraph_row(n) for n in batch.column("servers").to_pylist()]
        if found:
            yield pa.RecordBatch.from_pylist(found, pa.schema([(name, pa.int32()) for name in found[0]]))


def digraph_row(n: int) -> dict[str, int]:
    graph = reliable_digraph(n)
    degree = max(len(successors) for successors in graph)
    connectivity = next(k for k in range(degree, -1, -1) if k == 0 or is_connected(graph, k))  # the degree bounds it
    return {"servers": n, "degree": least_degree(n), "connectivity": connectivity, "diameter": diameter(graph)}
