"""A process that has imported pytest and the libraries, and forks for each run of tests: a run takes half the time.

Nothing of amcast is imported before the fork, so each run may load it edited.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What tests import, and what has no thread of its own after that.
LIBRARIES = (
    "asyncio", "ssl", "sqlite3", "http.server", "urllib.request", "unittest.mock", "xml.etree.ElementTree",
    "cryptography.x509", "hypothesis", "markdown_it", "matplotlib.figure", "msgspec", "networkx", "numpy", "pandas",
    "prometheus_client", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql.functions",
    "pyspark.sql.types", "rich.console", "rich.live", "rich.progress", "rich.table", "typer.main", "uvloop",
    "xdist.looponfail", "xdist.newhooks", "xdist.plugin",
)  # fmt: skip
# Without the plugin of hypothesis, whose start takes as long as a quick test.
OPTIONS = (
    "-x", "-q", "--tb=short", "-n", "0", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of plugins that are imported already
)  # fmt: skip


class Forks:
    """The process, from the side of who asks it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, ids: list[str], environment: dict[str, str], first: Path | None = None) -> tuple[int, str]:
        """Run the program `first`, then these tests; return pytest's exit code and all that was printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.NamedTemporaryFile() as output:
            order = {"ids": ids, "environment": environment, "output": output.name, "first": str(first or "")}
            self._process.stdin.write(f"{json.dumps(order)}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the process that forks has ended"
            return int(answer), output.read().decode(errors="replace")


def serve() -> None:
    """Fork for each line of the standard input; answer with the exit code."""
    import pytest

    for library in LIBRARIES:
        __import__(library)
    assert not any(name == "amcast" or name.startswith("amcast.") for name in sys.modules)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            with open(order["output"], "wb", buffering=0) as output, open(os.devnull, "rb") as nothing:
                for target, source in ((0, nothing), (1, output), (2, output)):
                    os.dup2(source.fileno(), target)
            os.environ.clear()
            os.environ.update(order["environment"])
            if order["first"]:
                runpy.run_path(order["first"])
            code = pytest.main([*OPTIONS, *order["ids"]])
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
