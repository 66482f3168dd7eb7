"""A setting of simulations is stated once: one entry of the table reaches command line, sweeps, metrics and reports."""

import subprocess
import sys
from pathlib import Path

import pytest

from amcast.cli import run
from amcast.errors import UsageError
from amcast.report.drawing import LABELS
from amcast.report.sections import CONFIG_TITLES
from amcast.sim.settings import AXES, CONFIGURATION, SETTINGS, Kind
from amcast.sim.simulation import Crash, Simulation
from amcast.spark.metric_tables import LOAD
from amcast.spark.metrics import CONFIG
from amcast.spark.row import RUN_SCHEMA
from amcast.spark.spec import config_of, simulation_of, spec_of

# One entry more, and all that follows from it: the options, a sweep's key, its column, the metrics' column, the title.
ENTRY = """    depth: int = setting(Kind.TIME, "water depth", "How deep it is.", 0, least=0)
"""
WITH_ENTRY = """
import sys, types
source = open("src/amcast/sim/settings.py").read()
assert source.count("    seed: int = setting(") == 1
source = source.replace("    seed: int = setting(", sys.argv[1] + "    seed: int = setting(")
import amcast.sim
module = sys.modules["amcast.sim.settings"] = amcast.sim.settings = types.ModuleType("amcast.sim.settings")
exec(compile(source, "settings", "exec"), module.__dict__)
from amcast.cli import run
assert run(["sim", "skeen", "--replicas", "1", "--messages", "5", "--depth", "7ms", "--json"]) == 0
assert run(["sim", "--help"]) == 0
from amcast.report.sections import CONFIG_TITLES
from amcast.spark.metrics import CONFIG
from amcast.spark.row import RUN_SCHEMA
from amcast.spark.spec import spec_of
rows = spec_of({"protocol": "skeen", "replicas": 1, "messages": 5, "depth": ["1ms", "2ms"]}, "s", "s").rows()
print([row.simulation.depth for row in rows], RUN_SCHEMA.field("depth_ns"), CONFIG_TITLES["depth_ms"])
assert "depth bigint" in CONFIG
"""


def test_one_entry_is_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_ENTRY, ENTRY],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert '"depth_ns": 7000000' in done.stdout and "How deep it is." in done.stdout and "--depth" in done.stdout
    assert done.stdout.endswith("[1000000, 2000000] pyarrow.Field<depth_ns: int64> water depth, ms\n")


def test_every_setting_is_everywhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run(["sim", "--help"])
    shown = capsys.readouterr().out
    for name, setting in SETTINGS.items():
        assert setting.kind is Kind.PROTOCOL or (f"{setting.flag} " in shown and setting.help[:40] in shown), name
        assert setting.column in RUN_SCHEMA.names and LABELS[setting.column], name
        assert setting.title and setting.help.endswith("."), name
    for setting in CONFIGURATION:
        assert setting.measure in LOAD and CONFIG_TITLES[setting.measure] and f"{setting.name} " in CONFIG
    assert set(SETTINGS) - set(AXES) == {"seed"}, "seeds has a key of its own"


VALUES = {
    "protocol": "optimistic", "groups": 4, "replicas": 5, "clients": 7, "dest_groups": 2, "network": "lan",
    "messages": 9, "rate": 2.5, "payload": 3, "crashes": (Crash("g0/0", 5),), "skew": 4, "checked": True,
    "senders_to": 2, "window": 6, "batch": 8, "seed": 11,
}  # fmt: skip


def test_every_value_survives_the_way_to_an_executor() -> None:
    simulation = Simulation(**VALUES)  # type: ignore[arg-type]
    assert simulation_of(config_of(simulation)) == simulation
    assert set(SETTINGS) - set(VALUES) == {"duration", "rounds"}, "which exclude messages"
    assert config_of(Simulation("skeen")) == '{"protocol": "skeen", "seed": 1}', "a new setting changes no old name"


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.kind is Kind.COUNT])
def test_limits_hold_in_a_program_and_in_a_sweep(name: str) -> None:
    for wrong in (SETTINGS[name].least - 1, SETTINGS[name].most + 1):
        if wrong != SETTINGS[name].default:
            with pytest.raises(UsageError, match=f"^{name} {wrong}: expected a whole number from .* to "):
                Simulation("white_box", **{name: wrong}).world()  # type: ignore[arg-type]
        if name in AXES:
            with pytest.raises(UsageError, match=f"x: {name}: {wrong}: expected a whole number from "):
                spec_of({"protocol": "white_box", name: wrong}, "x", "x")
