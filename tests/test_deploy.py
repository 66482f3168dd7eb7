"""What is in deploy/: checked by the tools that will read it, where they run here."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.pace import allow
from tests.tools import tool

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
METRICS = (ROOT / "src" / "amcast" / "runtime" / "metrics.py").read_text("utf-8")
SUFFIXES = ("_total", "_sum", "_count", "_bucket")


def run(*command: object, cwd: Path = DEPLOY) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, text=True, capture_output=True, check=False, timeout=allow(120))
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def unknown(text: str) -> set[str]:
    """Return the metrics in this text that no node has."""
    known = set(re.findall(r'"(amcast_\w+)"', METRICS))
    named = set(re.findall(r"amcast_\w+", text))
    return {name for name in named if not {name, *(name.removesuffix(suffix) for suffix in SUFFIXES)} & known}


def test_alerts_are_rules_that_do_as_they_say() -> None:
    promtool = tool("promtool")
    assert "7 rules found" in run(promtool, "check", "rules", "alerts.yaml")
    assert "SUCCESS" in run(promtool, "test", "rules", "alerts_test.yaml")


def test_every_alert_is_tested_says_what_to_do_and_is_in_the_operations() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((DEPLOY / "alerts_test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    for rule in rules:
        assert rule["alert"] in fired and f"`{rule['alert']}`" in page
        assert rule["annotations"]["action"]


def test_alerts_and_dashboard_know_only_metrics_that_nodes_have() -> None:
    board = json.loads((DEPLOY / "dashboard.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(shown) >= 8 and not unknown("\n".join(shown))
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert not unknown("\n".join(rule["expr"] for rule in rules))
    assert unknown("rate(amcast_moons_total[1m])") == {"amcast_moons_total"}


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """But for the program and the user, which are not on this machine."""
    analyze = tool("systemd-analyze")
    unit = tmp_path / "amcast@.service"
    unit.write_text((DEPLOY / "amcast@.service").read_text().replace("/opt/amcast/bin/amcast", "/bin/true"))
    done = subprocess.run([analyze, "verify", "--man=no", unit], text=True, capture_output=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if str(unit) in line or "amcast@" in line]
    assert not complaints, complaints
    broken = tmp_path / "broken@.service"
    broken.write_text(unit.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    done = subprocess.run([analyze, "verify", "--man=no", broken], text=True, capture_output=True, check=False)
    assert "sometimes" in done.stderr


def test_kubernetes_files_fit_together() -> None:
    """The base leaves nothing out, and the listeners are those that bundles name."""
    base = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    documents = [d for name in base["resources"] for d in yaml.safe_load_all((DEPLOY / name).read_text())]
    kinds = [document["kind"] for document in documents]
    assert kinds == ["Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"]
    if shutil.which("kubectl"):
        rendered = list(yaml.safe_load_all(run("kubectl", "kustomize", ".")))
        assert sorted(document["kind"] for document in rendered) == sorted(kinds)


def test_the_compose_file_runs_what_a_bundle_holds() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    assert sorted(services) == ["node0", "node1", "node2"]
    for number, (name, service) in enumerate(sorted(services.items())):
        assert service["command"][:3] == ["node", "/etc/amcast/cluster.toml", f"g0/{number}"]
        assert service["volumes"][0] == f"./bundles/{name}:/etc/amcast:ro"
    assert f"--hosts {','.join(sorted(services))}" in text


def test_the_image_is_made_of_the_wheel_alone() -> None:
    """No engine runs here: tests/test_packages.py takes the same steps in a clean environment."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert "COPY dist/*.whl /tmp/" in lines and 'ENTRYPOINT ["amcast"]' in lines and "USER 10001:10001" in lines
    assert [line for line in lines if line.startswith(("COPY", "ADD"))] == ["COPY dist/*.whl /tmp/"]
