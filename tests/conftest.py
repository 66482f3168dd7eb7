"""Options and fixtures of the whole suite, and what it says at its end of all that did not run."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.pace import allow
from tests.tools import FULL, tool

# Skips that are no gap: the other one of two tests ran.
ONE_OF_TWO = ("compiled here",)


class OneSparkSession(LoadScopeScheduling):
    """Gives all tests of Spark to the first worker, on one session, and the others one by one to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/spark/") else nodeid


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden transcripts of the scenarios anew")
    parser.addoption("--screenshots", metavar="DIR", help="leave pictures of the page there")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tool(name): needs a program that is no part of amcast")
    config.addinivalue_line("markers", "slow: takes long; runs only where everything runs (AMCAST_FULL=1)")
    os.environ.pop("COLUMNS", None)  # workers have it: what a command prints would depend on -n


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are cores: for a third of the time a test waits for the processes of a cluster."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return OneSparkSession(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Let a test take longer on a busy machine before it counts as hung."""
    mark = item.get_closest_marker("timeout")
    seconds = mark.args[0] if mark is not None else float(item.config.getini("timeout") or 0)
    item.add_marker(pytest.mark.timeout(allow(seconds)), append=False)
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not FULL and item.get_closest_marker("slow") is not None:
        pytest.skip("takes long: make test-all")
    for mark in item.iter_markers("tool"):
        tool(*mark.args)


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


def did_not_run(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Count the reasons for which tests were skipped, and the parts that tests say they left out ("left out")."""
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[f"{report.nodeid.partition('::')[0]}: {reason.removeprefix('Skipped: ')}"] += 1
    for report in reporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "left out" and report.when == "call":
                reasons[f"a part of {report.nodeid.partition('::')[0]}: {value}"] += 1
    return reasons


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = did_not_run(terminalreporter)
    if reasons:
        terminalreporter.section("did not run")
        for reason, count in sorted(reasons.items()):
            terminalreporter.write_line(f"{count:5}  {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run in which a test had no cases, and one that has to run everything if anything did not."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter is not None and not hasattr(session.config, "workerinput"):
        for reason in did_not_run(reporter):
            if "got empty parameter set" in reason or (FULL and not reason.endswith(ONE_OF_TWO)):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
