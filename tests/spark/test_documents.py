"""What docs/other-systems.md shows is what its commands print."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amcast.cli import run

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "other-systems.md"
CODES = {"verify": 1, "metrics": 0, "report": 0}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_log_of_another_system(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (log,) = blocks("csv")
    (tmp_path / "ledger.csv").write_text(log)

    def printed(command: str) -> str:
        program, *words = shlex.split(command.replace("\\\n", " "))
        if program != "amcast":
            return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
        # The JVM of the tests was started in another folder.
        code = run([str(tmp_path / word) if word == "ledger.csv" else word for word in words])
        out, err = capsys.readouterr()
        assert (code, err) == (CODES[words[0]], "")
        return out

    capsys.readouterr()
    shown = blocks("console")
    assert len(shown) == 3
    for block in shown:
        ends = re.search(r"(?<!\\)\n", block)
        assert ends is not None and block.startswith("$ ")
        command, output = block[2 : ends.start()], block[ends.end() :]
        assert [line.rstrip() for line in printed(command).splitlines()] == output.splitlines()
    columns = next(word for word in shown[0].split() if "=" in word)
    printed(f"amcast report ledger.csv --columns {columns}")
    assert "first delivery in a group" in (tmp_path / "ledger-report.html").read_text()
